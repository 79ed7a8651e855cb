"""Tests between independent groups of a board's ranked entries (paper 000, section 8.7), an entry's mean being one
observation: determinism strata, and categories of methods with the branch that the gate took.

Entries that explain one model are not independent of each other, so these say what kinds of method score, never which.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from explainbench.analysis.board import Strata
from explainbench.analysis.comparisons import Groups, cliffs_delta_interval, independent_groups, unpaired
from explainbench.core.arrays import Floats
from explainbench.core.params import StatisticsParams


def compare_strata(
    deterministic: Floats, stochastic: Floats, rng: np.random.Generator, statistics: StatisticsParams
) -> Strata | None:
    """Deterministic (a,) against stochastic (b,) entries; None where a stratum holds fewer than two."""
    if min(len(deterministic), len(stochastic)) < 2:
        return None
    test = unpaired(deterministic, stochastic)
    low, high = cliffs_delta_interval(deterministic, stochastic, statistics.bootstrap, rng, statistics.confidence)
    return Strata(test.p, test.statistic, test.delta, low, high, test.n)


def compare_categories(means: Mapping[str, Sequence[float]], alpha: float) -> Groups | None:
    """Entries by the category of their method; None below three categories of at least two entries each."""
    groups = {name: np.array(values) for name, values in sorted(means.items()) if name and len(values) >= 2}
    return independent_groups(groups, alpha) if len(groups) >= 3 else None
