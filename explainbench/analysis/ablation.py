"""Ablations (paper 000, section 8.8): which conclusions survive another choice of weights, component, mask, K or
segment length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from scipy import stats

from explainbench.analysis.intervals import resampled_means
from explainbench.core.arrays import Floats, Ints
from explainbench.core.errors import NotApplicable

CONCORDANT = 0.5  # Kendall's W of the masks below which they support no single faithfulness ranking
UNSUPPORTED = "no single faithfulness ranking is supported"  # how a note on masks ends below that
ROUNDING = 12  # decimals, relative to the largest score: differences below it are ties


@dataclass(frozen=True, slots=True)
class WeightPoint:
    """The ranking under other weights: Kendall's tau-b against the default one, None where a ranking is all ties."""

    weights: tuple[float, ...]
    tau: float | None


@dataclass(frozen=True, slots=True)
class ComponentShare:
    """How much of a composite's variance over entries a component carries.

    share: Cov(w x, C)/Var(C), which sums to one over components; without: 1 - Var(C without it)/Var(C), its weight
    given to no other; tau: Kendall's tau-b of the ranking by the other components alone against the composite's.
    """

    component: str
    share: float
    without: float
    tau: float | None


@dataclass(frozen=True, slots=True)
class Concordance:
    """Kendall's W of the rankings that several masks give to the same m methods, with its interval over windows.

    taus: Kendall's tau-b of each pair of masks; supported: W is at least `CONCORDANT`.
    """

    w: float
    low: float
    high: float
    n: int
    taus: Mapping[tuple[str, str], float | None]

    @property
    def supported(self) -> bool:
        """Whether the masks agree enough for one faithfulness ranking."""
        return self.w >= CONCORDANT


def simplex(components: int, step: float = 0.1) -> Floats:
    """All weights (k, components) that are multiples of `step` and sum to one."""
    parts = round(1 / step)
    grid = np.indices((parts + 1,) * (components - 1)).reshape(components - 1, -1).T
    grid = grid[grid.sum(axis=1) <= parts]
    return np.column_stack([grid, parts - grid.sum(axis=1)]) / parts


def rank_tau(one: Floats, other: Floats) -> float | None:
    """Kendall's tau-b of two score vectors (m,) over the same entries; None where either is all ties."""
    if len(one) < 2:
        return None
    test: Any = stats.kendalltau(_settled(one), _settled(other))
    return None if np.isnan(test.statistic) else float(test.statistic)


def weight_sensitivity(values: Floats, default: Floats, step: float = 0.1) -> list[WeightPoint]:
    """Rankings of m entries over the whole weight simplex against the default weights.

    values: (m, k) components in [0, 1]; default: (k,) weights. Raises NotApplicable below three entries.
    """
    _enough(values)
    reference = values @ default
    return [
        WeightPoint(tuple(float(w) for w in weights), rank_tau(values @ weights, reference))
        for weights in simplex(values.shape[1], step)
    ]


def component_shares(values: Floats, weights: Floats, names: Sequence[str]) -> list[ComponentShare]:
    """Leave one component out: its share of the composite's variance over m entries, values (m, k).

    Raises NotApplicable below three entries, or where the composite is the same for all.
    """
    _enough(values)
    weighted = values * weights
    composite = weighted.sum(axis=1)
    variance = composite.var()
    if variance <= 1e-24 * max(1.0, float(composite @ composite)):
        raise NotApplicable(f"all {len(values)} entries have the same composite, so there is no variance to share")
    found = []
    for k, name in enumerate(names):
        rest = composite - weighted[:, k]
        covariance = float(((weighted[:, k] - weighted[:, k].mean()) * (composite - composite.mean())).mean())
        tau = rank_tau(rest, composite)
        found.append(ComponentShare(name, covariance / variance, 1 - rest.var() / variance, tau))
    return found


def kendall_w(scores: Floats) -> Floats:
    """Kendall's coefficient of concordance with tie correction of rankings (..., k, m) by k judges: (...).

    Equals the Friedman statistic over k (m - 1); NaN where every judge ties all m entries.
    """
    k, m = scores.shape[-2:]
    ranks = stats.rankdata(_settled(scores), axis=-1)
    spread = ranks.sum(axis=-2).var(axis=-1) * m
    ties = k * m * (m**2 - 1) - 12 * (ranks.var(axis=-1) * m).sum(axis=-1)  # sum of t^3 - t over tied runs
    room = k**2 * m * (m**2 - 1) - k * ties
    return np.divide(12 * spread, room, out=np.full(spread.shape, np.nan), where=room > 0)


def concordance(scores: Mapping[str, Floats], indices: Ints, confidence: float = 0.95) -> Concordance:
    """Do the masks rank the methods alike? scores: mask -> (n, m), finite, on the same windows and methods.

    indices: (resamples, n). Raises NotApplicable below two masks, three methods or two windows.
    """
    names = list(scores)
    n, m = scores[names[0]].shape if names else (0, 0)
    if len(names) < 2 or m < 3 or n < 2:
        raise NotApplicable(
            f"concordance needs at least 2 masks, 3 methods and 2 windows, and there are {len(names)}, {m} and {n}"
        )
    means = np.stack([scores[name].mean(axis=0) for name in names])
    w = float(kendall_w(means))
    if np.isnan(w):
        raise NotApplicable(f"all {m} methods score the same under every mask")
    resampled = kendall_w(np.stack([resampled_means(scores[name], indices) for name in names], axis=1))
    tail = 100 * (1 - confidence) / 2
    low, high = np.nanpercentile(resampled, (tail, 100 - tail))
    pairs = {(names[i], names[j]): rank_tau(means[i], means[j]) for i, j in combinations(range(len(names)), 2)}
    return Concordance(w, float(low), float(high), n, pairs)


def relative_panel(panel: Floats) -> Floats:
    """A panel of raw scores (n, methods, baselines, masks), each mask's column over its own mean, so 1 is average.

    Masks move f by different amounts; relative to its own mean every mask counts alike.
    """
    known = np.isfinite(panel)
    level = np.where(known, panel, 0.0).sum(axis=(0, 1, 2)) / np.maximum(known.sum(axis=(0, 1, 2)), 1)
    return np.divide(panel, level, out=np.full_like(panel, np.nan), where=level > 0)


def off_diagonal(panel: Floats) -> Floats:
    """Mean over the masks that are not the explainer's own baseline: (n, m, b, b) -> (n, m)."""
    return panel[..., ~np.eye(panel.shape[-1], dtype=bool)].mean(axis=-1)


def diagonal(panel: Floats) -> Floats:
    """Mean over the masks that are the explainer's own baseline: (n, m, b, b) -> (n, m)."""
    return np.einsum("nmbb->nm", panel) / panel.shape[-1]


def faithfulness_note(checks: Mapping[str, Any] | None, task: str, model: str) -> str | None:
    """What a faithfulness board of (task, model) has to say about masks, from the content of results/checks.json.

    None while the checks were not run, or where concordance is not defined.
    """
    rows = [] if checks is None else checks["masks"]
    found = next((row for row in rows if (row["task"], row["model"]) == (task, model) and row["w"] is not None), None)
    if found is None:
        return None
    interval = f"{found['w']:.2f} [{found['low']:.2f}, {found['high']:.2f}]"
    w = f"Kendall's W over {len(found['operators'])} masks is {interval}"
    return w if found["supported"] else f"{w}: {UNSUPPORTED}"


def _settled(scores: Floats) -> Floats:
    """Scores rounded so that rounding errors of sums never order two equal entries."""
    size = np.abs(scores).max(axis=-1, keepdims=True, initial=0.0)
    relative: Floats = np.divide(scores, size, out=np.zeros_like(scores), where=size > 0)
    return relative.round(ROUNDING)


def _enough(values: Floats) -> None:
    if len(values) < 3:
        raise NotApplicable(f"a ranking to compare needs at least 3 entries, and there are {len(values)}")
