"""The pages inside MLflow's own server: the private names they rest on, uvicorn, basic auth with its permissions."""

import base64
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from explainbench.core.files import write_json
from explainbench.core.params import load_params
from mlflow_plugins.leaderboard import build_leaderboard
from mlflow_plugins.publish import publish_workspace

QUIET = {
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "1",
    "OMP_NUM_THREADS": "1",
}
SMOKE = """
import os
from mlflow.environment_variables import _MLFLOW_SGI_NAME
from mlflow.server import ARTIFACTS_DESTINATION_ENV_VAR, BACKEND_STORE_URI_ENV_VAR, auth
from mlflow_plugins._mlflow import _at_home, server_uri
from mlflow_plugins.app import create_app

assert BACKEND_STORE_URI_ENV_VAR == "_MLFLOW_SERVER_FILE_STORE"
assert server_uri() == os.environ[BACKEND_STORE_URI_ENV_VAR]
assert ARTIFACTS_DESTINATION_ENV_VAR == "_MLFLOW_SERVER_ARTIFACT_DESTINATION"
assert _at_home("mlflow-artifacts:/1/a/artifacts") == "/kept/1/a/artifacts"
assert _at_home("file:///x") == "file:///x"
assert isinstance(auth.BEFORE_REQUEST_VALIDATORS, dict)
assert callable(auth.authorize) and callable(auth.store.get_user)
assert auth.Requirement._fields == ("resource_type", "resource_id", "action", "fallback_if_no_grant")
assert _MLFLOW_SGI_NAME.name == "_MLFLOW_SGI_NAME"
app = create_app()  # without uvicorn: MLflow's Flask app itself
client = app.test_client()
home = client.get("/", headers={"If-None-Match": '"old"', "If-Modified-Since": "Fri, 01 Jan 2100 00:00:00 GMT"})
assert home.status_code == 200 and b'class="explainbench-link"' in home.data and b'id="root"' in home.data
assert client.get("/explainbench/").status_code == 200
assert client.get("/ajax-api/2.0/mlflow/experiments/get-by-name?experiment_name=explainbench-energy").status_code == 200
os.environ["_MLFLOW_SGI_NAME"] = "uvicorn"
from mlflow_plugins._mlflow import server_app
wrapped = server_app(lambda app, prefix: [])
assert type(wrapped).__name__ == "FastAPI", wrapped
print("smoke passed")
"""


@pytest.fixture
def published(project, tracking):
    energy = {"dataset": "bqeb_standin", "tasks": {}, "models": [], "methods": [], "metrics": []}
    values = {
        "protocol": "test-1",
        "seed": 42,
        "runs": 2,
        "suites": {"energy": energy},
        "statistics": {"bootstrap": 200},
    }
    write_json(project.workspace.params, values)  # JSON is YAML
    params = load_params(project.workspace.params)
    project.lock(project.add("shap"), project.add("lime", shift=3.0))
    publish_workspace(project.workspace, params.statistics)
    build_leaderboard(project.workspace, params)
    return project


def environment(project, **more: str) -> dict[str, str]:
    python_path = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, **QUIET, "PYTHONPATH": python_path, "PATH": _path(), **more}


def _path() -> str:
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])


def test_the_private_names_of_mlflow_are_as_they_were(published):
    """When an upgrade of MLflow breaks the adapter, this says which name is gone."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SMOKE],
        cwd=published.workspace.root,
        env=environment(
            published,
            _MLFLOW_SERVER_FILE_STORE=published.workspace.tracking_uri,
            _MLFLOW_SERVER_ARTIFACT_DESTINATION="/kept",
        ),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert "smoke passed" in done.stdout, done.stderr[-3000:]


@contextmanager
def running(project, app_name: str, *options: str, **more: str) -> Iterator[str]:
    """`mlflow server` on a free port of this machine, stopped at the end."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = project.workspace.root / "server.log"
    mlflow = shutil.which("mlflow", path=_path())
    assert mlflow is not None
    with log.open("w") as handle:
        server = subprocess.Popen(
            [
                *(mlflow, "server", "--app-name", app_name, "--port", str(port), "--workers", "1"),
                *("--backend-store-uri", project.workspace.tracking_uri, *options),
            ],
            cwd=project.workspace.root,
            env=environment(project, **more),
            stdout=handle,
            stderr=handle,
            start_new_session=True,
        )
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            assert server.poll() is None, log.read_text()[-3000:]
            try:
                urllib.request.urlopen(f"{address}/health", timeout=5).close()
                break
            except urllib.error.HTTPError:
                break  # it answers: under a static prefix /health is another path
            except OSError:
                time.sleep(0.5)
        else:
            pytest.fail(log.read_text()[-3000:])
        yield address
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(timeout=60)


def ask(address: str, *, user: str = "", host: str = "", body: dict | None = None) -> tuple[int, str, dict[str, str]]:
    request = urllib.request.Request(address, data=None if body is None else json.dumps(body).encode())
    if user:
        request.add_header("Authorization", "Basic " + base64.b64encode(user.encode()).decode())
    if host:
        request.add_header("Host", host)
    if body is not None:
        request.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.status, answer.read().decode(), dict(answer.headers)
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(), dict(error.headers)


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--static-prefix", "/mlf"), ("--gunicorn-opts", "--timeout 120")])
def test_mlflow_server_serves_the_pages(published, options):
    prefix = "/mlf" if "/mlf" in options else ""
    with running(published, "explainbench", *options) as address:
        for page in ("", "board?name=T1.stability.methods.lstm", "cell?id=T1/lstm/shap", "lineage?id=T1/lstm/shap"):
            status, text, headers = ask(f"{address}{prefix}/explainbench/{page}")
            assert status == 200, text
            assert headers[
                "Content-Security-Policy" if "Content-Security-Policy" in headers else "content-security-policy"
            ]
        status, text, _ = ask(f"{address}{prefix}/api/explainbench/openapi.json")
        assert json.loads(text)["openapi"] == "3.1.0"
        assert "explainbench-link" in ask(f"{address}{prefix}/")[1]
        assert ask(f"{address}{prefix}/explainbench/", host="evil.example")[0] == 403
        assert ask(f"{address}{prefix}/explainbench/", body={})[0] == 405


@pytest.mark.slow
def test_basic_auth_and_the_permissions_of_experiments(published, tmp_path):
    config = tmp_path / "auth.ini"
    config.write_text(
        "[mlflow]\ndefault_permission = NO_PERMISSIONS\nadmin_username = admin\n"
        f"database_uri = sqlite:///{tmp_path / 'auth.db'}\n"
        "authorization_function = mlflow.server.auth:authenticate_request_basic_auth\n"
    )
    admin, alice, bob = "admin:correct-horse-1", "alice:correct-horse-2", "bob:correct-horse-3"
    more = {
        "MLFLOW_AUTH_CONFIG_PATH": str(config),
        "MLFLOW_FLASK_SERVER_SECRET_KEY": "of these tests only",
        "MLFLOW_AUTH_ADMIN_PASSWORD": admin.split(":")[1],
    }
    with running(published, "explainbench-auth", **more) as address:
        api = f"{address}/api/2.0/mlflow"
        for user in (alice, bob):
            name, password = user.split(":")
            status, text, _ = ask(f"{api}/users/create", user=admin, body={"username": name, "password": password})
            assert status == 200, text
        found = ask(f"{api}/experiments/get-by-name?experiment_name=explainbench-energy", user=admin)
        experiment = json.loads(found[1])["experiment"]["experiment_id"]

        def grant(kind: str, which: str, permission: str) -> None:
            body = {"username": "alice", "resource_type": kind, "resource_id": which, "permission": permission}
            where = f"{address}/api/3.0/mlflow/users/permissions/grant"
            status, text, _ = ask(where, user=admin, body=body)
            assert status == 200, text

        grant("experiment", experiment, "READ")
        pages = [
            "explainbench/",
            "explainbench/board?name=T1.stability.methods.lstm",
            "explainbench/cell?id=T1/lstm/shap",
            "explainbench/lineage?id=T1/lstm/shap",
            "explainbench/runs",
            "api/explainbench/boards?suite=energy",
            "api/explainbench/compare?a=T1/lstm/shap&b=T1/lstm/lime",
        ]
        for page in pages:
            assert ask(f"{address}/{page}")[0] == 401, page
            assert ask(f"{address}/{page}", user="alice:wrong")[0] == 401, page
            assert ask(f"{address}/{page}", user=admin)[0] == 200, page
            assert ask(f"{address}/{page}", user=alice)[0] == 200, page
            status, text, _ = ask(f"{address}/{page}", user=bob)
            assert status == (404 if page == "explainbench/" else 403), page
            assert "shap" not in text.replace("T1/lstm/shap", ""), page
        for name in ("explainbench.css", "mlflow-link.css", "icon.svg"):
            assert ask(f"{address}/explainbench/static/{name}", user=bob)[0] == 200
            assert ask(f"{address}/explainbench/static/{name}")[0] == 401
        assert ask(f"{address}/api/explainbench/cell?id=T1/lstm/shap", user=alice)[0] == 200
        grant("run", "*", "DENY")  # she may see the experiment, but no runs
        assert ask(f"{api}/runs/search", user=alice, body={"experiment_ids": [experiment]})[1].count("run_id") == 0
        assert ask(f"{address}/api/explainbench/cell?id=T1/lstm/shap", user=alice)[0] == 403
