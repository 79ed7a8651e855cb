"""Boards from 10,000 and 100,000 runs, cold and warm, beside a plain mlflow.search_runs loop.

    python benchmarks/boards_scale.py                              # SQLite, in a temporary folder
    python benchmarks/boards_scale.py --uri postgresql+psycopg2://...  # an empty database; ops/team/postgres.sh has one

The runs are inserted straight into MLflow's tables (through its API 100,000 would take two hours): two tasks, a board
of half of the runs, 20 tags, 4 params and 12 metrics each, a tenth of them superseded. The loop is timed over whole
pages of 1,000 runs, at most `--loop` of them, and its time for all runs is extrapolated from these.
"""

from __future__ import annotations

import argparse
import io
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np

from mlflow_plugins import board_query
from mlflow_plugins._mlflow import MARKER, Store, ensure_store
from mlflow_plugins.publish import PREFIX

METRICS = ("faithfulness/skill", "stability/value", "fidelity/value", "faithfulness/raw")
CHUNK = 2_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--uri", help="tracking database; default: SQLite in a temporary folder")
    parser.add_argument("--folder", help="keep the SQLite files here, and use those that are there")
    parser.add_argument("--runs", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--loop", type=int, default=5, help="pages of the plain loop that are timed")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        for runs in arguments.runs:
            uri = arguments.uri or f"sqlite:///{arguments.folder or temporary}/{runs}.db"
            store = ensure_store(uri, f"explainbench-scale-{runs}", Path(temporary) / "artifacts", "scale", ["x"])
            began = time.perf_counter()
            if next(store.rows("", ()), None) is None:
                fill(store, runs)
            print(f"\n{runs:,} runs in {uri.split(':', 1)[0]} (inserted in {time.perf_counter() - began:.0f} s)")
            measure(store, runs, arguments.loop)


def measure(store: Store, runs: int, pages: int) -> None:
    """Print the seconds of each way, and the ratios."""
    board, cold, cpu = timed(lambda: board_query.query_board(store, "T1", METRICS[0]))
    _, second, _ = timed(lambda: board_query.query_board(store, "T1", METRICS[1]))
    _, within, _ = timed(lambda: board_query.query_board(store, "T1", METRICS[0], model="model-0001"))
    warm = min(timed(lambda: board_query.query_board(store, "T1", METRICS[0]))[1] for _ in range(5))
    print(f"board of {len(board):,} entries, cold          {cold:8.3f} s ({cpu:.2f} s CPU)")
    print(f"board of another metric, cold            {second:8.3f} s")
    print(f"board of one model, cold                 {within:8.3f} s")
    print(f"the first board, warm (best of 5)        {warm:8.3f} s")
    store.set_tag(board.rows[0].run_id, f"{PREFIX}superseded", "true")
    changed, again, _ = timed(lambda: board_query.query_board(store, "T1", METRICS[0]))
    assert len(changed) == len(board) - 1, "a change was not seen"
    print(f"after one run was superseded             {again:8.3f} s")
    token, seconds, done = None, 0.0, 0
    for _ in range(min(pages, -(-runs // 1000))):
        page, took, _ = timed(lambda token=token: store.client.search_runs([store.experiment_id], "", page_token=token))
        seconds, done, token = seconds + took, done + len(page), page.token
    whole = seconds / done * runs
    print(f"plain search_runs loop, all runs         {whole:8.3f} s (from {done:,} runs in {seconds:.2f} s)")
    print(f"ratio loop / cold {whole / cold:.0f}, loop / warm {whole / warm:.0f}")


def timed(work: Any) -> tuple[Any, float, float]:
    """What `work` returns, its wall-clock seconds, its CPU seconds in this process."""
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
    result = work()
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return result, time.perf_counter() - began, cpu


def fill(store: Store, runs: int) -> None:
    """Insert finished cells into MLflow's tables."""
    import sqlalchemy as sa
    from mlflow.store.tracking.dbmodels.models import SqlLatestMetric, SqlMetric, SqlParam, SqlRun, SqlTag

    rng = np.random.default_rng([7, runs])  # stores of two sizes in one database share no run id
    tables = {"runs": SqlRun, "tags": SqlTag, "params": SqlParam, "metrics": SqlMetric, "latest": SqlLatestMetric}
    sqlite = store.uri.startswith("sqlite")
    with store.client._tracking_client.store.engine.begin() as connection:
        if sqlite:  # random keys into large indexes: a small page cache would write gigabytes
            connection.exec_driver_sql("PRAGMA cache_size = -1000000")
            connection.exec_driver_sql("PRAGMA synchronous = OFF")
        for start in range(0, runs, CHUNK):
            rows: dict[str, list[dict[str, Any]]] = {name: [] for name in tables}
            for index in range(start, min(start + CHUNK, runs)):
                for name, row in one_run(store.experiment_id, index, runs, rng):
                    rows[name].append(row)
            for name, table in tables.items():
                insert(connection, sqlite, table.__tablename__, rows[name])
    if sqlite:  # no connection with that cache is left over for the measurements
        store.client._tracking_client.store.engine.dispose()
    store.analyse()
    if not sqlite:
        with store.client._tracking_client.store.engine.begin() as connection:
            connection.execute(sa.text("ANALYZE"))


def insert(connection: Any, sqlite: bool, table: str, rows: list[dict[str, Any]]) -> None:
    """Through the driver itself: statement by statement, 100,000 runs would take an hour."""
    columns = ", ".join(rows[0])
    if sqlite:
        values = ", ".join("?" * len(rows[0]))
        statement = f"INSERT INTO {table} ({columns}) VALUES ({values})"
        connection.exec_driver_sql(statement, [tuple(row.values()) for row in rows])
        return
    text = "".join("\t".join(map(str, row.values())) + "\n" for row in rows)
    with connection.connection.cursor() as cursor:
        cursor.copy_expert(f"COPY {table} ({columns}) FROM STDIN", io.StringIO(text))


def one_run(experiment: str, index: int, runs: int, rng: np.random.Generator) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of one run, by table."""
    run_id = UUID(bytes=rng.bytes(16)).hex
    cell, methods = index // 2, 200
    status = {"status": "FINISHED", "lifecycle_stage": "active", "source_type": "LOCAL", "user_id": "bench"}
    times = {"start_time": 1_700_000_000_000 + index, "end_time": 1_700_000_001_000 + index}
    names = {
        "run_uuid": run_id,
        "name": f"run {index}",
        "experiment_id": int(experiment),
        "artifact_uri": "file:///none",
    }
    yield "runs", {**names, **status, **times}
    tags = {
        MARKER: "true", f"{PREFIX}kind": "cell", f"{PREFIX}suite": "energy", f"{PREFIX}protocol": "explainbench-1",
        f"{PREFIX}task": f"T{index % 2 + 1}", f"{PREFIX}model": f"model-{cell // methods:04d}",
        f"{PREFIX}method": f"method-{cell % methods:03d}", f"{PREFIX}cell_id": rng.bytes(32).hex(),
        f"{PREFIX}record_sha256": rng.bytes(32).hex(), f"{PREFIX}workspace": "0123456789ab",
        f"{PREFIX}superseded": str(index % 10 == 9).lower(), f"{PREFIX}baseline": "false",
        f"{PREFIX}weights_source": "trained", f"{PREFIX}git_commit": "0" * 40, f"{PREFIX}git_dirty": "false",
        f"{PREFIX}dvc_data_md5": "0" * 32, f"{PREFIX}seed": "42", f"{PREFIX}result_digest": rng.bytes(32).hex(),
        "mlflow.runName": f"run {index}", "mlflow.note.content": "note " * 40,
    }  # fmt: skip
    for key, value in tags.items():
        yield "tags", {"run_uuid": run_id, "key": key, "value": value}
    for key in ("protocol", "seed", "runs", "record_sha256"):
        yield "params", {"run_uuid": run_id, "key": key, "value": "x" * 20}
    for name in METRICS:
        mean, half = rng.random(), 0.05 * rng.random()
        for key, value in ((name, mean), (f"{name}.lo", mean - half), (f"{name}.hi", mean + half)):
            point = {"run_uuid": run_id, "key": key, "value": value, "timestamp": 0, "step": 0, "is_nan": False}
            yield "metrics", point
            yield "latest", point


if __name__ == "__main__":
    main()
