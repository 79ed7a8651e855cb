"""Users' files: what is accepted, and the one sentence for each thing that is wrong."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from explainbench.core.errors import BadInput, Unavailable
from explainbench.core.registry import DATASETS
from explainbench.core.workspace import Workspace
from explainbench.data import _tables
from explainbench.data._tables import read_source


def stamps(start: str, rows: int) -> list[str]:
    first = np.datetime64(start, "m")
    return [f"{first + i * np.timedelta64(15, 'm')}" for i in range(rows)]


def csv_of(rows: list[tuple[str, ...]], header: str = "timestamp,load_mw") -> str:
    return "\n".join([header, *(",".join(row) for row in rows)]) + "\n"


def good(rows: int = 12, start: str = "2024-01-01T00:00", suffix: str = "Z") -> list[tuple[str, ...]]:
    return [(stamp + suffix, f"{100 + i}.5") for i, stamp in enumerate(stamps(start, rows))]


def read(tmp_path, text: str | bytes, mapping: dict[str, str] | None = None):
    path = tmp_path / "mine.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_source(path, mapping or {})


def test_a_good_file(tmp_path):
    series = read(tmp_path, csv_of(good()))
    assert series.names == ("load_mw",)
    assert series.units == ("MW",)
    assert series.stamps[1] == np.datetime64("2024-01-01T00:15", "m")
    assert series.values[:, 0].tolist() == [100.5 + i for i in range(12)]


def test_mapping_picks_and_renames_columns(tmp_path):
    text = csv_of([(a, b, "x") for a, b in good()], "When,Load,Note")
    series = read(tmp_path, text, {"timestamp": "When", "load_mw": "Load"})
    assert series.names == ("load_mw",)
    assert len(series.stamps) == 12


@pytest.mark.parametrize("suffix", ["", "Z", "+00:00", "+0000", ":00Z", ":00.000Z"])
def test_utc_however_written(tmp_path, suffix):
    assert read(tmp_path, csv_of(good(suffix=suffix))).stamps[0] == np.datetime64("2024-01-01T00:00", "m")


def test_bom_blanks_at_the_end_and_spaces_are_forgiven(tmp_path):
    text = "\ufeff" + csv_of([(f" {a} ", f" {b}") for a, b in good()]) + "\n\n"
    assert len(read(tmp_path, text).stamps) == 12


def test_local_time_with_its_offset_crosses_a_clock_change(tmp_path):
    """01:45+01:00 is followed by 03:00+02:00: a quarter-hour later in UTC."""
    rows = [(f"2024-03-31T01:{m:02}+01:00", "1") for m in (0, 15, 30, 45)]
    rows += [(f"2024-03-31T03:{m:02}+02:00", "1") for m in (0, 15, 30, 45)]
    series = read(tmp_path, csv_of(rows))
    assert series.stamps[0] == np.datetime64("2024-03-31T00:00", "m")
    assert (np.diff(series.stamps) == np.timedelta64(15, "m")).all()


def changed(row: int, *cells: str, rows: int = 12) -> str:
    table = good(rows)
    table[row] = cells
    return csv_of(table)


def local_spring() -> str:
    night = [*stamps("2024-03-31T01:00", 4), *stamps("2024-03-31T03:00", 4)]
    return csv_of([(stamp, "1") for stamp in night])


def local_autumn() -> str:
    night = [*stamps("2024-10-27T02:00", 4), *stamps("2024-10-27T02:00", 8)]
    return csv_of([(stamp, "1") for stamp in night])


BAD = {
    "missing column": (csv_of(good(), "timestamp,Load"), r"mine\.csv has no column 'load_mw' for load_mw; its columns"),
    "no stamp column": (csv_of(good(), "time,load_mw"), r"no column 'timestamp' for timestamp.*--column timestamp="),
    "gap": (csv_of(good()[:5] + good()[8:]), r"line 7, .*: 3 rows are missing between .*T01:00 and .*T02:00"),
    "duplicate": (csv_of(good()[:5] + good()[4:]), r"line 7, .*: 2024-01-01T01:00 is a duplicate stamp"),
    "duplicate later": (csv_of([*good(), good()[3]]), r"line 14, .* is a duplicate stamp"),
    "unsorted": (csv_of(good()[4:] + good()[:4]), r"line 10, .* not in time order; sort them by 'timestamp'"),
    "hourly": (csv_of(good(48)[::4]), r"line 3, .*the step is 60 minutes .* not 15; resample"),
    "off the grid": (changed(3, "2024-01-01T00:47Z", "1"), r"line 5, .*00:47:00 is not on a quarter-hour"),
    "seconds": (changed(3, "2024-01-01T00:45:30Z", "1"), r"line 5, .*00:45:30 is not on a quarter-hour"),
    "empty cell": (changed(2, "2024-01-01T00:30Z", ""), r"line 4, column 'load_mw': the value is missing \(NaN\)"),
    "NaN": (changed(2, "2024-01-01T00:30Z", "NaN"), r"line 4, column 'load_mw': the value is missing \(NaN\)"),
    "infinite": (changed(2, "2024-01-01T00:30Z", "-inf"), r"line 4, column 'load_mw': the value is infinite"),
    "overflow": (changed(2, "2024-01-01T00:30Z", "1e999"), r"line 4, column 'load_mw': the value is infinite"),
    "text": (changed(2, "2024-01-01T00:30Z", "12 MW"), r"line 4, column 'load_mw': '12 MW' is not a number"),
    "underscore": (changed(2, "2024-01-01T00:30Z", "1_000"), r"line 4, column 'load_mw': '1_000' is not a number"),
    "decimal comma": (changed(2, "2024-01-01T00:30Z", "1", "5"), r"line 4: 3 cells under a header of 2"),
    "missing stamp": (changed(2, "", "1"), r"line 4, column 'timestamp': the stamp is missing"),
    "American date": (changed(0, "01/02/2024 00:00", "1"), r"line 2, .*'01/02/2024 00:00' is not a stamp; write ISO"),
    "no such day": (changed(0, "2024-02-30T00:00Z", "1"), r"line 2, .*'2024-02-30T00:00Z' is not a stamp"),
    "offset lost": (changed(2, "2024-01-01T00:30", "1"), r"line 4, .*lacks an offset from UTC, unlike the rows before"),
    "offset appears": (csv_of([*good(3, suffix=""), ("2024-01-01T00:45+01:00", "1")]), r"line 5, .*has an offset"),
    "local spring": (local_spring(), r"line 6, .*the clock jumps an hour ahead .*daylight-saving change; write"),
    "local autumn": (local_autumn(), r"line 6, .*the clock repeats an hour .*daylight-saving change"),
    "blank line": (csv_of(good()).replace("\n2024-01-01T00:30", "\n\n2024-01-01T00:30"), r"line 4: the line is blank"),
    "semicolons": (csv_of(good()).replace(",", ";"), r"something other than commas"),
    "same column twice": (csv_of(good(), "timestamp,timestamp"), r"2 columns called 'timestamp'"),
    "unclosed quote": (csv_of(good()) + '2024-01-01T03:00Z,"1', r"line 14: not readable as CSV"),
    "not UTF-8": (csv_of(good()).encode() + b"\xff", r"is not UTF-8 text"),
    "header only": ("timestamp,load_mw\n", r"has a header but no rows"),
    "empty file": ("", r"mine\.csv is empty"),
    "no channel": (csv_of([row[:1] for row in good()], "timestamp"), r"no column but 'timestamp'; add at least one"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_each_bad_file_has_its_sentence(tmp_path, name):
    text, message = BAD[name]
    mapping = {"load_mw": "load_mw"} if name == "missing column" else {}
    with pytest.raises(BadInput, match=message) as caught:
        read(tmp_path, text, mapping)
    assert "\n" not in str(caught.value)


def test_files_that_are_missing_or_too_large(tmp_path, monkeypatch):
    with pytest.raises(BadInput, match="does not exist"):
        read_source(tmp_path / "none.csv", {})
    monkeypatch.setattr(_tables, "MAX_ROWS", 10)
    with pytest.raises(BadInput, match="more than the 10 rows allowed"):
        read(tmp_path, csv_of(good()))
    monkeypatch.setattr(_tables, "MAX_BYTES", 10)
    with pytest.raises(BadInput, match="more than the 10 allowed"):
        read(tmp_path, csv_of(good()))


def parquet(tmp_path, columns):
    path = tmp_path / "mine.parquet"
    pq.write_table(pa.table(columns), path)
    return path


def test_parquet_with_a_zone_becomes_utc(tmp_path):
    moments = pa.array(
        np.array(stamps("2024-03-31T00:00", 8), "datetime64[us]"), pa.timestamp("us", tz="Europe/Berlin")
    )
    series = read_source(parquet(tmp_path, {"timestamp": moments, "load_mw": pa.array(range(8))}), {})
    assert series.stamps[0] == np.datetime64("2024-03-31T00:00", "m")
    assert series.values.dtype == np.float64


def test_bad_parquet(tmp_path):
    moments = pa.array(np.array(stamps("2024-01-01T00:00", 3), "datetime64[us]"))
    with pytest.raises(BadInput, match=r"row 2, column 'load_mw': the value is missing"):
        read_source(parquet(tmp_path, {"timestamp": moments, "load_mw": pa.array([1, None, 3])}), {})
    with pytest.raises(BadInput, match=r"row 2, column 'load_mw': 'b' is not a number"):
        read_source(parquet(tmp_path, {"timestamp": moments, "load_mw": pa.array(["1", "b", "3"])}), {})
    with pytest.raises(BadInput, match=r"column 'timestamp': int64 is not a stamp"):
        read_source(parquet(tmp_path, {"timestamp": pa.array([1, 2, 3]), "load_mw": pa.array([1, 2, 3])}), {})
    (tmp_path / "no.parquet").write_bytes(b"not one")
    with pytest.raises(BadInput, match="not readable as Parquet"):
        read_source(tmp_path / "no.parquet", {})


# ------------------------------------------------------------------------------------------------------- import


def project(tmp_path) -> Workspace:
    (tmp_path / "params.yaml").write_text("protocol: x\n")
    return Workspace.find(tmp_path)


def write(tmp_path, text: str):
    path = tmp_path / "mine.csv"
    path.write_text(text)
    return path


def test_import_writes_the_series_whole(tmp_path):
    from explainbench.data._manifest import verify_manifest
    from explainbench.stages.data import import_table

    workspace = project(tmp_path)
    found = import_table(workspace, write(tmp_path, csv_of(good(200))), "custom", {})
    assert found["training"][0]["rows"] == 170
    assert found["benchmark"]["rows"] == 30
    assert sorted(verify_manifest(workspace.root)) == ["data/custom/card.json", "data/custom/series.parquet"]
    again = import_table(workspace, write(tmp_path, csv_of(good(100))), "custom", {})  # replaces the earlier one
    assert again["benchmark"]["rows"] == 15


def test_a_refused_import_leaves_everything_as_it_was(tmp_path):
    from explainbench.stages.data import import_table

    workspace = project(tmp_path)
    import_table(workspace, write(tmp_path, csv_of(good(200))), "custom", {})
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".csv"}
    with pytest.raises(BadInput):
        import_table(workspace, write(tmp_path, changed(2, "2024-01-01T00:30Z", "x")), "custom", {})
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".csv"}
    assert before == after


def test_a_full_disk_leaves_everything_as_it_was(tmp_path, monkeypatch):
    from explainbench.data.custom import Custom

    source = write(tmp_path, csv_of(good(200)))
    Custom().bring(source, {}, tmp_path / "data" / "custom")
    before = (tmp_path / "data" / "custom" / "card.json").read_bytes()

    def full(path, value):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_tables, "write_json", full)
    with pytest.raises(Unavailable, match="No space left on device"):
        Custom().bring(write(tmp_path, csv_of(good(100))), {}, tmp_path / "data" / "custom")
    assert (tmp_path / "data" / "custom" / "card.json").read_bytes() == before
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["custom"]


def test_the_real_file_must_have_its_rows_and_its_targets(tmp_path):
    from explainbench.stages.data import import_table

    workspace = project(tmp_path)
    table = [(stamp + "Z", "1", "2", f"{i}") for i, stamp in enumerate(stamps("2024-01-01T00:00", 40))]
    with pytest.raises(BadInput, match="no column 'energy_price_usd_mwh'"):
        import_table(workspace, write(tmp_path, csv_of(good())), "bqeb", {})
    header = "timestamp,load_mw,energy_price_usd_mwh,wind_mw"
    with pytest.raises(BadInput, match="has 40 rows, but BQEB-Data v1 has 10,512"):
        import_table(workspace, write(tmp_path, csv_of(table, header)), "bqeb", {})
    whole = [(stamp + "Z", f"{i}", "2", "3") for i, stamp in enumerate(stamps("2024-01-01T00:00", 10_512))]
    found = import_table(workspace, write(tmp_path, csv_of(whole, header)), "bqeb", {})
    assert found["channels"] == ["load_mw", "energy_price_usd_mwh", "wind_mw"]
    assert DATASETS.card("bqeb").version == "bqeb-v1"


def test_what_cannot_be_imported_or_simulated(tmp_path):
    from explainbench.core.params import load_params
    from explainbench.stages.data import import_table, simulate

    workspace = project(tmp_path)
    with pytest.raises(BadInput, match="is simulated, not imported"):
        import_table(workspace, write(tmp_path, csv_of(good())), "bqeb_standin", {})
    workspace.params.write_text(
        "protocol: x\nseed: 1\nruns: 1\n"
        "suites: {energy: {dataset: custom, tasks: {}, models: [], methods: [], metrics: []}}\n"
    )
    with pytest.raises(BadInput, match="is not simulated; bring its file in"):
        simulate(workspace, load_params(workspace.params))
    with pytest.raises(BadInput, match="does not exist; bring your file in with"):
        DATASETS.build("custom").benchmark(tmp_path / "data" / "custom")
