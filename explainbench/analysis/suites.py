"""Which scores of a suite are boards: one file `boards_<suite>.py` here per suite, data only."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, cast

from explainbench.analysis.boards import Entry, MetricBoard, board_json, metric_boards
from explainbench.core.params import StatisticsParams


@dataclass(frozen=True, slots=True)
class SuiteBoards:
    """What a suite ranks. counted: what its scores are about, in the plural; banner: said above every board."""

    metrics: tuple[MetricBoard, ...]
    counted: str = "rows"
    banner: str = ""


def load_boards(suite: str) -> SuiteBoards:
    """`BOARDS` of `analysis/boards_<suite>.py`."""
    return cast(SuiteBoards, import_module(f"explainbench.analysis.boards_{suite}").BOARDS)


def suite_boards(suite: str, entries: Iterable[Entry], statistics: StatisticsParams, seed: int) -> list[dict[str, Any]]:
    """The boards of a suite as plain JSON. Raises BadInput as `metric_boards` does."""
    declared = load_boards(suite)
    boards = metric_boards(entries, statistics, seed, declared.metrics)
    return [{**board_json(board), "counted": declared.counted} for board in boards]
