"""`verify`: every stored cell of every suite against its record, and every record against cells.lock.json."""

from __future__ import annotations

from explainbench.core.errors import BadInput, Corrupt
from explainbench.core.workspace import Workspace
from explainbench.stages.suite import NAMES, locked_cells
from explainbench.store import CellStore, first_problem, read_lock


def verify(workspace: Workspace) -> list[str]:
    """Re-hash every cell against its record and cells.lock.json: the problems found, each in a sentence.

    Suites that are `not_here` are not checked.
    """
    store = CellStore(workspace.cells)
    locked = read_lock(workspace.lock)
    if not locked:
        raise BadInput(f"{workspace.lock} does not exist or is empty; run `explainbench evaluate` first.")
    problems: list[str] = []
    seen: set[str] = set()
    for folder in store.folders():
        try:
            stored = store.read(folder)
        except (Corrupt, BadInput) as error:
            problems.append(str(error))
            continue
        cell_id = stored.record.cell_id
        seen.add(cell_id)
        problem = first_problem(stored)
        if problem is not None:
            problems.append(problem)
        if cell_id not in locked:
            problems.append(f"{folder.name}: not in {workspace.lock.name}")
        elif locked[cell_id] != stored.digest:
            problems.append(
                f"{folder.name}/record.json has SHA-256 {stored.digest[:16]}, {workspace.lock.name} says "
                f"{locked[cell_id][:16]}"
            )
    absent = {cell_id for suite in not_here(workspace) for cell_id in locked_cells(workspace)[suite]}
    problems += [
        f"cell {cell_id[:16]} of {workspace.lock.name} is not in {store.root}"
        for cell_id in locked
        if cell_id not in seen | absent
    ]
    return problems


def not_here(workspace: Workspace) -> dict[str, int]:
    """Further suites that are locked and of which no cell is in the store, as after a clone: how many cells of each."""
    there = {folder.name.split(".")[0] for folder in CellStore(workspace.cells).folders()}
    return {
        suite: len(cells)
        for suite, cells in locked_cells(workspace).items()
        if cells and suite not in there and suite != NAMES[0]
    }
