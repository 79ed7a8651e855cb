"""Coverage of predictive quantiles and the expected calibration error (paper 000, eq. 6)."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from explainbench.analysis.intervals import block_indices, resampled_means
from explainbench.core.arrays import Floats
from explainbench.core.errors import NotApplicable


@dataclass(frozen=True, slots=True, eq=False)
class Coverage:
    """Empirical coverage of quantiles at `levels` (q,): `observed` (q,) with intervals `low`, `high` (q,).

    awareness: 1 - mean absolute difference between level and coverage; interval: of it; origins: n.
    """

    levels: Floats
    observed: Floats
    low: Floats
    high: Floats
    awareness: float
    interval: tuple[float, float]
    origins: int


def coverage(
    quantiles: Floats, target: Floats, levels: Floats, block: int, resamples: int, rng: np.random.Generator
) -> Coverage:
    """How often targets (n, h) lie at or below quantiles (n, h, q), with a moving-block bootstrap over origins.

    block: origins per block, in time order, at least as many as share target steps; fewer than two blocks of origins
    have no interval: NaN.
    """
    below = (target[..., None] <= quantiles).mean(axis=1)  # (n, q)
    observed = below.mean(axis=0)
    low = high = np.full(len(levels), np.nan)
    lower = upper = np.nan
    with suppress(NotApplicable):
        draws = resampled_means(below, block_indices(len(below), block, resamples, rng))
        low, high = np.percentile(draws, (2.5, 97.5), axis=0)
        lower, upper = np.percentile(1.0 - np.abs(draws - levels).mean(axis=1), (2.5, 97.5))
    awareness = float(1.0 - np.abs(observed - levels).mean())
    return Coverage(levels, observed, low, high, awareness, (float(lower), float(upper)), len(below))
