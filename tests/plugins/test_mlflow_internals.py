"""What we use of MLflow beyond its public interface: an upgrade that moves any of it fails here, by name."""

import inspect
import json
from importlib.metadata import requires, version

import pytest
from packaging.requirements import Requirement

from mlflow_plugins._mlflow import TESTED, library

UPGRADE = "MLflow moved something that mlflow_plugins/_mlflow.py or _tables.py relies on: adapt it, then extend TESTED"


@pytest.fixture(scope="module")
def mlflow():
    return library()


def test_the_installed_version_is_one_that_was_tested():
    minor = ".".join(version("mlflow").split(".")[:2])
    assert minor in TESTED, f"MLflow {minor} was never tried; run this suite, then add it to TESTED in _mlflow.py"
    (ours,) = (one for one in map(Requirement, requires("bqeb-explainbench") or []) if one.name == "mlflow")
    for tested in TESTED:
        assert f"{tested}.0" in ours.specifier
    assert "3.18.0" not in ours.specifier, "pyproject.toml allows a version of MLflow that is not in TESTED"


def test_the_tables_that_boards_are_read_from(mlflow, empty_store):
    from mlflow.entities import LifecycleStage
    from mlflow.store.tracking import sqlalchemy_store
    from mlflow.store.tracking.dbmodels.models import SqlLatestMetric, SqlRun, SqlTag
    from mlflow.utils.search_utils import SearchUtils

    for table, columns in (
        (SqlRun, {"run_uuid", "status", "start_time", "experiment_id", "lifecycle_stage"}),
        (SqlTag, {"run_uuid", "key", "value"}),
        (SqlLatestMetric, {"run_uuid", "key", "value"}),
    ):
        assert columns <= set(table.__table__.columns.keys()), UPGRADE
    assert LifecycleStage.ACTIVE == "active", UPGRADE
    clauses = inspect.signature(sqlalchemy_store._get_sqlalchemy_filter_clauses).parameters
    assert list(clauses) == ["parsed", "session", "dialect"], UPGRADE
    assert SearchUtils.parse_search_filter("tags.a = 'b'")[0]["key"] == "a", UPGRADE
    backend = mlflow.MlflowClient(f"sqlite:///{empty_store}")._tracking_client.store
    for name in ("ManagedSessionMaker", "_get_dialect", "engine"):
        assert hasattr(backend, name), UPGRADE


@pytest.mark.filterwarnings("ignore:.*Any type hint is inferred:UserWarning")  # MLflow's own, on import
def test_the_plugins_are_found_under_mlflows_own_names(mlflow):
    from mlflow.data.dataset_source_registry import _dataset_source_registry
    from mlflow.models.evaluation.evaluator_registry import _model_evaluation_registry
    from mlflow.tracking.context.registry import _run_context_provider_registry
    from mlflow.tracking.default_experiment.registry import _default_experiment_provider_registry

    assert any(type(one).__name__ == "ExplainBenchRunContext" for one in _run_context_provider_registry), UPGRADE
    providers = list(_default_experiment_provider_registry)
    assert any(type(one).__name__ == "ExplainBenchDefaultExperiment" for one in providers), UPGRADE
    assert _model_evaluation_registry.is_registered("explainbench"), UPGRADE
    json_source = json.dumps({"url": "data", "md5": "0" * 32})
    source = _dataset_source_registry.get_source_from_json(json_source, "dvc")
    assert type(source).__name__ == "DvcDatasetSource", UPGRADE


def test_the_limits_we_cut_values_to_are_mlflows(mlflow):
    from mlflow.utils import validation

    from mlflow_plugins import _mlflow

    assert validation.MAX_TAG_VAL_LENGTH == _mlflow.MAX_TAG, UPGRADE
    assert validation.MAX_PARAM_VAL_LENGTH == _mlflow.MAX_PARAM, UPGRADE
    assert validation.MAX_PARAMS_TAGS_PER_BATCH == _mlflow.MAX_BATCH, UPGRADE
    assert validation.MAX_DATASET_DIGEST_SIZE == _mlflow.MAX_DIGEST, UPGRADE


def test_the_environment_that_a_server_gives_its_workers(mlflow):
    from mlflow.server import constants

    assert constants.BACKEND_STORE_URI_ENV_VAR == "_MLFLOW_SERVER_FILE_STORE", UPGRADE
    assert constants.ARTIFACTS_DESTINATION_ENV_VAR == "_MLFLOW_SERVER_ARTIFACT_DESTINATION", UPGRADE
    assert hasattr(__import__("mlflow.environment_variables", fromlist=["x"]), "_MLFLOW_SGI_NAME"), UPGRADE


def test_basic_auth_still_has_the_doors_we_open():
    pytest.importorskip("flask_wtf")
    pytest.importorskip("mlflow")
    from importlib.util import find_spec
    from pathlib import Path

    spec = find_spec("mlflow.server.auth")
    assert spec is not None
    assert spec.origin is not None
    text = Path(spec.origin).read_text()  # importing it would open its database
    doors = (
        "BEFORE_REQUEST_VALIDATORS",
        "def create_app(",
        "def authorize(",
        "from mlflow.server.auth.requirements import",
        "    Requirement,",
    )
    for name in (*doors, "mlflow_authenticated_user"):
        assert name in text, f"{UPGRADE}: {name}"
