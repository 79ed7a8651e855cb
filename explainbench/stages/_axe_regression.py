"""The regression extension: AXE over the stored cells of the energy suite, beside their Faithfulness."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from explainbench.core.cell import Cell, Score
from explainbench.core.errors import BadInput
from explainbench.core.grid import GridCell, energy_grid
from explainbench.core.masking import Groups, Masker
from explainbench.core.params import Params
from explainbench.core.record import CellSpec
from explainbench.core.workspace import Workspace
from explainbench.stages._axe_params import axe_params
from explainbench.stages._axe_parts import NUMERICAL, SCORES, outcome_of
from explainbench.stages._axe_scores import judge_stored
from explainbench.stages._energy_cells import awaited, energy_cell, energy_folders, spec_about
from explainbench.stages.data import load_task
from explainbench.stages.suite import Outcome


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
        there = energy_folders(workspace)
        for entry in energy_grid(params.suites.energy):
            if entry.runnable:
                yield GridCell(replace(entry.cell, suite="axe"), entry.baseline, pending=awaited(entry.cell, there))

    def spec(self, workspace: Workspace, params: Params, cell: Cell) -> CellSpec:
        """The energy cell's identity and what it produced. Raises BadInput where it is not in the store."""
        metrics = {"axe_regression": {"k": _neighbours(params)}, "faithfulness": {}}
        return spec_about(energy_cell(workspace, cell), params, cell, metrics, SCORES, NUMERICAL)

    def score(self, workspace: Workspace, params: Params, cell: Cell) -> Outcome:
        """Judge the stored explanation; Faithfulness of the energy cell stands beside."""
        energy = energy_cell(workspace, cell)
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
        return outcome_of(cell, params.seed, judged, windows, masker.groups.names, {})


def _neighbours(params: Params) -> int:
    part = axe_params(params).regression
    if part is None:
        raise BadInput("params.yaml has no block suites.axe.regression.")
    return part.k
