"""Which scores of a suite are boards, and how far they agree: one file `boards_<suite>.py` per suite, data only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import groupby
from typing import Any, cast

import numpy as np

from explainbench.analysis.board import DIGITS, Board, Entry, board_json
from explainbench.analysis.boards import MetricBoard, metric_boards
from explainbench.core.params import StatisticsParams

FEW = 3  # methods below which two orders say nothing of each other


@dataclass(frozen=True, slots=True)
class SuiteBoards:
    """What a suite ranks.

    counted: what its scores are about, in the plural; banner: said above every board; compared: pairs of scores whose
    orders of the methods are compared within each model; build: makes the boards instead, of scores of a whole set,
    whose intervals come from what the cells resampled.
    """

    metrics: tuple[MetricBoard, ...]
    counted: str = "rows"
    banner: str = ""
    compared: tuple[tuple[str, str], ...] = ()
    build: Callable[[Sequence[Entry], StatisticsParams], tuple[Board, ...]] | None = None


def load_boards(suite: str) -> SuiteBoards:
    """`BOARDS` of `analysis/boards_<suite>.py`."""
    return cast(SuiteBoards, import_module(f"explainbench.analysis.boards_{suite}").BOARDS)


def suite_boards(suite: str, entries: Iterable[Entry], statistics: StatisticsParams, seed: int) -> list[dict[str, Any]]:
    """The boards of a suite as plain JSON. Raises BadInput as `metric_boards` does."""
    declared = load_boards(suite)
    if declared.build is not None:
        boards = declared.build(list(entries), statistics)
    else:
        boards = metric_boards(entries, statistics, seed, declared.metrics)
    return [{**board_json(board), "counted": declared.counted} for board in boards]


def disagreement(suite: str, entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """Kendall's tau-b between two scores' orders of the methods, per (task, model): 1 the same, -1 the opposite.

    Baselines are left out, and so are models with fewer than three methods; tau is None where a score tells none apart.
    """
    from scipy.stats import kendalltau

    declared = load_boards(suite)
    worse = {board.score for board in declared.metrics if not board.higher_is_better}
    ranked = sorted((entry for entry in entries if not entry.baseline), key=lambda entry: entry.cell)
    rows: list[dict[str, Any]] = []
    for (task, model), group in groupby(ranked, key=lambda entry: (entry.cell.task, entry.cell.model)):
        methods = list(group)
        for one, other in declared.compared:
            both = [entry for entry in methods if one in entry.scores and other in entry.scores]
            if len(both) < FEW:
                continue
            means = [
                [(-1 if name in worse else 1) * float(np.nanmean(entry.scores[name].raw)) for entry in both]
                for name in (one, other)
            ]
            found = float(cast(Any, kendalltau(*np.round(means, DIGITS))).statistic)
            tau = round(found, DIGITS) if np.isfinite(found) else None
            rows.append({"task": task, "model": model, "one": one, "other": other, "methods": len(both), "tau": tau})
    return rows
