"""Breaks runs in every way we could think of and prints what became of the results: `python tests/faults/run.py`.

Every scenario starts from a tiny project (simulated data, one fitted transformer, 8 cells) in a temporary folder.
A kill is followed by a start of the same command on the same folder, until one start reaches the end; then the cells,
the lock and the runs must be those of an undisturbed run, byte for byte. Prints one line per scenario; exit code 1 when
one of them lost, duplicated or changed anything.
"""

import argparse
import json
import os
import random
import resource
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import tiny
from children import Child, finished

from explainbench.core.errors import ExplainBenchError, Unavailable
from explainbench.core.workspace import Workspace
from explainbench.store import CellStore, first_problem, read_lock

ENVIRONMENT = {"DVC_NO_ANALYTICS": "1", "DO_NOT_TRACK": "1", "MLFLOW_DISABLE_TELEMETRY": "true", "OMP_NUM_THREADS": "1"}
NOBODY = 65534


@dataclass
class Bench:
    """The tiny project, an undisturbed run of it, and an empty tracking database."""

    project: tiny.Project
    reference: Workspace
    database: Path
    folder: Path
    rng: random.Random
    count: int = 0

    def fresh(self, *, cells: bool = False) -> Workspace:
        """A new output folder, with the finished cells where asked for."""
        self.count += 1
        workspace = self.project.output(self.folder / f"run-{self.count}")
        if cells:
            shutil.copytree(self.reference.cells, workspace.cells)
            shutil.copy(self.reference.lock, workspace.lock)
            shutil.copy(self.database, workspace.output / "mlflow.db")
        return workspace

    def evaluate(self, workspace: Workspace, workers: int = 1) -> None:
        """The stage `evaluate`; raises RuntimeError when a cell failed."""
        from explainbench.stages.evaluate import evaluate

        summary = evaluate(workspace, self.project.params, workers, lambda plan: None, lambda outcome: None)
        if summary.failed:
            raise RuntimeError(summary.failed[0].reason)

    def publish(self, workspace: Workspace) -> None:
        """The stage `publish`."""
        from mlflow_plugins.publish import publish_workspace

        publish_workspace(workspace, self.project.params.statistics)


@dataclass
class Row:
    """A line of the table."""

    scenario: str
    events: int = 0
    whole: int = 0  # runs that reached the end and were compared with the undisturbed one
    problems: list[str] = field(default_factory=list)
    note: str = ""

    def __str__(self) -> str:
        verdict = "ok" if not self.problems else f"{len(self.problems)} PROBLEMS: {self.problems[0]}"
        return f"{self.scenario:34} {self.events:6} {self.whole:9}  {verdict}{f' ({self.note})' if self.note else ''}"


@contextmanager
def bench(seed: int = 0) -> Iterator[Bench]:
    """Build the tiny project, score it undisturbed, create an empty tracking database."""
    from explainbench.stages import energy
    from mlflow_plugins._mlflow import library
    from mlflow_plugins.publish import Publisher

    library()  # imported once, before anything is forked
    energy.draw_cell = lambda stored, folder: []  # pictures take longer than these cells, and are part of no digest
    for name in ("DVC_ROOT", "MLFLOW_TRACKING_URI"):
        os.environ.pop(name, None)
    os.environ.update(ENVIRONMENT)
    with tempfile.TemporaryDirectory(prefix="explainbench-faults-") as folder:
        root = Path(folder) / "project"
        root.mkdir()
        project = tiny.build(root)
        reference = project.output(Path(folder) / "reference")
        made = Bench(project, reference, reference.output / "mlflow.db", Path(folder), random.Random(seed))
        made.evaluate(reference)
        if finished(lambda: _create_database(reference, Publisher)) != 0:
            raise SystemExit("no tracking database could be made")
        yield made


def _create_database(workspace: Workspace, publisher: Callable) -> None:
    with publisher(workspace) as opened:
        opened.open()
    with sqlite3.connect(workspace.output / "mlflow.db") as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


# --- what must hold ---------------------------------------------------------------------------------------------------


def torn(workspace: Workspace) -> list[str]:
    """What a reader would trip over at any moment: unreadable or wrong cells, a lock that is not one."""
    problems: list[str] = []
    store = CellStore(workspace.cells)
    for folder in store.folders():
        try:
            problem = first_problem(store.read(folder))
        except ExplainBenchError as error:
            problem = str(error)
        if problem is not None:
            problems.append(problem)
    try:
        read_lock(workspace.lock)
    except ExplainBenchError as error:
        problems.append(str(error))
    return problems


def different(workspace: Workspace, reference: Workspace) -> list[str]:
    """How a finished run's cells and lock differ from the undisturbed run's."""
    problems = torn(workspace)
    if not workspace.lock.is_file() or workspace.lock.read_bytes() != reference.lock.read_bytes():
        problems.append("cells.lock.json is not that of the undisturbed run")
    ours, theirs = ({path.name for path in side.cells.iterdir()} for side in (workspace, reference))
    problems += [f"{name} is only on one side" for name in ours ^ theirs]
    return problems


def wrong_runs(workspace: Workspace) -> list[str]:
    """What is lost or duplicated in the tracking database: one current, complete run per cell, with its files."""
    with sqlite3.connect(workspace.output / "mlflow.db") as connection:
        runs = connection.execute("SELECT run_uuid, status, artifact_uri FROM runs").fetchall()
        tags: dict[str, dict[str, str]] = {run[0]: {} for run in runs}
        for key, value, run in connection.execute("SELECT key, value, run_uuid FROM tags"):
            tags[run][key.removeprefix("explainbench.")] = value
    current = [run for run in runs if tags[run[0]].get("superseded") != "true"]
    problems = [f"run {run} is current but {status}" for run, status, _ in current if status != "FINISHED"]
    digests = sorted(tags[run[0]].get("record_sha256", "") for run in current)
    if digests != sorted(read_lock(workspace.lock).values()):
        problems.append(f"{len(current)} current runs for {len(read_lock(workspace.lock))} cells")
    for run, _, place in current:
        folder = Path(place.removeprefix("file://"))
        if not all((folder / name).is_file() for name in ("record.json", "scores.parquet", "explanations.npz")):
            problems.append(f"run {run} lacks files")
    return problems


# --- scenarios --------------------------------------------------------------------------------------------------------


def kill_again_and_again(
    row: Row,
    kills: int,
    start: Callable[[], Workspace],
    work: Callable[[Workspace], object],
    whole: Callable[[Workspace], list[str]],
    rng: random.Random,
) -> Row:
    """kill -9 at `kills` random moments, each followed by a start on what was left."""
    began = time.monotonic()
    workspace = start()
    if finished(lambda: work(workspace)) != 0:
        row.problems.append("the undisturbed run failed")
        return row
    span = time.monotonic() - began
    row.note = f"undisturbed {span:.1f} s"
    workspace = start()
    while row.events < kills:
        if Child(partial(work, workspace)).kill_after(rng.uniform(0.0, span)):
            row.events += 1
            row.problems += torn(workspace)
        else:
            row.whole += 1
            row.problems += whole(workspace)
            shutil.rmtree(workspace.output)
            workspace = start()
    if finished(lambda: work(workspace)) != 0:
        row.problems.append("the run after the last kill failed")
    row.whole += 1
    row.problems += whole(workspace)
    return row


def kill_evaluate(made: Bench, kills: int, workers: int = 1) -> Row:
    """kill -9 of `evaluate`, workers included."""
    return kill_again_and_again(
        Row(f"kill -9, evaluate, {workers} worker{'s' if workers > 1 else ''}"),
        kills,
        made.fresh,
        lambda workspace: made.evaluate(workspace, workers),
        lambda workspace: different(workspace, made.reference),
        made.rng,
    )


def kill_publish(made: Bench, kills: int) -> Row:
    """kill -9 of `publish`."""
    return kill_again_and_again(
        Row("kill -9, publish"),
        kills,
        lambda: made.fresh(cells=True),
        made.publish,
        lambda workspace: [*different(workspace, made.reference), *wrong_runs(workspace)],
        made.rng,
    )


def kill_repro(made: Bench, kills: int) -> Row:
    """kill -9 of `dvc repro`, with all it started."""
    dvc_lock: list[str] = []

    def repro(workspace: Workspace) -> None:
        command = [sys.executable, "-m", "dvc", "repro", "-q"]
        code = subprocess.run(command, cwd=workspace.root, check=False, env=os.environ | ENVIRONMENT).returncode
        if code:
            raise RuntimeError(f"dvc repro ended with {code}")

    def whole(workspace: Workspace) -> list[str]:
        dvc_lock.append((workspace.root / "dvc.lock").read_text())
        same = dvc_lock[-1] == dvc_lock[0]
        return [*different(workspace, made.reference), *([] if same else ["dvc.lock is not that of the first run"])]

    return kill_again_and_again(
        Row("kill -9, dvc repro"), kills, lambda: dvc_project(made, publish=False), repro, whole, made.rng
    )


def dvc_project(made: Bench, *, publish: bool) -> Workspace:
    """The tiny project under git and DVC, with one stage `evaluate`."""
    made.count += 1
    root = made.folder / f"dvc-{made.count}"
    shutil.copytree(made.project.workspace.root, root, ignore=shutil.ignore_patterns("cells"))
    flag = "" if publish else " --no-publish"
    (root / "dvc.yaml").write_text(
        "stages:\n  evaluate:\n"
        f"    cmd: {sys.executable} -m explainbench.cli --profile smoke evaluate --workers 1{flag}\n"
        "    deps: [build/windows, models]\n    params: [seed, runs]\n"
        "    outs:\n      - cells: {persist: true}\n      - cells.lock.json: {cache: false}\n"
    )
    shutil.copy(tiny.ROOT / ".dvcignore", root)
    (root / ".gitignore").write_text("build/\nmodels/\n/data\n/cells\nmlflow.db*\n")
    for command in (
        ["git", "init", "-q"],
        [sys.executable, "-m", "dvc", "init", "-q"],
        [sys.executable, "-m", "dvc", "add", "-q", "data"],
    ):
        subprocess.run(command, cwd=root, check=True)
    return Workspace(root, root)


def disk_full(made: Bench) -> Row:
    """No file may grow beyond 4 kB, then 40 kB: the kernel refuses in the middle of a write."""
    row = Row("disk full")
    for limit in (4_000, 40_000):
        workspace = made.fresh()

        def work(workspace: Workspace = workspace, limit: int = limit) -> None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            try:
                made.evaluate(workspace)
            except (RuntimeError, Unavailable) as error:
                os._exit(3 if "could not be written" in str(error) else 4)

        row.events += 1
        code = finished(work)
        if code != 3 and (code, limit) != (0, 40_000):  # where every file is smaller, nothing is refused
            row.problems.append(f"limit {limit}: exit code {code}, no sentence about the file that was not written")
        row.problems += torn(workspace)
        _recovers(made, row, workspace)
    return row


def read_only(made: Bench) -> Row:
    """A folder that another user owns."""
    row = Row("read-only folder", events=1)
    workspace = made.fresh()
    if os.getuid():
        workspace.output.chmod(0o555)

    def work() -> None:
        if not os.getuid():
            os.setuid(NOBODY)  # root may write anywhere
        try:
            made.evaluate(workspace)
        except (RuntimeError, Unavailable, PermissionError) as error:
            os._exit(3 if isinstance(error, Unavailable) else 4)

    made.folder.chmod(0o755)
    if finished(work) != 3:
        row.problems.append("no sentence about the folder that cannot be written")
    workspace.output.chmod(0o755)
    _recovers(made, row, workspace)
    return row


def two_runners(made: Bench) -> Row:
    """Two `evaluate` on one store at once: one of them works, the other is told to wait."""
    row = Row("two runners on one store", events=1)
    workspace = made.fresh()

    def work() -> None:
        try:
            made.evaluate(workspace)
        except Unavailable:
            os._exit(3)

    children = [Child(work), Child(work)]
    codes = sorted(child.wait() or 0 for child in children)
    if codes != [0, 3]:
        row.problems.append(f"exit codes {codes}, not one that worked and one that was refused")
    row.problems += different(workspace, made.reference)
    row.whole += 1
    return row


def corrupted_store(made: Bench) -> Row:
    """A byte flipped, a file cut, a file gone, in random cells."""
    row = Row("corrupted cell store")
    for _ in range(6):
        workspace = made.fresh(cells=True)
        path = made.rng.choice(sorted(path for path in workspace.cells.glob("*/*") if path.name != "measured.json"))
        content = bytearray(path.read_bytes())
        match row.events % 3:
            case 0:
                content[made.rng.randrange(len(content))] ^= 1 << made.rng.randrange(8)
                path.write_bytes(content)
            case 1:
                path.write_bytes(content[: len(content) // 2])
            case _:
                path.unlink()
        row.events += 1
        if not torn(workspace):
            row.problems.append(f"{path.name} altered and nobody noticed")
        _recovers(made, row, workspace)
    return row


def corrupted_database(made: Bench) -> Row:
    """mlflow.db overwritten in part and in whole: said, and rebuilt from the cells."""
    row = Row("corrupted SQLite file")
    for whole in (False, True):
        workspace = made.fresh(cells=True)
        database = workspace.output / "mlflow.db"
        content = bytearray(database.read_bytes())
        content[0 if whole else 4096 : None if whole else 8192] = b"\xff" * (len(content) if whole else 4096)
        database.write_bytes(content)
        row.events += 1

        def work(workspace: Workspace = workspace) -> None:
            try:
                made.publish(workspace)
            except Unavailable:
                os._exit(3)

        code = finished(work)
        if code not in (0, 3):
            row.problems.append(f"publish ended with {code} and no sentence")
        database.unlink()
        shutil.copy(made.database, database)
        if finished(lambda workspace=workspace: made.publish(workspace)) != 0:
            row.problems.append("publish into a new database failed")
        row.whole += 1
        row.problems += [*different(workspace, made.reference), *wrong_runs(workspace)]
    return row


def clock_backwards(made: Bench) -> Row:
    """time.time() falls by an hour at every call, in evaluate and in publish."""
    row = Row("clock going backwards", events=2)
    workspace = made.fresh()

    def backwards(work: Callable[[Workspace], None]) -> int | None:
        def child() -> None:
            now = iter(range(int(time.time()), 0, -3600))
            time.time = lambda: float(next(now))
            work(workspace)

        return finished(child)

    if backwards(made.evaluate) != 0:
        row.problems.append("evaluate failed")
    shutil.copy(made.database, workspace.output / "mlflow.db")
    for _ in range(2):  # the second one must find everything there
        if backwards(made.publish) != 0:
            row.problems.append("publish failed")
    row.whole += 1
    row.problems += [*different(workspace, made.reference), *wrong_runs(workspace)]
    return row


def server_dies(made: Bench) -> Row:
    """An MLflow server killed while cells are being published, started again, published again."""
    row = Row("tracking server dies half-way", events=1)
    workspace = made.fresh(cells=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1",
        "--backend-store-uri", f"sqlite:///{workspace.output}/mlflow.db",
        "--artifacts-destination", str(workspace.output / "mlartifacts"),
    ]  # fmt: skip
    environment = os.environ | ENVIRONMENT | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}

    def serve() -> subprocess.Popen:
        server = subprocess.Popen(command, env=environment, start_new_session=True, **quiet)
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return server
            time.sleep(0.2)
        raise SystemExit("the tracking server did not start")

    with sqlite3.connect(workspace.output / "mlflow.db") as connection:
        connection.execute("DELETE FROM experiments WHERE name LIKE 'explainbench-%'")  # the server makes its own

    def work() -> None:
        os.environ["MLFLOW_TRACKING_URI"] = f"http://127.0.0.1:{port}"
        try:
            made.publish(workspace)
        except Unavailable:
            os._exit(3)

    def count() -> int:
        with sqlite3.connect(workspace.output / "mlflow.db", timeout=30) as connection:
            return connection.execute("SELECT COUNT(*) FROM runs").fetchone()[0]

    server = serve()
    child = Child(work)
    while count() < 3 and child.wait(0.02) is None:
        pass
    os.killpg(server.pid, signal.SIGKILL)
    server.wait()
    code = child.wait()
    if code != 3:
        row.problems.append(f"publish ended with {code}, not with a sentence about the server")
    row.problems += different(workspace, made.reference)
    server = serve()
    if finished(work) != 0:
        row.problems.append("publish after the restart failed")
    os.killpg(server.pid, signal.SIGTERM)
    server.wait()
    row.whole += 1
    with sqlite3.connect(workspace.output / "mlflow.db") as connection:
        tags = connection.execute("SELECT run_uuid, key, value FROM tags").fetchall()
    gone = {run for run, key, value in tags if key == "explainbench.superseded" and value == "true"}
    digests = sorted(v for run, key, v in tags if key == "explainbench.record_sha256" and run not in gone)
    if digests != sorted(read_lock(workspace.lock).values()):
        row.problems.append(f"{len(digests)} current runs after the restart")
    return row


def corrupted_dvc_cache(made: Bench) -> Row:
    """A data file's copy in DVC's cache altered: `dvc checkout` refuses it, and the manifest names the file."""
    from explainbench.core.errors import Corrupt
    from explainbench.data._manifest import verify_manifest

    row = Row("corrupted DVC cache", events=1)
    workspace = dvc_project(made, publish=False)
    series = next(path for path in sorted(workspace.data.rglob("*")) if path.suffix in (".csv", ".parquet"))
    cached = next(
        path
        for path in (workspace.root / ".dvc" / "cache").rglob("*")
        if path.is_file() and path.read_bytes() == series.read_bytes()
    )
    cached.chmod(0o644)
    content = bytearray(cached.read_bytes())
    content[-2] ^= 1
    cached.write_bytes(content)
    series.unlink()
    dvc = [sys.executable, "-m", "dvc"]
    code = subprocess.run([*dvc, "checkout", "-q", "--force", "data.dvc"], cwd=workspace.root, check=False).returncode
    try:
        verify_manifest(workspace.root)
        if series.is_file():
            row.problems.append("altered data passed the manifest")
    except Corrupt as error:
        row.note = f"dvc checkout ended with {code}; {str(error)[:60]}…"
    shutil.copytree(made.project.workspace.data, workspace.data, dirs_exist_ok=True)
    subprocess.run([*dvc, "commit", "-q", "--force", "data.dvc"], cwd=workspace.root, check=True)
    verify_manifest(workspace.root)
    row.whole += 1
    return row


def _recovers(made: Bench, row: Row, workspace: Workspace) -> None:
    if finished(lambda: made.evaluate(workspace)) != 0:
        row.problems.append("the run after the fault failed")
    row.whole += 1
    row.problems += different(workspace, made.reference)


def main() -> None:
    """Run the scenarios and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--kills", type=int, default=100, help="in all: three fifths evaluate, publish, one tenth repro"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", default=[""], help="scenarios whose name begins with one of these")
    parser.add_argument("--json", type=Path, help="write the table here too")
    chosen = parser.parse_args()
    kills = chosen.kills
    with bench(chosen.seed) as made:
        scenarios: dict[str, Callable[[], Row]] = {
            "kill evaluate 1": lambda: kill_evaluate(made, kills // 2),
            "kill evaluate 2": lambda: kill_evaluate(made, kills // 10, 2),
            "kill publish": lambda: kill_publish(made, kills - kills // 2 - 2 * (kills // 10)),
            "kill repro": lambda: kill_repro(made, kills // 10),
            "disk": lambda: disk_full(made),
            "folder": lambda: read_only(made),
            "runners": lambda: two_runners(made),
            "store": lambda: corrupted_store(made),
            "sqlite": lambda: corrupted_database(made),
            "cache": lambda: corrupted_dvc_cache(made),
            "clock": lambda: clock_backwards(made),
            "server": lambda: server_dies(made),
        }
        rows: list[Row] = []
        print(f"{'scenario':34} {'events':>6} {'compared':>9}  result", flush=True)
        for name, scenario in scenarios.items():
            if name.startswith(tuple(chosen.only)):
                rows.append(scenario())
                print(rows[-1], flush=True)
    if chosen.json is not None:
        chosen.json.write_text(json.dumps([vars(row) for row in rows], indent=1))
    sys.exit(any(row.problems for row in rows))


if __name__ == "__main__":
    main()
