"""The agnostic suite: how explainable a model is (paper 003), on tables, and on the energy suite's forecasters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from explainbench.core.cell import Cell
from explainbench.core.errors import Corrupt
from explainbench.core.grid import GridCell, energy_grid
from explainbench.core.masking import Groups
from explainbench.core.params import Params
from explainbench.core.provenance import sha256_json, source_identity, versions
from explainbench.core.record import CellName, CellSpec
from explainbench.core.registry import MODELS
from explainbench.core.tabular import TABULAR_MODELS
from explainbench.core.windows import Windows
from explainbench.core.workspace import Workspace
from explainbench.data._agnostic_tables import load_table, table, table_digest
from explainbench.metrics.eamex import DEFINITIONS
from explainbench.stages._agnostic_params import AgnosticParams, agnostic_params
from explainbench.stages._energy_cells import awaited, energy_cell, energy_folders
from explainbench.stages.agnostic_cell import METHOD, Judged, judge_explanations, judge_forecaster, judge_table
from explainbench.stages.cell import build_bench, options
from explainbench.stages.data import load_task, training_split
from explainbench.stages.fit import load_forecaster, model_identity
from explainbench.stages.suite import Outcome, Suite
from explainbench.store import Rows, StoredCell, first_problem

NAME = "agnostic"
LIBRARIES = {"numpy", "scipy", "scikit-learn"}
CARD = {"title": "EAMEX", "category": "model", "deterministic": True, "vector": "nonnegative", "resampled": True}
METRICS = {name: {"preset": "paper"} for name in DEFINITIONS["paper"]}


@dataclass(frozen=True, slots=True)
class Agnostic:
    """tables x models; tasks x forecasters of the energy suite; and every cell of explanations of that suite."""

    def grid(self, workspace: Workspace, params: Params) -> tuple[GridCell, ...]:
        """Pending: tables whose files are not imported, forecasters that are not fitted, cells not yet evaluated."""
        block = agnostic_params(params)
        cells: list[GridCell] = []
        for name in block.tables:
            pending = table(name).missing(public_folder(workspace, block))
            cells += [GridCell(Cell(NAME, name, model, METHOD), False, pending=pending) for model in block.models]
        if not block.energy:
            return tuple(cells)
        for task in params.suites.energy.tasks:
            for model in params.suites.energy.models:
                fitted = (workspace.models / task / model / "card.json").is_file()
                cut = (workspace.windows / f"{task}.json").is_file()
                missing = None if fitted and cut else "the model is not fitted; run `explainbench fit` first"
                cells.append(GridCell(Cell(NAME, task, model, METHOD), False, pending=missing))
        there = energy_folders(workspace)
        for entry in energy_grid(params.suites.energy):
            if entry.baseline or entry.obstacle is not None:
                continue
            cells.append(GridCell(replace(entry.cell, suite=NAME), False, pending=awaited(entry.cell, there)))
        return tuple(cells)

    def spec(self, workspace: Workspace, params: Params, cell: Cell) -> CellSpec:
        """What determines the cell's numbers: of explanations also the id and the record of the cell they are from."""
        block = agnostic_params(params)
        if cell.method != METHOD:
            return _explanations_spec(workspace, params, block, cell)
        return (_table_spec if cell.task in block.tables else _forecaster_spec)(workspace, params, block, cell)

    def score(self, workspace: Workspace, params: Params, cell: Cell) -> Outcome:
        """Compute the cell. Raises BadInput, Corrupt, NotApplicable."""
        block = agnostic_params(params)
        if cell.method != METHOD:
            stored = energy_cell(workspace, cell)
            problem = first_problem(stored)
            if problem is not None:
                raise Corrupt(f"{problem}; evaluate the energy suite again.")
            groups = _every_group(params, cell.task, load_task(workspace, cell.task).windows)
            judged = judge_explanations(block, params.seed, cell, stored.explanations(), stored.record.groups, groups)
        elif cell.task in block.tables:
            split = load_table(cell.task, public_folder(workspace, block), params.seed)
            judged = judge_table(block, params.seed, cell, table(cell.task).kind, split)
        else:
            forecaster = load_forecaster(workspace, cell.task, cell.model, params)
            bench = build_bench(params, cell.task, cell.model, load_task(workspace, cell.task), forecaster)
            learning = _learning(workspace, params, cell.task, block.learned)
            groups = _every_group(params, cell.task, bench.data.windows)
            judged = judge_forecaster(block, params.seed, cell, bench, learning, groups)
        return _outcome(params, cell, judged)

    def order(self, params: Params, cells: Sequence[Cell]) -> list[Cell]:
        """Models before explanations, large tables first, tasks together."""
        tables = list(params.suites.agnostic.get("tables", ()))
        return sorted(cells, key=lambda c: (c.method != METHOD, -tables.index(c.task) if c.task in tables else 1, c))

    def draw(self, stored: StoredCell) -> None:
        """No pictures of a cell; `explainbench radar` draws those of a board."""


SUITE: Suite = Agnostic()


def public_folder(workspace: Workspace, block: AgnosticParams) -> Path:
    """Where imported public files lie."""
    return workspace.root / block.folder


def _table_spec(workspace: Workspace, params: Params, block: AgnosticParams, cell: Cell) -> CellSpec:
    card = TABULAR_MODELS.card(cell.model)
    fitted = options(TABULAR_MODELS.build(cell.model, block.models[cell.model]))
    data = table_digest(cell.task, params.seed)
    model = sha256_json({"model": cell.model, "options": fitted})
    return _spec(
        params, block, cell,
        dataset=cell.task,
        dataset_sha256=data,
        windows_sha256=sha256_json({"table": data, "rows": block.rows}),
        model_card_sha256=model,
        weights_sha256=sha256_json({"model": model, "table": data, "seed": params.seed}),
        weights_source="trained",
        more={"model": fitted},
        modules=[TABULAR_MODELS.module(cell.model), "explainbench.data._agnostic_tables"],
        libraries={*card.libraries, "shap"},
    )  # fmt: skip


def _forecaster_spec(workspace: Workspace, params: Params, block: AgnosticParams, cell: Cell) -> CellSpec:
    data = load_task(workspace, cell.task)
    card_sha256, weights_sha256, weights_source = model_identity(workspace.models / cell.task / cell.model)
    return _spec(
        params, block, cell,
        dataset=data.dataset,
        dataset_sha256=data.dataset_sha256,
        windows_sha256=data.windows.digest(),
        model_card_sha256=card_sha256,
        weights_sha256=weights_sha256,
        weights_source=weights_source,
        more={"task": params.suites.energy.tasks[cell.task].model_dump(mode="json"), "stride": params.fit.stride},
        modules=[MODELS.module(cell.model)],
        libraries={"torch", *MODELS.card(cell.model).libraries},
    )  # fmt: skip


def _explanations_spec(workspace: Workspace, params: Params, block: AgnosticParams, cell: Cell) -> CellSpec:
    stored = energy_cell(workspace, cell)
    spec = stored.record.spec
    return _spec(
        params, block, cell,
        dataset=spec.dataset,
        dataset_sha256=spec.dataset_sha256,
        windows_sha256=spec.windows_sha256,
        model_card_sha256=spec.model_card_sha256,
        weights_sha256=spec.weights_sha256,
        weights_source=spec.weights_source,
        more={
            "task": spec.parameters["task"],
            "explanations": {"cell": str(stored.cell), "cell_id": stored.record.cell_id, "record": stored.digest},
        },
        modules=[],
        libraries=set(),
    )  # fmt: skip


def _spec(
    params: Params,
    block: AgnosticParams,
    cell: Cell,
    *,
    dataset: str,
    dataset_sha256: str,
    windows_sha256: str,
    model_card_sha256: str,
    weights_sha256: str,
    weights_source: str,
    more: dict[str, Any],
    modules: list[str],
    libraries: set[str],
) -> CellSpec:
    numbers = block.model_dump(mode="json", exclude={"folder", "tables", "models", "energy"})
    return CellSpec(
        protocol=params.protocol,
        cell=CellName(**asdict(cell)),
        seed=params.seed,
        runs=1,
        parameters={"metrics": METRICS, **numbers, **more},
        dataset=dataset,
        dataset_sha256=dataset_sha256,
        windows_sha256=windows_sha256,
        model_card_sha256=model_card_sha256,
        weights_sha256=weights_sha256,
        weights_source=weights_source,
        method_card=CARD,
        sources=source_identity(["explainbench.stages.agnostic_cell", *modules]),
        libraries=versions(LIBRARIES | libraries),
    )


def _outcome(params: Params, cell: Cell, judged: Judged) -> Outcome:
    names = ("rows", "explained rows", "permute", "explain", "surrogate", "bootstraps")
    seeds = {
        "seed": params.seed,
        "streams": {name: [NAME, cell.task, name] for name in names},
        "rule": "numpy SeedSequence(seed, spawn_key = SHA-256 words of the names joined by unit separators)",
    }
    if judged.model_sha256:
        seeds["model_sha256"] = judged.model_sha256
    return Outcome(
        judged.result,
        Rows(judged.origin, judged.regime),
        judged.arrays,
        seeds,
        judged.features,
        judged.counters,
        {"rows_left_out": float(judged.left_out)},
        judged.model_seconds,
    )


def _every_group(params: Params, task: str, windows: Windows) -> Groups:
    """The groups of all measured channels, whether a model sees them or not."""
    spec = params.suites.energy.tasks[task]
    return Groups.of(windows.channels, spec.context, spec.segment, windows.channels.observed)


def _learning(workspace: Workspace, params: Params, task: str, count: int) -> Windows:
    """Training windows, evenly spaced, on which a forecaster's surrogate is fitted."""
    training = _training(workspace, params.model_dump_json(), task)
    return training.take(np.unique(np.linspace(0, len(training) - 1, min(count, len(training))).astype(np.int64)))


@lru_cache(maxsize=1)
def _training(workspace: Workspace, params: str, task: str) -> Windows:
    return training_split(workspace, Params.model_validate_json(params), task)[0]
