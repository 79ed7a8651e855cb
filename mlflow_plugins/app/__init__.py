"""ExplainBench's pages beside MLflow's: `mlflow server --app-name explainbench` (or `explainbench-auth`)."""

from __future__ import annotations

from typing import Any


def create_app() -> Any:
    """MLflow's server with the pages under `/explainbench/` (entry point `mlflow.app`)."""
    from mlflow_plugins._mlflow import server_app, server_uri
    from mlflow_plugins.app.routes import register
    from mlflow_plugins.app.source import Source

    return server_app(register(Source.here(server_uri(), lambda experiment_id: True)))


def create_app_auth() -> Any:
    """The same under MLflow's basic auth: who may not read an experiment sees none of its boards, cells and runs."""
    from mlflow_plugins._mlflow import may_read, server_app, server_uri
    from mlflow_plugins.app.routes import register
    from mlflow_plugins.app.source import Source

    return server_app(register(Source.here(server_uri(), may_read)), auth=True)
