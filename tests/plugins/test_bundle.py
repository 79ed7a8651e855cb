"""Bundles, signatures, comparisons, pages: everything behind a cell travels, and is checked where it arrives."""

import hashlib
import json
import shutil
import subprocess
import zipfile
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from explainbench.cli.__main__ import app
from explainbench.core.errors import BadInput, Corrupt
from explainbench.core.files import write_json
from explainbench.core.provenance import canonical_json, sha256_file, sha256_json
from explainbench.core.record import CellRecord
from explainbench.core.workspace import Workspace
from explainbench.stages.bundle import CHECKSUMS, METADATA, export_bundle
from explainbench.stages.diff import diff
from explainbench.stages.sign import NAME as SIGNATURE
from explainbench.stages.sign import sign, signature_problems
from explainbench.store import CellStore, write_lock
from mlflow_plugins._page import write_page
from mlflow_plugins.lineage import audit, audit_all, audit_bundle, cells_of


@pytest.fixture
def made(project):
    """Two cells, locked, and a board of them."""
    stored = [project.add("shap"), project.add("lime", shift=3.0)]
    project.lock(*stored)
    refs = [{"cell": str(s.cell), "cell_id": s.record.cell_id, "record_digest": s.digest} for s in stored]
    rows = [
        {"entry": s.cell.method, "order": n, "mean": 0.5, "cells": [ref]}
        for n, (s, ref) in enumerate(zip(stored, refs), 1)
    ]
    board = {"name": "T1.stability.methods.lstm", "rows": rows}
    board["rows_sha256"] = hashlib.sha256(json.dumps(rows, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    write_json(project.workspace.results / "leaderboard.json", {"inputs_sha256": None, "boards": [board]})
    return stored


@pytest.fixture
def bundle(project, made, tmp_path):
    export_bundle(project.workspace, made[:1], tmp_path / "cell.zip", "T1/lstm/shap")
    return tmp_path / "cell.zip"


def broken(chains):
    return {link.name for chain in chains for link in chain.broken}


def cell_links(chains):
    return [
        (link.name, link.expected, link.found)
        for link in chains[-1].links
        if link.part not in ("run", "board", "git", "code")
    ]


def test_a_bundle_is_the_same_bytes_and_audits_alone(project, made, bundle, tmp_path):
    again = export_bundle(project.workspace, made[:1], tmp_path / "again.zip", "T1/lstm/shap")
    assert again.sha256 == sha256_file(bundle)
    here = audit(project.workspace, "T1/lstm/shap")
    shutil.rmtree(project.workspace.root)
    chains = list(audit_bundle(bundle))
    assert broken(chains) == set()
    assert [chains[1].cell, chains[-1].cell] == ["the project in cell.zip", "energy/T1/lstm/shap"]
    assert {link.name: link.ok for link in chains[-1].links}["source modules"] is True
    assert cell_links(chains) == cell_links([here])


def test_names_that_an_address_would_encode_travel(project, made, tmp_path):
    plots = project.workspace.results / "plots"
    plots.mkdir()
    (plots / "T1.EDTS.Act+UA cells.csv").write_text("entry,mean\n")
    export_bundle(project.workspace, made[:1], tmp_path / "plus.zip", "T1/lstm/shap")
    assert broken(list(audit_bundle(tmp_path / "plus.zip"))) == set()


def test_the_crate_says_how_each_file_came_about(bundle):
    with zipfile.ZipFile(bundle) as archive:
        graph = {entity["@id"]: entity for entity in json.loads(archive.read(METADATA))["@graph"]}
        lines = archive.read(CHECKSUMS).decode().splitlines()
        assert all(
            hashlib.sha256(archive.read(name)).hexdigest() == digest for digest, name in (x.split("  ") for x in lines)
        )
    scores = next(entity for name, entity in graph.items() if name.endswith("scores.parquet"))
    action = graph[scores["wasGeneratedBy"]["@id"]]
    assert action["@type"] == "CreateAction"
    used = {item["@id"] for item in action["used"]}
    assert {"models/T1/lstm/model.safetensors", "build/windows/T1.npz", "params.yaml"} <= used
    assert used == {item["@id"] for item in scores["wasDerivedFrom"]}
    fitted = graph[graph["models/T1/lstm/model.safetensors"]["wasGeneratedBy"]["@id"]]
    assert "data/bqeb_standin/series.csv" in {item["@id"] for item in fitted["used"]}
    assert graph["./"]["datePublished"] == "2024-01-01"


def test_a_cell_about_an_energy_cell_brings_it_along(project, made, tmp_path):
    record = made[0].record
    spec = record.spec.model_copy(update={"cell": record.spec.cell.model_copy(update={"suite": "axe"})})
    about = record.model_copy(update={"spec": spec, "cell_id": sha256_json(spec.model_dump(mode="json"))})
    folder = CellStore(project.workspace.cells).folder(spec.cell.cell, about.cell_id)
    shutil.copytree(made[0].folder, folder)
    (folder / "record.json").write_bytes(canonical_json(about.model_dump(mode="json")) + b"\n")
    stored = CellStore(project.workspace.cells).read(folder)
    project.lock(*made, stored)
    done = export_bundle(project.workspace, [stored], tmp_path / "axe.zip", "axe/T1/lstm/shap")
    assert done.cells == 2
    with zipfile.ZipFile(tmp_path / "axe.zip") as archive:
        graph = {entity["@id"]: entity for entity in json.loads(archive.read(METADATA))["@graph"]}
    used = {item["@id"] for item in graph[f"cells/{folder.name}/scores.parquet"]["wasDerivedFrom"]}
    assert f"cells/{made[0].folder.name}/explanations.npz" in used


def test_a_superseded_cell_is_exported_from_its_runs_files(project, made, tmp_path):
    elsewhere = tmp_path / "run" / "artifacts"
    shutil.copytree(made[0].folder, elsewhere)
    export_bundle(project.workspace, [replace(made[0], folder=elsewhere)], tmp_path / "cell.zip", "a run")
    with zipfile.ZipFile(tmp_path / "cell.zip") as archive:
        assert f"cells/{made[0].folder.name}/record.json" in archive.namelist()


def rewritten(bundle, name, change, target, *, consistent=False):
    """The bundle with one file changed; `consistent`: whoever did it wrote list and metadata anew."""
    with zipfile.ZipFile(bundle) as archive:
        files = {entry: archive.read(entry) for entry in archive.namelist()}
    name = next(entry for entry in files if entry.endswith(name))
    old = hashlib.sha256(files[name]).hexdigest()
    files[name] = change(files[name])
    if consistent:
        new = hashlib.sha256(files[name]).hexdigest()
        metadata = hashlib.sha256(files[METADATA]).hexdigest()
        files[METADATA] = files[METADATA].replace(old.encode(), new.encode())
        listed = files[CHECKSUMS].replace(old.encode(), new.encode())
        files[CHECKSUMS] = listed.replace(metadata.encode(), hashlib.sha256(files[METADATA]).hexdigest().encode())
    with zipfile.ZipFile(target, "w") as archive:
        for entry, content in files.items():
            archive.writestr(entry, content)
    return target


def test_a_folder_of_cells_and_a_lock_is_audited_as_far_as_it_goes(project, made, tmp_path):
    shutil.copytree(project.workspace.cells, tmp_path / "cells")
    shutil.copy(project.workspace.lock, tmp_path)
    there = Workspace(tmp_path, tmp_path)
    chains = list(audit_all(there))
    assert broken(chains) == set()
    unchecked = {link.name for link in chains[-1].links if link.ok is None}
    assert {"model card", "windows", "dataset manifest", "parameters"} <= unchecked
    write_lock(there.lock, {f"{number:016x}".ljust(64, "0"): "0" * 64 for number in range(50)})
    (project_chain, *_) = audit_all(there)
    assert len(project_chain.broken) == 5  # not one for each of fifty
    assert project_chain.broken[-1].found == "46 more missing"


def test_a_further_suite_of_which_nothing_is_here_is_not_called_broken(project, made):
    workspace = project.workspace
    write_lock(workspace.lock, {s.record.cell_id: s.digest for s in made} | {"a" * 64: "0" * 64})
    rows = [{"cell": "axe/german/mlp/shap", "baseline": False, "status": "scored", "cell_id": "a" * 64, "reason": None}]
    write_json(workspace.results / "grid.json", rows)
    (project_chain, *_) = audit_all(workspace)
    (link,) = (link for link in project_chain.links if link.name == "cells of axe")
    assert link.state == "unchecked"
    assert "none of its 1 is here" in link.detail
    assert not [link for link in project_chain.broken if link.part == "record"]


def test_boards_of_another_schema_are_not_called_altered(project, made):
    path = project.workspace.results / "leaderboard.json"
    write_json(path, json.loads(path.read_text()) | {"schema": 0})
    path.with_suffix(".md").write_text("another page")
    (link,) = (
        link for chain in audit_all(project.workspace) for link in chain.links if link.name.endswith("beside it")
    )
    assert (link.state, "of schema 0, this version writes" in link.detail) == ("unchecked", True)


@pytest.mark.parametrize(
    ("name", "link"),
    [
        ("scores.parquet", "scores.parquet"),
        ("model.safetensors", "weights"),
        ("series.csv", "data file data/bqeb_standin/series.csv"),
        ("errors.py", "source modules"),
        ("leaderboard.json", "board T1.stability.methods.lstm"),
    ],
)
@pytest.mark.parametrize("consistent", [False, True])
def test_an_altered_bundle_is_found_out(bundle, tmp_path, name, link, consistent):
    def change(content):
        return content.replace(b'"mean": 0.5', b'"mean": 0.6', 1) if name.endswith(".json") else content + b"x"

    other = rewritten(bundle, name, change, tmp_path / "other.zip", consistent=consistent)
    found = broken(audit_bundle(other))
    assert link in found
    assert any(item.startswith("bundle file") for item in found) is not consistent


def test_what_is_no_bundle_is_refused(tmp_path):
    (tmp_path / "text.zip").write_text("no")
    with pytest.raises(Corrupt):
        list(audit_bundle(tmp_path / "text.zip"))
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("a.txt", "a")
    with pytest.raises(BadInput, match="no bundle"):
        list(audit_bundle(tmp_path / "other.zip"))


def test_a_cell_that_does_not_verify_is_not_exported(project, made, tmp_path):
    (made[0].folder / "scores.parquet").write_bytes(b"no")
    with pytest.raises(BadInput, match="would not verify"):
        export_bundle(project.workspace, made[:1], tmp_path / "cell.zip", "x")


def test_a_board_stands_for_its_cells(project, made):
    assert {str(one.cell) for one in cells_of(project.workspace, "T1.stability.methods.lstm")} == {
        "energy/T1/lstm/shap",
        "energy/T1/lstm/lime",
    }


def test_diff_names_the_link_that_explains_a_change(project, made, bundle, tmp_path):
    assert diff(bundle, bundle).equal
    old = tmp_path / "old"
    shutil.copytree(project.workspace.root, old)
    shutil.rmtree(made[0].folder)
    project.add("shap", seed=7)
    shutil.rmtree(made[1].folder)
    board = json.loads((old / "results" / "leaderboard.json").read_text())
    board["boards"][0]["rows"][0]["mean"] = 0.7
    write_json(project.workspace.results / "leaderboard.json", board)
    found = diff(old, project.workspace.root)
    (change,) = found.changed
    assert (change.cell, change.explains) == ("energy/T1/lstm/shap", {"parameters": ["seed: 42 -> 7"]})
    assert set(change.scores) == {"faithfulness", "faithfulness_skill", "fidelity", "stability"}
    assert found.only_first == ("energy/T1/lstm/lime",)
    assert found.boards == {"T1.stability.methods.lstm": ["shap: 1 (0.5) -> 1 (0.7)"]}
    assert any("parameters: seed: 42 -> 7" in line for line in found.lines())


def test_other_bits_from_the_same_specification_are_put_down_to_the_platform(project, made, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(project.workspace.root, other)
    folder = other / "cells" / made[0].folder.name
    record = json.loads((folder / "record.json").read_text())
    record["scores"]["stability"]["raw"] += 1e-6
    (folder / "record.json").write_text(json.dumps(record))
    measured = json.loads((folder / "measured.json").read_text()) | {"cpu_capability": "AVX512"}
    write_json(folder / "measured.json", measured)
    (change,) = diff(project.workspace.root, other).changed
    assert change.explains == {"the same specification gave other bits": ["cpu_capability: AVX2 -> AVX512"]}
    with pytest.raises(BadInput, match="neither a bundle nor a folder"):
        diff(other, tmp_path)


@pytest.fixture
def keys(tmp_path):
    """A key pair by openssl's own tool, and another public key."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    for name in ("own", "other"):
        private, public = tmp_path / f"{name}.pem", tmp_path / f"{name}.pub"
        subprocess.run(
            ["openssl", "genpkey", "-algorithm", "ed25519", "-out", private], check=True, capture_output=True
        )
        subprocess.run(["openssl", "pkey", "-in", private, "-pubout", "-out", public], check=True, capture_output=True)
    return tmp_path


def test_a_signature_covers_boards_lock_and_data(project, made, keys):
    with pytest.raises(BadInput, match=SIGNATURE):
        signature_problems(project.workspace, keys / "own.pub")
    deeper = project.workspace.results / "ground_truth" / "suite.json"
    write_json(deeper, {"boards": []})
    sign(project.workspace, keys / "own.pem")
    assert signature_problems(project.workspace, keys / "own.pub") == []
    write_json(deeper, {"boards": [1]})
    (problem,) = signature_problems(project.workspace, keys / "own.pub")
    assert problem.startswith("ground_truth/suite.json: signed with SHA-256")
    write_json(deeper, {"boards": []})
    (problem,) = signature_problems(project.workspace, keys / "other.pub")
    assert "was not signed with the private half" in problem
    write_lock(project.workspace.lock, {made[0].record.cell_id: made[0].digest})
    (problem,) = signature_problems(project.workspace, keys / "own.pub")
    assert problem.startswith("cells.lock.json: signed with SHA-256")
    path = project.workspace.results / SIGNATURE
    path.write_text(path.read_text().replace('"schema": 1', '"schema": 2'))
    (problem,) = signature_problems(project.workspace, keys / "own.pub")
    assert "altered after it was signed" in problem
    with pytest.raises(BadInput, match="no private key"):
        sign(project.workspace, keys / "own.pub")


def test_a_page_shows_every_link_and_escapes(project, made, tmp_path):
    (made[0].folder / "record.json").write_text("<script>alert(1)</script>")
    chains = list(audit_all(project.workspace))
    write_page(tmp_path / "audit.html", chains)
    text = (tmp_path / "audit.html").read_text()
    assert "<svg" in text
    assert "BROKEN" in text
    assert "<script>" not in text
    assert "http://" not in text.replace("http://www.w3.org", "")


def test_the_record_schema_in_docs_is_the_models(root):
    assert json.loads((root / "docs" / "schemas" / "record.json").read_text()) == CellRecord.model_json_schema()


def test_the_command_line_outside_a_project(bundle, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = CliRunner().invoke(app, ["audit", str(bundle)])
    assert (run.exit_code, "everything verifies" in run.output) == (0, True), run.output
    run = CliRunner().invoke(app, ["diff", str(bundle), str(bundle), "--json"])
    assert (run.exit_code, json.loads(run.output)["equal"]) == (0, True)
    assert json.loads(CliRunner().invoke(app, ["schema"]).output)["title"] == "CellRecord"
    other = rewritten(bundle, "scores.parquet", lambda content: content + b"x", tmp_path / "other.zip")
    run = CliRunner().invoke(app, ["audit", str(other), "--html", str(tmp_path / "a.html")])
    assert run.exit_code == 1
    assert (tmp_path / "a.html").is_file()
