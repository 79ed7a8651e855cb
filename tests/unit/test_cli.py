"""The command line: help a newcomer understands, mistakes in one sentence with exit code 2."""

import json
import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner


def explainbench(*arguments, cwd=None, **environment):
    return subprocess.run(
        [sys.executable, "-m", "explainbench.cli", *map(str, arguments)],
        capture_output=True, text=True, cwd=cwd, env=os.environ | {"COLUMNS": "160"} | environment, check=False,
    )  # fmt: skip


def test_help_imports_nothing_heavy():
    code = (
        "import sys; sys.argv = ['explainbench', '--help']\n"
        "from explainbench.cli.__main__ import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "print(sorted({'torch', 'mlflow', 'shap', 'pandas', 'sklearn', 'numpy'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip().endswith("[]")
    for command in ("data", "fit", "evaluate", "profile", "publish", "leaderboard", "audit", "verify", "list"):
        assert command in result.stdout


def test_outside_a_project_says_where_it_looked(tmp_path):
    result = explainbench("list", "methods", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("explainbench: no params.yaml in")
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--profile", "nope", "list", "cells"], "no profile 'nope'"),
        (["data", "import", "absent.csv", "--column", "load"], "must have the form OURS=THEIRS"),
        (["--output", "{tmp}", "evaluate", "--no-publish"], "T1.json does not exist; run the stage"),
        (["--output", "{tmp}", "verify"], "run `explainbench evaluate` first"),
        (["--output", "{tmp}", "evaluate", "--suite", "nope"], "'nope' is not a suite; there are energy"),
        (["--output", "{tmp}", "fit", "--task", "T9"], "'T9' is no task of the energy suite; there are T1, T2"),
        (["audit", ""], "the name to audit is empty"),
    ],
)
def test_mistakes_are_one_sentence(root, tmp_path, arguments, said):
    result = explainbench("--root", root, *(argument.format(tmp=tmp_path) for argument in arguments))
    assert result.returncode == 2
    assert said in result.stderr
    assert "Traceback" not in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "  shap: {coalitions: 512}",
            "  shapp: {coalitions: 512}",
            "methods.shapp: 'shapp' is not a registered method",
        ),
        ("  chronos: {width", "  cronos: {width", "models.cronos: 'cronos' is not a registered model"),
        ("  stability: {draws: 5", "  stabilty: {draws: 5", "metrics.stabilty: 'stabilty' is not a registered metric"),
    ],
)
def test_a_block_of_no_entry_is_refused(root, tmp_path, old, new, said):
    text = (root / "params.yaml").read_text()
    assert text.count(old) >= 1
    (tmp_path / "params.yaml").write_text(text.replace(old, new, 1))
    for command in (["list", "cells"], ["evaluate", "--no-publish"]):
        result = explainbench("--root", tmp_path, *command)
        assert result.returncode == 2
        assert said in result.stderr


@pytest.mark.parametrize(
    ("name", "content", "command", "said"),
    [
        ("agnostic.json", "{}", "radar", "holds no boards"),
        ("grid.json", '{"boards": 3}', "verify", "is no list of cells"),
    ],
)
def test_a_result_of_another_shape_is_named(root, tmp_path, name, content, command, said):
    (tmp_path / "params.yaml").write_bytes((root / "params.yaml").read_bytes())
    (tmp_path / "cells.lock.json").write_text(json.dumps({"schema": 1, "cells": {"a" * 64: "b" * 64}}))
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / name).write_text(content)
    result = explainbench("--root", tmp_path, command)
    assert result.returncode == 2
    assert said in result.stderr
    assert "Traceback" not in result.stderr


def test_a_folder_where_a_file_belongs_is_named(root, tmp_path):
    (tmp_path / "params.yaml").write_bytes((root / "params.yaml").read_bytes())
    (tmp_path / "cells.lock.json").mkdir()
    result = explainbench("--root", tmp_path, "drift", "a", "b")
    assert result.returncode == 2
    record = tmp_path / "cells" / f"energy.T1.lstm.shap.{'a' * 16}" / "record.json"
    record.mkdir(parents=True)
    result = explainbench("--root", tmp_path, "drift", "T1/lstm", "T1/lstm")
    assert (result.returncode, result.stderr) == (2, f"explainbench: {record}: Is a directory\n")


def test_lists_are_json_for_scripts(root):
    cells = json.loads(explainbench("--root", root, "list", "cells", "--json").stdout)
    assert {"cell": "energy/T1/lstm/random", "baseline": True, "excluded": None} in cells
    methods = json.loads(explainbench("--root", root, "list", "methods", "--json").stdout)
    assert {"shap", "lime", "integrated_gradients", "random"} <= {row["name"] for row in methods}
    assert all(len(row["what"]) > 20 for row in methods)


@pytest.mark.parametrize(("flags", "checked"), [([], []), (["--checks"], ["checks"])])
def test_run_goes_through_the_stages_in_the_pipelines_order(root, tmp_path, monkeypatch, flags, checked):
    from explainbench.cli import pipeline
    from explainbench.cli.__main__ import app
    from explainbench.stages import data

    called = []
    monkeypatch.setattr(data, "verify_data", lambda *given: None)
    stages = ("data_windows", "pretrain", "fit", "evaluate", "profile_command", "publish", "checks", "contexts")
    for name in (*stages, "leaderboard", "report_command"):
        monkeypatch.setattr(pipeline, name, lambda *given, _name=name, **named: called.append(_name))
    result = CliRunner().invoke(app, ["--root", str(root), "--output", str(tmp_path), "run", *flags])
    assert result.exit_code == 0, result.output
    last = ["contexts", "leaderboard", "report_command", "publish"]  # boards and report are published too
    assert called == [*stages[:6], *checked, *last]
