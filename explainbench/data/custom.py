"""Any quarter-hourly series of a user: CSV or Parquet through a column mapping."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from explainbench.core.arrays import Floats, Stamps
from explainbench.core.dataset import DatasetCard, Series
from explainbench.core.params import TaskParams
from explainbench.core.registry import DATASETS
from explainbench.data._tables import VALIDATION_OF_TRAINING, read_imported, read_source, split_imported, write_imported


@DATASETS.register(
    DatasetCard(
        title="Your own series",
        version="custom",
        source="imported by the user (explainbench data import)",
        licence="as the source",
        synthetic=False,
        validation_share=VALIDATION_OF_TRAINING,
    )
)
@dataclass(frozen=True)
class Custom:
    """D, a user's series: chronological 70 % training, 15 % validation, 15 % benchmark, never shuffled."""

    def bring(self, source: Path, mapping: Mapping[str, str], folder: Path) -> None:
        """Check a file strictly and write it into `folder`, whole or not at all. Raises BadInput."""
        write_imported(folder, read_source(source, mapping), source, mapping)

    def benchmark(self, folder: Path) -> Series:
        """The last 15 % of the rows. Raises BadInput or Corrupt."""
        return split_imported(read_imported(folder))[1]

    def training(self, folder: Path) -> tuple[Series, ...]:
        """The first 85 % of the rows, of which the fit stage keeps the last 15/85 for validation."""
        return (split_imported(read_imported(folder))[0],)

    def truth(self, folder: Path, task: TaskParams, origins: Stamps) -> Floats | None:
        """None: nobody knows what drives a real series."""
        return None
