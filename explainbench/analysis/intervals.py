"""Percentile bootstrap over windows with shared resample indices, effective sample size, and detectable effects."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, sqrt

import numpy as np
from scipy.stats import norm

from explainbench.core.arrays import Floats, Ints, Stamps
from explainbench.core.errors import NotApplicable

BLOCK_BYTES = 32 * 2**20  # the largest count matrix held at once
WILCOXON_EFFICIENCY = 3 / np.pi  # asymptotic efficiency of the signed-rank test against the t test: 0.955


@dataclass(frozen=True, slots=True, eq=False)
class Intervals:
    """Means of m entries over the same n windows, with percentile intervals.

    mean, low, high: (m,); n: windows.
    """

    mean: Floats
    low: Floats
    high: Floats
    n: int


def resample_indices(n: int, resamples: int, rng: np.random.Generator) -> Ints:
    """Bootstrap indices (resamples, n): n draws with replacement, to be shared by every entry. Raises NotApplicable."""
    _at_least_two(n)
    return rng.integers(0, n, size=(resamples, n))


def block_indices(n: int, block: int, resamples: int, rng: np.random.Generator) -> Ints:
    """Moving-block bootstrap indices (resamples, n), for windows that overlap (Kuensch 1989).

    block: windows per block, at least as many as overlap; block 1 is the plain bootstrap. Windows must be in time
    order. Raises NotApplicable when a block holds more than half of the windows.
    """
    _at_least_two(n)
    if not 1 <= block <= n // 2:
        raise NotApplicable(f"a moving block of {block} windows needs at least {2 * max(block, 1)} windows, not {n}")
    starts = rng.integers(0, n - block + 1, size=(resamples, ceil(n / block)))
    return (starts[:, :, None] + np.arange(block)).reshape(resamples, -1)[:, :n]


def resample_counts(indices: Ints, n: int) -> Floats:
    """How often each of n windows occurs in each resample (b, n)."""
    offsets = np.arange(len(indices))[:, None] * n
    return np.bincount((indices + offsets).ravel(), minlength=len(indices) * n).reshape(-1, n).astype(np.float64)


def resampled_means(values: Floats, indices: Ints) -> Floats:
    """Bootstrap means (b, m) of values (n, m): one product per block of resamples, so memory stays bounded."""
    n = len(values)
    rows = max(1, BLOCK_BYTES // (8 * n))
    means = np.empty((len(indices), values.shape[1]))
    for first in range(0, len(indices), rows):
        counts = resample_counts(indices[first : first + rows], n)
        means[first : first + rows] = counts @ values / n
    return means


def mean_intervals(values: Floats, indices: Ints, confidence: float = 0.95) -> Intervals:
    """Percentile intervals of the mean of each column (paper 000, section 8.7 and Algorithm 4).

    values: (n, m), finite; indices: (b, n) shared by all columns. A constant column has a zero-width interval.
    Raises NotApplicable for fewer than two windows, ValueError for values that are not finite.
    """
    n, m = values.shape
    _at_least_two(n)
    if not np.isfinite(values).all():
        raise ValueError(f"{int((~np.isfinite(values)).sum())} of {values.size} scores are not finite")
    centre = values[0]  # a constant column becomes exact zeros, whatever the rounding of the product
    tail = 100 * (1 - confidence) / 2
    low, high = np.empty(m), np.empty(m)
    if m:
        low, high = np.percentile(resampled_means(values - centre, indices), (tail, 100 - tail), axis=0) + centre
    return Intervals((values - centre).mean(axis=0) + centre, low, high, n)


def effective_n(values: Floats) -> float:
    """Number of independent windows that tell as much about the mean as these n (n,), in time order.

    n / (1 + 2 sum_k (1 - k/n) rho_k), the sum stopped at the first pair of autocorrelations that is not positive
    (Geyer's initial positive sequence, 1992); between 1 and n, and n for a constant.
    """
    n = len(values)
    centred = values - values.mean()
    power = float(centred @ centred)
    if n < 4 or power <= 1e-24 * max(1.0, float(values @ values)):
        return float(n)
    spectrum = np.abs(np.fft.rfft(centred, 2 * n)) ** 2
    rho = np.fft.irfft(spectrum, 2 * n)[:n] / power
    total = 0.0
    for k in range(1, n - 1, 2):
        pair = rho[k] + rho[k + 1]
        if pair <= 0:
            break
        total += (1 - k / n) * rho[k] + (1 - (k + 1) / n) * rho[k + 1]
    return float(np.clip(n / (1 + 2 * total), 1.0, n))


def overlap_effective_n(n: int, stride: int, length: int) -> float:
    """Effective n of n windows of `length` steps cut every `stride` steps: correlation 1 - k stride/length at lag k."""
    lags = np.arange(1, n)
    shared = np.clip(1 - lags * stride / length, 0, None)
    return float(n / (1 + 2 * np.sum((1 - lags / n) * shared)))


def overlap_block(origins: Stamps, span: np.timedelta64) -> int:
    """Windows per block that a moving-block bootstrap needs: the most windows that share a step with one of them.

    origins: (n,) of windows in any order; span: of one window, context and horizon. 1 where windows are disjoint.
    """
    ordered = np.sort(origins)
    return int((np.searchsorted(ordered, ordered + span) - np.arange(len(ordered))).max(initial=1))


def windows_needed(effect: float, comparisons: int = 1, alpha: float = 0.05, power: float = 0.8) -> int:
    """Windows at which a paired Wilcoxon test sees a standardised mean difference `effect` with this power.

    Normal approximation; `comparisons` under Holm, worst case (the first step, alpha / comparisons).
    """
    return ceil((_needed_distance(comparisons, alpha, power) / effect) ** 2 / WILCOXON_EFFICIENCY)


def minimal_detectable_effect(n: float, comparisons: int = 1, alpha: float = 0.05, power: float = 0.8) -> float:
    """Smallest standardised mean difference of paired scores that n (effective) windows show with this power."""
    return _needed_distance(comparisons, alpha, power) / sqrt(n * WILCOXON_EFFICIENCY)


def _needed_distance(comparisons: int, alpha: float, power: float) -> float:
    return float(norm.isf(alpha / (2 * comparisons)) + norm.isf(1 - power))


def _at_least_two(n: int) -> None:
    if n < 2:
        raise NotApplicable(f"an interval needs at least 2 windows, and there {'is' if n == 1 else 'are'} {n}")
