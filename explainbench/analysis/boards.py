"""Boards: one per task, score and basis; rows that say what is known, how surely, and where it came from.

Three views. `methods` ranks the methods within one model and is the main one, because raw scores also measure how
sensitive a model is; `cells` ranks all (model, method) pairs of a task; `models` compares models by F_skill. There is
no overall score. Scores that cannot depend on the method (or on the model) are collapsed to one row per model (or
method), so that differences that are zero by construction are never tested.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Literal

import numpy as np

from explainbench.analysis.board import Board, CellRef, Entry, Row, View, with_place
from explainbench.analysis.comparisons import friedman
from explainbench.analysis.composites import LEVELS, TITLES, Composite, Level, Name, Parts, composites
from explainbench.analysis.families import in_families
from explainbench.analysis.intervals import block_indices, effective_n, mean_intervals, resample_indices
from explainbench.analysis.normalise import Bounds
from explainbench.analysis.ranking import Ranking, rank
from explainbench.analysis.strata import compare_categories, compare_strata
from explainbench.core.arrays import Bools, Floats, Ints
from explainbench.core.cell import Score, Skipped, stream
from explainbench.core.errors import BadInput, NotApplicable
from explainbench.core.params import StatisticsParams

DEFINED = 0.9  # an entry defined on fewer of its windows leaves the board instead of emptying it


@dataclass(frozen=True, slots=True)
class MetricBoard:
    """A board of one metric: which of its numbers is shown, and which companions stand beside it.

    view: `methods` ranks within one model, `cells` all (model, method) pairs of a task.
    """

    score: str
    title: str
    which: Literal["raw", "value"]
    companions: tuple[str, ...] = ()
    higher_is_better: bool = True
    view: Literal["methods", "cells"] = "methods"


METRIC_BOARDS = (
    MetricBoard("faithfulness", "Faithfulness, raw, in the target's unit", "raw", ("diagnosticity",)),
    MetricBoard("faithfulness_skill", "F_skill: 0 is a random ranking, 1 the greedy one", "raw", ("diagnosticity",)),
    MetricBoard("fidelity", "Fidelity of the surrogate", "value"),
    MetricBoard("stability", "Stability under small input changes", "value", ("lipschitz", "noise_floor")),
)


@dataclass(frozen=True, slots=True, eq=False)
class _Line:
    """One entry of a board before it is ranked: its scores (n,) or (1,), empty where the row says why.

    category: of its method, where the entry is one.
    """

    row: Row
    windows: tuple[str, ...]
    values: Floats
    category: str = ""

    @property
    def known(self) -> bool:
        return self.row.status == "value"


def build_boards(
    entries: Iterable[Entry],
    statistics: StatisticsParams,
    seed: int,
    bounds: Bounds | None,
    blocks: Mapping[str, int] | None = None,
) -> tuple[Board, ...]:
    """All boards of the finished cells (paper 000, Algorithms 4 to 6).

    bounds: frozen normalisation bounds, or None (composites that need them are pending); blocks: task -> windows that
    overlap, where they do. Raises BadInput for no cells, for one cell twice, and for cells of two protocol versions.
    """
    cells = check_entries(entries)
    maker = _Maker(statistics, seed, bounds, blocks or {})
    boards: list[Board] = []
    for _, group in groupby(cells, key=lambda entry: (entry.cell.suite, entry.cell.task)):
        boards += maker.task(list(group))
    return in_families(boards)


def metric_boards(
    entries: Iterable[Entry], statistics: StatisticsParams, seed: int, metrics: Sequence[MetricBoard]
) -> tuple[Board, ...]:
    """The boards of a suite without composites: per task and score, methods within a model or all cells.

    Raises BadInput as `build_boards` does.
    """
    maker = _Maker(statistics, seed, None, {})
    boards: list[Board] = []
    for _, group in groupby(check_entries(entries), key=lambda entry: (entry.cell.suite, entry.cell.task)):
        task = list(group)
        models = sorted({entry.cell.model for entry in task})
        for metric in metrics:
            for model in models if metric.view == "methods" else [""]:
                here = [entry for entry in task if model in ("", entry.cell.model)]
                if any(metric.score in {*entry.scores, *entry.skipped} for entry in here):
                    boards.append(maker.metric(here, metric, model))
    return in_families(boards)


def check_entries(entries: Iterable[Entry]) -> list[Entry]:
    """The entries in the order of their names. Raises BadInput for what no board may hold."""
    cells = sorted(entries, key=lambda entry: entry.cell)
    if not cells:
        raise BadInput("there are no finished cells to rank; run `explainbench evaluate` first.")
    protocols: dict[str, list[str]] = {}
    for entry in cells:
        protocols.setdefault(entry.protocol, []).append(str(entry.cell))
    if len(protocols) > 1:
        listed = "; ".join(
            f"{version}: {', '.join(names[:5])}{f' and {len(names) - 5} more' if len(names) > 5 else ''}"
            for version, names in sorted(protocols.items())
        )
        raise BadInput(
            f"cells of {len(protocols)} protocol versions cannot share a board ({listed}); "
            "evaluate them again under one version, or keep the versions in separate stores."
        )
    twice = [cell for cell, count in Counter(entry.cell for entry in cells).items() if count > 1]
    if twice:
        ids = ", ".join(entry.cell_id[:16] for entry in cells if entry.cell == twice[0])
        raise BadInput(
            f"cell {twice[0]} is there more than once ({ids}); publish again, so that old runs are superseded."
        )
    return cells


def scores_from_columns(
    columns: Mapping[str, Sequence[Any]],
) -> tuple[tuple[str, ...], dict[str, Score], dict[str, Skipped]]:
    """Windows, scores and skipped metrics from the columns of a cell's scores table, each a plain list.

    columns: window (-1 for the whole set), origin, metric, raw, value, status, reason; undefined windows become NaN.
    """
    names = ("window", "origin", "metric", "raw", "value", "status", "reason")
    table: dict[str, list[tuple[Any, ...]]] = {}
    origins: dict[int, str] = {}
    for row in zip(*(columns[name] for name in names), strict=True):
        table.setdefault(row[2], []).append(row)
        if row[0] >= 0:
            origins[row[0]] = str(row[1])
    scores: dict[str, Score] = {}
    skipped: dict[str, Skipped] = {}
    for metric, rows in table.items():
        rows.sort(key=lambda row: row[0])
        if all(row[5] != "value" for row in rows) and rows[0][0] < 0:
            skipped[metric] = Skipped(rows[0][5], rows[0][6])
            continue
        raw = np.array([np.nan if row[3] is None else row[3] for row in rows], dtype=np.float64)
        value = np.array([np.nan if row[4] is None else row[4] for row in rows], dtype=np.float64)
        mapped = np.isfinite(value).any() or not np.isfinite(raw).any()
        scores[metric] = Score(raw, value if mapped else None)
    return tuple(origins[index] for index in sorted(origins)), scores, skipped


@dataclass(frozen=True, slots=True)
class _Maker:
    statistics: StatisticsParams
    seed: int
    bounds: Bounds | None
    blocks: Mapping[str, int]
    _indices: dict[tuple[int, int], Ints] = field(default_factory=dict)

    def task(self, entries: list[Entry]) -> list[Board]:
        """All boards of one task."""
        boards: list[Board] = []
        models = sorted({entry.cell.model for entry in entries})
        scored = [(entry, composites(self._parts(entry))) for entry in entries]
        for name in TITLES:
            found = [(entry, each[name]) for entry, each in scored]
            bases = sorted({item.basis for _, item in found if isinstance(item, Composite)}) or [""]
            for basis in bases:
                here = [(e, item) for e, item in found if isinstance(item, Skipped) or item.basis == basis]
                elsewhere = len(found) - len(here)
                notes = (f"{elsewhere} further cells have another basis, so another board",) if elsewhere else ()
                boards.append(self._composite(here, name, basis, "cells", "", notes))
                if LEVELS[name] == "model":
                    continue
                for model in models:
                    within = [(entry, item) for entry, item in here if entry.cell.model == model]
                    if within:
                        boards.append(self._composite(within, name, basis, "methods", model, ()))
        for metric in METRIC_BOARDS:
            if not any(metric.score in entry.scores for entry in entries):
                continue
            for model in models:
                boards.append(self.metric([entry for entry in entries if entry.cell.model == model], metric, model))
        if any("faithfulness_skill" in entry.scores for entry in entries):
            boards.append(self._models(entries))
        return boards

    def _parts(self, entry: Entry) -> Parts:
        return Parts(entry.cell.task, entry.scores, entry.skipped, self.bounds, self.statistics.weights)

    def _composite(
        self,
        found: list[tuple[Entry, Composite | Skipped]],
        name: Name,
        basis: str,
        view: View,
        model: str,
        notes: tuple[str, ...],
    ) -> Board:
        level = LEVELS[name]
        if level == "model":  # a baseline is a method, so it has nothing to say here
            found = [(entry, item) for entry, item in found if not entry.baseline] or found
        lines = []
        for entry, item in found:
            extra: dict[str, float | bool] = {}
            if isinstance(item, Composite) and item.clipped is not None:
                extra["clipped"] = item.clipped
            if name == "EDTS" and "native_quantiles" in entry.scores:
                extra["native_quantiles"] = bool(entry.scores["native_quantiles"].raw[0])
            values = item if isinstance(item, Skipped) else item.values
            lines.append(_line(_row(entry, view, extra), entry.windows, values, entry.category))
        if level == "cell":  # equal explanations do not take equal time
            aliases = _aliases(entry for entry, _ in found)
            lines = _collapse(lines, lambda line: aliases.get(line.row.cells[0].cell, ""), None)
        if level != "cell" and view == "cells":
            same: Callable[[_Line], str] = lambda line: line.row.model if level == "model" else line.row.method  # noqa: E731
            before = len(lines)
            lines = _collapse(lines, same, same)
            if len(lines) < before:
                other = "method" if level == "model" else "model"
                notes += (f"{name} does not depend on the {other} here: one row per {level}, nothing is tested twice",)
        return self._board(found[0][0], view, model, name, TITLES[name], basis, level, lines, notes)

    def metric(self, entries: list[Entry], metric: MetricBoard, model: str) -> Board:
        """The board of one metric: of the methods within `model`, or of all cells."""
        lines = []
        for entry in entries:
            extra: dict[str, float | bool] = {}
            for name in metric.companions:
                raw = entry.scores[name].raw if name in entry.scores else np.empty(0)
                if np.isfinite(raw).any():
                    extra[name] = float(raw[np.isfinite(raw)].mean())
            if "noise_floor" in extra and "lipschitz" in extra:
                extra["on_noise_floor"] = extra["noise_floor"] >= extra["lipschitz"] > 0
            values = _metric_values(entry, metric)
            lines.append(_line(_row(entry, metric.view, extra), entry.windows, values, entry.category))
        aliases = _aliases(entries)
        lines = _collapse(lines, lambda line: aliases.get(line.row.cells[0].cell, ""), None)
        on_floor = [line.row for line in lines if line.row.extra.get("on_noise_floor") and not line.row.baseline]
        ranked = [line for line in lines if line.known and not line.row.baseline]
        notes: tuple[str, ...] = ()
        if on_floor and 2 * len(on_floor) > len(ranked):
            notes = (f"{len(on_floor)} of {len(ranked)} methods sit on their noise floor: Stability cannot rank them",)
        if not metric.higher_is_better:
            notes += ("lower is better",)
        return self._board(
            *(entries[0], metric.view, model, metric.score, metric.title, "", "cell", lines, notes),
            higher_is_better=metric.higher_is_better,
        )

    def _models(self, entries: list[Entry]) -> Board:
        """Models by F_skill, each the mean over the methods that every model has, so that all are asked the same."""
        skill = {
            entry.cell: entry.scores["faithfulness_skill"].raw
            for entry in entries
            if not entry.baseline and "faithfulness_skill" in entry.scores
        }
        models = sorted({cell.model for cell in skill})
        methods = sorted(
            set.intersection(*({c.method for c in skill if c.model == m} for m in models)) if models else ()
        )
        lines = []
        for model in models:
            mine = [entry for entry in entries if entry.cell.model == model and entry.cell.method in methods]
            refs = tuple(_ref(entry) for entry in mine if entry.cell in skill)
            source = next((entry.weights_source for entry in mine), "")
            row = Row(model, model, "", "value", "", refs, weights_source=source)
            if not mine:
                values: Floats | Skipped = Skipped("not_applicable", "no method is common to all models")
            elif len({len(skill[entry.cell]) for entry in mine}) > 1 or len({entry.windows for entry in mine}) > 1:
                values = Skipped("not_applicable", "its methods were scored on different windows")
            else:
                values = np.mean([skill[entry.cell] for entry in mine], axis=0)
            lines.append(_line(row, mine[0].windows if mine else (), values))
        notes = (f"mean F_skill over {', '.join(methods)}",) if methods else ()
        title = "F_skill of models: 0 is a random ranking, 1 the greedy one"
        return self._board(entries[0], "models", "", "faithfulness_skill", title, "", "model", lines, notes)

    def _board(
        self,
        first: Entry,
        view: View,
        model: str,
        score: str,
        title: str,
        basis: str,
        level: Level,
        lines: list[_Line],
        notes: tuple[str, ...],
        higher_is_better: bool = True,
    ) -> Board:
        board = Board(
            *(first.cell.suite, first.cell.task, view, model, score, title, basis, level, first.protocol, ()),
            resamples=self.statistics.bootstrap,
            confidence=self.statistics.confidence,
            alpha=self.statistics.alpha,
            bounds=self.bounds.version if self.bounds and score == "EQI" else "",
            notes=notes,
            higher_is_better=higher_is_better,
        )
        rest = [line.row for line in lines if not line.known]
        rest.sort(key=lambda row: (row.baseline, row.entry))
        scored = [line for line in lines if line.known]
        if not scored:
            return replace(board, rows=tuple(rest))
        if all(len(line.values) == 1 for line in scored):
            return self._point_order(board, scored, rest)
        if len({(line.windows, len(line.values)) for line in scored}) > 1:
            return self._unpaired(board, scored, rest)
        return self._paired(board, scored, rest)

    def _paired(self, board: Board, lines: list[_Line], rest: list[Row]) -> Board:
        values = np.stack([line.values for line in lines], axis=1)
        ranked = np.array([not line.row.baseline for line in lines])
        defined = np.isfinite(values[:, ranked]).all(axis=1)  # a shown baseline never decides which windows count
        gaps: Bools = np.asarray(~np.isfinite(values[defined]).all(axis=0))
        if gaps.any():
            reason = "undefined on some of the windows on which the ranked entries are compared"
            rest += [replace(lines[i].row, status="not_applicable", reason=reason) for i in np.flatnonzero(gaps)]
            lines = [line for line, gap in zip(lines, gaps, strict=True) if not gap]
            values, ranked = values[:, ~gaps], ranked[~gaps]
        n, dropped = int(defined.sum()), int((~defined).sum())
        if n < 2:
            reason = f"an interval needs at least 2 windows on which every entry is defined, and there are {n}"
            rows = [replace(line.row, status="not_applicable", reason=reason) for line in lines]
            return replace(board, rows=(*rows, *rest), n=n, dropped=dropped)
        values = values[defined]
        labels = [line.row.entry for line in lines]
        ranking = rank(
            *(values, labels, self._shared(n), ranked),
            higher_is_better=board.higher_is_better,
            confidence=self.statistics.confidence,
        )
        rows = _placed(ranking, lines)
        time_order = np.argsort(np.array(lines[0].windows)[defined], kind="stable")
        block = self.blocks.get(board.task, 1)
        notes = board.notes
        if block > 1:
            try:
                indices = block_indices(n, block, self.statistics.bootstrap, stream(self.seed, "blocks", n, block))
            except NotApplicable as gap:
                notes += (gap.reason,)
            else:
                found = mean_intervals(values[time_order], indices, self.statistics.confidence)
                ends = {label: (float(found.low[i]), float(found.high[i])) for i, label in enumerate(labels)}
                rows = [replace(row, block_low=ends[row.entry][0], block_high=ends[row.entry][1]) for row in rows]
                notes += (f"windows overlap: intervals from blocks of {block} windows stand beside the plain ones",)
        contest = values[:, ranked]
        m = contest.shape[1]
        centred = contest - contest.mean(axis=1, keepdims=True) if m > 1 else contest
        independent = float(np.median([effective_n(column) for column in centred[time_order].T])) if m else None
        if dropped:
            notes += (f"{dropped} windows are left out: an entry is undefined there",)
        return replace(
            board,
            rows=(*rows, *rest),
            n=n,
            dropped=dropped,
            effective_n=independent,
            comparisons=m * (m - 1) // 2,
            ranked=ranking.ranked,
            pairs=ranking.pairs,
            friedman=friedman(contest) if m >= 3 else None,
            notes=notes,
            **self._groups(board, lines, values.mean(axis=0)),
        )

    def _point_order(self, board: Board, lines: list[_Line], rest: list[Row]) -> Board:
        values = np.array([[float(line.values[0]) for line in lines]])
        ranked = np.array([not line.row.baseline for line in lines])
        names = [line.row.entry for line in lines]
        ranking = rank(values, names, None, ranked, higher_is_better=board.higher_is_better)
        one_window = all(len(line.windows) == 1 for line in lines)
        reason = (
            "an interval needs at least 2 windows, and there is 1"
            if one_window
            else "one value for the whole window set"
        )
        rows = [replace(row, reason=f"no interval: {reason}") for row in _placed(ranking, lines)]
        note = f"point order only, no interval and no test: {reason}"
        return replace(board, rows=(*rows, *rest), n=1, ranked=ranking.ranked, notes=(*board.notes, note))

    def _unpaired(self, board: Board, lines: list[_Line], rest: list[Row]) -> Board:
        """Cells scored on different windows: intervals each for itself, an order, and no verdict between them."""
        reason = "cells were scored on different windows, so co-ranks and paired tests are not applicable"
        rows = []
        means = np.array([float(np.nanmean(line.values)) for line in lines])
        ranked = np.array([not line.row.baseline for line in lines])
        names = [line.row.entry for line in lines]
        ranking = rank(means[None], names, None, ranked, higher_is_better=board.higher_is_better)
        by_entry = {line.row.entry: line.values for line in lines}
        for row in _placed(ranking, lines):
            values = by_entry[row.entry]
            values = values[np.isfinite(values)]
            row = replace(row, n=len(values), reason=reason)
            if len(values) > 1:
                found = mean_intervals(values[:, None], self._shared(len(values)), self.statistics.confidence)
                row = replace(row, low=float(found.low[0]), high=float(found.high[0]))
            rows.append(row)
        return replace(
            board,
            rows=(*rows, *rest),
            n=min(row.n for row in rows),
            ranked=ranking.ranked,
            notes=(*board.notes, reason),
            **self._groups(board, lines, means),
        )

    def _groups(self, board: Board, lines: Sequence[_Line], means: Floats) -> dict[str, Any]:
        """The tests between independent groups of the ranked entries: fields of the board."""
        entries = [(line, mean) for line, mean in zip(lines, means, strict=True) if not line.row.baseline]
        deterministic, stochastic = (
            np.array([mean for line, mean in entries if line.row.deterministic is wanted]) for wanted in (True, False)
        )
        categories: dict[str, list[float]] = {}
        for line, mean in entries if board.view == "cells" else ():
            categories.setdefault(line.category, []).append(float(mean))
        rng = stream(self.seed, "strata", len(deterministic), len(stochastic))
        return {
            "strata": compare_strata(deterministic, stochastic, rng, self.statistics),
            "categories": compare_categories(categories, self.statistics.alpha),
        }

    def _shared(self, n: int) -> Ints:
        """The resample indices of every score on n windows; publishing a cell's own interval uses the same stream."""
        resamples = self.statistics.bootstrap
        if (n, resamples) not in self._indices:
            self._indices[n, resamples] = resample_indices(n, resamples, stream(self.seed, "interval", n))
        return self._indices[n, resamples]


def _ref(entry: Entry) -> CellRef:
    return CellRef(str(entry.cell), entry.cell_id, entry.record_digest)


def _row(entry: Entry, view: View, extra: Mapping[str, float | bool]) -> Row:
    cell = entry.cell
    label = cell.method if view == "methods" else f"{cell.model}/{cell.method}"
    return Row(
        label,
        cell.model,
        cell.method,
        "value",
        "",
        (_ref(entry),),
        entry.baseline,
        (),
        entry.weights_source,
        entry.deterministic,
        extra=extra,
    )


def _metric_values(entry: Entry, metric: MetricBoard) -> Floats | Skipped:
    if metric.score in entry.scores:
        score = entry.scores[metric.score]
        found = score.raw if metric.which == "raw" else score.value
        if found is None:
            return Skipped("pending", f"{metric.score}: only its raw value is known")
        return found
    # A score that comes with another metric shares its reason.
    parent = {"faithfulness_skill": "faithfulness"}.get(metric.score, metric.score)
    return (
        entry.skipped.get(metric.score)
        or entry.skipped.get(parent)
        or Skipped("pending", f"{metric.score}: not measured in this run")
    )


def _aliases(entries: Iterable[Entry]) -> dict[str, str]:
    """Cell -> its alias class, which is an equality within one model."""
    return {str(entry.cell): f"{entry.cell.model}/{entry.alias}" for entry in entries if entry.alias}


def _collapse(lines: list[_Line], key: Callable[[_Line], str], label: Callable[[_Line], str] | None) -> list[_Line]:
    """One line per key (empty: alone), the first by name standing for all.

    label: for scores that cannot differ within a key, checked here: lines that differ all the same stay apart; the
    new name of the row. Without it the others become aliases of the first, whatever their last digits.
    """
    groups: dict[str, list[_Line]] = {}
    for index, line in enumerate(lines):
        groups.setdefault(f"{line.row.baseline}/{key(line) or f'alone {index}'}", []).append(line)
    kept: list[_Line] = []
    for group in groups.values():
        first, others = group[0], group[1:]
        if label is not None and not all(_equal(first, other) for other in others):
            kept += group
            continue
        cells = tuple(ref for line in group for ref in line.row.cells)
        if label is not None:
            row = replace(first.row, entry=label(first), cells=cells)
        else:
            row = replace(first.row, cells=cells, aliases=tuple(line.row.entry for line in others))
        kept.append(replace(first, row=row))
    return kept


def _equal(one: _Line, other: _Line) -> bool:
    if one.row.status != other.row.status or one.values.shape != other.values.shape:
        return False
    return bool(np.allclose(one.values, other.values, rtol=0, atol=1e-12, equal_nan=True))


def _line(row: Row, windows: tuple[str, ...], found: Floats | Skipped, category: str = "") -> _Line:
    """The line of a score, or of the reason why there is none, or too little of it."""
    if not isinstance(found, Skipped):
        defined = int(np.isfinite(found).sum())
        if defined and defined >= DEFINED * len(found):
            return _Line(row, windows, found, category)
        found = Skipped("not_applicable", f"defined on only {defined} of {len(found)} windows")
    return _Line(replace(row, status=found.status, reason=found.reason), windows, np.empty(0))


def _placed(ranking: Ranking, lines: Sequence[_Line]) -> list[Row]:
    rows = {line.row.entry: line.row for line in lines}
    return [with_place(rows[place.label], place) for place in ranking.places]
