import numpy as np
import pytest

from explainbench.analysis.ablation import (
    component_shares,
    concordance,
    diagonal,
    faithfulness_note,
    kendall_w,
    off_diagonal,
    rank_tau,
    relative_panel,
    simplex,
    weight_sensitivity,
)
from explainbench.analysis.comparisons import friedman
from explainbench.analysis.intervals import resample_indices
from explainbench.core.errors import NotApplicable


def rng(seed=0):
    return np.random.default_rng(seed)


def test_simplex_holds_every_weighting_once():
    np.testing.assert_allclose(simplex(2, 0.25), [[0, 1], [0.25, 0.75], [0.5, 0.5], [0.75, 0.25], [1, 0]])
    three = simplex(3, 0.1)
    assert len(three) == 66  # 12 choose 2
    np.testing.assert_allclose(three.sum(axis=1), 1)
    assert len(np.unique(three, axis=0)) == 66


def test_weights_worked_number():
    """Entries (1, 0), (0.6, 0.6), (0, 0.9): at one half 0.5, 0.6, 0.45; the first alone orders 1, 2, 3."""
    values = np.array([[1.0, 0.0], [0.6, 0.6], [0.0, 0.9]])
    taus = {point.weights: point.tau for point in weight_sensitivity(values, np.array([0.5, 0.5]), 0.5)}
    assert taus[0.5, 0.5] == 1.0
    assert taus[1.0, 0.0] == pytest.approx(1 / 3)  # one of three pairs is turned
    assert taus[0.0, 1.0] == pytest.approx(-1 / 3)


def test_weights_whose_ranking_is_all_ties_have_no_tau():
    values = np.array([[0.5, 0.1], [0.5, 0.2], [0.5, 0.3]])
    taus = [point.tau for point in weight_sensitivity(values, np.array([0.5, 0.5]), 0.5)]
    assert taus == [1.0, 1.0, None]  # the last asks the constant component alone


def test_component_shares_worked_number_and_sum():
    """x = 0, 1, 2 and y = 0 everywhere: all of the variance is x's, and without it nothing is left to rank by."""
    one = component_shares(np.array([[0.0, 5], [1, 5], [2, 5]]), np.array([0.5, 0.5]), ["x", "y"])
    assert [(part.share, part.without) for part in one] == [(1.0, 1.0), (0.0, 0.0)]
    assert [part.tau for part in one] == [None, 1.0]
    values = rng(1).random((20, 3))
    shares = component_shares(values, np.array([0.2, 0.3, 0.5]), list("abc"))
    assert sum(part.share for part in shares) == pytest.approx(1.0)
    composite = values @ [0.2, 0.3, 0.5]
    assert shares[2].without == pytest.approx(1 - (composite - 0.5 * values[:, 2]).var() / composite.var())


@pytest.mark.parametrize("values", [np.empty((0, 2)), np.ones((2, 2))])
def test_two_entries_are_no_ranking_to_ablate(values):
    with pytest.raises(NotApplicable, match=f"there are {len(values)}"):
        weight_sensitivity(values, np.array([0.5, 0.5]))


def test_constant_scores_have_no_variance_to_share():
    with pytest.raises(NotApplicable, match="same composite"):
        component_shares(np.full((5, 2), 0.3), np.array([0.5, 0.5]), ["x", "y"])


def test_kendall_w_is_friedmans_with_and_without_ties():
    for seed, levels in ((0, 1000), (1, 4)):
        scores = rng(seed).integers(0, levels, (4, 7)).astype(float)
        assert kendall_w(scores) == pytest.approx(friedman(scores).w)
    assert kendall_w(np.tile(np.arange(5.0), (3, 1))) == pytest.approx(1.0)
    assert kendall_w(np.array([[1.0, 2, 3], [3, 2, 1]])) == pytest.approx(0.0)
    assert np.isnan(kendall_w(np.ones((3, 4))))


def test_rounding_never_separates_equal_scores():
    assert rank_tau(np.array([0.1 + 0.2, 0.3, 0.5]), np.array([1.0, 1.0, 2.0])) == pytest.approx(1.0)


def test_masks_that_agree_support_a_ranking_and_masks_that_do_not_refuse_it():
    indices = resample_indices(30, 300, rng(2))
    order = np.arange(5.0) + 0.3 * rng(3).normal(size=(30, 5))
    agreeing = concordance({name: order + 0.01 * k for k, name in enumerate("abc")}, indices)
    assert agreeing.w == pytest.approx(1.0)
    assert agreeing.supported
    assert agreeing.low <= agreeing.w <= agreeing.high
    assert agreeing.taus["a", "b"] == pytest.approx(1.0)
    torn = concordance({"a": order, "b": order[:, ::-1], "c": np.roll(order, 2, axis=1)}, indices)
    assert torn.w < 0.5
    assert not torn.supported
    assert torn.taus["a", "b"] == pytest.approx(-1.0)


@pytest.mark.parametrize(
    ("scores", "reason"),
    [
        ({}, "at least 2 masks"),
        ({"a": np.ones((5, 4))}, "at least 2 masks"),
        ({"a": np.ones((5, 2)), "b": np.ones((5, 2))}, "3 methods"),
        ({"a": np.ones((1, 4)), "b": np.ones((1, 4))}, "2 windows"),
        ({"a": np.ones((5, 4)), "b": np.ones((5, 4))}, "score the same under every mask"),
    ],
)
def test_concordance_where_there_is_none(scores, reason):
    with pytest.raises(NotApplicable, match=reason):
        concordance(scores, np.zeros((10, 5), dtype=np.int64))


def test_panel_means_by_hand():
    """Two masks, the second moving f ten times as much; the explainer gains 0.5 under its own baseline."""
    panel = np.array([[[[1.5, 10.0], [1.0, 15.0]], [[0.5, 10.0], [1.0, 5.0]]]])  # (1 window, 2 methods, 2, 2)
    relative = relative_panel(panel)
    np.testing.assert_allclose(relative.mean(axis=(0, 1, 2)), 1)
    np.testing.assert_allclose(diagonal(relative), [[1.5, 0.5]])
    np.testing.assert_allclose(off_diagonal(relative), [[1.0, 1.0]])


def test_boards_are_told_what_masks_support():
    row = {"task": "T1", "model": "lstm", "operators": ["a", "b"], "low": 0.2, "high": 0.6}
    checks = {"masks": [row | {"w": 0.41, "supported": False}]}
    note = faithfulness_note(checks, "T1", "lstm")
    assert note == ("Kendall's W over 2 masks is 0.41 [0.20, 0.60]: no single faithfulness ranking is supported")
    assert "no single" not in (faithfulness_note({"masks": [row | {"w": 0.7, "supported": True}]}, "T1", "lstm") or "")
    assert faithfulness_note(checks, "T2", "lstm") is None
    assert faithfulness_note(None, "T1", "lstm") is None
    assert faithfulness_note({"masks": [row | {"w": None}]}, "T1", "lstm") is None
