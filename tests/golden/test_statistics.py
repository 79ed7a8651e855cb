"""Statistics against published values and reference libraries; each case's README says how it was made."""

import json
from pathlib import Path

import numpy as np
import pytest

from explainbench.analysis.comparisons import krippendorff_alpha, paired, unpaired
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


def test_golden_krippendorff_alpha():
    inputs, expected = _inputs("stats_krippendorff_alpha"), _expected("stats_krippendorff_alpha")
    assert inputs.keys() == expected.keys()
    for name, ratings in inputs.items():
        assert krippendorff_alpha(ratings).alpha == pytest.approx(expected[name]["ordinal"], abs=1e-9), name


@pytest.mark.parametrize(("case", "a", "b"), [("continuous", "a", "b"), ("likert_ties", "likert_a", "likert_b")])
def test_golden_mann_whitney_and_cliffs_delta(case, a, b):
    inputs, expected = (
        _inputs("stats_rank_biserial_cliffs_delta"),
        _expected("stats_rank_biserial_cliffs_delta")[case],
    )
    ours = unpaired(inputs[a], inputs[b])
    assert ours.statistic == expected["U_pingouin"]
    assert ours.p == pytest.approx(expected["p_scipy_asymptotic"], abs=1e-6)
    assert ours.delta == pytest.approx(expected["cliffs_delta_bruteforce"], abs=1e-10)


def test_golden_wilcoxon_and_rank_biserial():
    """pingouin's p adds a continuity correction, which scipy and the specification do not."""
    inputs = _inputs("stats_rank_biserial_cliffs_delta")
    expected = _expected("stats_rank_biserial_cliffs_delta")["paired_likert"]
    ours = paired(inputs["paired_1"], inputs["paired_2"])
    assert ours.p == pytest.approx(expected["scipy_p_asymptotic_nocorrection"], abs=1e-6)
    assert ours.effect == pytest.approx(expected["matched_pairs_rank_biserial_by_hand"], abs=1e-10)
    assert ours.n_zero == expected["n_zero_differences"]
    assert (ours.how, ours.n) == ("normal", 22)
