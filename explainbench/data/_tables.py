"""Tables of quarter-hourly series in and out: Parquet whose bytes are fixed, and the strict parsing of users' files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from explainbench.core.dataset import Series
from explainbench.core.errors import BadInput, Corrupt
from explainbench.core.files import atomic_path

STAMP = "timestamp"
MAX_ROWS = 2_000_000  # 57 years of quarter-hours


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
