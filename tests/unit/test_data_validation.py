"""The manifest and the expectations: what holds, and what is said where it does not."""

import json

import numpy as np
import pytest

from explainbench.core.dataset import Series
from explainbench.core.errors import BadInput, Corrupt
from explainbench.core.params import load_params
from explainbench.core.workspace import Workspace
from explainbench.data import _expectations as expectations
from explainbench.data._manifest import dataset_sha256, verify_manifest, write_manifest
from explainbench.data._tables import write_series


def grid_series(days: int = 40) -> Series:
    rows = days * 96
    stamps = np.datetime64("2025-01-06", "m") + np.arange(rows) * np.timedelta64(15, "m")
    rng = np.random.default_rng(1)
    quarter = np.arange(rows) % 96
    load = 100 + 20 * np.sin(2 * np.pi * quarter / 96) + np.where((quarter >= 30) & (quarter < 34), 40.0, 0.0)
    return Series(stamps, np.stack([load + rng.standard_normal(rows)], axis=1), ("load_mw",), ("MW",))


def test_the_manifest_names_what_changed(tmp_path):
    (tmp_path / "data" / "one").mkdir(parents=True)
    (tmp_path / "data" / "two").mkdir()
    file = tmp_path / "data" / "one" / "a.txt"
    file.write_text("abc")
    (tmp_path / "data" / "two" / "b.txt").write_text("b")
    (tmp_path / "data" / ".gitignore").write_text("x")
    with pytest.raises(BadInput, match="does not exist; run `explainbench data simulate`"):
        verify_manifest(tmp_path)
    write_manifest(tmp_path)
    assert sorted(verify_manifest(tmp_path)) == ["data/one/a.txt", "data/two/b.txt"]
    first = dataset_sha256(tmp_path, "one")
    file.write_text("abd")
    abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    with pytest.raises(Corrupt, match=f"data/one/a.txt has changed: data.manifest.json expects sha256 {abc}, found "):
        verify_manifest(tmp_path)
    write_manifest(tmp_path)
    assert dataset_sha256(tmp_path, "one") != first
    file.unlink()
    with pytest.raises(Corrupt, match=r"data/one/a.txt is listed .* but is not there"):
        verify_manifest(tmp_path)
    file.write_text("abd")
    (tmp_path / "data" / "one" / "extra").write_text("")
    with pytest.raises(Corrupt, match=r"data/one/extra is not listed"):
        verify_manifest(tmp_path)
    with pytest.raises(BadInput, match="lists no file of dataset 'three'"):
        dataset_sha256(tmp_path, "three")
    (tmp_path / "data.manifest.json").write_text("[]")
    with pytest.raises(Corrupt, match="is not a data manifest"):
        verify_manifest(tmp_path)


def broken(change) -> str:
    series = grid_series(2)
    series = change(Series(series.stamps.copy(), series.values.copy(), series.names, series.units))
    result = expectations.validate("mine", [expectations.series_table("benchmark", series, 192)])
    assert not result["success"]
    sentence = expectations.failure(result)
    assert sentence is not None
    json.dumps(result, allow_nan=False)
    return sentence


def put(row: int, value: float):
    def change(series: Series) -> Series:
        series.values[row, 0] = value
        return series

    return change


def late(series: Series) -> Series:
    series.stamps[50:] += np.timedelta64(60, "m")
    return series


def twice(series: Series) -> Series:
    series.stamps[7] = series.stamps[6]
    return series


def short(series: Series) -> Series:
    return Series(series.stamps[:100], series.values[:100], series.names, series.units)


def test_every_rule_can_break_and_says_column_row_and_rule():
    assert "column 'load_mw': no value is missing - broken at row 5" in broken(put(5, np.nan))
    assert "column 'load_mw': values are finite and from 0 to 200000 - broken at row 9 (inf)" in broken(put(9, np.inf))
    assert "broken at row 9 (-5.0)" in broken(put(9, -5.0))
    sentence = broken(late)
    assert "column 'timestamp': each row is 15 minutes after the one before" in sentence
    assert "row 50" in sentence
    assert "column 'timestamp': no stamp occurs twice - broken at row 6, 7" in broken(twice)
    assert "there are 192 rows - broken at found 100" in broken(short)
    kinds = {"T1": np.array(["ramp", "peak"])}
    result = expectations.validate("mine", expectations.coverage_tables(kinds, ("ramp", "peak", "off_peak")))
    assert "each of ramp, peak, off_peak occurs" in str(expectations.failure(result))


@pytest.fixture
def workspace(tmp_path):
    from explainbench.data.custom import Custom

    write_series(tmp_path / "mine.parquet", grid_series())
    Custom().bring(tmp_path / "mine.parquet", {}, tmp_path / "data" / "custom")
    write_manifest(tmp_path)
    (tmp_path / "params.yaml").write_text(
        "protocol: explainbench-1\nseed: 42\nruns: 2\nsuites:\n  energy:\n    dataset: custom\n    tasks:\n"
        "      T1: {target: load_mw, context: 8, horizon: 4, segment: 4, windows_per_regime: 3}\n"
        "    models: []\n    methods: []\n    metrics: []\n"
    )
    return Workspace.find(tmp_path, tmp_path / "out")


def test_verify_writes_the_same_json_and_page_each_time(workspace):
    from explainbench.stages.data import verify_data

    params = load_params(workspace.params)
    result = verify_data(workspace, params)
    assert result["success"]
    folder = workspace.results / "validation"
    first = {path.name: path.read_bytes() for path in folder.iterdir()}
    verify_data(workspace, params)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == first
    assert set(first) == {"custom.json", "custom.html"}  # no picture without the channels of a grid
    page = first["custom.html"].decode()
    assert "all rules hold" in page
    assert "<script" not in page
    assert "http" not in page
    assert json.loads(first["custom.json"])["tables"]["benchmark series"]["rows"] == 576


def test_a_broken_rule_stops_the_stage_after_writing_the_page(workspace):
    from explainbench.stages.data import verify_data

    series = grid_series()
    series.values[-3, 0] = -1.0
    write_series(workspace.data / "custom" / "series.parquet", series)
    with pytest.raises(Corrupt, match=r"series.parquet has changed"):
        verify_data(workspace, load_params(workspace.params))
    write_manifest(workspace.root)
    with pytest.raises(BadInput, match=r"benchmark series, column 'load_mw': values are finite .* row 573 \(-1.0\)"):
        verify_data(workspace, load_params(workspace.params))
    assert "some rules are broken" in (workspace.results / "validation" / "custom.html").read_text()


def test_the_picture_is_drawn_for_a_grid_and_only_then(tmp_path):
    from explainbench.data._plausibility import plausibility_png
    from explainbench.data.bqeb_standin import BENCHMARK, BqebStandin, Span, _rounded

    year = _rounded(BqebStandin().realise(Span("small", "2022-01-01", 96 * 35)))
    png = plausibility_png(year, year, "title")
    assert png is not None
    assert png.startswith(b"\x89PNG")
    assert plausibility_png(grid_series(), grid_series(), "title") is None
    assert BENCHMARK.rows == 10_512
