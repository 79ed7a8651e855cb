"""EAMEX on one model: what its nine metrics are computed from, so that they can be computed anew on resampled rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from explainbench.core.arrays import Floats
from explainbench.core.errors import NotApplicable
from explainbench.metrics._eamex_definitions import DEFINITIONS, Preset, Task
from explainbench.metrics._eamex_importance import (
    LocalImportance,
    alpha_importance,
    concentrations,
    rank_alignment,
    rank_alignments,
    spread_divergence,
    spread_divergences,
)
from explainbench.metrics._eamex_model import (
    Curves,
    PermutationImportance,
    Predict,
    Rows,
    fluctuation_ratio,
    fluctuations,
    groups_of,
    magnitude,
    partial_dependence,
    permutation_importance,
)
from explainbench.metrics._eamex_surrogate import (
    degradation,
    fit_surrogate,
    infidelity,
    performance,
    performance_degradation,
    surrogate_fidelity,
    surrogate_overlaps,
)

GLOBAL = ("spread_divergence", "alpha_importance", "rank_alignment")
LOCAL = ("rank_consistency", "importance_stability")
SURROGATE = ("performance_degradation", "surrogate_fidelity", "surrogate_feature_stability")


@dataclass(frozen=True, slots=True, eq=False)
class Study:
    """The nine metrics of one model on n rows, and why a metric is missing.

    importance: of permutations, with groups of rows; curves: partial dependence of the most important features, on the
    same rows; y, output, surrogate: (n,) true values and the outputs of the model and of its surrogate; overlaps: (k,)
    see `surrogate_overlaps`; local: importances of single rows, r of them; missing: {metric: why}, of those whose
    part is None.
    """

    task: Task
    importance: PermutationImportance | None
    curves: Sequence[Curves]
    y: NDArray[Any]
    output: NDArray[Any]
    surrogate: NDArray[Any] | None
    overlaps: Floats
    local: LocalImportance | None
    missing: Mapping[str, str] = field(default_factory=dict)

    def scores(self, alpha: float = 0.8, preset: Preset = "paper") -> tuple[dict[str, float], dict[str, str]]:
        """The metrics that are defined, and {metric: why not} of the others; together all nine."""
        found: dict[str, float] = {}
        reasons = dict(self.missing)
        for name, compute in self._computations(alpha, preset).items():
            if name in reasons:
                continue
            try:
                found[name] = compute()
            except NotApplicable as gap:
                reasons[name] = gap.reason
        return found, reasons

    def resampled(
        self,
        times: Floats,
        local_times: Floats,
        rng: np.random.Generator,
        alpha: float = 0.8,
        preset: Preset = "paper",
    ) -> dict[str, Floats]:
        """The metrics that `scores` finds, on b resamples: {metric: (b,)}, NaN where a resample leaves no importance.

        times: (b, n) how often each row is drawn, local_times: (b, r) the same of the locally explained rows; rng
        resamples the k bootstraps of the surrogate. The model is not asked again.
        """
        found, _ = self.scores(alpha, preset)
        weight = times / times.sum(axis=1, keepdims=True)
        drawn: dict[str, Floats] = {}
        if self.importance is not None and found.keys() & set(GLOBAL):
            drawn |= self._global(weight, alpha, preset)
        if self.curves:
            drawn["fluctuation_ratio"] = self._fluctuation(weight, preset)
        if self.local is not None:
            local = self.local.resampled(local_times, alpha, preset)
            drawn |= {name: local[name] for name in LOCAL}
        if self.surrogate is not None:
            model, tree = (weight @ performance(self.y, one, self.task) for one in (self.output, self.surrogate))
            drawn["performance_degradation"] = degradation(model, tree, self.task)
            drawn["surrogate_fidelity"] = 1.0 - weight @ infidelity(self.output, self.surrogate, self.task, preset)
        if len(self.overlaps):
            again = rng.integers(0, len(self.overlaps), (len(times), len(self.overlaps)))
            drawn["surrogate_feature_stability"] = self.overlaps[again].mean(axis=1)
        return {name: drawn[name] for name in found}

    def _computations(self, alpha: float, preset: Preset) -> dict[str, Callable[[], float]]:
        importance, surrogate, local = self.importance, self.surrogate, self.local
        table: dict[str, Callable[[], float]] = {"fluctuation_ratio": lambda: fluctuation_ratio(self.curves, preset)}
        if importance is not None:
            overall = importance.overall
            table["spread_divergence"] = lambda: spread_divergence(_some(overall), preset)
            table["alpha_importance"] = lambda: alpha_importance(_some(overall), alpha, preset)
            table["rank_alignment"] = lambda: rank_alignment(
                _some(overall), {name: _some(one, name) for name, one in importance.by_group.items()}, alpha, preset
            )
        if local is not None:
            table["rank_consistency"] = lambda: local.scores(alpha, preset)["rank_consistency"]
            table["importance_stability"] = lambda: local.scores(alpha, preset)["importance_stability"]
        if surrogate is not None:
            table["performance_degradation"] = lambda: performance_degradation(
                self.y, self.output, surrogate, self.task
            )
            table["surrogate_fidelity"] = lambda: surrogate_fidelity(self.output, surrogate, self.task, preset)
        if len(self.overlaps):
            table["surrogate_feature_stability"] = lambda: float(self.overlaps.mean())
        absent = {name: _missing(name) for name in DEFINITIONS[preset] if name not in table}
        return table | absent

    def _global(self, weight: Floats, alpha: float, preset: Preset) -> dict[str, Floats]:
        assert self.importance is not None
        one = self.importance
        overall = _shares(magnitude(weight @ one.rises, preset))
        drawn = {
            "spread_divergence": spread_divergences(overall, preset),
            "alpha_importance": concentrations(overall, alpha, preset),
        }
        groups = [
            _shares(magnitude(weight[:, member] @ one.rises_within[member], preset))
            for member in (one.group == name for name in one.by_group)
        ]
        if groups:
            drawn["rank_alignment"] = rank_alignments(overall, groups, alpha, preset)
        empty = np.isnan(np.hstack([overall, *groups])).any(axis=1)
        return {name: np.where(empty, np.nan, values) for name, values in drawn.items()}

    def _fluctuation(self, weight: Floats, preset: Preset) -> Floats:
        if preset == "holisticai":
            each = [weight @ fluctuations(curve.grid, curve.ice, preset) for curve in self.curves]
        else:
            each = [fluctuations(curve.grid, weight @ curve.ice, preset) for curve in self.curves]
        return np.mean(each, axis=0)


def study(
    predict: Predict,
    X: Any,
    y: ArrayLike,
    task: Task,
    *,
    score: Predict | None = None,
    train: Any = None,
    local: ArrayLike | None = None,
    top: int = 8,
    points: int = 50,
    percentiles: tuple[float, float] = (0.0, 1.0),
    repeats: int = 5,
    bootstraps: int = 10,
    preset: Preset = "paper",
    rng: np.random.Generator | None = None,
) -> Study:
    """Measure what all nine metrics of a model need; the model is asked here and never again.

    predict: rows (m, d) -> (m,) labels or values; score: what partial dependence follows, such as the probability of a
    class, by default `predict`; X: (n, d) rows, y: (n,); train: (m, d) rows the surrogate is fitted on, by default X;
    local: (r, d) importances of single rows, non-negative, without which two metrics are missing. Partial dependence
    is that of the `top` most important features; rows are grouped by what the model predicts. The surrogate is fitted
    on resamples of `train` (`holisticai`: of X) to see how steady it is. Raises BadInput.
    """
    generator = rng or np.random.default_rng(0)
    rows = Rows.of(X)
    output = rows.ask(predict, rows.values)
    group = groups_of(output, task)
    importance = permutation_importance(predict, X, y, task, group, repeats, preset, generator)
    missing: dict[str, str] = {}
    if len(importance.by_group) < 2:
        missing["rank_alignment"] = f"the model puts all {len(output)} rows into one group, {group[0]}"
    named = importance.top(top)
    features = named if rows.frame is not None else [importance.names.index(name) for name in named]
    curves = partial_dependence(score or predict, X, features, points, percentiles)
    learning = rows if train is None else Rows.of(train)
    taught = output if train is None else learning.ask(predict, learning.values)
    shallow, overlaps = None, np.empty(0)
    try:
        tree = fit_surrogate(learning, taught, task, preset)
        shallow = tree.predict(rows)
        again = (rows, output) if preset == "holisticai" else (learning, taught)
        overlaps = surrogate_overlaps(*again, task, bootstraps, preset, tree, generator)
    except NotApplicable as gap:
        missing |= dict.fromkeys(SURROGATE, gap.reason)
        shallow, overlaps = None, np.empty(0)
    if local is None:
        missing |= dict.fromkeys(LOCAL, "no importances of single rows were given")
    rankings = None if local is None else LocalImportance.of(local, np.zeros(len(np.asarray(local))))
    return Study(task, importance, curves, np.asarray(y), output, shallow, overlaps, rankings, missing)


def _some(importance: Floats, group: str = "") -> Floats:
    """The importances. Raises NotApplicable where no permuted feature makes the model worse."""
    if not importance.any():
        where = f" in group {group}" if group else ""
        raise NotApplicable(f"no feature, permuted, makes the model worse{where}, so there are no shares of importance")
    return importance


def _missing(name: str) -> Callable[[], float]:
    def refuse() -> float:
        raise NotApplicable(f"nothing that {name} is computed from was measured")

    return refuse


def _shares(importance: Floats) -> Floats:
    """Rows (b, d) divided by their sums; NaN where a row sums to zero."""
    total = importance.sum(axis=1, keepdims=True)
    return np.divide(importance, total, out=np.full_like(importance, np.nan), where=total > 0)
