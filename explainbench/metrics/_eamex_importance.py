"""EAMEX on importances: how concentrated they are over features, and how alike over rows and groups of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import rel_entr
from scipy.stats import rankdata

from explainbench.core.arrays import Bools, Floats, Ints
from explainbench.core.errors import BadInput, NotApplicable
from explainbench.metrics._eamex_definitions import Preset, known, numbers, ordered_sum, shares

ROUNDING = 1e-12  # shares closer than this are tied, and a cumulative share this little below alpha reaches it
DIVERGENCE_ROUNDING = 1e-15  # a divergence below this is that of a uniform vector
BLOCK = 64  # resamples scored at once: bounds memory


def spread_divergence(importance: ArrayLike, preset: Preset = "paper") -> float:
    """Feature importance spread: the Jensen-Shannon divergence, base 2, from equal importances (paper 003, eq. 1).

    importance: (d,) non-negative, any sum. In [0, 1), higher is better: 0 for a uniform vector (and a single feature,
    where the two distributions coincide), 1 - (log2((d + 1)/d) + log2(d + 1)/d)/2 where one feature holds everything.
    `holisticai`: its square root, and 1 for a single feature. Raises BadInput.
    """
    known(preset, get_args(Preset), "preset")
    return float(spread_divergences(shares(importance)[None], preset)[0])


def alpha_importance(importance: ArrayLike, alpha: float = 0.8, preset: Preset = "paper") -> float:
    """Alpha-feature importance: the smallest share of the features that holds alpha of the importance (eq. 2).

    importance: (d,) non-negative, any sum; alpha in (0, 1]. In [1/d, 1], lower is better. `holisticai`: alpha is
    always 0.8. Raises BadInput.
    """
    known(preset, get_args(Preset), "preset")
    return float(concentrations(shares(importance)[None], alpha, preset)[0])


def rank_alignment(
    importance: ArrayLike,
    by_group: Mapping[str, ArrayLike] | Sequence[ArrayLike] | Floats,
    alpha: float = 0.8,
    preset: Preset = "paper",
) -> float:
    """Rank alignment: mean Jaccard similarity of the top features overall and in each group of rows (eq. 3).

    importance: (d,); by_group: (d,) for each group, all non-negative, any sum. In [0, 1], higher is better. The top
    features F_alpha are the smallest set that holds alpha of the importance, and all features tied with its last one,
    so that the order of the columns does not matter. (Read as a count of alpha x d features, Jaccard could not fall
    below 0.6 at alpha = 0.8, and the paper's table goes down to 0.2.) `holisticai`: exactly as many features as needed
    in each group, of tied ones those outside the overall top first (the library lets a sort that is not stable pick;
    this choice gives its published numbers). Raises BadInput.
    """
    known(preset, get_args(Preset), "preset")
    named = by_group if isinstance(by_group, Mapping) else {str(i): row for i, row in enumerate(by_group)}
    if not named:
        raise BadInput("by_group is empty; give the importances of at least one group of rows.")
    overall = shares(importance)
    groups = []
    for name, values in named.items():
        groups.append(shares(values, f"by_group[{name!r}]"))
        if groups[-1].shape != overall.shape:
            raise BadInput(f"by_group[{name!r}] has {len(groups[-1])} features, and importance has {len(overall)}.")
    return float(rank_alignments(overall[None], [share[None] for share in groups], alpha, preset)[0])


def rank_consistency(local: ArrayLike, preset: Preset = "paper") -> float:
    """Rank consistency: one minus each feature's mean deviation from its most frequent rank, over the range (eq. 6).

    local: (n, d), one row of importances per observation, ranked as given (pass magnitudes of signed ones). In [0, 1],
    higher is better; tied features share their mean rank; a feature that never changes rank scores 1. `holisticai`:
    the deviation itself, LOWER is better. Raises BadInput, NotApplicable for a single row.
    """
    return float(np.sort(rank_consistency_by_feature(local, preset)).mean())


def rank_consistency_by_feature(local: ArrayLike, preset: Preset = "paper") -> Floats:
    """C_j of each feature (d,): eq. 5 (`paper`) or one minus it (`holisticai`)."""
    known(preset, get_args(Preset), "preset")
    ranks = _ranks(_several(numbers(local, "local importances", 2)))
    return _consistency(_rank_histogram(ranks), preset)[0]


def importance_stability(local: ArrayLike, preset: Preset = "paper") -> float:
    """Importance stability: one minus the variance of each feature's share over its largest possible one (eq. 8).

    local: (n, d) non-negative, each row divided by its sum first. In [0, 1], higher is better; a feature that always
    or never holds everything scores 1. `holisticai`: the relative variance itself, over n - 1 rows, weighted by mean
    importance, LOWER is better. Raises BadInput, NotApplicable for a single row.
    """
    known(preset, get_args(Preset), "preset")
    return float(_stability_of_all(_several(shares(local, "local importances", 2)), None, preset)[0])


def importance_stability_by_feature(local: ArrayLike, preset: Preset = "paper") -> Floats:
    """S_j of each feature (d,): one minus V_j / Vmax_j (`paper`), or V_j / Vmax_j (`holisticai`)."""
    known(preset, get_args(Preset), "preset")
    return _stability(_several(shares(local, "local importances", 2)), None, preset)[0]


def global_importance(local: ArrayLike) -> Floats:
    """Mean over rows of the local shares (n, d): (d,), a probability. Raises BadInput."""
    return shares(local, "local importances", 2).mean(axis=0)


def explanation_scores(
    local: ArrayLike, group: ArrayLike, alpha: float = 0.8, preset: Preset = "paper"
) -> dict[str, float]:
    """The five metrics that need nothing but local importances (n, d) and the group of each row (n,).

    Global importances, overall and per group, are mean shares. With one group, rank alignment is 1 by construction and
    left out. Raises BadInput, NotApplicable for a single row.
    """
    return LocalImportance.of(local, group).scores(alpha, preset)


@dataclass(frozen=True, slots=True, eq=False)
class LocalImportance:
    """Local importances, checked and ranked once, so that they can be scored on many resamples of their rows.

    share: (n, d) rows that sum to one; ranks: (n, d) 1 for the most important; members: (n,) rows of each group.
    """

    share: Floats
    ranks: Floats
    members: Mapping[str, Bools]

    @classmethod
    def of(cls, local: ArrayLike, group: ArrayLike) -> LocalImportance:
        """Check local importances (n, d), non-negative, and the group of each row (n,). As `explanation_scores`."""
        share = _several(shares(local, "local importances", 2))
        groups = np.asarray(group)
        if groups.shape != (len(share),):
            raise BadInput(f"group must give one name per row, {len(share)} of them, not shape {groups.shape}.")
        return cls(share, _ranks(share), {str(name): groups == name for name in np.unique(groups)})

    def scores(self, alpha: float = 0.8, preset: Preset = "paper") -> dict[str, float]:
        """The five metrics of `explanation_scores`."""
        return {name: float(values[0]) for name, values in self._scores(None, alpha, preset).items()}

    def resampled(self, times: Floats, alpha: float = 0.8, preset: Preset = "paper") -> dict[str, Floats]:
        """The five metrics on b resamples: times (b, n), how often each row is drawn: (b,).

        NaN where nothing is drawn, and for rank alignment where a group is not.
        """
        drawn = np.column_stack([times[:, member].any(axis=1) for member in self.members.values()])
        parts = [self._scores(times[first : first + BLOCK], alpha, preset) for first in range(0, len(times), BLOCK)]
        scores = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        return {
            name: np.where(drawn.all(axis=1) if name == "rank_alignment" else drawn.any(axis=1), values, np.nan)
            for name, values in scores.items()
        }

    def _scores(self, times: Floats | None, alpha: float, preset: Preset) -> dict[str, Floats]:
        known(preset, get_args(Preset), "preset")
        times = None if times is None else _some(times)
        overall = _mean(self.share, times)
        scores = {
            "spread_divergence": spread_divergences(overall, preset),
            "alpha_importance": concentrations(overall, alpha, preset),
            "rank_consistency": np.sort(_consistency(_rank_histogram(self.ranks, times), preset), axis=1).mean(axis=1),
            "importance_stability": _stability_of_all(self.share, times, preset),
        }
        if len(self.members) > 1:
            groups = [
                _mean(self.share[member], None if times is None else _some(times[:, member]))
                for member in self.members.values()
            ]
            scores["rank_alignment"] = rank_alignments(overall, groups, alpha, preset)
        return scores


def jaccard(one: Bools, other: Bools) -> Floats:
    """|A and B| / |A or B| of sets of features given as masks (..., d); 1 for two empty sets."""
    union = (one | other).sum(axis=-1)
    return np.where(union > 0, (one & other).sum(axis=-1) / np.maximum(union, 1), 1.0)


# The arithmetic, for b vectors of importance at once; `times` (b, n) counts how often each row is drawn, None: once.


def _mean(share: Floats, times: Floats | None) -> Floats:
    """Mean shares (b, d), each row of which sums to one."""
    if times is None:
        return shares(share.mean(axis=0)[None], dimensions=2)
    return shares(times @ share, dimensions=2)


def _some(times: Floats) -> Floats:
    """`times` in which a resample that draws nothing draws each row once; its scores are no numbers anyway."""
    return np.where(times.any(axis=1, keepdims=True), times, 1.0)


def spread_divergences(share: Floats, preset: Preset) -> Floats:
    d = share.shape[1]
    if d == 1:
        return np.full(len(share), 1.0 if preset == "holisticai" else 0.0)
    ordered = np.sort(share, axis=1)
    uniform = np.full(d, 1.0 / d)
    middle = (ordered + uniform) / 2
    nats = (rel_entr(ordered, middle).sum(axis=1) + rel_entr(uniform, middle).sum(axis=1)) / 2
    divergence = np.minimum(nats / np.log(2), 1.0)
    divergence[divergence < DIVERGENCE_ROUNDING] = 0.0
    return np.sqrt(divergence) if preset == "holisticai" else divergence


def concentrations(share: Floats, alpha: float, preset: Preset) -> Floats:
    asked = _checked(alpha)
    return _needed(share, 0.8 if preset == "holisticai" else asked) / share.shape[1]


def rank_alignments(overall: Floats, groups: Sequence[Floats], alpha: float, preset: Preset) -> Floats:
    top = _top(overall, _checked(alpha))
    similarities = [jaccard(top, _top(share, alpha, None if preset == "paper" else top)) for share in groups]
    return np.sort(similarities, axis=0).mean(axis=0)


def _consistency(histogram: Ints | Floats, preset: Preset) -> Floats:
    """C_j (b, d) from how often each feature has each rank (b, d, levels); a level is half a rank."""
    there = histogram > 0
    usual = histogram.argmax(axis=2)  # of equally frequent ranks the smallest
    levels = np.arange(histogram.shape[2])
    distance = np.abs(levels - usual[:, :, None])
    deviation = (histogram * distance).sum(axis=2) / histogram.sum(axis=2) / 2
    spread = (levels[-1] - there[:, :, ::-1].argmax(axis=2) - there.argmax(axis=2)) / 2
    if preset == "holisticai":
        return deviation / (spread + 1e-8)
    return 1.0 - np.divide(deviation, spread, out=np.zeros_like(deviation), where=spread > 0)


def _stability(share: Floats, times: Floats | None, preset: Preset) -> Floats:
    """S_j (b, d); deviations are taken from the mean over all rows, so that a constant feature has none."""
    centre = share.mean(axis=0)
    squares = (share - centre) ** 2
    if times is None:
        n, mean, variance = len(share), centre[None], squares.mean(axis=0)[None]
    else:
        n = times.sum(axis=1, keepdims=True)
        mean = times @ share / n
        variance = np.maximum(times @ squares / n - (mean - centre) ** 2, 0.0)
    if preset == "holisticai":
        variance = variance * (n / (n - 1))
    largest = mean * (1 - mean)
    relative = np.divide(variance, largest, out=np.zeros_like(mean), where=(mean > 0) & (mean < 1))
    relative = np.clip(relative, 0.0, 1.0)
    return relative if preset == "holisticai" else 1.0 - relative


def _stability_of_all(share: Floats, times: Floats | None, preset: Preset) -> Floats:
    stability = _stability(share, times, preset)
    if preset == "paper":
        return np.sort(stability, axis=1).mean(axis=1)
    return ordered_sum(_mean(share, times) * stability)


def _checked(alpha: float) -> float:
    if not 0 < alpha <= 1:
        raise BadInput(f"alpha must lie in (0, 1], not {alpha:g}.")
    return alpha


def _needed(share: Floats, alpha: float) -> Ints:
    """The number of features, largest first, that together hold alpha: (b, d) -> (b,)."""
    cumulative = np.cumsum(np.sort(share, axis=1)[:, ::-1], axis=1)
    return (cumulative >= alpha * cumulative[:, -1:] - ROUNDING).argmax(axis=1) + 1


def _top(share: Floats, alpha: float, shunned: Bools | None = None) -> Bools:
    """F_alpha as masks (b, d): every feature at least as important as the last one needed.

    With `shunned`, no more than needed: of the features tied with the last one, shunned ones come last.
    """
    count = _needed(share, alpha)[:, None]
    last = np.take_along_axis(np.sort(share, axis=1)[:, ::-1], count - 1, axis=1)
    if shunned is None:
        return share >= last - ROUNDING
    top = share > last + ROUNDING
    tied = np.abs(share - last) <= ROUNDING
    place = np.argsort(np.argsort(np.where(tied, shunned, 2), axis=1, kind="stable"), axis=1)
    return top | (tied & (place < count - top.sum(axis=1, keepdims=True)))


def _ranks(rows: Floats) -> Floats:
    """1 for the most important feature of a row (n, d); ties share their mean rank."""
    return rankdata(-rows, method="average", axis=1)


def _rank_histogram(ranks: Floats, times: Floats | None = None) -> Ints | Floats:
    """How often each feature has each whole or half rank 0, 1/2, 1 .. d: (b, d, 2 d + 1)."""
    from scipy.sparse import csr_array

    n, d = ranks.shape
    levels = 2 * d + 1
    place = (2 * ranks).astype(np.int64) + np.arange(d) * levels
    if times is None:
        return np.bincount(place.ravel(), minlength=d * levels).reshape(1, d, levels)
    onehot = csr_array((np.ones(n * d), place.ravel(), np.arange(0, n * d + 1, d)), shape=(n, d * levels))
    return (times @ onehot).reshape(-1, d, levels)


def _several(rows: Floats) -> Floats:
    if len(rows) < 2:
        raise NotApplicable("consistency over rows needs at least 2 rows of importances, and there is 1")
    return rows
