"""Publishing 1,000 cells with their files: one writer, then four at once with the same cells.

    python benchmarks/publish_scale.py                          # SQLite, in a temporary folder
    python benchmarks/publish_scale.py --uri postgresql+psycopg2://...  # an empty database (ops/team/postgres.sh)
    python benchmarks/publish_scale.py --uri http://...         # a server; files go through its proxy

The cells are the project's own (`cells/`), repeated under other seeds: real files and sizes, each with its own id.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from itertools import count
from pathlib import Path

from explainbench.core.files import read_json, write_bytes
from explainbench.core.params import StatisticsParams
from explainbench.core.provenance import canonical_json, sha256_json
from explainbench.core.record import CellRecord
from explainbench.core.workspace import Workspace
from explainbench.store import RECORD, CellStore, write_lock
from mlflow_plugins._mlflow import open_store, suites
from mlflow_plugins.publish import PREFIX, Publisher, experiment_name, publish_cells


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--uri", help="tracking store; default: SQLite in a temporary folder")
    parser.add_argument("--cells", type=int, default=1000)
    parser.add_argument("--writers", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--from", dest="source", type=Path, default=Path("cells"), help="folder with cells to repeat")
    parser.add_argument("--as", dest="writer", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    root = Workspace.find().root
    if arguments.writer is not None:
        workspace = Workspace(root, arguments.writer)
        done = publish_cells(workspace, CellStore(workspace.cells), StatisticsParams(), whole=True)
        print(done.published, done.already, len(done.refused))
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        began = time.perf_counter()
        ids = repeat(arguments.source, folder / "cells", arguments.cells)
        size = sum(path.stat().st_size for path in (folder / "cells").rglob("*") if path.is_file())
        print(f"{len(ids)} cells, {size / 1e6:.0f} MB of files (made in {time.perf_counter() - began:.0f} s)")
        for writers in arguments.writers:
            uri = arguments.uri or f"sqlite:///{folder}/{writers}.db"
            run(root, folder, uri, writers, ids)


def repeat(source: Path, target: Path, wanted: int) -> dict[str, str]:
    """`wanted` cells in `target`, made of those in `source` under other seeds; {cell id: record digest}."""
    store = CellStore(source)
    ids: dict[str, str] = {}
    for seed in count(1):
        for folder in store.folders():
            if len(ids) == wanted:
                return ids
            record = read_json(folder / RECORD)
            record["spec"]["seed"] = 1_000_000 + seed
            record["cell_id"] = sha256_json(record["spec"])
            cell = CellRecord.model_validate(record).spec.cell.cell
            copied = CellStore(target).folder(cell, record["cell_id"])
            shutil.copytree(folder, copied)
            write_bytes(copied / RECORD, canonical_json(record) + b"\n")
            ids[record["cell_id"]] = CellStore(target).read(copied).digest
    raise AssertionError("unreachable")


def run(root: Path, folder: Path, uri: str, writers: int, ids: dict[str, str]) -> None:
    """Let `writers` processes publish all cells at once, each as a project of its own, and count the runs."""
    environment = os.environ | {"MLFLOW_TRACKING_URI": uri}
    os.environ["MLFLOW_TRACKING_URI"] = uri
    with Publisher(Workspace(root, folder)) as publisher:
        publisher.open()  # a fresh store is initialised once
    outputs = []
    for number in range(writers):
        outputs.append(folder / f"{writers}-{number}")
        outputs[-1].mkdir()
        (outputs[-1] / "cells").symlink_to(folder / "cells")
        write_lock(outputs[-1] / "cells.lock.json", ids)
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = [sys.executable, __file__, "--as"]
    started = [
        subprocess.Popen([*command, str(output)], env=environment, stdout=subprocess.PIPE, text=True)
        for output in outputs
    ]
    said = [[int(word) for word in one.communicate()[0].split()] for one in started]
    seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    stores = [open_store(uri, experiment) for experiment in suites(uri, experiment_name(""))]
    asked = f"tags.{PREFIX}kind = 'cell'", (f"{PREFIX}cell_id",)
    rows = [row for store in stores if store is not None for row in store.rows(*asked)]
    found = [row.tags[f"{PREFIX}cell_id"] for row in rows if row.status == "FINISHED"]
    lost, twice = len(set(ids) - set(found)), len(found) - len(set(found))
    print(
        f"{uri.split(':', 1)[0]}, {writers} writer(s): {seconds:.1f} s ({cpu:.1f} s CPU), "
        f"published {[one[0] for one in said]}, lost {lost}, twice {twice}, refused {sum(one[2] for one in said)}"
    )


if __name__ == "__main__":
    main()
