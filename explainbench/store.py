"""The cell store: one directory per finished cell, found by its id, written whole or not at all."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic import ValidationError

from explainbench.core.cell import Cell, CellResult
from explainbench.core.errors import BadInput, Corrupt, Unavailable
from explainbench.core.files import read_json, read_npz, write_bytes, write_json, write_npz
from explainbench.core.provenance import canonical_json, sha256_file, sha256_json
from explainbench.core.record import CellRecord, CellSpec, Measured, MetricSkip, MetricSummary

RECORD, SCORES, EXPLANATIONS, SEEDS, MEASURED = (
    "record.json",
    "scores.parquet",
    "explanations.npz",
    "seeds.json",
    "measured.json",
)
DETERMINISTIC = (SCORES, EXPLANATIONS, SEEDS)  # the files under `result_digest`
LOCK_SCHEMA = 1


class StoredRows(Protocol):
    """What the scores of a cell are about, one row each: `core.windows.Windows`, or `Rows` of a table."""

    @property
    def origin(self) -> NDArray[Any]: ...
    @property
    def regime(self) -> NDArray[Any]: ...
    def __len__(self) -> int: ...


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Rows of a table. origin: (n,) what each is, such as its index; regime: (n,) its stratum, or empty text."""

    origin: NDArray[Any]
    regime: NDArray[Any]

    def __len__(self) -> int:
        return len(self.origin)


@dataclass(frozen=True, slots=True)
class StoredCell:
    """A finished cell on disk: its record, the digest of the record's bytes, and its folder."""

    record: CellRecord
    digest: str
    folder: Path

    @property
    def cell(self) -> Cell:
        """Which cell this is."""
        return self.record.spec.cell.cell

    def scores(self) -> pa.Table:
        """scores.parquet: window, origin, regime, metric, raw, value, status, reason."""
        return read_scores(self.folder / SCORES)

    def explanations(self) -> dict[str, NDArray[Any]]:
        """explanations.npz: attribution (r, n, t, c), importance (n, g), output (n,), context (n, t, c) and others.

        Raises Corrupt when it is missing or has not the digest that the record holds.
        """
        path = self.folder / EXPLANATIONS
        problem = _file_problem(path, self.record.artifacts.get(EXPLANATIONS, ""))
        if problem is not None:  # found out before altered bytes are parsed
            raise Corrupt(f"{problem}; evaluate the cell again.")
        return read_npz(path)

    def seeds(self) -> dict[str, Any]:
        """seeds.json."""
        return read_json(self.folder / SEEDS)

    def measured(self) -> Measured | None:
        """measured.json, the archived measurements, if they are there and readable."""
        try:
            return Measured.model_validate(read_json(self.folder / MEASURED))
        except (BadInput, Corrupt, ValidationError):
            return None

    def figures(self) -> list[Path]:
        """Pictures drawn from the cell, never part of a digest."""
        return sorted((self.folder / "figures").glob("*.png"))


def read_scores(path: Path) -> pa.Table:
    """Read a scores table. Raises Corrupt."""
    try:
        return pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise Corrupt(f"{path} cannot be read as Parquet ({error}); evaluate the cell again.") from error


@dataclass(frozen=True, slots=True)
class CellStore:
    """The folder `cells/`."""

    root: Path

    def folder(self, cell: Cell, cell_id: str) -> Path:
        """Where a cell lies: readable by people, unique by id."""
        return self.root / f"{cell.suite}.{cell.task}.{cell.model}.{cell.method}.{cell_id[:16]}"

    @contextmanager
    def one_runner(self) -> Iterator[None]:
        """Hold the store: a second runner on it would remove what this one is writing. Raises Unavailable.

        The lock is on the folder itself and ends with the process, however it ends.
        """
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            held = os.open(self.root, os.O_RDONLY)
        except OSError as error:
            raise Unavailable(f"{self.root} cannot be used ({error.strerror}); fix its permissions.") from error
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        except BlockingIOError as error:
            raise Unavailable(
                f"another process is computing cells in {self.root}; wait for it to end, then run evaluate again."
            ) from error
        finally:
            os.close(held)
            with suppress(OSError):
                self.root.rmdir()  # only if nothing is in it: a stage that could not begin leaves nothing behind

    def write(
        self,
        spec: CellSpec,
        result: CellResult,
        windows: StoredRows,
        explanations: Mapping[str, NDArray[Any]],
        seeds: Mapping[str, Any],
        groups: tuple[str, ...],
        counters: tuple[float, float],
        notes: Mapping[str, float],
        measured: Measured,
    ) -> StoredCell:
        """Write a finished cell into a temporary folder and rename it into place. Raises Unavailable."""
        cell_id = sha256_json(spec.model_dump(mode="json"))
        target = self.folder(result.cell, cell_id)
        temporary: Path | None = None
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            temporary = Path(mkdtemp(dir=self.root, prefix=".writing-"))
            pq.write_table(scores_table(result, windows), temporary / SCORES, compression="zstd")
            write_npz(temporary / EXPLANATIONS, explanations)
            write_json(temporary / SEEDS, seeds)
            artifacts = {name: sha256_file(temporary / name) for name in DETERMINISTIC}
            record = CellRecord(
                cell_id=cell_id,
                spec=spec,
                groups=list(groups),
                evaluations_per_explanation=counters[0],
                gradients_per_explanation=counters[1],
                scores={name: _summary(score.raw, score.value) for name, score in sorted(result.scores.items())},
                skipped={
                    name: MetricSkip(status=skip.status, reason=skip.reason)
                    for name, skip in sorted(result.skipped.items())
                },
                notes=dict(sorted(notes.items())),
                artifacts=artifacts,
                result_digest=sha256_json(artifacts),
            )
            write_bytes(temporary / RECORD, canonical_json(record.model_dump(mode="json")) + b"\n")
            write_json(temporary / MEASURED, measured.model_dump(mode="json"))
            temporary.chmod(0o755)
            if target.exists():
                shutil.rmtree(target)
            temporary.rename(target)
        except OSError as error:
            raise Unavailable(
                f"cell {result.cell} could not be written to {self.root} ({error.strerror or error}); nothing was "
                "kept of it, finished cells are safe. Free space or fix the permissions and run again."
            ) from error
        finally:
            if temporary is not None:
                shutil.rmtree(temporary, ignore_errors=True)
        return self.read(target)

    def read(self, folder: Path) -> StoredCell:
        """Read one cell's record, without re-hashing its files. Raises BadInput or Corrupt."""
        path = folder / RECORD
        try:
            record = CellRecord.model_validate(read_json(path))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise Corrupt(f"{path} is not a cell record (schema 1): {where}: {first['msg']}.") from error
        return StoredCell(record, sha256_file(path), folder)

    def find(self, cell: Cell, cell_id: str) -> StoredCell | None:
        """The stored cell with this id, or None. Raises Corrupt when its files do not have their digests."""
        folder = self.folder(cell, cell_id)
        if not folder.is_dir():
            return None
        stored = self.read(folder)
        problem = first_problem(stored, cell_id)
        if problem is not None:
            raise Corrupt(problem)
        return stored

    def __iter__(self) -> Iterator[StoredCell]:
        """All finished cells, sorted by folder name. Raises Corrupt at the first unreadable record."""
        for folder in self.folders():
            yield self.read(folder)

    def folders(self) -> list[Path]:
        """The folders of finished cells."""
        if not self.root.is_dir():
            return []
        with os.scandir(self.root) as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))
        return [self.root / name for name in names]

    def prune(self, keep: set[Path], prefix: str) -> list[Path]:
        """Remove the suite's cells (folders with `prefix`) that left the grid, and what interrupted writes left."""
        gone = [folder for folder in self.folders() if folder.name.startswith(prefix) and folder not in keep]
        if self.root.is_dir():
            gone += [folder for folder in self.root.iterdir() if folder.name.startswith(".writing-")]
        for folder in gone:
            shutil.rmtree(folder, ignore_errors=True)
        return gone


def first_problem(stored: StoredCell, cell_id: str | None = None) -> str | None:
    """Re-hash a cell: the first link that does not hold, in a sentence, or None."""
    record, folder = stored.record, stored.folder
    derived = sha256_json(record.spec.model_dump(mode="json"))
    if derived != record.cell_id:
        return f"{folder / RECORD}: the specification hashes to {derived[:16]}, not to cell id {record.cell_id[:16]}"
    if cell_id is not None and derived != cell_id:
        return f"{folder / RECORD}: holds cell {derived[:16]}, expected {cell_id[:16]}"
    if sha256_json(record.artifacts) != record.result_digest or set(record.artifacts) != set(DETERMINISTIC):
        return f"{folder / RECORD}: the artifact list does not have its result digest"
    for name, expected in record.artifacts.items():
        problem = _file_problem(folder / name, expected)
        if problem is not None:
            return problem
    return None


def _file_problem(path: Path, expected: str) -> str | None:
    if not path.is_file():
        return f"{path} is missing"
    found = sha256_file(path)
    return None if found == expected else f"{path} has SHA-256 {found[:16]}, the record says {expected[:16]}"


def read_lock(path: Path) -> dict[str, str]:
    """cells.lock.json: {cell id: record digest}; empty when it does not exist. Raises Corrupt."""
    if not path.is_file():
        return {}
    content = read_json(path)
    if (
        not isinstance(content, dict)
        or content.get("schema") != LOCK_SCHEMA
        or not isinstance(content.get("cells"), dict)
    ):
        raise Corrupt(f"{path} is not a cells.lock.json of schema {LOCK_SCHEMA}; restore it from git.")
    return content["cells"]


def write_lock(path: Path, cells: Mapping[str, str]) -> None:
    """Write the trust root atomically."""
    write_json(path, {"schema": LOCK_SCHEMA, "cells": dict(cells)})


def scores_table(result: CellResult, windows: StoredRows) -> pa.Table:
    """Window x metric in long form; a set-level score or a skipped metric is one row with window -1."""
    columns: dict[str, list[Any]] = {name: [] for name in _SCHEMA.names}

    def add(window: int, metric: str, raw: float | None, value: float | None, status: str, reason: str) -> None:
        origin = str(windows.origin[window]) if window >= 0 else ""
        regime = str(windows.regime[window]) if window >= 0 else ""
        row = (window, origin, regime, metric, raw, value, status, reason)
        for name, item in zip(_SCHEMA.names, row, strict=True):
            columns[name].append(item)

    for metric, score in sorted(result.scores.items()):
        per_window = len(score.raw) == len(windows)
        for index, raw in enumerate(score.raw):
            value = None if score.value is None else _number(score.value[index])
            finite = bool(np.isfinite(raw))
            add(
                index if per_window else -1,
                metric,
                float(raw) if finite else None,
                value if finite else None,
                "value" if finite else "not_applicable",
                "" if finite else "undefined for this window",
            )
    for metric, skip in sorted(result.skipped.items()):
        add(-1, metric, None, None, skip.status, skip.reason)
    return pa.table(columns, schema=_SCHEMA)


_SCHEMA = pa.schema(
    [
        ("window", pa.int32()),
        ("origin", pa.string()),
        ("regime", pa.string()),
        ("metric", pa.string()),
        ("raw", pa.float64()),
        ("value", pa.float64()),
        ("status", pa.string()),
        ("reason", pa.string()),
    ]
)


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _summary(raw: NDArray[np.float64], value: NDArray[np.float64] | None) -> MetricSummary:
    finite = np.isfinite(raw)
    return MetricSummary(
        n=int(finite.sum()),
        raw=float(raw[finite].mean()) if finite.any() else None,
        value=None if value is None or not finite.any() else float(value[finite].mean()),
    )
