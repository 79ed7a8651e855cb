"""Where a user's own runs go when they are started inside a checkout and name no experiment."""

from __future__ import annotations

NAME = "explainbench-own-runs"


class ExplainBenchDefaultExperiment:
    """MLflow's default-experiment plugin (entry point `mlflow.default_experiment_provider`).

    Inside a checkout such runs get an experiment of their own, beside the suites' and never among their cells, instead
    of MLflow's nameless `Default`. MLFLOW_EXPERIMENT_NAME, MLFLOW_EXPERIMENT_ID and `mlflow.set_experiment` win over
    it, and where the store cannot be used MLflow's own default stays.
    """

    def in_context(self) -> bool:
        """Whether the working directory lies in a project of ours."""
        from mlflow_plugins.run_context import ExplainBenchRunContext

        return ExplainBenchRunContext().in_context()

    def get_experiment_id(self) -> str:
        """The experiment, created where it is missing; MLflow's default where that fails."""
        try:
            from mlflow import MlflowClient
            from mlflow.exceptions import MlflowException

            client = MlflowClient()
            found = client.get_experiment_by_name(NAME)
            if found is None:
                try:
                    return client.create_experiment(NAME)
                except MlflowException:  # another process was quicker
                    found = client.get_experiment_by_name(NAME)
            return "0" if found is None or found.lifecycle_stage == "deleted" else found.experiment_id
        except Exception:  # noqa: BLE001 - a plugin must never stop the user's run
            return "0"
