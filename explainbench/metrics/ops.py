"""OPS, the Optimum Explainability Score, and Overall: how short explanations are and how many rows have one.

The equations of paper 002 are lost; what is here is reconstructed from what it says of them (two factors, an ideal of 0
features and full coverage, convex, a weighted average that divides by 100), and so are its names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import hypot
from typing import Literal

import numpy as np

from explainbench.core.arrays import Bools, Floats, Ints
from explainbench.core.cell import Score
from explainbench.core.errors import BadInput
from explainbench.core.evidence import Evidence, MetricCard
from explainbench.core.registry import METRICS
from explainbench.metrics.xfa import Naming, names_of

VERSION = "reconstructed-v1"
Axis = Literal["count", "percent"]


@dataclass(frozen=True, slots=True)
class Optimum:
    """OPS of a set of explanations. features: NF, named per explained row; coverage: COV, percent of rows explained;
    ops: distance to the ideal (0, 100), lower is better; normalised: the same in [0, 100], higher is better.
    """

    features: float
    coverage: float
    ops: float
    normalised: float


def optimum(named: Bools, axis: Axis = "count") -> Optimum:
    """OPS = sqrt(NF^2 + (100 - COV)^2) of explanations that name features (n, d) (paper 002, eq. 2, reconstructed-v1).

    NF is the mean number of features of the rows that have an explanation, 0 where none has; with axis `percent` it is
    a percentage of d, so that both axes have the same length. Raises BadInput for an empty set.
    """
    if named.ndim != 2 or not named.size:
        raise BadInput(f"OPS needs named features (n, d), but they are {named.shape}.")
    return optimum_of(named.sum(axis=1), named.shape[1], axis)


def optimum_of(count: Ints | Floats, columns: int, axis: Axis = "count") -> Optimum:
    """OPS from the number of features (n,) that each explanation names, out of `columns`."""
    coverage = 100.0 * float((count > 0).mean())
    features = float(count[count > 0].mean()) if coverage else 0.0
    longest = 100.0 if axis == "percent" else float(columns)
    found = hypot(features * longest / columns, 100.0 - coverage)
    return Optimum(features, coverage, found, 100.0 * (1.0 - found / hypot(longest, 100.0)))


def overall(xfa: float, normalised_ops: float, weights: tuple[float, float] = (1.0, 1.0)) -> float:
    """(w1 XFA + w2 OPS normalised) / (w1 + w2), in [0, 100] (paper 002, eq. 3, reconstructed-v1).

    Raises BadInput for weights that are negative, not finite, or both zero.
    """
    if not np.isfinite(weights).all() or min(weights) < 0 or sum(weights) == 0:
        raise BadInput(f"the weights of XFA and OPS are {weights}; give two numbers from zero on, not both zero.")
    return (weights[0] * xfa + weights[1] * normalised_ops) / sum(weights)


@METRICS.register(
    MetricCard(
        title="Optimum Explainability Score",
        equation=f"paper 002, eq. 2, {VERSION}",
        higher_is_better=False,
        unit="features and percent",
    )
)
@dataclass(frozen=True, slots=True)
class Ops:
    """How far a set of explanations is from naming few groups for every window. axis: of the number of groups."""

    axis: Axis = "count"
    naming: Naming = "share"

    def score(self, evidence: Evidence) -> Mapping[str, Score]:
        """For the set (1,): `ops`, its value turned so that higher is better, `ops_features` and `ops_coverage`."""
        found = optimum(names_of(evidence.importance, self.naming), self.axis)
        return {
            "ops": Score(np.array([found.ops]), np.array([found.normalised / 100])),
            "ops_features": Score(np.array([found.features])),
            "ops_coverage": Score(np.array([found.coverage]), np.array([found.coverage / 100])),
        }
