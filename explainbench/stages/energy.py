"""The energy suite: explanation methods on forecasting models (paper 000, Algorithm 1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache

from explainbench.core.cell import Cell
from explainbench.core.forecaster import BATCH
from explainbench.core.grid import GridCell, check_blocks, energy_grid
from explainbench.core.params import Params
from explainbench.core.provenance import source_identity, versions
from explainbench.core.record import CellName, CellSpec
from explainbench.core.registry import METHODS, METRICS, MODELS
from explainbench.core.workspace import Workspace
from explainbench.figures import draw_cell
from explainbench.stages.cell import Bench, build_bench, options, run_count, score_cell
from explainbench.stages.data import TaskData, load_task
from explainbench.stages.fit import load_forecaster, model_identity
from explainbench.stages.suite import Outcome, Suite
from explainbench.store import StoredCell

NUMERICAL = ("numpy", "scipy", "torch")


@dataclass(frozen=True, slots=True)
class Energy:
    """tasks x models x (methods + baselines), on the windows that the stage `windows` cut."""

    def grid(self, workspace: Workspace, params: Params) -> tuple[GridCell, ...]:
        """The grid of params.yaml; the compatibility map excludes pairs."""
        check_blocks(params)
        return energy_grid(params.suites.energy)

    def spec(self, workspace: Workspace, params: Params, cell: Cell) -> CellSpec:
        """Task, model, method, data and code of the cell. Raises BadInput when a stage before this one has not run."""
        suite = params.suites.energy
        data = _task(workspace, cell.task)
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
                "contexts": [context.model_dump(mode="json") for context in params.contexts],
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
            libraries=_versions(frozenset(libraries)),
        )

    def score(self, workspace: Workspace, params: Params, cell: Cell) -> Outcome:
        """Explain every window and score every metric (paper 000, Algorithm 2)."""
        bench = _bench(workspace, params, cell.task, cell.model)
        before = bench.model.meter.seconds
        scored = score_cell(params, cell, bench)
        return Outcome(
            scored.result,
            bench.data.windows,
            scored.explanations,
            scored.seeds,
            bench.masker.groups.names,
            scored.counters,
            scored.notes,
            bench.model.meter.seconds - before,
        )

    def order(self, params: Params, cells: Sequence[Cell]) -> list[Cell]:
        """Grouped by (task, model), so that shared results are reused; long contexts and sampling methods first."""
        tasks = params.suites.energy.tasks
        weight = {"search": 4, "sampling": 3, "gradient": 2, "forward": 1, "free": 0}
        return sorted(
            cells,
            key=lambda cell: (
                -tasks[cell.task].context,
                cell.task,
                cell.model,
                -weight[METHODS.card(cell.method).cost],
            ),
        )

    def draw(self, stored: StoredCell) -> None:
        """The window with the median score, and the scores."""
        draw_cell(stored, stored.folder / "figures")


SUITE: Suite = Energy()

_versions = cache(versions)  # of what is installed: 180 cells ask for a few sets of libraries
_tasks: dict[tuple[tuple[str, int, int], ...], TaskData] = {}


def _task(workspace: Workspace, task: str) -> TaskData:
    """The task's windows, read again only where their files changed: every cell's specification names their digest."""
    files = [workspace.windows / f"{task}{suffix}" for suffix in (".npz", ".json")]
    if not all(path.is_file() for path in files):
        return load_task(workspace, task)  # which says what is missing
    state = tuple((str(path), path.stat().st_mtime_ns, path.stat().st_size) for path in files)
    if state not in _tasks:
        _tasks[state] = load_task(workspace, task)
    return _tasks[state]


_benches: dict[tuple[str, str, str, str], Bench] = {}


def _bench(workspace: Workspace, params: Params, task: str, model: str) -> Bench:
    """The bench of (task, model), kept while a worker stays on it: at most one is in memory."""
    key = (str(workspace.output), params.model_dump_json(), task, model)
    if key not in _benches:
        _benches.clear()
        forecaster = load_forecaster(workspace, task, model, params)
        _benches[key] = build_bench(params, task, model, load_task(workspace, task), forecaster)
    return _benches[key]


def _jsonable(value: dict[str, object]) -> dict[str, object]:
    return {key: list(item) if isinstance(item, tuple) else item for key, item in value.items()}
