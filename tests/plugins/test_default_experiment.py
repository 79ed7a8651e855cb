"""Where a user's own runs go."""

import shutil

from mlflow_plugins._mlflow import library
from mlflow_plugins.default_experiment import NAME, ExplainBenchDefaultExperiment


def test_runs_started_in_a_checkout_have_an_experiment_of_their_own(project, empty_store, tmp_path, monkeypatch):
    mlflow = library()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{shutil.copy(empty_store, tmp_path / 'own.db')}")
    monkeypatch.chdir(project.workspace.root)
    with mlflow.start_run() as run:
        pass
    experiment = mlflow.get_experiment(run.info.experiment_id)
    assert experiment.name == NAME
    assert len(mlflow.get_run(run.info.run_id).data.tags["explainbench.params_sha256"]) == 64
    assert ExplainBenchDefaultExperiment().get_experiment_id() == experiment.experiment_id
    mlflow.MlflowClient().delete_experiment(experiment.experiment_id)
    assert ExplainBenchDefaultExperiment().get_experiment_id() == "0"
    monkeypatch.chdir(tmp_path)
    assert not ExplainBenchDefaultExperiment().in_context()


def test_a_store_that_is_down_is_no_error(project, monkeypatch):
    library()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    assert ExplainBenchDefaultExperiment().get_experiment_id() == "0"
