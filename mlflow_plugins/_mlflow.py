"""The one adapter to MLflow (tested with 3.17): everything private or version-dependent of it is in this file."""

from __future__ import annotations

import base64
import fcntl
import hashlib
import json
import logging
import os
import socket
import sqlite3
import tempfile
import time
import warnings
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

from explainbench.core.errors import Unavailable

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

TESTED = ("3.17",)  # minor versions whose private behaviour this file was checked against
PAGE = 1000  # runs per search request
PROBE_SECONDS = 3.0
VIEW = "explainbench"  # key of the saved view: `?viewStateShareKey=explainbench` opens it
MAX_TAG, MAX_PARAM, MAX_DIGEST, MAX_BATCH = 8000, 6000, 36, 100  # MLflow's own limits
MARKER = "explainbench.complete"  # set last: a run without it was cut off while it was being logged


def library() -> Any:
    """The mlflow package, imported with telemetry off, short timeouts for servers, and no start-up chatter."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("DO_NOT_TRACK", "true")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR", "1")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of libraries that mlflow imports
        warnings.simplefilter("ignore", FutureWarning)
        import mlflow
        import mlflow.tracking
    for name in ("alembic", "mlflow.store.db.utils", "mlflow.tracking._tracking_service.utils"):
        logging.getLogger(name).setLevel(logging.WARNING)  # a page of migration steps on a new database
    return mlflow


@dataclass(frozen=True, slots=True)
class DatasetUse:
    """The dataset a run used, as MLflow shows it: name, digest (cut to 36 characters), source as JSON."""

    name: str
    digest: str
    source: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Store:
    """One experiment of a tracking store. Every method raises Unavailable when the store cannot be used."""

    client: MlflowClient
    uri: str
    experiment_id: str

    def runs(self, filter_string: str = "") -> Iterator[Run]:
        """All runs that are not deleted and match, page by page."""
        token: str | None = None
        while True:
            with reachable(self.uri):
                page = self.client.search_runs(
                    [self.experiment_id], filter_string=filter_string, max_results=PAGE, page_token=token
                )
            yield from page
            token = page.token
            if not token:
                return

    def run(self, run_id: str) -> Run | None:
        """A run by its id, also from another experiment; None when there is none."""
        from mlflow.exceptions import MlflowException

        with reachable(self.uri):
            try:
                return self.client.get_run(run_id)
            except MlflowException as error:
                if error.error_code in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
                    return None
                raise

    def write(
        self,
        name: str,
        tags: Mapping[str, str],
        params: Mapping[str, Any],
        metrics: Mapping[str, float],
        dataset: DatasetUse | None,
        artifacts: Path,
    ) -> str:
        """One finished, flat run: tags at creation, one batch of numbers, one folder of files, the marker last."""
        from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param

        with reachable(self.uri):
            clipped = {key: str(value)[:MAX_TAG] for key, value in tags.items()}
            run_id = self.client.create_run(self.experiment_id, tags=clipped, run_name=name).info.run_id
            now = int(time.time() * 1000)
            values = [Param(key, str(value)[:MAX_PARAM]) for key, value in params.items()]
            numbers = [Metric(key, float(value), now, 0) for key, value in metrics.items()]
            self.client.log_batch(run_id, metrics=numbers, params=values[:MAX_BATCH])
            if dataset is not None:
                used = Dataset(
                    dataset.name, dataset.digest[:MAX_DIGEST], "dvc", json.dumps(dict(dataset.source), sort_keys=True)
                )
                tag = InputTag("mlflow.data.context", "benchmark")
                self.client.log_inputs(run_id, [DatasetInput(used, [tag])])
            self.client.log_artifacts(run_id, str(artifacts))
            self.client.set_tag(run_id, MARKER, "true")
            self.client.set_terminated(run_id)
        return run_id

    def set_tag(self, run_id: str, key: str, value: str) -> None:
        """Set or overwrite one tag."""
        with reachable(self.uri):
            self.client.set_tag(run_id, key, value[:MAX_TAG])

    def kill(self, run_id: str) -> None:
        """Mark a run that was cut off while it was being logged."""
        with reachable(self.uri):
            self.client.set_terminated(run_id, status="KILLED")

    def artifact(self, run: Run, name: str) -> Path | None:
        """A local path of an artifact, without a copy where the store is on this machine; None when it is missing."""
        location = run.info.artifact_uri or ""
        parsed = urlparse(location)
        if parsed.scheme in ("", "file"):
            path = Path(unquote(parsed.path)) / name
            return path if path.is_file() else None
        from mlflow.exceptions import MlflowException

        with reachable(self.uri):
            try:
                return Path(self.client.download_artifacts(run.info.run_id, name))
            except (MlflowException, FileNotFoundError):  # what a missing file raises depends on the artifact store
                return None

    def analyse(self) -> None:
        """Refresh SQLite's statistics: sorting 10,000 runs by a metric falls from seconds to tenths."""
        path = sqlite_path(self.uri)
        if path is not None and path.is_file():
            with _sqlite(self.uri, path) as connection:
                connection.execute("ANALYZE")


def complete(run: Run) -> bool:
    """Whether the run was logged to its end."""
    return run.info.status == "FINISHED" and run.data.tags.get(MARKER) == "true"


def ensure_store(uri: str, experiment: str, artifacts: Path, description: str, columns: list[str]) -> Store:
    """Open the store, creating database, experiment, description and saved view where they are missing.

    Call it once, in the parent process, before anything else writes: processes that meet a fresh database together
    break each other. `artifacts` is where files go when the store is a database on this machine; a server decides
    for itself. Raises Unavailable.
    """
    library()
    from mlflow.exceptions import MlflowException

    _probe(uri)
    path = sqlite_path(uri)
    with reachable(uri), _one_at_a_time(uri):
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            with _sqlite(uri, path) as connection:
                connection.execute("PRAGMA journal_mode=WAL")  # kept in the file; MLflow does not set it
        client = _client(uri)
        found = client.get_experiment_by_name(experiment)
        if found is None:
            location = None if is_server(uri) else artifacts.resolve().as_uri()
            try:
                client.create_experiment(experiment, artifact_location=location)
            except MlflowException as error:
                if error.error_code != "RESOURCE_ALREADY_EXISTS":  # another machine was quicker
                    raise
            found = client.get_experiment_by_name(experiment)
        assert found is not None
        if found.lifecycle_stage == "deleted":
            raise Unavailable(
                f"experiment {experiment!r} was deleted in {_shown(uri)}; restore it "
                f"(mlflow experiments restore -x {found.experiment_id}) and publish again."
            )
        if not is_server(uri) and (found.artifact_location or "").startswith("mlflow-artifacts:"):
            raise Unavailable(
                f"experiment {experiment!r} in {_shown(uri)} was created through a tracking server, which keeps "
                "its files; set MLFLOW_TRACKING_URI to that server and publish again."
            )
        wanted = {"mlflow.experimentKind": "custom_model_development", "mlflow.note.content": description}
        for key, value in wanted.items():
            if found.tags.get(key) != value:
                client.set_experiment_tag(found.experiment_id, key, value)
        state = saved_view(columns)
        key = f"mlflow.sharedViewState.{VIEW}"
        if _view_state(found.tags.get(key)) != state:
            now = int(time.time() * 1000)
            view = {"name": "ExplainBench leaderboard", "createdAt": now, "updatedAt": now, "state": state}
            client.set_experiment_tag(found.experiment_id, key, json.dumps(view))
        return Store(client, uri, found.experiment_id)


def open_store(uri: str, experiment: str) -> Store | None:
    """Open a store for reading; None when it holds no such experiment. Never creates anything. Raises Unavailable."""
    path = sqlite_path(uri)
    if path is not None and not path.is_file():
        return None
    _probe(uri)
    with reachable(uri):
        client = _client(uri)
        found = client.get_experiment_by_name(experiment)
    return None if found is None else Store(client, uri, found.experiment_id)


def saved_view(columns: list[str]) -> str:
    """The state of MLflow's runs table that opens as a leaderboard: columns shown, best first, superseded runs hidden.

    columns: metrics; the first one sorts. Undocumented by MLflow: `deflate;` + base64(zlib(JSON)).
    """
    selected = [f"metrics.`{name}`" for name in columns]
    selected += [f"tags.`explainbench.{name}`" for name in ("task", "model", "method", "basis")]
    state = {
        "searchFilter": "tags.`explainbench.kind` = 'cell' and tags.`explainbench.superseded` = 'false'",
        "orderByKey": selected[0],
        "orderByAsc": False,
        "selectedColumns": selected,
        "runsHiddenMode": "SHOWALL",
    }
    packed = zlib.compress(json.dumps(state, sort_keys=True).encode(), 9)
    return "deflate;" + base64.b64encode(packed).decode()


def runs_link(uri: str, experiment_id: str) -> str | None:
    """The page of MLflow's runs table with our saved view, or None when no server is used."""
    if not is_server(uri):
        return None
    query = f"?viewStateShareKey={VIEW}&workflowType=machine_learning"
    return f"{uri.rstrip('/')}/#/experiments/{experiment_id}/runs{query}"


def is_server(uri: str) -> bool:
    """Whether the store is reached over HTTP."""
    return urlparse(uri).scheme in ("http", "https")


def sqlite_path(uri: str) -> Path | None:
    """The database file of a SQLite store, or None for another store."""
    if not uri.startswith("sqlite:///"):
        return None
    return Path(unquote(uri.removeprefix("sqlite:///").split("?", 1)[0]))


@contextmanager
def reachable(uri: str) -> Iterator[None]:
    """Turn what MLflow, its database driver or the network raise into one sentence."""
    library()
    import requests
    import sqlalchemy.exc
    from mlflow.exceptions import MlflowException

    try:
        yield
    except (MlflowException, requests.RequestException, sqlalchemy.exc.SQLAlchemyError, OSError) as error:
        reason = " ".join(str(error).split())
        raise Unavailable(
            f"the tracking store {_shown(uri)} cannot be used ({reason[:200]}); finished cells are kept, "
            "run `explainbench publish` when it is back."
        ) from error


def _client(uri: str) -> MlflowClient:
    library()
    from mlflow import MlflowClient

    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message="The ``noload`` loader strategy"
        )  # mlflow's models, on opening a store
        return MlflowClient(tracking_uri=uri, registry_uri=uri)


def _probe(uri: str) -> None:
    """Fail within seconds, not minutes, when nothing listens at a server's address."""
    if not is_server(uri):
        return
    parsed = urlparse(uri)
    port = parsed.port or (443 if parsed.scheme == "https" else 80)
    proxies = ("HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy", "ALL_PROXY")
    local = parsed.hostname in ("localhost", "127.0.0.1", "::1")
    if not local and any(os.environ.get(name) for name in proxies):
        return  # the proxy answers, not the server
    try:
        socket.create_connection((parsed.hostname or "", port), timeout=PROBE_SECONDS).close()
    except OSError as error:
        raise Unavailable(
            f"the tracking server {_shown(uri)} does not answer ({error.strerror or error}); finished cells are kept, "
            "run `explainbench publish` when it is back."
        ) from error


@contextmanager
def _sqlite(uri: str, path: Path) -> Iterator[sqlite3.Connection]:
    connection: sqlite3.Connection | None = None
    try:
        connection = sqlite3.connect(path, timeout=30)
        yield connection
        connection.commit()
    except sqlite3.Error as error:
        raise Unavailable(
            f"the tracking store {_shown(uri)} cannot be used ({error}); finished cells are kept. Move the file away "
            "and run `explainbench publish`: everything in it is rebuilt from the cells."
        ) from error
    finally:
        if connection is not None:
            connection.close()


@contextmanager
def _one_at_a_time(uri: str) -> Iterator[None]:
    """An exclusive lock per store on this machine."""
    name = hashlib.sha256(uri.encode()).hexdigest()[:16]
    with (Path(tempfile.gettempdir()) / f"explainbench-{os.getuid()}-{name}.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _view_state(tag: str | None) -> str | None:
    try:
        return json.loads(tag or "{}").get("state")
    except (json.JSONDecodeError, AttributeError):
        return None


def _shown(uri: str) -> str:
    """The address without a password."""
    parsed = urlparse(uri)
    return uri.replace(f":{parsed.password}@", ":...@") if parsed.password else uri
