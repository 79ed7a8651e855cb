"""The stand-in grid: its bytes, its plausibility in numbers, and its true drivers against finite differences."""

from dataclasses import replace

import numpy as np
import pyarrow
import pytest

from explainbench.core.cell import stream
from explainbench.core.files import read_json
from explainbench.core.params import FunctionalParams, TaskParams
from explainbench.core.provenance import sha256_file
from explainbench.data import _grid_model as grid
from explainbench.data._manifest import read_manifest
from explainbench.data.bqeb_standin import BENCHMARK, BqebStandin, _weights

T1 = TaskParams(target="load_mw", context=96, horizon=4, segment=8, windows_per_regime=2)
T2 = TaskParams(target="energy_price_usd_mwh", context=192, horizon=96, segment=16, windows_per_regime=2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("standin")
    BqebStandin().simulate(place)
    return place


@pytest.fixture(scope="module")
def realisation():
    return BqebStandin().realise(BENCHMARK)


def test_the_simulator_still_produces_the_committed_bytes(folder, root):
    if not (root / "data.manifest.json").is_file():
        pytest.skip("no data.manifest.json here")
    expected = read_manifest(root)
    if read_json(folder / "card.json")["written_with"]["pyarrow"] != pyarrow.__version__:
        pytest.skip("Parquet bytes belong to another pyarrow")
    committed = {name.rsplit("/", 1)[1]: entry for name, entry in expected.items() if "/bqeb_standin/" in name}
    assert {path.name: sha256_file(path) for path in folder.iterdir()} == {
        name: entry["sha256"] for name, entry in committed.items()
    }


def test_other_seeds_give_other_series_and_realisations_differ():
    one, other = BqebStandin(seed=1).realise(BENCHMARK), BqebStandin(seed=2).realise(BENCHMARK)
    assert not np.allclose(one.values, other.values)


def test_shape_order_and_span(folder):
    series = BqebStandin().benchmark(folder)
    assert series.names == ("load_mw", "energy_price_usd_mwh", "temperature_c", "solar_mw", "wind_mw")
    assert series.values.shape == (10_512, 5)
    assert series.stamps.dtype == np.dtype("datetime64[m]")
    assert (np.diff(series.stamps) == np.timedelta64(15, "m")).all()
    years = BqebStandin().training(folder)
    assert [len(year.stamps) for year in years] == [35_040, 35_040]
    assert all((np.diff(year.stamps) == np.timedelta64(15, "m")).all() for year in years)


def test_a_grid_engineer_would_accept_the_numbers(folder):
    year = BqebStandin().training(folder)[1]
    load, price, _, solar, wind = year.values.T
    hour = (year.stamps - year.stamps.astype("datetime64[D]")).astype(int) // 60
    weekend = (year.stamps.astype("datetime64[D]").astype(int) + 3) % 7 >= 5
    winter = np.isin(year.stamps.astype("datetime64[M]").astype(int) % 12, (11, 0, 1))
    day = np.array([load[winter & ~weekend & (hour == h)].mean() for h in range(24)])
    assert day[8] > day[13] < day[18]
    assert day[3] < 0.8 * day[8]
    assert load[weekend].mean() < 0.92 * load[~weekend].mean()
    assert (solar[(hour < 3) | (hour > 21)] == 0).all()
    assert solar.min() == 0
    assert price.max() == 500.0
    assert 0.02 < (price > 150).mean() < 0.06
    assert 0.005 < (price < 0).mean() < 0.05
    residual = load - solar - wind
    assert np.corrcoef(residual, price)[0, 1] > np.corrcoef(load, price)[0, 1]  # renewables suppress the price
    assert np.abs(np.diff(wind)).std() < 0.05 * 1400  # ramps of a fleet, not of one turbine
    means = [year.values[i : i + 96 * 7] for i in range(0, 35_000, 96 * 7)]
    cold, mild, hot = (
        np.mean([m[:, 0].mean() for m in means if low < m[:, 2].mean() <= high])
        for low, high in ((-30, 2), (13, 18), (22, 40))
    )
    assert cold > mild + 400
    assert hot > mild + 50


@pytest.mark.parametrize("task", [T1, T2], ids=["T1", "T2"])
def test_truth_is_a_share_over_steps_and_channels(folder, task):
    data = BqebStandin()
    stamps = data.benchmark(folder).stamps
    truth = data.truth(folder, task, stamps[[960, 4000, 8123]])
    assert truth is not None
    assert truth.shape == (3, task.context, 5)
    assert (truth >= 0).all()
    np.testing.assert_allclose(truth.sum(axis=(1, 2)), 1.0, rtol=1e-12)
    if task is T1:  # the load equation knows no price, sun or wind
        assert (truth[:, :, [grid.PRICE, grid.SOLAR, grid.WIND]] == 0).all()
    else:
        assert (truth.sum(axis=1) > 0).all()


def test_truth_is_unknown_for_other_targets_and_refuses_foreign_origins(folder):
    data = BqebStandin()
    assert data.truth(folder, T1.model_copy(update={"target": "wind_mw"}), np.array([], "datetime64[m]")) is None
    with pytest.raises(Exception, match="quarter-hours of the benchmark"):
        data.truth(folder, T1, np.array(["2031-01-01"], "datetime64[m]"))


def test_seasonal_memory_by_hand():
    """x[k+1] = a x[k] + b x[k-95] - ab x[k-96]; x[k+2] = a x[k+1] + b x[k-94] - ab x[k-95]."""
    memory = grid.Seasonal(short=0.5, daily=0.3, sd=1.0).response(2, 97)
    assert memory[0, [0, 95, 96]].tolist() == [0.5, 0.3, -0.15]
    np.testing.assert_allclose(memory[1, [0, 94, 95, 96]], [0.25, 0.3, 0.0, -0.075], atol=1e-15)


def test_seasonal_noise_has_the_deviation_it_declares():
    drawn = grid.Seasonal(short=0.9, daily=0.5, sd=3.0).simulate(stream(0, "deviation"), 300_000)
    assert drawn.std() == pytest.approx(3.0, rel=0.02)


def test_functional_weights():
    block = np.array([[1.0, 5.0, 2.0, 4.0]])
    assert _weights(T1, block).tolist() == [[0.25] * 4]
    largest = T1.model_copy(update={"functional": FunctionalParams(kind="max")})
    assert _weights(largest, block).tolist() == [[0.0, 1.0, 0.0, 0.0]]
    part = T1.model_copy(update={"functional": FunctionalParams(kind="block_mean", first=1, last=3)})
    assert _weights(part, block).tolist() == [[0.0, 0.5, 0.5, 0.0]]


def _forward(region, anomalies, observed, start, steps, horizon):
    """The block means (load, price) when the context's observed load and price are `observed` and later noise is kept.

    anomalies: with perturbed temperature, cloud and wind; the load and price noise of the context is solved for.
    """
    stamps = np.datetime64("2024-02-05", "m") + np.arange(start + horizon) * np.timedelta64(15, "m")
    context = slice(start - steps, start)
    original_load, original_price = anomalies.load.copy(), anomalies.price.copy()
    load, price = original_load.copy(), original_price.copy()
    run = grid.equations(region, stamps, replace(anomalies, load=load, price=price))
    load[context] += observed[:, 0] - run.values[context, 0]
    run = grid.equations(region, stamps, replace(anomalies, load=load, price=price))
    free = run.slopes.price_free[context] & (observed[:, 1] < region.price_cap)
    price[context] += np.where(free, observed[:, 1] - run.values[context, 1], 0.0)
    for memory, new, old in (
        (region.load_noise, load, original_load),
        (region.price_noise, price, original_price),
    ):
        change = new - old  # the same innovations: the change follows the homogeneous recursion
        for k in range(start, start + horizon):
            change[k] = (
                memory.short * change[k - 1]
                + memory.daily * change[k - 96]
                - memory.short * memory.daily * change[k - 97]
            )
        new[start:] = old[start:] + change[start:]
    run = grid.equations(region, stamps, replace(anomalies, load=load, price=price))
    return run.values[start:, :2].mean(axis=0)


@pytest.mark.parametrize(
    ("target", "steps", "horizon", "start"),
    [(grid.LOAD, 96, 4, 500), (grid.PRICE, 192, 96, 500), (grid.PRICE, 60, 24, 1200 + 20)],
    ids=["load", "price", "price from a night"],
)
def test_sensitivity_agrees_with_finite_differences(target, steps, horizon, start):
    region = grid.Region()
    rows = start + horizon
    stamps = np.datetime64("2024-02-05", "m") + np.arange(rows) * np.timedelta64(15, "m")
    anomalies = grid.draw(region, lambda part: stream(11, "small", part), rows)
    base = grid.equations(region, stamps, anomalies)
    observed = base.values[start - steps : start, :2]
    weights = np.full((1, horizon), 1.0 / horizon)
    closed = grid.sensitivity(region, base.slopes, np.array([start]), steps, weights, target)[0]
    up = np.flatnonzero(base.slopes.solar_per_sd[:start] > 0)[-1]  # last step of the context in daylight
    size = 1e-4
    checked = sorted({0, 1, 5, steps // 2, steps - 40, steps - 2, steps - 1, int(up) - (start - steps)})
    for step in checked:
        row = start - steps + step
        for channel in range(5):
            if channel == grid.SOLAR and base.slopes.solar_per_sd[row] == 0:
                assert closed[step, channel] == 0  # nothing to see at night
                continue
            ends = []
            for sign in (1, -1):
                moved, seen = anomalies, observed.copy()
                move = np.zeros(rows)
                move[row] = sign * size
                if channel == grid.LOAD:
                    seen[step, 0] += sign * size * region.load_noise.sd
                elif channel == grid.PRICE:
                    if base.slopes.price_free[row]:
                        seen[step, 1] += sign * size * region.price_noise.sd
                elif channel == grid.TEMPERATURE:
                    if row == start - 1:
                        move[row:] = sign * size * np.exp(-np.arange(horizon + 1) / region.temperature_memory)
                    moved = replace(anomalies, temperature=anomalies.temperature + region.temperature_sd * move)
                elif channel == grid.SOLAR:
                    if row == up:
                        move[row:] = sign * size * np.exp(-np.arange(rows - row) / region.cloud_memory)
                    moved = replace(anomalies, cloud=anomalies.cloud + move)
                else:
                    if row == start - 1:
                        move[row:] = sign * size * np.exp(-np.arange(horizon + 1) / region.wind_memory)
                    moved = replace(anomalies, wind=anomalies.wind + move)
                ends.append(_forward(region, moved, seen, start, steps, horizon)[target])
            slope = (ends[0] - ends[1]) / (2 * size)
            assert closed[step, channel] == pytest.approx(slope, rel=1e-4, abs=1e-5), (step, grid.CHANNELS[channel])


def test_rows_of_the_drivers_match_the_realisation(folder, realisation):
    from explainbench.data._tables import read_parquet

    drivers = read_parquet(folder / "drivers.parquet")
    np.testing.assert_allclose(drivers["load_per_degree"], realisation.slopes.load_per_degree, atol=1e-3)
    assert (drivers["price_free"] == realisation.slopes.price_free).all()
