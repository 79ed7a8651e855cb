"""The real BQEB-Data v1 file of paper 000, for those who have it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from explainbench.core.arrays import Floats, Stamps
from explainbench.core.dataset import DatasetCard, Series
from explainbench.core.errors import BadInput
from explainbench.core.params import TaskParams
from explainbench.core.registry import DATASETS
from explainbench.data._tables import VALIDATION_OF_TRAINING, read_imported, read_source, split_imported, write_imported

ROWS = 10_512
TARGETS = ("load_mw", "energy_price_usd_mwh")
EXOGENOUS = ("temperature_c", "solar_mw", "wind_mw")


@DATASETS.register(
    DatasetCard(
        title="BQEB-Data v1",
        version="bqeb-v1",
        source="paper 000, section 4.1; not public, import your copy with explainbench data import",
        licence="as granted by its owners",
        synthetic=True,
        validation_share=VALIDATION_OF_TRAINING,
    )
)
@dataclass(frozen=True)
class Bqeb:
    """D, BQEB-Data v1 (paper 000, section 4.1): 10,512 quarter-hours of load and price, exogenous channels optional.

    The file is one series, so it is split like a user's: 70 % training, 15 % validation, 15 % benchmark.
    """

    def bring(self, source: Path, mapping: Mapping[str, str], folder: Path) -> None:
        """Check the file strictly and write it into `folder`, whole or not at all. Raises BadInput."""
        series = read_source(source, mapping, required=TARGETS, optional=EXOGENOUS)
        if len(series.stamps) != ROWS:
            raise BadInput(
                f"{source.name} has {len(series.stamps)} rows, but BQEB-Data v1 has {ROWS:,}; "
                "import other series with --name custom."
            )
        write_imported(folder, series, source, mapping)

    def benchmark(self, folder: Path) -> Series:
        """The last 15 % of the rows. Raises BadInput or Corrupt."""
        return split_imported(read_imported(folder))[1]

    def training(self, folder: Path) -> tuple[Series, ...]:
        """The first 85 % of the rows, of which the fit stage keeps the last 15/85 for validation."""
        return (split_imported(read_imported(folder))[0],)

    def truth(self, folder: Path, task: TaskParams, origins: Stamps) -> Floats | None:
        """None: its generator is not published."""
        return None
