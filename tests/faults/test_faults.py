"""A short version of `python tests/faults/run.py`: a few kills at random moments of a store that writes fast cells."""

import random
import resource
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from children import Child, finished

from explainbench.core.cell import Cell, CellResult, Score
from explainbench.core.errors import Unavailable
from explainbench.core.record import CellName, CellSpec, Measured
from explainbench.store import CellStore, Rows, first_problem, read_lock, write_lock

N = 12  # windows
METHODS = [f"method{number}" for number in range(10)]
MEASURED = Measured(
    seconds=0, model_seconds=0, peak_memory_mb=0, cpu="", cpu_capability="", torch="", threads=1, finished=""
)


def spec(method: str) -> CellSpec:
    """A cell's specification with nothing real behind it."""
    name = CellName(suite="energy", task="T1", model="lstm", method=method)
    return CellSpec(
        protocol="test", cell=name, seed=1, runs=1, parameters={}, dataset="none", dataset_sha256="0" * 64,
        windows_sha256="0" * 64, model_card_sha256="0" * 64, weights_sha256="0" * 64, weights_source="trained",
        method_card={}, sources={}, libraries={},
    )  # fmt: skip


def fill(root: Path) -> None:
    """What `evaluate` does with its store, for cells that cost nothing: those that are missing, then the lock."""
    store = CellStore(root / "cells")
    with store.one_runner():
        done = {}
        for method in METHODS:
            cell = Cell("energy", "T1", "lstm", method)
            values = cell.rng(1, "explain").standard_normal(N)
            rows = Rows(np.arange(N).astype(str), np.repeat("peak", N))
            arrays = {"importance": cell.rng(1, "importance").standard_normal((N, 2000))}
            try:
                stored = store.find(cell, _id(method))
            except Exception:  # noqa: BLE001, a cell that cannot be read is computed again
                stored = None
            if stored is None:
                result = CellResult(cell, {"stability": Score(values)}, {})
                stored = store.write(spec(method), result, rows, arrays, {"seed": 1}, ("g",), (1.0, 0.0), {}, MEASURED)
            done[stored.record.cell_id] = stored.digest
        store.prune({store.folder(Cell("energy", "T1", "lstm", m), _id(m)) for m in METHODS}, "energy.")
        write_lock(root / "cells.lock.json", done)


def _id(method: str) -> str:
    from explainbench.core.provenance import sha256_json

    return sha256_json(spec(method).model_dump(mode="json"))


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    root = tmp_path_factory.mktemp("faults") / "reference"
    fill(root)
    return root


def whole(root: Path, reference: Path) -> None:
    """Nothing lost, nothing twice, nothing left over, same bytes."""
    assert read_lock(root / "cells.lock.json") == read_lock(reference / "cells.lock.json")
    ours, theirs = ({path.name for path in (side / "cells").iterdir()} for side in (root, reference))
    assert ours == theirs
    assert all(first_problem(stored) is None for stored in CellStore(root / "cells"))


def test_kill_nine_at_random_moments_loses_and_doubles_nothing(tmp_path, reference):
    rng = random.Random(0)
    kills = 0
    for number in range(12):
        root = tmp_path / str(number)
        kills += Child(lambda root=root: fill(root)).kill_after(rng.uniform(0, 0.25))
        if root.is_dir():
            assert all(first_problem(stored) is None for stored in CellStore(root / "cells"))  # what is there is whole
        assert finished(lambda root=root: fill(root)) == 0
        whole(root, reference)
    assert kills >= 3


def test_a_full_disk_is_said_and_nothing_torn_is_kept(tmp_path, reference):
    def work() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))
        with pytest.raises(Unavailable, match="could not be written"):
            fill(tmp_path)

    assert finished(work) == 0
    assert not (tmp_path / "cells").exists()
    fill(tmp_path)
    whole(tmp_path, reference)


def test_a_second_runner_on_one_store_is_refused(tmp_path, reference):
    store = CellStore(tmp_path / "cells")
    with store.one_runner():
        code = "import sys; from pathlib import Path; from explainbench.store import CellStore\n"
        code += "with CellStore(Path(sys.argv[1])).one_runner(): pass"
        command = [sys.executable, "-c", code, str(store.root)]
        other = subprocess.run(command, capture_output=True, text=True, check=False)
        assert other.returncode == 1
        assert "another process is computing cells" in other.stderr
    fill(tmp_path)  # free again
    whole(tmp_path, reference)


@pytest.mark.slow
def test_the_faults_script_finds_nothing_broken():
    script = Path(__file__).parent / "run.py"
    done = subprocess.run([sys.executable, str(script), "--kills", "10"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
