"""The HTML report into the tracking store: one run per state of the file, found by the digest of its bytes."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from explainbench.core.provenance import sha256_file
from explainbench.core.record import SCHEMA
from explainbench.core.workspace import Workspace
from mlflow_plugins._checkout import read_checkout
from mlflow_plugins._mlflow import MARKER
from mlflow_plugins.publish import PREFIX, open_experiment, workspace_name

FILE = "report.html"
NOTE = "The report of a whole run, one self-contained HTML file: open the artifact `report.html`.\n"


def publish_report(workspace: Workspace) -> int:
    """Log results/report.html where the store does not hold these bytes yet; returns how many runs were written.

    Runs of earlier states of the file are tagged as superseded. Raises Unavailable.
    """
    path = workspace.results / FILE
    if not path.is_file():
        return 0
    store, name = open_experiment(workspace, "energy"), workspace_name(workspace)
    digest = sha256_file(path)
    there = False
    asked = [MARKER, f"{PREFIX}report_sha256", f"{PREFIX}superseded"]
    for row in store.rows(f"tags.{PREFIX}kind = 'report' and tags.{PREFIX}workspace = '{name}'", asked):
        current = row.complete and not there and row.tags.get(f"{PREFIX}report_sha256") == digest
        there = there or current
        if current == (row.tags.get(f"{PREFIX}superseded") == "true"):
            store.set_tag(row.run_id, f"{PREFIX}superseded", str(not current).lower())
    if there:
        return 0
    tags = {
        **read_checkout(workspace.root).tags(),
        f"{PREFIX}kind": "report",
        f"{PREFIX}schema": str(SCHEMA),
        f"{PREFIX}workspace": name,
        f"{PREFIX}report_sha256": digest,
        f"{PREFIX}superseded": "false",
        "mlflow.note.content": NOTE,
    }
    with tempfile.TemporaryDirectory(prefix="explainbench-") as temporary:
        shutil.copyfile(path, Path(temporary) / FILE)
        store.write("report", tags, {"report_sha256": digest}, {}, (), Path(temporary))
    return 1
