"""What the AXE suite's metrics share: presets as data, the order of features, the area over n (paper 004, 3.1)."""

from __future__ import annotations

from dataclasses import dataclass
from math import pi
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from explainbench.core.arrays import Floats, Ints
from explainbench.core.errors import BadInput

TIED = 1e-9  # distances, and importances, that agree to nine digits are tied: what differs below is rounding


@dataclass(frozen=True, slots=True)
class Preset:
    """Every choice that AXE, the agreement metrics and the prediction gaps leave open, under one name.

    include_self: may a row be its own neighbour (Algorithm 1 trains on it)? `no` leaves it out by index,
        `drop_first_hit` drops the nearest hit, whoever it is (wrong among duplicates);
    aggregate: `vote` scores the neighbours' majority label, `mean` the share of neighbours with the row's label;
    vote_tie: an exactly split vote counts `half` (1 / number of winners), or goes to the `lower_label`;
    ties: neighbours at the same distance as the k-th all vote (`shared`), or the row order decides (`lower_index`),
        or whatever order scikit-learn's index returns (`sklearn`);
    tied_features: features of equal |e| are joined by a straight line over n, as ROC curves join tied scores
        (`interpolate`), or enter by column index (`lower_index`, `higher_index`);
    distance: of sums of squares: `float64`, or `float32_8_lanes`, the order of additions of FAISS on AVX2;
    n_range: the n under the curve, `all` or `all_but_last`; auc_axis: `normalised` (perfect = 1) or `share`, x = n / N;
    k: the numbers of neighbours; flip_ground_truth: e* changes sign for class 0;
    rank_ties: ranks of equal |e| in RC; pair_ties: in PRA, two equal |e| are an order of their own (`own_order`), or
        "not less than", so that the column order decides (`strict`);
    gap_top: the prediction gaps perturb the n largest |e| (`absolute`) or the n largest e (`signed`);
    mask: PGI perturbs the top n (`true_is_perturbed`) or, by the bug of section 4.2, all others (`true_is_kept`);
    std: of the normal perturbation, in units of the inputs; flip: probability that a discrete 0/1 input flips;
    draws: perturbed copies of a row.
    """

    name: str
    source: str
    include_self: Literal["no", "yes", "drop_first_hit"] = "no"
    aggregate: Literal["vote", "mean"] = "vote"
    vote_tie: Literal["half", "lower_label"] = "half"
    ties: Literal["shared", "lower_index", "sklearn"] = "shared"
    tied_features: Literal["interpolate", "lower_index", "higher_index"] = "interpolate"
    distance: Literal["float64", "float32_8_lanes"] = "float64"
    n_range: Literal["all", "all_but_last"] = "all"
    auc_axis: Literal["normalised", "share"] = "normalised"
    k: tuple[int, ...] = (1, 3, 5, 9)
    rank_ties: Literal["average", "dense"] = "average"
    pair_ties: Literal["own_order", "strict"] = "own_order"
    flip_ground_truth: bool = False
    gap_top: Literal["absolute", "signed"] = "absolute"
    mask: Literal["true_is_perturbed", "true_is_kept"] = "true_is_perturbed"
    std: float = 0.1
    flip: float = 0.1 * (2.0 / pi) ** 0.5  # the mean size of a continuous step
    draws: int = 100


PRESETS: dict[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset(name="explainbench", source="ours: nothing depends on the order of rows or columns"),
        Preset(
            name="paper",
            source="paper 004, Algorithm 1, section 3.1 and figure 1",
            include_self="yes",
            aggregate="mean",
            tied_features="lower_index",
            k=(5,),
        ),
        Preset(
            name="openxai-2024",
            source="OpenXAI (2024), where it defines a metric; AXE as ours",
            tied_features="higher_index",
            rank_ties="dense",
            pair_ties="strict",
            flip_ground_truth=True,
        ),
        Preset(
            name="axe-sec4.1",
            source="the code behind Table 2 of paper 004: one k-NN classifier per feature, scored on its own rows",
            include_self="yes",
            vote_tie="lower_label",
            ties="sklearn",
            tied_features="lower_index",
            k=(3,),
            std=0.4,
        ),
        Preset(
            name="axe-sec4.2-legacy",
            source="the code behind figures 6 and 7 of paper 004, with its faults",
            include_self="drop_first_hit",
            vote_tie="lower_label",
            ties="lower_index",
            tied_features="higher_index",
            distance="float32_8_lanes",
            n_range="all_but_last",
            auc_axis="share",
            k=(1, 3, 5, 9, 15, 31, 65),
            rank_ties="dense",
            pair_ties="strict",
            gap_top="signed",
            mask="true_is_kept",
            std=0.5,
            flip=0.3,
        ),
    )
}
DEFAULT = PRESETS["explainbench"]


def preset(name: str) -> Preset:
    """The preset called `name`. Raises BadInput with the names there are."""
    if name not in PRESETS:
        raise BadInput(f"{name!r} is not a preset of the AXE suite; there are {', '.join(PRESETS)}.")
    return PRESETS[name]


def checked(array: ArrayLike, what: str, shape: tuple[int | None, ...]) -> Floats:
    """`array` as finite float64 of `shape` (None: any length). Raises BadInput saying what is wrong and where."""
    values = np.ascontiguousarray(array, dtype=np.float64)
    if values.ndim != len(shape) or any(want is not None and want != got for want, got in zip(shape, values.shape)):
        wanted = " x ".join("any" if length is None else str(length) for length in shape)
        got = " x ".join(map(str, values.shape)) or "a single number"
        raise BadInput(f"{what} must have shape {wanted}, but it is {got}.")
    if values.size == 0:
        raise BadInput(f"{what} is empty.")
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        raise BadInput(
            f"{what} holds {len(bad)} values that are NaN or infinite, the first at index {tuple(map(int, bad[0]))}; "
            "leave those rows out or mend their source."
        )
    return values


def top_order(importance: Floats, rule: Preset) -> Ints:
    """Features by decreasing importance (q, d), which is |e| or e; equal ones by column index, as the preset says."""
    if rule.tied_features == "higher_index":
        return np.argsort(importance, axis=1, kind="stable")[:, ::-1]
    return np.argsort(-importance, axis=1, kind="stable")


def inside_ties(importance: Floats, order: Ints, rule: Preset) -> NDArray[np.bool_]:
    """True at n (q, d) where the n-th and the next feature are equally important, so that the top n is not defined.

    False everywhere under a preset that lets the column index decide.
    """
    inside = np.zeros(order.shape, dtype=bool)
    if rule.tied_features == "interpolate":
        ordered = np.take_along_axis(importance, order, axis=1)
        slack = TIED * np.abs(importance).max(axis=1, keepdims=True)
        inside[:, :-1] = ordered[:, :-1] - ordered[:, 1:] <= slack
    return inside


def interpolated(curve: Floats, inside: NDArray[np.bool_], start: Floats) -> Floats:
    """Values over n with straight lines where the top n is not defined: (q, d, k), (q, d), start at n = 0 (q,)."""
    if not inside.any():
        return curve
    q, d, k = curve.shape
    full = np.concatenate([np.broadcast_to(start[:, None, None], (q, 1, k)), curve], axis=1)
    n = np.arange(d + 1)
    undefined = np.concatenate([np.zeros((q, 1), dtype=bool), inside], axis=1)
    left = np.maximum.accumulate(np.where(undefined, 0, n), axis=1)
    right = np.minimum.accumulate(np.where(undefined, d, n)[:, ::-1], axis=1)[:, ::-1]
    weight = ((n - left) / np.maximum(right - left, 1))[:, :, None]
    before = np.take_along_axis(full, left[:, :, None], axis=1)
    after = np.take_along_axis(full, right[:, :, None], axis=1)
    return np.where(undefined[:, :, None], before * (1.0 - weight) + after * weight, full)[:, 1:]


def area(curve: Floats, rule: Preset, features: int) -> Floats:
    """The area under a curve over n = 1.., (..., n) -> (...): trapezoids on the preset's axis.

    `normalised` spans the n given with x from 0 to 1; `share` uses x = n / features over the preset's n_range.
    A curve of a single point is that point.
    """
    if rule.n_range == "all_but_last" and curve.shape[-1] == features and features > 1:
        curve = curve[..., :-1]
    steps = curve.shape[-1] - 1
    if steps == 0:
        return curve[..., 0]
    width = 1.0 / steps if rule.auc_axis == "normalised" else 1.0 / features
    return width * (curve.sum(axis=-1) - 0.5 * (curve[..., 0] + curve[..., -1]))
