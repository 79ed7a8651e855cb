"""The run-context plugin: what it tags, how long it takes, and that it never raises."""

import subprocess
import sys
from pathlib import Path

from mlflow_plugins._checkout import dvc_md5, read_checkout, working_tree
from mlflow_plugins.run_context import ExplainBenchRunContext


def test_clean_dirty_and_no_git(project, monkeypatch):
    monkeypatch.chdir(project.workspace.root)
    context = ExplainBenchRunContext()
    assert context.in_context()
    without = context.tags()
    assert "explainbench.git_commit" not in without  # no repository yet
    assert len(without["explainbench.params_sha256"]) == 64
    assert without["explainbench.dvc_data_md5"].endswith(".dir")

    commit = project.commit()
    assert context.tags()["explainbench.git_commit"] == commit
    assert context.tags()["explainbench.git_dirty"] == "false"
    (project.workspace.root / "params.yaml").write_text("protocol: other\n")
    assert context.tags()["explainbench.git_dirty"] == "true"
    assert context.tags()["explainbench.params_sha256"] != without["explainbench.params_sha256"]


def test_outside_a_project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert not ExplainBenchRunContext().in_context()
    assert ExplainBenchRunContext().tags() == {}


def test_a_removed_working_directory_is_no_error(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert ExplainBenchRunContext().tags() == {}
    assert not ExplainBenchRunContext().in_context()


def test_git_that_cannot_be_run(project, monkeypatch):
    monkeypatch.chdir(project.workspace.root)
    monkeypatch.setenv("PATH", "")
    assert set(ExplainBenchRunContext().tags()) >= {"explainbench.params_sha256"}


def test_another_dvc_project_is_none_of_ours(tmp_path, monkeypatch):
    (tmp_path / "params.yaml").write_text("train:\n  protocol: http\n")
    monkeypatch.chdir(tmp_path)
    assert not ExplainBenchRunContext().in_context()
    (tmp_path / "params.yaml").write_bytes(b"\xff\xfe")
    assert not ExplainBenchRunContext().in_context()


def test_the_environment_is_told_apart_by_what_is_installed(project, monkeypatch, tmp_path):
    monkeypatch.chdir(project.workspace.root)
    before = ExplainBenchRunContext().tags()["explainbench.environment_sha256"]
    (tmp_path / "site" / "something-1.2.dist-info").mkdir(parents=True)
    monkeypatch.syspath_prepend(tmp_path / "site")
    assert ExplainBenchRunContext().tags()["explainbench.environment_sha256"] != before


def test_tree_of_the_working_files_equals_the_committed_tree(project):
    root = project.workspace.root
    project.commit()
    (root / "data" / "series.csv").write_text("changed")
    before = project.git("status", "--porcelain")
    tree = working_tree(root / "data")
    assert project.git("status", "--porcelain") == before  # the repository was not touched
    project.commit()
    assert tree == project.git("rev-parse", "HEAD:data")
    assert working_tree(root) == project.git("rev-parse", "HEAD^{tree}")


def test_a_file_without_hash_or_not_there(tmp_path):
    (tmp_path / "data.dvc").write_text("outs: []\n")
    assert dvc_md5(tmp_path / "data.dvc") is None
    assert dvc_md5(tmp_path / "absent.dvc") is None
    assert read_checkout(tmp_path).commit is None


def test_plugin_modules_import_without_mlflow():
    names = ("run_context", "default_experiment", "_checkout", "_mlflow", "_tables", "_board_text", "publish")
    names += ("leaderboard", "lineage", "board_query")
    code = f"import sys, {', '.join(f'mlflow_plugins.{name}' for name in names)}; print('mlflow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, timeout=60, capture_output=True, text=True)
    assert done.stdout.strip() == "False"


def test_the_plugin_module_that_mlflow_loads_on_start_run_is_light():
    heavy = "{'mlflow', 'numpy', 'pandas', 'pydantic', 'yaml'}"
    code = "import sys, mlflow_plugins.run_context as m; m.ExplainBenchRunContext().tags(); "
    code += f"print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-S", "-c", _with_site(code)], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "set()"


def _with_site(code):
    root = Path(__file__).parents[2]
    return f"import sys; sys.path[:0] = [{str(root)!r}]; {code}"
