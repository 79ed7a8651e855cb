"""The energy suite's stored cells, as cells of another suite ask about them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from explainbench.core.cell import Cell
from explainbench.core.errors import BadInput
from explainbench.core.workspace import Workspace
from explainbench.stages.suite import locked_cells
from explainbench.store import CellStore, StoredCell


def energy_name(cell: Cell) -> Cell:
    """The energy cell that a cell of another suite is about: same task, model and method."""
    return replace(cell, suite="energy")


def energy_folders(workspace: Workspace) -> dict[Cell, Path]:
    """The cells of the energy suite that the lock and the store hold."""
    locked = {cell_id[:16] for cell_id in locked_cells(workspace)["energy"]}
    found: dict[Cell, Path] = {}
    for folder in CellStore(workspace.cells).folders():
        suite, *rest = folder.name.split(".")
        if suite == "energy" and len(rest) == 4 and rest[3] in locked:
            found[Cell(suite, *rest[:3])] = folder
    return found


def awaited(cell: Cell, there: dict[Cell, Path]) -> str | None:
    """What a cell is pending for whose energy cell is not among those `there`."""
    wanted = energy_name(cell)
    return None if wanted in there else f"{wanted} is not evaluated; run `explainbench evaluate` first"


def energy_cell(workspace: Workspace, cell: Cell) -> StoredCell:
    """The stored energy cell that a cell is about. Raises BadInput where there is none."""
    wanted = energy_name(cell)
    folder = energy_folders(workspace).get(wanted)
    if folder is None:
        raise BadInput(f"{wanted} is not evaluated; run `explainbench evaluate` first.")
    return CellStore(workspace.cells).read(folder)
