"""One cell: explain (R runs), gather the evidence, score every metric (paper 000, Algorithm 2).

Reads and writes nothing: this module's imports are the code on a cell's path.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from explainbench.core.cell import Cell, CellResult, Score, Skipped, stream, stream_key
from explainbench.core.dataset import TaskData
from explainbench.core.errors import ExplainBenchError, NotApplicable, Pending
from explainbench.core.evidence import Evidence
from explainbench.core.explanation import Explanation
from explainbench.core.forecaster import ExplainedModel, Forecaster, NonFiniteForecast
from explainbench.core.masking import Groups, Masker
from explainbench.core.params import EnergyParams, Params
from explainbench.core.registry import METHODS, METRICS, MODELS
from explainbench.core.windows import Windows

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Bench:
    """What all methods of one (task, model) share: windows, model, masking operator, and a memo of shared results."""

    data: TaskData
    model: ExplainedModel
    masker: Masker
    memo: dict[str, Any] = field(default_factory=dict)

    def shared(self, name: str, compute: Callable[[], T]) -> T:
        """The named result, computed once per (task, model) in a process."""
        if name not in self.memo:
            self.memo[name] = compute()
        return cast(T, self.memo[name])


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """A cell's result, its runs as arrays, the seeds used, deterministic counters and diagnostics."""

    result: CellResult
    explanations: dict[str, NDArray[Any]]
    seeds: dict[str, Any]
    counters: tuple[float, float]  # model evaluations and gradient passes per explanation
    notes: dict[str, float]


def build_bench(params: Params, task: str, model: str, data: TaskData, forecaster: Forecaster) -> Bench:
    """Set up the explained model and the masking operator of one (task, model)."""
    suite = params.suites.energy
    spec = suite.tasks[task]
    channels = data.windows.channels
    used = channels.observed if MODELS.card(model).channels == "all" else np.array([channels.index(spec.target)])
    groups = Groups.of(channels, spec.context, spec.segment, used)
    masker = Masker(groups, suite.masker, data.climatology, target=channels.index(spec.target))
    return Bench(data, ExplainedModel(forecaster, spec.functional.build()), masker)


def run_count(params: Params, method: str) -> int:
    """R for a stochastic method, one for a deterministic one."""
    return 1 if METHODS.card(method).deterministic else params.runs


def score_cell(params: Params, cell: Cell, bench: Bench) -> Scored:
    """Explain every window and score every metric. Raises ExplainBenchError naming the window, NotApplicable."""
    suite: EnergyParams = params.suites.energy
    card = METHODS.card(cell.method)
    method = METHODS.build(cell.method, params.methods.get(cell.method))
    windows, meter = bench.data.windows, bench.model.meter
    runs = range(run_count(params, cell.method))

    def explain(at: Windows, run: int) -> Explanation:
        return method.explain(bench.model, at, bench.masker, cell.rng(params.seed, "explain", run))

    try:
        output = bench.shared("output", lambda: bench.model(windows.context))
        before = (meter.evaluations, meter.gradients)
        explained = tuple(_finite(explain(windows, run), windows, cell) for run in runs)
        explanations = len(windows) * len(explained)
        counters = (
            (meter.evaluations - before[0]) / explanations,
            (meter.gradients - before[1]) / explanations,
        )
        evidence = Evidence(
            windows=windows,
            model=bench.model,
            masker=bench.masker,
            method=card,
            runs=explained,
            target_std=bench.data.target_std,
            explain_again=explain,
            rng=lambda purpose: cell.rng(params.seed, purpose),
            task_rng=lambda purpose: stream(params.seed, cell.suite, cell.task, purpose),
            shared=bench.shared,
            contexts=params.contexts,
        )
        scores, skipped = _scores(suite, params, evidence)
    except NonFiniteForecast as error:
        raise NonFiniteForecast(f"cell {cell}: {error} ({_first_bad_window(bench)})") from error
    arrays = _arrays(evidence, output, bench, suite.tasks[cell.task].target)
    seeds = {
        "seed": params.seed,
        "runs": len(explained),
        "streams": {f"explain/{run}": list(stream_key(str(cell), "explain", run)) for run in runs},
        "rule": "numpy SeedSequence(seed, spawn_key = SHA-256 words of the names joined by unit separators)",
    }
    notes = {
        name: float(max(run.notes[name].max() for run in explained if run.notes))
        for name in sorted({name for run in explained for name in run.notes or {}})
    }
    return Scored(CellResult(cell, scores, skipped), arrays, seeds, counters, notes)


def _scores(suite: EnergyParams, params: Params, evidence: Evidence) -> tuple[dict[str, Score], dict[str, Skipped]]:
    scores: dict[str, Score] = {}
    skipped: dict[str, Skipped] = {}
    for name in suite.metrics:
        try:
            scores |= METRICS.build(name, params.metrics.get(name)).score(evidence)
        except Pending as reason:
            skipped[name] = Skipped("pending", reason.reason)
        except NotApplicable as reason:
            skipped[name] = Skipped("not_applicable", reason.reason)
    return scores, skipped


def _finite(explanation: Explanation, windows: Windows, cell: Cell) -> Explanation:
    bad = ~np.isfinite(explanation.attribution).all(axis=(1, 2))
    if bad.any():
        raise ExplainBenchError(f"cell {cell}: the explanation of window {windows.origin[bad.argmax()]} is not finite")
    return explanation


def _first_bad_window(bench: Bench) -> str:
    forecasts = bench.model.forecaster.predict(bench.data.windows.context).mean
    bad = ~np.isfinite(forecasts).all(axis=1)
    if bad.any():
        return f"window {bench.data.windows.origin[bad.argmax()]}, unmasked"
    return "all unmasked windows are finite, so a masked or perturbed one is to blame"


def _arrays(evidence: Evidence, output: NDArray[Any], bench: Bench, target: str) -> dict[str, NDArray[Any]]:
    windows, channels = evidence.windows, evidence.windows.channels
    filled = bench.shared("filled output", lambda: bench.model(bench.masker.fill(windows)))
    return {
        "attribution": np.stack([run.attribution for run in evidence.runs]).astype(np.float32),
        "importance": evidence.importance,
        "run_importance": np.stack([evidence.grouped(run) for run in evidence.runs]),
        "output": output,
        "filled_output": filled,
        "context": windows.context.astype(np.float32),
        "regime": windows.regime.astype(str),
        "origin": windows.origin,
        "channels": np.array(channels.names),
        "labels": bench.masker.groups.labels,
        "unit": np.array(channels.units[channels.index(target)]),
    }


def options(entry: object) -> dict[str, Any]:
    """An entry's options with their defaults, as they enter the cell id."""
    return asdict(cast(Any, entry))
