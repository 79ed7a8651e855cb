"""Files of results/ into the tracking store: one run per state of a document, found by the digest of its bytes."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from explainbench.core.files import read_json
from explainbench.core.record import SCHEMA
from explainbench.core.workspace import Workspace
from mlflow_plugins._checkout import read_checkout
from mlflow_plugins._mlflow import MARKER
from mlflow_plugins.publish import PREFIX, open_experiment, workspace_name


@dataclass(frozen=True, slots=True)
class Document:
    """kind: of the run and its name; files: of results/, the first of which must be there; note: what it is;
    metrics: numbers of the first file, for a document that has some."""

    kind: str
    files: tuple[str, ...]
    note: str
    metrics: Callable[[Mapping[str, Any]], dict[str, float]] | None = None


def context_means(document: Mapping[str, Any]) -> dict[str, float]:
    """`T1/act.ev_v2g` and so on: each index of task T3 in each context, the mean over the cells that have it."""
    found: dict[str, list[float]] = {}
    for task, content in document["tasks"].items():
        for row in content["rows"]:
            for index, value in row["values"].items():
                if value is not None:
                    found.setdefault(f"{task}/{index}.{row['context']}", []).append(value)
    return {name: float(np.mean(values)) for name, values in sorted(found.items())}


DOCUMENTS = (
    Document(
        "report",
        ("report.html",),
        "The report of a whole run, one self-contained HTML file: open the artifact `report.html`.\n",
    ),
    Document(
        "contexts",
        ("contexts.json", "contexts.png"),
        "Task T3: model and method fixed, deployment context varied. Metrics are means over the cells of a task.\n",
        context_means,
    ),
)


def publish_documents(workspace: Workspace) -> int:
    """Log each document whose bytes the store does not hold yet; returns how many runs were written.

    Runs of earlier states of a document are tagged as superseded. Raises Unavailable.
    """
    return sum(_publish(workspace, document) for document in DOCUMENTS)


def _publish(workspace: Workspace, document: Document) -> int:
    paths = [path for path in (workspace.results / name for name in document.files) if path.is_file()]
    if not paths or paths[0].name != document.files[0]:
        return 0
    store, name = open_experiment(workspace, "energy"), workspace_name(workspace)
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()
    key = f"{document.kind}_sha256"
    there = False
    asked = [MARKER, f"{PREFIX}{key}", f"{PREFIX}superseded"]
    for row in store.rows(f"tags.{PREFIX}kind = '{document.kind}' and tags.{PREFIX}workspace = '{name}'", asked):
        current = row.complete and not there and row.tags.get(f"{PREFIX}{key}") == digest
        there = there or current
        if current == (row.tags.get(f"{PREFIX}superseded") == "true"):
            store.set_tag(row.run_id, f"{PREFIX}superseded", str(not current).lower())
    if there:
        return 0
    tags = {
        **read_checkout(workspace.root).tags(),
        f"{PREFIX}kind": document.kind,
        f"{PREFIX}schema": str(SCHEMA),
        f"{PREFIX}workspace": name,
        f"{PREFIX}{key}": digest,
        f"{PREFIX}superseded": "false",
        "mlflow.note.content": document.note,
    }
    metrics = document.metrics(read_json(paths[0])) if document.metrics else {}
    with tempfile.TemporaryDirectory(prefix="explainbench-") as temporary:
        for path in paths:
            shutil.copyfile(path, Path(temporary) / path.name)
        store.write(document.kind, tags, {key: digest}, metrics, (), Path(temporary))
    return 1
