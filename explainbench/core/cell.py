"""The work unit (suite, task, model, method), its random streams, and what scoring it produced."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from explainbench.core.arrays import Floats

Status = Literal["value", "not_applicable", "pending"]


def stream_key(*names: str | int) -> tuple[int, ...]:
    """The spawn key of a named stream: eight 32-bit words of SHA-256, so a stream depends on names, never on order."""
    digest = hashlib.sha256("\x1f".join(str(name) for name in names).encode()).digest()
    return tuple(int.from_bytes(digest[i : i + 4], "big") for i in range(0, 32, 4))


def stream(seed: int, *names: str | int) -> np.random.Generator:
    """A random generator keyed by names: the same bits for any number of workers and any order of work."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=stream_key(*names)))


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """One benchmark cell (paper 000, section 5: the tuple (f, phi), for one task of one suite)."""

    suite: str
    task: str
    model: str
    method: str

    def __str__(self) -> str:
        return f"{self.suite}/{self.task}/{self.model}/{self.method}"

    @classmethod
    def parse(cls, text: str) -> Cell:
        """Read `suite/task/model/method`. Raises ValueError."""
        suite, task, model, method = text.split("/")
        return cls(suite, task, model, method)

    def rng(self, seed: int, purpose: str, run: int = 0) -> np.random.Generator:
        """The stream of this cell for one purpose and run."""
        return stream(seed, str(self), purpose, run)


@dataclass(frozen=True, slots=True, eq=False)
class Score:
    """One named quantity of a cell.

    raw: (n,) per window, or (1,) for the set; value: the same mapped to [0, 1] where the metric itself fixes the map,
    else None (Faithfulness is normalised later, with frozen bounds).
    """

    raw: Floats
    value: Floats | None = None


@dataclass(frozen=True, slots=True)
class Skipped:
    """Why a metric has no number for a cell."""

    status: Literal["not_applicable", "pending"]
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class CellResult:
    """Every metric of the suite is in exactly one of `scores` and `skipped`."""

    cell: Cell
    scores: Mapping[str, Score]
    skipped: Mapping[str, Skipped]
