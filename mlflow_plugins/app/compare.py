"""Two cells side by side with the paired test over their common windows; two runs field by field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from explainbench.analysis.boards import scores_from_columns
from explainbench.analysis.comparisons import holm, paired, paired_effect_interval
from explainbench.analysis.composites import Composite, Parts, composites
from explainbench.analysis.intervals import mean_intervals, resample_indices
from explainbench.core.arrays import Floats
from explainbench.core.cell import Score, stream
from explainbench.core.params import StatisticsParams
from explainbench.store import StoredCell
from mlflow_plugins.leaderboard import frozen_bounds

if TYPE_CHECKING:
    from mlflow.entities import Run


@dataclass(frozen=True, slots=True)
class Pair:
    """One score of two cells over the n windows on which both are defined.

    difference: mean of a - b with its interval; p, p_holm: Wilcoxon, alone and over all scores of the page; effect:
    matched-pairs rank-biserial, positive where a is larger, with its interval; how: the test's branch; points: a - b
    per window; reason: why there is no test.
    """

    score: str
    kind: str
    n: int
    a: float
    b: float
    difference: float
    low: float | None = None
    high: float | None = None
    p: float | None = None
    p_holm: float | None = None
    effect: float | None = None
    effect_low: float | None = None
    effect_high: float | None = None
    n_zero: int = 0
    how: str = ""
    reason: str = ""
    points: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Comparison:
    """All scores two cells share, and why others are missing, in sentences."""

    pairs: tuple[Pair, ...]
    remarks: tuple[str, ...]


def compare(a: StoredCell, b: StoredCell, statistics: StatisticsParams) -> Comparison:
    """Compare two cells of one task, score by score, composites first (paper 000, Algorithm 5)."""
    if (a.cell.suite, a.cell.task) != (b.cell.suite, b.cell.task):
        where = (f"{one.cell.suite}/{one.cell.task}" for one in (a, b))
        return Comparison(
            (), (f"no test: the cells are of different tasks ({', '.join(where)}), so no window is shared.",)
        )
    remarks = []
    protocols = (a.record.spec.protocol, b.record.spec.protocol)
    if protocols[0] != protocols[1]:
        return Comparison((), (f"no test: the cells are of two protocol versions ({', '.join(protocols)}).",))
    if a.record.spec.weights_source != b.record.spec.weights_source:
        remarks.append(f"weights differ: {a.record.spec.weights_source} against {b.record.spec.weights_source}.")
    (windows_a, mine, gaps), (windows_b, theirs, _) = _scores(a, statistics), _scores(b, statistics)
    common = [window for window in windows_a if window in set(windows_b)]
    rows = [np.array([names.index(window) for window in common], dtype=int) for names in (windows_a, windows_b)]
    if len(common) < max(len(windows_a), len(windows_b)):
        remarks.append(f"{len(common)} windows are common to both ({len(windows_a)} and {len(windows_b)}).")
    pairs = []
    for name, (kind, values) in mine.items():
        if name in theirs and theirs[name][0] == kind:
            columns = [_at(found, at) for found, at in zip((values, theirs[name][1]), rows)]
            pairs.append(_pair(name, kind, columns[0], columns[1], a.record.spec.seed, statistics))
        elif name in theirs or name in ("EQI", "ESS"):
            remarks.append(f"{name}: not comparable, one has {kind}, the other {theirs.get(name, ('none', ''))[0]}.")
    remarks += [f"{name}: {reason}" for name, reason in gaps.items() if name not in mine and name in ("EQI", "ESS")]
    tested = [index for index, pair in enumerate(pairs) if pair.p is not None]
    adjusted = holm(np.array([pairs[index].p for index in tested], dtype=np.float64)) if tested else []
    for index, value in zip(tested, adjusted):
        pairs[index] = replace(pairs[index], p_holm=float(value))
    return Comparison(tuple(pairs), tuple(remarks))


Named = dict[str, tuple[str, Floats]]


def _scores(stored: StoredCell, statistics: StatisticsParams) -> tuple[tuple[str, ...], Named, dict[str, str]]:
    """Windows; {score: (kind, values (n,) or (1,))}, composites first; {score: why it has none}."""
    table = stored.scores()
    windows, scores, skipped = scores_from_columns({key: table.column(key).to_pylist() for key in table.column_names})
    spec = stored.record.spec
    parts = Parts(spec.cell.task, scores, skipped, frozen_bounds(spec.protocol), statistics.weights)
    found: Named = {}
    gaps = {name: skip.reason for name, skip in skipped.items()}
    for name, item in (composites(parts) if spec.cell.suite == "energy" else {}).items():
        if isinstance(item, Composite):
            found[name] = (f"0 to 1, basis {item.basis}", item.values)
        else:
            gaps[name] = item.reason
    for name, score in scores.items():
        found[name] = _values(score)
    return windows, found, gaps


def _values(score: Score) -> tuple[str, Floats]:
    return ("raw", score.raw) if score.value is None else ("0 to 1", score.value)


def _at(values: Floats, rows: Any) -> Floats:
    return values[rows] if len(values) > 1 else values


def _pair(name: str, kind: str, a: Floats, b: Floats, seed: int, statistics: StatisticsParams) -> Pair:
    both = np.isfinite(a) & np.isfinite(b) if len(a) == len(b) else np.zeros(0, dtype=bool)
    n = int(both.sum())
    if n < 2:
        means = [float(np.nanmean(side)) if np.isfinite(side).any() else float("nan") for side in (a, b)]
        reason = "one value for the whole window set" if len(a) == len(b) == 1 else f"defined on {n} common windows"
        return Pair(name, kind, n, means[0], means[1], means[0] - means[1], reason=f"no test: {reason}")
    a, b = a[both], b[both]
    indices = resample_indices(n, statistics.bootstrap, stream(seed, "interval", n))
    ends = mean_intervals((a - b)[:, None], indices, statistics.confidence)
    test = paired(a, b)
    effect = paired_effect_interval(a, b, indices, statistics.confidence)
    return Pair(
        *(name, kind, n, float(a.mean()), float(b.mean()), float((a - b).mean())),
        low=float(ends.low[0]),
        high=float(ends.high[0]),
        p=test.p,
        effect=test.effect,
        effect_low=effect[0],
        effect_high=effect[1],
        n_zero=test.n_zero,
        how=test.how,
        reason=test.reason,
        points=tuple(float(value) for value in a - b),
    )


@dataclass(frozen=True, slots=True)
class Change:
    """One field of two runs; a side is None where the run does not have it."""

    section: str
    key: str
    a: str | None
    b: str | None

    @property
    def same(self) -> bool:
        """Whether both runs say the same."""
        return self.a == self.b


def differences(a: Run, b: Run) -> list[Change]:
    """Every field of two runs: what they are, params, metrics, tags."""
    sections = [
        ("run", _info(a), _info(b)),
        ("params", a.data.params, b.data.params),
        ("metrics", _numbers(a.data.metrics), _numbers(b.data.metrics)),
        ("tags", _tags(a.data.tags), _tags(b.data.tags)),
    ]
    return [
        Change(section, key, mine.get(key), theirs.get(key))
        for section, mine, theirs in sections
        for key in sorted(mine.keys() | theirs.keys())
    ]


def _info(run: Run) -> Mapping[str, str]:
    inputs = [
        f"{used.dataset.name} ({used.dataset.digest})" for used in (run.inputs.dataset_inputs if run.inputs else [])
    ]
    return {"name": run.info.run_name or "", "status": run.info.status, "dataset": "; ".join(inputs)}


def _numbers(metrics: Mapping[str, float]) -> Mapping[str, str]:
    return {key: f"{value:.10g}" for key, value in metrics.items()}


def _tags(tags: Mapping[str, str]) -> Mapping[str, str]:
    """Tags without those that MLflow sets for itself; the description is made of the others."""
    return {key: value for key, value in tags.items() if not key.startswith("mlflow.")}
