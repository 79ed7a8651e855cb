"""Tamper evidence: any single alteration, in any store, is detected and located."""

import json
import random
import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
import yaml

from explainbench.analysis.board import board_json
from explainbench.analysis.boards import build_boards
from explainbench.core.files import write_json
from explainbench.core.params import Params
from mlflow_plugins import _mlflow, leaderboard
from mlflow_plugins._site import directory_md5, file_md5
from mlflow_plugins.leaderboard import build_leaderboard
from mlflow_plugins.lineage import audit_all
from mlflow_plugins.publish import publish_workspace

PARAMS = {
    "protocol": "test-1",
    "seed": 42,
    "runs": 2,
    "suites": {"energy": {"dataset": "bqeb_standin", "tasks": {}, "models": [], "methods": [], "metrics": []}},
    "methods": {"shap": {"coalitions": 512}, "lime": {"samples": 512}},
    "statistics": {"bootstrap": 200},
}


@dataclass(frozen=True)
class Altered:
    """One alteration: of what, words that locate it when they are in an audit's disagreements, and how to undo it."""

    what: str
    words: tuple[str, ...]
    undo: Callable[[], object]


@pytest.fixture(scope="module")
def published(tmp_path_factory, empty_store, make_project):
    """Two cells, three boards, runs of both, and what git and DVC say about it all."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        patch.setattr(_mlflow, "_client", cache(_mlflow._client))  # one store, opened once
        patch.setattr(leaderboard, "build_boards", lambda *given: with_numbers(build_boards(*given))[:3])
        project = make_project(tmp_path_factory.mktemp("tampering") / "project")
        root = project.workspace.root
        shutil.copy(empty_store, root / "mlflow.db")
        project.lock(
            project.add("shap"), project.add("lime", shift=3.0), project.add("integrated_gradients", shift=6.0)
        )
        (root / "params.yaml").write_text(yaml.safe_dump(PARAMS))
        params = Params.model_validate(PARAMS)
        publish_workspace(project.workspace, params.statistics)
        build_leaderboard(project.workspace, params)
        publish_workspace(project.workspace, params.statistics)
        write_dvc_lock(root)
        project.commit()
        yield project


def with_numbers(boards):
    return [board for board in boards if any(row["mean"] is not None for row in board_json(board)["rows"])]


def write_dvc_lock(root: Path) -> None:
    """As `dvc repro` leaves it: what a stage read and wrote, and the parameters it ran with."""
    named = ["build/windows", "models", "cells", "cells.lock.json", "results/leaderboard.csv"]
    outs = [
        {"path": name, "md5": directory_md5(root / name) if (root / name).is_dir() else file_md5(root / name)}
        for name in named
    ]
    stage = {"cmd": "explainbench evaluate", "params": {"params.yaml": PARAMS}, "outs": outs}
    (root / "dvc.lock").write_text(yaml.safe_dump({"schema": "2.0", "stages": {"evaluate": stage}}))


def audit_problems(project) -> list[str]:
    """Every disagreement, with the chain it is in."""
    params = Params.model_validate(PARAMS)
    return [
        f"{chain.cell} | {link.name} | {link.detail}"
        for chain in audit_all(project.workspace, None, params)
        for link in chain.disagreements
    ]


# --- alterations ------------------------------------------------------------------------------------------------------


def flip_a_bit(path: Path, rng: random.Random, *words: str) -> Altered:
    content = path.read_bytes()
    at = rng.randrange(len(content))
    changed = bytearray(content)
    changed[at] ^= 1 << rng.randrange(8)
    path.write_bytes(changed)
    return Altered(f"bit in byte {at} of {path}", words or (path.name,), lambda: path.write_bytes(content))


def cell_file(project, rng: random.Random) -> Altered:
    path = rng.choice(sorted(item for item in project.workspace.cells.rglob("*") if item.is_file()))
    words = (path.name, "record") if path.name == "record.json" else (path.name,)
    return flip_a_bit(path, rng, *words)


def run_file(project, rng: random.Random) -> Altered:
    path = rng.choice(sorted(item for item in (project.workspace.root / "mlartifacts").rglob("*") if item.is_file()))
    return flip_a_bit(path, rng, "run seal" if path.name == "seal.json" else path.name)


def weights_or_card(project, rng: random.Random) -> Altered:
    path = rng.choice(sorted(item for item in project.workspace.models.rglob("*") if item.is_file()))
    return flip_a_bit(path, rng, "weights" if path.suffix == ".safetensors" else "model card", path.name)


def windows(project, rng: random.Random) -> Altered:
    path = rng.choice(sorted(project.workspace.windows.iterdir()))
    return flip_a_bit(path, rng, "windows", path.name)


def data_row(project, rng: random.Random) -> Altered:
    return flip_a_bit(rng.choice(sorted(project.workspace.data.rglob("*.csv"))), rng)


def committed_file(project, rng: random.Random) -> Altered:
    root = project.workspace.root
    names = ["data.dvc", "dvc.lock", "data.manifest.json", "cells.lock.json", "params.yaml"]
    results = sorted(path for path in project.workspace.results.rglob("*") if path.is_file())
    names += [path.relative_to(root).as_posix() for path in results]
    return flip_a_bit(root / rng.choice(names), rng)


def params_value(project, rng: random.Random) -> Altered:
    path, content = project.workspace.params, yaml.safe_load(project.workspace.params.read_text())
    before = path.read_text()
    block, key = rng.choice([
        (content, "seed"), (content, "runs"), (content, "protocol"), (content["methods"]["shap"], "coalitions"),
        (content["methods"]["lime"], "samples"), (content["statistics"], "bootstrap"),
        (content["suites"]["energy"], "dataset"),
    ])  # fmt: skip
    block[key] = block[key] + rng.randrange(1, 9) if isinstance(block[key], int) else f"{block[key]}x"
    path.write_text(yaml.safe_dump(content))
    return Altered(f"{key} in params.yaml", (key,), lambda: path.write_text(before))


def board_row(project, rng: random.Random) -> Altered:
    path = project.workspace.results / "leaderboard.json"
    before = path.read_bytes()
    content = json.loads(before)
    board = rng.choice([one for one in content["boards"] if any(row["mean"] is not None for row in one["rows"])])
    row = rng.choice([row for row in board["rows"] if row["mean"] is not None])
    key = rng.choice(["mean", "low", "high", "order", "entry", "record_digest", "rank_ub"])
    row[key] = f"{row[key]}x" if isinstance(row[key], str) else (row[key] or 0) + rng.randrange(1, 9) / 16
    write_json(path, content)
    return Altered(f"{key} of a row of {board['name']}", (f"board {board['name']}",), lambda: path.write_bytes(before))


def tracking_value(project, rng: random.Random) -> Altered:
    """A tag, param, metric, dataset or experiment tag changed by a character or a thousandth, or deleted."""
    database = project.workspace.output / "mlflow.db"
    table, key, value = rng.choice([
        ("tags", "key", "value"), ("tags", "key", "value"), ("params", "key", "value"), ("metrics", "key", "value"),
        ("latest_metrics", "key", "value"), ("datasets", "name", "digest"), ("experiment_tags", "key", "value"),
        ("runs", "name", "name"),
    ])  # fmt: skip
    with sqlite3.connect(database) as connection:
        found = connection.execute(f"SELECT rowid, {key}, {value} FROM {table} ORDER BY rowid").fetchall()
        found = [one for one in found if one[1] != "explainbench.updated"]  # a clock for caches
        row, name, before = rng.choice(found)
        if table in ("tags", "params") and rng.random() < 0.25:
            columns = [item[1] for item in connection.execute(f"PRAGMA table_info({table})")]
            kept = connection.execute(f"SELECT {', '.join(columns)} FROM {table} WHERE rowid = ?", (row,)).fetchone()
            connection.execute(f"DELETE FROM {table} WHERE rowid = ?", (row,))
            again = f"INSERT INTO {table} (rowid, {', '.join(columns)}) VALUES ({row}, {', '.join('?' * len(columns))})"
            undo = statement(database, again, kept)
        else:
            changed = before * 1.001 + 1e-6 if isinstance(before, float) else altered_text(str(before), rng)
            connection.execute(f"UPDATE {table} SET {value} = ? WHERE rowid = ?", (changed, row))
            undo = statement(database, f"UPDATE {table} SET {value} = ? WHERE rowid = ?", (before, row))
    connection.close()
    located = {"datasets": "dataset", "runs": "name"}.get(table, name)
    return Altered(f"{name} in table {table}", (located, "run seal" if located.endswith(".seal") else located), undo)


def altered_text(text: str, rng: random.Random) -> str:
    at = rng.randrange(len(text) + 1)
    return text[:at] + rng.choice("0aZ") + text[at:]


def statement(database: Path, text: str, values: tuple) -> Callable[[], None]:
    def run() -> None:
        with sqlite3.connect(database) as connection:
            connection.execute(text, values)
        connection.close()

    return run


ALTERATIONS = (
    cell_file, run_file, tracking_value, tracking_value, board_row, weights_or_card, windows, data_row, committed_file,
    params_value,
)  # fmt: skip


def missed(project, count: int, seed: int) -> list[str]:
    """Alterations that no disagreement names."""
    rng = random.Random(seed)
    found = []
    for number in range(count):
        altered = ALTERATIONS[number % len(ALTERATIONS)](project, rng)
        problems = audit_problems(project)
        altered.undo()
        if not problems:
            found.append(f"{altered.what}: not detected")
        elif not any(word in problem for word in altered.words for problem in problems):
            found.append(f"{altered.what}: not located by {problems[:3]}")
    return found


def test_an_untouched_project_has_no_disagreement(published):
    assert audit_problems(published) == []


def test_single_alterations_are_detected_and_located(published):
    assert missed(published, len(ALTERATIONS), seed=1) == []
    assert audit_problems(published) == []


@pytest.mark.slow
def test_two_hundred_single_alterations_are_detected_and_located(published):
    assert missed(published, 200, seed=2) == []
    assert audit_problems(published) == []


def test_a_stage_that_left_the_pipeline_is_not_compared(published):
    path = published.workspace.root / "dvc.yaml"
    path.write_text(yaml.safe_dump({"stages": {"evaluate": {"matrix": {"suite": ["energy"]}, "cmd": "true"}}}))
    links = [
        link for chain in audit_all(published.workspace, None, Params.model_validate(PARAMS)) for link in chain.links
    ]
    path.unlink()
    (stage,) = (link for link in links if link.name == "stage evaluate")
    assert (stage.state, "no such stage any more" in stage.detail) == ("unchecked", True)


@pytest.mark.parametrize("stray", ["tags", "metrics"])
def test_what_is_added_to_a_run_is_named(published, stray):
    database = published.workspace.output / "mlflow.db"
    with sqlite3.connect(database) as connection:
        (run,) = connection.execute(
            "SELECT run_uuid FROM tags WHERE key = 'explainbench.method' AND value = 'shap'"
        ).fetchone()
        if stray == "tags":
            add = "INSERT INTO tags (key, value, run_uuid) VALUES ('explainbench.added', '1', ?)"
            remove = "DELETE FROM tags WHERE key = 'explainbench.added' AND run_uuid = ?"
        else:
            add = "UPDATE latest_metrics SET key = 'added' WHERE key = 'measured/seconds' AND run_uuid = ?"
            remove = "UPDATE latest_metrics SET key = 'measured/seconds' WHERE key = 'added' AND run_uuid = ?"
        connection.execute(add, (run,))
    connection.close()
    problems = audit_problems(published)
    statement(database, remove, (run,))()
    assert any("added" in problem for problem in problems)
    assert audit_problems(published) == []
