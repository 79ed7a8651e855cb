"""EAMEX on importances: how concentrated they are over features, and how alike over rows and groups of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import rel_entr
from scipy.stats import rankdata

from explainbench.core.arrays import Bools, Floats
from explainbench.core.errors import BadInput, NotApplicable
from explainbench.metrics._eamex_definitions import Preset, known, numbers, ordered_sum, shares

ROUNDING = 1e-12  # shares closer than this are tied, and a cumulative share this little below alpha reaches it
DIVERGENCE_ROUNDING = 1e-15  # a divergence below this is that of a uniform vector


def spread_divergence(importance: ArrayLike, preset: Preset = "paper") -> float:
    """Feature importance spread: the Jensen-Shannon divergence, base 2, from equal importances (paper 003, eq. 1).

    importance: (d,) non-negative, any sum. In [0, 1), higher is better: 0 for a uniform vector (and a single feature,
    where the two distributions coincide), 1 - (log2((d + 1)/d) + log2(d + 1)/d)/2 where one feature holds everything.
    `holisticai`: its square root, and 1 for a single feature. Raises BadInput.
    """
    known(preset, get_args(Preset), "preset")
    share = np.sort(shares(importance))
    if len(share) == 1:
        return 1.0 if preset == "holisticai" else 0.0
    uniform = np.full(len(share), 1.0 / len(share))
    middle = (share + uniform) / 2
    nats = (rel_entr(share, middle).sum() + rel_entr(uniform, middle).sum()) / 2
    divergence = float(nats / np.log(2))
    divergence = 0.0 if divergence < DIVERGENCE_ROUNDING else min(divergence, 1.0)
    return float(np.sqrt(divergence)) if preset == "holisticai" else divergence


def alpha_importance(importance: ArrayLike, alpha: float = 0.8, preset: Preset = "paper") -> float:
    """Alpha-feature importance: the smallest share of the features that holds alpha of the importance (eq. 2).

    importance: (d,) non-negative, any sum; alpha in (0, 1]. In [1/d, 1], lower is better. `holisticai`: alpha is
    always 0.8. Raises BadInput.
    """
    known(preset, get_args(Preset), "preset")
    share = shares(importance)
    return _needed(share, _alpha(alpha, preset)) / len(share)


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
    if not 0 < alpha <= 1:
        raise BadInput(f"alpha must lie in (0, 1], not {alpha:g}.")
    overall = _top(shares(importance), alpha)
    similarities = []
    for name, values in named.items():
        share = shares(values, f"by_group[{name!r}]")
        if share.shape != overall.shape:
            raise BadInput(f"by_group[{name!r}] has {len(share)} features, and importance has {len(overall)}.")
        similarities.append(jaccard(overall, _top(share, alpha, None if preset == "paper" else overall)))
    return float(np.sort(similarities).mean())


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
    rows = _several(numbers(local, "local importances", 2))
    ranks = rankdata(-rows, method="average", axis=1)
    usual = _most_frequent(ranks)
    deviation = np.abs(ranks - usual).mean(axis=0)
    spread = np.ptp(ranks, axis=0)
    if preset == "holisticai":
        return deviation / (spread + 1e-8)
    return 1.0 - np.divide(deviation, spread, out=np.zeros_like(deviation), where=spread > 0)


def importance_stability(local: ArrayLike, preset: Preset = "paper") -> float:
    """Importance stability: one minus the variance of each feature's share over its largest possible one (eq. 8).

    local: (n, d) non-negative, each row divided by its sum first. In [0, 1], higher is better; a feature that always
    or never holds everything scores 1. `holisticai`: the relative variance itself, over n - 1 rows, weighted by mean
    importance, LOWER is better. Raises BadInput, NotApplicable for a single row.
    """
    share = _several(shares(local, "local importances", 2))
    stability = importance_stability_by_feature(local, preset)
    if preset == "paper":
        return float(np.sort(stability).mean())
    weight = share.mean(axis=0)
    return float(ordered_sum(weight / ordered_sum(weight) * stability))


def importance_stability_by_feature(local: ArrayLike, preset: Preset = "paper") -> Floats:
    """S_j of each feature (d,): one minus V_j / Vmax_j (`paper`), or V_j / Vmax_j (`holisticai`)."""
    known(preset, get_args(Preset), "preset")
    share = _several(shares(local, "local importances", 2))
    mean = share.mean(axis=0)
    variance = share.var(axis=0, ddof=1 if preset == "holisticai" else 0)
    largest = mean * (1 - mean)
    relative = np.divide(variance, largest, out=np.zeros_like(mean), where=(mean > 0) & (mean < 1))
    relative = np.clip(relative, 0.0, 1.0)
    return relative if preset == "holisticai" else 1.0 - relative


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
    share = _several(shares(local, "local importances", 2))
    groups = np.asarray(group)
    if groups.shape != (len(share),):
        raise BadInput(f"group must give one name per row, {len(share)} of them, not shape {groups.shape}.")
    overall = share.mean(axis=0)
    scores = {
        "spread_divergence": spread_divergence(overall, preset),
        "alpha_importance": alpha_importance(overall, alpha, preset),
        "rank_consistency": rank_consistency(share, preset),
        "importance_stability": importance_stability(share, preset),
    }
    names = np.unique(groups)
    if len(names) > 1:
        by_group = {str(name): share[groups == name].mean(axis=0) for name in names}
        scores["rank_alignment"] = rank_alignment(overall, by_group, alpha, preset)
    return scores


def jaccard(one: Bools, other: Bools) -> float:
    """|A and B| / |A or B| of two sets of features given as masks (d,); 1 for two empty sets."""
    union = int((one | other).sum())
    return int((one & other).sum()) / union if union else 1.0


def _alpha(alpha: float, preset: Preset) -> float:
    if not 0 < alpha <= 1:
        raise BadInput(f"alpha must lie in (0, 1], not {alpha:g}.")
    return 0.8 if preset == "holisticai" else alpha


def _needed(share: Floats, alpha: float) -> int:
    """The number of features, largest first, that together hold alpha."""
    cumulative = np.cumsum(np.sort(share)[::-1])
    return int(np.argmax(cumulative >= alpha * cumulative[-1] - ROUNDING)) + 1


def _top(share: Floats, alpha: float, shunned: Bools | None = None) -> Bools:
    """F_alpha as a mask (d,): every feature at least as important as the last one needed.

    With `shunned`, no more than needed: of the features tied with the last one, shunned ones come last.
    """
    count = _needed(share, alpha)
    last = np.sort(share)[::-1][count - 1]
    if shunned is None:
        return share >= last - ROUNDING
    top = share > last + ROUNDING
    tied = np.flatnonzero(np.abs(share - last) <= ROUNDING)
    tied = tied[np.argsort(shunned[tied], kind="stable")]
    top[tied[: count - int(top.sum())]] = True
    return top


def _most_frequent(ranks: Floats) -> Floats:
    """The mode of each column of ranks (n, d), whole or half numbers in 1..d; of equally frequent ones the smallest."""
    d = ranks.shape[1]
    cells = (2 * ranks).astype(np.int64) + np.arange(d) * (2 * d + 1)
    return np.bincount(cells.ravel(), minlength=d * (2 * d + 1)).reshape(d, -1).argmax(axis=1) / 2


def _several(rows: Floats) -> Floats:
    if len(rows) < 2:
        raise NotApplicable("consistency over rows needs at least 2 rows of importances, and there is 1")
    return rows
