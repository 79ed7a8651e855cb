"""The nine EAMEX metrics (paper 003) under their two presets: titles, equations, ranges and, explicitly, directions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from explainbench.core.arrays import Floats
from explainbench.core.errors import BadInput

Preset = Literal["paper", "holisticai"]
Task = Literal["classification", "regression"]


@dataclass(frozen=True, slots=True)
class Definition:
    """What a metric is under one preset.

    higher_is_better: the direction, towards a model that is easier to explain; low, high: the range of its values;
    departs: how the preset's number differs from the paper's equation, empty where it does not.
    """

    title: str
    equation: str
    higher_is_better: bool
    low: float
    high: float
    departs: str = ""

    def oriented(self, value: float) -> float:
        """`value` so that higher is better: itself, or its mirror image in the metric's range."""
        return value if self.higher_is_better else self.low + self.high - value

    def scaled(self, value: float) -> float:
        """`value` on [0, 1], turned so that higher is better; below 0 it counts as 0.

        That is, a surrogate better than its model degrades nothing, and one that errs in sign is not faithful at all.
        """
        share = min(max(value, 0.0), self.high) / self.high
        return share if self.higher_is_better else 1.0 - share


_PAPER = {
    "spread_divergence": Definition("Spread divergence", "paper 003, eq. 1", True, 0.0, 1.0),
    "alpha_importance": Definition("Alpha importance", "paper 003, eq. 2", False, 0.0, 1.0),
    "fluctuation_ratio": Definition("Fluctuation ratio", "paper 003, def. 3.3", False, 0.0, 1.0),
    "rank_alignment": Definition("Rank alignment", "paper 003, eq. 3", True, 0.0, 1.0),
    "rank_consistency": Definition("Rank consistency", "paper 003, eqs. 4-6", True, 0.0, 1.0),
    "importance_stability": Definition("Importance stability", "paper 003, eqs. 7-8", True, 0.0, 1.0),
    "performance_degradation": Definition("Performance degradation", "paper 003, eqs. 9-10", False, -2.0, 2.0),
    "surrogate_fidelity": Definition("Surrogate fidelity", "paper 003, eqs. 11-12", True, -1.0, 1.0),
    "surrogate_feature_stability": Definition("Surrogate feature stability", "paper 003, eq. 13", True, 0.0, 1.0),
}
_HOLISTICAI = _PAPER | {
    "spread_divergence": replace(
        _PAPER["spread_divergence"],
        departs="the Jensen-Shannon distance, the square root of eq. 1; 1 for a single feature",
    ),
    "alpha_importance": replace(_PAPER["alpha_importance"], departs="alpha is always 0.8, whatever is asked"),
    "fluctuation_ratio": replace(
        _PAPER["fluctuation_ratio"],
        departs="the mean over individual curves, not the fluctuation of their average; over 100, not n - 2; "
        "signs of rounding errors count",
    ),
    "rank_consistency": replace(
        _PAPER["rank_consistency"],
        higher_is_better=False,
        departs="the deviation of eq. 5 itself, not one minus it, with 1e-8 added to the range",
    ),
    "importance_stability": replace(
        _PAPER["importance_stability"],
        higher_is_better=False,
        departs="V / Vmax itself, not one minus it; V over M - 1; features weighted by their mean importance",
    ),
    "surrogate_fidelity": replace(_PAPER["surrogate_fidelity"], departs="1e-10 added to the denominator of eq. 12"),
    "surrogate_feature_stability": replace(
        _PAPER["surrogate_feature_stability"],
        departs="the tree is the best of a random forest of 100, fitted on the training rows and compared with trees "
        "fitted on resamples of the test rows, stratified by prediction (for a regression without equal predictions "
        "that is every row once); depends on the order of the columns",
    ),
}
DEFINITIONS: Mapping[Preset, Mapping[str, Definition]] = MappingProxyType(
    {"paper": MappingProxyType(_PAPER), "holisticai": MappingProxyType(_HOLISTICAI)}
)


def definition(metric: str, preset: Preset = "paper") -> Definition:
    """What `metric` is under `preset`. Raises BadInput with the names there are."""
    known(preset, get_args(Preset), "preset")
    known(metric, tuple(DEFINITIONS[preset]), "metric")
    return DEFINITIONS[preset][metric]


def known(value: str, choices: tuple[str, ...], what: str) -> None:
    """Raise BadInput unless `value` is one of `choices`."""
    if value not in choices:
        raise BadInput(f"{value!r} is not a {what} of EAMEX; use {', '.join(choices)}.")


def numbers(values: ArrayLike, what: str, dimensions: int) -> Floats:
    """`values` as a finite float array. Raises BadInput saying which argument is wrong, where, and what to do."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise BadInput(f"{what} must hold numbers only ({error}).") from error
    if array.ndim != dimensions:
        wanted = "a vector" if dimensions == 1 else "a matrix of rows x features"
        raise BadInput(f"{what} must be {wanted}, not an array of shape {array.shape}.")
    if not array.size:
        raise BadInput(f"{what} is empty.")
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        raise BadInput(f"{what}{_at(bad[0])} is {array[tuple(bad[0])]}; {len(bad)} values are not finite.")
    return array


def shares(importance: ArrayLike, what: str = "importance", dimensions: int = 1) -> Floats:
    """Importances as a probability: divided by their sum, over all features (d,) or row by row (n, d).

    Raises BadInput for negative values (naming the first) and for a zero sum (naming the row).
    """
    array = numbers(importance, what, dimensions)
    bad = np.argwhere(array < 0)
    if len(bad):
        raise BadInput(
            f"{what}{_at(bad[0])} is {array[tuple(bad[0])]:g}, and {len(bad)} values are negative, but a probability "
            "is needed; pass magnitudes (absolute values) of a signed explanation."
        )
    total = ordered_sum(array)[..., None]
    empty = np.flatnonzero(total == 0)
    if len(empty):
        where = (
            "all features"
            if dimensions == 1
            else f"row {empty[0]}" + (f" and {len(empty) - 1} others" if len(empty) > 1 else "")
        )
        raise BadInput(f"{what} sums to zero over {where}, so there are no shares; leave such rows out.")
    return array / total


def ordered_sum(array: Floats) -> Floats:
    """Sums over the last axis that do not depend on the order of the features, to the last bit."""
    return np.sort(array, axis=-1).sum(axis=-1)


def _at(index: np.ndarray) -> str:
    return "[" + ", ".join(str(int(i)) for i in index) + "]"
