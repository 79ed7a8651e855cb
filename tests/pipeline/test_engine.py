"""The engine: same bits however a run goes, nothing lost, nothing stale, every failure named."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from explainbench.core.cell import Cell
from explainbench.core.errors import BadInput
from explainbench.runner import Failed
from explainbench.stages import energy
from explainbench.stages.evaluate import Finished, evaluate, plan
from explainbench.stages.replay import compare_with, replay_cell
from explainbench.stages.verify import not_here, verify
from explainbench.store import DETERMINISTIC, CellStore, first_problem, read_lock, write_lock

CELLS = 8  # two tasks, one model, three methods and a baseline


def run(workspace, params, workers=1, on_finished=lambda outcome: None):
    return evaluate(workspace, params, workers, lambda todo: None, on_finished)


def copied(finished, project, folder):
    """A second output folder with the same finished cells."""
    workspace = project.output(folder)
    shutil.copytree(finished.cells, workspace.cells)
    return workspace


def test_two_workers_give_the_bytes_of_one(project, finished, tmp_path):
    other = project.output(tmp_path / "two")
    summary = run(other, project.params, workers=2)
    assert (summary.computed, summary.failed) == (CELLS, ())
    assert other.lock.read_bytes() == finished.lock.read_bytes()
    for one in CellStore(finished.cells):
        for name in (*DETERMINISTIC, "record.json"):
            assert (one.folder / name).read_bytes() == (other.cells / one.folder.name / name).read_bytes(), one.cell


def test_everything_is_scored_or_has_a_reason(project, finished):
    for stored in CellStore(finished.cells):
        assert first_problem(stored) is None
        assert not stored.record.scores.keys() & stored.record.skipped.keys()
        for metric in project.params.suites.energy.metrics:
            assert (metric in stored.record.scores) != (metric in stored.record.skipped)
        assert all(len(skip.reason) > 10 for skip in stored.record.skipped.values())
        table = stored.scores().to_pandas()
        assert table.loc[table["status"] != "value", "raw"].isna().all()
        assert set(table.loc[table["window"] >= 0, "regime"]) == {"peak", "off_peak", "ramp"}
    assert {(s.cell.task, s.cell.method) for s in CellStore(finished.cells) if "fidelity" in s.record.scores} == {
        (task, method) for task in ("T1", "T2") for method in ("shap", "lime")
    }


def test_a_second_run_computes_nothing_and_a_changed_option_only_its_cells(project, finished, tmp_path):
    workspace = copied(finished, project, tmp_path / "again")
    assert run(workspace, project.params).computed == 0
    changed = project.params.model_copy(update={"methods": project.params.methods | {"lime": {"samples": 97}}})
    assert {cell.method for cell in plan(workspace, changed).todo} == {"lime"}
    summary = run(workspace, changed)
    assert (summary.computed, summary.cached, summary.removed) == (2, CELLS - 2, 2)
    assert len(read_lock(workspace.lock)) == CELLS


def test_a_corrupted_file_is_recomputed_and_said_so(project, finished, tmp_path):
    workspace = copied(finished, project, tmp_path / "corrupt")
    folder = sorted(workspace.cells.iterdir())[0]
    content = bytearray((folder / "scores.parquet").read_bytes())
    content[len(content) // 2] ^= 1
    (folder / "scores.parquet").write_bytes(content)
    assert any("scores.parquet" in reason for reason in plan(workspace, project.params).recomputed)
    assert run(workspace, project.params).computed == 1
    assert read_lock(workspace.lock) == read_lock(finished.lock)


def test_an_interruption_keeps_finished_cells(project, tmp_path):
    workspace = project.output(tmp_path / "interrupted")
    seen = []

    def stop(outcome):
        seen.append(outcome)
        if len(seen) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(workspace, project.params, on_finished=stop)
    assert len(plan(workspace, project.params).todo) == CELLS - 3
    assert run(workspace, project.params).computed == CELLS - 3


def test_kill_nine_loses_at_most_the_cells_in_flight(project, finished, tmp_path):
    workspace = project.output(tmp_path / "killed")
    command = [
        sys.executable, "-m", "explainbench.cli", "--profile", "smoke", "--root", str(project.workspace.root),
        "--output", str(workspace.output), "evaluate", "--workers", "1", "--no-publish",
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while len(CellStore(workspace.cells).folders()) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    survivors = len(CellStore(workspace.cells).folders())
    assert survivors >= 2
    summary = run(workspace, project.params)
    assert summary.cached == survivors
    assert read_lock(workspace.lock) == read_lock(finished.lock)
    assert not [path for path in workspace.cells.iterdir() if path.name.startswith(".")]


def test_a_cell_left_the_grid(project, finished, tmp_path):
    workspace = copied(finished, project, tmp_path / "smaller")
    energy = project.params.suites.energy.model_copy(update={"methods": ["shap"]})
    smaller = project.params.model_copy(update={"suites": project.params.suites.model_copy(update={"energy": energy})})
    assert run(workspace, smaller).removed == 4
    assert {stored.cell.method for stored in CellStore(workspace.cells)} == {"shap", "random"}


def test_a_model_that_returns_nan_fails_its_cells_by_window_and_the_others_go_on(project, tmp_path, monkeypatch):
    workspace = project.output(tmp_path / "nan")
    load = energy.load_forecaster

    def broken(workspace, task, model, params):
        forecaster = load(workspace, task, model, params)
        if task == "T1":
            predict = type(forecaster).predict

            class Broken(type(forecaster)):
                def predict(self, context):
                    forecast = predict(self, context)
                    forecast.mean[1] = np.nan
                    return forecast

            forecaster = Broken(forecaster.module, forecaster.card)
        return forecaster

    monkeypatch.setattr(energy, "load_forecaster", broken)
    monkeypatch.setattr(energy, "_benches", {})
    outcomes = []
    summary = run(workspace, project.params, on_finished=outcomes.append)
    assert (summary.computed, len(summary.failed)) == (4, 4)
    assert all(
        "non-finite" in item.reason and "window 20" in item.reason for item in outcomes if isinstance(item, Failed)
    )
    assert all(item.cell.task == "T2" for item in outcomes if isinstance(item, Finished))
    status = json.loads((workspace.results / "grid.json").read_text())
    assert [row["status"] for row in status].count("failed") == 4


def test_verify_names_what_does_not_hold(project, finished, tmp_path):
    workspace = copied(finished, project, tmp_path / "verified")
    shutil.copy(finished.lock, workspace.lock)
    assert verify(workspace) == []
    folders = sorted(workspace.cells.iterdir())
    (folders[0] / "explanations.npz").write_bytes(b"no")
    record = (folders[1] / "record.json").read_text()
    (folders[1] / "record.json").write_text(record.replace('"seed":42', '"seed":43'))
    shutil.rmtree(folders[2])
    problems = " | ".join(verify(workspace))
    assert f"{folders[0].name}/explanations.npz" in problems
    assert f"{folders[1].name}/record.json" in problems
    assert "is not in" in problems


def test_a_further_suite_of_which_nothing_is_here_is_told_and_not_checked(project, finished, tmp_path):
    workspace = copied(finished, project, tmp_path / "cloned")
    locked = read_lock(finished.lock)
    write_lock(workspace.lock, locked | {"a" * 64: "x", "b" * 64: "y"})
    status = json.loads((finished.results / "grid.json").read_text())
    elsewhere = [
        {"cell": f"axe/german/mlp/{name}", "baseline": False, "status": "scored", "cell_id": name * 64, "reason": None}
        for name in "ab"
    ]
    workspace.results.mkdir()
    (workspace.results / "grid.json").write_text(json.dumps([*status, *elsewhere]))
    assert not_here(workspace) == {"axe": 2}
    assert verify(workspace) == []
    (workspace.cells / f"axe.german.mlp.a.{'a' * 16}").mkdir()  # once one is here, all must be
    assert not_here(workspace) == {}
    assert f"cell {'b' * 16} of cells.lock.json is not in" in " | ".join(verify(workspace))


def test_a_replay_gives_the_same_bits_and_a_reference_folder_agrees(project, finished):
    stored = CellStore(finished.cells).read(sorted(finished.cells.glob("*T1*integrated*"))[0])
    assert replay_cell(finished, project.params, stored).same_bits
    assert compare_with(finished, finished.output, 1e-4) == []


def test_nothing_to_verify_is_an_error_not_a_pass(project, tmp_path):
    with pytest.raises(BadInput, match="run `explainbench evaluate` first"):
        verify(project.output(tmp_path / "empty"))


def test_missing_stages_are_named(project, tmp_path):
    from explainbench.core.workspace import Workspace

    empty = Workspace(project.workspace.root, tmp_path / "nothing")
    with pytest.raises(BadInput, match=r"T1\.json does not exist; run the stage"):
        plan(empty, project.params)


def test_cell_streams_are_keyed_by_names():
    cell = Cell("energy", "T1", "lstm", "shap")
    draws = {
        (purpose, run): cell.rng(42, purpose, run).random() for purpose in ("explain", "stability") for run in range(3)
    }
    assert len(set(draws.values())) == 6
    assert cell.rng(42, "explain", 1).random() == draws["explain", 1]
