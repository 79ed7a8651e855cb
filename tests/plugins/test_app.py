"""The pages and their JSON twins through Flask's test client: what they show, what they refuse, what they escape."""

import csv
import json
import re
import shutil
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from flask import Flask
from jsonschema import Draft202012Validator

from explainbench.core.errors import BadInput
from explainbench.core.files import write_json
from explainbench.core.params import Params
from explainbench.core.workspace import Workspace
from mlflow_plugins._mlflow import open_store
from mlflow_plugins.app.boards import Rows, grouped
from mlflow_plugins.app.endpoints import ENDPOINTS
from mlflow_plugins.app.openapi import document
from mlflow_plugins.app.routes import HEADERS, register
from mlflow_plugins.app.source import Source
from mlflow_plugins.leaderboard import build_leaderboard
from mlflow_plugins.publish import publish_workspace

MARKUP = "<img src=x onerror=alert(1)>"
P = "explainbench."
PARAMS = Params.model_validate(
    {
        "protocol": "test-1",
        "seed": 42,
        "runs": 2,
        "suites": {"energy": {"dataset": "bqeb_standin", "tasks": {}, "models": [], "methods": [], "metrics": []}},
        "statistics": {"bootstrap": 200},
    }
)
BOARD = "/explainbench/board?name=T1.stability.methods.lstm"


@pytest.fixture(scope="module")
def published(make_project, empty_store, tmp_path_factory):
    """A published project with boards: three methods and a baseline on one model, one of them named like an attack."""
    project = make_project(tmp_path_factory.mktemp("app") / "project")
    made = [
        project.add("shap"),
        project.add("lime", shift=3.0),
        project.add("integrated_gradients", shift=40.0),
        project.add(MARKUP),
        project.add("random", shift=-10.0),
        project.add("shap", "transformer"),
    ]
    project.lock(*made)
    shutil.copy(empty_store, project.workspace.output / "mlflow.db")
    publish_workspace(project.workspace, PARAMS.statistics)
    build_leaderboard(project.workspace, PARAMS)
    publish_workspace(project.workspace, PARAMS.statistics)
    return project


def source_of(project, may_read=lambda experiment_id: True) -> Source:
    workspace = project.workspace
    return Source(workspace, workspace.tracking_uri, may_read, PARAMS)


def client_of(source: Source, prefix: str = ""):
    app = Flask("beside-mlflow")
    register(source)(app, prefix)
    return app.test_client()


@pytest.fixture(scope="module")
def client(published):
    return client_of(source_of(published))


def get(client, address, status=200):
    answer = client.get(address, buffered=True)
    assert answer.status_code == status, answer.text[:2000]
    return answer


class _Reader(HTMLParser):
    """What a page is made of: tags with their attributes, and its words."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.words.append(data)


def read(client, address, status=200) -> tuple[str, _Reader]:
    page = _Reader(get(client, address, status).text)
    return " ".join(" ".join(page.words).split()), page


PAGES = [
    "/explainbench/",
    BOARD,
    "/explainbench/live?task=T1&metric=stability/value",
    "/explainbench/cell?id=T1/lstm/shap",
    "/explainbench/cell",
    "/explainbench/lineage?id=T1/lstm/lime",
    "/explainbench/lineage",
    "/explainbench/compare?a=T1/lstm/shap&b=T1/lstm/lime",
    "/explainbench/compare",
    "/explainbench/runs",
    "/explainbench/diff",
    "/explainbench/api",
    "/explainbench/cell?id=nothing",
]


@pytest.mark.parametrize("address", PAGES)
def test_every_page_is_whole_safe_and_named(client, address):
    answer = client.get(address)
    assert answer.status_code == (404 if address.endswith("nothing") else 200)
    for name, value in HEADERS.items():
        assert answer.headers[name] == value
    page = _Reader(answer.text)
    names = [tag for tag, _ in page.tags]
    assert names.count("h1") == 1
    assert "script" not in names
    assert all(not key.startswith("on") and key != "style" for _, attributes in page.tags for key in attributes)
    ids = [attributes["id"] for _, attributes in page.tags if attributes.get("id")]
    assert len(ids) == len(set(ids))
    assert ("html", {"lang": "en"}) in page.tags
    for tag, attributes in page.tags:  # what assistive software reads
        if tag in ("input", "select") and attributes.get("type") != "hidden":
            assert "aria-label" in attributes or f"<{tag}" in answer.text
        if tag == "svg":
            assert attributes.get("aria-label") or attributes.get("aria-hidden") == "true"
    for tag, attributes in page.tags:
        target = attributes.get("href") or attributes.get("action") or ""
        assert tag not in ("a", "form", "link") or target.startswith(("/", "#")), target  # nothing from elsewhere


@pytest.mark.parametrize("address", PAGES)
def test_every_link_leads_somewhere(client, address):
    _, page = read(client, address, client.get(address).status_code)
    targets = {attributes["href"] for tag, attributes in page.tags if tag == "a" and attributes.get("href")}
    for target in sorted(one for one in targets if "explainbench/" in (one or "")):
        assert client.get(target).status_code == 200, target


@pytest.mark.parametrize("method", ["post", "put", "delete", "patch"])
def test_nothing_can_be_changed(client, method):
    for address in ("/explainbench/", "/api/explainbench/boards", "/explainbench/cell?id=T1/lstm/shap"):
        assert getattr(client, method)(address).status_code == 405


def test_boards_can_be_narrowed_down(client):
    words, _ = read(client, "/explainbench/")
    assert "explanation stability" in words
    assert "Without a number" in words
    facts = get(client, "/api/explainbench/boards?task=T1&score=stability&model=lstm").json
    assert [family["name"] for family in facts["families"]] == ["T1.stability.methods.lstm"]
    assert facts["choices"]["model"] == ["lstm", "transformer"]
    words, _ = read(client, "/explainbench/?task=T9")
    assert "No board with a number agrees" in words


def test_a_board_filters_sorts_and_says_who_is_co_ranked(client):
    facts = get(client, f"/api{BOARD}").json
    ranked = [row for row in facts["rows"] if row["group"]]
    assert [row["order"] for row in ranked] == [1, 2, 3, 4]
    assert ranked[0]["group"] == 1
    assert next(row for row in facts["rows"] if row["entry"] == "random")["group"] is None
    only = get(client, f"/api{BOARD}&q=LIM&baselines=0").json["rows"]
    assert [row["entry"] for row in only] == ["lime"]
    means = [row["mean"] for row in get(client, f"/api{BOARD}&sort=mean&down=1").json["rows"]]
    assert means == sorted(means, reverse=True)
    words, _ = read(client, f"{BOARD}&q=lime")
    assert "1 of 5 rows" in words
    words, _ = read(client, f"{BOARD}&q=zzz")
    assert "No row agrees" in words
    assert "cannot be sorted" in get(client, f"/api{BOARD}&sort=colour", 400).json["error"]


def test_groups_are_chains_of_neighbours():
    row = {"baseline": False}
    rows = [
        {**row, "order": 1, "co_ranked_with_above": None},
        {**row, "order": 2, "co_ranked_with_above": True},
        {**row, "order": 3, "co_ranked_with_above": False},
        {"order": None, "co_ranked_with_above": None, "baseline": True},
        {**row, "order": 4, "co_ranked_with_above": True},
    ]
    assert [found["group"] for found in grouped(rows)] == [1, 1, 2, None, 2]
    points = [{**one, "co_ranked_with_above": None} for one in rows]
    assert {found["group"] for found in grouped(points)} == {None}  # nothing is known of neighbours
    with pytest.raises(BadInput, match="cannot be sorted"):
        Rows(sort="nothing")


def test_deployment_contexts_are_boards_too(published, tmp_path):
    project = _copied(published, tmp_path)
    cells = [("lstm", "shap", 0.2), ("lstm", "lime", 0.7), ("lstm", "random", None)]
    rows = [
        {
            **{"model": model, "method": method, "context": context},
            "values": dict.fromkeys(("act", "act_valid", "dss", "edts", "eei"), value),
            "gaps": {} if value is not None else {"act": "not profiled"},
        }
        for context in ("home", "island")
        for model, method, value in cells
    ]
    document = {
        **{"protocol": "test-1", "contexts": [{"name": "home"}, {"name": "island"}], "note": "illustrative"},
        "tasks": {"T1": {"rows": rows, "variance_shares": {}}},
    }
    write_json(project.workspace.results / "contexts.json", document)
    client = client_of(source_of(project))
    facts = get(client, "/api/explainbench/boards?context=island&score=Act").json
    assert [family["name"] for family in facts["families"]] == ["T1.Act.island"]
    assert facts["families"][0]["leaders"] == ["lstm/lime"]
    found = get(client, "/api/explainbench/board?name=T1.Act.island").json["rows"]
    assert [(row["entry"], row["order"], row["group"]) for row in found] == [
        ("lstm/lime", 1, None),
        ("lstm/shap", 2, None),
        ("lstm/random", None, None),
    ]
    assert found[2]["reason"] == "not profiled"
    write_json(project.workspace.results / "contexts.json", {"tasks": []})
    assert "contexts.json is left out" in get(client, "/api/explainbench/boards").text


def test_downloads_hold_what_the_page_shows(client):
    answer = get(client, "/explainbench/board.csv?name=T1.stability.methods.lstm&sort=entry")
    rows = list(csv.DictReader(StringIO(answer.text)))
    assert [row["entry"] for row in rows] == sorted(["shap", "lime", "integrated_gradients", MARKUP, "random"])
    assert answer.headers["Content-Disposition"] == 'attachment; filename="T1.stability.methods.lstm.csv"'
    facts = get(client, f"/api{BOARD}&sort=entry").json
    assert float(rows[0]["mean"]) == facts["rows"][0]["mean"]
    answer = get(client, f"/api{BOARD}&download=1")
    assert answer.headers["Content-Disposition"].endswith('.json"')


def test_any_metric_straight_from_the_store(client):
    words, _ = read(client, "/explainbench/live?task=T1&metric=stability/value")
    assert "straight from the runs" in words
    assert "lstm/integrated_gradients" in words
    rows = get(client, "/api/explainbench/live?task=T1&metric=stability/value&model=transformer").json["rows"]
    assert [row["entry"] for row in rows] == ["transformer/shap"]
    assert "has the metric" in get(client, "/api/explainbench/live?task=T1&metric=nope/x", 400).json["error"]
    assert "'metric' is missing" in get(client, "/api/explainbench/live?task=T1", 400).json["error"]


def test_the_cell_page(client, published):
    words, page = read(client, "/explainbench/cell?id=T1/lstm/shap&window=2")
    for said in ("SHAP explains lstm", "window 2", "ramp, target from", "human interpretability", "stochastic, 2 runs"):
        assert said in words or said in str(page.tags), said
    facts = get(client, "/api/explainbench/cell?id=T1/lstm/shap&window=2").json
    stored = next(iter(cell for cell in _cells(published.workspace) if cell.cell.method == "shap"))
    arrays = stored.explanations()
    assert facts["heat"]["output"] == pytest.approx(arrays["output"][2])
    target = dict(facts["heat"]["channels"])["load_mw"]
    assert [span["value"] for span in target] == pytest.approx(list(arrays["importance"][2][:12]))
    assert [(span["start"], span["stop"]) for span in target] == [(i * 8, i * 8 + 8) for i in range(12)]
    score = next(row for row in facts["scores"] if row["metric"] == "stability")
    assert set(score["by"]) == {"all", "peak", "ramp", "off_peak"}
    assert score["by"]["all"]["mean"] == pytest.approx(
        np.mean([p for group in score["points"].values() for p in group])
    )
    links = [attributes.get("href") or "" for _, attributes in page.tags]
    assert any(link.startswith("/#/experiments/") and "workflowType=machine_learning" in link for link in links)
    assert any(link.startswith("/get-artifact?path=record.json") for link in links)


def _cells(workspace: Workspace):
    from explainbench.store import CellStore

    return list(CellStore(workspace.cells))


def test_a_cell_by_name_id_and_run_is_one_cell(client):
    by_name = get(client, "/api/explainbench/cell?id=energy/T1/lstm/lime").json
    run = by_name["run"]["run_id"]
    for name in ("T1/lstm/lime", "lstm·lime·T1", by_name["cell_id"], by_name["cell_id"][:12], run):
        assert get(client, f"/api/explainbench/cell?id={name}").json["cell_id"] == by_name["cell_id"]
    assert "no window 99" in " ".join(get(client, "/api/explainbench/cell?id=T1/lstm/lime&window=99").json["remarks"])
    assert "whole number" in get(client, "/api/explainbench/cell?id=T1/lstm/lime&window=-1", 400).json["error"]


def test_lineage_names_the_broken_link(published, tmp_path):
    project = _copied(published, tmp_path)
    client = client_of(source_of(project))
    before = get(client, "/api/explainbench/lineage?id=T1/lstm/lime").json
    broken = [link["name"] for link in before["links"] if link["state"] == "broken"]
    (folder,) = project.workspace.cells.glob("energy.T1.lstm.lime.*")
    seeds = folder / "seeds.json"
    seeds.write_text(seeds.read_text().replace("42", "43"))
    after = get(client, "/api/explainbench/lineage?id=T1/lstm/lime").json
    assert after["ok"] is False
    assert {link["name"] for link in after["links"] if link["state"] == "broken"} - set(broken) == {"seeds.json"}
    words, page = read(client, "/explainbench/lineage?id=T1/lstm/lime")
    assert "BROKEN: 1 of 3" in words
    assert ("rect", "node broken") in [(tag, attributes.get("class")) for tag, attributes in page.tags]


def _copied(project, tmp_path):
    root = Path(shutil.copytree(project.workspace.root, tmp_path / "copy"))
    return type(project)(Workspace.find(root), project.windows)


def test_comparison_of_two_cells(client, published):
    facts = get(client, "/api/explainbench/compare?a=T1/lstm/shap&b=T1/lstm/integrated_gradients").json
    pairs = {pair["score"]: pair for pair in facts["pairs"]}
    assert {"stability", "faithfulness", "faithfulness_skill", "ESS"} <= set(pairs)
    faithfulness = pairs["faithfulness"]
    assert faithfulness["n"] == 12
    assert faithfulness["difference"] == pytest.approx(faithfulness["a"] - faithfulness["b"])
    assert faithfulness["low"] < faithfulness["difference"] < faithfulness["high"] < 0
    assert faithfulness["p"] <= faithfulness["p_holm"] <= 1
    assert pairs["faithfulness_skill"]["n"] == 11  # one window is undefined
    words, _ = read(client, "/explainbench/compare?cell=energy/T1/lstm/shap&cell=energy/T1/lstm/lime")
    assert "Paired test" in words
    assert "3 cells are ticked" in get(client, "/api/explainbench/compare?cell=a&cell=b&cell=c", 400).json["error"]


def test_cells_of_two_protocols_or_tasks_are_not_tested(published, tmp_path):
    project = _copied(published, tmp_path)
    project.add("perturbation", protocol="test-2")
    client = client_of(source_of(project))
    facts = get(client, "/api/explainbench/compare?a=T1/lstm/shap&b=T1/lstm/perturbation").json
    assert facts["pairs"] == []
    assert "two protocol versions" in facts["remarks"][0]


def test_the_difference_of_two_runs(client):
    found = get(client, f"/api/explainbench/runs?filter=tags.{P}kind = 'cell' and tags.{P}model = 'lstm'").json["runs"]
    runs = {run["cell"].split("/")[-1]: run["run_id"] for run in found}
    facts = get(client, f"/api/explainbench/diff?run={runs['shap']}&run={runs['lime']}").json
    changed = {(change["section"], change["key"]) for change in facts["changes"]}
    assert ("tags", f"{P}method") in changed
    assert ("tags", f"{P}model") not in changed
    assert facts["same"] > 20
    everything = get(client, f"/api/explainbench/diff?run={runs['shap']}&run={runs['lime']}&all=1").json
    assert len(everything["changes"]) == len(facts["changes"]) + facts["same"]
    words, _ = read(client, f"/explainbench/diff?a={runs['shap']}&b={runs['shap']}")
    assert "same in every field" in words


def test_markup_in_names_is_text(client):
    quoted = MARKUP.replace(" ", "%20").replace("<", "%3C").replace(">", "%3E")
    for address in (
        BOARD,
        "/explainbench/",
        "/explainbench/runs",
        f"/explainbench/cell?id=T1/lstm/{quoted}",
        f"/explainbench/lineage?id=T1/lstm/{quoted}",
        f"/explainbench/compare?a=T1/lstm/shap&b=T1/lstm/{quoted}",
        f"{BOARD}&q={quoted}",
        f"/explainbench/cell?id={quoted}",
    ):
        answer = client.get(address)
        assert "<img" not in answer.text, address
        assert answer.status_code in (200, 404)
    assert MARKUP in get(client, "/api/explainbench/runs").text.encode().decode("unicode_escape")


def test_what_the_store_holds_besides(published, tmp_path):
    """Runs of other projects, deleted, half-logged, superseded, with huge tags, without their files."""
    project = _copied(published, tmp_path)
    store = open_store(project.workspace.tracking_uri, "explainbench-energy")
    assert store is not None
    make = store.client.create_run
    alien = make(store.experiment_id, run_name=f"alien {MARKUP}", tags={"note": "x" * 5000}).info.run_id
    half = make(store.experiment_id, run_name="half", tags={f"{P}kind": "cell", f"{P}superseded": "false"}).info.run_id
    gone = make(store.experiment_id, run_name="gone", tags={f"{P}kind": "cell"}).info.run_id
    store.client.delete_run(gone)
    store.set_tag(half, f"{P}protocol", MARKUP)
    write_json(tmp_path / "files" / "report.json", {})
    report = store.write("report", {f"{P}kind": "report", f"{P}superseded": "false"}, {}, {}, (), tmp_path / "files")
    client = client_of(source_of(project))
    runs = {run["run_id"]: run for run in get(client, "/api/explainbench/runs").json["runs"]}
    assert runs[alien]["state"] == "not a run of ExplainBench"
    assert report is not None
    assert runs[report]["state"] == "current"
    assert runs[half]["state"] == "not logged to its end"
    assert gone not in runs
    assert "was deleted" in get(client, f"/api/explainbench/cell?id={gone}", 404).json["error"]
    assert "is not the run of a cell" in get(client, f"/api/explainbench/cell?id={alien}", 404).json["error"]
    assert "has no record.json" in get(client, f"/api/explainbench/cell?id={half}", 404).json["error"]
    words, _ = read(client, f"/explainbench/diff?a={alien}&b={half}")
    assert "(5000 characters)" in words
    assert "does not understand the search" in get(client, "/api/explainbench/runs?filter=nonsense", 400).json["error"]


def test_files_that_are_missing_leave_the_rest_standing(published, tmp_path):
    project = _copied(published, tmp_path)
    (folder,) = project.workspace.cells.glob("energy.T1.lstm.lime.*")
    for name in ("explanations.npz", "seeds.json", "scores.parquet"):
        (folder / name).unlink()
    client = client_of(source_of(project))
    words, _ = read(client, "/explainbench/cell?id=T1/lstm/lime")
    assert "3 remarks" in words
    assert "explanations.npz is missing" in words
    assert str(tmp_path) not in words
    (folder / "record.json").write_text("{}")
    assert "not a cell record" in get(client, "/api/explainbench/cell?id=T1/lstm/lime", 422).json["error"]


def test_boards_from_the_store_alone(published, tmp_path):
    """Without a project's files the published boards, cells and runs are there all the same."""
    project = _copied(published, tmp_path)
    uri = project.workspace.tracking_uri
    client = client_of(Source(None, uri, lambda experiment_id: True))
    facts = get(client, "/api/explainbench/boards").json
    assert facts["source"] == "experiment explainbench-energy"
    assert facts["remarks"] == []
    assert get(client, f"/api{BOARD}").json["rows"] == get(client_of(source_of(project)), f"/api{BOARD}").json["rows"]
    assert get(client, "/api/explainbench/cell?id=T1/lstm/lime").json["heat"]["count"] == 12
    assert "needs the project's files" in get(client, "/api/explainbench/lineage?id=T1/lstm/lime", 404).json["error"]
    store = open_store(uri, "explainbench-energy")
    assert store is not None
    run = next(iter(store.runs(f"tags.{P}board = 'T1.stability.methods.lstm'")))
    store.client.create_run(store.experiment_id, tags={f"{P}kind": "board", f"{P}superseded": "false"})
    location = store.artifact(run, "board.json")
    assert location is not None
    kept = location.read_bytes()
    try:
        location.unlink()
        remarks = get(client, "/api/explainbench/boards").json["remarks"]
        location.write_text('{"name": 3, "rows": "none"}')
        store.set_tag(run.info.run_id, "touched", "yes")
        remarks += get(client, "/api/explainbench/boards").json["remarks"]
    finally:
        location.write_bytes(kept)
        store.set_tag(run.info.run_id, "touched", "again")
    assert any("it has no board.json" in remark for remark in remarks)
    assert any("not logged to their end" in remark for remark in remarks)
    assert get(client, f"/api{BOARD}").status_code == 200


def test_two_protocols_in_the_store_are_told_apart(published, tmp_path):
    project = _copied(published, tmp_path)
    store = open_store(project.workspace.tracking_uri, "explainbench-energy")
    assert store is not None
    board = get(client_of(source_of(project)), f"/api{BOARD}").json
    other = {**board, "protocol": "test-2", "rows": [{**board["rows"][0], "mean": 0.5}]}
    write_json(tmp_path / "files" / "board.json", other)
    store.write("old", {f"{P}kind": "board", f"{P}superseded": "false"}, {}, {}, (), tmp_path / "files")
    client = client_of(Source(None, project.workspace.tracking_uri, lambda experiment_id: True))
    facts = get(client, "/api/explainbench/boards").json
    assert facts["choices"]["protocol"] == ["test-1", "test-2"]
    assert "2 protocol versions" in facts["remarks"][0]
    assert get(client, f"/api{BOARD}&protocol=test-2").json["rows"][0]["mean"] == 0.5
    words, _ = read(client, "/explainbench/?protocol=test-2")
    assert "1 boards" in words


def test_suites_share_the_page(published, tmp_path):
    project = _copied(published, tmp_path)
    results = project.workspace.results
    boards = json.loads((results / "leaderboard.json").read_text())
    few = [{**board, "counted": "rows", "higher_is_better": False} for board in boards["boards"][-2:]]
    write_json(results / "axe.json", {"suite": "axe", "protocol": "test-1", "boards": few, "pending": {"axe/a": "why"}})
    write_json(results / "agnostic.json", {"boards": "nothing"})
    client = client_of(source_of(project))
    words, _ = read(client, "/explainbench/?suite=axe")
    assert "energy agnostic axe" in words
    assert "lower is better" in words
    assert "1 cells are pending: why" in words
    assert "holds no boards" in get(client, "/api/explainbench/boards?suite=agnostic").text
    (results / "axe.json").write_text("{")
    assert "not valid JSON" in get(client, "/api/explainbench/boards?suite=axe", 422).json["error"]
    boards["boards"].append({"name": "half a board"})
    boards["inputs_sha256"] = "0" * 64
    write_json(results / "leaderboard.json", boards)
    remarks = " ".join(get(client, "/api/explainbench/boards").json["remarks"])
    assert "is left out" in remarks
    assert "another cells.lock.json" in remarks


def test_experiments_that_may_not_be_read_are_not_shown(published):
    client = client_of(source_of(published, may_read=lambda experiment_id: False))
    for address in (
        "boards?suite=energy",
        "board?name=T1.stability.methods.lstm",
        "cell?id=T1/lstm/shap",
        "lineage?id=T1/lstm/shap",
        "runs",
        "live?task=T1&metric=stability/value",
        "compare?a=T1/lstm/shap&b=T1/lstm/lime",
    ):
        assert "may not read" in get(client, f"/api/explainbench/{address}", 403).json["error"]
    get(client, "/api/explainbench/boards", 404)
    assert get(client, "/api/explainbench/cell").json["names"] == []
    run = next(iter(open_store(published.workspace.tracking_uri, "explainbench-energy").runs()))  # pyright: ignore
    get(client, f"/api/explainbench/cell?id={run.info.run_id}", 403)
    get(client, f"/api/explainbench/diff?a={run.info.run_id}&b={run.info.run_id}", 403)


def test_answers_are_as_the_openapi_document_says(client):
    spec = get(client, "/api/explainbench/openapi.json").json
    assert spec == json.loads(json.dumps(document()))
    assert set(spec["paths"]) == {
        *(f"/api/explainbench/{endpoint.name}" for endpoint in ENDPOINTS),
        "/explainbench/board.csv",
    }
    for address in PAGES:
        name = address.removeprefix("/explainbench/").split("?")[0] or "boards"
        if name == "api" or address.endswith("nothing"):
            continue
        query = address.partition("?")[2]
        schema = spec["paths"][f"/api/explainbench/{name}"]["get"]["responses"]["200"]["content"]["application/json"]
        Draft202012Validator.check_schema(schema["schema"])
        Draft202012Validator(schema["schema"]).validate(get(client, f"/api/explainbench/{name}?{query}").json)
    error = get(client, "/api/explainbench/cell?id=nothing", 404).json
    Draft202012Validator(spec["components"]["schemas"]["Error"]).validate(error)


def test_pages_stand_under_a_static_prefix(published):
    client = client_of(source_of(published), "/mlf")
    answer = get(client, "/mlf/explainbench/cell?id=T1/lstm/shap")
    page = _Reader(answer.text)
    links = [attributes["href"] for _, attributes in page.tags if (attributes.get("href") or "").startswith("/")]
    assert links
    assert all(link is not None and link.startswith("/mlf/") for link in links)
    get(client, "/mlf/explainbench/static/explainbench.css")
    assert get(client, "/mlf/api/explainbench/openapi.json").json["servers"] == [{"url": "/mlf"}]


def test_mlflow_gets_a_link_and_keeps_the_rest(published):
    app = Flask("mlflow")
    page = "<html><body><div id=root></div></body></html>"
    app.add_url_rule("/", "serve", lambda: page)
    app.add_url_rule("/other", "other", lambda: page)
    register(source_of(published))(app, "")
    client = app.test_client()
    home = get(client, "/").text
    assert home.startswith("<html><body><div id=root></div>")
    assert re.search(r'<a class="explainbench-link" href="/explainbench/">[^<]+</a></body></html>$', home)
    assert get(client, "/other").text == page


def test_an_error_nobody_thought_of_is_one_sentence(published, monkeypatch, caplog):
    client = client_of(source_of(published))
    monkeypatch.setattr("mlflow_plugins.app.source.Source.names", lambda self: 1 / 0)
    words, _ = read(client, "/explainbench/cell", 500)
    assert "could not be made (ZeroDivisionError)" in words
    assert "Traceback" not in words
    assert "ZeroDivisionError" in caplog.text
    assert get(client, "/api/explainbench/cell", 500).json["error"].startswith("this page could not be made")


def test_a_store_that_is_down_is_one_sentence(tmp_path):
    broken = tmp_path / "mlflow.db"
    broken.write_bytes(b"this is no database" * 100)
    client = client_of(Source(None, f"sqlite:///{broken}", lambda experiment_id: True))
    for address in ("boards", "runs", "cell?id=T1/lstm/shap"):
        assert "cannot be used" in get(client, f"/api/explainbench/{address}", 503).json["error"]
    empty = client_of(Source(None, f"sqlite:///{tmp_path / 'none.db'}", lambda experiment_id: True))
    assert "no boards that you can read" in get(empty, "/api/explainbench/boards", 404).json["error"]


def test_where_a_server_finds_its_project(published, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert Source.here("sqlite:///x.db", lambda _: True).workspace is None
    monkeypatch.setenv("EXPLAINBENCH_ROOT", str(published.workspace.root))
    found = Source.here("sqlite:///x.db", lambda _: True)
    assert found.workspace is not None
    assert found.workspace.root == published.workspace.root
    assert found.workspace.tracking_uri == "sqlite:///x.db"
    assert found.statistics.bootstrap == 10_000  # its params.yaml is incomplete: defaults
