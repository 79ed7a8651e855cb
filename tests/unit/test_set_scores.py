"""Intervals and co-ranks of scores that are computed anew on each resample."""

import numpy as np
import pytest

from explainbench.analysis.set_scores import rank_sets, simultaneous, times_drawn
from explainbench.core.cell import stream


def test_rows_are_drawn_within_their_group():
    group = np.repeat(["a", "b"], [3, 7])
    times = times_drawn(group, 500, stream(0, "draws"))
    assert (times[:, :3].sum(axis=1) == 3).all()
    assert (times[:, 3:].sum(axis=1) == 7).all()
    assert times.mean() == pytest.approx(1.0)
    np.testing.assert_array_equal(times, times_drawn(group, 500, stream(0, "draws")))


def test_intervals_hold_all_at_once():
    """Means of normal values: the true ones lie in all ten intervals together in about 95 % of the samples."""
    rng = stream(0, "coverage")
    held = held_alone = 0
    for _ in range(200):
        values = rng.standard_normal((40, 10))
        draws = times_drawn(np.full(40, "all"), 400, rng) @ values / 40
        low, high = simultaneous(values.mean(axis=0), draws, 0.95)
        held += bool(((low <= 0) & (high >= 0)).all())
        alone = [simultaneous(values[:, :1].mean(axis=0), draws[:, :1], 0.95)]
        held_alone += bool(alone[0][0][0] <= 0 <= alone[0][1][0])
    assert 178 <= held <= 199
    assert 178 <= held_alone <= 199


def test_a_score_that_nothing_changes_has_no_width():
    draws = np.column_stack([np.full(100, 0.3), stream(0, "one").random(100)])
    low, high = simultaneous(np.array([0.3, 0.5]), draws, 0.95)
    assert (low[0], high[0]) == (0.3, 0.3)
    assert low[1] < 0.5 < high[1]


def test_the_interval_stands_around_the_estimate_whatever_the_bias():
    draws = stream(0, "bias").normal(0.7, 0.02, (500, 1))  # every resample is above the estimate of 0.5
    low, high = simultaneous(np.array([0.5]), draws, 0.95)
    assert (low[0] + high[0]) / 2 == pytest.approx(0.5)
    assert high[0] - low[0] == pytest.approx(2 * 1.96 * 0.02, rel=0.15)


def test_models_that_share_their_rows_are_told_apart():
    """Two models that differ by little on every row, and one that cannot be told from the second."""
    rng = stream(0, "models")
    difficulty = rng.standard_normal((60, 1))
    values = difficulty + np.array([0.0, 0.3, 0.32]) + 0.1 * rng.standard_normal((60, 3))
    draws = times_drawn(np.full(60, "all"), 1000, rng) @ values / 60
    low = rank_sets(values.mean(axis=0), draws, ("a", "b", "c"), 60, higher_is_better=False)
    assert [place.label for place in low] == ["a", "b", "c"]
    assert [place.order for place in low] == [1, 2, 3]
    assert [place.rank_ub for place in low] == [1, 2, 2]
    assert [place.co_ranked_with_above for place in low] == [None, False, True]
    assert low[1].co_ranked_plain is True  # the rows' difficulty hides what the pairs show
    assert low[1].p_vs_above < 0.01 < low[2].p_vs_above  # type: ignore[operator]
    high = rank_sets(values.mean(axis=0), draws, ("a", "b", "c"), 60, higher_is_better=True)
    assert [place.label for place in high] == ["c", "b", "a"]
    assert {place.label: place.value for place in high} == {place.label: place.value for place in low}


def test_equal_models_share_a_rank():
    draws = np.repeat(stream(0, "equal").random((200, 1)), 2, axis=1)
    places = rank_sets(np.array([0.5, 0.5]), draws, ("b", "a"), 10, higher_is_better=True)
    assert [(place.label, place.order, place.rank_ub) for place in places] == [("a", 1, 1), ("b", 1, 1)]
    assert places[1].p_vs_above == 1.0
    with pytest.raises(ValueError, match="different labels"):
        rank_sets(np.array([0.5]), draws, ("a",), 10, higher_is_better=True)
