"""The agnostic suite on the engine: grid, cells of three kinds, identity, MLflow, boards of models."""

import numpy as np
import pytest

from explainbench.core.cell import Cell
from explainbench.core.masking import Groups
from explainbench.core.params import Params
from explainbench.stages import agnostic
from explainbench.stages.drift import select
from explainbench.stages.evaluate import evaluate
from explainbench.stages.replay import replay_cell
from explainbench.stages.suite import grid_status
from explainbench.stages.verify import verify
from explainbench.store import CellStore
from mlflow_plugins.leaderboard import build_leaderboard
from mlflow_plugins.publish import publish_workspace

TASK = {"target": "load_mw", "context": 96, "horizon": 4, "segment": 8, "windows_per_regime": 4}
PARAMS = Params.model_validate(
    {
        "protocol": "test-1",
        "seed": 42,
        "runs": 2,
        "suites": {
            "energy": {
                "dataset": "bqeb_standin", "tasks": {"T1": TASK}, "models": ["lstm", "transformer"],
                "methods": ["shap", "lime"], "metrics": [],
            },
            "agnostic": {
                "tables": ["generated_classes", "adult"], "models": {"logistic_regression": {}, "mlp": {"epochs": 3}},
                "rows": 60, "explained": 8, "coalitions": 40, "top": 2, "points": 5, "repeats": 2, "resamples": 100,
            },
        },
        "statistics": {"bootstrap": 200},
    }
)  # fmt: skip


@pytest.fixture
def judged(project, tracking, monkeypatch):
    """Explanations of two models by two methods, and two models of a generated table; no fitted forecaster."""
    made = [project.add(method, model) for model in ("lstm", "transformer") for method in ("shap", "lime")]
    project.lock(*made)
    every = Groups(np.empty((0, 6)), tuple(made[0].record.groups))  # the made-up names of this project's features
    monkeypatch.setattr(agnostic, "_every_group", lambda *_: every)
    for model in ("lstm", "transformer"):
        (project.workspace.models / "T1" / model / "card.json").rename(project.workspace.models / f"{model}.json")
    summary = evaluate(project.workspace, PARAMS, 1, lambda plan: None, lambda outcome: None, "agnostic")
    assert not summary.failed
    assert summary.computed == 6
    return project


def test_the_suite_from_grid_to_boards(judged):
    workspace = judged.workspace
    status = {row["cell"]: row for row in grid_status(workspace)}
    assert status["agnostic/adult/mlp/eamex"]["status"] == "pending"
    assert "explainbench data public" in status["agnostic/adult/mlp/eamex"]["reason"]
    assert "not fitted" in status["agnostic/T1/lstm/eamex"]["reason"]
    assert verify(workspace) == []
    cells = {str(stored.cell): stored for stored in CellStore(workspace.cells)}
    spec = cells["agnostic/T1/lstm/shap"].record.spec
    source = cells["energy/T1/lstm/shap"]
    assert spec.parameters["explanations"]["record"] == source.digest
    assert spec.windows_sha256 == source.record.spec.windows_sha256
    assert {cell.suite for cell in select(workspace, "lstm")} == {
        "energy"
    }  # the views of its explanations do not count
    assert len(select(workspace, "agnostic/T1/lstm/shap")) == 1
    again = replay_cell(workspace, PARAMS, cells["agnostic/generated_classes/logistic_regression/eamex"])
    assert again.same_bits, again.detail

    counts = publish_workspace(workspace, PARAMS.statistics)
    assert not counts["refused"]
    document = build_leaderboard(workspace, PARAMS, "agnostic")
    assert document["verified"], document["flagged"]
    assert set(document["pending"]) == {cell for cell, row in status.items() if row["status"] == "pending"}
    boards = {board["name"]: board for board in document["boards"]}
    stability = boards["T1.importance_stability.explanations.models"]
    assert sorted(row["entry"] for row in stability["rows"]) == ["lstm", "transformer"]
    for row in stability["rows"]:
        assert row["low"] < row["mean"] < row["high"]
        assert row["verified"]
        assert len(row["cells"]) == 2  # shap and lime
    fidelity = boards["generated_classes.surrogate_fidelity.models"]
    assert [row["order"] for row in fidelity["rows"]] in ([1, 2], [1, 1])
    assert fidelity["n"] == 60
    assert fidelity["resamples"] == 100


def test_another_record_of_the_explanations_is_another_cell(judged):
    workspace = judged.workspace
    wanted = Cell("agnostic", "T1", "lstm", "shap")
    before = agnostic.SUITE.spec(workspace, PARAMS, wanted)
    models = workspace.models
    (models / "lstm.json").rename(models / "T1" / "lstm" / "card.json")
    judged.lock(judged.add("shap", "lstm", seed=43))
    after = agnostic.SUITE.spec(workspace, PARAMS, wanted)
    assert before.parameters["explanations"] != after.parameters["explanations"]
    assert {**before.model_dump(), "parameters": None} == {**after.model_dump(), "parameters": None}
