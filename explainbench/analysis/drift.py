"""Drift of explainability between two versions of a model (paper 003, section 4.4), with intervals and a verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from scipy.stats import rankdata

from explainbench.core.arrays import Floats, Ints, Texts
from explainbench.core.errors import BadInput
from explainbench.metrics.eamex import Preset, definition, explanation_scores

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
    interval, simultaneous over all metrics; verdict: `worse` where the whole interval lies below -margin.
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


def drift(
    baseline: Version,
    candidate: Version,
    rng: np.random.Generator,
    *,
    preset: Preset = "paper",
    alpha: float = 0.8,
    higher_is_better: Mapping[str, bool] | None = None,
    margin: float = 0.0,
    most_disagreement: float = 1.0,
    bootstrap: int = 2000,
    confidence: float = 0.95,
) -> Drift:
    """Compare two versions on the explanation-based EAMEX metrics, the scores they share and their disagreement.

    Windows are resampled within their regimes, the same draws for both versions, and every metric is computed anew on
    each. With m metrics each interval has confidence 1 - (1 - confidence)/m, so that noise fails the gate in at most
    about 1 - confidence of the cases. higher_is_better: of `scores`, true where it does not say. margin: a change
    this small is none: `same` where the interval lies within it. most_disagreement: the limit that the whole interval
    of disagreement must exceed to fail. Raises BadInput for versions over different windows, NotApplicable for one
    window.
    """
    n = _same_windows(baseline, candidate)
    if bootstrap < 1 or not 0 < confidence < 1 or margin < 0:
        raise BadInput(
            f"bootstrap must be 1 or more, confidence in (0, 1) and margin 0 or more, not {bootstrap}, {confidence:g}, "
            f"{margin:g}."
        )
    direction = dict(higher_is_better or {})
    everything = np.arange(n)
    before, after = (_measured(version, everything, alpha, preset) for version in (baseline, candidate))
    sign = {name: _sign(name, direction, preset, baseline) for name in before}
    apart = disagreement(baseline.importance, candidate.importance)
    gains = np.empty((bootstrap, len(before)))
    drawn_apart = np.empty(bootstrap)
    for draw in range(bootstrap):
        rows = _resampled(baseline.group, rng)
        one, two = (_measured(version, rows, alpha, preset) for version in (baseline, candidate))
        gains[draw] = [sign[name] * (two[name] - one[name]) for name in before]
        drawn_apart[draw] = apart[rows].mean()
    tail = 100 * (1 - confidence) / 2
    low, high = np.percentile(gains, [tail / len(before), 100 - tail / len(before)], axis=0)
    changes = tuple(
        Change(name, before[name], after[name], gain, least, most, _verdict(least, most, margin))
        for name, gain, least, most in zip(
            before, [sign[name] * (after[name] - before[name]) + 0.0 for name in before], low.tolist(), high.tolist()
        )
    )
    apart_low, apart_high = map(float, np.percentile(drawn_apart, [tail, 100 - tail]))
    passed = all(change.verdict != "worse" for change in changes) and apart_low <= most_disagreement
    return Drift(changes, float(apart.mean()), apart_low, apart_high, passed)


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


def _measured(version: Version, rows: Ints, alpha: float, preset: Preset) -> dict[str, float]:
    found = explanation_scores(version.importance[rows], version.group[rows], alpha, preset)
    return found | {name: float(values[rows].mean()) for name, values in version.scores.items()}


def _sign(name: str, direction: Mapping[str, bool], preset: Preset, version: Version) -> float:
    higher = direction.get(name, True) if name in version.scores else definition(name, preset).higher_is_better
    return 1.0 if higher else -1.0


def _verdict(low: float, high: float, margin: float) -> Verdict:
    if high < -margin:
        return "worse"
    if low > margin:
        return "better"
    return "same" if low >= -margin and high <= margin else "unresolved"


def _resampled(group: Texts, rng: np.random.Generator) -> Ints:
    """Rows drawn with replacement within each regime, as many as it has."""
    return np.concatenate(
        [rng.choice(np.flatnonzero(group == name), (group == name).sum()) for name in np.unique(group)]
    )


def _same_windows(baseline: Version, candidate: Version) -> int:
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
    return n
