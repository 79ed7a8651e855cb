"""The synthetic corpus on which stand-ins of foundation models are pre-trained: no series of any dataset is in it."""

from __future__ import annotations

import numpy as np
from scipy.linalg import cholesky

from explainbench.core.arrays import Floats

DAY = 96  # steps; generic cycles of a quarter-hourly series, no knowledge of any particular one
PERIODS = (24, 48, 96, 96, 96, 192)
KERNELS = 24  # random kernels of the Gaussian-process part; each gives many series


def corpus(rng: np.random.Generator, count: int, length: int) -> Floats:
    """`count` series of `length` steps, each with mean 0 and deviation 1: (count, length).

    A third are Gaussian processes with kernels composed at random (KernelSynth, Ansari et al. 2024, section 4.2), the
    rest harmonics of common cycles with trends, level shifts between days, autocorrelated noise and spikes. Then a
    third are replaced by convex mixtures of up to three (TSMixup, same paper, section 4.1).
    """
    gaussian = gaussian_processes(rng, count // 3, length)
    series = np.concatenate([gaussian, harmonics(rng, count - len(gaussian), length)])
    series = standardised(rng.permutation(series))
    mixed = count // 3
    parts = series[rng.integers(0, count, (3, mixed))]
    weights = rng.dirichlet([1.5, 1.5, 1.5], mixed).T[:, :, None]
    weights[2] *= rng.random((mixed, 1)) < 0.5
    series[:mixed] = (weights * parts).sum(0)
    return rng.permutation(standardised(series))


def gaussian_processes(rng: np.random.Generator, count: int, length: int) -> Floats:
    """Samples of Gaussian processes whose kernels are sums and products of up to four base kernels: (count, length)."""
    time = np.arange(length, dtype=np.float64)
    distance = np.abs(time[:, None] - time)
    parts = []
    for share in np.array_split(np.arange(count), min(KERNELS, max(1, count))):
        kernel = _base_kernel(rng, distance, time)
        for _ in range(rng.integers(0, 4)):
            other = _base_kernel(rng, distance, time)
            kernel = kernel + other if rng.random() < 0.6 else kernel * other
        root = cholesky(kernel + 1e-4 * np.trace(kernel) / length * np.eye(length), lower=True)
        parts.append(rng.normal(size=(len(share), length)) @ root.T)
    return np.concatenate(parts)


def _base_kernel(rng: np.random.Generator, distance: Floats, time: Floats) -> Floats:
    kind = rng.integers(0, 5)
    if kind == 0:  # periodic
        period = rng.choice(PERIODS) if rng.random() < 0.7 else rng.uniform(8, 200)
        return np.exp(-2 * (np.sin(np.pi * distance / period) / rng.uniform(0.4, 1.5)) ** 2)
    if kind == 1:  # smooth
        return np.exp(-0.5 * (distance / rng.uniform(6, 150)) ** 2)
    if kind == 2:  # rough
        return np.exp(-distance / rng.uniform(4, 200))
    if kind == 3:  # linear
        centred = (time - rng.uniform(0, len(time))) / len(time)
        return 0.3 + np.outer(centred, centred)
    return 0.02 * np.eye(len(time)) + 0.2  # noise about a level


def harmonics(rng: np.random.Generator, count: int, length: int) -> Floats:
    """Cycles with up to six harmonics, day-to-day amplitude and level, trend, AR(1) noise, skew and spikes."""
    time = np.arange(length)[None, :]

    def each(low: float, high: float) -> Floats:
        return rng.uniform(low, high, (count, 1))

    def sometimes(chance: float) -> Floats:
        return (rng.random((count, 1)) < chance).astype(np.float64)

    period = np.where(rng.random((count, 1)) < 0.8, rng.choice(PERIODS, (count, 1)), each(10, 220))
    phase = each(0, 1)
    cycle = np.zeros((count, length))
    for order in range(1, 7):
        size = rng.normal(size=(count, 1)) * order ** -each(0.5, 2.0)
        cycle += size * np.sin(2 * np.pi * (order * (time / period + phase) + each(0, 1)))
    second = np.sin(2 * np.pi * (time / rng.choice(PERIODS, (count, 1)) + each(0, 1)))
    cycle = standardised(cycle + 0.5 * sometimes(0.3) * second)
    day = ((time + rng.integers(0, DAY, (count, 1))) // DAY).astype(int)
    daily = rng.normal(size=(count, int(day.max()) + 1))
    amplitude = 1 + each(0, 0.4) * np.take_along_axis(daily, day, 1)
    level = each(0, 0.6) * sometimes(0.5) * np.take_along_axis(rng.permutation(daily), day, 1)
    trend = rng.normal(size=(count, 1)) * 0.5 * sometimes(0.4) * (time / length)
    noise = autoregressive(rng, count, length, 1 - 10 ** each(-2.5, 0)) * 10 ** each(-1.6, 0.2)
    series = amplitude * cycle + level + trend + noise + 0.03 * each(0, 1) * rng.normal(size=(count, length))
    skew = each(0.2, 0.9)
    series = np.where(sometimes(0.3) > 0, np.expm1(skew * standardised(series)) / skew, series)
    floor = np.quantile(series, 0.4, axis=1, keepdims=True)
    series = np.where(sometimes(0.08) > 0, np.maximum(series, floor), series)  # like solar power at night
    spike = (rng.random((count, length)) < 0.01) * rng.exponential(3.0, (count, length)) * sometimes(0.15)
    return series + spike


def autoregressive(rng: np.random.Generator, count: int, length: int, memory: Floats) -> Floats:
    """AR(1) series of unit deviation; memory: (count, 1)."""
    shocks = rng.normal(size=(count, length)) * np.sqrt(1 - memory**2)
    series = np.empty((count, length))
    series[:, 0] = rng.normal(size=count)
    for step in range(1, length):
        series[:, step] = memory[:, 0] * series[:, step - 1] + shocks[:, step]
    return series


def standardised(series: Floats) -> Floats:
    """Each series with mean 0 and deviation 1."""
    centred = series - series.mean(1, keepdims=True)
    return centred / (centred.std(1, keepdims=True) + 1e-8)
