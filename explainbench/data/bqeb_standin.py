"""A synthetic quarter-hourly grid with known drivers, standing in for BQEB-Data v1, which is not public."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from explainbench.core.arrays import Floats, Stamps
from explainbench.core.cell import stream
from explainbench.core.dataset import DatasetCard, Series
from explainbench.core.errors import BadInput, Corrupt
from explainbench.core.files import read_json, write_json
from explainbench.core.params import TaskParams
from explainbench.core.registry import DATASETS
from explainbench.data._grid_model import (
    CHANNELS,
    LOAD,
    PRICE,
    UNITS,
    Realisation,
    Region,
    Slopes,
    draw,
    equations,
    sensitivity,
)
from explainbench.data._tables import STAMP, as_series, read_parquet, write_parquet, write_series

VERSION = "bqeb-standin-v1"
DECIMALS = (1, 2, 2, 1, 1)  # of each channel: coarse enough that the last bits of a CPU's exp do not show
STEP = np.timedelta64(15, "m")


@dataclass(frozen=True, slots=True)
class Span:
    """One realisation: its name (which seeds it), first stamp and rows."""

    name: str
    start: str
    rows: int


# 109.5 days from winter (5 February) into summer weather (24 May): heating, shoulder and cooling days occur.
BENCHMARK = Span("benchmark", "2024-02-05", 10_512)
# Two whole years half a year apart: the last 15 % of one is late winter, of the other late summer.
TRAINING = (Span("training-1", "2021-04-01", 35_040), Span("training-2", "2022-10-01", 35_040))


@DATASETS.register(
    DatasetCard(
        title="BQEB stand-in: a simulated regional grid",
        version=VERSION,
        source="simulator of this project (specification section 2); BQEB-Data v1 of paper 000 is not public",
        licence="CC0-1.0",
        synthetic=True,
        banner="Synthetic data: bqeb-standin-v1, a simulator standing in for BQEB-Data v1, which is not public.",
    )
)
@dataclass(frozen=True)
class BqebStandin:
    """D, BQEB-Data v1 (paper 000, section 4.1), replaced by a simulator: 10,512 quarter-hours and two training years.

    The region keeps UTC all year, has no public holidays, and its constants are those of `Region`; the structural
    equations and the derivation of the true drivers are in `_grid_model`.
    """

    seed: int = 42

    def realise(self, span: Span) -> Realisation:
        """Run the structural equations over a span, with the random streams of its name."""
        region = Region()
        stamps = np.datetime64(span.start, "m") + np.arange(span.rows) * STEP
        anomalies = draw(region, lambda part: stream(self.seed, VERSION, span.name, part), span.rows)
        return equations(region, stamps, anomalies)

    def simulate(self, folder: Path) -> None:
        """Write the series, the drivers and card.json into `folder`: always the same bytes."""
        import pyarrow as pa

        benchmark = self.realise(BENCHMARK)
        write_series(folder / "benchmark.parquet", _rounded(benchmark))
        parts = [_rounded(self.realise(span)) for span in TRAINING]
        columns: dict[str, Any] = {
            "realisation": np.repeat(np.arange(1, len(parts) + 1, dtype=np.int8), [len(part.stamps) for part in parts]),
            STAMP: np.concatenate([part.stamps for part in parts]),
        }
        values = np.concatenate([part.values for part in parts])
        write_parquet(folder / "training.parquet", columns | {name: values[:, c] for c, name in enumerate(CHANNELS)})
        slopes = benchmark.slopes
        write_parquet(
            folder / "drivers.parquet",
            {
                STAMP: benchmark.stamps,
                "load_per_degree": slopes.load_per_degree.round(3).astype(np.float32),
                "price_per_mw": slopes.price_per_mw.round(5).astype(np.float32),
                "price_free": slopes.price_free,
                "solar_per_sd": slopes.solar_per_sd.round(2).astype(np.float32),
                "wind_per_sd": slopes.wind_per_sd.round(2).astype(np.float32),
            },
        )
        write_json(
            folder / "card.json",
            {
                "version": VERSION,
                "seed": self.seed,
                "written_with": {"pyarrow": pa.__version__},
                "channels": dict(zip(CHANNELS, UNITS, strict=True)),
                "benchmark": {"start": BENCHMARK.start, "rows": BENCHMARK.rows},
                "training": [{"start": span.start, "rows": span.rows} for span in TRAINING],
            },
        )

    def benchmark(self, folder: Path) -> Series:
        """The 10,512 quarter-hours from 2024-02-05 on. Raises BadInput or Corrupt."""
        path = folder / "benchmark.parquet"
        return as_series(read_parquet(path), path, CHANNELS, UNITS)

    def training(self, folder: Path) -> tuple[Series, ...]:
        """Two years of other seeds. Raises BadInput or Corrupt."""
        path = folder / "training.parquet"
        columns = read_parquet(path)
        whole = as_series(columns, path, CHANNELS, UNITS)
        part = columns.get("realisation")
        if part is None:
            raise Corrupt(f"{path} has no column 'realisation'; run `explainbench data simulate` again.")
        return tuple(
            Series(whole.stamps[part == number], whole.values[part == number], CHANNELS, UNITS)
            for number in np.unique(part)
        )

    def truth(self, folder: Path, task: TaskParams, origins: Stamps) -> Floats | None:
        """Share of the explained scalar that each observed input generated: (n, t, 5), summing to 1 over (t, c).

        The absolute derivative of the realised target block with respect to the input, in standard deviations of the
        anomaly behind it (`_grid_model.sensitivity`), normalised. None for targets other than load and price.
        Raises BadInput for an origin without a whole window in the benchmark series.
        """
        if task.target not in (CHANNELS[LOAD], CHANNELS[PRICE]):
            return None
        if read_json(folder / "card.json").get("version") != VERSION:
            raise BadInput(f"{folder} was not written by this simulator; run `explainbench data simulate` again.")
        drivers = read_parquet(folder / "drivers.parquet")
        slopes = Slopes(
            load_per_degree=drivers["load_per_degree"].astype(np.float64),
            price_per_mw=drivers["price_per_mw"].astype(np.float64),
            price_free=drivers["price_free"].astype(bool),
            solar_per_sd=drivers["solar_per_sd"].astype(np.float64),
            wind_per_sd=drivers["wind_per_sd"].astype(np.float64),
        )
        stamps = drivers[STAMP]
        starts = np.searchsorted(stamps, origins)
        inside = (starts >= task.context) & (starts + task.horizon <= len(stamps))
        if not inside.all() or not (stamps[starts] == origins).all():
            raise BadInput("the true drivers are known only at quarter-hours of the benchmark series.")
        target = CHANNELS.index(task.target)
        series = self.benchmark(folder).values[:, target]
        block = series[starts[:, None] + np.arange(task.horizon)]
        weights = _weights(task, block)
        found = np.abs(sensitivity(Region(), slopes, starts, task.context, weights, target))
        return found / found.sum(axis=(1, 2), keepdims=True)


def _weights(task: TaskParams, block: Floats) -> Floats:
    """Derivative of the task's functional with respect to the steps of realised target blocks (n, h)."""
    weights = np.zeros_like(block)
    functional = task.functional
    if functional.kind == "max":
        weights[np.arange(len(block)), block.argmax(axis=1)] = 1.0
    else:
        steps = slice(functional.first, functional.last) if functional.kind == "block_mean" else slice(None)
        weights[:, steps] = 1.0 / weights[:, steps].shape[1]
    return weights


def _rounded(realisation: Realisation) -> Series:
    values = np.stack([realisation.values[:, c].round(places) for c, places in enumerate(DECIMALS)], axis=1)
    return Series(realisation.stamps, values + 0.0, CHANNELS, UNITS)  # + 0.0: no negative zeros
