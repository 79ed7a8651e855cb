"""Drift of explainability between two versions of a model (paper 003, section 4.4), with intervals and a verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from scipy.stats import rankdata

from explainbench.analysis.set_scores import simultaneous, times_drawn
from explainbench.core.arrays import Floats, Texts
from explainbench.core.errors import BadInput
from explainbench.metrics.eamex import LocalImportance, Preset, definition

Verdict = Literal["better", "worse", "same", "unresolved"]


@dataclass(frozen=True, slots=True, eq=False)
class Version:
    """What one version of a model was scored on.

    importance: (n, g) non-negative, over the same windows and groups for both versions; group: (n,) regimes;
    scores: further scores per window (n,), such as stability, by name.
    """

    importance: Floats
    group: Texts
    scores: Mapping[str, Floats] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Change:
    """One metric in both versions. gain: candidate minus baseline, turned so that positive is better; low, high: its
    interval, simultaneous over all that is compared; verdict: `worse` where the whole interval lies below -margin.
    """

    metric: str
    baseline: float
    candidate: float
    gain: float
    low: float
    high: float
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Drift:
    """The changes of all metrics, and how far the two versions explain the same windows differently.

    disagreement: mean over windows of (1 - Spearman correlation of the importances)/2, 0 for equal rankings, 1/2 for
    unrelated ones, with its interval; passed: no metric is worse, and disagreement is not above its limit.
    """

    changes: tuple[Change, ...]
    disagreement: float
    disagreement_low: float
    disagreement_high: float
    passed: bool

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the gate fails, one sentence each; empty where it passes."""
        worse = [
            f"{change.metric} went from {change.baseline:.4g} to {change.candidate:.4g}, worse by {-change.gain:.4g} "
            f"[{-change.high:.4g}, {-change.low:.4g}]."
            for change in self.changes
            if change.verdict == "worse"
        ]
        if self.passed or worse:
            return tuple(worse)
        return (f"the two versions rank the groups differently: disagreement {self.disagreement:.4g}.",)


@dataclass(frozen=True, slots=True)
class Rule:
    """When a change is drift.

    margin: a change this small is none: `same` where the interval lies within it; most_disagreement: the limit that
    the whole interval of disagreement must exceed to fail; bootstrap: resamples of the windows.
    """

    margin: float = 0.0
    most_disagreement: float = 1.0
    bootstrap: int = 2000
    confidence: float = 0.95
    preset: Preset = "paper"
    alpha: float = 0.8

    def __post_init__(self) -> None:
        if self.bootstrap < 1 or not 0 < self.confidence < 1 or self.margin < 0:
            raise BadInput(
                f"bootstrap must be 1 or more, confidence in (0, 1) and margin 0 or more, not {self.bootstrap}, "
                f"{self.confidence:g}, {self.margin:g}."
            )


def drift(
    baseline: Version,
    candidate: Version,
    rng: np.random.Generator,
    rule: Rule = Rule(),
    higher_is_better: Mapping[str, bool] | None = None,
) -> Drift:
    """Compare two versions on the explanation-based EAMEX metrics, the scores they share and their disagreement.

    As `drifts`, for one pair.
    """
    return drifts({"": (baseline, candidate)}, rng, rule, higher_is_better)[""]


def drifts(
    pairs: Mapping[str, tuple[Version, Version]],
    rng: np.random.Generator,
    rule: Rule = Rule(),
    higher_is_better: Mapping[str, bool] | None = None,
) -> dict[str, Drift]:
    """Compare several pairs of versions, such as the explanations of one model by several methods.

    Windows are resampled within their regimes, the same draws for both versions and for all pairs with the same
    regimes, and every metric is computed anew on each. The intervals hold all at once, over all metrics and pairs, so
    that noise fails the gate in about 1 - confidence of the cases however many are compared. higher_is_better: of
    `scores`, true where it does not say. Raises BadInput for no pair and for versions over different windows,
    NotApplicable for one window.
    """
    if not pairs:
        raise BadInput("there is nothing to compare: no pair of versions was given.")
    direction = dict(higher_is_better or {})
    layouts: dict[bytes, Floats] = {}
    parts: dict[str, _Part] = {}
    for name in sorted(pairs):
        baseline, candidate = pairs[name]
        _check_same_windows(baseline, candidate)
        layout = baseline.group.astype(str).tobytes()
        if layout not in layouts:
            layouts[layout] = times_drawn(baseline.group, rule.bootstrap, rng)
        parts[name] = _compared(baseline, candidate, layouts[layout], direction, rule)
    estimate = np.concatenate([part.estimate for part in parts.values()])
    low, high = simultaneous(estimate, np.hstack([part.draws for part in parts.values()]), rule.confidence)
    found: dict[str, Drift] = {}
    start = 0
    for name, part in parts.items():
        stop = start + len(part.estimate)
        found[name] = _judged(part, low[start:stop].tolist(), high[start:stop].tolist(), rule)
        start = stop
    return {name: found[name] for name in pairs}


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """One pair: metrics before and after, and gains with disagreement last, (m + 1,), and on resamples (b, m + 1)."""

    before: Mapping[str, float]
    after: Mapping[str, float]
    estimate: Floats
    draws: Floats


def _compared(baseline: Version, candidate: Version, times: Floats, direction: Mapping[str, bool], rule: Rule) -> _Part:
    (before, before_drawn), (after, after_drawn) = (_measured(one, times, rule) for one in (baseline, candidate))
    sign = np.array([_sign(name, direction, rule.preset, baseline) for name in before])
    apart = disagreement(baseline.importance, candidate.importance)
    gain = sign * (np.array(list(after.values())) - np.array(list(before.values()))) + 0.0
    gains = sign * (after_drawn - before_drawn)
    return _Part(
        before, after, np.append(gain, apart.mean()), np.column_stack([gains, times @ apart / times.sum(axis=1)])
    )


def _judged(part: _Part, low: list[float], high: list[float], rule: Rule) -> Drift:
    changes = tuple(
        Change(name, part.before[name], part.after[name], gain, least, most, _verdict(least, most, rule.margin))
        for name, gain, least, most in zip(part.before, part.estimate.tolist(), low, high)
    )
    passed = all(change.verdict != "worse" for change in changes) and low[-1] <= rule.most_disagreement
    return Drift(changes, float(part.estimate[-1]), max(low[-1], 0.0), min(high[-1], 1.0), passed)


def disagreement(one: Floats, other: Floats) -> Floats:
    """(1 - Spearman rank correlation)/2 of the importances of each window, (n, g) and (n, g) -> (n,).

    0 for equal rankings, 1 for opposite ones; ties share their mean rank; 1/2 where one ranks nothing and the other
    does, 0 where neither does.
    """
    ranks = [rankdata(values, axis=1) - (values.shape[1] + 1) / 2 for values in (one, other)]
    norms = [np.sqrt((rank**2).sum(axis=1)) for rank in ranks]
    power = norms[0] * norms[1]
    rho = np.divide((ranks[0] * ranks[1]).sum(axis=1), power, out=np.zeros(len(one)), where=power > 0)
    rho[(norms[0] == 0) & (norms[1] == 0)] = 1.0
    return (1.0 - np.clip(rho, -1.0, 1.0)) / 2


def _measured(version: Version, times: Floats, rule: Rule) -> tuple[dict[str, float], Floats]:
    """The metrics of a version, and on resamples (b, m)."""
    local = LocalImportance.of(version.importance, version.group)
    found = local.scores(rule.alpha, rule.preset) | {name: float(v.mean()) for name, v in version.scores.items()}
    drawn = local.resampled(times, rule.alpha, rule.preset)
    drawn |= {name: times @ values / times.sum(axis=1) for name, values in version.scores.items()}
    return found, np.column_stack([drawn[name] for name in found])


def _sign(name: str, direction: Mapping[str, bool], preset: Preset, version: Version) -> float:
    higher = direction.get(name, True) if name in version.scores else definition(name, preset).higher_is_better
    return 1.0 if higher else -1.0


def _verdict(low: float, high: float, margin: float) -> Verdict:
    if high < -margin:
        return "worse"
    if low > margin:
        return "better"
    return "same" if low >= -margin and high <= margin else "unresolved"


def _check_same_windows(baseline: Version, candidate: Version) -> None:
    n = len(baseline.importance)
    if baseline.importance.shape != candidate.importance.shape or not np.array_equal(baseline.group, candidate.group):
        raise BadInput(
            f"the two versions were not scored on the same windows and groups ({baseline.importance.shape} and "
            f"{candidate.importance.shape}, or other regimes); score both on the same windows."
        )
    if set(baseline.scores) != set(candidate.scores):
        raise BadInput(
            f"the versions carry different scores ({', '.join(sorted(baseline.scores))}; "
            f"{', '.join(sorted(candidate.scores))}); give the same for both."
        )
    for version in (baseline, candidate):
        for name, values in version.scores.items():
            if np.shape(values) != (n,) or not np.isfinite(values).all():
                raise BadInput(f"score {name} must hold one finite value per window, {n} of them.")
