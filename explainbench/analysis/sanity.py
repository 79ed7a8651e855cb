"""Checks of the benchmark itself: can its metrics tell explanations apart, and do they agree with each other?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal

import numpy as np
from scipy import stats

from explainbench.analysis.comparisons import DECIMALS, holm, paired
from explainbench.analysis.intervals import mean_intervals
from explainbench.core.arrays import Floats, Ints, Texts
from explainbench.core.errors import NotApplicable
from explainbench.core.masking import ranking

SIMILAR = 0.5  # rank correlation with explanations of re-drawn weights above which a method ignores the weights
NOTHING = 0.01  # of a window's largest |e|: what is below is noise, as far as finding a known truth goes
PERMUTATIONS = 1_999  # of the interaction test

Verdict = Literal["changes", "ignores the weights", "unclear"]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over n windows (or other units) with its percentile interval."""

    value: float
    low: float
    high: float
    n: int


@dataclass(frozen=True, slots=True)
class BaselinePlace:
    """Where a baseline would stand among the ranked methods of one model.

    place: 1 + number of methods with a better mean; above, below: methods significantly better or worse than it
    (Wilcoxon, Holm over all baselines and methods that are placed together); methods: how many there are.
    """

    place: int
    above: tuple[str, ...]
    below: tuple[str, ...]
    methods: int


@dataclass(frozen=True, slots=True)
class Interaction:
    """Do the differences between methods depend on the regime? means: method -> regime -> mean score.

    statistic: between-regime sum of squares of window-centred scores over the total one; p: by permuting regimes over
    windows.
    """

    means: Mapping[str, Mapping[str, float]]
    statistic: float
    p: float
    n: Mapping[str, int]


def estimate(values: Floats, indices: Ints, confidence: float = 0.95) -> Estimate:
    """The mean of scores (n,) with its interval; indices: (resamples, n). Raises NotApplicable below two scores."""
    found = mean_intervals(values[:, None], indices, confidence)
    return Estimate(float(found.mean[0]), float(found.low[0]), float(found.high[0]), found.n)


def baseline_places(
    compared: Sequence[tuple[Floats, Mapping[str, Floats]]], alpha: float = 0.05
) -> list[BaselinePlace | None]:
    """Where each baseline's scores (n,) stand among those of its model's methods, larger being better.

    Holm is over all comparisons, one family; NaN windows leave a pair. None where no method shares two windows.
    """
    p: list[float] = []
    differences: list[dict[str, float]] = []
    for baseline, methods in compared:
        difference = {}
        for name, scores in methods.items():
            both = np.isfinite(scores) & np.isfinite(baseline)
            if both.sum() >= 2:
                p.append(paired(scores[both], baseline[both]).p)
                difference[name] = float(np.round((scores[both] - baseline[both]).mean(), DECIMALS))
        differences.append(difference)
    told = iter((holm(np.array(p)) < alpha).tolist())
    return [_place(difference, [next(told) for _ in difference]) for difference in differences]


def _place(difference: Mapping[str, float], told: Sequence[bool]) -> BaselinePlace | None:
    if not difference:
        return None
    sure = [(name, d) for (name, d), apart in zip(difference.items(), told, strict=True) if apart]
    above, below = tuple(name for name, d in sure if d > 0), tuple(name for name, d in sure if d < 0)
    return BaselinePlace(1 + sum(d > 0 for d in difference.values()), above, below, len(difference))


def preference(scores: Floats, control: Floats) -> Floats:
    """Per pair of scores: 1 where the first is larger, 1/2 where they tie (1e-12), 0 else, NaN where undefined."""
    return (1 + np.sign(np.round(scores - control, DECIMALS))) / 2


def disagreement(
    scores: Mapping[str, Floats], draw: Callable[[int], Ints], confidence: float = 0.95
) -> list[dict[str, Any]]:
    """Spearman correlation between metrics over cells, for each pair: metric -> (cells,), NaN where it has none.

    draw(n): resample indices (resamples, n) for n common cells; pairs with fewer than four of them, or with a metric
    that is constant there, have no correlation.
    """
    tail = 100 * (1 - confidence) / 2
    rows: list[dict[str, Any]] = []
    for one, other in combinations(scores, 2):
        both = np.isfinite(scores[one]) & np.isfinite(scores[other])
        row: dict[str, Any] = {"metrics": [one, other], "rho": None, "low": None, "high": None, "n": int(both.sum())}
        a, b = (np.round(scores[name][both], DECIMALS) for name in (one, other))
        if row["n"] >= 4 and np.ptp(a) > 0 and np.ptp(b) > 0:
            indices = draw(row["n"])
            row["rho"] = float(_spearman(a[None], b[None])[0])
            low, high = np.nanpercentile(_spearman(a[indices], b[indices]), (tail, 100 - tail))
            row |= {"low": float(low), "high": float(high)}
        rows.append(row)
    return rows


def effective_metrics(scores: Mapping[str, Floats]) -> float | None:
    """How many independent metrics there are: (sum of eigenvalues)^2 / sum of squares of their rank correlations.

    Over the cells on which all of them have a number; None below four such cells or two metrics that vary.
    """
    table = np.stack(list(scores.values()), axis=1) if scores else np.empty((0, 0))
    table = table[np.isfinite(table).all(axis=1)]
    if len(table) < 4:
        return None
    ranks = stats.rankdata(np.round(table, DECIMALS), axis=0)
    ranks = ranks[:, np.ptp(ranks, axis=0) > 0]
    if ranks.shape[1] < 2:
        return None
    eigenvalues = np.linalg.eigvalsh(np.corrcoef(ranks.T))
    return float(eigenvalues.sum() ** 2 / (eigenvalues**2).sum())


def regime_interaction(
    scores: Mapping[str, Floats], regime: Texts, rng: np.random.Generator, permutations: int = PERMUTATIONS
) -> Interaction:
    """Method x regime interaction over the same windows: method -> (n,), finite; regime: (n,).

    Regimes differ between windows and methods within them, so each window's mean over methods is subtracted (which
    takes out how hard the window is) and regimes are permuted over windows. Raises NotApplicable below two methods,
    two regimes or two windows in each.
    """
    names, kinds = list(scores), sorted(set(regime.tolist()))
    sizes = {kind: int((regime == kind).sum()) for kind in kinds}
    if len(names) < 2 or len(kinds) < 2 or min(sizes.values()) < 2:
        raise NotApplicable(f"an interaction needs 2 methods and 2 regimes of 2 windows, not {len(names)} and {sizes}")
    values = np.stack([scores[name] for name in names], axis=1)
    means = {name: {kind: float(values[regime == kind, k].mean()) for kind in kinds} for k, name in enumerate(names)}
    centred = values - values.mean(axis=1, keepdims=True)
    centred = centred - centred.mean(axis=0)
    total = float((centred**2).sum())
    if total <= 1e-24 * max(1.0, float((values**2).sum())):
        return Interaction(means, 0.0, 1.0, sizes)

    def share(*groups: Ints, axis: int) -> Floats:
        drawn = (centred[np.moveaxis(np.asarray(group), axis, -1).astype(np.int64)] for group in groups)
        return np.sum([part.shape[-2] * (part.mean(axis=-2) ** 2).sum(axis=-1) for part in drawn], axis=0) / total

    test = stats.permutation_test(
        [np.flatnonzero(regime == kind) for kind in kinds], share, permutation_type="independent", vectorized=True,
        n_resamples=permutations, alternative="greater", rng=rng, batch=200,
    )  # fmt: skip
    return Interaction(means, float(test.statistic), float(test.pvalue), sizes)


def rank_correlations(one: Floats, other: Floats) -> Floats:
    """Spearman correlation over groups, per window: (n, g) x (n, g) -> (n,).

    NaN where the first explains nothing; 0 where only the other is constant, because then nothing is left of it.
    """
    return np.where(np.ptp(one, axis=1) == 0, np.nan, np.nan_to_num(_spearman(one, other)))


def recovered(truth: Floats, importance: Floats) -> dict[str, Floats]:
    """How well |e| finds a known truth, per window: truth, importance (n, g) -> name -> (n,), NaN where there is none.

    correlation: Spearman of the sizes, those below `NOTHING` of a window's largest counting as zero, so that sampling
    noise on null groups makes no ranks; recall: share of the groups that contribute which are among as many top ones;
    null_share: share of |e| on groups that contribute nothing.
    """
    size, real = np.abs(importance), np.abs(truth)
    contributes = real > 0
    place = np.argsort(ranking(importance), axis=1)  # of each group in the ranking
    count = contributes.sum(axis=1)
    found = (contributes & (place < count[:, None])).sum(axis=1)
    total = size.sum(axis=1)
    nothing = count == 0
    measured = {
        "correlation": rank_correlations(_without_noise(real), _without_noise(size)),
        "recall": np.divide(found, count, out=np.zeros(len(count)), where=~nothing),
        "null_share": np.divide(
            np.where(contributes, 0.0, size).sum(axis=1), total, out=np.full(len(total), np.nan), where=total > 0
        ),
    }
    return {name: np.where(nothing, np.nan, values) for name, values in measured.items()}


def relative_error(truth: Floats, importance: Floats) -> float | None:
    """Largest deviation of e from the truth (n, g), relative to the window's largest; None where all truth is zero."""
    largest = np.abs(truth).max(axis=1)
    known = largest > 0
    if not known.any():
        return None
    return float((np.abs(importance - truth).max(axis=1)[known] / largest[known]).max())


def _without_noise(size: Floats) -> Floats:
    return np.where(size < NOTHING * size.max(axis=1, keepdims=True), 0.0, size)


def randomisation_verdict(correlation: Estimate) -> Verdict:
    """Whether explanations change when the model's weights are re-drawn (Adebayo et al. 2018)."""
    if correlation.low > SIMILAR:
        return "ignores the weights"
    return "changes" if correlation.high < SIMILAR else "unclear"


def _spearman(one: Floats, other: Floats) -> Floats:
    """Of each pair of rows (b, n) x (b, n): (b,); NaN where either row is constant."""
    a, b = (stats.rankdata(part, axis=1) - (part.shape[1] + 1) / 2 for part in (one, other))
    size = np.sqrt((a * a).sum(axis=1) * (b * b).sum(axis=1))
    return np.divide((a * b).sum(axis=1), size, out=np.full(len(a), np.nan), where=size > 0)
