"""Audit, MLflow: a run's tags, params, metrics and files against what follows from the cell, and against its seal."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from explainbench.core.cell import Cell
from explainbench.core.errors import BadInput, Corrupt, Unavailable
from explainbench.core.params import StatisticsParams
from explainbench.core.provenance import sha256_file
from explainbench.store import DETERMINISTIC, MEASURED, RECORD, StoredCell
from mlflow_plugins import _seal
from mlflow_plugins._chain import Link, same
from mlflow_plugins._mlflow import MARKER, MAX_DIGEST, Store, complete, open_store
from mlflow_plugins._site import Site
from mlflow_plugins.publish import PREFIX, experiment_name, headline, parameters, record_tags, run_name

if TYPE_CHECKING:
    from mlflow.entities import Run

TIMED = "measured/"  # metrics that follow from measured.json alone


@dataclass(slots=True)
class Runs:
    """The runs of one experiment that may be a cell's, or why they cannot be had."""

    store: Store | None
    problem: str = ""
    by_cell: dict[str, list[Run]] = field(default_factory=dict)  # by cell id
    by_name: dict[str, list[Run]] = field(default_factory=dict)  # by `model·method·task`, or by a board's name
    whole: bool = False  # all runs of the experiment are here


def runs_of(site: Site, suite: str) -> Runs:
    """The suite's experiment, with all its runs when many cells are audited."""

    def look() -> Runs:
        if site.bundle:
            return Runs(None, "a bundle carries no tracking store")
        try:
            store = open_store(site.workspace.tracking_uri, experiment_name(suite))
            if store is None:
                return Runs(None, "nothing was published yet; run `explainbench publish`")
            found = Runs(store, whole=site.many)
            for run in store.runs() if site.many else ():
                found.by_cell.setdefault(run.data.tags.get(f"{PREFIX}cell_id", ""), []).append(run)
                for name in {run.info.run_name or "", run.data.tags.get(f"{PREFIX}board", "")}:
                    found.by_name.setdefault(name, []).append(run)
            return found
        except Unavailable as error:
            return Runs(None, str(error))

    return site.once(("runs", suite), look)


def find_run(runs: Runs, cell: Cell, cell_id: str, digest: str) -> tuple[Run | None, str]:
    """The run of a cell and else why there is none: by its id, else by its name, so that altered runs are found too."""
    if runs.store is None:
        return None, runs.problem
    name = f"{cell.model}·{cell.method}·{cell.task}"
    try:
        if runs.whole:
            found = runs.by_cell.get(cell_id) or runs.by_name.get(name, [])
        else:
            found = list(runs.store.runs(f"tags.{PREFIX}cell_id = '{cell_id}'")) or list(
                runs.store.runs(f"attributes.run_name = '{name}'")
            )
    except Unavailable as error:
        return None, str(error)

    def preference(run: Run) -> tuple[bool, bool, bool, int]:
        tags = run.data.tags
        its = digest in (tags.get(f"{PREFIX}record_sha256"), run.data.params.get("record_sha256"))
        current = tags.get(f"{PREFIX}superseded") != "true"
        return its and (current or complete(run)), current, complete(run), run.info.start_time or 0

    best = max(found, key=preference, default=None)
    if best is None or not any(preference(best)[:2]):
        return None, "no finished run of this cell is in the tracking store; run `explainbench publish`"
    return best, ""


def run_links(site: Site, store: Store, run: Run, stored: StoredCell | None) -> Iterator[Link]:
    """Everything of a run that follows from its cell, then what only its seal knows."""
    tags = run.data.tags
    superseded = tags.get(f"{PREFIX}superseded") == "true"
    yield Link("run", run.info.run_id, run.info.run_id, True, "superseded by a later one" if superseded else "found")
    if stored is None:
        return
    derived = [*_state_links(site, run, stored)]
    derived += compared("tag", "run tags", record_tags(stored), tags, "the record")
    statistics = _statistics(run)
    derived += compared("param", "run params", parameters(stored, statistics), run.data.params, "the record")
    derived += _metric_links(store, run, stored, statistics)
    derived += _artifact_links(store, run, stored)
    derived += _dataset_links(run, stored)
    yield from derived
    yield from seal_links(store, run, {link.name for link in derived if link.ok is False})
    yield from _measured_links(store, run, stored)


def _state_links(site: Site, run: Run, stored: StoredCell) -> Iterator[Link]:
    """Name, completeness, and whether the run is current: it is when cells.lock.json holds its record."""
    yield same("run name", run_name(stored.record), run.info.run_name or "", "", "renamed in MLflow")
    cause = "logging was interrupted, or the run was altered; run `explainbench publish`"
    yield same("run status", "FINISHED", run.info.status, "", cause)
    yield same(f"run tag {MARKER}", "true", run.data.tags.get(MARKER, "missing"), "", cause)
    found = run.data.tags.get(f"{PREFIX}superseded", "missing")
    current = site.lock.get(stored.record.cell_id) == stored.digest
    if current or found not in ("true", "false"):
        cause = "the tag does not follow from cells.lock.json; run `explainbench publish`"
        yield same(f"run tag {PREFIX}superseded", str(not current).lower(), found, "", cause)


def compared(
    kind: str, title: str, expected: Mapping[str, str], found: Mapping[str, str], source: str
) -> Iterator[Link]:
    """Each expected value beside the one found; one link for all where they agree."""
    wrong = [key for key, value in expected.items() if found.get(key) != value]
    for key in wrong:
        cause = f"does not follow from {source}: edited in MLflow, or published by another version"
        yield Link(f"run {kind} {key}", expected[key], found.get(key, "missing"), False, cause)
    if not wrong:
        yield Link(title, "", "", True, f"{len(expected)} follow from {source}")


def _metric_links(store: Store, run: Run, stored: StoredCell, statistics: StatisticsParams) -> Iterator[Link]:
    try:
        expected = headline(stored, statistics)
    except (BadInput, Corrupt) as error:
        yield Link("run metrics", "", "", None, f"the scores cannot be read: {error}")
        return
    found = {key: value for key, value in run.data.metrics.items() if not key.startswith(TIMED)}
    wrong = False
    for key in sorted(expected.keys() | found.keys()):
        wanted, got = (repr(side[key]) if key in side else "missing" for side in (expected, found))
        if key in expected and key in found and math.isclose(expected[key], found[key], rel_tol=1e-9, abs_tol=1e-12):
            continue
        wrong = True
        yield Link(f"run metric {key}", wanted, got, False, "does not follow from scores.parquet: edited in MLflow")
    if not wrong:
        yield Link("run metrics", "", "", True, f"{len(expected)} follow from scores.parquet")
    yield from history_links(store, run)


def history_links(store: Store, run: Run) -> Iterator[Link]:
    """Every metric was logged once, and the value that MLflow shows is the one that was logged."""
    history = store.history(run.info.run_id)
    for key, values in sorted((history or {}).items()):
        shown = run.data.metrics.get(key)
        if shown is not None and values != [shown]:
            cause = "logged again after the run, or edited in one of MLflow's two tables of metrics"
            yield Link(f"run metric {key}", repr(shown), ", ".join(map(repr, values)), False, cause)


def _artifact_links(store: Store, run: Run, stored: StoredCell) -> Iterator[Link]:
    files = {RECORD: stored.digest, **{name: stored.record.artifacts.get(name, "") for name in DETERMINISTIC}}
    wrong = False
    for name, digest in files.items():
        path = store.artifact(run, name)
        found = "missing" if path is None else sha256_file(path)
        if found != digest:
            wrong = True
            yield Link(f"run artifact {name}", digest, found, False, "the run's file was altered or removed")
    if not wrong:
        yield Link("run artifacts", "", "", True, f"{len(files)} files have the digests of the record")


def _dataset_links(run: Run, stored: StoredCell) -> Iterator[Link]:
    """The dataset input: its name and digest, and the SHA-256 in its source, are those of the record."""
    spec = stored.record.spec
    for item in run.inputs.dataset_inputs if run.inputs else []:
        try:
            source = str(json.loads(item.dataset.source).get("sha256"))
        except (ValueError, AttributeError):
            source = "unreadable"
        found = f"{item.dataset.name} {item.dataset.digest} {source}"
        expected = f"{spec.dataset} {spec.dataset_sha256[:MAX_DIGEST]} {spec.dataset_sha256}"
        yield same("run dataset", expected, found, "as in the record", "edited in MLflow")


def seal_links(store: Store, run: Run, named: Iterable[str] = ()) -> Iterator[Link]:
    """Tags, params, metrics, datasets and files against the seal that was logged with them.

    named: links that are broken already, so that nothing is named twice.
    """
    name = run.info.run_name or ""
    yield from compared("tag", "run name", {"mlflow.runName": name}, run.data.tags, "the run's name")
    path, tag = store.artifact(run, _seal.FILE), run.data.tags.get(_seal.TAG)
    if path is None and tag is None:
        yield Link("run seal", "", "", None, "logged before runs were sealed")
        return
    found = "missing" if path is None else sha256_file(path)
    cause = f"{_seal.FILE} of the run, or the tag {_seal.TAG}, was altered"
    yield same("run seal", tag or "missing", found, "", cause)
    try:
        sealed: dict[str, Any] = {} if path is None else dict(json.loads(path.read_bytes()))
    except (ValueError, TypeError):
        return
    # MLflow keeps one row per dataset and experiment, with the source of the first run: not a run's own
    sealed = {leaf: value for leaf, value in sealed.items() if not leaf.startswith("dataset ")}
    data = run.data
    now = _seal.leaves(name, _own(data.tags, sealed), data.params, data.metrics)
    for leaf in sealed:
        if leaf.startswith("artifact "):
            file = store.artifact(run, leaf.removeprefix("artifact "))
            now[leaf] = "missing" if file is None else sha256_file(file)
    done = {name.removeprefix("run ") for name in named}
    for leaf in sorted(sealed.keys() | now.keys()):
        expected, got = str(sealed.get(leaf, "missing")), now.get(leaf, "missing")
        if expected != got and leaf not in done:
            yield Link(f"run {leaf}", expected, got, False, "not what the run was sealed with: edited in MLflow")


def _own(tags: Mapping[str, str], sealed: Mapping[str, str]) -> dict[str, str]:
    """The tags that were sealed, and any of ours that was added since; what users and MLflow add is theirs."""
    ours = {key for key in tags if key.startswith(PREFIX) and key != MARKER}
    return {key: value for key, value in tags.items() if key in ours or f"tag {key}" in sealed}


def _measured_links(store: Store, run: Run, stored: StoredCell) -> Iterator[Link]:
    """Timings and pictures in cells/ beside the run's: outside every digest, so that a difference breaks nothing."""
    files = [stored.folder / MEASURED, *stored.figures()]
    for path in files:
        name = path.relative_to(stored.folder).as_posix()
        copy = store.artifact(run, name)
        if copy is not None and path.is_file() and path.read_bytes() != copy.read_bytes():
            detail = "not the run's: the cell was computed or drawn again since, or the file was altered"
            yield Link(f"{stored.folder.name}/{name}", sha256_file(copy), sha256_file(path), None, detail)


def _statistics(run: Run) -> StatisticsParams:
    params = run.data.params
    try:
        return StatisticsParams(
            bootstrap=int(params["statistics.bootstrap"]), confidence=float(params["statistics.confidence"])
        )
    except (KeyError, ValueError):
        return StatisticsParams()


def run_folder(store: Store, run: Run) -> Path | None:
    """Where a run's own copy of a cell lies, or None."""
    record = store.artifact(run, RECORD)
    return None if record is None else record.parent
