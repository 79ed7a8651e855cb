"""The AXE suite: explanations judged without a ground truth, its rivals, and fairwashing (paper 004).

Four parts share the grid: methods on tables; the rows of Table 2; a fairwashed forecaster; and the regression extension
over the stored cells of the energy suite. Each is a class that lists, identifies and scores its cells.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from explainbench.core.arrays import Ints
from explainbench.core.cell import Cell, CellResult, Score, stream, stream_key
from explainbench.core.errors import BadInput
from explainbench.core.grid import GridCell, energy_grid
from explainbench.core.masking import Groups, Masker
from explainbench.core.params import Params
from explainbench.core.provenance import canonical_json, sha256_json, source_identity, versions
from explainbench.core.record import CellName, CellSpec
from explainbench.core.tabular import TABULAR_METHODS, TABULAR_MODELS, TabularModel
from explainbench.core.workspace import Workspace
from explainbench.data._attack_table import AttackTable
from explainbench.data._axe_generated import load_and_weather
from explainbench.data._axe_tables import (
    OPENXAI,
    PUBLIC,
    AxeTable,
    attack_files_of,
    files_of,
    load_attack_table,
    load_table,
    missing,
    sha256_arrays,
)
from explainbench.metrics._top_n import preset
from explainbench.models._fairwashing import FairwashedClassifier, fool_lime, fool_shap
from explainbench.models._openxai_networks import SHA256 as NETWORKS
from explainbench.models._openxai_networks import openxai_network
from explainbench.models._tabular._fitted import Layered
from explainbench.stages._axe_params import AxeParams, axe_params
from explainbench.stages._axe_scores import (
    Judged,
    Question,
    forecast_question,
    judge_attack,
    judge_method,
    judge_ranking,
    judge_stored,
)
from explainbench.stages.data import load_task
from explainbench.stages.suite import Outcome, Suite, locked_cells
from explainbench.store import CellStore, Rows, StoredCell, StoredRows

NUMERICAL = ("numpy", "scipy", "scikit-learn")
PUBLISHED = {"published_lr": "lr", "published_ann": "ann"}  # OpenXAI's weights, by model name
SCORES = "explainbench.stages._axe_scores"
PUBLIC_FILES = {**PUBLIC, **{f"openxai_models/{name}.npz": digest for name, digest in NETWORKS.items()}}
TABLE2, ATTACKED = "table2_", "forecast_attack"
SINGLE = {"title": "one feature at a time", "category": "attribution", "deterministic": True, "vector": "nonnegative"}


class Part(Protocol):
    """Cells of one kind."""

    def owns(self, params: Params, cell: Cell) -> bool: ...
    def grid(self, workspace: Workspace, params: Params) -> Iterator[GridCell]: ...
    def spec(self, workspace: Workspace, params: Params, cell: Cell) -> CellSpec: ...
    def score(self, workspace: Workspace, params: Params, cell: Cell) -> Outcome: ...


@dataclass(frozen=True, slots=True)
class Axe:
    """The suite: every part's cells."""

    def grid(self, workspace: Workspace, params: Params) -> tuple[GridCell, ...]:
        """Public tables that the user has not imported are pending, as is what needs a stored energy cell."""
        return tuple(entry for part in PARTS for entry in part.grid(workspace, params))

    def spec(self, workspace: Workspace, params: Params, cell: Cell) -> CellSpec:
        """The cell's part says. Raises BadInput."""
        return _part(params, cell).spec(workspace, params, cell)

    def score(self, workspace: Workspace, params: Params, cell: Cell) -> Outcome:
        """The cell's part says."""
        return _part(params, cell).score(workspace, params, cell)

    def order(self, params: Params, cells: Sequence[Cell]) -> list[Cell]:
        """Attacks first, which grow forests; then grouped by (table, model), so that a model is fitted once."""
        return sorted(cells, key=lambda cell: (not cell.task.startswith(TABLE2), cell.task, cell.model))

    def draw(self, stored: StoredCell) -> None:
        """This suite draws nothing: its scores are on the boards."""


# Methods on tables


@dataclass(frozen=True, slots=True)
class Comparison:
    """tables x models x (methods + baselines), section 4.2."""

    def owns(self, params: Params, cell: Cell) -> bool:
        """Whether the task is a table."""
        return cell.task in axe_params(params).tables

    def grid(self, workspace: Workspace, params: Params) -> Iterator[GridCell]:
        """Gradient methods need layers; published weights exist for the tables of section 4.2 only."""
        block = axe_params(params)
        for table in block.tables:
            for model in block.models:
                files = {**files_of(table), **_network_files(table, model)}
                pending = _pending(workspace, block, files)
                for method in (*block.methods, *block.baselines):
                    obstacle = _obstacle(table, model, method)
                    yield GridCell(
                        Cell("axe", table, model, method),
                        method in block.baselines,
                        obstacle,
                        None if obstacle else pending,
                    )

    def spec(self, workspace: Workspace, params: Params, cell: Cell) -> CellSpec:
        """Table, explained rows, model, method and preset."""
        block = axe_params(params)
        table = _table(workspace, block, cell.task, params.seed)
        card, weights, source, modules, libraries = _model_identity(workspace, block, cell, table, params.seed)
        method_card = TABULAR_METHODS.card(cell.method)
        method = TABULAR_METHODS.build(cell.method, block.options.get(cell.method))
        rule = asdict(preset(block.preset))
        return _spec(
            params,
            cell,
            runs=_runs(block, cell.method),
            parameters={
                "task": {"table": cell.task, "explained": block.explained},
                "preset": rule,
                "method": asdict(method),  # type: ignore[call-overload]
                "metrics": {
                    "axe": {"k": block.k},
                    "agreement": {},
                    "pgi": {"draws": block.draws},
                    "pgu": {"draws": block.draws},
                },
            },
            dataset=cell.task,
            dataset_sha256=_dataset_sha256(cell.task, files_of(cell.task), table.digest),
            windows_sha256=sha256_arrays(table.test, _explained(block, cell.task, table, params.seed)),
            model_card=card,
            weights_sha256=weights,
            weights_source=source,
            method_card=asdict(method_card),
            modules=[SCORES, "explainbench.data._axe_tables", TABULAR_METHODS.module(cell.method), *modules],
            libraries={*method_card.libraries, *libraries},
        )

    def score(self, workspace: Workspace, params: Params, cell: Cell) -> Outcome:
        """Explain and judge."""
        block = axe_params(params)
        table = _table(workspace, block, cell.task, params.seed)
        explained = _explained(block, cell.task, table, params.seed)
        model = _model(workspace, block, cell, table, params.seed)
        question = Question(table.test, explained, table.train, table.discrete, table.truth, model)
        judged = judge_method(
            *(cell, params.seed, question, TABULAR_METHODS.build(cell.method, block.options.get(cell.method))),
            *(_runs(block, cell.method), preset(block.preset), tuple(block.k), block.draws),
        )
        strata = np.array([f"class {label}" for label in question.predictions[explained]])
        runs = range(_runs(block, cell.method))
        seeds = {f"explain/{run}": list(stream_key(str(cell), "explain", run)) for run in runs}
        return _outcome(cell, params.seed, judged, Rows(explained, strata), table.names, seeds)


# Table 2


@dataclass(frozen=True, slots=True)
class Table2:
    """One cell per row of Table 2: an attack on LIME or SHAP with one foil or two, section 4.1."""

    def owns(self, params: Params, cell: Cell) -> bool:
        """Whether the task is a table of Table 2."""
        return cell.task.startswith(TABLE2)

    def grid(self, workspace: Workspace, params: Params) -> Iterator[GridCell]:
        """German Credit has one foil, every other table two."""
        block = axe_params(params)
        for table in block.fairwashing.tables if block.fairwashing else ():
            pending = _pending(workspace, block, attack_files_of(table))
            for foils in ("1foil",) if table == "german" else ("1foil", "2foils"):
                for fooled in ("lime", "shap"):
                    cell = Cell("axe", f"{TABLE2}{table}", f"{fooled}_{foils}", "single_feature")
                    yield GridCell(cell, False, None, pending)

    def spec(self, workspace: Workspace, params: Params, cell: Cell) -> CellSpec:
        """Table, attack and presets."""
        block, part = axe_params(params), _fairwashing(params)
        table = _attack_table(workspace, block, cell, params.seed)
        arrays = (table.train, table.test, table.train_labels, table.test_labels)
        digest = sha256_arrays(*arrays, names=table.names)
        files = attack_files_of(cell.task.removeprefix(TABLE2))
        card = {"model": f"fairwashed classifier {cell.model}", "fitted_on": digest, "seed": params.seed}
        presets = {prefix: asdict(preset(name)) for prefix, name in part.presets.items()}
        return _spec(
            params,
            cell,
            runs=1,
            parameters={
                "task": {"table": cell.task, "orders": part.orders, "draws": part.draws},
                "presets": presets,
                "metrics": {prefix: {} for prefix in part.presets},
            },
            dataset=cell.task.removeprefix(TABLE2),
            dataset_sha256=_dataset_sha256(table.title, files, digest),
            windows_sha256=sha256_arrays(table.test),
            model_card=card,
            weights_sha256=sha256_json(card),
            weights_source="trained",
            method_card=SINGLE,
            modules=[SCORES, "explainbench.data._axe_tables"],
            libraries=set(),
        )

    def score(self, workspace: Workspace, params: Params, cell: Cell) -> Outcome:
        """Train the attack, and judge what every metric makes of it."""
        block, part = axe_params(params), _fairwashing(params)
        table = _attack_table(workspace, block, cell, params.seed)
        foils = 2 if cell.model.endswith("2foils") else 1
        model = _attack(table, cell.model.startswith("lime"), foils, cell.rng(params.seed, "attack"))
        judged = judge_attack(
            *(cell, params.seed, model, table.test, table.names, table.protected, table.foils, foils),
            *({prefix: preset(name) for prefix, name in part.presets.items()}, part.draws, part.orders),
        )
        strata = np.array([f"class {label}" for label in judged.arrays["output"].astype(int)])
        seeds = {"attack": list(stream_key(str(cell), "attack", 0))}
        return _outcome(cell, params.seed, judged, Rows(np.arange(len(table.test)), strata), table.names, seeds)


def _attack(table: AttackTable, lime: bool, foils: int, rng: np.random.Generator) -> FairwashedClassifier:
    def innocuous(rows: Any) -> Ints:
        return table.innocuous(rows, foils)

    if lime:
        return fool_lime(table.train, table.categorical, table.biased, innocuous, rng)
    return fool_shap(table.train, table.biased, innocuous, rng)


# A fairwashed forecaster


@dataclass(frozen=True, slots=True)
class ForecastAttack:
    """An honest and a fairwashed forecaster, each with the true ranking, the foil's, and a random one."""

    def owns(self, params: Params, cell: Cell) -> bool:
        """Whether this is the task of the forecasting version."""
        return cell.task == ATTACKED

    def grid(self, workspace: Workspace, params: Params) -> Iterator[GridCell]:
        """Two forecasters, two planted rankings and the random one."""
        if axe_params(params).forecast is not None:
            for model in ("honest", "fairwashed"):
                for ranking in ("driver", "foil", "random"):
                    yield GridCell(Cell("axe", ATTACKED, model, ranking), ranking == "random")

    def spec(self, workspace: Workspace, params: Params, cell: Cell) -> CellSpec:
        """Series, windows and attack follow from the seed."""
        part = _forecast(params)
        stamps, values = _series(params.seed)
        digest = sha256_arrays(stamps.astype(np.int64), values)
        card = {"model": cell.model, "trees": part.trees, "training": part.training, "fitted_on": digest}
        category = "baseline" if cell.method == "random" else "attribution"
        return _spec(
            params,
            cell,
            runs=1,
            parameters={
                "task": {"windows": part.windows},
                "metrics": {"faithfulness": {}, "axe_regression": {}, "prediction_gap": {}},
            },
            dataset="load_and_weather",
            dataset_sha256=digest,
            windows_sha256=sha256_json({"series": digest, "windows": part.windows, "training": part.training}),
            model_card=card,
            weights_sha256=sha256_json(card),
            weights_source="trained",
            method_card={**SINGLE, "title": f"planted ranking: {cell.method}", "category": category},
            modules=[SCORES, "explainbench.data._axe_generated"],
            libraries=set(),
        )

    def score(self, workspace: Workspace, params: Params, cell: Cell) -> Outcome:
        """Judge a planted ranking of the groups."""
        part = _forecast(params)
        question = forecast_question(*_series(params.seed), part.training, part.windows, part.trees, params.seed)
        judged = judge_ranking(cell, params.seed, question)
        return _outcome(cell, params.seed, judged, question.windows, question.masker.groups.names, {})


# The regression extension


@dataclass(frozen=True, slots=True)
class Regression:
    """One cell per stored energy cell: AXE by k-NN regression of the forecast, an extension of ours."""

    def owns(self, params: Params, cell: Cell) -> bool:
        """Whether the task is one of the energy suite's."""
        return cell.task in params.suites.energy.tasks

    def grid(self, workspace: Workspace, params: Params) -> Iterator[GridCell]:
        """Pending where the energy cell is not in the store."""
        if axe_params(params).regression is None:
            return
        there = _energy_cells(workspace)
        for entry in energy_grid(params.suites.energy):
            if entry.runnable:
                cell = entry.cell
                pending = None if _name(cell) in there else "its energy cell is not scored; run `explainbench evaluate`"
                yield GridCell(Cell("axe", cell.task, cell.model, cell.method), entry.baseline, None, pending)

    def spec(self, workspace: Workspace, params: Params, cell: Cell) -> CellSpec:
        """The energy cell's identity and what it produced. Raises BadInput where it is not in the store."""
        energy = _stored(workspace, cell)
        spec = energy.record.spec
        return CellSpec(
            **{
                **spec.model_dump(),
                "protocol": params.protocol,
                "cell": CellName(**asdict(cell)),
                "seed": params.seed,
                "parameters": {
                    "task": {"energy_cell": str(energy.cell), "result_digest": energy.record.result_digest},
                    "metrics": {"axe_regression": {"k": _neighbours(params)}, "faithfulness": {}},
                },
                "sources": source_identity([SCORES]),
                "libraries": versions(NUMERICAL),
            }
        )

    def score(self, workspace: Workspace, params: Params, cell: Cell) -> Outcome:
        """Judge the stored explanation; Faithfulness of the energy cell stands beside."""
        energy = _stored(workspace, cell)
        windows = load_task(workspace, cell.task).windows
        arrays = energy.explanations()
        masker = Masker(Groups(arrays["labels"], tuple(energy.record.groups)))
        table = energy.scores().to_pandas().sort_values("window")
        beside = {
            name: Score(rows["raw"].to_numpy(dtype=np.float64))
            for name, rows in table.groupby("metric")
            if name in ("faithfulness", "faithfulness_skill")
        }
        judged = judge_stored(cell, params.seed, windows, masker, arrays, beside, _neighbours(params))
        return _outcome(cell, params.seed, judged, windows, masker.groups.names, {})


PARTS: tuple[Part, ...] = (Comparison(), Table2(), ForecastAttack(), Regression())
SUITE: Suite = Axe()


def _part(params: Params, cell: Cell) -> Part:
    for part in PARTS:
        if part.owns(params, cell):
            return part
    raise BadInput(f"{cell} is no cell of the AXE suite of params.yaml.")


def _spec(
    params: Params,
    cell: Cell,
    *,
    runs: int,
    parameters: dict[str, Any],
    dataset: str,
    dataset_sha256: str,
    windows_sha256: str,
    model_card: dict[str, Any],
    weights_sha256: str,
    weights_source: str,
    method_card: Mapping[str, Any],
    modules: list[str],
    libraries: set[str],
) -> CellSpec:
    return CellSpec(
        protocol=params.protocol,
        cell=CellName(**asdict(cell)),
        seed=params.seed,
        runs=runs,
        parameters=_plain(parameters),
        dataset=dataset,
        dataset_sha256=dataset_sha256,
        windows_sha256=windows_sha256,
        model_card_sha256=sha256_json(_plain(model_card)),
        weights_sha256=weights_sha256,
        weights_source=weights_source,
        method_card=_plain(method_card),
        sources=source_identity(modules),
        libraries=versions({*NUMERICAL, *libraries}),
    )


def _outcome(
    cell: Cell, seed: int, judged: Judged, rows: StoredRows, names: tuple[str, ...], streams: Mapping[str, list[int]]
) -> Outcome:
    return Outcome(
        CellResult(cell, judged.scores, judged.skipped),
        rows,
        judged.arrays,
        {"seed": seed, "streams": dict(streams), "rule": "numpy SeedSequence(seed, spawn_key = SHA-256 of the names)"},
        names,
        notes=judged.notes,
    )


def _plain(value: Any) -> Any:
    """Tuples as lists, as a record holds them."""
    return json.loads(canonical_json(value))


def _pending(workspace: Workspace, block: AxeParams, files: dict[str, str]) -> str | None:
    gone = missing(workspace.root / block.folder, files)
    if not gone:
        return None
    return f"needs {', '.join(gone)}, which is not shipped; run `explainbench data public --from FOLDER`"


def _dataset_sha256(name: str, files: dict[str, str], digest: str) -> str:
    """Of a public table the digests of its files, of a generated one its content."""
    return sha256_json({"table": name, "files": files} if files else {"table": name, "content": digest})


@lru_cache(maxsize=4)
def _loaded(name: str, folder: Path, rows: int, seed: int) -> AxeTable:
    return load_table(name, folder, rows, seed)


def _table(workspace: Workspace, block: AxeParams, name: str, seed: int) -> AxeTable:
    return _loaded(name, workspace.root / block.folder, block.rows, seed)


@lru_cache(maxsize=4)
def _loaded_attack(name: str, folder: Path, rows: int, seed: int) -> AttackTable:
    return load_attack_table(name, folder, rows, seed)


def _attack_table(workspace: Workspace, block: AxeParams, cell: Cell, seed: int) -> AttackTable:
    return _loaded_attack(cell.task.removeprefix(TABLE2), workspace.root / block.folder, block.rows, seed)


@lru_cache(maxsize=1)
def _series(seed: int) -> tuple[Any, Any]:
    return load_and_weather(stream(seed, "axe", "load_and_weather"), 120)


def _explained(block: AxeParams, name: str, table: AxeTable, seed: int) -> Ints:
    count = min(block.explained, len(table.test))
    return np.sort(stream(seed, "axe", name, "explained rows").choice(len(table.test), count, replace=False))


def _runs(block: AxeParams, method: str) -> int:
    return 1 if TABULAR_METHODS.card(method).deterministic else block.runs


def _network_files(table: str, model: str) -> dict[str, str]:
    """The file of published weights, where there are any for the pair."""
    name = f"{table}_{PUBLISHED.get(model, '')}"
    return {f"openxai_models/{name}.npz": NETWORKS[name]} if name in NETWORKS else {}


def _obstacle(table: str, model: str, method: str) -> str | None:
    if model in PUBLISHED:
        if table not in OPENXAI:
            return f"{model}: weights were published for {', '.join(OPENXAI)} only"
        offers = {"HasLayers"}
    else:
        card = TABULAR_MODELS.card(model)
        offers = ({"HasLayers"} if card.input_differentiable else set()) | ({"HasTrees"} if card.trees else set())
    for need in TABULAR_METHODS.card(method).needs:
        if need not in offers:
            return f"{method} needs {need}, which {model} does not offer"
    return None


def _model_identity(
    workspace: Workspace, block: AxeParams, cell: Cell, table: AxeTable, seed: int
) -> tuple[dict[str, Any], str, str, list[str], tuple[str, ...]]:
    """Card, weights' digest and source, modules and libraries of a model; a fitted one follows from card and seed."""
    if cell.model in PUBLISHED:
        files = _network_files(cell.task, cell.model)
        modules = ["explainbench.models._openxai_networks", "explainbench.models._tabular._fitted"]
        return {"model": cell.model, "files": files}, next(iter(files.values())), "official", modules, ("torch",)
    options = asdict(TABULAR_MODELS.build(cell.model, block.options.get(cell.model)))  # type: ignore[call-overload]
    card = {"model": cell.model, "options": options, "fitted_on": table.digest, "seed": seed}
    libraries = TABULAR_MODELS.card(cell.model).libraries
    return card, sha256_json(_plain(card)), "trained", [TABULAR_MODELS.module(cell.model)], libraries


_models: dict[tuple[str, str, str], TabularModel] = {}


def _model(workspace: Workspace, block: AxeParams, cell: Cell, table: AxeTable, seed: int) -> TabularModel:
    """The model of (table, model), kept while a worker stays on it."""
    key = (cell.task, cell.model, f"{table.digest} {block.options.get(cell.model)} {seed}")
    if key not in _models:
        _models.clear()
        if cell.model in PUBLISHED:
            network = openxai_network(workspace.root / block.folder, f"{cell.task}_{PUBLISHED[cell.model]}")
            d = len(table.names)
            _models[key] = Layered(np.zeros(d), np.ones(d), network.layers, "classification")
        else:
            entry = TABULAR_MODELS.build(cell.model, block.options.get(cell.model))
            _models[key] = entry.fit(table.train, table.train_labels.astype(np.float64), "classification", seed)
    return _models[key]


def _fairwashing(params: Params) -> Any:
    part = axe_params(params).fairwashing
    if part is None:
        raise BadInput("params.yaml has no block suites.axe.fairwashing.")
    return part


def _forecast(params: Params) -> Any:
    part = axe_params(params).forecast
    if part is None:
        raise BadInput("params.yaml has no block suites.axe.forecast.")
    return part


def _neighbours(params: Params) -> int:
    part = axe_params(params).regression
    if part is None:
        raise BadInput("params.yaml has no block suites.axe.regression.")
    return part.k


def _name(cell: Cell) -> str:
    return f"energy.{cell.task}.{cell.model}.{cell.method}"


def _energy_cells(workspace: Workspace) -> dict[str, Path]:
    """{folder name without the id: folder} of the stored energy cells; the locked one where there are several."""
    locked = {cell_id[:16] for cell_id in locked_cells(workspace)["energy"]}
    found: dict[str, Path] = {}
    for folder in CellStore(workspace.cells).folders():
        name, cell_id = folder.name.rsplit(".", 1)
        if name.startswith("energy.") and (name not in found or cell_id in locked):
            found[name] = folder
    return found


def _stored(workspace: Workspace, cell: Cell) -> StoredCell:
    folder = _energy_cells(workspace).get(_name(cell))
    if folder is None:
        raise BadInput(
            f"energy cell {cell.task}/{cell.model}/{cell.method} is not scored; run `explainbench evaluate`."
        )
    return CellStore(workspace.cells).read(folder)
