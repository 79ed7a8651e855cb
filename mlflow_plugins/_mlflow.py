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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

from explainbench.core.errors import BadInput, Unavailable
from mlflow_plugins import _seal, _tables
from mlflow_plugins._tables import MARKER, Row

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

TESTED = ("3.17",)  # minor versions whose private behaviour this file was checked against
PAGE = 1000  # runs per search request
PROBE_SECONDS = 3.0
VIEW = "explainbench"  # key of the saved view: `?viewStateShareKey=explainbench` opens it
VIEW_TAG = f"mlflow.sharedViewState.{VIEW}"
EXPERIMENT_TAGS = {"mlflow.experimentKind": "custom_model_development"}
MAX_TAG, MAX_PARAM, MAX_DIGEST, MAX_BATCH = 8000, 6000, 36, 100  # MLflow's own limits
UPDATED = "explainbench.updated"  # experiment tag: changes whenever a publisher changed anything


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

    def page(self, filter_string: str, size: int, token: str | None = None) -> tuple[list[Run], str | None]:
        """One page of the runs that match, newest first, and the token of the next page. Raises BadInput."""
        from mlflow.exceptions import MlflowException

        with reachable(self.uri):
            try:
                found = self.client.search_runs(
                    [self.experiment_id],
                    filter_string,
                    max_results=size,
                    order_by=["start_time DESC"],
                    page_token=token,
                )
            except MlflowException as error:
                if error.error_code != "INVALID_PARAMETER_VALUE":
                    raise
                reason = " ".join(str(error).split())[:200]
                raise BadInput(f"MLflow does not understand the search {filter_string[:200]!r}: {reason}") from error
        return list(found), found.token

    def rows(self, filter_string: str, tags: Sequence[str], metrics: Sequence[str] = ()) -> Iterator[Row]:
        """The same runs with nothing but the named tags and metrics, which is all that is read of a database.

        A server has no such request: there whole runs are paged.
        """
        if is_server(self.uri):
            for run in self.runs(filter_string):
                kept = {key: run.data.tags[key] for key in tags if key in run.data.tags}
                numbers = {key: run.data.metrics[key] for key in metrics if key in run.data.metrics}
                yield Row(run.info.run_id, run.info.status, run.info.start_time or 0, kept, numbers)
        else:
            with reachable(self.uri):
                yield from _tables.rows(self._backend, self.experiment_id, filter_string, tags, metrics)

    def version(self) -> str | None:
        """Changes whenever anything in the store does, found out within a millisecond; None where it cannot be told.

        SQLite counts commits, PostgreSQL names the transactions a reader sees; of a server only what publishers did
        is known.
        """
        path = sqlite_path(self.uri)
        with reachable(self.uri):
            if path is not None:
                return _tables.sqlite_version(path)
            if is_server(self.uri):
                return self.client.get_experiment(self.experiment_id).tags.get(UPDATED)
            return _tables.postgres_version(self._backend) if self.uri.startswith("postgresql") else None

    def touch(self) -> None:
        """Tell readers behind a server that something changed."""
        mark = f"{time.time_ns()}-{os.getpid()}"
        with reachable(self.uri):
            _insisting(lambda: self.client.set_experiment_tag(self.experiment_id, UPDATED, mark))

    @property
    def _backend(self) -> Any:
        return self.client._tracking_client.store

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
        datasets: Iterable[DatasetUse],
        artifacts: Path,
        unique: str | None = None,
    ) -> str | None:
        """One finished, flat run: tags at creation, one folder of files, one batch of numbers with the marker last.

        unique: a tag that no two runs may share. The run is created first and its rivals are looked for afterwards, so
        of two writers at least one sees the other; who sees one takes the empty run back and returns None. Nobody's
        clock is asked, and it holds on any machine and behind a server.
        """
        from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, RunTag
        from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

        with reachable(self.uri):
            now = int(time.time() * 1000)
            values = [Param(key, str(value)[:MAX_PARAM]) for key, value in params.items()][:MAX_BATCH]
            numbers = [Metric(key, float(value), now, 0) for key, value in metrics.items()]
            context = [InputTag("mlflow.data.context", "benchmark")]
            used = [
                DatasetInput(
                    Dataset(one.name, one.digest[:MAX_DIGEST], "dvc", json.dumps(dict(one.source), sort_keys=True)),
                    context,
                )
                for one in datasets
            ]
            clipped = {key: str(value)[:MAX_TAG] for key, value in tags.items()}
            seal = _seal.document(
                _seal.leaves(name, clipped, {one.key: one.value for one in values}, metrics)
                | _seal.artifact_leaves(artifacts)
            )
            clipped[_seal.TAG] = _seal.digest(seal)
            run = self.client.create_run(self.experiment_id, tags=clipped, run_name=name).info
            run_id = run.run_id
            if unique is not None and any(rival.run_id != run_id for rival in self.rivals(unique, clipped[unique])):
                self.client.delete_run(run_id)
                return None
            if used:
                _insisting(lambda: self.client.log_inputs(run_id, used))
            # straight to the artifacts: the client would ask for the run again
            kept = get_artifact_repository(str(run.artifact_uri), tracking_uri=self.uri)
            kept.log_artifacts(str(artifacts))
            with tempfile.TemporaryDirectory(prefix="explainbench-") as temporary:
                sealed = Path(temporary) / _seal.FILE
                sealed.write_text(seal, encoding="utf-8")
                kept.log_artifact(str(sealed))
            self.client.log_batch(run_id, numbers, values, [RunTag(MARKER, "true")])
            self.client.set_terminated(run_id)
        return run_id

    def rivals(self, key: str, value: str) -> list[Row]:
        """Runs with this tag that are complete, or that somebody may still be writing."""
        found = self.rows(f"tags.`{key}` = '{value}'", (MARKER,))
        return [row for row in found if row.complete or row.status == "RUNNING"]

    def set_tag(self, run_id: str, key: str, value: str) -> None:
        """Set or overwrite one tag."""
        with reachable(self.uri):
            self.client.set_tag(run_id, key, value[:MAX_TAG])

    def history(self, run_id: str) -> dict[str, list[float]] | None:
        """{metric: every value logged} of a run; None where the database cannot be read directly, as of a server."""
        path = sqlite_path(self.uri)
        with reachable(self.uri):
            return None if path is None else _tables.sqlite_history(path, run_id)

    def experiment_tags(self) -> dict[str, str]:
        """Tags of the experiment: its description, and the saved view of its runs."""
        with reachable(self.uri):
            return dict(self.client.get_experiment(self.experiment_id).tags)

    def kill(self, run_id: str) -> None:
        """Mark a run that was cut off while it was being logged."""
        with reachable(self.uri):
            self.client.set_terminated(run_id, status="KILLED")

    def artifact(self, run: Run, name: str) -> Path | None:
        """A local path of an artifact, without a copy where the store is on this machine; None when it is missing."""
        parsed = urlparse(_at_home(run.info.artifact_uri or ""))
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


def suites(uri: str, prefix: str) -> list[str]:
    """Names of the experiments that are not deleted and begin with `prefix`. Raises Unavailable."""
    path = sqlite_path(uri)
    if path is not None and not path.is_file():
        return []
    _probe(uri)
    with reachable(uri):
        found = _client(uri).search_experiments(filter_string=f"name LIKE '{prefix}%'")
    return sorted(experiment.name for experiment in found)


def server_uri() -> str | None:
    """The backend store of the MLflow server that this process is a worker of; None in another process."""
    return os.environ.get("_MLFLOW_SERVER_FILE_STORE") or None


def server_app(register: Callable[[Any, str], Sequence[str]], *, auth: bool = False) -> Any:
    """MLflow's server with pages of ours; an ASGI app when the server runs on uvicorn, else MLflow's Flask app.

    register: adds the pages to a Flask app under a static prefix and returns their exact paths. With `auth` MLflow's
    basic auth stands before everything; a path that it does not know it refuses to everybody but administrators, so
    ours are opened to whoever is logged in, and what they may see there is asked of `may_read` by the pages.
    """
    library()
    from mlflow.environment_variables import _MLFLOW_SGI_NAME
    from mlflow.server import app
    from mlflow.server.handlers import _add_static_prefix

    paths = register(app, _add_static_prefix("/").rstrip("/"))
    if auth:
        from mlflow.server import auth as basic  # needs Flask-WTF

        for path in paths:
            for method in ("GET", "HEAD"):
                basic.BEFORE_REQUEST_VALIDATORS[path, method] = lambda: True
        return basic.create_app(app)
    if _MLFLOW_SGI_NAME.get() == "uvicorn":
        from mlflow.server.fastapi_app import create_fastapi_app

        return create_fastapi_app(app)
    return app


def may_read(experiment_id: str) -> bool:
    """Whether the user of this request, known to MLflow's basic auth, may read an experiment and its runs.

    "" stands for all experiments, which administrators alone may read. Runs are a tier of their own since MLflow 3.16:
    a grant or a refusal on them comes before that of their experiment, here as on MLflow's own pages.
    """
    from flask import g
    from mlflow.server import auth as basic
    from mlflow.server.auth.requirements import Requirement

    name = g.mlflow_authenticated_user
    if basic.store.get_user(name).is_admin:
        return True
    if experiment_id == "":
        return False
    experiment = ("experiment", experiment_id)
    runs = Requirement("run", "*", "read", fallback_if_no_grant=(experiment,))
    return basic.authorize(name, experiment, [Requirement(*experiment, "read"), runs])


def _at_home(location: str) -> str:
    """Where this server itself keeps files that it serves as a proxy; any other location as it is."""
    parsed = urlparse(location)
    destination = os.environ.get("_MLFLOW_SERVER_ARTIFACT_DESTINATION")  # set by `mlflow server` for its workers
    if parsed.scheme != "mlflow-artifacts" or not destination:
        return location
    return f"{destination.rstrip('/')}/{parsed.path.lstrip('/')}"


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
        for key, value in ({"mlflow.note.content": description} | EXPERIMENT_TAGS).items():
            if found.tags.get(key) != value:
                client.set_experiment_tag(found.experiment_id, key, value)
        view = found.tags.get(VIEW_TAG)
        if view != view_tag(columns, view_made(view)):
            client.set_experiment_tag(found.experiment_id, VIEW_TAG, view_tag(columns, int(time.time() * 1000)))
        if path is not None:
            _tables.relax(client._tracking_client.store.engine)
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


def _insisting(call: Callable[[], Any]) -> None:
    """Try again where another writer inserted the same row at the same moment: of two MLflow lets one fail."""
    from mlflow.exceptions import MlflowException

    for _ in range(3):
        try:
            call()
            return
        except MlflowException as error:
            if "unique" not in str(error).lower():
                raise
    call()


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
    except (
        MlflowException, requests.RequestException, sqlalchemy.exc.SQLAlchemyError, sqlite3.Error, OSError,
        ModuleNotFoundError,
    ) as error:  # fmt: skip
        reason = " ".join(str(error).split())
        raise Unavailable(
            f"the tracking store {_shown(uri)} cannot be used ({reason[:200]}{_hint(uri, reason)}); finished cells are "
            "kept, run `explainbench publish` when it is back."
        ) from error


def _hint(uri: str, reason: str) -> str:
    """What a refusal usually means."""
    if "No module named 'psycopg'" in reason:
        return "; begin the address with postgresql+psycopg2:// to use the driver that comes with the extra `team`"
    if not is_server(uri):
        return ""
    if "401" in reason:
        return "; give MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
    if "403" in reason or "Permission denied" in reason:
        return "; this account may not do that here, ask for permission on the experiment"
    version = server_version(uri)
    if version is not None and not version.startswith(tuple(f"{one}." for one in TESTED)):
        return f"; the server runs MLflow {version}, this was tested with {', '.join(TESTED)}"
    return ""


def server_version(uri: str) -> str | None:
    """What a tracking server says about itself, or None."""
    import requests

    try:
        answer = requests.get(f"{uri.rstrip('/')}/version", timeout=PROBE_SECONDS)
    except requests.RequestException:
        return None
    return answer.text.strip()[:40] if answer.status_code == 200 else None


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


def view_tag(columns: list[str], made: int) -> str:
    """The tag that holds the saved view; made: when, in milliseconds, all of it that does not follow from `columns`."""
    view = {"name": "ExplainBench leaderboard", "createdAt": made, "updatedAt": made, "state": saved_view(columns)}
    return json.dumps(view)


def view_made(tag: str | None) -> int:
    """When the saved view of a tag was made, 0 where it does not say."""
    try:
        return int(json.loads(tag or "")["createdAt"])
    except (ValueError, LookupError, TypeError):
        return 0


def _shown(uri: str) -> str:
    """The address without a password."""
    parsed = urlparse(uri)
    return uri.replace(f":{parsed.password}@", ":...@") if parsed.password else uri
