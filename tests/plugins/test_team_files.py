"""The files that start a team's MLflow say what they promise; test_team.py starts it for real, without containers."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

OPS = Path(__file__).parents[2] / "ops" / "team"


@pytest.fixture(scope="module")
def compose() -> dict:
    return yaml.safe_load((OPS / "compose.yaml").read_text())


def test_containers_are_pinned_and_reachable_from_this_machine_only(compose):
    first, *_ = (OPS / "Dockerfile").read_text().splitlines()
    for image in (compose["services"]["postgres"]["image"], first.removeprefix("FROM ")):
        assert re.fullmatch(r"[a-z]+:\d+\.\d+[\w.-]*", image), image  # a version, not a moving name
    ports = [port for service in compose["services"].values() for port in service.get("ports", [])]
    assert ports == ["127.0.0.1:5000:5000"]


def test_every_service_says_whether_it_is_well(compose):
    services = compose["services"]
    assert all("healthcheck" in service for service in services.values())
    assert services["mlflow"]["depends_on"] == {"postgres": {"condition": "service_healthy"}}
    named = {volume.split(":")[0] for service in services.values() for volume in service.get("volumes", [])}
    assert named == set(compose["volumes"])


def test_no_password_has_a_default(compose):
    given = {key: value for service in compose["services"].values() for key, value in service["environment"].items()}
    for name in ("POSTGRES_PASSWORD", "MLFLOW_AUTH_ADMIN_PASSWORD"):
        assert str(given[name]).startswith(f"${{{name}:?"), f"{name} must be refused when it is not set"
    assert given["DATABASE_URL"].count("${POSTGRES_PASSWORD}") == 1


def test_the_container_runs_the_script_that_the_tests_run(compose):
    assert (OPS.parents[1] / compose["services"]["mlflow"]["build"]["dockerfile"]).is_file()
    assert 'CMD ["ops/team/serve.sh", "/srv/mlflow"]' in (OPS / "Dockerfile").read_text()
    assert compose["services"]["mlflow"]["volumes"] == ["files:/srv/mlflow"]
    assert os.access(OPS / "serve.sh", os.X_OK)
    assert os.access(OPS / "postgres.sh", os.X_OK)


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash on this machine")
def test_the_script_wants_a_password_before_it_starts_anything(tmp_path):
    bare = {key: value for key, value in os.environ.items() if key != "MLFLOW_AUTH_ADMIN_PASSWORD"}
    command = [str(OPS / "serve.sh"), str(tmp_path / "team")]
    done = subprocess.run(command, env=bare, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0
    assert "MLflow has no default password" in done.stderr
    assert not (tmp_path / "team").exists()
