"""Agreement with a known ground truth: FA, RA, SA, SRA, RC and PRA."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike
from pydantic import Field

from explainbench.core.arrays import Floats, Ints
from explainbench.core.cell import Score
from explainbench.core.errors import BadInput, NotApplicable
from explainbench.core.evidence import Evidence, MetricCard
from explainbench.core.registry import METRICS
from explainbench.metrics._top_n import DEFAULT, Preset, area, checked, top_order

TOP_N = ("feature_agreement", "rank_agreement", "sign_agreement", "signed_rank_agreement")


def agreement(
    explanations: ArrayLike,
    truth: ArrayLike,
    *,
    preset: Preset = DEFAULT,
    predictions: ArrayLike | None = None,
) -> dict[str, Floats]:
    """FA, RA, SA and SRA for all n = 1..d, (q, d) each, and RC and PRA, (q,) each (paper 004, Table 1).

    explanations: (q, d); truth: e*, (d,) for all rows or (q, d); predictions: (q,) labels 0 or 1, needed by a preset
    that flips the sign of e* for class 0. FA_n: share of the top n features in common; RA_n: and at the same rank;
    SA_n: and of the same sign; SRA_n: both. RC: correlation of the ranks of |e| and |e*|, NaN where either ranks
    nothing; PRA: share of feature pairs ordered alike. Equal |e| are ordered by column index.

    Raises BadInput (NaN, wrong shape, missing predictions).
    """
    e = checked(explanations, "explanations", (None, None))
    target = np.atleast_2d(np.asarray(truth, dtype=np.float64))
    target = checked(np.broadcast_to(target, e.shape) if len(target) == 1 else target, "ground truth", e.shape)
    if preset.flip_ground_truth:
        target = target * _signs(predictions, len(e))[:, None]
    mine, true = _position(np.abs(e), preset), _position(np.abs(target), preset)
    common = np.maximum(mine, true)  # a feature is in both top n from n = common + 1 on
    rank, sign = mine == true, np.sign(e) == np.sign(target)
    n = np.arange(1, e.shape[1] + 1)
    every = np.ones_like(rank)
    shares = [_cumulative(common, hit) / n for hit in (every, rank, sign, rank & sign)]
    return {
        **dict(zip(TOP_N, shares)),
        "rank_correlation": rank_correlation(e, target, preset),
        "pairwise_rank_agreement": _pairwise(np.abs(e), np.abs(target), preset),
    }


def agreement_auc(curve: Floats, preset: Preset = DEFAULT, top: int | None = None) -> Floats:
    """The area under FA_n, RA_n, SA_n or SRA_n over n = 1..top, (q, d) -> (q,)."""
    return area(curve[:, :top], preset, curve.shape[1])


def rank_correlation(one: Floats, other: Floats, rule: Preset = DEFAULT) -> Floats:
    """Spearman's correlation of the ranks of |one| and |other|, (q, d) -> (q,); NaN where either is constant."""
    from scipy.stats import rankdata

    a = rankdata(-np.abs(one), method=rule.rank_ties, axis=1)
    b = rankdata(-np.abs(other), method=rule.rank_ties, axis=1)
    a, b = a - a.mean(axis=1, keepdims=True), b - b.mean(axis=1, keepdims=True)
    norm = np.sqrt((a**2).sum(axis=1) * (b**2).sum(axis=1))
    return np.divide((a * b).sum(axis=1), norm, out=np.full(len(a), np.nan), where=norm > 0)


def _signs(predictions: ArrayLike | None, count: int) -> Floats:
    if predictions is None:
        raise BadInput("this preset flips the ground truth's sign for class 0: give the predictions, 0 or 1 per row.")
    labels = np.asarray(predictions)
    if labels.shape != (count,) or not np.isin(labels, (0, 1)).all():
        raise BadInput(f"predictions must be {count} labels 0 or 1, one per explanation.")
    return 2.0 * labels - 1.0


def _position(importance: Floats, rule: Preset) -> Ints:
    """Rank of each feature, 0 for the most important: (q, d)."""
    return np.argsort(top_order(importance, rule), axis=1)


def _cumulative(position: Ints, hit: np.ndarray) -> Floats:
    """How many features with `hit` have position < n, for n = 1..d: (q, d)."""
    counts = np.zeros(position.shape)
    rows = np.broadcast_to(np.arange(len(position))[:, None], position.shape)
    np.add.at(counts, (rows, position), hit.astype(np.float64))
    return counts.cumsum(axis=1)


def _pairwise(mine: Floats, true: Floats, rule: Preset) -> Floats:
    """Share of feature pairs that both order alike, (q, d) -> (q,); a single feature: 1."""
    q, d = mine.shape
    if d == 1:
        return np.ones(q)
    alike = np.zeros(q)
    for i in range(d - 1):
        one, other = mine[:, i, None] - mine[:, i + 1 :], true[:, i, None] - true[:, i + 1 :]
        same = np.sign(one) == np.sign(other) if rule.pair_ties == "own_order" else (one > 0) == (other > 0)
        alike += same.sum(axis=1)
    return alike / (d * (d - 1) / 2)


@METRICS.register(
    MetricCard(title="Agreement with the true drivers", equation="paper 004, Table 1 (FA, RA, SA, SRA, RC, PRA)")
)
@dataclass(frozen=True, slots=True)
class Agreement:
    """How far the top groups are those that generated the target, where the dataset knows them.

    share: the top n of RA, SA and SRA is ceil(share x groups). The main score is FA by the area over n = 1..g,
    1 for the true ranking. Signs are compared for signed methods only.
    """

    share: Annotated[float, Field(gt=0.0, le=1.0)] = 0.25

    def score(self, evidence: Evidence) -> Mapping[str, Score]:
        """Per window (n,): `agreement` = area under FA_n; `agreement_*` = FA, RA, SA, SRA at n, RC, PRA.

        Raises NotApplicable where the dataset does not know its true drivers.
        """
        if evidence.windows.truth is None:
            raise NotApplicable("the dataset does not know which inputs generated its target")
        groups = evidence.masker.groups
        importance = evidence.importance
        found = agreement(importance, groups.total(evidence.windows.truth))
        for values in found.values():
            values[~importance.any(axis=1)] = np.nan  # an all-zero explanation ranks nothing: undefined, not 0
        fa = agreement_auc(found["feature_agreement"])
        scores = {"agreement": Score(fa, fa)}
        n = ceil(self.share * len(groups)) - 1
        for name, values in found.items():
            if evidence.method.vector == "nonnegative" and "sign" in name:
                continue
            at = values[:, n] if values.ndim == 2 else values
            scores[f"agreement_{name.removesuffix('_agreement')}"] = Score(at)
        return scores
