"""Boards from the tracking store: queried, cross-checked, flagged, refused when versions are mixed."""

import csv
import json
import shutil
import sqlite3
from io import StringIO

import pytest
from rich.console import Console

from explainbench.core.errors import BadInput
from explainbench.core.files import write_json
from explainbench.core.params import Params
from explainbench.store import write_lock
from mlflow_plugins import leaderboard
from mlflow_plugins._mlflow import open_store
from mlflow_plugins.leaderboard import build_leaderboard, collect, render_boards, selected
from mlflow_plugins.lineage import audit
from mlflow_plugins.publish import publish_cells, publish_workspace

PARAMS = Params.model_validate(
    {
        "protocol": "test-1",
        "seed": 42,
        "runs": 2,
        "suites": {
            "energy": {"dataset": "bqeb_standin", "tasks": {}, "models": [], "methods": [], "metrics": []},
        },
        "statistics": {"bootstrap": 200},
    }
)
FEW = PARAMS.statistics


@pytest.fixture
def published(project, tracking, cells):
    made = [*cells(), project.add("random", shift=-10.0)]
    project.lock(*made)
    publish_workspace(project.workspace, FEW)
    return made


def board(document, name):
    return next(item for item in document["boards"] if item["name"] == name)


def test_boards_from_the_store(project, published):
    document = build_leaderboard(project.workspace, PARAMS)
    assert document["verified"], document["flagged"]
    skill = board(document, "T1.faithfulness_skill.methods.lstm")
    assert [row["order"] for row in skill["rows"] if not row["baseline"]] == [1, 2, 3]
    assert all(row["verified"] for row in skill["rows"])
    by_name = {stored.cell.method: stored for stored in published}
    for row in skill["rows"]:
        assert row["record_digest"] == by_name[row["entry"]].digest
    stability = board(document, "T1.stability.methods.lstm")
    shap = next(row for row in stability["rows"] if row["entry"] == "shap")
    store = open_store(project.workspace.tracking_uri, "explainbench-energy")
    assert store is not None
    (run,) = store.runs("tags.explainbench.method = 'shap' and tags.explainbench.kind = 'cell'")
    assert shap["low"] == pytest.approx(run.data.metrics["stability/value.lo"], rel=1e-5)  # the run says the same
    results = project.workspace.results
    assert json.loads((results / "leaderboard.json").read_text()) == document
    rows = list(csv.DictReader((results / "leaderboard.csv").read_text().splitlines()))
    assert {row["entry"] for row in rows} >= {"shap", "lime", "integrated_gradients", "random"}
    assert "every row verified" in (results / "leaderboard.md").read_text()
    assert document["means"]["T1.stability.methods.lstm"]["shap"] == shap["mean"]


def test_page_and_table_follow_from_the_file(project, published, monkeypatch):
    """Also where something was collected in another order than that of a file with sorted keys."""
    made = leaderboard.board_json

    def unsorted(board):
        document = made(board)
        return document | {"rows": [row | {"extra": {"zeta": 1.0, "alpha": 2.0}} for row in document["rows"]]}

    monkeypatch.setattr(leaderboard, "board_json", unsorted)
    build_leaderboard(project.workspace, PARAMS)
    results = project.workspace.results
    document = json.loads((results / "leaderboard.json").read_text())
    assert (results / "leaderboard.md").read_text() == leaderboard.markdown(document)
    assert (results / "leaderboard.csv").read_text() == leaderboard.board_csv(document["boards"])


def test_the_same_bytes_from_a_store_that_was_rebuilt(project, published, empty_store, tmp_path, monkeypatch):
    build_leaderboard(project.workspace, PARAMS)
    files = sorted(project.workspace.results.glob("leaderboard.*"))
    before = [path.read_bytes() for path in files]
    assert len(before) == 3
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{shutil.copy(empty_store, tmp_path / 'rebuilt.db')}")
    assert publish_workspace(project.workspace, FEW)["published"] == 4
    build_leaderboard(project.workspace, PARAMS)
    assert [path.read_bytes() for path in files] == before


def test_boards_are_published_and_audited(project, published):
    document = build_leaderboard(project.workspace, PARAMS)
    said = publish_workspace(project.workspace, FEW)
    assert said["boards_published"] == len(document["means"])
    assert publish_workspace(project.workspace, FEW)["boards_published"] == 0
    chain = audit(project.workspace, "T1/lstm/shap")
    rows = next(link for link in chain.links if link.name == "board rows")
    assert rows.ok is True
    build_leaderboard(project.workspace, PARAMS)  # boards in the store are no cells


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("UPDATE tags SET value = 'x' WHERE key = 'explainbench.record_sha256'", "record_sha256 tag"),
        ("UPDATE tags SET value = 'x' WHERE key = 'explainbench.cell_id'", "cell_id tag"),
        ("UPDATE params SET value = 'x' WHERE key = 'record_sha256'", "record_sha256 param"),
        ("UPDATE tags SET value = 'patchtst' WHERE key = 'explainbench.model'", "another cell"),
    ],
)
def test_rows_that_disagree_are_flagged(project, tracking, statement, reason):
    stored = project.add("shap")
    project.lock(stored)
    publish_cells(project.workspace, [stored], FEW)
    with sqlite3.connect(tracking) as connection:
        connection.execute(statement)
    connection.close()
    document = build_leaderboard(project.workspace, PARAMS)
    assert not document["verified"]
    assert reason in document["flagged"]["energy/T1/lstm/shap"]
    row = board(document, "T1.stability.methods.lstm")["rows"][0]
    assert (row["verified"], reason in row["unverified_because"]) == (False, True)
    assert "NOT VERIFIED" in (project.workspace.results / "leaderboard.md").read_text()


def test_altered_artifacts_and_lock_are_flagged(project, published):
    store = open_store(project.workspace.tracking_uri, "explainbench-energy")
    assert store is not None
    runs = {run.data.tags["explainbench.method"]: run for run in store.runs("tags.explainbench.kind = 'cell'")}

    def artifact(method, name):
        path = store.artifact(runs[method], name)
        assert path is not None
        return path

    artifact("shap", "scores.parquet").write_bytes(artifact("lime", "scores.parquet").read_bytes())
    artifact("lime", "record.json").write_text("{}")
    artifact("integrated_gradients", "scores.parquet").unlink()
    write_lock(project.workspace.lock, {one.record.cell_id: one.digest for one in published[:3]} | {"f" * 64: "0"})
    found = collect(project.workspace)
    problems = {row.entry.cell.method: row.problem for row in found.rows}
    assert problems["shap"] == "scores.parquet is not the file of the record"
    assert problems["random"] == "cells.lock.json does not list this cell"
    assert set(found.left_out) == {"energy/T1/lstm/lime", "energy/T1/lstm/integrated_gradients"}
    assert found.missing == ("f" * 16,)


def test_two_protocol_versions_are_refused_unless_one_is_named(project, tracking):
    one, two = project.add("shap"), project.add("lime", protocol="test-2")
    project.lock(one, two)
    publish_cells(project.workspace, [one, two], FEW)
    with pytest.raises(BadInput, match=r"2 protocol versions: test-1, test-2"):
        collect(project.workspace)
    assert [row.entry.cell.method for row in collect(project.workspace, "test-2").rows] == ["lime"]
    with pytest.raises(BadInput, match=r"no finished cell of protocol 'other'; it holds test-1, test-2"):
        collect(project.workspace, "other")


def test_nothing_published(project):
    with pytest.raises(BadInput, match="explainbench publish"):
        collect(project.workspace)


def test_efficiency_is_joined_from_the_profile(project, published):
    cells = {f"energy/T1/lstm/{method}": {"median_seconds": 1.0} for method in ("shap", "lime")}
    write_json(project.workspace.results / "profile.json", {"schema": 1, "cells": cells})
    document = build_leaderboard(project.workspace, PARAMS)
    rows = {
        row["method"]: row["mean"]
        for item in document["boards"]
        if item["score"] == "EEI" and item["view"] == "methods"
        for row in item["rows"]
    }
    assert rows["shap"] == 0.5
    assert rows["integrated_gradients"] is None
    text = (project.workspace.results / "leaderboard.csv").read_text()
    assert ",EEI," not in text  # timings are never compared bit for bit


def test_shown_in_a_terminal_and_selected(project, published):
    document = build_leaderboard(project.workspace, PARAMS)
    chosen = selected(document, "t1", "stability")
    assert {item["score"] for item in chosen["boards"]} == {"stability"}
    console = Console(width=160, record=True, file=StringIO())
    for shown in render_boards(chosen):
        console.print(shown)
    text = console.export_text()
    assert "random (baseline)" in text
    with pytest.raises(BadInput, match="there is no board of task 'T9'; there are T1"):
        selected(document, "T9", None)


def test_methods_that_explain_alike_are_marked_as_aliases_within_a_model(project, published):
    from dataclasses import replace

    from mlflow_plugins.leaderboard import _with_aliases

    rows = {row.entry.cell.method: row for row in collect(project.workspace).rows}
    assert {method for method, row in rows.items() if row.importance is not None} == {"integrated_gradients"}
    assert all(row.entry.alias == "" for row in rows.values())
    one = rows["integrated_gradients"]

    def called(**names) -> object:
        return replace(one, entry=replace(one.entry, cell=replace(one.entry.cell, **names)))

    twin, elsewhere = called(method="feature_attribution"), called(model="transformer")
    marked = [row.entry.alias for row in _with_aliases([one, twin, elsewhere])]
    assert marked == ["feature_attribution=integrated_gradients"] * 2 + [""]
