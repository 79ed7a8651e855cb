import numpy as np
import pytest
from scipy import stats

from explainbench.analysis.intervals import resample_indices
from explainbench.analysis.sanity import (
    Estimate,
    baseline_places,
    disagreement,
    effective_metrics,
    estimate,
    preference,
    randomisation_verdict,
    rank_correlations,
    recovered,
    regime_interaction,
    relative_error,
)
from explainbench.core.errors import NotApplicable

REGIME = np.repeat(["off_peak", "peak", "ramp"], 20)


def rng(seed=0):
    return np.random.default_rng(seed)


def test_an_estimate_of_one_window_is_not_applicable():
    with pytest.raises(NotApplicable, match="at least 2 windows"):
        estimate(np.array([0.5]), np.zeros((10, 1), dtype=np.int64))
    constant = estimate(np.full(9, 0.3), resample_indices(9, 100, rng()))
    assert (constant.value, constant.low, constant.high, constant.n) == (0.3, 0.3, 0.3, 9)


def test_baseline_place_by_hand():
    base = rng(1).normal(size=20)
    methods = {"better": base + 1, "worse": base - 1, "equal": base.copy(), "gone": np.full(20, np.nan)}
    (place,) = baseline_places([(base, methods)])
    assert place is not None
    assert (place.place, place.above, place.below, place.methods) == (2, ("better",), ("worse",), 3)


def test_baselines_that_are_placed_together_share_one_holm():
    """Six windows, all better: p = 2/64, which is sure alone (0.031) and not among two (0.0625)."""
    base = np.arange(6.0)
    one = (base, {"better": base + np.arange(1.0, 7.0)})
    assert [place and place.above for place in baseline_places([one])] == [("better",)]
    assert [place and place.above for place in baseline_places([one, one])] == [(), ()]


def test_a_nan_window_leaves_only_its_own_pair():
    base = rng(1).normal(size=20)
    other = base + 1
    other[:5] = np.nan
    (place, nothing) = baseline_places([(base, {"other": other}), (base, {"other": np.full(20, np.nan)})])
    assert place is not None
    assert place.above == ("other",)
    assert nothing is None


def test_preference_counts_ties_half_and_keeps_nan():
    np.testing.assert_array_equal(
        preference(np.array([2.0, 1.0, 0.1 + 0.2, np.nan]), np.array([1.0, 2.0, 0.3, 0.0])), [1, 0, 0.5, np.nan]
    )


def test_disagreement_is_spearman_on_common_cells():
    a, b = rng(2).random(15), rng(3).random(15)
    b[:3] = np.nan
    constant = np.ones(15)
    pairs = disagreement({"a": a, "b": b, "c": constant}, lambda n: resample_indices(n, 200, rng()))
    first = pairs[0]
    assert first["metrics"] == ["a", "b"]
    assert first["n"] == 12
    assert first["rho"] == pytest.approx(stats.spearmanr(a[3:], b[3:]).statistic)
    assert first["low"] < first["rho"] < first["high"]
    assert [pair["rho"] for pair in pairs[1:]] == [None, None]  # a constant metric ranks nothing


def test_number_of_independent_metrics():
    a = rng(4).random(200)
    assert effective_metrics({"a": a, "b": a + 1, "c": a**3}) == pytest.approx(1.0)
    assert effective_metrics({"a": a, "b": rng(5).random(200), "c": rng(6).random(200)}) > 2.9
    assert effective_metrics({"a": a[:3], "b": a[:3]}) is None
    assert effective_metrics({"a": a, "b": np.ones(200)}) is None
    assert effective_metrics({}) is None


def test_interaction_sees_a_method_that_fails_in_one_regime_and_not_a_hard_regime():
    difficulty = np.where(REGIME == "ramp", 5.0, 0.0) + rng(7).normal(size=60)  # the same for both methods
    noise = 0.3 * rng(8).normal(size=(2, 60))
    hard = regime_interaction({"a": difficulty + noise[0], "b": difficulty + noise[1]}, REGIME, rng(), 499)
    assert hard.p > 0.05
    failing = difficulty + noise[1] - np.where(REGIME == "ramp", 1.0, 0.0)
    found = regime_interaction({"a": difficulty + noise[0], "b": failing}, REGIME, rng(), 499)
    assert found.p == pytest.approx(1 / 500)
    assert found.n == {"off_peak": 20, "peak": 20, "ramp": 20}
    assert found.means["b"]["ramp"] == pytest.approx(failing[40:].mean())


def test_interaction_has_its_level_under_the_null():
    p = [
        regime_interaction(
            {name: rng(seed * 10 + k).normal(size=60) for k, name in enumerate("abc")}, REGIME, rng(), 99
        ).p
        for seed in range(100)
    ]
    assert np.mean(np.array(p) <= 0.05) < 0.12
    assert 0.4 < np.mean(p) < 0.6


def test_interaction_of_constant_scores_and_of_too_little():
    same = regime_interaction({"a": np.ones(60), "b": np.ones(60)}, REGIME, rng())
    assert (same.statistic, same.p) == (0.0, 1.0)
    with pytest.raises(NotApplicable, match="2 methods"):
        regime_interaction({"a": np.ones(60)}, REGIME, rng())
    with pytest.raises(NotApplicable, match="2 windows"):
        regime_interaction({"a": np.ones(3), "b": np.ones(3)}, np.array(["peak", "peak", "ramp"]), rng())


def test_rank_correlation_per_window_is_spearman():
    one, other = rng(9).normal(size=(4, 12)), rng(10).normal(size=(4, 12))
    expected = [stats.spearmanr(a, b).statistic for a, b in zip(one, other, strict=True)]
    np.testing.assert_allclose(rank_correlations(one, other), expected)
    np.testing.assert_allclose(rank_correlations(one, -3 * one), -1.0)


def test_an_explanation_that_vanishes_has_changed_and_one_that_never_was_is_undefined():
    something, nothing = rng(11).normal(size=(1, 6)), np.zeros((1, 6))
    assert rank_correlations(something, nothing) == 0.0
    assert np.isnan(rank_correlations(nothing, something)).all()


def test_recovery_by_hand():
    """Groups 0 and 2 contribute; the explanation ranks 2, 1, 0 and puts a quarter of its size on the others."""
    found = recovered(np.array([[4.0, 0, -2, 0]]), np.array([[1.0, 1.5, -5.0, 0.01]]))
    assert found["recall"] == 0.5
    assert found["null_share"] == pytest.approx(1.51 / 7.51)
    assert found["correlation"] == pytest.approx(stats.spearmanr([4, 0, 2, 0], [1, 1.5, 5, 0]).statistic)
    perfect = recovered(np.array([[4.0, 0, -2, 0]]), np.array([[4.0, 1e-6, -2, -2e-6]]))
    assert (perfect["recall"], perfect["correlation"]) == (1.0, 1.0)  # noise on null groups makes no ranks


def test_where_nothing_contributes_nothing_can_be_recovered():
    found = recovered(np.zeros((1, 4)), np.ones((1, 4)))
    assert all(np.isnan(values).all() for values in found.values())
    assert relative_error(np.zeros((1, 4)), np.ones((1, 4))) is None
    assert relative_error(np.array([[2.0, -4.0], [0, 0]]), np.array([[2.0, -3.0], [9, 9]])) == 0.25


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (0.6, 0.9, "ignores the weights"),
        (-0.1, 0.3, "changes"),
        (0.2, 0.7, "unclear"),
        (1.0, 1.0, "ignores the weights"),
    ],
)
def test_randomisation_verdict(low, high, verdict):
    assert randomisation_verdict(Estimate((low + high) / 2, low, high, 12)) == verdict
