"""Stores as teams leave them: shown or skipped with a sentence, never a traceback. And the documented searches."""

import re
import sqlite3
import zlib
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.util import find_spec
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

from explainbench.cli import __main__
from explainbench.core.errors import Corrupt, Unavailable
from explainbench.core.params import StatisticsParams
from mlflow_plugins._mlflow import open_store
from mlflow_plugins.board_query import query_board
from mlflow_plugins.leaderboard import collect
from mlflow_plugins.publish import PREFIX, publish_cells

FEW = StatisticsParams(bootstrap=200)
DOCS = Path(__file__).parents[2] / "docs" / "mlflow.md"


def opened(project):
    store = open_store(project.workspace.tracking_uri, "explainbench-energy")
    assert store is not None
    return store


def test_a_store_with_everything_in_it(project, tracking, cells):
    made = cells()
    publish_cells(project.workspace, made, FEW)
    store = opened(project)
    client, experiment = store.client, store.experiment_id
    runs = {run.data.tags[f"{PREFIX}method"]: run for run in store.runs()}
    client.create_run(experiment, tags={"mlflow.runName": "<script>alert(1)</script>", "team": "other"})
    client.create_run(experiment, tags={f"{PREFIX}kind": "cell", f"{PREFIX}cell_id": "half"})  # cut off while logging
    client.set_tag(runs["shap"].info.run_id, "long", "x" * 5_000)
    client.delete_run(runs["lime"].info.run_id)
    path = store.artifact(runs["integrated_gradients"], "scores.parquet")
    assert path is not None
    path.unlink()
    found = collect(project.workspace)
    assert [row.entry.cell.method for row in found.rows] == ["shap"]
    assert "has no scores.parquet; publish the cell again" in found.left_out["energy/T1/lstm/integrated_gradients"]
    assert len(found.missing) == 1  # lime, whose run was deleted
    assert {place.method for place in query_board(store, "T1", "stability/value").places()} == {
        "shap",
        "integrated_gradients",
    }
    assert publish_cells(project.workspace, made, FEW).published == 1  # and lime is there again
    assert len(collect(project.workspace).rows) == 2


def test_a_flipped_bit_of_explanations_is_one_sentence(project):
    stored = project.add("shap")
    path = stored.folder / "explanations.npz"
    content = path.read_bytes()
    for at in np.random.default_rng(0).integers(len(content), size=20):
        changed = bytearray(content)
        changed[at] ^= 1
        path.write_bytes(changed)
        with pytest.raises(Corrupt, match=r"explanations.npz has SHA-256 .* evaluate the cell again\."):
            stored.explanations()
    path.write_bytes(content)
    assert "importance" in stored.explanations()


def test_a_damaged_file_without_a_digest_is_one_sentence(monkeypatch, capsys):
    def damaged(standalone_mode):
        zlib.decompress(b"no")

    monkeypatch.setattr(__main__, "app", damaged)
    with pytest.raises(SystemExit) as ended:
        __main__.main()
    assert ended.value.code == 2
    assert re.fullmatch(r"explainbench: a file is damaged \(.*\); .*audit --all.*\n", capsys.readouterr().err)


def test_a_database_of_another_mlflow(project, tracking):
    with sqlite3.connect(tracking) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '451aebb31d03'")
    connection.close()
    _forget_stores()
    with pytest.raises(Unavailable, match=r"cannot be used.*schema"):
        open_store(project.workspace.tracking_uri, "explainbench-energy")


@pytest.mark.skipif(find_spec("psycopg") is not None, reason="the driver that SQLAlchemy asks for is installed")
def test_a_database_whose_driver_is_missing():
    with pytest.raises(Unavailable, match=r"begin the address with postgresql\+psycopg2://"):
        open_store("postgresql://nobody@127.0.0.1:9/nothing", "explainbench-energy")


def _forget_stores():
    """MLflow keeps one store object per address."""
    from mlflow.tracking._tracking_service import utils

    utils._tracking_store_registry._get_store_with_resolved_uri.cache_clear()


class OldServer(BaseHTTPRequestHandler):
    """A server that is MLflow 2.9 and knows no request of ours."""

    status = 404

    def do_GET(self):
        version = self.path.endswith("/version")
        self.send_response(200 if version else self.status)
        self.end_headers()
        self.wfile.write(b"2.9.0" if version else b"Permission denied" if self.status == 403 else b"no such page")

    do_POST = do_GET

    def log_message(self, format, *args):
        pass


@pytest.fixture
def server():
    httpd = HTTPServer(("127.0.0.1", 0), OldServer)
    Thread(target=httpd.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{httpd.server_port}"
    httpd.shutdown()
    httpd.server_close()


@pytest.mark.parametrize(
    ("status", "says"),
    [
        (404, r"the server runs MLflow 2\.9\.0, this was tested with 3\.17"),
        (401, "give MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"),
        (403, "this account may not do that here"),
    ],
)
def test_a_server_that_refuses(server, status, says, monkeypatch):
    monkeypatch.setattr(OldServer, "status", status)
    with pytest.raises(Unavailable, match=says) as said:
        open_store(server, "explainbench-energy")
    assert "\n" not in str(said.value)


def documented() -> list[str]:
    """The searches in docs/mlflow.md, as they stand there."""
    table = DOCS.read_text(encoding="utf-8").split("## Searches", 1)[1].split("\n## ", 1)[0]
    return re.findall(r"^\| [^|]+ \| `(.+)` \|$", table, re.MULTILINE)


def test_every_documented_search_is_one_that_mlflow_accepts(project, tracking, cells):
    publish_cells(project.workspace, cells(), FEW)
    store = opened(project)
    found = {text: len(list(store.runs(text))) for text in documented()}
    assert len(found) >= 10
    assert found["tags.explainbench.kind = 'cell' and tags.explainbench.superseded = 'false'"] == 3
    assert sum(count > 0 for count in found.values()) >= 3
