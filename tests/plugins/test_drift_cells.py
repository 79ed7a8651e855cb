"""`explainbench drift` on stored cells: what is paired, what is refused, and the exit codes a pipeline gate reads."""

import json
import shutil
import sys

import numpy as np
import pytest

from explainbench.analysis.drift import Rule
from explainbench.core.errors import BadInput, Corrupt
from explainbench.core.provenance import canonical_json, sha256_json
from explainbench.stages.drift import compare, select
from explainbench.store import EXPLANATIONS, RECORD

QUICK = Rule(bootstrap=100, most_disagreement=0.25)


@pytest.fixture
def versions(project):
    """Two models with two methods each, a baseline, and a method that only one model has."""
    for model in ("lstm", "lstm_v2"):
        for method in ("shap", "lime", "random"):
            project.add(method, model)
    project.add("integrated_gradients", "lstm")
    return project


def test_models_are_paired_by_method_and_baselines_left_out(versions):
    found = compare(versions.workspace, "T1/lstm", "lstm_v2", QUICK, 0)
    assert set(found.drifts) == {"shap", "lime"}
    assert found.only_baseline == ("energy/T1/lstm/integrated_gradients",)
    assert {change.metric for change in found.drifts["shap"].changes} == {
        "spread_divergence", "alpha_importance", "rank_consistency", "importance_stability", "rank_alignment",
        "stability",
    }  # fmt: skip
    assert not found.passed  # the rankings of two random models are unrelated
    document = json.loads(json.dumps(found.as_json()))
    assert document["passed"] is False
    assert document["reasons"]
    pair = next(one for one in document["pairs"] if one["name"] == "shap")
    assert pair["candidate"]["cell"] == "energy/T1/lstm_v2/shap"
    assert len(pair["candidate"]["record_digest"]) == 64
    assert compare(versions.workspace, "T1/lstm", "lstm_v2", QUICK, 0) == found  # same seed, same intervals


def test_a_result_folder_does_not_drift_from_its_copy(versions, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(versions.workspace.cells, copy / "cells")
    found = compare(versions.workspace, str(versions.workspace.output), str(copy), QUICK, 0)
    assert found.passed
    assert set(found.drifts) == {"lstm/shap", "lstm/lime", "lstm/integrated_gradients", "lstm_v2/shap", "lstm_v2/lime"}
    assert {change.verdict for one in found.drifts.values() for change in one.changes} == {"same"}


def test_every_way_to_name_a_cell(versions):
    workspace = versions.workspace
    (stored,) = select(workspace, "energy/T1/lstm/shap").values()
    for text in ("T1/lstm/shap", stored.record.cell_id[:12], str(stored.folder)):
        assert select(workspace, text) == {stored.cell: stored}, text
    (baseline,) = select(workspace, "T1/lstm/random")  # where it is named
    assert baseline.method == "random"


def test_a_further_suites_view_of_an_energy_cell_does_not_count_twice(versions):
    workspace = versions.workspace
    (stored,) = select(workspace, "T1/lstm/shap").values()
    record = json.loads((stored.folder / RECORD).read_text())
    record["spec"]["cell"]["suite"] = "axe"
    record["spec"]["parameters"]["task"] = {"energy_cell": "energy/T1/lstm/shap"}
    record["cell_id"] = sha256_json(record["spec"])
    view = workspace.cells / f"axe.T1.lstm.shap.{record['cell_id'][:16]}"
    shutil.copytree(stored.folder, view)
    (view / RECORD).write_bytes(canonical_json(record))
    for text in ("T1/lstm/shap", "T1/lstm", "lstm", str(workspace.output)):
        assert {cell.suite for cell in select(workspace, text)} == {"energy"}, text
    assert {cell.suite for cell in select(workspace, "axe/T1/lstm/shap")} == {"axe"}


def test_what_cannot_be_compared_is_said(versions, tmp_path):
    workspace = versions.workspace
    with pytest.raises(BadInput, match=r"'gru' is no folder, and .* holds no cell of that name"):
        compare(workspace, "gru", "lstm", QUICK, 0)
    with pytest.raises(BadInput, match="holds no cells"):
        compare(workspace, str(tmp_path), "lstm", QUICK, 0)
    other = versions.add("lime", "gru", protocol="test-2")
    with pytest.raises(BadInput, match="different protocol versions"):
        compare(workspace, "lstm", "gru", QUICK, 0)
    shutil.rmtree(other.folder)
    versions.add("perturbation", "gru")
    with pytest.raises(BadInput, match=r"no cell of lstm has a counterpart in gru \(cells are paired by method"):
        compare(workspace, "lstm", "gru", QUICK, 0)
    (stored,) = select(workspace, "T1/lstm/shap").values()
    np.savez(stored.folder / EXPLANATIONS, importance=np.ones((12, 60)))
    with pytest.raises(Corrupt, match="the record says"):
        compare(workspace, "T1/lstm/shap", "T1/lstm_v2/shap", QUICK, 0)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["T1/lstm/shap", "T1/lstm/shap"], 0, "no drift: 1 pair of cells compared"),
        (["lstm", "lstm_v2"], 1, "drift: shap: "),
        (["lstm", "gru"], 2, "'gru' is no folder"),
        (["lstm", "lstm_v2", "--confidence", "2"], 2, "confidence in (0, 1)"),
    ],
)
def test_exit_codes(versions, root, monkeypatch, capsys, arguments, code, said):
    from explainbench.cli.__main__ import main

    shutil.copy(root / "params.yaml", versions.workspace.params)
    command = ["explainbench", "--root", str(versions.workspace.root), "drift", *arguments, "--bootstrap", "100"]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == code
    printed = capsys.readouterr()
    assert said in printed.out + printed.err
