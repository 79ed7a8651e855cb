"""D: a regular multichannel series, the protocol of a registered dataset, and what a task is scored on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from explainbench.core.arrays import Floats, Stamps
from explainbench.core.masking import Climatology
from explainbench.core.params import TaskParams
from explainbench.core.windows import Windows


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """A gap-free quarter-hourly series in UTC. stamps: (s,) datetime64[m]; values: (s, c); names and units: (c,)."""

    stamps: Stamps
    values: Floats
    names: tuple[str, ...]
    units: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DatasetCard:
    """What a registered dataset declares."""

    title: str
    version: str
    source: str
    licence: str
    synthetic: bool
    banner: str | None = None  # one line shown on every report
    validation_share: float | None = None  # where the dataset fixes its own split, instead of fit.validation_share


class DatasetEntry(Protocol):
    """One file in `data/`: a frozen dataclass of options that turns verified bytes into series."""

    def benchmark(self, folder: Path) -> Series:
        """The series on which explanations are scored; no model takes a gradient step on it. Raises BadInput."""
        ...

    def training(self, folder: Path) -> tuple[Series, ...]:
        """The series on which models are fitted. Raises BadInput."""
        ...

    def truth(self, folder: Path, task: TaskParams, origins: Stamps) -> Floats | None:
        """Share of the target that each observed input generated, (n, t, c observed), or None where unknown."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class TaskData:
    """What every cell of a task is scored on.

    windows: the stratified benchmark windows; climatology: of the training series, all channels;
    target_std: sigma of the target over the training series, in its unit; shortfall: regime -> windows missing.
    """

    windows: Windows
    climatology: Climatology
    target_std: float
    dataset: str
    dataset_sha256: str
    shortfall: dict[str, int]
