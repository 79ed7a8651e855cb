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

from explainbench.core.errors import BadInput
from mlflow_plugins._mlflow import MARKER, Row, Store, is_server
from mlflow_plugins.publish import PREFIX

CACHED = 32  # queries kept
SERVER_SECONDS = 30.0  # how long an answer of a server is kept, for what others than publishers change there
TAGS = (
    MARKER,
    *(
        f"{PREFIX}{key}"
        for key in (
            "protocol",
            "model",
            "method",
            "cell_id",
            "record_sha256",
            "workspace",
            "weights_source",
            "baseline",
        )
    ),
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
    cell_id: str
    record_sha256: str
    weights_source: str
    vouched: bool | None


@dataclass(frozen=True, slots=True)
class QueriedBoard:
    """The cells of a task by one metric, best first, baselines last. left_out: runs without the number."""

    task: str
    metric: str
    protocol: str
    places: tuple[Place, ...]
    left_out: int


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
    query = f"tags.{PREFIX}kind = 'cell' and tags.{PREFIX}superseded = 'false' and attributes.status = 'FINISHED'"
    vouching = None if lock is None else hash(frozenset(lock.items()))

    def ask() -> QueriedBoard:
        columns = (metric, f"{metric}.lo", f"{metric}.hi")
        rows = store.rows(query + named, TAGS, columns)
        return _board(rows, task, metric, -1.0 if lower_is_better else 1.0, lock)

    return _cached(store, (query + named, metric, lower_is_better, vouching), ask)


def _board(rows: Iterable[Row], task: str, metric: str, sign: float, lock: Mapping[str, str] | None) -> QueriedBoard:
    found = [row for row in rows if row.complete]
    versions = sorted({row.tags.get(f"{PREFIX}protocol", "") for row in found})
    if len(versions) > 1:
        raise BadInput(
            f"the tracking store holds cells of {len(versions)} protocol versions: {', '.join(versions)}; name one."
        )
    with_number = [row for row in _one_per_cell(found, lock) if metric in row.metrics]
    if not with_number:
        raise BadInput(
            f"none of {len(found)} finished cells of task {task!r} that match has the metric {metric!r}; "
            "metrics are named `family/name` as in MLflow's table, for example stability/value."
        )
    return QueriedBoard(
        task, metric, versions[0], _placed(with_number, metric, sign, lock), len(found) - len(with_number)
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
    best: dict[tuple[str, str], tuple[tuple[bool, int], Row]] = {}
    for row in rows:
        tags = row.tags
        name = (tags.get(f"{PREFIX}model", "?"), tags.get(f"{PREFIX}method", "?"))
        preference = (bool(lock) and _vouched(row, lock) is True, row.start_time)
        if name not in best or preference > best[name][0]:
            best[name] = (preference, row)
    return [row for _, row in best.values()]


def _vouched(row: Row, lock: Mapping[str, str] | None) -> bool | None:
    if lock is None:
        return None
    return lock.get(row.tags.get(f"{PREFIX}cell_id", "")) == row.tags.get(f"{PREFIX}record_sha256", "no digest")


def _placed(rows: list[Row], metric: str, sign: float, lock: Mapping[str, str] | None) -> tuple[Place, ...]:
    """Best first by the mean, ties by name; baselines last and unranked."""
    mean = np.array([row.metrics[metric] for row in rows])
    low = np.array([row.metrics.get(f"{metric}.lo", np.nan) for row in rows])
    high = np.array([row.metrics.get(f"{metric}.hi", np.nan) for row in rows])
    names = [f"{row.tags.get(f'{PREFIX}model', '?')}/{row.tags.get(f'{PREFIX}method', '?')}" for row in rows]
    baseline = np.array([row.tags.get(f"{PREFIX}baseline") == "true" for row in rows])
    order = np.lexsort((np.array(names), -sign * mean, baseline))
    # the interval's worse and better end, whichever direction is good; without an interval, the mean itself
    worse, better = (sign * np.where(np.isnan(end), mean, end) for end in ((low, high) if sign > 0 else (high, low)))
    floors = np.sort(worse[~baseline])
    above = len(floors) - np.searchsorted(floors, better, side="right")
    places: list[Place] = []
    previous: int | None = None
    for position, i in enumerate(order):
        row, ranked = rows[i], not baseline[i]
        tags = row.tags
        places.append(
            Place(
                entry=names[i],
                model=tags.get(f"{PREFIX}model", "?"),
                method=tags.get(f"{PREFIX}method", "?"),
                mean=float(mean[i]),
                low=None if np.isnan(low[i]) else float(low[i]),
                high=None if np.isnan(high[i]) else float(high[i]),
                order=position + 1 if ranked else None,
                rank_ub=1 + int(above[i]) if ranked else None,
                overlaps_above=bool(better[i] >= worse[previous]) if ranked and previous is not None else None,
                run_id=row.run_id,
                cell_id=tags.get(f"{PREFIX}cell_id", ""),
                record_sha256=tags.get(f"{PREFIX}record_sha256", ""),
                weights_source=tags.get(f"{PREFIX}weights_source", ""),
                vouched=_vouched(row, lock),
            )
        )
        previous = int(i) if ranked else previous
    return tuple(places)
