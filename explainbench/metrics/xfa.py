"""XFA, the Explainability Fidelity Assessor: explanations against the features that are known to have made the label.

Everything takes arrays: importance (n, d), one explanation per row; truth (n, d), what each feature contributed: zero
outside the ground truth, larger for a more important feature, equal where no order is known; named (n, d), which
features an explanation names. The published formula and the text of paper 002 differ, so there are variants.

    >>> import numpy as np
    >>> from explainbench.metrics import xfa
    >>> truth = np.array([[2.0, 1.0, 0.0, 0.0]])
    >>> float(xfa.scores(truth, truth, "xfa_text")["xfa"][0])
    100.0
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from numpy.typing import ArrayLike
from pydantic import Field

from explainbench.core.arrays import Bools, Floats
from explainbench.core.cell import Score
from explainbench.core.errors import BadInput, NotApplicable
from explainbench.core.evidence import Evidence, MetricCard
from explainbench.core.registry import METRICS
from explainbench.metrics._top_n import checked

TOP = 4  # K of the published code

Naming = Literal["share", "nonzero"]
VariantName = Literal["xfa_text", "xfa_code_v1", "xfa_v2"]


@dataclass(frozen=True, slots=True)
class Variant:
    """What the three parts of XFA are, how they are weighted, and how rows and datasets are brought together.

    conciseness: `precision`, the share of the named features that are in the ground truth, or `specificity`,
        1 - IF-FPR;
    sensitivity: `rank_order`, (1 + Spearman's rho) / 2 on the ground truth; `top`, the share of it among the K features
        of largest importance; `ranking`, the mean of AP, ROC AUC, NDCG and relevance mass, each 0 for chance and 1
        for perfect;
    parts: weights of completeness, conciseness and sensitivity; by_rule: mean over rules before datasets;
    complexity: datasets weigh by their `rank` of complexity, or by `one_minus_auc` of the model.
    """

    name: VariantName
    source: str
    conciseness: Literal["precision", "specificity"]
    sensitivity: Literal["rank_order", "top", "ranking"]
    parts: tuple[float, float, float] = (1 / 3, 1 / 3, 1 / 3)
    by_rule: bool = False
    complexity: Literal["rank", "one_minus_auc"] = "rank"


VARIANTS: dict[str, Variant] = {
    variant.name: variant
    for variant in (
        Variant("xfa_text", "paper 002, section 4, as its text says it", "precision", "rank_order"),
        Variant("xfa_code_v1", "paper 002, eq. 1, as its author's first code computes it", "specificity", "top"),
        Variant(
            "xfa_v2",
            "the author's second code; its two tiers weigh alike [ours]",
            "specificity",
            "ranking",
            parts=(0.25, 0.25, 0.5),
            by_rule=True,
            complexity="one_minus_auc",
        ),
    )
}

PARTS = {  # which part of which variant is a score of its own
    "completeness": ("xfa_text", "completeness"),
    "precision": ("xfa_text", "conciseness"),
    "rank_order": ("xfa_text", "sensitivity"),
    "specificity": ("xfa_code_v1", "conciseness"),
    "top_overlap": ("xfa_code_v1", "sensitivity"),
    "ranking": ("xfa_v2", "sensitivity"),
}


def variant(name: str) -> Variant:
    """The variant called `name`. Raises BadInput with the names there are."""
    if name not in VARIANTS:
        raise BadInput(f"{name!r} is no variant of XFA; there are {', '.join(VARIANTS)}.")
    return VARIANTS[name]


def names_of(importance: ArrayLike, naming: Naming = "share") -> Bools:
    """Which features a vector of importances names, (n, d): those above an equal share of it, or all that are not zero.

    Share: |a| / sum |a| > 1 / d. A vector of zeros names nothing.
    """
    size = np.abs(checked(importance, "explanations", (None, None)))
    if naming == "nonzero":
        return size > 0
    return size * size.shape[1] > size.sum(axis=1, keepdims=True) * (1 + 1e-9)


def scores(
    importance: ArrayLike,
    truth: ArrayLike,
    how: str = "xfa_text",
    *,
    named: Bools | None = None,
    naming: Naming = "share",
    top: int = TOP,
) -> dict[str, Floats]:
    """Completeness, conciseness, sensitivity in [0, 1] and `xfa` in [0, 100] of rows, (n,) each (paper 002, eq. 1).

    named: (n, d), where the method itself says which features it names; else `naming` decides. Sensitivity by rank
    order is NaN where the ground truth knows no order, and XFA is then the mean of the other two; it is 0 where the
    explanation orders nothing. top: K. Raises BadInput (wrong width, NaN, a row without ground truth).
    """
    rule = variant(how)
    e, g = _pair(importance, truth)
    inside = g > 0
    said = _said(e, named, naming)
    size = inside.sum(axis=1)
    hits = (said & inside).sum(axis=1)
    extra = (said & ~inside).sum(axis=1)
    completeness = hits / size
    if rule.conciseness == "precision":
        conciseness = hits / np.maximum(hits + extra, 1)
    else:
        conciseness = 1 - extra / np.maximum(e.shape[1] - size, 1)
    if rule.sensitivity == "rank_order":
        sensitivity = _rank_order(np.where(said, e, 0.0), g, inside)
    elif rule.sensitivity == "top":
        sensitivity = (_membership(e, top) * inside).sum(axis=1) / size
    else:
        sensitivity = ranking_quality(e, inside)
    parts = np.stack([completeness, conciseness, sensitivity], axis=1)
    weights = np.where(np.isnan(parts), 0.0, rule.parts)
    total = 100 * (np.nan_to_num(parts) * weights).sum(axis=1) / weights.sum(axis=1)
    return {"completeness": completeness, "conciseness": conciseness, "sensitivity": sensitivity, "xfa": total}


def references(truth: ArrayLike, how: str = "xfa_text", top: int = TOP) -> dict[str, Floats]:
    """XFA (n,) of a perfect explanation, of an empty one, and of one that names every feature alike: read scores beside
    them, because the published formula gives 33.3 for saying nothing."""
    g = checked(truth, "ground truth", (None, None))
    everything, nothing = np.ones_like(g), np.zeros_like(g)
    return {
        "perfect": scores(g, g, how, named=g > 0, top=top)["xfa"],
        "empty": scores(nothing, g, how, named=nothing > 0, top=top)["xfa"],
        "everything": scores(everything, g, how, named=everything > 0, top=top)["xfa"],
    }


def weighted(values: Mapping[str, float], weights: Mapping[str, float]) -> float:
    """One score over datasets: sum C_d XFA_d / sum C_d (paper 002, eq. 1). Raises BadInput for impossible weights."""
    known = [weights.get(name, np.nan) for name in values]
    if not values or not np.isfinite(known).all():
        missing = [name for name in values if not np.isfinite(weights.get(name, np.nan))]
        raise BadInput(f"every dataset needs a complexity weight; missing: {', '.join(missing) or 'all of them'}.")
    if min(known) < 0 or sum(known) == 0:
        raise BadInput("complexity weights must be zero or more, and one of them above zero.")
    return float(np.average(list(values.values()), weights=known))


def ranking_quality(importance: Floats, inside: Bools) -> Floats:
    """Mean of average precision, ROC AUC, NDCG and relevance mass, each 0 at chance or below and 1 when perfect: (n,).

    Equal importances share their places, so nothing depends on the order of columns.
    """
    e = np.abs(importance)
    n, d = e.shape
    size = inside.sum(axis=1)
    order = np.argsort(-e, axis=1, kind="stable")
    value, hit = np.take_along_axis(e, order, axis=1), np.take_along_axis(inside, order, axis=1)
    place = np.arange(d)
    new = np.concatenate([np.ones((n, 1), dtype=bool), value[:, 1:] < value[:, :-1]], axis=1)
    first = np.maximum.accumulate(np.where(new, place, 0), axis=1)  # of the block of equal values
    ends = np.concatenate([new[:, 1:], np.ones((n, 1), dtype=bool)], axis=1)
    last = np.minimum.accumulate(np.where(ends, place, d - 1)[:, ::-1], axis=1)[:, ::-1]
    found = np.take_along_axis(hit.cumsum(axis=1), last, axis=1)
    precision = (hit * found / (last + 1)).sum(axis=1) / size
    middle = (first + last) / 2 + 1
    auc = 1 - ((hit * middle).sum(axis=1) - size * (size + 1) / 2) / (size * np.maximum(d - size, 1))
    discount = 1 / np.log2(place + 2)
    upto = np.concatenate([[0.0], discount.cumsum()])
    shared = (upto[last + 1] - upto[first]) / (last - first + 1)
    ideal = np.where(place < size[:, None], discount, 0.0).sum(axis=1)  # its hits first
    ndcg = (hit * shared).sum(axis=1) / ideal
    mass = np.divide((e * inside).sum(axis=1), e.sum(axis=1), out=np.zeros(n), where=e.any(axis=1))
    share = size / d  # chance is what equal importances get
    measures = ((precision, share), (auc, 0.5), (ndcg, share * discount.sum() / ideal), (mass, share))
    return np.mean([_above_chance(measured, chance) for measured, chance in measures], axis=0)


def _above_chance(measured: Floats, chance: Floats | float) -> Floats:
    room = 1 - np.broadcast_to(chance, measured.shape)
    scaled = np.divide(measured - chance, room, out=np.ones_like(measured), where=room > 0)
    return np.clip(scaled, 0.0, 1.0)


def _pair(importance: ArrayLike, truth: ArrayLike) -> tuple[Floats, Floats]:
    g = checked(truth, "ground truth", (None, None))
    e = np.abs(checked(importance, "explanations", g.shape))
    empty = np.flatnonzero(~(g > 0).any(axis=1))
    if len(empty):
        raise BadInput(
            f"the ground truth of row {empty[0]} is empty, so nothing could be found in it; leave out the "
            f"{len(empty)} rows without a feature above zero."
        )
    return e, g


def _said(e: Floats, named: Bools | None, naming: Naming) -> Bools:
    if named is None:
        return names_of(e, naming)
    if named.shape != e.shape:
        raise BadInput(f"the named features must have the shape of the explanations, {e.shape}, not {named.shape}.")
    return named


def _rank_order(e: Floats, g: Floats, inside: Bools) -> Floats:
    """(1 + Spearman's rho) / 2 on the ground truth; NaN where it knows no order, 0 where the explanation has none."""

    def centred(values: Floats) -> Floats:
        """Ranks within the ground truth, ties at their mean, minus the mean rank: half of (smaller - larger)."""
        difference = np.sign(values[:, :, None] - values[:, None, :])
        return np.where(inside, (difference * inside[:, None, :]).sum(axis=2) / 2, 0.0)

    mine, true = centred(e), centred(g)
    own, known = (mine**2).sum(axis=1), (true**2).sum(axis=1)
    norm = np.sqrt(own * known)
    rho = np.divide((mine * true).sum(axis=1), norm, out=np.full(len(e), -1.0), where=norm > 0)
    return np.where(known > 0, (1 + rho) / 2, np.nan)


def _membership(e: Floats, top: int) -> Floats:
    """1 for the `top` largest importances, an equal share for those tied at the edge, 0 for zeros: (n, d)."""
    if not 1 <= top <= e.shape[1]:
        raise BadInput(f"top = {top} is no number of features from 1 to {e.shape[1]}.")
    edge = np.partition(e, -top, axis=1)[:, -top, None]
    above, tied = e > edge, e == edge
    share = (top - above.sum(axis=1, keepdims=True)) / tied.sum(axis=1, keepdims=True)
    return np.where(e > 0, above + tied * share, 0.0)


@METRICS.register(MetricCard(title="Recovery of the true drivers (XFA)", equation="paper 002, eq. 1", unit="percent"))
@dataclass(frozen=True, slots=True)
class Xfa:
    """Completeness, conciseness and sensitivity of an explanation against the drivers of the target, where known.

    The ground truth of a window is the groups above an equal share of the target. variant: of XFA; naming: which groups
    an explanation names; top: K of `xfa_code_v1`.
    """

    variant: VariantName = "xfa_text"
    naming: Naming = "share"
    top: Annotated[int, Field(ge=1)] = TOP

    def score(self, evidence: Evidence) -> Mapping[str, Score]:
        """Per window (n,): `xfa` in [0, 100] and its three parts. Raises NotApplicable where no drivers are known."""
        if evidence.windows.truth is None:
            raise NotApplicable("the dataset does not know which inputs generated its target")
        truth = evidence.masker.groups.total(evidence.windows.truth)
        found = scores(
            evidence.importance, drivers(truth), self.variant, naming=self.naming, top=min(self.top, truth.shape[1])
        )
        total = found.pop("xfa")
        return {"xfa": Score(total, total / 100)} | {f"xfa_{part}": Score(v, v) for part, v in found.items()}


def drivers(shares: Floats) -> Floats:
    """The ground truth of windows: what each group contributed (n, g), zero for groups below an equal share of it."""
    return np.where(names_of(shares), np.abs(shares), 0.0)
