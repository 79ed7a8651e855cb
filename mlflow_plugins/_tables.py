"""The tables of a tracking database read directly: with `_mlflow`, the other half of the adapter (tested with 3.17).

MLflow's search builds whole runs, 2 to 3 ms of work each. A board of 100,000 runs needs six columns of them.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from explainbench.core.errors import BadInput

PAGE = 50_000  # runs per statement: bounds the memory; each page joins the tags anew
MAPPED = 2**31  # bytes of a SQLite file read through a memory map
MARKER = "explainbench.complete"  # set last: a run without it was cut off while it was being logged


@dataclass(frozen=True, slots=True)
class Row:
    """A run as a query reads it: only those tags and metrics that were asked for, and that it has."""

    run_id: str
    status: str
    start_time: int
    tags: Mapping[str, str]
    metrics: Mapping[str, float]

    @property
    def complete(self) -> bool:
        """Whether the run was logged to its end; the marker must be among the tags that were asked for."""
        return self.status == "FINISHED" and self.tags.get(MARKER) == "true"


def rows(
    backend: Any, experiment_id: str, filter_string: str, tags: Sequence[str], metrics: Sequence[str]
) -> Iterator[Row]:
    """Runs that are not deleted and match, in the order of their ids; the filter goes through MLflow's own parser.

    backend: MLflow's SqlAlchemyStore. Raises BadInput for a filter on datasets, MlflowException for a malformed one.
    """
    import sqlalchemy as sa
    from mlflow.entities import LifecycleStage
    from mlflow.store.tracking import sqlalchemy_store
    from mlflow.store.tracking.dbmodels.models import SqlLatestMetric, SqlRun, SqlTag
    from mlflow.utils.search_utils import SearchUtils
    from sqlalchemy.orm import aliased

    asked = [(aliased(SqlTag), key) for key in tags] + [(aliased(SqlLatestMetric), key) for key in metrics]
    parsed = SearchUtils.parse_search_filter(filter_string)
    if any(clause["type"] == "dataset" for clause in parsed):
        raise BadInput(f"{filter_string}: a board cannot be filtered by dataset; search in MLflow's own page.")
    last = ""
    while True:
        with backend.ManagedSessionMaker() as session:
            if (
                backend._get_dialect() == "sqlite"
            ):  # a million look-ups in a large file: mapped, not copied page by page
                session.execute(sa.text(f"PRAGMA mmap_size = {MAPPED}"))
            clauses = sqlalchemy_store._get_sqlalchemy_filter_clauses(parsed, session, backend._get_dialect())
            attributes, others, _ = clauses
            query = sa.select(SqlRun.run_uuid, SqlRun.status, SqlRun.start_time, *(table.value for table, _ in asked))
            for other in others:
                query = query.join(other, SqlRun.run_uuid == other.c.run_uuid)
            for table, key in asked:
                query = query.outerjoin(table, sa.and_(table.run_uuid == SqlRun.run_uuid, table.key == key))
            query = query.where(
                SqlRun.experiment_id == int(experiment_id),
                SqlRun.lifecycle_stage == LifecycleStage.ACTIVE,
                SqlRun.run_uuid > last,
                *attributes,
            )
            page = session.execute(query.order_by(SqlRun.run_uuid).limit(PAGE)).all()
        split = 3 + len(tags)
        for found in page:
            given = {key: value for key, value in zip(tags, found[3:split], strict=True) if value is not None}
            numbers = {key: value for key, value in zip(metrics, found[split:], strict=True) if value is not None}
            yield Row(found[0], found[1], found[2] or 0, given, numbers)
        if len(page) < PAGE:
            return
        last = page[-1][0]


def relax(engine: Any) -> None:
    """Let a SQLite engine that writes wait for the disk at checkpoints, not at each of a run's ten commits.

    In WAL mode the file stays whole whatever happens; a power cut may cost the last runs, which are published again.
    """
    from sqlalchemy import event

    if not event.contains(engine, "connect", _at_checkpoints):
        event.listen(engine, "connect", _at_checkpoints)
        engine.dispose()  # connections from before that


def _at_checkpoints(connection: sqlite3.Connection, _: object) -> None:
    connection.execute("PRAGMA synchronous = NORMAL")


def postgres_version(backend: Any) -> str:
    """Which transactions a reader of PostgreSQL sees now: two equal answers mean equal data."""
    import sqlalchemy as sa

    with backend.engine.connect() as connection:
        return str(connection.execute(sa.text("SELECT pg_current_snapshot()::text")).scalar_one())


_watchers: dict[Path, tuple[tuple[int, int], sqlite3.Connection]] = {}  # one idle connection per database file
_watching = threading.Lock()


def sqlite_version(path: Path) -> str:
    """SQLite's count of other connections' commits, as one idle connection of ours sees it. Raises sqlite3.Error."""
    with _watching:
        stat = path.stat()
        file = (stat.st_dev, stat.st_ino)
        known = _watchers.get(path)
        if known is None or known[0] != file:  # a store that was rebuilt is another file
            if known is not None:
                known[1].close()
            _watchers[path] = (file, sqlite3.connect(path, timeout=30, check_same_thread=False))
        _, connection = _watchers[path]
        (count,) = connection.execute("PRAGMA data_version").fetchone()
    return f"{file[0]}.{file[1]}.{id(connection)}.{count}"


def sqlite_history(path: Path, run_id: str) -> dict[str, list[float]]:
    """{metric: its values in the order in which they were logged} of a run. Raises sqlite3.Error."""
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=30)
    try:
        query = "SELECT key, value, is_nan FROM metrics WHERE run_uuid = ? ORDER BY timestamp, step"
        found: dict[str, list[float]] = {}
        for key, value, is_nan in connection.execute(query, (run_id,)):
            found.setdefault(key, []).append(float("nan") if is_nan else value)
        return found
    finally:
        connection.close()
