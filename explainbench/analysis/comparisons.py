"""Tests and effect sizes of paper 000, section 8.7 (Algorithm 5), with the branch that was taken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import sqrt
from typing import Any, Literal

import numpy as np
from scipy import stats

from explainbench.analysis.intervals import resample_counts
from explainbench.core.arrays import Bools, Floats, Ints
from explainbench.core.errors import NotApplicable

DECIMALS = 12  # paired differences below 1e-12 are zero
EXACT = 50  # windows with a difference up to which the null distribution is exact when no differences are tied
EXACT_TIED = 13  # the same when some are tied (scipy's rule)


@dataclass(frozen=True, slots=True)
class Paired:
    """Wilcoxon signed-rank test of a - b over the same windows.

    effect: matched-pairs rank-biserial (W+ - W-)/(W+ + W-), positive where a is larger; n_zero: windows without a
    difference, dropped; how: `exact`, `permutation`, `normal` or `none`; reason: why there was nothing to test.
    """

    p: float
    effect: float
    n: int
    n_zero: int
    how: Literal["exact", "permutation", "normal", "none"]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Unpaired:
    """Mann-Whitney U test of two independent groups; delta: Cliff's delta, positive where a is larger."""

    p: float
    statistic: float
    delta: float
    n: tuple[int, int]


@dataclass(frozen=True, slots=True, eq=False)
class Pairwise:
    """All pairs of m entries over the same windows; entry [i, j] says how i compares with j; NaN on the diagonal.

    p, p_holm, effect: (m, m); n_zero: (m, m).
    """

    p: Floats
    p_holm: Floats
    effect: Floats
    n_zero: Ints


@dataclass(frozen=True, slots=True)
class Friedman:
    """Friedman test of m entries ranked within each of n windows; w: Kendall's coefficient of concordance."""

    p: float
    statistic: float
    w: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Groups:
    """Three or more independent groups: the branch that the gate chose, its test, and all pairs after it.

    shapiro: smallest p over groups; brown_forsythe: p of equal variances (both NaN where not computable);
    pairs: (group, group) -> p, of Games-Howell (already family-wise) or of Dunn under Holm.
    """

    branch: Literal["anova+games-howell", "kruskal-wallis+dunn"]
    why: str
    p: float
    statistic: float
    shapiro: float
    brown_forsythe: float
    pairs: Mapping[tuple[str, str], float]


@dataclass(frozen=True, slots=True)
class Agreement:
    """Krippendorff's alpha with a percentile interval over units; low and high are None where it has none."""

    alpha: float
    low: float | None
    high: float | None
    raters: int
    units: int


def paired(a: Floats, b: Floats) -> Paired:
    """Wilcoxon signed-rank test with `zero_method="wilcox"` over windows (n,), two-sided.

    Differences are rounded at 1e-12 first, so that equal scores computed in another order stay equal. Exact up to 50
    windows without ties, all sign flips up to 13 with ties, else the normal approximation with tie correction. No
    difference at all gives p = 1 with a reason. Raises ValueError for scores that are not finite.
    """
    return _signed_rank((np.asarray(a, dtype=np.float64) - b)[:, None])[0]


def _signed_rank(differences: Floats) -> list[Paired]:
    """The test of `paired` for each column of differences (n, k)."""
    if not np.isfinite(differences).all():
        raise ValueError("paired scores must be finite; drop windows where either is undefined")
    differences = np.round(differences, DECIMALS)
    n, k = differences.shape
    size = np.abs(differences)
    n_zero = (size == 0).sum(axis=0)
    ranks = np.where(size > 0, stats.rankdata(size, axis=0) - n_zero, 0.0)  # zeros rank lowest, then leave
    total = ranks.sum(axis=0)
    effect = np.divide((np.sign(differences) * ranks).sum(axis=0), total, out=np.zeros(k), where=total > 0)
    ordered = np.sort(size, axis=0)
    tied = ((ordered[1:] == ordered[:-1]) & (ordered[1:] > 0)).any(axis=0)
    moved = n - n_zero
    how = np.select(
        [moved == 0, ~tied & (moved <= EXACT), tied & (moved <= EXACT_TIED)], ["none", "exact", "permutation"], "normal"
    )
    p = np.ones(k)
    for kind, method in (("exact", "exact"), ("normal", "asymptotic")):
        columns = how == kind
        if columns.any():
            test: Any = stats.wilcoxon(differences[:, columns], zero_method="wilcox", correction=False, method=method)
            p[columns] = test.pvalue
    for column in np.flatnonzero(how == "permutation"):
        p[column] = _all_sign_flips(ranks[:, column], differences[:, column] > 0)
    same = f"the two score the same on all {n} windows"
    return [
        Paired(float(p[i]), float(effect[i]), n, int(n_zero[i]), str(how[i]), "" if moved[i] else same)  # pyright: ignore[reportArgumentType]
        for i in range(k)
    ]


def _all_sign_flips(ranks: Floats, positive: Bools) -> float:
    """Two-sided p of W+ over all sign flips of mid-ranks (n,): what scipy enumerates, by counting sums instead."""
    doubled = np.rint(2 * ranks).astype(np.int64)
    ways = np.zeros(doubled.sum() + 1)
    ways[0] = 1.0
    for rank in doubled[doubled > 0]:
        ways[rank:] = ways[rank:] + ways[: len(ways) - rank]
    observed = int(doubled[positive].sum())
    tail = min(ways[: observed + 1].sum(), ways[observed:].sum()) / ways.sum()
    return min(1.0, 2 * float(tail))


def paired_effect_interval(a: Floats, b: Floats, indices: Ints, confidence: float = 0.95) -> tuple[float, float]:
    """Percentile interval of the matched-pairs rank-biserial correlation, with shared indices (resamples, n).

    A resample without any difference counts as 0. Raises NotApplicable for fewer than two windows.
    """
    difference = np.round(np.asarray(a, dtype=np.float64) - b, DECIMALS)
    n = len(difference)
    if n < 2:
        raise NotApplicable(f"an interval needs at least 2 windows, and there are {n}")
    size, group = np.unique(np.abs(difference), return_inverse=True)
    counts = resample_counts(indices, n)
    # Windows of equal |difference| form a group; its mid-rank follows from how many drawn windows lie below it.
    above = np.zeros((n, len(size)))
    below = np.zeros((n, len(size)))
    above[np.arange(n), group] = difference > 0
    below[np.arange(n), group] = difference < 0
    more, less = counts @ above, counts @ below
    drawn = more + less
    ranks = np.cumsum(drawn, axis=1) - drawn + (drawn + 1) / 2
    total = (drawn * ranks).sum(axis=1)
    effect = np.divide(((more - less) * ranks).sum(axis=1), total, out=np.zeros(len(counts)), where=total > 0)
    tail = 100 * (1 - confidence) / 2
    low, high = np.percentile(effect, (tail, 100 - tail))
    return float(low), float(high)


def unpaired(a: Floats, b: Floats) -> Unpaired:
    """Mann-Whitney U with Cliff's delta = 2 U/(n_a n_b) - 1. Raises NotApplicable for an empty group."""
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if not len(a) or not len(b):
        raise NotApplicable(f"two groups are compared, and they hold {len(a)} and {len(b)} scores")
    if np.ptp(np.concatenate([a, b])) == 0:
        return Unpaired(1.0, len(a) * len(b) / 2, 0.0, (len(a), len(b)))
    test = stats.mannwhitneyu(a, b, alternative="two-sided", method="auto")
    return Unpaired(
        float(test.pvalue), float(test.statistic), float(2 * test.statistic / (len(a) * len(b)) - 1), (len(a), len(b))
    )


def cliffs_delta_interval(
    a: Floats, b: Floats, resamples: int, rng: np.random.Generator, confidence: float = 0.95
) -> tuple[float, float]:
    """Percentile interval of Cliff's delta, both groups resampled. Raises NotApplicable for a group below two."""
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if min(len(a), len(b)) < 2:
        raise NotApplicable(f"an interval needs two groups of at least 2, and they hold {len(a)} and {len(b)} scores")
    dominance = np.sign(a[:, None] - b[None, :])
    of_a = resample_counts(rng.integers(0, len(a), (resamples, len(a))), len(a))
    of_b = resample_counts(rng.integers(0, len(b), (resamples, len(b))), len(b))
    delta = ((of_a @ dominance) * of_b).sum(axis=1) / (len(a) * len(b))
    tail = 100 * (1 - confidence) / 2
    low, high = np.percentile(delta, (tail, 100 - tail))
    return float(low), float(high)


def holm(p: Floats) -> Floats:
    """Holm-Bonferroni adjusted p of one family, any shape; NaN is dropped first and stays NaN.

    statsmodels computes the same, but runs a full garbage collection on every call, which costs more than the board.
    """
    p = np.asarray(p, dtype=np.float64)
    adjusted = np.full(p.shape, np.nan)
    defined = ~np.isnan(p)
    family = p[defined]
    order = np.argsort(family, kind="stable")
    steps = np.maximum.accumulate(family[order] * np.arange(len(family), 0, -1))
    family[order] = np.minimum(steps, 1.0)
    adjusted[defined] = family
    return adjusted


def pairwise(values: Floats) -> Pairwise:
    """Wilcoxon for every pair of entries, values (n, m), Holm over the m(m-1)/2 pairs as one family."""
    m = values.shape[1]
    p, effect = np.full((m, m), np.nan), np.full((m, m), np.nan)
    n_zero = np.full((m, m), len(values), dtype=np.int64)
    upper = np.triu_indices(m, 1)
    tests = _signed_rank(values[:, upper[0]] - values[:, upper[1]]) if m > 1 else []
    for i, j, test in zip(*upper, tests, strict=True):
        p[i, j] = p[j, i] = test.p
        effect[i, j], effect[j, i] = test.effect, -test.effect
        n_zero[i, j] = n_zero[j, i] = test.n_zero
    adjusted = np.full((m, m), np.nan)
    adjusted[upper] = holm(p[upper])
    adjusted.T[upper] = adjusted[upper]
    return Pairwise(p, adjusted, effect, n_zero)


def friedman(values: Floats) -> Friedman:
    """Friedman test over windows, values (n, m). Raises NotApplicable below three entries or two windows."""
    values = np.round(values, DECIMALS)
    n, m = values.shape
    if m < 3 or n < 2:
        raise NotApplicable(
            f"the Friedman test needs at least 3 entries and 2 windows, and there are {m} entries and {n} windows"
        )
    if (np.ptp(values, axis=1) == 0).all():
        return Friedman(1.0, 0.0, 0.0, f"all entries score the same on each of {n} windows")
    test = stats.friedmanchisquare(*values.T)
    return Friedman(float(test.pvalue), float(test.statistic), float(test.statistic / (n * (m - 1))))


def independent_groups(groups: Mapping[str, Floats], alpha: float = 0.05) -> Groups:
    """Three or more independent groups: a Shapiro and Brown-Forsythe gate, then ANOVA with Games-Howell post hoc.

    Kruskal-Wallis with Dunn's test is substituted where either assumption is violated (p < alpha) or cannot be
    checked (a group below three scores or constant). Raises NotApplicable below three groups or for an empty one.
    """
    names = list(groups)
    samples = [np.asarray(groups[name], dtype=np.float64) for name in names]
    if len(samples) < 3 or min(len(sample) for sample in samples) < 1:
        raise NotApplicable(
            f"group tests need at least 3 groups that are not empty, not sizes {[len(s) for s in samples]}"
        )
    shapiro = brown_forsythe = np.nan
    if min(len(sample) for sample in samples) < 3:
        why = "a group has fewer than 3 scores"
    elif any(np.ptp(sample) == 0 for sample in samples):
        why = "a group is constant"
    else:
        shapiro = min(float(stats.shapiro(sample).pvalue) for sample in samples)
        brown_forsythe = float(stats.levene(*samples, center="median").pvalue)
        if shapiro < alpha:
            why = f"normality is violated (Shapiro p = {shapiro:.3g})"
        elif brown_forsythe < alpha:
            why = f"equal variances are violated (Brown-Forsythe p = {brown_forsythe:.3g})"
        else:
            why = "neither normality nor equal variances are violated"
            test = stats.f_oneway(*samples)
            posthoc = stats.tukey_hsd(*samples, equal_var=False).pvalue  # unequal variances: Games-Howell
            return Groups(
                "anova+games-howell",
                why,
                float(test.pvalue),
                float(test.statistic),
                shapiro,
                brown_forsythe,
                _pairs(names, posthoc),
            )
    if np.ptp(np.concatenate(samples)) == 0:
        p, statistic, posthoc = 1.0, 0.0, np.ones((len(names), len(names)))
        why = "all scores are the same"
    else:
        test = stats.kruskal(*samples)
        p, statistic, posthoc = float(test.pvalue), float(test.statistic), _dunn(samples)
    return Groups("kruskal-wallis+dunn", why, p, statistic, shapiro, brown_forsythe, _pairs(names, posthoc))


def _dunn(samples: Sequence[Floats]) -> Floats:
    """Dunn's (1964) test after Kruskal-Wallis with tie correction, (k, k) p under Holm."""
    pooled = np.concatenate(samples)
    n, k = len(pooled), len(samples)
    ranks = np.split(stats.rankdata(pooled), np.cumsum([len(sample) for sample in samples])[:-1])
    ties = np.unique(pooled, return_counts=True)[1].astype(np.float64)
    variance = n * (n + 1) / 12 - (ties**3 - ties).sum() / (12 * (n - 1))
    p = np.ones((k, k))
    upper = np.triu_indices(k, 1)
    for i, j in combinations(range(k), 2):
        spread = sqrt(variance * (1 / len(samples[i]) + 1 / len(samples[j])))
        p[i, j] = 2 * stats.norm.sf(abs(ranks[i].mean() - ranks[j].mean()) / spread)
    p[upper] = holm(p[upper])
    return p


def _pairs(names: Sequence[str], p: Any) -> dict[tuple[str, str], float]:
    return {(names[i], names[j]): float(p[i, j]) for i in range(len(names)) for j in range(i + 1, len(names))}


def krippendorff_alpha(ratings: Floats, indices: Ints | None = None, confidence: float = 0.95) -> Agreement:
    """Krippendorff's alpha for ordinal ratings (2011), with a percentile interval over units.

    ratings: (raters, units), NaN where a rater gave none; units with fewer than two ratings drop out;
    indices: (resamples, units) of `intervals.resample_indices`, or None for no interval. Resamples in which every
    rating is the same have no alpha and are left out. Raises NotApplicable when nothing can disagree.
    """
    levels = np.unique(ratings[~np.isnan(ratings)])
    tally = (ratings[:, :, None] == levels).sum(axis=0).astype(np.float64)  # (units, levels)
    rated = tally.sum(axis=1)
    pairable = rated >= 2
    # Ordered pairs of ratings within each unit, weighted 1/(ratings - 1): the unit's part of the coincidence matrix.
    pairs = tally[:, :, None] * tally[:, None, :] - np.eye(len(levels)) * tally[:, :, None]
    pairs[pairable] /= (rated[pairable] - 1)[:, None, None]
    pairs[~pairable] = 0.0
    if not pairable.any():
        raise NotApplicable("agreement needs at least one unit with two ratings")
    alpha = _alpha(pairs.sum(axis=0)[None])[0]
    if np.isnan(alpha):
        raise NotApplicable("all ratings are the same, so agreement beyond chance is undefined")
    low = high = None
    if indices is not None and pairable.sum() >= 2:
        units = len(pairs)
        counts = resample_counts(indices, units)
        resampled = _alpha((counts @ pairs.reshape(units, -1)).reshape(-1, *pairs.shape[1:]))
        tail = 100 * (1 - confidence) / 2
        low, high = (float(end) for end in np.nanpercentile(resampled, (tail, 100 - tail)))
    return Agreement(float(alpha), low, high, len(ratings), int(pairable.sum()))


def _alpha(coincidences: Floats) -> Floats:
    """alpha = 1 - observed/expected disagreement, per coincidence matrix (b, v, v); NaN where none is expected."""
    totals = coincidences.sum(axis=2)  # (b, v)
    n = totals.sum(axis=1)
    up_to = np.cumsum(totals, axis=1)
    middle = up_to - totals / 2
    distance = (middle[:, :, None] - middle[:, None, :]) ** 2  # ordinal: ratings between, ends counted half
    observed = (coincidences * distance).sum(axis=(1, 2))
    expected = (totals[:, :, None] * totals[:, None, :] * distance).sum(axis=(1, 2))
    return 1 - np.divide((n - 1) * observed, expected, out=np.full(len(n), np.nan), where=expected > 0)
