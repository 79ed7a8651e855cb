"""The ground-truth suite over all its datasets, and the same parts of XFA where a forecast's drivers are known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from explainbench.analysis.boards import scores_from_columns
from explainbench.analysis.ground_truth import Averaging, Scored, mean_parts, suite_table
from explainbench.core.arrays import Floats
from explainbench.core.cell import stream
from explainbench.core.errors import BadInput, Corrupt, NotApplicable
from explainbench.core.masking import Groups, Masker
from explainbench.core.params import Params
from explainbench.core.registry import METHODS
from explainbench.core.workspace import Workspace
from explainbench.metrics.xfa import drivers
from explainbench.stages._ground_truth_params import ground_truth_params
from explainbench.stages._planted import PLANTED, plant
from explainbench.stages.data import load_task
from explainbench.stages.suite import grid_status
from explainbench.store import CellStore, StoredCell, first_problem, read_lock

PLANTED_ON = "T1"
PLANTED_METHODS = ("shap", "lime", "integrated_gradients", "feature_attribution", "perturbation", "random")


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
    cells = [_scored(stored, str(stored.cell) in baselines) for stored in _stored(workspace, "ground_truth")]
    if not cells:
        raise BadInput("no cell of the ground-truth suite is stored; run `explainbench evaluate --suite ground_truth`.")
    return suite_table([cell for cell in cells if cell.dataset in how.complexity], how)


def energy_table(workspace: Workspace, params: Params) -> list[dict[str, Any]]:
    """Parts of XFA of the stored energy cells against the simulator's true drivers: one row per cell, best XFA first.

    The ground truth of a window is the groups above an equal share of the target; groups that the model does not see
    are no players, so its recovery is of the drivers among those it sees. Empty where no drivers are known.
    """
    rows, tasks = [], {}
    for stored in _stored(workspace, "energy"):
        cell = stored.cell
        if cell.task not in tasks:
            tasks[cell.task] = load_task(workspace, cell.task).windows
        windows = tasks[cell.task]
        if windows.truth is None or windows.digest() != stored.record.spec.windows_sha256:
            continue
        arrays = stored.explanations()
        truth = Groups(arrays["labels"], tuple(stored.record.groups)).total(windows.truth)
        seen = truth.any(axis=1)  # a model that sees no driver of a window has nothing to recover in it
        if seen.any():
            name = {"task": cell.task, "model": cell.model, "method": cell.method}
            rows.append(name | mean_parts(arrays["importance"][seen], drivers(truth[seen])))
    return sorted(rows, key=lambda row: (row["task"], row["model"], -row["xfa_text"], row["method"]))


def planted_table(workspace: Workspace, params: Params) -> list[dict[str, Any]]:
    """Parts of XFA on planted forecasters, whose exact Shapley values are known: here the truth is the model's own.

    Empty where the windows of the task are not cut.
    """
    spec = params.suites.energy.tasks.get(PLANTED_ON)
    if spec is None or not (workspace.windows / f"{PLANTED_ON}.npz").is_file():
        return []
    data = load_task(workspace, PLANTED_ON)
    channels = data.windows.channels
    groups = Groups.of(channels, spec.context, spec.segment, channels.observed)
    masker = Masker(groups, params.suites.energy.masker, data.climatology, target=channels.index(spec.target))
    rows = []
    for name in PLANTED:
        try:
            planted = plant(name, masker, channels, spec)
        except NotApplicable:  # the dataset lacks a channel it needs
            continue
        truth = np.abs(planted.truth(data.windows))
        some = truth.sum(axis=1) > 0  # a window whose acting groups lie on the climatology has no truth
        for method in PLANTED_METHODS:
            rng = stream(params.seed, "ground_truth", "planted", name, method)
            entry = METHODS.build(method, params.methods.get(method))
            found = entry.explain(planted.model, data.windows, planted.masker, rng)
            total = planted.masker.groups
            reduce = total.total if METHODS.card(method).vector == "signed" else total.average
            parts = mean_parts(_settled(reduce(found.attribution))[some], _settled(truth)[some])
            rows.append({"planted": name, "method": method} | parts)
    return rows


def _settled(values: Floats) -> Floats:
    """Values without what is only rounding: below 1e-6 of a row's largest one they are zero."""
    size = np.abs(values)
    return np.where(size > 1e-6 * size.max(axis=1, keepdims=True), values, 0.0)


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
