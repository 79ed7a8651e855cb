"""The stage `evaluate`: every cell of the grid that the store does not hold yet (paper 000, Algorithm 1)."""

from __future__ import annotations

import platform
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from explainbench.core.cell import Cell
from explainbench.core.errors import BadInput, Corrupt
from explainbench.core.files import write_json
from explainbench.core.forecaster import BATCH
from explainbench.core.grid import GridCell, energy_grid
from explainbench.core.params import Params
from explainbench.core.provenance import sha256_json, source_identity, versions
from explainbench.core.record import CellName, CellSpec, Measured
from explainbench.core.registry import METHODS, METRICS, MODELS
from explainbench.core.workspace import Workspace
from explainbench.figures import draw_cell
from explainbench.runner import Failed, run
from explainbench.stages.cell import Bench, build_bench, options, run_count, score_cell
from explainbench.stages.data import load_task
from explainbench.stages.fit import load_forecaster, model_identity
from explainbench.store import CellStore, StoredCell, first_problem, read_lock, write_lock

NUMERICAL = ("numpy", "scipy", "torch")


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


def cell_spec(workspace: Workspace, params: Params, cell: Cell) -> CellSpec:
    """Everything that determines the cell's numbers. Raises BadInput when a stage before this one has not run."""
    suite = params.suites.energy
    data = load_task(workspace, cell.task)
    card_sha, weights_sha, weights_source = model_identity(workspace.models / cell.task / cell.model)
    method_card = METHODS.card(cell.method)
    modules = [
        "explainbench.stages.cell",
        METHODS.module(cell.method),
        MODELS.module(cell.model),
        *(METRICS.module(name) for name in suite.metrics),
    ]
    libraries = {*NUMERICAL, *method_card.libraries, *MODELS.card(cell.model).libraries}
    return CellSpec(
        protocol=params.protocol,
        cell=CellName(**asdict(cell)),
        seed=params.seed,
        runs=run_count(params, cell.method),
        parameters={
            "task": suite.tasks[cell.task].model_dump(mode="json"),
            "masker": suite.masker,
            "batch": BATCH,
            "method": options(METHODS.build(cell.method, params.methods.get(cell.method))),
            "metrics": {name: options(METRICS.build(name, params.metrics.get(name))) for name in suite.metrics},
        },
        dataset=data.dataset,
        dataset_sha256=data.dataset_sha256,
        windows_sha256=data.windows.digest(),
        model_card_sha256=card_sha,
        weights_sha256=weights_sha,
        weights_source=weights_source,
        method_card=_jsonable(asdict(method_card)),
        sources=source_identity(modules),
        libraries=versions(libraries),
    )


def plan(workspace: Workspace, params: Params) -> Plan:
    """Which cells are in the store and which are to do, heaviest first. Raises BadInput."""
    store = CellStore(workspace.cells)
    grid = energy_grid(params.suites.energy)
    ids: dict[Cell, str] = {}
    done: list[StoredCell] = []
    todo: list[Cell] = []
    distrusted: list[str] = []
    for entry in grid:
        if entry.obstacle is not None:
            continue
        cell_id = sha256_json(cell_spec(workspace, params, entry.cell).model_dump(mode="json"))
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
    return Plan(grid, ids, tuple(done), tuple(_heaviest_first(todo, params)), tuple(distrusted))


def evaluate_cell(workspace: Workspace, params: Params, cell: Cell, store_root: Path | None = None) -> Finished:
    """Compute one cell and write it to the store. Runs in a worker, on one thread."""
    import torch

    torch.set_num_threads(1)
    began = time.perf_counter()
    bench = _bench(workspace, params, cell.task, cell.model)
    model_before = bench.model.meter.seconds
    spec = cell_spec(workspace, params, cell)
    scored = score_cell(params, cell, bench)
    model_seconds = bench.model.meter.seconds - model_before
    seconds = time.perf_counter() - began
    measured = Measured(
        seconds=seconds,
        model_seconds=model_seconds,
        peak_memory_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        **hardware(),
        finished=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    stored = CellStore(store_root or workspace.cells).write(
        spec,
        scored.result,
        bench.data.windows,
        scored.explanations,
        scored.seeds,
        bench.masker.groups.names,
        scored.counters,
        scored.notes,
        measured,
    )
    draw_cell(stored, stored.folder / "figures")
    return Finished(cell, stored.record.cell_id, stored.digest, stored.folder, seconds, model_seconds)


def evaluate(
    workspace: Workspace,
    params: Params,
    workers: int,
    on_start: Callable[[Plan], None],
    on_finished: Callable[[Finished | Failed], None],
) -> Summary:
    """Bring the cell store to the grid: compute what is missing, remove what left it, write cells.lock.json.

    Every finished cell is on disk before `on_finished` hears of it, so an interruption loses at most cells in flight.
    """
    began = time.perf_counter()
    todo = plan(workspace, params)
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
    removed = CellStore(workspace.cells).prune({item.folder for item in finished}, "energy.")
    lock = {item.cell_id: item.digest for item in finished}
    others = [item for item in CellStore(workspace.cells) if item.record.spec.cell.suite != "energy"]
    write_lock(workspace.lock, lock | {item.record.cell_id: item.digest for item in others})
    write_json(workspace.results / "grid.json", _grid_status(todo, finished, failed))
    busy = sum(item.seconds for item in computed)
    return Summary(
        len(computed),
        len(todo.done),
        tuple(failed),
        len(removed),
        time.perf_counter() - began,
        sum(item.model_seconds for item in computed) / busy if busy else None,
    )


def verify(workspace: Workspace) -> list[str]:
    """Re-hash every cell against its record and cells.lock.json: the problems found, each in a sentence."""
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
    problems += [
        f"cell {cell_id[:16]} of {workspace.lock.name} is not in {store.root}"
        for cell_id in locked
        if cell_id not in seen
    ]
    return problems


_benches: dict[tuple[str, str, str, str], Bench] = {}


def _bench(workspace: Workspace, params: Params, task: str, model: str) -> Bench:
    """The bench of (task, model), kept while a worker stays on it: at most one is in memory."""
    key = (str(workspace.output), params.model_dump_json(), task, model)
    if key not in _benches:
        _benches.clear()
        forecaster = load_forecaster(workspace, task, model, params)
        _benches[key] = build_bench(params, task, model, load_task(workspace, task), forecaster)
    return _benches[key]


def _heaviest_first(cells: Sequence[Cell], params: Params) -> list[Cell]:
    """Grouped by (task, model), so that shared results are reused; long contexts and sampling methods first."""
    tasks = params.suites.energy.tasks
    weight = {"search": 4, "sampling": 3, "gradient": 2, "forward": 1, "free": 0}
    return sorted(
        cells,
        key=lambda cell: (-tasks[cell.task].context, cell.task, cell.model, -weight[METHODS.card(cell.method).cost]),
    )


def _grid_status(todo: Plan, finished: Sequence[Finished], failed: Sequence[Failed]) -> list[dict[str, object]]:
    ids = {item.cell: item.cell_id for item in finished}
    reasons = {item.cell: item.reason for item in failed}
    rows: list[dict[str, object]] = []
    for entry in todo.grid:
        status = "scored" if entry.cell in ids else "failed" if entry.cell in reasons else "excluded"
        rows.append(
            {
                "cell": str(entry.cell),
                "baseline": entry.baseline,
                "status": status,
                "cell_id": ids.get(entry.cell),
                "reason": reasons.get(entry.cell) or entry.obstacle,
            }
        )
    return rows


def hardware() -> dict[str, Any]:
    """The processor, its vector capability, the torch build and the threads in use."""
    import torch

    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        cpu = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        cpu = platform.processor() or platform.machine()
    return {
        "cpu": cpu,
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
    }


def _jsonable(value: dict[str, object]) -> dict[str, object]:
    return {key: list(item) if isinstance(item, tuple) else item for key, item in value.items()}
