"""Boards of the agnostic suite: models ranked by each EAMEX metric, with intervals from resampled rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np

from explainbench.analysis.board import Board, CellRef, Entry, Family, Row, with_place
from explainbench.analysis.boards import DEFINED, MetricBoard, check_entries
from explainbench.analysis.set_scores import rank_sets
from explainbench.analysis.suites import SuiteBoards
from explainbench.core.arrays import Floats
from explainbench.core.cell import Skipped
from explainbench.core.params import StatisticsParams
from explainbench.metrics.eamex import DEFINITIONS, definition

MODEL = "eamex"  # method of the cells that judge a model itself; the others judge its explanations
EXPLANATIONS = "explanations"  # basis of boards over the explanations by all methods that every model has
OFFICIAL = "official"  # basis of boards with official weights, which never share a board with stand-ins
FEATURES = "features are all groups of inputs; one that a model does not see has importance 0"

Cells = Mapping[str, Sequence[Entry]]  # {model: its cells whose mean is ranked}


def build(entries: Sequence[Entry], statistics: StatisticsParams) -> tuple[Board, ...]:
    """Per task and metric a board of models; where there are explanations one more, of their mean over the methods."""
    boards: list[Board] = []
    for _, group in groupby(check_entries(entries), key=lambda entry: entry.cell.task):
        for weights, sharing in _by_weights(list(group)).items():
            judged: Cells = {entry.cell.model: [entry] for entry in sharing if entry.cell.method == MODEL}
            explained, methods = _common([entry for entry in sharing if entry.cell.method != MODEL])
            notes = (FEATURES,) if explained else ()
            over = (f"mean over the explanations by {', '.join(methods)}",)
            for name in DEFINITIONS["paper"]:
                for cells, basis, more in ((judged, (), ()), (explained, (EXPLANATIONS,), over)):
                    if any(name in entry.scores for mine in cells.values() for entry in mine):
                        boards.append(_board(name, "-".join((*weights, *basis)), cells, statistics, (*notes, *more)))
    return tuple(boards)


BOARDS = SuiteBoards(
    tuple(
        MetricBoard(name, meaning.title, "raw", higher_is_better=meaning.higher_is_better, view="cells")
        for name, meaning in DEFINITIONS["paper"].items()
    ),
    build=build,
)


def _board(name: str, basis: str, cells: Cells, statistics: StatisticsParams, notes: tuple[str, ...]) -> Board:
    meaning = definition(name)
    first = next(iter(cells.values()))[0]
    rows = {model: _row(model, mine, name) for model, mine in sorted(cells.items())}
    rest = [row for row in rows.values() if row.status != "value"]
    scored = [model for model, row in rows.items() if row.status == "value"]
    board = Board(
        *(first.cell.suite, first.cell.task, "models", "", name, meaning.title, basis, "model", first.protocol, ()),
        confidence=statistics.confidence,
        alpha=statistics.alpha,
        higher_is_better=meaning.higher_is_better,
        comparisons=len(scored) * (len(scored) - 1) // 2,
        notes=notes if meaning.higher_is_better else (*notes, "lower is better"),
    )
    if not scored:
        return replace(board, rows=tuple(rest))
    estimate = np.array([float(np.mean([e.scores[name].raw[0] for e in cells[model]])) for model in scored])
    draws = np.column_stack([_draws(cells[model], name) for model in scored])
    usable = draws[np.isfinite(draws).all(axis=1)]
    n = max(entry.resampled.n for model in scored for entry in cells[model] if entry.resampled)
    places = rank_sets(
        *(estimate, usable, scored, n), higher_is_better=meaning.higher_is_better, confidence=statistics.confidence
    )
    ranked = []
    for place in places:
        low, high = np.clip([place.low or 0.0, place.high or 0.0], meaning.low, meaning.high).tolist()
        ranked.append(with_place(rows[place.label], replace(place, low=low, high=high)))
    judged = "explanations of models" if EXPLANATIONS in basis else "models"
    return replace(
        board,
        rows=(*ranked, *rest),
        n=n,
        resamples=len(usable),
        ranked=tuple(row.entry for row in ranked),
        family=Family(f"{judged}, {name}, {board.task}", board.comparisons, 1) if board.comparisons else None,
    )


def _row(model: str, cells: Sequence[Entry], name: str) -> Row:
    """The row of a model, with the reason where one of its cells has no score or too few resamples."""
    refs = tuple(CellRef(str(entry.cell), entry.cell_id, entry.record_digest) for entry in cells)
    row = Row(model, model, "", "value", "", refs, weights_source=cells[0].weights_source)
    gap = next((entry.skipped[name] for entry in cells if name in entry.skipped), None)
    if gap is None:
        defined = float(np.isfinite(_draws(cells, name)).mean())
        if defined < DEFINED:
            gap = Skipped("not_applicable", f"defined on only {defined:.0%} of the resamples of the rows")
    return row if gap is None else replace(row, status=gap.status, reason=gap.reason)


def _draws(cells: Sequence[Entry], name: str) -> Floats:
    """The mean over cells on each resample (b,); NaN where the cells do not hold it."""
    held = [entry.resampled.draws[name] for entry in cells if entry.resampled and name in entry.resampled.draws]
    return np.mean(held, axis=0) if len(held) == len(cells) else np.full(1, np.nan)


def _common(entries: Sequence[Entry]) -> tuple[Cells, tuple[str, ...]]:
    """The cells of the methods that every model has, so that all models are asked the same, and those methods."""
    models = sorted({entry.cell.model for entry in entries})
    of = {model: {entry.cell.method for entry in entries if entry.cell.model == model} for model in models}
    methods = tuple(sorted(set.intersection(*of.values()))) if of else ()
    shared = [entry for entry in entries if entry.cell.method in methods]
    return {model: [entry for entry in shared if entry.cell.model == model] for model in models if methods}, methods


def _by_weights(entries: list[Entry]) -> dict[tuple[str, ...], list[Entry]]:
    """Official and stand-in weights never share a board: {part of the basis: entries}."""
    own = [entry for entry in entries if entry.weights_source != "official"]
    if len(own) == len(entries):
        return {(): entries}
    official = [entry for entry in entries if entry.weights_source != "standin"]
    return {(OFFICIAL,): official} | ({(): own} if own else {})
