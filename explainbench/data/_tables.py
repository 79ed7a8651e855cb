"""Tables of quarter-hourly series in and out: Parquet whose bytes are fixed, and the strict parsing of users' files."""

from __future__ import annotations

import csv
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from explainbench.core.arrays import Floats, Stamps
from explainbench.core.dataset import Series
from explainbench.core.errors import BadInput, Corrupt, Unavailable
from explainbench.core.files import atomic_path, read_json, write_json
from explainbench.core.provenance import sha256_file

STAMP = "timestamp"
MAX_ROWS = 1_000_000  # 28 years of quarter-hours
MAX_BYTES = 512 * 2**20
STEP_SECONDS = 15 * 60
BENCHMARK_SHARE = 0.15
VALIDATION_OF_TRAINING = 15 / 85  # 15 % of all rows, as a share of the first 85 %
UNITS = {"load_mw": "MW", "energy_price_usd_mwh": "USD/MWh", "temperature_c": "degC", "solar_mw": "MW", "wind_mw": "MW"}
_ISO = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d)(?::(\d\d)(?:\.0*)?)?(?: ?(Z|[+-]\d\d:?\d\d))?")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?inf(inity)?", re.IGNORECASE)
_MISSING = {"", "nan", "na", "n/a", "null", "none", "-"}


def write_parquet(path: Path, columns: Mapping[str, NDArray[Any]]) -> None:
    """Write columns as Parquet with fixed settings, so always the same bytes; stamps become UTC milliseconds."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    arrays = {
        name: pa.array(values.astype("datetime64[ms]"), pa.timestamp("ms", tz="UTC"))
        if values.dtype.kind == "M"
        else pa.array(values)
        for name, values in columns.items()
    }
    split = [name for name, values in columns.items() if values.dtype.kind == "f"]
    with atomic_path(path) as temporary:
        pq.write_table(
            pa.table(arrays),
            temporary,
            compression="zstd",
            compression_level=9,
            use_dictionary=False,
            use_byte_stream_split=split,  # pyright: ignore[reportArgumentType]  a list of columns is allowed too
            write_statistics=False,
            row_group_size=MAX_ROWS,
            store_schema=False,
            version="2.6",
        )


def read_parquet(path: Path) -> dict[str, NDArray[Any]]:
    """Columns of a Parquet file this project wrote; stamps as datetime64[m] in UTC. Raises BadInput or Corrupt."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.is_file():
        raise BadInput(f"{path} does not exist; run `dvc pull`, `explainbench data simulate` or `data import`.")
    try:
        if pq.read_metadata(path).num_rows > MAX_ROWS:
            raise BadInput(f"{path} has more than {MAX_ROWS} rows; it is not a file this project wrote.")
        table = pq.read_table(path)
        found: dict[str, NDArray[Any]] = {}
        for name in table.column_names:
            values = table.column(name).to_numpy()
            found[name] = values.astype("datetime64[m]") if values.dtype.kind == "M" else values
        return found
    except (pa.ArrowException, OSError) as error:
        raise Corrupt(f"{path} is not readable as Parquet ({str(error).splitlines()[0]}); restore it.") from error


def write_series(path: Path, series: Series) -> None:
    """Write a series: the stamp column and one column per channel."""
    columns = {STAMP: series.stamps} | {name: series.values[:, c] for c, name in enumerate(series.names)}
    write_parquet(path, columns)


def as_series(
    columns: Mapping[str, NDArray[Any]], path: Path, names: tuple[str, ...], units: tuple[str, ...]
) -> Series:
    """The named columns of a file this project wrote, as a series. Raises Corrupt when one is missing."""
    for name in (STAMP, *names):
        if name not in columns:
            raise Corrupt(f"{path} has no column {name!r}; restore it or run the stage that writes it again.")
    return Series(columns[STAMP], np.stack([columns[name] for name in names], axis=1).astype(np.float64), names, units)


def write_imported(folder: Path, series: Series, source: Path, mapping: Mapping[str, str]) -> None:
    """Write an imported series and its card into `folder`: both files or neither. Replaces an earlier import."""
    early, late = split_imported(series)
    staged = folder.with_name(f".{folder.name}.importing")
    old = folder.with_name(f".{folder.name}.old")
    for leftover in (staged, old):
        shutil.rmtree(leftover, ignore_errors=True)
    try:
        write_series(staged / "series.parquet", series)
        write_json(
            staged / "card.json",
            {
                "source": {"name": source.name, "sha256": sha256_file(source)},
                "mapping": dict(mapping),
                "channels": [list(pair) for pair in zip(series.names, series.units, strict=True)],  # in order
                "training": [{"start": str(early.stamps[0]), "rows": len(early.stamps)}],
                "benchmark": {"start": str(late.stamps[0]), "rows": len(late.stamps)},
            },
        )
        if folder.exists():
            folder.rename(old)
        staged.rename(folder)
    except OSError as error:
        raise Unavailable(f"{folder} could not be written ({error.strerror or error}); nothing was changed.") from error
    finally:
        if old.exists() and not folder.exists():
            old.rename(folder)
        shutil.rmtree(staged, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def read_imported(folder: Path) -> Series:
    """The series that `write_imported` wrote. Raises BadInput when nothing was imported, or Corrupt."""
    path = folder / "series.parquet"
    if not path.is_file():
        raise BadInput(
            f"{path} does not exist; bring your file in with `explainbench data import --name {folder.name}`."
        )
    card = read_json(folder / "card.json")
    try:
        names, units = zip(*card["channels"], strict=True)
    except (KeyError, TypeError, ValueError) as error:
        raise Corrupt(f"{folder / 'card.json'} does not list the channels; import the file again.") from error
    return as_series(read_parquet(path), path, names, units)


def split_imported(series: Series) -> tuple[Series, Series]:
    """Chronological: the first 85 % (training and validation) and the last 15 % (benchmark). Raises BadInput."""
    cut = round(len(series.stamps) * (1 - BENCHMARK_SHARE))
    if not 0 < cut < len(series.stamps):
        raise BadInput(f"a series of {len(series.stamps)} rows cannot be split 70/15/15; give a longer one.")
    early = replace(series, stamps=series.stamps[:cut], values=series.values[:cut])
    return early, replace(series, stamps=series.stamps[cut:], values=series.values[cut:])


@dataclass(frozen=True, slots=True, eq=False)
class _Source:
    """A user's file as columns. Row i is line i + 2 of a CSV and row i + 1 of a Parquet file, as its owner counts."""

    name: str
    columns: dict[str, NDArray[Any]]
    rows: int
    text: bool

    def at(self, row: int | np.integer, column: str) -> str:
        """Where a cell is, in words."""
        place = f"line {row + 2}" if self.text else f"row {row + 1}"
        return f"{self.name}, {place}, column {column!r}"


def read_source(
    path: Path, mapping: Mapping[str, str], required: Sequence[str] = (), optional: Sequence[str] = ()
) -> Series:
    """A user's CSV or Parquet file as a series, or one sentence that says which file, row and column is wrong.

    mapping: our name -> the file's column, for the stamp and the channels; names in `required` and `optional` stand for
    themselves where they are not mapped. Where none of these names a channel, every column but the stamp is one.
    Stamps are ISO 8601, in UTC or with their offset. Raises BadInput.
    """
    source = _open(path)
    stamp = mapping.get(STAMP, STAMP)
    known = [*required, *(name for name in optional if name in mapping or name in source.columns)]
    known += [name for name in mapping if name != STAMP and name not in known]
    columns = {name: mapping.get(name, name) for name in known}
    if not columns:
        columns = {name: name for name in source.columns if name != stamp}
    for ours, theirs in ((STAMP, stamp), *columns.items()):
        if theirs not in source.columns:
            raise BadInput(
                f"{path.name} has no column {theirs!r} for {ours}; its columns are {', '.join(source.columns)}. "
                f"Name the right one with --column {ours}=NAME."
            )
    if not columns:
        raise BadInput(f"{path.name} has no column but {stamp!r}; add at least one channel.")
    if source.rows == 0:
        raise BadInput(f"{path.name} has a header but no rows; export it again.")
    stamps = _stamps(source, stamp)
    values = np.stack([_numbers(source, theirs) for theirs in columns.values()], axis=1)
    return Series(stamps, values, tuple(columns), tuple(UNITS.get(name, "1") for name in columns))


def _open(path: Path) -> _Source:
    if not path.is_file():
        raise BadInput(f"{path} does not exist; give the path of a CSV or Parquet file.")
    size = path.stat().st_size
    if size == 0:
        raise BadInput(f"{path.name} is empty; export it again.")
    if size > MAX_BYTES:
        raise BadInput(f"{path.name} has {size} bytes, more than the {MAX_BYTES} allowed; keep only the rows you need.")
    return _open_parquet(path) if path.suffix.lower() in (".parquet", ".pq") else _open_csv(path)


def _open_parquet(path: Path) -> _Source:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        _allow(path, pq.read_metadata(path).num_rows)
        table = pq.read_table(path)
        columns = {name: table.column(name).to_numpy() for name in table.column_names}
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise BadInput(f"{path.name} is not readable as Parquet ({reason}); export it again.") from error
    return _Source(path.name, columns, table.num_rows, text=False)


def _open_csv(path: Path) -> _Source:
    line = 1
    try:
        with path.open(encoding="utf-8-sig", newline="") as handle:
            reader = csv.reader(handle, strict=True)
            header = [name.strip() for name in next(reader, [])]
            rows: list[list[str]] = []
            for row in reader:
                line = reader.line_num
                if len(row) not in (0, len(header)):
                    raise BadInput(
                        f"{path.name}, line {line}: {len(row)} cells under a header of {len(header)}; "
                        "separate columns by commas and write numbers with a decimal point."
                    )
                _allow(path, len(rows))
                rows.append(row)
    except UnicodeDecodeError as error:
        raise BadInput(f"{path.name} is not UTF-8 text (byte {error.start}); save it as UTF-8.") from error
    except csv.Error as error:
        raise BadInput(f"{path.name}, line {line + 1}: not readable as CSV ({error}); export it again.") from error
    while rows and not rows[-1]:  # blank lines at the end are no rows
        rows.pop()
    for number, row in enumerate(rows):
        if not row:
            raise BadInput(f"{path.name}, line {number + 2}: the line is blank; remove it or fill it in.")
    for name in header:
        if header.count(name) > 1:
            raise BadInput(
                f"{path.name} has {header.count(name)} columns called {name!r}; rename or remove all but one."
            )
    if len(header) == 1 and re.search("[;\t|]", header[0]):
        raise BadInput(f"{path.name} separates its columns by something other than commas; export it with commas.")
    cells = np.array(rows, dtype=object).reshape(len(rows), len(header))
    return _Source(path.name, {name: cells[:, c] for c, name in enumerate(header)}, len(rows), text=True)


def _allow(path: Path, rows: int) -> None:
    if rows > MAX_ROWS:
        raise BadInput(f"{path.name} has more than the {MAX_ROWS} rows allowed; give a shorter span.")


def _numbers(source: _Source, column: str) -> Floats:
    """A column as finite float64. Raises BadInput naming the first cell that is missing, infinite or no number."""
    cells = source.columns[column]
    if cells.dtype.kind in "iuf":
        values = cells.astype(np.float64)
    elif cells.dtype.kind == "O":
        values = np.empty(len(cells))
        for row, cell in enumerate(cells):
            words = "" if cell is None else str(cell).strip()
            if words.lower() in _MISSING:
                values[row] = np.nan
            elif _NUMBER.fullmatch(words):
                values[row] = float(words)
            else:
                raise BadInput(
                    f"{source.at(row, column)}: {words[:40]!r} is not a number; write numbers like 1234.5, without "
                    "units or thousands separators."
                )
    else:
        raise BadInput(f"{source.name}, column {column!r}: {cells.dtype} is not a number; store it as a number.")
    for row in np.flatnonzero(np.isnan(values))[:1]:
        raise BadInput(
            f"{source.at(row, column)}: the value is missing (NaN); fill the gap or leave the span out, "
            "this benchmark never imputes."
        )
    for row in np.flatnonzero(np.isinf(values))[:1]:
        raise BadInput(f"{source.at(row, column)}: the value is infinite; correct it.")
    return values


def _stamps(source: _Source, column: str) -> Stamps:
    """The stamp column in UTC, checked to be every quarter-hour once and in order. Raises BadInput."""
    cells = source.columns[column]
    local = False
    if cells.dtype.kind == "M":
        seconds = cells.astype("datetime64[s]")
        for row in np.flatnonzero(np.isnat(seconds))[:1]:
            raise BadInput(f"{source.at(row, column)}: the stamp is missing; give every row its stamp.")
    elif cells.dtype.kind == "O":
        seconds, local = _parsed(source, column)
    else:
        raise BadInput(
            f"{source.name}, column {column!r}: {cells.dtype} is not a stamp; write ISO 8601, like 2024-02-01T00:15Z."
        )
    _check_grid(source, column, seconds.astype(np.int64), local)
    return seconds.astype("datetime64[m]")


def _parsed(source: _Source, column: str) -> tuple[Stamps, bool]:
    """Stamps from text, in UTC seconds, and whether they carry no offset (and so are taken as UTC)."""
    cells = source.columns[column]
    seconds = np.empty(len(cells), dtype="datetime64[s]")
    with_offset: bool | None = None
    for row, cell in enumerate(cells):
        words = "" if cell is None else str(cell).strip()
        if words.lower() in _MISSING | {"nat"}:
            raise BadInput(f"{source.at(row, column)}: the stamp is missing; give every row its stamp.")
        match = _ISO.fullmatch(words)
        try:
            if match is None:
                raise ValueError
            date, clock, second, offset = match.groups()
            stamp = np.datetime64(f"{date}T{clock}:{second or '00'}", "s")
        except ValueError:
            raise BadInput(
                f"{source.at(row, column)}: {words[:40]!r} is not a stamp; write ISO 8601, like 2024-02-01T00:15Z."
            ) from None
        if with_offset is None:
            with_offset = offset is not None
        elif with_offset != (offset is not None):
            raise BadInput(
                f"{source.at(row, column)}: {words[:40]!r} {'lacks an' if with_offset else 'has an'} offset from UTC, "
                f"unlike the rows before; write every stamp in UTC (2024-02-01T00:15Z)."
            )
        if offset is not None and offset != "Z":
            digits = offset[1:].replace(":", "")
            shift = int(digits[:2]) * 3600 + int(digits[2:]) * 60
            stamp -= np.timedelta64(shift if offset[0] == "+" else -shift, "s")
        seconds[row] = stamp
    return seconds, not with_offset


def _check_grid(source: _Source, column: str, seconds: NDArray[np.int64], local: bool) -> None:
    """Every quarter-hour once, in order. Raises BadInput naming the first row that breaks the grid, and how."""

    def shown(second: int | np.integer) -> str:
        return str(np.datetime64(int(second), "s").astype("datetime64[m]"))

    for row in np.flatnonzero(seconds % STEP_SECONDS)[:1]:
        raise BadInput(
            f"{source.at(row, column)}: {np.datetime64(int(seconds[row]), 's')} is not on a quarter-hour; "
            "resample the series to :00, :15, :30 and :45."
        )
    steps = np.diff(seconds)
    wrong = np.flatnonzero(steps != STEP_SECONDS)
    if len(wrong) == 0:
        return
    before = int(wrong[0])
    row, step = before + 1, int(steps[before])
    was, now = shown(seconds[before]), shown(seconds[row])
    where = source.at(row, column)
    if local and _clock_change(seconds[before], step):
        kind = "jumps an hour ahead" if step > 0 else "repeats an hour"
        raise BadInput(
            f"{where}: the clock {kind} ({was} to {now}), as local time does at a daylight-saving change; "
            "write stamps in UTC or with their offset (2024-03-31T03:00+02:00)."
        )
    if step == 0 or (step < 0 and seconds[row] in seconds[:row]):
        raise BadInput(f"{where}: {now} is a duplicate stamp; keep one row per quarter-hour.")
    if step < 0:
        raise BadInput(f"{where}: {now} comes after {was}, so rows are not in time order; sort them by {column!r}.")
    same = int((steps == step).sum())
    if same > len(steps) // 2:
        raise BadInput(
            f"{where}: the step is {step // 60} minutes ({was} to {now}), not 15; resample the series to quarter-hours."
        )
    raise BadInput(
        f"{where}: {step // STEP_SECONDS - 1} rows are missing between {was} and {now} (a gap); fill them in, or "
        "import the longest span without a gap."
    )


def _clock_change(second: int | np.integer, step: int) -> bool:
    """Whether a step from this stamp is what local clocks do: an hour skipped or repeated in the night of a Sunday."""
    stamp = np.datetime64(int(second), "s")
    day = stamp.astype("datetime64[D]")
    sunday = (int(day.astype(np.int64)) + 3) % 7 == 6
    hour = int((stamp - day).astype("timedelta64[h]").astype(int))
    month = int(day.astype("datetime64[M]").astype(int)) % 12 + 1
    return step in (STEP_SECONDS + 3600, STEP_SECONDS - 3600) and sunday and hour < 4 and month in (3, 4, 9, 10, 11)
