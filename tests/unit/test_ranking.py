import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from explainbench.analysis.intervals import mean_intervals, resample_indices
from explainbench.analysis.ranking import rank

INDICES = resample_indices(24, 400, np.random.default_rng(42))


def scores(seed, levels, difficulty, noise=0.03, n=24):
    rng = np.random.default_rng(seed)
    return 0.5 + rng.normal(0, difficulty, (n, 1)) + np.asarray(levels) + rng.normal(0, noise, (n, len(levels)))


def by_label(ranking):
    return {place.label: place for place in ranking.places}


def test_worked_board_of_two_clear_entries_and_a_tie():
    base = np.linspace(0.2, 0.8, 24)
    values = np.stack([base, base + 0.1, base], axis=1)
    first, second, third = rank(values, ["b", "top", "a"], INDICES).places
    assert [place.label for place in (first, second, third)] == ["top", "a", "b"]
    assert [place.order for place in (first, second, third)] == [1, 2, 2]
    assert [place.rank_ub for place in (first, second, third)] == [1, 2, 2]
    assert first.co_ranked_with_above is first.p_vs_above is first.effect is None
    assert second.co_ranked_with_above is False  # every window agrees
    assert second.co_ranked_plain is True  # the paper's plain rule cannot see it
    assert (second.effect, second.effect_low, second.effect_high) == (-1.0, -1.0, -1.0)
    assert second.p_vs_above is not None
    assert second.p_vs_above < 1e-4
    assert third.co_ranked_with_above is True
    assert (third.p_vs_above, third.effect, third.n_zero) == (1.0, 0.0, 24)
    plain = mean_intervals(values, INDICES)
    assert (first.value, first.low, first.high) == (plain.mean[1], plain.low[1], plain.high[1])


def separations(ranking):
    """Share of pairs told apart by window-centred intervals (what rank_ub counts), and by plain ones."""
    places = ranking.places
    pairs = len(places) * (len(places) - 1) / 2
    plain = sum(one.low > other.high for one in places for other in places)
    return sum(place.rank_ub - 1 for place in places) / pairs, plain / pairs


def test_centred_overlap_has_power_where_plain_overlap_has_none():
    """Four pairs of exact ties, a step apart, on windows that differ in difficulty: 24 of 28 pairs truly differ."""
    labels = [str(i) for i in range(8)]
    levels = np.repeat([0.06, 0.04, 0.02, 0.0], 2)
    differing = np.array([separations(rank(scores(seed, levels, 0.10), labels, INDICES)) for seed in range(30)])
    power, plain_power = differing.mean(axis=0) * 28 / 24
    equal = np.array([separations(rank(scores(seed, np.zeros(8), 0.10), labels, INDICES)) for seed in range(30)])
    assert power > 0.55
    assert plain_power < 0.03
    assert equal[:, 0].mean() < 0.03


def test_never_chained():
    """Each overlaps its neighbour, the ends do not: rank_ub tells them apart, neighbours stay co-ranked."""
    ranking = rank(scores(4, [0.02, 0.01, 0.0], 0.1), ["a", "b", "c"], INDICES)
    first, second, third = ranking.places
    assert second.co_ranked_with_above
    assert third.co_ranked_with_above
    assert (first.rank_ub, third.rank_ub) == (1, 2)


@settings(max_examples=15, deadline=None)
@given(st.permutations(range(5)), st.integers(0, 5))
def test_the_order_of_entries_changes_nothing(order, seed):
    values = np.round(scores(seed, [0.05, 0.05, 0.0, 0.02, 0.0], 0.1), 2)
    labels = np.array(list("abcde"))
    one = rank(values, labels.tolist(), INDICES)
    other = rank(values[:, order], labels[order].tolist(), INDICES)
    for left, right in zip(one.places, other.places, strict=True):
        assert left.label == right.label
        assert (left.order, left.rank_ub) == (right.order, right.rank_ub)
        assert (left.co_ranked_with_above, left.co_ranked_plain) == (right.co_ranked_with_above, right.co_ranked_plain)
        assert left.p_vs_above == pytest.approx(right.p_vs_above)


def test_a_shown_baseline_changes_no_verdict_and_gets_none():
    values = scores(1, [0.04, 0.02, 0.0], 0.1)
    shown = np.column_stack([values, values.max(axis=1) + 1])
    without = rank(values, ["a", "b", "c"], INDICES)
    ranking = rank(shown, ["a", "b", "c", "random"], INDICES, np.array([True, True, True, False]))
    assert ranking.places[:3] == without.places
    baseline = ranking.places[3]
    assert (baseline.label, baseline.order, baseline.rank_ub, baseline.p_vs_above) == ("random", None, None, None)
    assert baseline.low is not None
    assert ranking.ranked == ("a", "b", "c")


def test_lower_is_better_reverses_the_order_and_keeps_the_units():
    values = scores(2, [0.2, 0.0], 0.05)
    up, down = rank(values, ["a", "b"], INDICES), rank(values, ["a", "b"], INDICES, higher_is_better=False)
    assert up.ranked == ("a", "b")
    assert down.ranked == ("b", "a")
    assert by_label(up)["a"].value == by_label(down)["a"].value
    assert by_label(down)["a"].co_ranked_with_above is False
    assert by_label(down)["a"].effect == -1.0


def test_difficulty_common_to_all_entries_does_not_move_centred_verdicts():
    values = scores(4, [0.03, 0.0], 0.0)
    harder = values + np.random.default_rng(9).normal(0, 5, (24, 1))
    one, other = rank(values, ["a", "b"], INDICES), rank(harder, ["a", "b"], INDICES)
    assert [p.co_ranked_with_above for p in one.places] == [p.co_ranked_with_above for p in other.places]
    assert [p.rank_ub for p in one.places] == [p.rank_ub for p in other.places]


@settings(max_examples=20, deadline=None)
@given(arrays.arrays(np.float64, (24, 4), elements=st.integers(0, 3)))
def test_rank_ub_never_exceeds_order_and_p_lies_in_the_unit_interval(values):
    for place in rank(values, list("abcd"), INDICES).places:
        assert place.rank_ub is not None
        assert place.order is not None
        assert 1 <= place.rank_ub <= place.order
        assert place.p_vs_above is None or 0 <= place.p_vs_above <= 1


def test_constant_scores_and_one_entry():
    for place in rank(np.full((24, 3), 0.1), list("abc"), INDICES).places:
        assert (place.order, place.rank_ub, place.value, place.low, place.high) == (1, 1, 0.1, 0.1, 0.1)
        assert place.co_ranked_with_above in (None, True)
    (alone,) = rank(np.full((24, 1), 0.1), ["a"], INDICES).places
    assert (alone.order, alone.rank_ub, alone.co_ranked_with_above) == (1, 1, None)


def test_one_score_per_entry_gives_the_point_order_only():
    first, second = rank(np.array([[0.2, 0.7]]), ["a", "b"], None).places
    assert (first.label, first.order, first.low, first.rank_ub) == ("b", 1, None, None)
    assert (second.label, second.order, second.co_ranked_with_above) == ("a", 2, None)


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="different labels"):
        rank(np.zeros((24, 2)), ["a", "a"], INDICES)
    with pytest.raises(ValueError, match="must be finite"):
        rank(np.full((24, 1), np.nan), ["a"], INDICES)
