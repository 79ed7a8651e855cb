"""A board and what it is made of: finished cells as entries, rows, tests, and the same as plain JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np

from explainbench.analysis.comparisons import Friedman, Groups, Pairwise
from explainbench.analysis.composites import Level
from explainbench.analysis.ranking import Place
from explainbench.core.arrays import Floats
from explainbench.core.cell import Cell, Score, Skipped, Status

SCHEMA = 2  # of a file of boards; 2: all pairs of every board, as columns
DIGITS = 6  # significant digits that are published
PAIR_DIGITS = 3  # the same in the table of all pairs, of which there are thousands
View = Literal["methods", "cells", "models"]


@dataclass(frozen=True, slots=True, eq=False)
class Resampled:
    """Scores of a whole set on b resamples of its n rows, shared by all cells of a task. draws: {score: (b,)}."""

    n: int
    draws: Mapping[str, Floats]

    @classmethod
    def of(cls, arrays: Mapping[str, Any]) -> Resampled:
        """From a cell's `explanations.npz`: draws (b, m), draw_names (m,), row_regime (n,)."""
        names = [str(name) for name in arrays["draw_names"]]
        return cls(len(arrays["row_regime"]), dict(zip(names, arrays["draws"].T, strict=True)))


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """A finished cell as boards see it.

    windows: what each of its n windows is (time stamps as text), in the order of the scores; scores, skipped: as in
    `CellResult`, with `efficiency` joined from the profile; baseline: shown, never ranked; alias: cells of a task with
    the same non-empty alias are one alias class and share a row; deterministic: the method's determinism stratum;
    resampled: of a cell whose scores are those of a whole set; category: the method's, of its card.
    """

    cell: Cell
    cell_id: str
    record_digest: str
    protocol: str
    windows: tuple[str, ...]
    scores: Mapping[str, Score]
    skipped: Mapping[str, Skipped]
    baseline: bool = False
    deterministic: bool = True
    weights_source: str = ""
    alias: str = ""
    resampled: Resampled | None = None
    category: str = ""


@dataclass(frozen=True, slots=True)
class CellRef:
    """Where a number can be audited."""

    cell: str
    cell_id: str
    record_digest: str


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a board; see `ranking.Place` for the columns from `order` to `n_zero`.

    entry: what is ranked (method, model, or model/method); mean: of the score over n windows; status and reason: why
    a number or an interval is missing; cells: the cell shown, then those it also stands for; marks: aliases of the
    cell, whether it is a baseline, where its weights come from, its determinism; block_low, block_high: moving-block
    interval where windows overlap; extra: companions of the score, such as the noise floor beside Stability.
    """

    entry: str
    model: str
    method: str
    status: Status
    reason: str
    cells: tuple[CellRef, ...]
    baseline: bool = False
    aliases: tuple[str, ...] = ()
    weights_source: str = ""
    deterministic: bool = True
    order: int | None = None
    mean: float | None = None
    low: float | None = None
    high: float | None = None
    rank_ub: int | None = None
    co_ranked_with_above: bool | None = None
    co_ranked_plain: bool | None = None
    p_vs_above: float | None = None
    effect: float | None = None
    effect_low: float | None = None
    effect_high: float | None = None
    n: int = 0
    n_zero: int | None = None
    block_low: float | None = None
    block_high: float | None = None
    extra: Mapping[str, float | bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Family:
    """The comparisons that share one Holm correction: all of one kind within a task and a score (spec, section 6).

    name: kind, score and task; size: comparisons in it; boards: how many boards they stand on.
    """

    name: str
    size: int
    boards: int


@dataclass(frozen=True, slots=True)
class Strata:
    """Deterministic against stochastic methods (Mann-Whitney U), a ranked entry's mean being one observation.

    delta: Cliff's delta, positive where deterministic methods score more, with its percentile interval; n: entries.
    """

    p: float
    statistic: float
    delta: float
    low: float
    high: float
    n: tuple[int, int]


@dataclass(frozen=True, slots=True, eq=False)
class Board:
    """A ranking with everything needed to judge it.

    score: composite or metric; basis: the components it is made of; n: windows used, dropped: windows left out because
    a cell is undefined there; effective_n: independent windows; comparisons: pairs of the board; family: what their
    Holm correction is over, None where nothing is tested; detectable: smallest standardised paired difference seen
    with 80 % power among as many comparisons as the family holds; bounds: version of the normalisation bounds used;
    pairs: all ranked pairs, in the order of `ranked`; friedman, strata, categories: tests of the board as a whole, and
    p_holm: test -> its p under Holm over the boards of the same task and score; higher_is_better: the direction.
    """

    suite: str
    task: str
    view: View
    model: str
    score: str
    title: str
    basis: str
    level: Level
    protocol: str
    rows: tuple[Row, ...]
    n: int = 0
    dropped: int = 0
    effective_n: float | None = None
    comparisons: int = 0
    detectable: float | None = None
    resamples: int = 0
    confidence: float = 0.95
    alpha: float = 0.05
    bounds: str = ""
    ranked: tuple[str, ...] = ()
    pairs: Pairwise | None = None
    friedman: Friedman | None = None
    strata: Strata | None = None
    categories: Groups | None = None
    p_holm: Mapping[str, float] = field(default_factory=dict)
    family: Family | None = None
    notes: tuple[str, ...] = ()
    higher_is_better: bool = True

    @property
    def name(self) -> str:
        """`task.score.basis.view.model`, as far as they apply: the board's file name and run name."""
        return ".".join(part for part in (self.task, self.score, self.basis, self.view, self.model) if part)


def with_place(row: Row, place: Place) -> Row:
    """The row with its place in a ranking."""
    columns = asdict(place)
    del columns["label"]
    return replace(row, mean=columns.pop("value"), **columns)


def board_json(board: Board) -> dict[str, Any]:
    """The board as plain JSON, numbers at 6 significant digits; plain values at the top describe it.

    pairs: columns over the pairs (i, j) of `ranked`, i above j, row by row: the upper triangle, which says it all.
    """
    document: dict[str, Any] = {"name": board.name}
    for key in (
        "suite", "task", "view", "model", "score", "title", "basis", "level", "protocol", "n", "dropped", "effective_n",
        "comparisons", "detectable", "resamples", "confidence", "alpha", "bounds",
    ):  # fmt: skip
        document[key] = _plain(getattr(board, key))
    document["notes"] = list(board.notes)
    document["rows"] = [row_json(row) for row in board.rows]
    document["ranked"] = list(board.ranked)
    document["family"] = None if board.family is None else asdict(board.family)
    document["pairs"] = _upper(board.pairs) if board.pairs and board.comparisons else None
    for key in ("friedman", "strata", "categories"):
        found = getattr(board, key)
        document[key] = None if found is None else _plain(asdict(found)) | _plain({"p_holm": board.p_holm.get(key)})
    if board.categories is not None:
        document["categories"]["pairs"] = [
            {"one": one, "other": other, "p": _plain(p)} for (one, other), p in board.categories.pairs.items()
        ]
    return document


def _upper(pairs: Pairwise) -> dict[str, list[Any]]:
    upper = np.triu_indices(len(pairs.p), 1)
    columns = {"p": pairs.p, "p_holm": pairs.p_holm, "effect": pairs.effect, "n_zero": pairs.n_zero}
    return {name: _plain(table[upper], PAIR_DIGITS) for name, table in columns.items()}


def row_json(row: Row) -> dict[str, Any]:
    """One row as plain JSON; `cell_id` and `record_digest` are those of the cell shown, `cells` all it stands for."""
    document = _plain(asdict(row))
    shown = row.cells[0] if row.cells else CellRef("", "", "")
    return document | {"cell": shown.cell, "cell_id": shown.cell_id, "record_digest": shown.record_digest}


def _plain(value: Any, digits: int = DIGITS) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item, digits) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return _plain(value.tolist(), digits)
    if isinstance(value, (list, tuple)):
        return [_plain(item, digits) for item in value]
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (float, np.floating)):
        return float(f"{value:.{digits}g}") if np.isfinite(value) else None
    return value
