"""Generated tables for the AXE suite where no real one is at hand: four Gaussians, and a planted biased classifier."""

from __future__ import annotations

import numpy as np

from explainbench.core.arrays import Floats, Ints
from explainbench.data._attack_table import AttackTable, standardised

CENTRES = ((2.0, 2.0), (-2.0, 2.0), (-2.0, -2.0), (2.0, -2.0))  # Q, R, S, T (paper 004, figure 4)
COVARIANCES = (((0.5, 0.1), (0.1, 0.4)), ((0.4, 0.0), (0.0, 0.6)), ((0.6, -0.1), (-0.1, 0.5)), ((0.5, 0.0), (0.0, 0.5)))


def four_gaussians(rng: np.random.Generator, each: int = 5000) -> tuple[Floats, Ints]:
    """Rows (4 each, 2) around Q, R, S and T, and m(x) = 1 where x1 > 0 (paper 004, section 3.2; covariances ours)."""
    clouds = [rng.multivariate_normal(c, v, size=each) for c, v in zip(CENTRES, COVARIANCES)]
    rows = np.concatenate(clouds)
    return rows, (rows[:, 0] > 0).astype(np.int64)


def planted_bias(rng: np.random.Generator, rows: int = 2000) -> AttackTable:
    """A credit-like table whose protected flag correlates weakly with income and with nothing else.

    Columns: a protected flag, four continuous ones, two innocuous flags and two unrelated foils.
    """
    group = (rng.random(rows) < 0.4).astype(np.float64)
    income = rng.normal(30.0 - 2.0 * group, 8.0)
    age = rng.gamma(9.0, 4.5, size=rows)
    duration = rng.gamma(4.0, 5.0, size=rows)
    debt = 0.4 * income + rng.normal(0.0, 4.0, size=rows)
    flags = (rng.random((rows, 2)) < (0.3, 0.5)).astype(np.float64)
    foils = rng.uniform(-1.0, 1.0, size=(rows, 2))
    good = income - debt + rng.normal(0.0, 6.0, size=rows) > np.median(income - debt)
    return standardised(
        "planted bias (generated)",
        ("group", "income", "age", "duration", "debt", "telephone", "guarantor", "foil_one", "foil_two"),
        np.column_stack([group, income, age, duration, debt, flags, foils]),
        good.astype(np.int64),
        protected="group",
        protected_is_negative=1,
        foils=("foil_one", "foil_two"),
    )
