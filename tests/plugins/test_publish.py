"""Publishing: every number and tag there, idempotent, interruptions repaired, nothing deleted."""

import base64
import json
import shutil
import sqlite3
import zlib
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest

from explainbench.core.errors import Unavailable
from explainbench.core.params import StatisticsParams
from explainbench.core.workspace import Workspace
from mlflow_plugins._mlflow import MARKER, open_store, saved_view, sqlite_path
from mlflow_plugins.publish import (
    Publisher,
    headline,
    live,
    metric_name,
    publish_boards,
    publish_cells,
    publish_workspace,
    workspace_name,
)

pytestmark = pytest.mark.usefixtures("tracking")
FEW = StatisticsParams(bootstrap=200)
P = "explainbench."


def runs_of(project, filter_string=""):
    store = open_store(project.workspace.tracking_uri, "explainbench-energy")
    assert store is not None
    return store, list(store.runs(filter_string))


def test_a_run_says_everything(project, cells):
    commit = project.commit()
    made = cells()
    for picture in made[0].figures():
        picture.unlink()  # so that publishing draws them
    counts = publish_cells(project.workspace, made, FEW)
    assert (counts.published, counts.already, counts.superseded, counts.refused) == (3, 0, 0, ())
    store, runs = runs_of(project, "tags.explainbench.method = 'shap'")
    (run,) = runs
    stored = made[0]
    tags, params, metrics = run.data.tags, run.data.params, run.data.metrics
    assert run.info.run_name == "lstm·shap·T1"
    assert run.info.status == "FINISHED"
    assert "mlflow.parentRunId" not in tags
    expected = {
        "kind": "cell", "schema": "1", "suite": "energy", "task": "T1", "model": "lstm", "method": "shap",
        "cell_id": stored.record.cell_id, "record_sha256": stored.digest, "result_digest": stored.record.result_digest,
        "weights_source": "trained", "deterministic": "false", "runs": "2", "seed": "42", "masker": "climatology",
        "groups": "60", "basis": "F+Fid", "git_commit": commit, "git_dirty": "true", "superseded": "false",
    }  # fmt: skip
    assert {key: tags[P + key] for key in expected} == expected
    for name in ("code_tree", "dvc_data_md5", "dvc_lock_sha256", "params_sha256", "sources_sha256", "windows_sha256"):
        assert len(tags[P + name]) >= 32, name
    assert params["record_sha256"] == stored.digest  # tags can be overwritten, params cannot
    assert (params["method.coalitions"], params["task.target"]) == ("512", "load_mw")
    assert metrics["stability/value"] == pytest.approx(stored.record.scores["stability"].value)
    assert metrics["stability/value.lo"] < metrics["stability/value"] < metrics["stability/value.hi"]
    assert metrics["cost/evaluations_per_explanation"] == 512
    assert metrics["measured/seconds"] == 1.5
    (dataset,) = run.inputs.dataset_inputs
    assert dataset.dataset.source_type == "dvc"
    assert len(dataset.dataset.digest) == 36
    assert json.loads(dataset.dataset.source)["md5"].endswith(".dir")
    assert "explainbench audit energy/T1/lstm/shap" in tags["mlflow.note.content"]
    for name in ("record.json", "scores.parquet", "explanations.npz", "seeds.json", "figures/attribution.png"):
        path = store.artifact(run, name)
        assert path is not None
        assert path.read_bytes() == (stored.folder / name).read_bytes()


def test_publishing_again_changes_nothing(project, cells):
    made = cells()
    publish_cells(project.workspace, made, FEW)
    _, before = runs_of(project)
    counts = publish_cells(project.workspace, made, FEW)
    assert (counts.published, counts.already, counts.replaced, counts.superseded) == (0, 3, 0, 0)
    _, after = runs_of(project)
    assert sorted(run.info.run_id for run in before) == sorted(run.info.run_id for run in after)


def test_a_half_logged_run_is_replaced(project):
    stored = project.add("shap")
    project.lock(stored)
    with Publisher(project.workspace, FEW) as publisher:
        store = publisher.open()
        tags = {
            f"{P}kind": "cell",
            f"{P}cell_id": stored.record.cell_id,
            f"{P}record_sha256": stored.digest,
            f"{P}workspace": workspace_name(project.workspace),
        }
        cut = store.client.create_run(store.experiment_id, tags=tags).info.run_id  # as after kill -9
    counts = publish_cells(project.workspace, [stored], FEW)
    assert (counts.published, counts.replaced) == (1, 1)
    old = store.run(cut)
    assert old is not None
    assert (old.info.status, old.data.tags[f"{P}superseded"]) == ("KILLED", "true")
    assert publish_cells(project.workspace, [stored], FEW).replaced == 0
    _, current = runs_of(project, "tags.explainbench.superseded = 'false'")
    assert [run.data.tags[MARKER] for run in current] == ["true"]


def test_superseded_runs_are_tagged_never_deleted_and_can_come_back(project):
    old, other = project.add("shap"), project.add("lime")
    project.lock(old, other)
    publish_cells(project.workspace, [old, other], FEW)
    new = project.add("shap", seed=43)
    project.lock(new)  # shap was recomputed, lime left the grid
    assert publish_cells(project.workspace, [new], FEW).superseded == 1  # of a part: says nothing about lime
    assert publish_cells(project.workspace, [new], FEW, whole=True).superseded == 1
    _, runs = runs_of(project)
    state = {run.data.tags[f"{P}cell_id"]: run.data.tags[f"{P}superseded"] for run in runs}
    assert state == {old.record.cell_id: "true", other.record.cell_id: "true", new.record.cell_id: "false"}
    project.lock(old)
    counts = publish_cells(project.workspace, [old], FEW)
    assert (counts.published, counts.already) == (0, 1)
    _, runs = runs_of(project, "tags.explainbench.superseded = 'false'")
    assert [run.data.tags[f"{P}cell_id"] for run in runs] == [old.record.cell_id]


def test_another_project_on_the_same_store_is_left_alone(project, empty_store, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{shutil.copy(empty_store, tmp_path / 'shared.db')}")
    stored = project.add("shap")
    project.lock(stored)
    publish_cells(project.workspace, [stored], FEW)
    elsewhere = Workspace(project.workspace.root, tmp_path / "elsewhere")
    assert publish_cells(elsewhere, [], FEW, whole=True).superseded == 0
    assert publish_cells(elsewhere, [stored], FEW).already == 1  # the same bits from a clone: the same run
    _, runs = runs_of(project)
    assert [run.data.tags[f"{P}superseded"] for run in runs] == ["false"]


def test_a_cell_whose_bytes_changed_is_refused(project):
    stored = project.add("shap")
    (stored.folder / "seeds.json").write_text("{}")
    counts = publish_cells(project.workspace, [stored], FEW)
    assert counts.published == 0
    assert "seeds.json has SHA-256" in counts.refused[0]


def test_one_publisher_at_a_time(project):
    with Publisher(project.workspace, FEW), pytest.raises(Unavailable, match="another process is publishing"):
        Publisher(project.workspace, FEW).__enter__()
    with Publisher(project.workspace, FEW):  # and it is free again
        pass


def test_a_cell_that_another_project_is_publishing_is_waited_for(project, tmp_path, monkeypatch):
    """Flags first, then a look: whoever sees a rival takes its own run back, and comes again."""
    stored = project.add("shap")
    elsewhere = Workspace(project.workspace.root, tmp_path / "elsewhere")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", project.workspace.tracking_uri)
    with Publisher(elsewhere, FEW) as other:
        store = other.open()
    tags = {f"{P}kind": "cell", f"{P}cell_id": stored.record.cell_id, f"{P}record_sha256": stored.digest}
    rival = store.client.create_run(store.experiment_id, tags=tags | {f"{P}workspace": "other"}).info.run_id
    looks: list[float] = []

    def sleep(seconds: float) -> None:  # while we wait, the other finishes
        looks.append(seconds)
        store.client.set_tag(rival, MARKER, "true")
        store.client.set_terminated(rival)

    monkeypatch.setattr("mlflow_plugins.publish.time.sleep", sleep)
    counts = publish_cells(project.workspace, [stored], FEW)
    assert (counts.published, counts.already, counts.replaced) == (0, 1, 0)
    assert len(looks) == 1
    _, runs = runs_of(project)
    assert [run.info.run_id for run in runs] == [rival]  # ours, which never held anything, is gone


def test_a_run_that_its_writer_abandoned_is_taken_over(project, tmp_path, monkeypatch):
    stored = project.add("shap")
    with Publisher(project.workspace, FEW) as publisher:
        store = publisher.open()
    tags = {f"{P}kind": "cell", f"{P}cell_id": stored.record.cell_id, f"{P}record_sha256": stored.digest}
    dead = store.client.create_run(store.experiment_id, tags=tags | {f"{P}workspace": "other"}).info.run_id
    monkeypatch.setattr("mlflow_plugins.publish.time.sleep", lambda seconds: None)
    monkeypatch.setattr("mlflow_plugins.publish.ABANDONED", 0.0)
    counts = publish_cells(project.workspace, [stored], FEW)
    assert (counts.published, counts.replaced) == (1, 1)
    old = store.run(dead)
    assert old is not None
    assert (old.info.status, old.data.tags[f"{P}superseded_because"]) == ("KILLED", "its writer went away")


def test_four_writers_at_once_lose_no_cell_and_make_no_duplicate(project, tmp_path, monkeypatch):
    """Threads here, for their speed; tests/team does it with processes on PostgreSQL."""
    made = [project.add(f"method_{index}") for index in range(6)]
    monkeypatch.setenv("MLFLOW_TRACKING_URI", project.workspace.tracking_uri)
    with Publisher(project.workspace, FEW) as publisher:
        publisher.open()  # the store is initialised once
    together = Barrier(4)

    def write(name: str) -> int:
        together.wait()
        return publish_cells(Workspace(project.workspace.root, tmp_path / name), made, FEW, whole=True).published

    with ThreadPoolExecutor(4) as pool:
        published = list(pool.map(write, ["a", "b", "c", "d"]))
    assert sum(published) == len(made)
    _, runs = runs_of(project)
    assert sorted(run.data.tags[f"{P}cell_id"] for run in runs) == sorted(one.record.cell_id for one in made)
    assert {(run.info.status, run.data.tags[f"{P}superseded"]) for run in runs} == {("FINISHED", "false")}


def test_boards_lead_back_to_the_data_of_their_cells(project):
    stored = project.add("shap")
    row = {"entry": "shap", "mean": 1.0, "order": 1, "rank_ub": 1, "aliases": [], "baseline": False, "verified": True}
    row |= {"low": None, "high": None, "status": "value", "co_ranked_with_above": None, "co_ranked_plain": None}
    row |= {"p_vs_above": None, "weights_source": "", "extra": {}}
    board = {"name": "b", "task": "T1", "score": "s", "view": "methods", "model": "", "basis": "", "title": "t"}
    board |= {"confidence": 0.95, "n": 1, "effective_n": None, "detectable": None, "comparisons": 0, "notes": []}
    publish_boards(project.workspace, [board | {"rows": [row]}], cells=[stored])
    _, (run,) = runs_of(project, "tags.explainbench.kind = 'board'")
    (used,) = run.inputs.dataset_inputs
    assert json.loads(used.dataset.source)["sha256"] == stored.record.spec.dataset_sha256


def test_a_server_that_is_down(project, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    stored = project.add("shap")
    with pytest.raises(Unavailable, match=r"does not answer.*finished cells are kept.*explainbench publish"):
        publish_cells(project.workspace, [stored], FEW)


def test_a_database_that_is_none(project, monkeypatch, tmp_path):
    (tmp_path / "broken.db").write_bytes(b"not a database" * 100)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/broken.db")
    with pytest.raises(Unavailable, match=r"cannot be used.*finished cells are kept"):
        publish_cells(project.workspace, [project.add("shap")], FEW)


def test_store_is_in_wal_mode_and_analysed_with_a_saved_view(project, cells):
    publish_cells(project.workspace, cells(), FEW)
    path = sqlite_path(project.workspace.tracking_uri)
    assert path is not None
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert connection.execute("SELECT count(*) FROM sqlite_stat1 WHERE tbl = 'runs'").fetchone()[0] > 0
    rows = dict(connection.execute("SELECT key, value FROM experiment_tags").fetchall())
    connection.close()
    store = open_store(project.workspace.tracking_uri, "explainbench-energy")
    assert store is not None
    with store._backend.engine.connect() as writer:  # waits for the disk at checkpoints only
        assert writer.exec_driver_sql("PRAGMA synchronous").scalar_one() == 1
    assert rows["mlflow.experimentKind"] == "custom_model_development"
    assert rows["mlflow.note.content"].startswith("# ExplainBench")
    state = json.loads(rows["mlflow.sharedViewState.explainbench"])["state"]
    shown = json.loads(zlib.decompress(base64.b64decode(state.removeprefix("deflate;"))))
    assert shown["orderByKey"] == "metrics.`faithfulness/skill`"
    assert "superseded" in shown["searchFilter"]
    assert saved_view(["a"]) == saved_view(["a"])


def test_the_saved_views_filter_is_one_mlflow_accepts(project, cells):
    made = cells()
    publish_cells(project.workspace, made, FEW)
    state = json.loads(zlib.decompress(base64.b64decode(saved_view(["a"]).removeprefix("deflate;"))))
    _, runs = runs_of(project, state["searchFilter"])
    assert len(runs) == len(made)


def test_intervals_leave_undefined_windows_out(project):
    stored = project.add("shap")
    numbers = headline(stored, FEW)
    raw = np.array([row for row in stored.scores().to_pylist() if row["metric"] == "faithfulness_skill"])
    defined = [row["raw"] for row in raw if row["raw"] is not None]
    assert len(defined) == 11
    assert numbers["faithfulness/skill"] == pytest.approx(np.mean(defined))
    assert numbers == headline(stored, FEW)


@pytest.mark.parametrize(
    ("score", "kind", "name"),
    [
        ("faithfulness", "raw", "faithfulness/raw"),
        ("faithfulness_skill", "raw", "faithfulness/skill"),
        ("stability", "value", "stability/value"),
        ("noise_floor", "raw", "stability/noise_floor"),
        ("unheard_of", "raw", "score/unheard_of"),
    ],
)
def test_metric_names(score, kind, name):
    assert metric_name(score, kind, ["faithfulness", "stability"]) == name


def test_boards_are_runs_too_and_idempotent(project):
    row = {
        "entry": "lstm/shap", "mean": 0.5, "low": 0.4, "high": 0.6, "order": 1, "rank_ub": 1, "aliases": [],
        "baseline": False, "verified": True, "status": "value", "co_ranked_with_above": None, "p_vs_above": None,
        "co_ranked_plain": None, "weights_source": "standin", "extra": {"clipped": 0.25},
    }  # fmt: skip
    board = {
        "name": "T1.EQI", "task": "T1", "score": "EQI", "view": "cells", "model": "", "basis": "F", "title": "quality",
        "protocol": "test-1", "confidence": 0.95, "n": 12, "effective_n": 9.0, "detectable": None, "comparisons": 0,
        "notes": [], "rows": [row],
    }  # fmt: skip
    empty = board | {"name": "T1.HIR", "rows": [row | {"mean": None}]}
    first = publish_boards(project.workspace, [board, empty])
    assert (first.published, first.already) == (1, 0)
    assert publish_boards(project.workspace, [board]).already == 1
    changed = publish_boards(project.workspace, [board | {"n": 13}])
    assert (changed.published, changed.superseded) == (1, 1)
    _, runs = runs_of(project, "tags.explainbench.kind = 'board'")
    state = {run.data.tags[f"{P}n"]: run.data.tags[f"{P}superseded"] for run in runs}
    assert state == {"12": "true", "13": "false"}
    assert {run.data.metrics["board/lstm/shap.lo"] for run in runs} == {0.4}
    assert publish_boards(project.workspace, [board]).superseded == 1  # and the first is current again
    _, runs = runs_of(project, "tags.explainbench.kind = 'board' and tags.explainbench.superseded = 'false'")
    assert [run.data.tags[f"{P}n"] for run in runs] == ["12"]


def test_the_workspace_is_synced_to_its_lock(project, cells):
    made = cells()
    stray = project.add("random")  # computed, not in the lock
    (made[1].folder / "record.json").write_text("{")
    said = publish_workspace(project.workspace, FEW)
    assert (said["published"], said["boards_published"]) == (2, 0)
    assert any("not in cells.lock.json" in line and stray.folder.name in line for line in said["refused"])
    assert any("record.json" in line for line in said["refused"])
    json.dumps(said)


def test_live_publishing_says_a_dead_server_once_and_goes_on(project, monkeypatch):
    stored = project.add("shap")
    said: list[str] = []
    with live(project.workspace, FEW, said.append) as log:
        log(stored.folder)
    assert said == []
    assert len(runs_of(project)[1]) == 1
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    with live(project.workspace, FEW, said.append) as log:
        log(stored.folder)
        log(stored.folder)
    assert len(said) == 1
    assert "does not answer" in said[0]
