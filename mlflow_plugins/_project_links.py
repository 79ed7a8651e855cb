"""Audit, the project as a whole: lock and cells, committed files, what DVC recorded, and runs nobody vouches for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from explainbench.core.errors import BadInput
from explainbench.stages.suite import NAMES as SUITES
from explainbench.stages.suite import locked_cells
from explainbench.stages.verify import not_here
from explainbench.store import CellStore
from mlflow_plugins._board_links import file_links
from mlflow_plugins._chain import Link, guarded, in_part, same
from mlflow_plugins._checkout import git
from mlflow_plugins._mlflow import EXPERIMENT_TAGS, VIEW_TAG, Store, complete, view_made, view_tag
from mlflow_plugins._run_links import runs_of
from mlflow_plugins._site import Site, changes, directory_md5, file_md5, parsed
from mlflow_plugins.publish import PREFIX, description, view_columns, workspace_name

COMMITTED = (
    "params.yaml",
    "dvc.yaml",
    "dvc.lock",
    "data.dvc",
    "data.manifest.json",
    "cells.lock.json",
    "results",
    "suites",
)
CODE = ("explainbench", "mlflow_plugins")  # a changed source is named where a cell used it
MANY = {"matrix", "foreach"}  # keys of a stage of dvc.yaml that is many, each named `stage@item`
SHOWN = 4  # altered values that are named per file, and cells that are missing


def project_links(site: Site) -> list[Link]:
    """Everything that belongs to no single cell."""
    links = in_part("record", guarded("cells.lock.json", lambda: lock_links(site)))
    for suite in SUITES:
        links += in_part("board", guarded(f"boards of {suite}", lambda suite=suite: _suite_files(site, suite)))
        links += in_part("run", guarded(f"runs of {suite}", lambda suite=suite: current_run_links(site, suite)))
    links += in_part("dvc", guarded("dvc.lock", lambda: dvc_lock_links(site)))
    return links + in_part("git", guarded("committed files", lambda: committed_links(site)))


def lock_links(site: Site) -> Iterator[Link]:
    """cells.lock.json is written as this project writes it, and lists the cells that are there and no others."""
    path = site.workspace.lock
    content = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    written = json.dumps({"schema": 1, "cells": site.lock}, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    cause = f"{path.name} was edited by hand; restore it from git"
    yield same(path.name, _digest(written), _digest(content), f"{len(site.lock)} cells", cause)
    there = {folder.name.rsplit(".", 1)[-1] for folder in CellStore(site.workspace.cells).folders()}
    listed = {cell_id[:16] for cell_id in site.lock}
    absent = {} if site.bundle else not_here(site.workspace)
    for suite, cells in absent.items():
        cause = (
            f"none of its {cells} is here, so none is checked; `explainbench evaluate --suite {suite}` computes them"
        )
        yield Link(f"cells of {suite}", "", "", None, cause)
    suites = locked_cells(site.workspace)
    elsewhere = {cell_id[:16] for suite in absent for cell_id in suites[suite]}
    gone = [] if site.bundle else sorted(listed - there - elsewhere)
    cause = "its folder is gone or was renamed; run `explainbench evaluate`"
    for short in gone[:SHOWN]:
        yield Link(f"cell {short}", "a folder in cells/", "missing", False, cause)
    if len(gone) > SHOWN:
        yield Link("cells", f"{len(listed)} folders in cells/", f"{len(gone) - SHOWN} more missing", False, cause)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _suite_files(site: Site, suite: str) -> Iterator[Link]:
    document = site.boards(suite)
    if document is not None:
        yield from file_links(site, suite, document)


def current_run_links(site: Site, suite: str) -> Iterator[Link]:
    """No run of this project is shown as current whose record the lock does not hold."""
    runs = runs_of(site, suite)
    if runs.store is None:
        yield Link(f"runs of {suite}", "", "", None, runs.problem)
        return
    yield from _experiment_links(runs.store, suite)
    count = 0
    for run in (run for found in runs.by_cell.values() for run in found):
        tags = run.data.tags
        ours = tags.get(f"{PREFIX}workspace") == workspace_name(site.workspace) and complete(run)
        if tags.get(f"{PREFIX}kind") != "cell" or not ours or tags.get(f"{PREFIX}superseded") == "true":
            continue
        count += 1
        digest = tags.get(f"{PREFIX}record_sha256", "missing")
        if site.lock.get(tags.get(f"{PREFIX}cell_id", "")) != digest:
            cause = "its tags were edited, or the cell left the grid; run `explainbench publish`"
            yield Link(f"run {run.info.run_id}", "a record of cells.lock.json", digest, False, cause)
    yield Link(f"runs of {suite}", "", "", True, f"{count} current runs of cells")


def _experiment_links(store: Store, suite: str) -> Iterator[Link]:
    """The experiment's description and the saved view of its runs table."""
    tags, cause = store.experiment_tags(), "edited in MLflow; `explainbench publish` writes it again"
    for key, value in ({"mlflow.note.content": description(suite)} | EXPERIMENT_TAGS).items():
        yield same(f"experiment tag {key}", value, tags.get(key, "missing"), "", cause)
    view = tags.get(VIEW_TAG, "missing")
    yield same(f"experiment tag {VIEW_TAG}", view_tag(view_columns(suite), view_made(view)), view, "", cause)


def committed_links(site: Site) -> Iterator[Link]:
    """The small files that git holds, byte for byte; what of them is another than in the newest commit."""
    root = site.workspace.root
    if site.top is None or site.checkout.commit is None or site.workspace.output != root:
        yield Link("committed files", "", "", None, "the project is in no git repository, or nothing is committed")
        return
    names = (git(root, "ls-files", "--", *COMMITTED) or "").splitlines()
    settled = site.workspace.lock.is_file() and site.committed(site.workspace.lock) == site.workspace.lock.read_bytes()
    wrong = False
    for name in names:
        path, then = root / name, site.committed(root / name)
        now = path.read_bytes() if path.is_file() else None
        if then is None or now == then:
            continue
        wrong = True
        where, expected, found = _difference(path, then, now)
        if settled:
            cause = f"{where} is not what the commit holds that holds these cells; `git diff {name}`"
            yield Link(f"committed {name}", expected, found, False, cause)
        else:
            yield Link(f"committed {name}", expected, found, None, f"{where} is not committed yet")
    if not wrong:
        yield Link("committed files", "", "", True, f"{len(names)} files are those of {site.checkout.commit[:12]}")


def _difference(path: Path, then: bytes, now: bytes | None) -> tuple[str, str, str]:
    """(where, expected, found) of the first values that differ."""
    if now is None:
        return path.name, "a file", "missing"
    try:
        found = changes(parsed(path, then), parsed(path, now)) if path.suffix in (".yaml", ".json") else []
    except BadInput as error:
        return str(error), f"{len(then)} bytes", f"{len(now)} bytes"
    if not found:
        at = next((n for n, (a, b) in enumerate(zip(then, now)) if a != b), min(len(then), len(now)))
        return f"byte {at} of {path.name}", f"{len(then)} bytes", f"{len(now)} bytes"
    keys, expected, values = (", ".join(each) for each in zip(*found[:SHOWN], strict=True))
    return keys, expected, values


def dvc_lock_links(site: Site) -> Iterator[Link]:
    """What each stage read and wrote, by dvc.lock, against the files and params.yaml: DVC's status, all hashed anew."""
    root = site.workspace.root
    path = root / "dvc.lock"
    if not path.is_file() or site.workspace.output != root:
        yield Link("dvc.lock", "", "", None, "no dvc.lock beside the results")
        return
    stages = parsed(path, path.read_bytes())["stages"]
    pipeline = parsed(path, (root / "dvc.yaml").read_bytes())["stages"] if (root / "dvc.yaml").is_file() else {}
    params = parsed(path, site.workspace.params.read_bytes())
    ignored = _dvc_ignored(root)
    for name, stage in stages.items():
        if pipeline and not _in_pipeline(name, pipeline):
            yield Link(
                f"stage {name}", "", "", None, f"{path.name} still lists it, dvc.yaml has no such stage any more"
            )
            continue
        frozen = pipeline.get(name.split("@")[0], {}).get("frozen", False)
        links = [] if frozen else [*_stage_params(name, stage, params)]
        for kind in ("outs",) if frozen else ("deps", "outs"):
            for entry in stage.get(kind, ()):
                links += _stage_file(site, root, name, kind, entry, ignored)
        yield from links
        if all(link.ok is not False for link in links):
            yield Link(f"stage {name}", "", "", True, "params, inputs and outputs are those of dvc.lock")


def _in_pipeline(name: str, pipeline: dict[str, Any]) -> bool:
    base, _, item = name.partition("@")
    return base in pipeline and bool(item) == bool(MANY & pipeline[base].keys())


def _stage_params(name: str, stage: dict[str, Any], params: dict[str, Any]) -> Iterator[Link]:
    for key, value in stage.get("params", {}).get("params.yaml", {}).items():
        now: Any = params
        for part in key.split("."):
            now = now.get(part) if isinstance(now, dict) else None
        for where, expected, found in changes(value, now):
            cause = "params.yaml was changed after the stage ran; run `dvc repro`, or restore it"
            yield Link(f"stage {name}: {'.'.join(filter(None, (key, where)))}", expected, found, False, cause)


def _stage_file(
    site: Site, root: Path, name: str, kind: str, entry: dict[str, Any], ignored: Callable[[Path], bool]
) -> Iterator[Link]:
    path = root / entry["path"]

    def now() -> str:
        if path.is_dir():
            return directory_md5(path, ignored)
        return file_md5(path) if path.is_file() else "missing"

    found = site.once(("md5", path), now)
    if found == entry.get("md5"):
        return
    what = "output" if kind == "outs" else "input"
    if entry["path"].split("/")[0] in CODE:
        detail = "the code changed since the stage ran: DVC would run it again"
        yield Link(f"stage {name}: {what} {entry['path']}", str(entry.get("md5")), found, None, detail)
    else:
        cause = "altered after the stage ran, or written by another run; `dvc status`, `dvc checkout`"
        yield Link(f"stage {name}: {what} {entry['path']}", str(entry.get("md5")), found, False, cause)


def _dvc_ignored(root: Path) -> Callable[[Path], bool]:
    """Whether DVC leaves a file out of a folder's hash: names, and paths from the project's folder, of .dvcignore."""
    path = root / ".dvcignore"
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    patterns = [line.strip().rstrip("/") for line in lines if line.strip() and not line.startswith("#")]

    def ignored(file: Path) -> bool:
        parts = file.relative_to(root).parts
        begins = ["/".join(parts[:end]) for end in range(1, len(parts) + 1)]
        return any(any(fnmatch(one, pattern) for one in (begins if "/" in pattern else parts)) for pattern in patterns)

    return ignored
