"""Statistics against published values and reference libraries; each case's README says how it was made."""

import json
from pathlib import Path

import numpy as np
import pytest

from explainbench.analysis.intervals import mean_intervals, resample_indices

HERE = Path(__file__).parent


def _inputs(case):
    with np.load(HERE / case / "inputs.npz") as stored:
        return {name: stored[name] for name in stored.files}


def _expected(case):
    return json.loads((HERE / case / "expected.json").read_text())


def test_golden_percentile_intervals():
    case = _inputs("stats_bootstrap_percentile")
    expected = _expected("stats_bootstrap_percentile")
    values, indices = case["x"][:, None], case["resample_indices"].astype(np.int64)
    at95, at90 = mean_intervals(values, indices), mean_intervals(values, indices, confidence=0.90)
    assert at95.mean[0] == pytest.approx(expected["mean"], abs=1e-10)
    assert (at95.low[0], at95.high[0]) == pytest.approx(tuple(expected["percentile95_mean_linear"]), abs=1e-10)
    assert (at90.low[0], at90.high[0]) == pytest.approx(tuple(expected["percentile90_mean_linear"]), abs=1e-10)
    ours = mean_intervals(values, resample_indices(60, 20_000, np.random.default_rng(1)))
    scipys = expected["scipy_bootstrap_percentile95_B20000_rng0"]
    assert (ours.low[0], ours.high[0]) == pytest.approx(tuple(scipys), abs=0.02)
