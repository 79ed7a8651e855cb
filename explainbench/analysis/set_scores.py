"""Intervals and co-ranks of scores of a whole set: each resample of the rows is scored anew, no mean over rows.

Intervals stand around the estimate, as wide as the resampled scores spread around their own mean: a resample repeats
rows, so scores of consistency are biased on it, and percentiles of the resampled scores could leave out the estimate.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from explainbench.analysis.comparisons import holm
from explainbench.analysis.ranking import EQUAL, Place
from explainbench.core.arrays import Floats, Texts


def times_drawn(group: Texts, resamples: int, rng: np.random.Generator) -> Floats:
    """How often each row (n,) is drawn in each resample, with replacement within its group: (resamples, n)."""
    times = np.empty((resamples, len(group)))
    for name in np.unique(group):
        rows = np.flatnonzero(group == name)
        times[:, rows] = rng.multinomial(len(rows), np.full(len(rows), 1 / len(rows)), size=resamples)
    return times


def simultaneous(estimate: Floats, draws: Floats, confidence: float) -> tuple[Floats, Floats]:
    """Intervals of m scores (m,) that hold all at once, from their values on b resamples (b, m).

    The largest deviation over scores, each in units of its own spread, has one quantile for all (Romano and Wolf 2005).
    A score that no resample changes has an interval without width.
    """
    centred = draws - draws.mean(axis=0)
    spread = np.sqrt((centred**2).mean(axis=0))
    spread[spread <= EQUAL * np.abs(draws).max(axis=0, initial=0.0)] = 0.0
    standard = np.divide(np.abs(centred), spread, out=np.zeros_like(centred), where=spread > 0)
    reach = float(np.quantile(standard.max(axis=1, initial=0.0), confidence)) * spread
    return estimate - reach, estimate + reach


def rank_sets(
    estimate: Floats, draws: Floats, labels: Sequence[str], n: int, *, higher_is_better: bool, confidence: float = 0.95
) -> tuple[Place, ...]:
    """Rank m entries by a score of the whole set, from its values on b resamples that all entries share (b, m).

    estimate: (m,); n: rows. As `ranking.rank`: the interval is each entry's own, co-ranks are judged on scores less
    their mean over the entries, the test against the entry above is Holm-corrected over all pairs. Its p is the share
    of resamples whose difference deviates from their mean by at least the observed difference.
    """
    m = len(labels)
    if estimate.shape != (m,) or draws.shape[1] != m or len(set(labels)) != m:
        raise ValueError(f"{m} different labels need scores ({m},) and (b, {m}), not {estimate.shape}, {draws.shape}")
    sign = 1.0 if higher_is_better else -1.0
    slack = EQUAL * max(1.0, float(np.abs(estimate).max(initial=0.0)))
    goodness = np.round(sign * estimate / slack) * slack
    order = sorted(range(m), key=lambda i: (-goodness[i], labels[i]))
    low, high = _each(estimate, draws, confidence)
    contest = sign * (estimate - estimate.mean())
    least, most = _each(contest, sign * (draws - draws.mean(axis=1, keepdims=True)), confidence)
    apart = _each(estimate, draws, confidence)
    p = _p(estimate, draws)
    places = []
    for k, i in enumerate(order):
        above = order[k - 1] if k else None
        places.append(
            Place(
                labels[i],
                float(estimate[i]),
                n,
                float(low[i]),
                float(high[i]),
                order=1 + int((goodness > goodness[i]).sum()),
                rank_ub=1 + int((least > most[i] + slack).sum()),
                co_ranked_with_above=None if above is None else not bool(least[above] > most[i] + slack),
                co_ranked_plain=None
                if above is None
                else not bool(apart[0][above] > apart[1][i] + slack or apart[0][i] > apart[1][above] + slack),
                p_vs_above=None if above is None else float(p[i, above]),
            )
        )
    return tuple(places)


def _each(estimate: Floats, draws: Floats, confidence: float) -> tuple[Floats, Floats]:
    """The interval of each score for itself."""
    reach = np.quantile(np.abs(draws - draws.mean(axis=0)), confidence, axis=0)
    return estimate - reach, estimate + reach


def _p(estimate: Floats, draws: Floats) -> Floats:
    """(m, m) Holm-corrected p of every pair of entries."""
    m = len(estimate)
    p = np.full((m, m), np.nan)
    upper = np.triu_indices(m, 1)
    observed = np.abs(estimate[upper[0]] - estimate[upper[1]])
    drawn = draws[:, upper[0]] - draws[:, upper[1]]
    slack = EQUAL * max(1.0, float(np.abs(estimate).max(initial=0.0)))
    beyond = np.abs(drawn - drawn.mean(axis=0)) >= observed - slack
    p[upper] = holm((1 + beyond.sum(axis=0)) / (1 + len(draws)))
    p.T[upper] = p[upper]
    return p
