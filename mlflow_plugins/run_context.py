"""Tags on every MLflow run that is started inside a project: git commit, dirty flag, DVC hashes, params digest."""

from __future__ import annotations

from pathlib import Path


class ExplainBenchRunContext:
    """MLflow's run-context plugin (entry point `mlflow.run_context_provider`).

    MLflow calls it for `mlflow.start_run` only, never for `MlflowClient.create_run`, and drops what it raises: what an
    audit needs is therefore written by `publish` itself. This is for the runs that users start on their own.
    """

    def in_context(self) -> bool:
        """Whether the working directory lies in a project (a folder with params.yaml, or below one)."""
        return self._root() is not None

    def tags(self) -> dict[str, str]:
        """`explainbench.*` tags of the project; fewer, or none, where git or a file cannot be read."""
        try:
            from mlflow_plugins._checkout import read_checkout

            root = self._root()
            return {} if root is None else read_checkout(root).tags()
        except Exception:  # noqa: BLE001 - a plugin must never stop the user's run
            return {}

    def _root(self) -> Path | None:
        try:
            from mlflow_plugins._checkout import project_root

            return project_root(Path.cwd())
        except Exception:  # noqa: BLE001 - for instance a working directory that was removed
            return None
