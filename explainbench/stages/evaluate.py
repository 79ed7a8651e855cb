"""The stage `evaluate`: every cell of a suite's grid that the store does not hold yet."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from explainbench.core.cell import Cell
from explainbench.core.errors import BadInput, Corrupt
from explainbench.core.files import write_json
from explainbench.core.grid import GridCell
from explainbench.core.params import Params
from explainbench.core.provenance import sha256_json
from explainbench.core.record import Measured
from explainbench.core.workspace import Workspace
from explainbench.runner import Failed, run
from explainbench.stages.hardware import hardware
from explainbench.stages.suite import GRID, NAMES, grid_status, load_suite, locked_cells
from explainbench.store import CellStore, StoredCell, write_lock


@dataclass(frozen=True, slots=True)
class Finished:
    """A cell that is in the store; seconds is 0 when it was there already."""

    cell: Cell
    cell_id: str
    digest: str
    folder: Path
    seconds: float
    model_seconds: float = 0.0
    cached: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """The grid with each runnable cell's id, split into what the store holds and what is to do."""

    grid: tuple[GridCell, ...]
    ids: dict[Cell, str]
    done: tuple[StoredCell, ...]
    todo: tuple[Cell, ...]
    recomputed: tuple[str, ...]  # why a stored cell was not trusted


@dataclass(frozen=True, slots=True)
class Summary:
    """What one `evaluate` did."""

    computed: int
    cached: int
    failed: tuple[Failed, ...]
    removed: int
    seconds: float
    model_share: float | None  # of the workers' wall time; None when nothing was computed


def plan(workspace: Workspace, params: Params, suite: str = "energy") -> Plan:
    """Which cells of a suite are in the store and which are to do, heaviest first. Raises BadInput."""
    store, chosen = CellStore(workspace.cells), load_suite(suite)
    grid = chosen.grid(workspace, params)
    ids: dict[Cell, str] = {}
    done: list[StoredCell] = []
    todo: list[Cell] = []
    distrusted: list[str] = []
    for entry in grid:
        if not entry.runnable:
            continue
        cell_id = sha256_json(chosen.spec(workspace, params, entry.cell).model_dump(mode="json"))
        ids[entry.cell] = cell_id
        try:
            stored = store.find(entry.cell, cell_id)
        except (Corrupt, BadInput) as problem:
            distrusted.append(str(problem))
            stored = None
        if stored is None:
            todo.append(entry.cell)
        else:
            done.append(stored)
    return Plan(grid, ids, tuple(done), tuple(chosen.order(params, todo)), tuple(distrusted))


def evaluate_cell(workspace: Workspace, params: Params, cell: Cell, store_root: Path | None = None) -> Finished:
    """Compute one cell and write it to the store. Runs in a worker, on one thread."""
    import torch

    torch.set_num_threads(1)
    began = time.perf_counter()
    suite = load_suite(cell.suite)
    spec = suite.spec(workspace, params, cell)
    with threadpool_limits(1):  # numpy's products too: on more threads their last bits differ
        outcome = suite.score(workspace, params, cell)
    seconds = time.perf_counter() - began
    measured = Measured(
        seconds=seconds,
        model_seconds=outcome.model_seconds,
        peak_memory_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        **hardware(),
        finished=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    stored = CellStore(store_root or workspace.cells).write(
        spec,
        outcome.result,
        outcome.rows,
        outcome.arrays,
        outcome.seeds,
        outcome.groups,
        outcome.counters,
        outcome.notes,
        measured,
    )
    suite.draw(stored)
    return Finished(cell, stored.record.cell_id, stored.digest, stored.folder, seconds, outcome.model_seconds)


def evaluate(
    workspace: Workspace,
    params: Params,
    workers: int,
    on_start: Callable[[Plan], None],
    on_finished: Callable[[Finished | Failed], None],
    suite: str = "energy",
) -> Summary:
    """Bring the cell store to a suite's grid: compute what is missing, remove what left it, write cells.lock.json.

    Every finished cell is on disk before `on_finished` hears of it, so an interruption loses at most cells in flight.
    Raises Unavailable while another process computes cells in the same store.
    """
    with CellStore(workspace.cells).one_runner():
        return _evaluate(workspace, params, workers, on_start, on_finished, suite)


def _evaluate(
    workspace: Workspace,
    params: Params,
    workers: int,
    on_start: Callable[[Plan], None],
    on_finished: Callable[[Finished | Failed], None],
    suite: str,
) -> Summary:
    began = time.perf_counter()
    todo = plan(workspace, params, suite)
    on_start(todo)
    finished = [
        Finished(item.cell, item.record.cell_id, item.digest, item.folder, 0.0, cached=True) for item in todo.done
    ]
    failed: list[Failed] = []
    computed: list[Finished] = []
    for outcome in run(todo.todo, partial(evaluate_cell, workspace, params), workers):
        if isinstance(outcome, Failed):
            failed.append(outcome)
        else:
            computed.append(outcome)
        on_finished(outcome)
    finished += computed
    removed = CellStore(workspace.cells).prune({item.folder for item in finished}, f"{suite}.")
    lock = {item.cell_id: item.digest for item in finished}
    for name, cells in locked_cells(workspace).items():  # of other suites, also what is locked but not here
        lock |= cells if name != suite else {}
    others = [item for item in CellStore(workspace.cells) if item.cell.suite != suite]
    write_lock(workspace.lock, lock | {item.record.cell_id: item.digest for item in others})
    _write_status(workspace, suite, _grid_status(todo.grid, finished, failed))
    busy = sum(item.seconds for item in computed)
    return Summary(
        len(computed),
        len(todo.done),
        tuple(failed),
        len(removed),
        time.perf_counter() - began,
        sum(item.model_seconds for item in computed) / busy if busy else None,
    )


def _grid_status(
    grid: Sequence[GridCell], finished: Sequence[Finished], failed: Sequence[Failed]
) -> list[dict[str, Any]]:
    ids = {item.cell: item.cell_id for item in finished}
    reasons = {item.cell: item.reason for item in failed}
    rows: list[dict[str, Any]] = []
    for entry in grid:
        unscored = "failed" if entry.cell in reasons else "pending" if entry.pending else "excluded"
        rows.append(
            {
                "cell": str(entry.cell),
                "baseline": entry.baseline,
                "status": "scored" if entry.cell in ids else unscored,
                "cell_id": ids.get(entry.cell),
                "reason": reasons.get(entry.cell) or entry.obstacle or entry.pending,
            }
        )
    return rows


def _write_status(workspace: Workspace, suite: str, rows: Sequence[dict[str, Any]]) -> None:
    """Replace the suite's rows of results/grid.json."""
    every = [row for row in grid_status(workspace) if row["cell"].split("/")[0] != suite] + list(rows)
    write_json(workspace.results / GRID, sorted(every, key=lambda row: NAMES.index(row["cell"].split("/")[0])))
