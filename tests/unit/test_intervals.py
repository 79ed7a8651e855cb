from time import perf_counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from explainbench.analysis import intervals
from explainbench.analysis.intervals import (
    block_indices,
    effective_n,
    mean_intervals,
    minimal_detectable_effect,
    overlap_block,
    overlap_effective_n,
    resample_indices,
    resampled_means,
    windows_needed,
)
from explainbench.core.errors import NotApplicable


def test_blocks_of_resamples_do_not_change_the_means(monkeypatch):
    rng = np.random.default_rng(0)
    values, indices = rng.normal(size=(30, 4)), resample_indices(30, 101, rng)
    whole = resampled_means(values, indices)
    monkeypatch.setattr(intervals, "BLOCK_BYTES", 30 * 8 * 7)
    np.testing.assert_allclose(resampled_means(values, indices), whole, rtol=1e-13)
    np.testing.assert_allclose(whole, values[indices].mean(axis=1), rtol=1e-12)


@pytest.mark.parametrize("constant", [0.1, 1 / 3, 12345.678, 0.0])
def test_constant_sample_has_zero_width(constant):
    interval = mean_intervals(np.full((21, 2), constant), resample_indices(21, 200, np.random.default_rng(0)))
    assert (interval.low == constant).all()
    assert (interval.high == constant).all()
    assert (interval.mean == constant).all()


@pytest.mark.parametrize("n", [0, 1])
def test_fewer_than_two_windows_is_not_applicable(n):
    with pytest.raises(NotApplicable, match="at least 2 windows"):
        resample_indices(n, 10, np.random.default_rng(0))
    with pytest.raises(NotApplicable, match="at least 2 windows"):
        mean_intervals(np.zeros((n, 3)), np.zeros((10, n), dtype=np.int64))


def test_nan_is_refused():
    values = np.array([[1.0], [np.nan], [2.0]])
    with pytest.raises(ValueError, match="1 of 3 scores are not finite"):
        mean_intervals(values, resample_indices(3, 10, np.random.default_rng(0)))


def test_a_board_of_58_entries_takes_well_under_a_second():
    rng = np.random.default_rng(0)
    values = rng.random((105, 58))
    started = perf_counter()
    mean_intervals(values, resample_indices(105, 10_000, rng))
    assert perf_counter() - started < 1.0


@settings(max_examples=25, deadline=None)
@given(arrays.arrays(np.float64, st.tuples(st.integers(2, 12), st.integers(1, 5)), elements=st.floats(-1e3, 1e3)))
def test_interval_lies_within_the_sample_and_follows_shift_and_scale(values):
    indices = resample_indices(len(values), 60, np.random.default_rng(3))
    plain, moved = mean_intervals(values, indices), mean_intervals(2 * values + 5, indices)
    slack = 1e-9
    assert (plain.low <= plain.high + slack).all()
    assert (plain.low >= values.min(axis=0) - slack).all()
    assert (plain.high <= values.max(axis=0) + slack).all()
    np.testing.assert_allclose(moved.low, 2 * plain.low + 5, atol=1e-8)
    np.testing.assert_allclose(moved.high, 2 * plain.high + 5, atol=1e-8)


def test_moving_blocks_keep_neighbours_together_and_block_one_is_plain():
    blocks = block_indices(20, 5, 300, np.random.default_rng(0))
    assert blocks.shape == (300, 20)
    assert blocks.min() >= 0
    assert blocks.max() < 20
    assert (np.diff(blocks.reshape(300, 4, 5), axis=2) == 1).all()
    assert (
        block_indices(20, 1, 50, np.random.default_rng(0)) == resample_indices(20, 50, np.random.default_rng(0))
    ).all()
    with pytest.raises(NotApplicable, match="needs at least 22 windows, not 20"):
        block_indices(20, 11, 5, np.random.default_rng(0))


def test_moving_blocks_widen_the_interval_of_overlapping_windows():
    rng = np.random.default_rng(5)
    overlapping = np.convolve(rng.normal(size=219), np.ones(20) / 20, "valid")[:, None]
    plain = mean_intervals(overlapping, resample_indices(200, 2000, rng))
    blocks = mean_intervals(overlapping, block_indices(200, 20, 2000, rng))
    assert (blocks.high - blocks.low)[0] > 2.5 * (plain.high - plain.low)[0]


def test_effective_n_of_independent_overlapping_and_constant_scores():
    rng = np.random.default_rng(2)
    independent = np.median([effective_n(rng.normal(size=100)) for _ in range(50)])
    overlapping = np.median([effective_n(np.convolve(rng.normal(size=119), np.ones(20), "valid")) for _ in range(50)])
    assert independent > 85
    assert 3 < overlapping < 15  # 100 windows that share 19 of 20 steps: about 5 independent ones
    assert effective_n(np.full(30, 0.1)) == 30


def test_overlap_effective_n():
    assert overlap_effective_n(60, stride=100, length=100) == 60
    assert overlap_effective_n(1000, stride=10, length=100) == pytest.approx(100, rel=0.05)


def test_blocks_are_as_long_as_windows_overlap():
    hour = np.timedelta64(1, "h")
    start = np.datetime64("2024-01-01T00:00", "m")
    disjoint = start + np.array([40, 0, 10, 20]) * hour
    assert overlap_block(disjoint, 10 * hour) == 1
    assert overlap_block(disjoint, 11 * hour) == 2
    assert overlap_block(start + np.arange(50) * hour, 10 * hour) == 10
    assert overlap_block(disjoint[:0], hour) == 1


def test_power_for_orientation():
    """Spec section 6: 28 pairs under Holm need about 66 windows to see d = 0.5 with 80 % power."""
    assert [windows_needed(d) for d in (0.5, 0.3, 0.2)] == [33, 92, 206]
    assert [windows_needed(d, 28) for d in (0.5, 0.3, 0.2)] == [66, 183, 412]
    assert minimal_detectable_effect(66, 28) == pytest.approx(0.5, abs=0.005)
