"""What of the boards is asked for: choices, filters, order, co-ranked groups, the same as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import numpy as np

from explainbench.core.errors import BadInput
from mlflow_plugins._board_text import beside, plain
from mlflow_plugins.board_query import QueriedBoard

Board = Mapping[str, Any]
PAGE = 200  # rows on a page
SHARED = ("protocol", "task", "score", "basis", "weights")  # what boards of a family have in common
INDICES = {"act": "Act", "act_valid": "Act of valid", "dss": "DSS", "edts": "EDTS", "eei": "EEI"}
TITLES = {
    "act": "Actionability in a deployment context",
    "act_valid": "Actionability over windows with a valid counterfactual",
    "dss": "deployment suitability",
    "edts": "edge decision transparency",
    "eei": "edge explanation efficiency",
}
CHOICES = ("task", "score", "basis", "context", "weights", "view", "model", "protocol")  # fields of boards
SORTS = ("order", "entry", "mean", "low", "high", "rank_ub", "p_vs_above", "weights_source")  # columns of rows
BOARD = {  # what a board must have to be drawn, and what is shown where a suite leaves it out
    "name": "", "suite": "", "task": "", "view": "", "model": "", "score": "", "title": "", "basis": "", "context": "",
    "protocol": "", "n": 0, "effective_n": None, "detectable": None, "comparisons": 0, "confidence": 0.95, "notes": [],
    "weights": "", "higher_is_better": True, "counted": "windows", "rows": [],
}  # fmt: skip
ROW = {
    "entry": "", "model": "", "method": "", "status": "value", "reason": "", "cells": [], "cell": "", "cell_id": "",
    "record_digest": "", "baseline": False, "aliases": [], "weights_source": "", "deterministic": True, "order": None,
    "mean": None, "low": None, "high": None, "rank_ub": None, "co_ranked_with_above": None, "co_ranked_plain": None,
    "p_vs_above": None, "group": None, "effect": None, "effect_low": None, "effect_high": None, "n": 0, "extra": {},
    "verified": True, "unverified_because": "",
}  # fmt: skip
COLUMNS = (
    "order", "entry", "mean", "low", "high", "rank_ub", "group", "co_ranked_with_above", "co_ranked_plain",
    "p_vs_above", "effect", "n", "status", "reason", "baseline", "weights_source", "aliases", "verified",
    "unverified_because", "cell", "cell_id", "record_digest",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Choice:
    """Which boards of a suite are shown; empty means all. Field by field a parameter of the page's address."""

    task: str = ""
    score: str = ""
    basis: str = ""
    context: str = ""
    weights: str = ""
    view: str = ""
    model: str = ""
    protocol: str = ""

    def chosen(self, boards: Iterable[Board]) -> list[Board]:
        """The boards that agree with every choice that was made."""
        wanted = {key: value for key, value in asdict(self).items() if value}
        return [board for board in boards if all(board[key] == value for key, value in wanted.items())]


@dataclass(frozen=True, slots=True)
class Rows:
    """Which rows of a board are shown, in which order. q: text that names contain; source: whose weights."""

    q: str = ""
    source: str = ""
    baselines: bool = True
    sort: str = "order"
    down: bool = False

    def __post_init__(self) -> None:
        if self.sort not in SORTS:
            raise BadInput(f"a board cannot be sorted by {self.sort[:40]!r}; it can by {', '.join(SORTS)}.")

    def chosen(self, board: Board) -> list[dict[str, Any]]:
        """The rows, each with its co-ranked `group`; rows without a value in the sorting column come last."""
        words = self.q.lower().split()
        kept = [
            row
            for row in grouped(board["rows"])
            if all(any(word in str(row[key]).lower() for key in ("entry", "model", "method")) for word in words)
            and self.source in ("", row["weights_source"])
            and (self.baselines or not row["baseline"])
        ]
        known = [row for row in kept if row[self.sort] is not None]
        if self.sort != "order" or self.down:  # the board's own order says where unranked rows stand
            known.sort(key=lambda row: row[self.sort], reverse=self.down)
            return known + [row for row in kept if row[self.sort] is None]
        return kept


def grouped(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows with `group`: ranked rows that are co-ranked with the row above share a number, from 1; others have None.

    A chain of neighbours: its ends may differ, because overlapping intervals are not transitive. A board of point
    values, where nothing is known about neighbours, has no groups.
    """
    ranked = [row for row in rows if row["order"] is not None and not row["baseline"]]
    if any(row["co_ranked_with_above"] is None for row in ranked[1:]):
        return [{**row, "group": None} for row in rows]
    group = 0
    found = []
    for row in rows:
        mine = None
        if row["order"] is not None and not row["baseline"]:
            if group == 0 or row["co_ranked_with_above"] is False:
                group += 1
            mine = group
        found.append({**row, "group": mine})
    return found


def choices(boards: Iterable[Board]) -> dict[str, list[str]]:
    """What there is to choose from, per field of `CHOICES`."""
    boards = list(boards)
    return {key: sorted({str(board[key]) for board in boards if board[key]}) for key in CHOICES}


@dataclass(frozen=True, slots=True)
class Family:
    """Boards of one task and score that differ in view, model or context."""

    boards: tuple[Board, ...]

    @property
    def first(self) -> Board:
        """The board that stands for all."""
        return self.boards[0]

    @property
    def leaders(self) -> list[dict[str, Any]]:
        """The rows that nothing on the board is shown to beat; of point values the first."""
        rows = grouped(self.first["rows"])
        return [row for row in rows if row["group"] == 1] or [row for row in rows if row["order"] == 1]


def families(boards: Iterable[Board]) -> tuple[list[Family], list[Family]]:
    """Boards by protocol, task, score, basis and weights: those with a number, and those without any."""
    groups: dict[tuple[str, ...], list[Board]] = {}
    for board in boards:
        key = tuple(str(board[field]) for field in SHARED)
        groups.setdefault(key, []).append(board)
    found = [
        Family(tuple(sorted(group, key=lambda board: (board["context"], board["model"] != "", board["view"]))))
        for group in groups.values()
    ]
    known = [any(has_number(board) for board in family.boards) for family in found]
    return [one for one, is_known in zip(found, known) if is_known], [
        one for one, is_known in zip(found, known) if not is_known
    ]


def has_number(board: Board) -> bool:
    """Whether any row of a board has a value."""
    return any(row["mean"] is not None for row in board["rows"])


def reasons(boards: Iterable[Board]) -> list[str]:
    """Why rows have no value, each reason once."""
    return sorted({row["reason"] for board in boards for row in board["rows"] if row["reason"]})


def as_csv(board: Board, rows: Iterable[Mapping[str, Any]]) -> str:
    """The rows that are shown, with what identifies their board in front."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    head = ("suite", "protocol", "name", "task", "view", "model", "score", "basis", "context")
    writer.writerow([*head, *COLUMNS, "beside"])
    for row in rows:
        writer.writerow([*(board[key] for key in head), *(plain(row[key]) for key in COLUMNS), beside(row)])
    return text.getvalue()


def normal(board: Mapping[str, Any], suite: str, protocol: str) -> dict[str, Any]:
    """A board with every field that pages use. Raises TypeError, KeyError or ValueError for what is no board."""
    rows = [{**ROW, **row} for row in board["rows"]]
    full = {**BOARD, "suite": suite, "protocol": protocol, **board, "rows": rows}
    for row in rows:
        row["entry"] = str(row["entry"])
        for key in ("mean", "low", "high", "p_vs_above"):
            row[key] = None if row[key] is None else float(row[key])
    if not full["weights"]:
        full["weights"] = "official" if str(full["name"]).startswith("official.") else "own and stand-in"
    return full


def context_boards(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The boards in `results/contexts.json` (task T3): per task, index and deployment context, all cells by value.

    Raises TypeError, KeyError or ValueError for what is no such file.
    """
    boards = []
    for task, found in document["tasks"].items():
        for context, (index, name) in product([one["name"] for one in document["contexts"]], INDICES.items()):
            here = [row for row in found["rows"] if row["context"] == context]
            here.sort(key=lambda row: (row["values"][index] is None, -(row["values"][index] or 0.0), row["model"]))
            rows = [_context_row(task, row, index, place) for place, row in enumerate(here, 1)]
            board = {
                **{"name": f"{task}.{name}.{context}", "task": task, "score": name, "context": context},
                **{"title": TITLES[index], "view": "cells", "rows": rows, "n": len(rows), "counted": "cells"},
                "notes": ["values alone, without intervals or tests", str(document.get("note", ""))],
            }
            boards.append(normal(board, "energy", str(document["protocol"])))
    return boards


def _context_row(task: str, row: Mapping[str, Any], index: str, place: int) -> dict[str, Any]:
    model, method, value = row["model"], row["method"], row["values"][index]
    known = {"mean": value, "order": place}
    gap = {"status": "not_applicable", "reason": row["gaps"].get(index, "")}
    name = {"entry": f"{model}/{method}", "model": model, "method": method, "cell": f"energy/{task}/{model}/{method}"}
    return name | (gap if value is None else known)


def as_board(found: QueriedBoard, suite: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """`PAGE` rows of a board queried from the tracking store, in the shape of the published ones, from row `first` on.

    Its co-ranks are plain overlaps of intervals.
    """
    first = asked["first"]
    groups = np.cumsum(~found.overlaps_above)  # the first row overlaps nothing
    same = ("entry", "model", "method", "mean", "low", "high", "order", "rank_ub")
    rows = [
        {
            **{key: getattr(place, key) for key in same},
            "cell": f"{suite}/{found.task}/{place.model}/{place.method}",
            "baseline": place.order is None,
            "group": None if place.order is None else int(groups[place.order - 1]),
            "co_ranked_with_above": place.overlaps_above,
            "verified": place.vouched is not False,
            "unverified_because": "" if place.vouched is not False else "cells.lock.json holds no such record",
        }
        for place in found.places(first, PAGE)
    ]
    notes = ["straight from the runs: plain overlap of intervals, no test; the published boards are the ones to cite"]
    if found.left_out:
        notes.append(f"{found.left_out} runs without this number, or of a cell that has another run, are left out")
    model = asked["model"]
    board = {
        **{"name": f"{found.task}.{found.metric}", "task": found.task, "view": "methods" if model else "cells"},
        **{"model": model, "score": found.metric, "title": "as the tracking store has it now", "rows": rows},
        **{"higher_is_better": not asked["lower"], "notes": notes, "n": len(found), "counted": "cells"},
    }
    return normal(board, suite, found.protocol)
