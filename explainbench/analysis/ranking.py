"""Co-ranking (paper 000, Algorithm 6): point order, and who cannot be told from whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from explainbench.analysis.comparisons import Pairwise, paired_effect_interval, pairwise
from explainbench.analysis.intervals import mean_intervals
from explainbench.core.arrays import Bools, Floats, Ints

EQUAL = 1e-12  # of the largest score: differences below it are rounding, never a rank
EFFECT_RESAMPLES = 2_000  # of the shared ones, for intervals of effect sizes, which need a sort per resample


@dataclass(frozen=True, slots=True)
class Place:
    """One entry of a ranking. None where a column does not apply: the first has nothing above, a baseline no rank.

    value, low, high: plain mean and its percentile interval; order: 1 + number of ranked entries with a better mean;
    rank_ub: 1 + number of entries whose lower bound exceeds this one's upper bound; co_ranked_with_above: its interval
    overlaps that of the entry above; both on window-centred scores. co_ranked_plain: the overlap of plain intervals.
    p_vs_above: Wilcoxon against the entry above, Holm over all pairs of the ranking; effect: matched-pairs
    rank-biserial against it (negative: this one is worse), with its interval; n_zero: windows without a difference.
    """

    label: str
    value: float
    n: int
    low: float | None = None
    high: float | None = None
    order: int | None = None
    rank_ub: int | None = None
    co_ranked_with_above: bool | None = None
    co_ranked_plain: bool | None = None
    p_vs_above: float | None = None
    effect: float | None = None
    effect_low: float | None = None
    effect_high: float | None = None
    n_zero: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """Ranked entries in order, then those shown but not ranked, by value; and all pairs of the ranked, in order."""

    places: tuple[Place, ...]
    ranked: tuple[str, ...]
    pairs: Pairwise | None


def rank(
    values: Floats,
    labels: Sequence[str],
    indices: Ints | None,
    ranked: Bools | None = None,
    *,
    higher_is_better: bool = True,
    confidence: float = 0.95,
) -> Ranking:
    """Rank m entries scored on the same n windows (spec section 6, co-ranking).

    values: (n, m), finite; labels: m, unique, used to order exact ties; indices: (resamples, n) shared by all entries,
    or None for the point order only (one score per entry); ranked: (m,), False for entries shown but never ranked.
    Centring subtracts each window's mean over the ranked entries, so a shown baseline never moves a verdict.
    The verdict is between neighbours and never chained: a ~ b and b ~ c do not make a ~ c.
    """
    n, m = values.shape
    mask = np.ones(m, dtype=bool) if ranked is None else np.asarray(ranked)
    if len(labels) != m or len(set(labels)) != m or len(mask) != m:
        raise ValueError(f"{m} entries need {m} different labels, not {list(labels)}")
    if not np.isfinite(values).all():
        raise ValueError("scores must be finite; drop windows where an entry is undefined")
    sign = 1.0 if higher_is_better else -1.0
    slack = EQUAL * max(1.0, float(np.abs(values).max(initial=0.0)))
    mean = values.mean(axis=0) if indices is None else mean_intervals(values, indices, confidence).mean
    goodness = np.round(sign * mean / slack) * slack  # so that rounding never separates equal means
    best_first = sorted(range(m), key=lambda i: (not mask[i], -goodness[i], labels[i]))
    count = int(mask.sum())
    order = [1 + int((goodness[mask] > goodness[i]).sum()) for i in best_first[:count]]
    if indices is None:
        places = [
            Place(labels[i], float(mean[i]), n, order=order[k] if k < count else None) for k, i in enumerate(best_first)
        ]
        return Ranking(tuple(places), tuple(labels[i] for i in best_first[:count]), None)

    values = values[:, best_first]
    plain = mean_intervals(values, indices, confidence)
    contest = sign * values[:, :count]
    difficulty = contest.sum(axis=1, keepdims=True) / max(count, 1)
    centred = mean_intervals(contest - difficulty, indices, confidence)
    pairs = pairwise(contest)
    ahead = centred.low[:, None] > centred.high[None, :] + slack  # [i, j]: i is above j beyond both intervals
    effect_indices = indices[:EFFECT_RESAMPLES]
    places = []
    for k, i in enumerate(best_first):
        place = Place(labels[i], float(plain.mean[k]), n, float(plain.low[k]), float(plain.high[k]))
        if k < count:
            place = replace(place, order=order[k], rank_ub=1 + int(ahead[:, k].sum()))
        if 0 < k < count:
            low, high = paired_effect_interval(contest[:, k], contest[:, k - 1], effect_indices, confidence)
            apart = plain.low[k - 1] > plain.high[k] + slack or plain.low[k] > plain.high[k - 1] + slack
            place = replace(
                place,
                co_ranked_with_above=not bool(ahead[k - 1, k]),
                co_ranked_plain=not bool(apart),
                p_vs_above=float(pairs.p_holm[k, k - 1]),
                effect=float(pairs.effect[k, k - 1]),
                effect_low=low,
                effect_high=high,
                n_zero=int(pairs.n_zero[k, k - 1]),
            )
        places.append(place)
    return Ranking(tuple(places), tuple(labels[i] for i in best_first[:count]), pairs)
