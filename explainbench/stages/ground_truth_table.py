"""The ground-truth suite over all its datasets, and its cells where a forecast's drivers are known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from explainbench.analysis.boards import scores_from_columns
from explainbench.analysis.ground_truth import Averaging, Scored, suite_table
from explainbench.core.errors import BadInput, Corrupt
from explainbench.core.params import Params
from explainbench.core.workspace import Workspace
from explainbench.metrics.xfa import PARTS, VARIANTS
from explainbench.stages._ground_truth_params import ground_truth_params
from explainbench.stages.suite import grid_status
from explainbench.store import CellStore, StoredCell, first_problem, read_lock


def table(workspace: Workspace, params: Params) -> list[dict[str, Any]]:
    """The stored cells of the suite, every one checked against cells.lock.json, brought together over datasets.

    Raises BadInput where nothing is evaluated, Corrupt where a stored cell is not the locked one.
    """
    block = ground_truth_params(params)
    how = Averaging(
        block.complexity(),
        params.statistics.confidence,
        params.statistics.bootstrap,
        params.seed,
        block.overall.variant,
        block.overall.weights,
        block.overall.axis,
    )
    baselines = {row["cell"] for row in grid_status(workspace) if row["baseline"]}
    cells = [
        _scored(stored, str(stored.cell) in baselines)
        for stored in _stored(workspace, "ground_truth")
        if stored.cell.task in how.complexity
    ]
    if not cells:
        raise BadInput("no cell of the ground-truth suite is stored; run `explainbench evaluate --suite ground_truth`.")
    return suite_table(cells, how)


def forecasts_table(workspace: Workspace, params: Params) -> list[dict[str, Any]]:
    """Where a forecast's drivers are known: the means of XFA and its parts, one row per stored cell, best XFA first.

    Tasks of the energy suite: against the simulator's true drivers among the groups that the model sees. Task
    `planted`: against the exact Shapley values of forecasters known in closed form. None where a score is undefined.
    """
    tables = set(ground_truth_params(params).datasets)
    rows = []
    for stored in _stored(workspace, "ground_truth"):
        cell, means = stored.cell, stored.record.scores
        if cell.task not in tables and "xfa_text" in means:
            numbers = {name: means[name].raw if name in means else None for name in (*VARIANTS, *PARTS)}
            rows.append({"task": cell.task, "model": cell.model, "method": cell.method} | numbers)
    return sorted(rows, key=lambda row: (row["task"], row["model"], -(row["xfa_text"] or 0.0), row["method"]))


def _stored(workspace: Workspace, suite: str) -> Iterator[StoredCell]:
    locked = read_lock(workspace.lock)
    for stored in CellStore(workspace.cells):
        if stored.cell.suite == suite and stored.record.cell_id in locked:
            problem = first_problem(stored)
            if problem is not None or locked[stored.record.cell_id] != stored.digest:
                raise Corrupt(
                    f"{problem or f'{stored.folder} is not the cell of {workspace.lock.name}'}; evaluate again."
                )
            yield stored


def _scored(stored: StoredCell, baseline: bool) -> Scored:
    columns = stored.scores().to_pydict()
    _, scores, _ = scores_from_columns(columns)
    regime = dict(zip(columns["window"], columns["regime"], strict=True))
    cell = stored.cell
    return Scored(
        cell.task,
        cell.model,
        cell.method,
        baseline,
        {name: score.raw for name, score in scores.items() if len(score.raw) > 1},
        {name: float(score.raw[0]) for name, score in scores.items() if len(score.raw) == 1},
        np.array([regime[number] for number in sorted(regime) if number >= 0]),
        len(stored.record.groups),
    )
