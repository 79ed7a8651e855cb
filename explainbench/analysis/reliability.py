"""The Explainability Reliability Matrix R (paper 000, section 5.2): one row per registered pair, six composites each.

R is not a statistic of its own: it holds what the boards hold, rearranged. A composite without a number keeps its
status and its reason; nothing is imputed, and no row is summed to an overall score.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from explainbench.analysis.composites import TITLES, Name
from explainbench.core.cell import Cell, Status

COMPOSITES: tuple[Name, ...] = tuple(TITLES)


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of R, as its board has it.

    value: mean over n windows in [0, 1]; low, high: its interval, None where one value holds for the whole window set;
    basis: the components it is made of, entries of different bases are never compared; board: name of the board;
    alias_of: the cell that stands for this one on the board, where the two give the same explanation.
    """

    status: Status
    reason: str = ""
    value: float | None = None
    low: float | None = None
    high: float | None = None
    basis: str = ""
    n: int = 0
    board: str = ""
    alias_of: str = ""


@dataclass(frozen=True, slots=True)
class MatrixRow:
    """The six composites of one (model, method) pair, in the order of `COMPOSITES`."""

    model: str
    method: str
    entries: tuple[Entry, ...]

    def __getitem__(self, name: Name) -> Entry:
        return self.entries[COMPOSITES.index(name)]


@dataclass(frozen=True, slots=True)
class Matrix:
    """R of one task: M rows of six entries, M = 58 for the shipped registry."""

    suite: str
    task: str
    rows: tuple[MatrixRow, ...]

    def of_method(self, method: str) -> tuple[MatrixRow, ...]:
        """The rows of one method: its profile over the models (figure 5)."""
        return tuple(row for row in self.rows if row.method == method)

    def of_model(self, model: str) -> tuple[MatrixRow, ...]:
        """The rows of one model: its profile over the methods."""
        return tuple(row for row in self.rows if row.model == model)

    def counts(self) -> dict[Name, dict[Status, int]]:
        """Composite -> status -> number of pairs."""
        found: dict[Name, dict[Status, int]] = {name: {} for name in COMPOSITES}
        for row in self.rows:
            for name, entry in zip(COMPOSITES, row.entries, strict=True):
                found[name][entry.status] = found[name].get(entry.status, 0) + 1
        return found


def reliability_matrix(
    boards: Iterable[Mapping[str, Any]], suite: str, task: str, pairs: Sequence[tuple[str, str]]
) -> Matrix:
    """R of one task from its boards of all cells (`board_json`), a row for each of `pairs`, finished or not.

    A board row that stands for several cells fills the entries of all of them. Where official and stand-in weights
    have boards of their own, the entry is that of the pair's own weights' board, the unprefixed one first.
    """
    known: dict[tuple[Cell, Name], Entry] = {}
    ours = [board for board in boards if (board["suite"], board["task"], board["view"]) == (suite, task, "cells")]
    for board in sorted(ours, key=lambda board: board["name"].startswith("official.")):
        if board["score"] not in COMPOSITES:
            continue
        for row in board["rows"]:
            for cell, entry in _entries(board, row):
                key = (cell, board["score"])
                if key not in known or (known[key].value is None and entry.value is not None):
                    known[key] = entry
    missing = Entry("pending", "this pair has no finished cell in the boards")
    return Matrix(
        suite,
        task,
        tuple(
            MatrixRow(
                model,
                method,
                tuple(known.get((Cell(suite, task, model, method), name), missing) for name in COMPOSITES),
            )
            for model, method in pairs
        ),
    )


def _entries(board: Mapping[str, Any], row: Mapping[str, Any]) -> Iterable[tuple[Cell, Entry]]:
    aliased = board["level"] == "cell"
    for position, ref in enumerate(row["cells"]):
        known = row["mean"] is not None
        yield (
            Cell.parse(ref["cell"]),
            Entry(
                row["status"],
                row["reason"],
                row["mean"],
                row["low"],
                row["high"],
                board["basis"] if known else "",
                row["n"],
                board["name"],
                row["cell"] if aliased and position else "",
            ),
        )
