"""The AXE suite: explanations judged without a ground truth, its rivals, and fairwashing (paper 004).

Four parts share the grid: methods on tables; the rows of Table 2; a fairwashed forecaster; and the regression extension
over the stored cells of the energy suite. Each lists, identifies and scores its cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from explainbench.core.cell import Cell
from explainbench.core.grid import GridCell
from explainbench.core.params import Params
from explainbench.core.record import CellSpec
from explainbench.core.workspace import Workspace
from explainbench.data._axe_tables import PUBLIC
from explainbench.models._openxai_networks import SHA256 as NETWORKS
from explainbench.stages._axe_attacks import TABLE2, ForecastAttack, Table2
from explainbench.stages._axe_comparison import Comparison
from explainbench.stages._axe_regression import Regression
from explainbench.stages.suite import Outcome, Part, Suite, part_of
from explainbench.store import StoredCell

PARTS: tuple[Part, ...] = (Comparison(), Table2(), ForecastAttack(), Regression())
PUBLIC_FILES = {**PUBLIC, **{f"openxai_models/{name}.npz": digest for name, digest in NETWORKS.items()}}


@dataclass(frozen=True, slots=True)
class Axe:
    """The suite: every part's cells."""

    def grid(self, workspace: Workspace, params: Params) -> tuple[GridCell, ...]:
        """Public tables that the user has not imported are pending, as is what needs a stored energy cell."""
        return tuple(entry for part in PARTS for entry in part.grid(workspace, params))

    def spec(self, workspace: Workspace, params: Params, cell: Cell) -> CellSpec:
        """The cell's part says. Raises BadInput."""
        return part_of(PARTS, params, cell).spec(workspace, params, cell)

    def score(self, workspace: Workspace, params: Params, cell: Cell) -> Outcome:
        """The cell's part says."""
        return part_of(PARTS, params, cell).score(workspace, params, cell)

    def order(self, params: Params, cells: Sequence[Cell]) -> list[Cell]:
        """Attacks first, which grow forests; then grouped by (table, model), so that a model is fitted once."""
        return sorted(cells, key=lambda cell: (not cell.task.startswith(TABLE2), cell.task, cell.model))

    def draw(self, stored: StoredCell) -> None:
        """This suite draws nothing: its scores are on the boards."""


SUITE: Suite = Axe()
