"""Methods on tables: the cells of paper 004, section 4.2."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from explainbench.core.arrays import Ints
from explainbench.core.cell import Cell, stream, stream_key
from explainbench.core.grid import GridCell
from explainbench.core.params import Params
from explainbench.core.provenance import sha256_json
from explainbench.core.record import CellSpec
from explainbench.core.tabular import TABULAR_METHODS, TABULAR_MODELS, TabularModel
from explainbench.core.workspace import Workspace
from explainbench.data._axe_tables import OPENXAI, AxeTable, files_of, load_table, sha256_arrays
from explainbench.metrics._top_n import preset
from explainbench.models._openxai_networks import SHA256 as NETWORKS
from explainbench.models._openxai_networks import openxai_network
from explainbench.models._tabular._fitted import Layered
from explainbench.stages._axe_params import AxeParams, axe_params
from explainbench.stages._axe_parts import SCORES, awaits, dataset_sha256, outcome_of, plain, spec_of
from explainbench.stages._axe_scores import Question, judge_method
from explainbench.stages.suite import Outcome
from explainbench.store import Rows

PUBLISHED = {"published_lr": "lr", "published_ann": "ann"}  # OpenXAI's weights, by model name


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
                pending = awaits(workspace, block, files)
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
        return spec_of(
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
            dataset_sha256=dataset_sha256(cell.task, files_of(cell.task), table.digest),
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
        return outcome_of(cell, params.seed, judged, Rows(explained, strata), table.names, seeds)


@lru_cache(maxsize=4)
def _loaded(name: str, folder: Path, rows: int, seed: int) -> AxeTable:
    return load_table(name, folder, rows, seed)


def _table(workspace: Workspace, block: AxeParams, name: str, seed: int) -> AxeTable:
    return _loaded(name, workspace.root / block.folder, block.rows, seed)


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
    return card, sha256_json(plain(card)), "trained", [TABULAR_MODELS.module(cell.model)], libraries


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
