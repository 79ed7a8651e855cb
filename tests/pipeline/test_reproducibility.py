"""The reproducibility table of docs/lineage.md: same digests, whatever the run looks like from outside."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from faults import children

from explainbench.core.cell import Cell
from explainbench.core.workspace import Workspace
from explainbench.stages import energy
from explainbench.stages.evaluate import evaluate
from explainbench.store import CellStore, read_lock

NOBODY = 65534


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


@pytest.mark.slow
@pytest.mark.parametrize("case", ["hash seed", "locale and time zone", "another folder"])
def test_surroundings_do_not_matter(project, finished, tmp_path, case):
    root, output = project.workspace.root, tmp_path / "out"
    environment = dict(os.environ)
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
    command = [
        sys.executable, "-m", "explainbench.cli", "--profile", "smoke", "--root", str(root), "--output", str(output),
        "evaluate", "--workers", "1", "--no-publish",
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True, cwd=output, env=environment)
    assert (output / "cells.lock.json").read_bytes() == finished.lock.read_bytes()
    assert len(list(CellStore(output / "cells"))) == len(read_lock(finished.lock))


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_user_computes_the_same_bytes(project, finished):
    """In a child that has everything imported: the interpreter itself may lie where only root can read."""
    with TemporaryDirectory(prefix="explainbench-nobody-") as folder:  # pytest's own folders are closed to others
        place = Path(folder)
        place.chmod(0o755)
        shutil.copytree(project.workspace.root, place / "project", ignore=shutil.ignore_patterns("cells"))
        (place / "project").chmod(0o755)
        output = place / "out"
        output.mkdir()
        for name in ("build", "models"):
            (output / name).symlink_to(place / "project" / name)
        os.chown(output, NOBODY, NOBODY)

        def work():
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            lock_of(Workspace(place / "project", output), project.params)

        assert children.finished(work) == 0
        assert (output / "cells.lock.json").read_bytes() == finished.lock.read_bytes()
        assert (output / "cells.lock.json").stat().st_uid == NOBODY
