"""Boards as the page shows them: grouped by task and score, with an interval drawn in every row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from explainbench.analysis.ablation import UNSUPPORTED, faithfulness_note
from explainbench.analysis.board_words import knowledge, whole_tests
from explainbench.core.cell import Cell
from explainbench.report.checks import IGNORES, ignoring
from explainbench.report.pairs import Pairs, all_pairs
from explainbench.report.source import Reference, Source, anchor
from explainbench.report.svg import Scale, interval, number, probability, scale_of

# In reading order: whether the ranking finds what matters, then the six composites, then single metrics, then others.
ORDER = (
    "faithfulness_skill", "EQI", "ESS", "CCS", "EDTS", "HIR", "EEI", "stability", "fidelity", "faithfulness",
)  # fmt: skip
TITLES = {"faithfulness_skill": "F_skill", "stability": "Stability", "fidelity": "Fidelity", "faithfulness": "Raw F"}
FAITHFUL = ("faithfulness_skill", "EQI", "faithfulness")  # scores that rest on the masking operator
ABOVE_ZERO = ("faithfulness_skill",)  # scores whose zero means something: the line is drawn


@dataclass(frozen=True, slots=True)
class Line:
    """One row of a board, as text and a drawn interval."""

    label: str
    references: tuple[Reference, ...]
    baseline: bool
    leading: bool
    with_above: bool
    order: str
    mean: str
    interval: str
    rank_ub: str
    p: str
    beside: str
    aliases: str
    plot: Markup
    verified: bool


@dataclass(frozen=True, slots=True)
class Panel:
    """One board: its rows with a number, and one sentence per reason why others have none."""

    name: str
    title: str
    lines: tuple[Line, ...]
    gaps: tuple[str, ...]
    caption: str
    tests: str  # of the board as a whole
    pairs: Pairs | None
    warning: str  # what the masks say about a ranking by faithfulness
    axis: Markup
    has_tests: bool
    by_model: bool  # a row that stands for several cells is one model's

    @property
    def anchor(self) -> str:
        """Its id in the page."""
        return anchor("board", self.name)


@dataclass(frozen=True, slots=True)
class Group:
    """The boards of one score (and basis) on one task, all on one scale."""

    task: str
    label: str
    what: str
    overview: tuple[Panel, ...]  # of all models, or of all cells
    within: tuple[Panel, ...]  # one per model

    @property
    def tested(self) -> bool:
        """Whether any of its boards compares pairs."""
        return any(panel.pairs for panel in (*self.overview, *self.within))

    @property
    def anchor(self) -> str:
        """Its id in the page."""
        return anchor("boards", f"{self.task}-{self.label}")


def board_groups(source: Source, task: str) -> tuple[Group, ...]:
    """The boards of a task in reading order. A score without any number is one panel of sentences."""
    boards = [board for board in source.boards["boards"] if board["task"] == task]
    keys = {(board["name"].startswith("official."), board["score"], board["basis"]) for board in boards}
    place = {score: at for at, score in enumerate(ORDER)}
    ordered = sorted(keys, key=lambda key: (key[0], place.get(key[1], len(ORDER)), key[1], key[2]))
    return tuple(_group(source, task, key, boards) for key in ordered)


def _group(source: Source, task: str, key: tuple[bool, str, str], boards: Sequence[Mapping[str, Any]]) -> Group:
    official, score, basis = key
    mine = [
        board
        for board in boards
        if (board["name"].startswith("official."), board["score"], board["basis"]) == (official, score, basis)
    ]
    shown = [value for board in mine for row in board["rows"] for value in (row["mean"], row["low"], row["high"])]
    scale = scale_of([*shown, 0.0] if score in ABOVE_ZERO else shown, 2, 98)
    panels = [(board, _panel(source, board, scale)) for board in mine]
    numbered = [(board, panel) for board, panel in panels if panel.lines]
    if not numbered:
        panels = panels[:1]
    else:
        panels = numbered
    label = TITLES.get(score, score) + (f" ({basis})" if "+" in basis or score == "EQI" else "")
    return Group(
        task,
        label + (" official weights" if official else ""),
        mine[0]["title"],
        tuple(panel for board, panel in panels if board["view"] != "methods"),
        tuple(panel for board, panel in panels if board["view"] == "methods"),
    )


def _panel(source: Source, board: Mapping[str, Any], scale: Scale) -> Panel:
    with_number = [row for row in board["rows"] if row["mean"] is not None]
    mark = 0.0 if board["score"] in ABOVE_ZERO else None
    whole = {row["weights_source"] for row in board["rows"]} if board["view"] == "methods" else set()
    weights = whole.pop() if len(whole) == 1 else ""
    ignored = ignoring(source.checks) if board["score"] in FAITHFUL else frozenset()
    lines = tuple(_line(source, row, scale, mark, weights, ignored) for row in with_number)
    title = board["model"] or ("models" if board["view"] == "models" else f"all cells of {board['task']}")
    if board["view"] == "cells" and board["level"] != "cell":
        title = f"one row per {board['level']}" if len(with_number) <= 12 else title
    title += f" ({weights} weights)" if weights not in ("", "trained") else ""
    note = faithfulness_note(source.checks, board["task"], board["model"]) if board["score"] in FAITHFUL else None
    warning = note if note and note.endswith(UNSUPPORTED) else ""
    has_tests = any(line.p for line in lines)
    return Panel(
        board["name"],
        title,
        lines,
        tuple(_gaps(board)),
        "; ".join([*knowledge(board), *(said for said in board["notes"] if said != warning)]),
        "; ".join(whole_tests(board)),
        all_pairs(board),
        warning,
        scale.axis(),
        has_tests,
        board["level"] == "model",
    )


def _line(
    source: Source,
    row: Mapping[str, Any],
    scale: Scale,
    mark: float | None,
    weights: str,
    ignored: frozenset[tuple[str, str, str]],
) -> Line:
    """weights: those of all rows, which then need no word of their own; ignored: cells that ignore their weights."""
    references = tuple(source.references[Cell.parse(ref["cell"])] for ref in row["cells"])
    beside = list(_beside(row, weights))
    if any((ref.cell.task, ref.cell.model, ref.cell.method) in ignored for ref in references[:1]):
        beside.append(IGNORES)
    return Line(
        label=row["entry"],
        references=references,
        baseline=row["baseline"],
        leading=row["rank_ub"] == 1 and not row["baseline"],
        with_above=bool(row["co_ranked_with_above"]),
        order="" if row["order"] is None else str(row["order"]),
        mean=number(row["mean"]),
        interval=interval(row["low"], row["high"]),
        rank_ub="" if row["rank_ub"] is None else str(row["rank_ub"]),
        p=probability(row["p_vs_above"]),
        beside=", ".join(beside),
        aliases=", ".join(row["aliases"]),
        plot=scale.drawn(row["mean"], row["low"], row["high"], mark),
        verified=row.get("verified", True),
    )


def _gaps(board: Mapping[str, Any]) -> Iterator[str]:
    reasons: dict[tuple[str, str], list[str]] = {}
    for row in board["rows"]:
        if row["mean"] is None:
            reasons.setdefault((row["status"], row["reason"]), []).append(row["entry"])
    for (status, reason), entries in reasons.items():
        named = ", ".join(entries) if len(entries) <= 8 else f"{len(entries)} entries"
        yield f"{named}: {status.replace('_', ' ')}, {reason}"


def _beside(row: Mapping[str, Any], weights: str) -> Iterator[str]:
    """What must be read with a row's number: whose weights, and the companions of the score."""
    if row["weights_source"] not in ("", "trained", weights):
        yield f"{row['weights_source']} weights"
    for name, value in row["extra"].items():
        if isinstance(value, bool):
            if value:
                yield name.replace("_", " ")
        elif name != "clipped":
            yield f"{name.replace('_', ' ')} {number(value)}"
        elif value > 0:
            yield f"{value:.0%} of windows clipped"
