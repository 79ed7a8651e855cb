"""Windows: calendar, regimes by hand, disjoint stratified draws, training windows, and the npz round trip."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from explainbench.core.dataset import Series
from explainbench.core.errors import BadInput, Corrupt
from explainbench.core.params import TaskParams, load_params
from explainbench.core.workspace import Workspace
from explainbench.data import _sampling as sampling

TASK = TaskParams(target="load_mw", context=8, horizon=4, segment=4, windows_per_regime=3)


def ramp_series(days: int = 20, start: str = "2025-01-06") -> Series:
    """A noisy daily wave with one steep hour a day, two channels."""
    rows = days * 96
    stamps = np.datetime64(start, "m") + np.arange(rows) * np.timedelta64(15, "m")
    rng = np.random.default_rng(5)
    quarter = np.arange(rows) % 96
    load = 100 + 20 * np.sin(2 * np.pi * quarter / 96) + np.where((quarter >= 30) & (quarter < 34), 40.0, 0.0)
    load = load + rng.standard_normal(rows)
    return Series(stamps, np.stack([load, rng.standard_normal(rows)], axis=1), ("load_mw", "wind_mw"), ("MW", "MW"))


def test_calendar_by_hand():
    stamps = np.array(["2025-01-06T00:00", "2025-01-06T06:00", "2025-01-11T12:00"], "datetime64[m]")  # Mon, Mon, Sat
    found = sampling.calendar(stamps)
    np.testing.assert_allclose(found[0], [0, 1, 0, 1, 0], atol=1e-12)
    np.testing.assert_allclose(found[1, :2], [1, 0], atol=1e-12)
    np.testing.assert_allclose(found[2], [0, -1, np.sin(10 * np.pi / 7), np.cos(10 * np.pi / 7), 1], atol=1e-12)


def test_calendar_channels_are_known_and_left_alone_by_z_scores():
    described = sampling.channels([sampling.with_calendar(ramp_series())])
    assert described.names == ("load_mw", "wind_mw", *sampling.CALENDAR)
    assert described.observed.tolist() == [0, 1]
    assert described.mean[2:].tolist() == [0.0] * 5
    assert described.std[2:].tolist() == [1.0] * 5
    assert described.low[2] == pytest.approx(-1)
    assert described.high[6] == 1.0


def test_a_constant_channel_is_refused():
    series = ramp_series()
    series.values[:, 1] = 3.0
    with pytest.raises(BadInput, match="column 'wind_mw' has the same value in every training row"):
        sampling.channels([series])


def test_block_features_by_hand():
    """Hours end inside the block: the block at row 4 of 0 1 2 3 9 5 6 7 has changes 9-0, 5-1, 6-2, 7-3."""
    target = np.array([0.0, 1, 2, 3, 9, 5, 6, 7, 8])
    largest, mean = sampling.block_features(target, np.array([4, 5]), 4)
    assert largest.tolist() == [9.0, 4.0]
    assert mean.tolist() == [6.75, 6.5]


def test_thresholds_are_the_percentiles_of_training_blocks():
    series = ramp_series(days=3)
    limits = sampling.thresholds([series], TASK)
    load = series.values[:, 0]
    starts = range(4, len(load) - 3)
    ramps = [max(abs(load[s + j] - load[s + j - 4]) for j in range(4)) for s in starts]
    means = [load[s : s + 4].mean() for s in starts]
    assert limits.ramp == pytest.approx(np.quantile(ramps, 0.8))
    assert limits.peak == pytest.approx(np.quantile(means, 0.75))


def test_ramp_comes_before_peak():
    limits = sampling.Thresholds(ramp=10.0, peak=100.0)
    found = sampling.regimes(np.array([11.0, 10.0, 1.0, 11.0]), np.array([200.0, 101.0, 100.0, 0.0]), limits)
    assert found.tolist() == ["ramp", "peak", "off_peak", "ramp"]


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 50), wanted=st.integers(1, 60))
def test_drawn_windows_are_disjoint_sorted_and_stratified(seed, wanted):
    series = ramp_series()
    task = TASK.model_copy(update={"windows_per_regime": wanted})
    limits = sampling.thresholds([series], task)
    sample = sampling.draw(series, task, limits, seed, "set", "T1")
    assert (np.diff(sample.starts) >= 12).all()  # context + horizon
    assert (sample.starts >= 8).all()
    assert (sample.starts + 4 <= len(series.stamps)).all()
    for regime in sampling.REGIMES:
        drawn = int((sample.regime == regime).sum())
        assert drawn == min(wanted, sample.available[regime])
        assert sample.shortfall[regime] == wanted - drawn
    assert sample.effective_n == len(sample.starts)
    assert sum(sample.available.values()) == (len(series.stamps) - 12) // 12 + 1


def test_a_draw_depends_on_seed_and_name_only():
    series = ramp_series()
    limits = sampling.thresholds([series], TASK)
    one = sampling.draw(series, TASK, limits, 1, "set", "T1").starts.tolist()
    assert one == sampling.draw(series, TASK, limits, 1, "set", "T1").starts.tolist()
    assert one != sampling.draw(series, TASK, limits, 2, "set", "T1").starts.tolist()
    assert one != sampling.draw(series, TASK, limits, 1, "set", "T2").starts.tolist()


def test_overlap_only_when_asked_and_with_its_effective_n():
    series = ramp_series(days=2)
    task = TASK.model_copy(update={"context": 24, "windows_per_regime": 4})
    limits = sampling.thresholds([series], task)
    plain = sampling.draw(series, task, limits, 0, "set")
    assert sum(plain.shortfall.values()) > 0
    assert plain.stride == 28
    dense = sampling.draw(series, task, limits, 0, "set", overlap=True)
    assert dense.stride < 28
    assert len(dense.starts) > len(plain.starts)
    assert dense.effective_n < len(dense.starts)
    assert dense.effective_n == sampling.disjoint(dense.starts, 28)


def test_disjoint_by_hand():
    assert sampling.disjoint(np.array([0, 3, 5, 9, 10]), 5) == 3  # 0, 5, 10


def test_a_series_shorter_than_a_window_is_refused():
    series = ramp_series(days=1)
    task = TASK.model_copy(update={"context": 200})
    with pytest.raises(BadInput, match="has 96 rows, but one window takes 204"):
        sampling.draw(series, task, sampling.Thresholds(1.0, 1.0), 0)


def test_windows_hold_the_steps_before_and_after_their_origin():
    series = ramp_series()
    described = sampling.channels([series])
    found = sampling.windows(series, TASK, described, np.array([8, 40]), np.array(["peak", "ramp"]))
    np.testing.assert_array_equal(found.context[1], series.values[32:40])
    np.testing.assert_array_equal(found.target[1], series.values[40:44, 0])
    assert found.origin[1] == series.stamps[40]


def test_training_windows_are_every_stride_of_every_series():
    one, two = ramp_series(days=2), ramp_series(days=1, start="2026-01-05")
    found = sampling.cut([one, two], TASK, sampling.channels([one, two]), 7)
    assert len(found) == len(range(8, 192 - 3, 7)) + len(range(8, 96 - 3, 7))
    assert set(found.regime) == {""}
    assert (np.diff(found.origin) > np.timedelta64(0, "m")).all()
    np.testing.assert_array_equal(found.context[1], one.values[7:15])


def test_splitting_shares_no_row():
    early, late = sampling.split(ramp_series(days=10), 0.15)
    assert len(early.stamps) == 816
    assert len(late.stamps) == 144
    assert early.stamps[-1] < late.stamps[0]


def test_climatology_needs_a_weekend():
    with pytest.raises(BadInput, match="no whole working day and whole weekend day"):
        sampling.climatology([ramp_series(days=3)])
    found = sampling.climatology([ramp_series(days=8, start="2025-01-06"), ramp_series(days=7, start="2025-03-03")])
    assert found.table.shape == (2, 96, 2)
    assert found.series.shape == (15 * 96, 2)
    assert found.weekend.sum() == 4


# ---------------------------------------------------------------------------------------------------- the stage


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    """A project with an imported series of 60 days and the smoke profile."""
    from explainbench.data._manifest import write_manifest
    from explainbench.data._tables import write_series
    from explainbench.data.custom import Custom

    root = tmp_path_factory.mktemp("project")
    series = ramp_series(days=80)
    write_series(root / "mine.parquet", series)
    Custom().bring(root / "mine.parquet", {}, root / "data" / "custom")
    write_manifest(root)
    (root / "params.yaml").write_text(
        "protocol: explainbench-1\nseed: 42\nruns: 2\nsuites:\n  energy:\n    dataset: custom\n    tasks:\n"
        "      T1: {target: load_mw, context: 8, horizon: 4, segment: 4, windows_per_regime: 3}\n"
        "    models: []\n    methods: []\n    metrics: []\n"
    )
    return Workspace.find(root)


def test_cut_and_load_round_trip(workspace):
    from explainbench.stages import data as stage

    params = load_params(workspace.params)
    cards = stage.cut_windows(workspace, params)
    first = (workspace.windows / "T1.npz").read_bytes()
    assert stage.cut_windows(workspace, params) == cards
    assert (workspace.windows / "T1.npz").read_bytes() == first  # no clock inside
    task = stage.load_task(workspace, "T1")
    assert task.windows.digest() == cards["T1"]["windows_sha256"]
    assert task.windows.context.shape == (9, 8, 7)
    assert task.climatology.table.shape == (2, 96, 7)
    assert task.dataset == "custom"
    assert task.windows.truth is None
    assert task.shortfall == {"ramp": 0, "peak": 0, "off_peak": 0}
    assert task.target_std == pytest.approx(task.windows.channels.std[0])


def test_a_changed_window_file_is_named(workspace):
    from explainbench.core.files import read_npz, write_npz
    from explainbench.stages import data as stage

    stage.cut_windows(workspace, load_params(workspace.params))
    path = workspace.windows / "T1.npz"
    arrays = read_npz(path)
    arrays["target"][0, 0] += 1e-9
    write_npz(path, arrays)
    with pytest.raises(Corrupt, match=r"T1\.npz has changed"):
        stage.load_task(workspace, "T1")


def test_users_data_are_split_70_15_15_in_time(workspace):
    from explainbench.stages import data as stage

    params = load_params(workspace.params)
    fitted, validation = stage.training_split(workspace, params, "T1")
    rows = 80 * 96
    start = np.datetime64("2025-01-06", "m")
    row = lambda stamp: int((stamp - start) / np.timedelta64(15, "m"))  # noqa: E731
    assert row(fitted.origin[-1]) + 4 <= round(rows * 0.70) < row(validation.origin[0]) - 8 + 1
    assert row(validation.origin[-1]) + 4 <= round(rows * 0.85)
    quality = stage.quality_windows(workspace, params, "T1")
    assert row(quality.origin[0]) - 8 >= round(rows * 0.85)


def test_describe_says_what_there_is(workspace):
    from explainbench.stages import data as stage

    found = stage.describe(workspace, load_params(workspace.params))
    assert found["dataset"] == "custom"
    assert found["benchmark"]["rows"] == 1152
    assert found["channels"]["load_mw"]["unit"] == "MW"
    assert found["tasks"]["T1"]["windows"] == 9


def test_an_unknown_task_is_named(workspace):
    from explainbench.stages import data as stage

    with pytest.raises(BadInput, match="task 'T9' is not in params"):
        stage.training_split(workspace, load_params(workspace.params), "T9")
