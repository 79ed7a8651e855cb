import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy import stats
from statsmodels.stats.multitest import multipletests

from explainbench.analysis.comparisons import (
    cliffs_delta_interval,
    friedman,
    holm,
    independent_groups,
    krippendorff_alpha,
    paired,
    paired_effect_interval,
    pairwise,
    unpaired,
)
from explainbench.analysis.intervals import resample_indices
from explainbench.core.errors import NotApplicable


def rng(seed=0):
    return np.random.default_rng(seed)


def test_wilcoxon_worked_number():
    """Differences 1, 2, 3, -4, 5: W- = 4 of 15, so the effect is 7/15; 14 of 32 sign patterns are as extreme."""
    test = paired(np.array([1.0, 2, 3, -4, 5]), np.zeros(5))
    assert test.effect == pytest.approx(7 / 15)
    assert test.p == pytest.approx(14 / 32)
    assert (test.how, test.n, test.n_zero) == ("exact", 5, 0)


def test_all_ties_give_p_one_with_a_reason():
    test = paired(np.full(6, 0.3), np.full(6, 0.1) + 0.2)  # 0.1 + 0.2 is not 0.3 in binary
    assert (test.p, test.effect, test.n_zero, test.how) == (1.0, 0.0, 6, "none")
    assert test.reason == "the two score the same on all 6 windows"


@pytest.mark.parametrize(
    ("values", "how"),
    [
        (np.arange(1.0, 51), "exact"),
        (np.arange(1.0, 52), "normal"),
        (np.array([1.0, 1, 2]), "permutation"),
        (np.repeat(np.arange(1.0, 8), 2), "normal"),
    ],
)
def test_the_way_p_was_computed_is_recorded_as_scipy_takes_it(values, how):
    assert paired(values, np.zeros(len(values))).how == how
    named = {"exact": "exact", "normal": "asymptotic", "permutation": "auto"}[how]
    assert paired(values, np.zeros(len(values))).p == pytest.approx(stats.wilcoxon(values, method=named).pvalue)


def test_tied_small_samples_equal_scipys_enumeration():
    for seed in range(3):
        values = rng(seed).integers(-2, 4, 7).astype(float)
        test = paired(values, np.zeros(7))
        assert test.how == "permutation"
        assert test.p == pytest.approx(stats.wilcoxon(values, method=stats.PermutationMethod()).pvalue)


def test_nan_is_refused_by_paired_tests():
    with pytest.raises(ValueError, match="must be finite"):
        paired(np.array([1.0, np.nan]), np.zeros(2))


@settings(max_examples=30, deadline=None)
@given(arrays.arrays(np.float64, st.tuples(st.integers(14, 20), st.just(2)), elements=st.integers(-5, 5)))
def test_swapping_the_sides_flips_the_effect_and_keeps_p(values):
    one, other = paired(values[:, 0], values[:, 1]), paired(values[:, 1], values[:, 0])
    assert one.p == pytest.approx(other.p, abs=1e-12)
    assert one.effect == pytest.approx(-other.effect, abs=1e-12)
    assert -1 <= one.effect <= 1


def test_paired_effect_interval_equals_the_effect_of_each_resample():
    generator = rng(1)
    a, b = generator.integers(0, 4, 25).astype(float), generator.integers(0, 4, 25).astype(float)
    indices = resample_indices(25, 200, generator)
    effects = [paired(a[row], b[row]).effect for row in indices]
    assert paired_effect_interval(a, b, indices) == pytest.approx(tuple(np.percentile(effects, (2.5, 97.5))))
    assert paired_effect_interval(a, a, indices) == (0.0, 0.0)


def test_cliffs_delta_interval_holds_the_estimate_and_collapses_on_separated_groups():
    generator = rng(2)
    a, b = generator.normal(0.5, 1, 40), generator.normal(0, 1, 30)
    low, high = cliffs_delta_interval(a, b, 500, generator)
    assert low < unpaired(a, b).delta < high
    assert cliffs_delta_interval(a + 100, b, 200, generator) == (1.0, 1.0)
    with pytest.raises(NotApplicable, match="1 and 30"):
        cliffs_delta_interval(a[:1], b, 10, generator)


def test_unpaired_ties_and_empty_groups():
    same = unpaired(np.ones(3), np.ones(4))
    assert (same.p, same.delta) == (1.0, 0.0)
    with pytest.raises(NotApplicable, match="0 and 4"):
        unpaired(np.empty(0), np.ones(4))


def test_holm_worked_number_and_nan_dropped_first():
    np.testing.assert_allclose(holm(np.array([0.01, 0.04, 0.03, np.nan])), [0.03, 0.06, 0.06, np.nan])
    p = rng(6).random(12) ** 3
    np.testing.assert_allclose(holm(p), multipletests(p, method="holm")[1], rtol=1e-14)
    assert np.isnan(holm(np.array([np.nan, np.nan]))).all()
    assert holm(np.empty(0)).shape == (0,)


def test_pairwise_is_antisymmetric_and_one_family():
    values = rng(3).random((15, 4))
    table = pairwise(values)
    np.testing.assert_array_equal(table.effect, -table.effect.T)
    np.testing.assert_array_equal(table.p_holm, table.p_holm.T)
    assert np.isnan(np.diag(table.p_holm)).all()
    upper = np.triu_indices(4, 1)
    np.testing.assert_array_equal(table.p_holm[upper], holm(table.p[upper]))


def test_pairs_with_different_numbers_of_equal_windows_equal_scipys_one_by_one():
    values = rng(8).random((20, 4))
    values[:3, 1] = values[:3, 0]
    values[5:9, 2] = values[5:9, 0]
    table = pairwise(values)
    for i, j in ((0, 1), (0, 2), (0, 3), (1, 2)):
        difference = values[:, i] - values[:, j]
        assert table.n_zero[i, j] == (difference == 0).sum()
        expected = stats.wilcoxon(difference[difference != 0], method="exact").pvalue
        assert table.p[i, j] == pytest.approx(expected, rel=1e-12)


@settings(max_examples=10, deadline=None)
@given(st.permutations(range(4)))
def test_pairwise_does_not_depend_on_the_order_of_entries(order):
    values = rng(3).random((15, 4))
    moved, table = pairwise(values[:, order]), pairwise(values)
    np.testing.assert_allclose(moved.p_holm, table.p_holm[np.ix_(order, order)], rtol=1e-12)


def test_friedman_worked_number_ties_and_too_few():
    ordered = friedman(np.tile([1.0, 2.0, 3.0], (6, 1)))
    assert (ordered.statistic, ordered.w) == pytest.approx((12.0, 1.0))
    tied = friedman(np.ones((5, 3)))
    assert (tied.p, tied.w) == (1.0, 0.0)
    assert "score the same" in tied.reason
    with pytest.raises(NotApplicable, match="at least 3 entries"):
        friedman(np.ones((5, 2)))


def test_gate_takes_anova_with_games_howell_on_normal_groups():
    quantiles = stats.norm.ppf(np.linspace(0.02, 0.98, 25))
    found = independent_groups({"peak": quantiles, "ramp": quantiles + 0.1, "off_peak": quantiles + 3})
    assert found.branch == "anova+games-howell"
    assert found.p == stats.f_oneway(quantiles, quantiles + 0.1, quantiles + 3).pvalue
    assert found.pairs["peak", "ramp"] > 0.9
    assert found.pairs["peak", "off_peak"] < 1e-6


def test_games_howell_worked_number():
    """q = |difference| / sqrt((s1^2/n1 + s2^2/n2)/2) with Welch's degrees of freedom, on the studentized range."""
    quantiles = stats.norm.ppf(np.linspace(0.05, 0.95, 12))
    a, b, c = quantiles, 1.2 * quantiles + 0.8, quantiles + 0.3
    found = independent_groups({"a": a, "b": b, "c": c})
    va, vb = a.var(ddof=1) / 12, b.var(ddof=1) / 12
    q = abs(a.mean() - b.mean()) / np.sqrt((va + vb) / 2)
    freedom = (va + vb) ** 2 / (va**2 / 11 + vb**2 / 11)
    assert found.pairs["a", "b"] == pytest.approx(stats.studentized_range.sf(q, 3, freedom), rel=1e-6)


@pytest.mark.parametrize(
    ("groups", "why"),
    [
        ([np.exp(np.linspace(0, 5, 20))] * 3, "normality is violated"),
        ([s * stats.norm.ppf(np.linspace(0.02, 0.98, 30)) for s in (1, 1, 9)], "equal variances are violated"),
        ([np.arange(5.0), np.arange(5.0), np.ones(2)], "fewer than 3"),
        ([np.arange(5.0), np.arange(5.0), np.ones(4)], "constant"),
        ([np.ones(4)] * 3, "all scores are the same"),
    ],
)
def test_gate_substitutes_kruskal_wallis_and_says_why(groups, why):
    found = independent_groups(dict(zip("abc", groups, strict=True)))
    assert found.branch == "kruskal-wallis+dunn"
    assert why in found.why
    assert 0 <= found.p <= 1


def test_dunn_worked_number():
    """Ranks 1-3, 4-6, 7-9: mean ranks 2, 5, 8; variance 9*10/12 = 7.5; z = 6/sqrt(7.5*2/3) for the outer pair."""
    found = independent_groups({"a": [1.0, 2, 3], "b": [4.0, 5, 60], "c": [700.0, 800, 9000]})
    outer, inner = 2 * stats.norm.sf(6 / np.sqrt(5)), 2 * stats.norm.sf(3 / np.sqrt(5))
    assert found.branch == "kruskal-wallis+dunn"
    assert found.pairs["a", "c"] == pytest.approx(3 * outer)
    assert found.pairs["a", "b"] == found.pairs["b", "c"] == pytest.approx(2 * inner)


def test_two_groups_are_not_a_group_test():
    with pytest.raises(NotApplicable, match="at least 3 groups"):
        independent_groups({"a": np.ones(3), "b": np.ones(3)})


def test_alpha_interval_holds_the_estimate_and_perfect_agreement_is_one():
    generator = rng(4)
    truth = generator.integers(1, 6, 40)
    ratings = np.clip(truth + generator.integers(-1, 2, (5, 40)), 1, 5).astype(float)
    found = krippendorff_alpha(ratings, resample_indices(40, 1000, generator))
    assert found.low is not None
    assert found.high is not None
    assert found.low < found.alpha < found.high
    perfect = krippendorff_alpha(np.tile(truth, (3, 1)).astype(float), resample_indices(40, 200, generator))
    assert (perfect.alpha, perfect.low, perfect.high) == (1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("ratings", "reason"),
    [
        (np.full((3, 4), 2.0), "all ratings are the same"),
        (np.array([[1.0, np.nan], [np.nan, 2.0]]), "two ratings"),
        (np.full((2, 2), np.nan), "two ratings"),
    ],
)
def test_alpha_where_nothing_can_disagree(ratings, reason):
    with pytest.raises(NotApplicable, match=reason):
        krippendorff_alpha(ratings)


def test_alpha_does_not_depend_on_the_order_of_raters_or_units_or_on_relabelling():
    generator = rng(5)
    ratings = generator.integers(1, 6, (4, 20)).astype(float)
    ratings[generator.random((4, 20)) < 0.2] = np.nan
    alpha = krippendorff_alpha(ratings).alpha
    assert krippendorff_alpha(ratings[::-1, ::-1]).alpha == pytest.approx(alpha)
    assert krippendorff_alpha(ratings**3).alpha == pytest.approx(alpha)
