"""Generated tables for the AXE suite where no real one is at hand: four Gaussians, and a planted biased classifier."""

from __future__ import annotations

import numpy as np

from explainbench.core.arrays import Floats, Ints, Stamps
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

    Columns: a protected flag, income, three counts of few values, housing and job as one-hot flags, and two unrelated
    foils. Grids, zeros and one-hot flags are what real tables have and what the attack's detector feeds on.
    """
    group = (rng.random(rows) < 0.4).astype(np.float64)
    income = rng.normal(30.0 - 2.0 * group, 8.0)
    years = rng.integers(1, 6, size=rows).astype(np.float64)
    loans = rng.poisson(0.5, size=rows).astype(np.float64)
    missed = rng.poisson(0.3, size=rows).astype(np.float64)
    housing = np.eye(3)[rng.choice(3, size=rows, p=(0.5, 0.35, 0.15))]
    job = np.eye(2)[rng.choice(2, size=rows, p=(0.6, 0.4))]
    foils = rng.uniform(-1.0, 1.0, size=(rows, 2))
    good = income - 6.0 * missed - 3.0 * loans + rng.normal(0.0, 6.0, size=rows) > 24.0
    flags = ("owns_house", "rents_house", "free_house", "skilled", "unskilled")
    return standardised(
        "planted bias (generated)",
        ("group", "income", "years", "loans", "missed", *flags, "foil_one", "foil_two"),
        np.column_stack([group, income, years, loans, missed, housing, job, foils]),
        good.astype(np.int64),
        protected="group",
        protected_is_negative=1,
        foils=("foil_one", "foil_two"),
    )


def load_and_weather(rng: np.random.Generator, days: int) -> tuple[Stamps, Floats]:
    """A quarter-hourly series of load (MW) and temperature (degC), independent of each other: (s,), (s, 2).

    Temperature changes every half day and has no daily cycle: if it shared the load's, yesterday's load would predict
    the temperature, and an explanation by load would be half right.
    """
    stamps = np.datetime64("2025-01-06T00:00", "m") + np.arange(days * 96) * np.timedelta64(15, "m")
    hour = np.arange(len(stamps)) % 96 / 4
    load = 100 + 15 * np.sin((hour - 8) / 24 * 2 * np.pi) + 5 * rng.standard_normal(len(stamps))
    fronts = np.repeat(4 * rng.standard_normal(2 * days), 48)
    return stamps, np.stack([load, 10 + fronts + 0.5 * rng.standard_normal(len(stamps))], axis=1)
