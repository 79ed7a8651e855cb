"""The audit: an untouched chain holds, and each thing that is altered breaks the link that names it."""

import json
import shutil
import sqlite3
from io import StringIO

import numpy as np
import pytest
from rich.console import Console

from explainbench.core.errors import BadInput, NotApplicable
from explainbench.core.files import read_npz, write_json, write_npz
from explainbench.core.params import StatisticsParams
from explainbench.core.provenance import sha256_json
from explainbench.store import write_lock
from mlflow_plugins._mlflow import open_store
from mlflow_plugins.lineage import audit, directory_md5, render
from mlflow_plugins.publish import publish_cells

FEW = StatisticsParams(bootstrap=200)
NAME = "T1/lstm/shap"


@pytest.fixture(scope="module")
def original(tmp_path_factory, empty_store, make_project):
    """One published and committed project for the whole module, and a copy to restore it from."""
    folder = tmp_path_factory.mktemp("lineage")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        project = make_project(folder / "project")
        shutil.copy(empty_store, project.workspace.output / "mlflow.db")
        stored = project.add("shap")
        project.lock(stored)
        publish_cells(project.workspace, [stored], FEW, whole=True)
        project.commit()
    shutil.copytree(folder / "project", folder / "copy", ignore=shutil.ignore_patterns("mlflow.db*"))
    _copy_database(folder / "project" / "mlflow.db", folder / "copy.db")
    return project, stored


@pytest.fixture
def project(original):
    project, _ = original
    yield project
    root = project.workspace.root
    for path in root.iterdir():
        if not path.name.startswith("mlflow.db"):  # MLflow holds it open: restored in place
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    shutil.copytree(root.parent / "copy", root, dirs_exist_ok=True)
    _copy_database(root.parent / "copy.db", root / "mlflow.db")


def _copy_database(source, target):
    one, two = sqlite3.connect(source), sqlite3.connect(target)
    one.backup(two)
    one.close()
    two.close()


@pytest.fixture
def published(original, project):
    return original[1]


@pytest.fixture
def tracking(project):
    return project.workspace.output / "mlflow.db"


def broken(chain):
    return {link.name for link in chain.links if link.ok is False}


def state(chain):
    return {link.name: link.ok for link in chain.links}


def test_an_untouched_chain_holds(project, published):
    chain = audit(project.workspace, NAME)
    assert chain.ok, chain.broken
    checked = state(chain)
    for name in (
        "run", "run tags", "run params", "run metrics", "run artifacts", "record in the lock", "cell id",
        "result digest", "scores.parquet", "explanations.npz", "seeds.json", "source modules", "model card", "weights",
        "training record", "windows", "dataset manifest", "data files", "DVC", "git",
    ):  # fmt: skip
        assert checked[name] is True, name
    assert json.loads(json.dumps(chain.as_json()))["ok"] is True


def test_every_name_leads_to_the_same_chain(project, published):
    cell_id = published.record.cell_id
    chain = audit(project.workspace, NAME)
    for name in ("energy/T1/lstm/shap", "lstm·shap·T1", cell_id, cell_id[:8], chain.run_id):
        assert audit(project.workspace, name) == chain, name


@pytest.mark.parametrize("name", ["nothing", "T1/lstm/lime", "a/b/c/d", "0123456789abcdef" * 2, ""])
def test_an_unknown_name_is_refused(project, published, name):
    with pytest.raises(BadInput):
        audit(project.workspace, name)


def tampered_scores(project, stored):
    path = stored.folder / "scores.parquet"
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)


def tampered_explanations(project, stored):
    path = stored.folder / "explanations.npz"
    arrays = read_npz(path)
    arrays["importance"][0, 0] += 1e-9
    write_npz(path, arrays)


def tampered_seeds(project, stored):
    write_json(stored.folder / "seeds.json", stored.seeds() | {"seed": 7})


def tampered_record(project, stored):
    path = stored.folder / "record.json"
    content = json.loads(path.read_bytes())
    content["scores"]["stability"]["value"] = 0.99
    path.write_text(json.dumps(content))


def tampered_spec(project, stored):
    path = stored.folder / "record.json"
    content = json.loads(path.read_bytes())
    content["spec"]["seed"] = 43
    path.write_text(json.dumps(content))


def unreadable_record(project, stored):
    (stored.folder / "record.json").write_text("{")


def tampered_lock(project, stored):
    write_lock(project.workspace.lock, {stored.record.cell_id: "0" * 64})


def missing_from_lock(project, stored):
    write_lock(project.workspace.lock, {"1" * 64: "0" * 64})


def tampered_weights(project, stored):
    (project.workspace.models / "T1" / "lstm" / "model.safetensors").write_bytes(b"others")


def tampered_card(project, stored):
    path = project.workspace.models / "T1" / "lstm" / "card.json"
    path.write_text(path.read_text().replace('"epochs": 2', '"epochs": 3'))


def tampered_windows(project, stored):
    path = project.workspace.windows / "T1.npz"
    arrays = read_npz(path)
    arrays["context"][0, 0, 0] += 1
    write_npz(path, arrays)


def tampered_data(project, stored):
    (project.workspace.data / "bqeb_standin" / "series.csv").write_text("other")


def stray_data(project, stored):
    (project.workspace.data / "bqeb_standin" / "more.csv").write_text("other")


def tampered_manifest(project, stored):
    path = project.workspace.root / "data.manifest.json"
    content = json.loads(path.read_text())
    content["files"]["data/bqeb_standin/series.csv"]["sha256"] = "0" * 64
    write_json(path, content)


def tampered_dvc(project, stored):
    path = project.workspace.root / "data.dvc"
    path.write_text(f"outs:\n- md5: {'0' * 32}.dir\n  path: data\n")


def tampered_committed_lock(project, stored):
    write_lock(project.workspace.lock, {stored.record.cell_id: "0" * 64})
    project.commit()
    write_lock(project.workspace.lock, {stored.record.cell_id: stored.digest})


def board_of(stored, digest):
    rows = [{"cells": [{"cell": str(stored.cell), "record_digest": digest}], "mean": 0.5}]
    return {"name": "T1.EQI", "rows": rows, "rows_sha256": sha256_json(rows)}


def board_of_another_record(project, stored):
    write_json(project.workspace.results / "leaderboard.json", {"boards": [board_of(stored, "0" * 64)]})


def tampered_board(project, stored):
    board = board_of(stored, stored.digest)
    board["rows"][0]["mean"] = 0.6
    write_json(project.workspace.results / "leaderboard.json", {"boards": [board]})


def no_board(project, stored):
    write_json(project.workspace.results / "leaderboard.json", {"boards": [1]})


@pytest.mark.parametrize(
    ("alter", "named"),
    [
        (tampered_scores, {"scores.parquet"}),
        (tampered_explanations, {"explanations.npz"}),
        (tampered_seeds, {"seeds.json"}),
        (tampered_record, {"record in the lock", "git"}),
        (tampered_spec, {"record in the lock", "cell id"}),
        (unreadable_record, {"record"}),
        (tampered_lock, {"record in the lock"}),
        (missing_from_lock, {"record in the lock"}),
        (tampered_weights, {"weights"}),
        (tampered_card, {"model card"}),
        (tampered_windows, {"windows"}),
        (tampered_data, {"data file data/bqeb_standin/series.csv", "DVC"}),
        (stray_data, {"data file data/bqeb_standin/more.csv", "DVC"}),
        (tampered_manifest, {"dataset manifest"}),
        (tampered_dvc, {"DVC"}),
        (tampered_committed_lock, {"git"}),
        (board_of_another_record, {"board rows"}),
        (tampered_board, {"board T1.EQI"}),
        (no_board, {"board rows"}),
    ],
)
def test_each_altered_file_breaks_its_link(project, published, alter, named):
    alter(project, published)
    chain = audit(project.workspace, NAME)
    assert not chain.ok
    assert named <= broken(chain)


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("UPDATE latest_metrics SET value = 0.99 WHERE key = 'stability/value'", "run metric stability/value"),
        ("DELETE FROM latest_metrics WHERE key = 'stability/value'", "run metric stability/value"),
        ("UPDATE tags SET value = '7' WHERE key = 'explainbench.seed'", "run tag explainbench.seed"),
        ("UPDATE tags SET value = 'x' WHERE key = 'explainbench.record_sha256'", "run tag explainbench.record_sha256"),
        ("UPDATE tags SET value = 'x' WHERE key = 'explainbench.cell_id'", "run tag explainbench.cell_id"),
        ("UPDATE params SET value = '9' WHERE key = 'method.coalitions'", "run param method.coalitions"),
        ("DELETE FROM params WHERE key = 'record_sha256'", "run param record_sha256"),
    ],
)
def test_each_altered_value_of_the_tracking_store_is_named(project, published, tracking, statement, named):
    with sqlite3.connect(tracking) as connection:
        connection.execute(statement)
    connection.close()
    chain = audit(project.workspace, NAME)
    assert broken(chain) == {named}


def test_an_altered_artifact_of_the_run_is_named(project, published):
    store = open_store(project.workspace.tracking_uri, "explainbench-energy")
    assert store is not None
    (run,) = store.runs()
    path = store.artifact(run, "explanations.npz")
    assert path is not None
    path.write_bytes(path.read_bytes() + b"x")
    assert broken(audit(project.workspace, NAME)) == {"run artifact explanations.npz"}
    path.unlink()
    chain = audit(project.workspace, NAME)
    assert {link.found for link in chain.broken} == {"missing"}


def test_all_problems_are_listed_not_only_the_first(project, published):
    for alter in (tampered_seeds, tampered_weights, tampered_data):
        alter(project, published)
    assert {"seeds.json", "weights", "DVC"} <= broken(audit(project.workspace, NAME))


def test_without_a_tracking_store_the_rest_is_checked(project, published, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/none.db")
    chain = audit(project.workspace, NAME)
    assert chain.ok
    assert state(chain)["run"] is None
    assert chain.run_id is None
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    chain = audit(project.workspace, NAME)
    assert chain.ok
    assert "does not answer" in next(link.detail for link in chain.links if link.name == "run")


def test_a_superseded_run_is_audited_from_its_own_files(project, published):
    chain = audit(project.workspace, NAME)
    new = project.add("shap", seed=43)
    project.lock(new)
    publish_cells(project.workspace, [new], FEW, whole=True)
    shutil.rmtree(published.folder)
    old = audit(project.workspace, chain.run_id)
    assert old.cell_id == published.record.cell_id
    assert broken(old) == {"record in the lock"}
    assert state(old)["scores.parquet"] is True


def test_changed_code_is_named_with_the_commit_that_holds_the_records(project, published):
    record = published.record
    sources = record.spec.sources | {"explainbench.core.errors": "0" * 40}
    other = project.add("shap", seed=9)
    content = json.loads((other.folder / "record.json").read_bytes())
    content["spec"]["sources"] = sources
    (other.folder / "record.json").write_text(json.dumps(content))
    chain = audit(project.workspace, content["cell_id"])
    (link,) = [link for link in chain.links if link.name == "source modules"]
    assert link.ok is False
    assert "explainbench.core.errors changed since" in link.detail


class Again:
    def __init__(self, stored, same):
        self.expected = stored.record.result_digest
        self.found = self.expected if same else "other"
        self.holds, self.detail = same, "same bits" if same else "scores differ"


def test_replay(project, published):
    assert audit(project.workspace, NAME, lambda stored: Again(stored, True)).ok
    assert broken(audit(project.workspace, NAME, lambda stored: Again(stored, False))) == {"replay"}

    def gone(stored):
        raise NotApplicable("not replayed: seed differs")

    chain = audit(project.workspace, NAME, gone)
    assert (chain.ok, state(chain)["replay"]) == (True, None)


def test_rendered_as_a_tree_with_the_broken_link_named(project, published):
    tampered_weights(project, published)
    console = Console(width=160, record=True, file=StringIO())
    console.print(render(audit(project.workspace, NAME)))
    text = console.export_text()
    assert "1 broken" in text
    assert "BROKEN weights" in text
    assert "expected" in text


def test_directory_md5_is_dvcs(project):
    expected = next(line for line in (project.workspace.root / "data.dvc").read_text().split() if line.endswith(".dir"))
    assert directory_md5(project.workspace.data) == expected
    assert np.unique([directory_md5(project.workspace.data) for _ in range(2)]).size == 1


def test_dataset_source_gives_the_tracked_bytes_back(project, published, monkeypatch):
    import mlflow.data

    from explainbench.core.errors import Corrupt
    from mlflow_plugins.dataset_source import DvcDatasetSource

    store = open_store(project.workspace.tracking_uri, "explainbench-energy")
    assert store is not None
    (run,) = store.runs()
    (used,) = run.inputs.dataset_inputs
    source = DvcDatasetSource.from_json(used.dataset.source)
    monkeypatch.chdir(project.workspace.root)
    assert source.load() == str(project.workspace.data / "bqeb_standin")
    assert DvcDatasetSource.from_dict(source.to_dict()).to_dict() == source.to_dict()
    tampered_dvc(project, published)
    with pytest.raises(Corrupt, match="but the run used"):
        source.load()
    assert isinstance(mlflow.data.get_source(used.dataset), DvcDatasetSource)
