"""The energy suite's stored cells, as cells of another suite ask about them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from explainbench.core.cell import Cell
from explainbench.core.errors import BadInput
from explainbench.core.params import Params
from explainbench.core.provenance import source_identity, versions
from explainbench.core.record import CellName, CellSpec
from explainbench.core.workspace import Workspace
from explainbench.store import CellStore, StoredCell, read_lock


def energy_name(cell: Cell) -> Cell:
    """The energy cell that a cell of another suite is about: same task, model and method."""
    return replace(cell, suite="energy")


def energy_folders(workspace: Workspace) -> dict[Cell, Path]:
    """The cells of the energy suite that the lock and the store hold."""
    return _locked_folders(workspace, "energy.*")


def awaited(cell: Cell, there: dict[Cell, Path]) -> str | None:
    """What a cell is pending for whose energy cell is not among those `there`."""
    wanted = energy_name(cell)
    return None if wanted in there else f"{wanted} is not evaluated; run `explainbench evaluate` first"


def energy_cell(workspace: Workspace, cell: Cell) -> StoredCell:
    """The stored energy cell that a cell is about. Raises BadInput where there is none."""
    wanted = energy_name(cell)
    folder = _locked_folders(workspace, f"{str(wanted).replace('/', '.')}.*").get(wanted)
    if folder is None:
        raise BadInput(f"{wanted} is not evaluated; run `explainbench evaluate` first.")
    return CellStore(workspace.cells).read(folder)


def _locked_folders(workspace: Workspace, pattern: str) -> dict[Cell, Path]:
    locked = {cell_id[:16] for cell_id in read_lock(workspace.lock)}
    found: dict[Cell, Path] = {}
    for folder in workspace.cells.glob(pattern):
        *name, cell_id = folder.name.split(".")
        if len(name) == 4 and cell_id in locked:
            found[Cell(*name)] = folder
    return found


def spec_about(
    energy: StoredCell, params: Params, cell: Cell, metrics: Mapping[str, Any], module: str, libraries: Iterable[str]
) -> CellSpec:
    """The identity of a cell that judges stored explanations: what they are and what they were made of.

    module: whose imports are the code on the cell's path.
    """
    spec = energy.record.spec
    return CellSpec(
        **{
            **spec.model_dump(),
            "protocol": params.protocol,
            "cell": CellName(**asdict(cell)),
            "seed": params.seed,
            "parameters": {
                "task": {"energy_cell": str(energy.cell), "result_digest": energy.record.result_digest},
                "metrics": metrics,
            },
            "sources": source_identity([module]),
            "libraries": versions(libraries),
        }
    )
