"""Boards straight from the tracking store, of any size: one metric of one task, a few columns of each run, cached.

`leaderboard` reads every cell's scores and compares them pairwise on the same windows; that is the board to cite. This
one reads what MLflow's own table holds (means and intervals), so it says nothing beyond them: an order, how many
intervals lie wholly above a row's, and whether it overlaps the row above. It takes seconds for 100,000 runs.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from explainbench.core.arrays import Bools, Ints
from explainbench.core.errors import BadInput
from mlflow_plugins._mlflow import MARKER, Row, Store, is_server
from mlflow_plugins.publish import PREFIX

CACHED = 32  # queries kept
SERVER_SECONDS = 30.0  # how long an answer of a server is kept, for what others than publishers change there
PROTOCOL, MODEL, METHOD, BASELINE, CELL_ID, RECORD = (
    f"{PREFIX}{key}" for key in ("protocol", "model", "method", "baseline", "cell_id", "record_sha256")
)


@dataclass(frozen=True, slots=True)
class Place:
    """One row: a cell's mean and interval, and the run it is from.

    order: 1 for the best, baselines have none; rank_ub: 1 + entries whose interval lies wholly on the better side of
    this one's; overlaps_above: whether the interval overlaps that of the entry above; vouched: whether cells.lock.json
    holds this record, None where no lock was given.
    """

    entry: str
    model: str
    method: str
    mean: float
    low: float | None
    high: float | None
    order: int | None
    rank_ub: int | None
    overlaps_above: bool | None
    run_id: str
    vouched: bool | None


@dataclass(frozen=True, slots=True, eq=False)
class QueriedBoard:
    """The cells of a task by one metric, best first, baselines last. left_out: runs without
    the number, or passed over for another run of the same cell.

    A board may have 50,000 rows and a page shows a hundred: rows are made when `places` is asked for them.
    """

    task: str
    metric: str
    protocol: str
    left_out: int
    rows: tuple[Row, ...]
    ranked: int  # rows that are no baselines, which come first
    rank_ub: Ints  # (ranked,)
    overlaps_above: Bools  # (ranked,), False for the first
    vouched: tuple[bool | None, ...]

    def __len__(self) -> int:
        return len(self.rows)

    def places(self, first: int = 0, count: int | None = None) -> list[Place]:
        """`count` rows from the one with index `first`."""
        stop = len(self.rows) if count is None else min(first + count, len(self.rows))
        return [self._place(index) for index in range(first, stop)]

    def _place(self, index: int) -> Place:
        row, ranked = self.rows[index], index < self.ranked
        model, method = row.tags.get(MODEL, "?"), row.tags.get(METHOD, "?")
        return Place(
            entry=f"{model}/{method}",
            model=model,
            method=method,
            mean=row.metrics[self.metric],
            low=row.metrics.get(f"{self.metric}.lo"),
            high=row.metrics.get(f"{self.metric}.hi"),
            order=index + 1 if ranked else None,
            rank_ub=int(self.rank_ub[index]) if ranked else None,
            overlaps_above=bool(self.overlaps_above[index]) if ranked and index else None,
            run_id=row.run_id,
            vouched=self.vouched[index],
        )


def query_board(
    store: Store,
    task: str,
    metric: str,
    *,
    protocol: str | None = None,
    model: str | None = None,
    lower_is_better: bool = False,
    lock: Mapping[str, str] | None = None,
) -> QueriedBoard:
    """The board of one metric (`family/name`, as in MLflow) over a task's current cells.

    Raises BadInput when there is no such cell or number, and when cells of several protocol versions match and none is
    named; Unavailable when the store cannot be used.
    """
    wanted = {"task": task, "protocol": protocol, "model": model}
    for key, value in wanted.items():
        if value is not None and "'" in value:
            raise BadInput(f"{key} {value!r} is no name of ours: it holds a quotation mark.")
    named = "".join(f" and tags.{PREFIX}{key} = '{value}'" for key, value in wanted.items() if value is not None)
    query = (
        f"tags.{PREFIX}kind = 'cell' and tags.{PREFIX}superseded = 'false' and tags.{MARKER} = 'true' "
        f"and attributes.status = 'FINISHED'{named}"
    )
    vouching = None if lock is None else hash(frozenset(lock.items()))

    def ask() -> QueriedBoard:
        tags = (PROTOCOL, MODEL, METHOD, BASELINE, *(() if lock is None else (CELL_ID, RECORD)))
        rows = store.rows(query, tags, (metric, f"{metric}.lo", f"{metric}.hi"))
        return _board(list(rows), task, metric, -1.0 if lower_is_better else 1.0, lock)

    return _cached(store, (query, metric, lower_is_better, vouching), ask)


def _board(found: list[Row], task: str, metric: str, sign: float, lock: Mapping[str, str] | None) -> QueriedBoard:
    versions = sorted({row.tags.get(PROTOCOL, "") for row in found})
    if len(versions) > 1:
        raise BadInput(
            f"the tracking store holds cells of {len(versions)} protocol versions: {', '.join(versions)}; name one."
        )
    rows = _one_per_cell([row for row in found if metric in row.metrics], lock)
    if not rows:
        raise BadInput(
            f"none of {len(found)} finished cells of task {task!r} that match has the metric {metric!r}; "
            "metrics are named `family/name` as in MLflow's table, for example stability/value."
        )
    mean, low, high = (
        np.array([row.metrics.get(name, row.metrics[metric]) for row in rows])  # without an interval, the mean itself
        for name in (metric, f"{metric}.lo", f"{metric}.hi")
    )
    names = np.array([f"{row.tags.get(MODEL, '?')}/{row.tags.get(METHOD, '?')}" for row in rows])
    baseline = np.array([row.tags.get(BASELINE) == "true" for row in rows])
    order = np.lexsort((names, -sign * mean, baseline))
    worse, better = (sign * end[order] for end in ((low, high) if sign > 0 else (high, low)))
    ranked = int((~baseline).sum())
    worse, better = worse[:ranked], better[:ranked]
    above = ranked - np.searchsorted(np.sort(worse), better, side="right")
    return QueriedBoard(
        task=task,
        metric=metric,
        protocol=versions[0],
        left_out=len(found) - len(rows),
        rows=tuple(rows[i] for i in order),
        ranked=ranked,
        rank_ub=1 + above,
        overlaps_above=np.concatenate([[False], better[1:] >= worse[:-1]])[:ranked],
        vouched=tuple(_vouched(rows[i], lock) for i in order),
    )


_cache: OrderedDict[tuple[object, ...], tuple[str, float, QueriedBoard]] = OrderedDict()
_caching = threading.Lock()


def _cached(store: Store, question: tuple[object, ...], ask: Callable[[], QueriedBoard]) -> QueriedBoard:
    """The answer from memory while nothing in the store has changed since the same question was asked."""
    key = (store.uri, store.experiment_id, *question)
    version = store.version()  # before reading: what is written meanwhile counts as a change
    now = time.monotonic()
    with _caching:
        known = _cache.get(key)
        fresh = known is not None and (not is_server(store.uri) or now - known[1] < SERVER_SECONDS)
        if known is not None and fresh and known[0] == version:
            _cache.move_to_end(key)
            return known[2]
    answer = ask()
    if version is not None:
        with _caching:
            _cache[key] = (version, now, answer)
            while len(_cache) > CACHED:
                _cache.popitem(last=False)
    return answer


def _one_per_cell(rows: Iterable[Row], lock: Mapping[str, str] | None) -> list[Row]:
    """Of several runs of a (model, method) the one that the lock vouches for, else the latest."""
    best: dict[tuple[str | None, str | None], Row] = {}
    for row in rows:
        name = (row.tags.get(MODEL), row.tags.get(METHOD))
        other = best.setdefault(name, row)
        if other is not row and (_vouched(row, lock) or False, row.start_time) > (
            _vouched(other, lock) or False,
            other.start_time,
        ):
            best[name] = row
    return list(best.values())


def _vouched(row: Row, lock: Mapping[str, str] | None) -> bool | None:
    return None if lock is None else lock.get(row.tags.get(CELL_ID, "")) == row.tags.get(RECORD, "no digest")
