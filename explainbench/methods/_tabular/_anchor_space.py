"""What an anchor is made of: predicates on the quartiles of a row, samples that fulfil them, and KL bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from explainbench.core.arrays import Bools, Floats, Ints

HALVINGS = 17  # of the bisection for a bound: an error of 1e-5


@dataclass(frozen=True, slots=True, eq=False)
class Space:
    """Background rows as values (m, d) and quartile bins (m, d); ordered: every column sorted, and first: (d, bins + 1)
    where each bin begins in it; edges: (d, bins - 1) upper limits of the bins."""

    values: Floats
    bins: Ints
    edges: Floats
    ordered: Floats
    first: Ints

    @classmethod
    def of(cls, background: Floats) -> Self:
        """Cut every column at its quartiles."""
        edges = np.percentile(background, (25, 50, 75), axis=0).T
        bins = _binned(background, edges)
        counts = np.stack([(bins == value).sum(axis=0) for value in range(edges.shape[1] + 1)], axis=1)
        first = np.concatenate([np.zeros((len(edges), 1), dtype=int), counts.cumsum(axis=1)], axis=1)
        return cls(background, bins, edges, np.sort(background, axis=0), first)

    def binned(self, rows: Floats) -> Ints:
        """Bins of rows (n, d)."""
        return _binned(rows, self.edges)

    def draw(self, rng: np.random.Generator, row: Floats, low: Ints, high: Ints, count: int) -> Floats:
        """Background rows whose columns are within bins low..high (d,): (count, d).

        A column outside takes another background value from inside, or the row's own where there is none.
        """
        drawn = rng.integers(len(self.values), size=count)
        rows = self.values[drawn].copy()
        for column in np.flatnonzero((low > 0) | (high < self.edges.shape[1])):
            bins = self.bins[drawn, column]
            outside = np.flatnonzero((bins < low[column]) | (bins > high[column]))
            start, stop = self.first[column, low[column]], self.first[column, high[column] + 1]
            if start == stop:
                rows[outside, column] = row[column]
            else:
                rows[outside, column] = self.ordered[rng.integers(start, stop, size=len(outside)), column]
        return rows


def _binned(rows: Floats, edges: Floats) -> Ints:
    return (rows[:, :, None] > edges).sum(axis=2)


@dataclass(frozen=True, slots=True, eq=False)
class Predicates:
    """Every half-line at a quartile that a row fulfils: column (p,) within bins low..high (p,)."""

    column: Ints
    low: Ints
    high: Ints
    columns: int
    last: int

    @classmethod
    def of(cls, space: Space, row: Floats) -> Self:
        """For each column and quartile: at most it, or above it."""
        d, edges = space.edges.shape
        at = space.binned(row[None])[0]
        column, edge = np.divmod(np.arange(d * edges), edges)
        below = at[column] <= edge
        return cls(column, np.where(below, 0, edge + 1), np.where(below, edge, edges), d, edges)

    def held(self, bins: Ints) -> Bools:
        """Which predicates rows in bins (k, d) fulfil: (k, p)."""
        at = bins[:, self.column]
        return (at >= self.low) & (at <= self.high)

    def intervals(self, rule: tuple[int, ...]) -> tuple[Ints, Ints]:
        """The bins low..high (d,) to which a conjunction confines each column."""
        low, high = np.zeros(self.columns, dtype=int), np.full(self.columns, self.last)
        for item in rule:
            column = self.column[item]
            low[column] = max(low[column], self.low[item])
            high[column] = min(high[column], self.high[item])
        return low, high

    def adding(self, rule: tuple[int, ...]) -> Ints:
        """The predicates that a conjunction does not imply."""
        low, high = self.intervals(rule)
        return np.flatnonzero((self.low > low[self.column]) | (self.high < high[self.column]))


def _divergence(p: Floats, q: Floats) -> Floats:
    p, q = np.clip(p, 1e-7, 1 - 1e-16), np.clip(q, 1e-7, 1 - 1e-16)
    return p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))


def _bound(mean: Floats, level: Floats, outer: Floats) -> Floats:
    """Bisection between a mean and an outer point for the divergence `level`, kept on the mean's side."""
    inner = mean
    for _ in range(HALVINGS):
        middle = (inner + outer) / 2
        beyond = _divergence(mean, middle) > level
        inner, outer = np.where(beyond, inner, middle), np.where(beyond, middle, outer)
    return inner


def kl_upper(mean: Floats | float, level: Floats | float) -> Floats:
    """Largest q with KL(mean, q) <= level: the upper confidence bound of a Bernoulli mean."""
    mean, level = np.asarray(mean, dtype=np.float64), np.asarray(level, dtype=np.float64)
    return _bound(mean, level, np.minimum(1.0, mean + np.sqrt(level / 2)))


def kl_lower(mean: Floats | float, level: Floats | float) -> Floats:
    """Smallest q with KL(mean, q) <= level."""
    mean, level = np.asarray(mean, dtype=np.float64), np.asarray(level, dtype=np.float64)
    return _bound(mean, level, np.maximum(0.0, mean - np.sqrt(level / 2)))
