"""A team's MLflow as ops/team starts it: PostgreSQL, files behind the proxy, basic auth, several writers at once."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import requests

from explainbench.core.errors import Unavailable
from explainbench.core.params import StatisticsParams
from explainbench.core.workspace import Workspace
from mlflow_plugins._mlflow import open_store
from mlflow_plugins.board_query import query_board
from mlflow_plugins.leaderboard import collect
from mlflow_plugins.publish import PREFIX, publish_cells

pytestmark = pytest.mark.slow
OPS = Path(__file__).parents[2] / "ops" / "team"
CELLS = int(os.environ.get("EXPLAINBENCH_CELLS", "100"))  # 1000: what benchmarks/publish_scale.py does
FEW = StatisticsParams(bootstrap=200)
WRITER = """
import sys
from pathlib import Path
from explainbench.core.params import StatisticsParams
from explainbench.core.workspace import Workspace
from explainbench.store import CellStore
from mlflow_plugins.publish import publish_cells
workspace = Workspace(Path(sys.argv[1]), Path(sys.argv[2]))
counts = publish_cells(workspace, CellStore(workspace.cells), StatisticsParams(bootstrap=200), whole=True)
print(counts.published, counts.already)
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return listening.getsockname()[1]


@pytest.fixture
def postgres():
    """The address of an empty database of a PostgreSQL of our own."""
    with tempfile.TemporaryDirectory(prefix="explainbench-postgres-") as folder:  # pytest's folders are root's alone
        command = [str(OPS / "postgres.sh"), "start", folder, str(free_port())]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode == 3:
            pytest.skip(done.stderr.strip())
        assert done.returncode == 0, done.stderr
        try:
            yield done.stdout.strip()
        finally:
            subprocess.run([str(OPS / "postgres.sh"), "stop", folder], check=True, timeout=60)


def test_four_writers_at_once_lose_no_cell_and_make_no_duplicate(project, postgres, tmp_path, monkeypatch):
    """Four people publish the same cells at the same moment, each from a clone."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", postgres)
    made = [project.add(f"method_{index:04d}", model=f"model_{index % 7}") for index in range(CELLS)]
    project.lock(*made)
    publish_cells(project.workspace, made[:1], FEW)  # the store is initialised once
    began = time.monotonic()
    writers = []
    for name in ("a", "b", "c", "d"):
        output = tmp_path / name
        output.mkdir()
        (output / "cells").symlink_to(project.workspace.cells)
        shutil.copy(project.workspace.lock, output / "cells.lock.json")
        command = [sys.executable, "-c", WRITER, str(project.workspace.root), str(output)]
        writers.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    said = [writer.communicate(timeout=900)[0].split() for writer in writers]
    print(f"{CELLS} cells, 4 writers: {time.monotonic() - began:.1f} s; published {[int(one[0]) for one in said]}")
    assert [writer.returncode for writer in writers] == [0] * 4
    assert sum(int(published) for published, _ in said) == CELLS - 1
    assert {int(published) + int(already) for published, already in said} == {CELLS}
    store = open_store(postgres, "explainbench-energy")
    assert store is not None
    rows = list(store.rows(f"tags.{PREFIX}kind = 'cell'", (f"{PREFIX}cell_id", f"{PREFIX}superseded")))
    assert sorted(row.tags[f"{PREFIX}cell_id"] for row in rows) == sorted(one.record.cell_id for one in made)
    assert {(row.status, row.tags[f"{PREFIX}superseded"]) for row in rows} == {("FINISHED", "false")}
    board = query_board(store, "T1", "stability/value")
    assert len(board) == CELLS
    assert query_board(store, "T1", "stability/value") is board  # PostgreSQL says that nothing changed
    store.set_tag(rows[0].run_id, f"{PREFIX}superseded", "true")
    assert len(query_board(store, "T1", "stability/value")) == CELLS - 1


@pytest.fixture
def server(postgres):
    """Address of a server of ops/team/serve.sh, its users `writer`, `reader` and `stranger`."""
    port, password = free_port(), "an-admin-password-of-tests"
    uri = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory(prefix="explainbench-team-") as folder:
        environment = {
            "DATABASE_URL": postgres, "MLFLOW_AUTH_ADMIN_PASSWORD": password, "WORKERS": "1",
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }  # fmt: skip
        log = Path(folder) / "server.log"
        with log.open("w") as handle:
            command = [str(OPS / "serve.sh"), folder, str(port)]
            serving = subprocess.Popen(
                command, cwd=folder, env=os.environ | environment, stdout=handle, stderr=handle, start_new_session=True
            )  # outside any project: its pages show what was published
        try:
            for _ in range(600):
                try:
                    if requests.get(f"{uri}/health", timeout=5).ok:
                        break
                except requests.RequestException:
                    assert serving.poll() is None, log.read_text()
                time.sleep(0.5)
            else:
                pytest.fail(log.read_text())
            for name in ("writer", "reader", "stranger"):
                body = {"username": name, "password": f"password-of-{name}"}
                requests.post(
                    f"{uri}/api/2.0/mlflow/users/create", json=body, auth=("admin", password), timeout=60
                ).raise_for_status()
            yield uri, ("admin", password), Path(folder)
        finally:
            os.killpg(serving.pid, signal.SIGTERM)
            serving.wait(timeout=30)


def test_accounts_may_do_what_they_were_granted(project, server, tmp_path, monkeypatch):
    uri, admin, folder = server
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    made = [project.add("shap"), project.add("lime")]
    project.lock(*made)
    with pytest.raises(Unavailable, match="give MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"):
        open_store(uri, "explainbench-energy")

    def log_in(name: str) -> None:
        monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", name)
        monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", f"password-of-{name}")

    log_in("writer")
    assert publish_cells(project.workspace, made, FEW).published == 2
    assert publish_cells(project.workspace, made, FEW).already == 2
    assert list((folder / "artifacts").rglob("record.json"))  # the server keeps the files
    log_in("reader")
    found = collect(project.workspace)
    assert [(row.entry.cell.method, row.problem) for row in found.rows] == [("lime", ""), ("shap", "")]
    with pytest.raises(Unavailable, match="this account may not do that here"):
        publish_cells(Workspace(project.workspace.root, tmp_path / "x"), [project.add("random")], FEW)
    store = open_store(uri, "explainbench-energy")
    assert store is not None
    assert len(query_board(store, "T1", "stability/value")) == 2
    closed = {"username": "stranger", "permission": "DENY", "resource_type": "experiment"}
    requests.post(
        f"{uri}/api/3.0/mlflow/users/permissions/grant",
        json=closed | {"resource_id": store.experiment_id},
        auth=admin,
        timeout=60,
    ).raise_for_status()
    log_in("stranger")
    with pytest.raises(Unavailable, match="this account may not do that here"):
        collect(project.workspace)
    cell = f"{uri}/explainbench/cell?id=T1/lstm/shap"
    assert requests.get(cell, timeout=60).status_code == 401
    for name, status in (("reader", 200), ("writer", 200), ("stranger", 403)):
        assert requests.get(cell, timeout=60, auth=(name, f"password-of-{name}")).status_code == status, name
