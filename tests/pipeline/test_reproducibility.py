"""The reproducibility table of docs/lineage.md: same digests, whatever the run looks like from outside."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from explainbench.core.cell import Cell
from explainbench.stages import energy
from explainbench.stages.evaluate import evaluate
from explainbench.store import CellStore, read_lock


def lock_of(workspace, params, workers=1):
    summary = evaluate(workspace, params, workers, lambda plan: None, lambda outcome: None)
    assert not summary.failed, summary.failed
    return workspace.lock.read_bytes()


def test_shuffled_cells_give_the_same_bytes(project, finished, tmp_path, monkeypatch):
    """No cell leaves anything behind that the next one could pick up."""

    def shuffled(self, params, cells):
        return [cells[index] for index in np.random.default_rng(3).permutation(len(cells))]

    monkeypatch.setattr(energy.Energy, "order", shuffled)
    monkeypatch.setattr(energy, "_benches", {})
    assert lock_of(project.output(tmp_path / "shuffled"), project.params) == finished.lock.read_bytes()


def test_a_cell_alone_is_the_cell_in_company(project, finished, tmp_path, monkeypatch):
    """Batch composition: a cell computed in a process that computed nothing else shares no batch with another cell."""
    from explainbench.stages.evaluate import evaluate_cell

    monkeypatch.setattr(energy, "_benches", {})
    cell = Cell("energy", "T2", "transformer", "lime")
    alone = evaluate_cell(project.output(tmp_path / "alone"), project.params, cell)
    assert read_lock(finished.lock)[alone.cell_id] == alone.digest


@pytest.mark.slow
def test_four_workers_give_the_bytes_of_one(project, finished, tmp_path):
    assert lock_of(project.output(tmp_path / "four"), project.params, workers=4) == finished.lock.read_bytes()


def nobody(environment, folder):
    """Root can become another user; that user needs a home and the results' folder."""
    os.chown(folder, 65534, 65534)
    return {"user": 65534, "group": 65534, "env": environment | {"HOME": str(folder)}}


@pytest.mark.slow
@pytest.mark.parametrize("case", ["hash seed", "locale and time zone", "another folder", "another user"])
def test_surroundings_do_not_matter(project, finished, tmp_path, case):
    root, output = project.workspace.root, tmp_path / "out"
    environment = dict(os.environ)
    options = {}
    if case == "hash seed":
        environment["PYTHONHASHSEED"] = "12345"
    elif case == "locale and time zone":
        environment |= {"LC_ALL": "de_DE.UTF-8", "LANG": "de_DE.UTF-8", "TZ": "Asia/Kathmandu"}
    elif case == "another folder":
        root = tmp_path / "a clone with spaces é"
        shutil.copytree(project.workspace.root, root, ignore=shutil.ignore_patterns("cells"))
    output.mkdir()
    for name in ("build", "models"):
        (output / name).symlink_to(root / name)
    if case == "another user":
        if os.getuid() or any(not path.stat().st_mode & 0o5 for path in (Path(sys.executable), *root.parents, root)):
            pytest.skip("only root can become another user, who must be able to read the project")
        options = nobody(environment, output)
    command = [
        sys.executable, "-m", "explainbench.cli", "--profile", "smoke", "--root", str(root), "--output", str(output),
        "evaluate", "--workers", "1", "--no-publish",
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True, cwd=output, **({"env": environment} | options))
    assert (output / "cells.lock.json").read_bytes() == finished.lock.read_bytes()
    assert len(list(CellStore(output / "cells"))) == len(read_lock(finished.lock))
