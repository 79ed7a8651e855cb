"""The record of a finished cell: the only hashed truth about it."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

from explainbench.core.cell import Cell, Status

SCHEMA = 1


class Frozen(BaseModel):
    """A part of a record: unknown fields are refused, values cannot change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class CellName(Frozen):
    """Which cell."""

    suite: str
    task: str
    model: str
    method: str

    @property
    def cell(self) -> Cell:
        """The cell of that name."""
        return Cell(self.suite, self.task, self.model, self.method)


class CellSpec(Frozen):
    """Everything that determines a cell's numbers; its canonical JSON hashes to the cell id (spec section 9)."""

    schema_version: int = SCHEMA
    protocol: str
    cell: CellName
    seed: int
    runs: int
    parameters: dict[str, Any]  # task, functional, masker, method block, metric blocks
    dataset: str
    dataset_sha256: str  # of the dataset's manifest
    windows_sha256: str
    model_card_sha256: str  # architecture, weights hash, training record
    weights_sha256: str
    weights_source: str
    method_card: dict[str, Any]
    sources: dict[str, str]  # module -> git blob id, over the import closure of the cell's path
    libraries: dict[str, str]


class MetricSummary(Frozen):
    """Mean of a score over its windows; raw and, where the metric fixes the map, value in [0, 1]."""

    n: int
    raw: float | None
    value: float | None


class MetricSkip(Frozen):
    """Why a metric has no number."""

    status: Status
    reason: str


class CellRecord(Frozen):
    """What a cell is, what it used and what it produced. No clock, host, path or run id."""

    schema_version: int = SCHEMA
    cell_id: str
    spec: CellSpec
    groups: list[str]
    evaluations_per_explanation: float
    gradients_per_explanation: float
    scores: dict[str, MetricSummary]
    skipped: dict[str, MetricSkip]
    notes: dict[str, float]  # maxima over windows of the method's diagnostics
    artifacts: dict[str, str]  # file name -> sha256
    result_digest: str  # sha256 over the canonical JSON of `artifacts`


class Measured(Frozen):
    """Archived measurements of one execution: never part of a digest."""

    seconds: float
    model_seconds: float
    peak_memory_mb: float
    cpu: str
    cpu_capability: str
    torch: str
    threads: int
    finished: str
