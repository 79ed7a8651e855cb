"""Where the pages' facts come from: the files of a project, and the tracking store of the server they are shown by."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from explainbench.core.errors import BadInput, Corrupt, ExplainBenchError
from explainbench.core.files import read_json
from explainbench.core.params import Params, StatisticsParams, load_params
from explainbench.core.provenance import sha256_json
from explainbench.core.workspace import Workspace
from explainbench.stages.suite import NAMES as SUITES
from explainbench.stages.suite import locked_cells
from explainbench.store import RECORD, CellStore, StoredCell, read_lock
from mlflow_plugins._mlflow import Store, complete, open_store, suites
from mlflow_plugins.app.boards import context_boards, normal
from mlflow_plugins.publish import PREFIX, boards_path, cell_name, experiment_name

if TYPE_CHECKING:
    from mlflow.entities import Run

CONTEXTS = "contexts.json"  # boards per deployment context


class NotFound(BadInput):
    """Nothing has the name that was asked for."""


class Forbidden(ExplainBenchError):
    """The user may not read the experiment."""


@dataclass(frozen=True, slots=True)
class Served(Workspace):
    """A project whose tracking store is that of the server, whatever the environment says."""

    uri: str

    @property
    def tracking_uri(self) -> str:
        """The server's own backend store."""
        return self.uri


@dataclass(frozen=True, slots=True)
class Boards:
    """The boards of one suite. source: where they were read; remarks: what a reader must know, in sentences."""

    suite: str
    source: str
    boards: tuple[Mapping[str, Any], ...] = ()
    remarks: tuple[str, ...] = ()
    banner: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """A cell: its files, and its run in the tracking store where there is one. remark: why there is none."""

    stored: StoredCell
    run: Run | None
    remark: str = ""


@dataclass(frozen=True, slots=True)
class Source:
    """One server's view. may_read: whether the present user may read an experiment, given by its id."""

    workspace: Workspace | None
    uri: str
    may_read: Callable[[str], bool]
    params: Params | None = None

    @classmethod
    def here(cls, uri: str | None, may_read: Callable[[str], bool]) -> Source:
        """The project that the server was started in, if it was started in one, and the server's tracking store.

        EXPLAINBENCH_ROOT and EXPLAINBENCH_OUTPUT name another project folder and another output folder.
        """
        root, output = (os.environ.get(f"EXPLAINBENCH_{name}") for name in ("ROOT", "OUTPUT"))
        try:
            found = Workspace.find(Path(root) if root else None, Path(output) if output else None)
        except BadInput:
            return cls(None, uri or "", may_read)
        try:
            params = load_params(found.params)
        except BadInput:
            params = None  # the pages show what was made with other parameters; intervals then use the defaults
        uri = uri or found.tracking_uri
        return cls(Served(found.root, found.output, uri), uri, may_read, params)

    @property
    def statistics(self) -> StatisticsParams:
        """Bootstrap and confidence of the project, else the defaults."""
        return self.params.statistics if self.params else StatisticsParams()

    def suites(self) -> list[str]:
        """Suites that have boards here and that the user may read, the main one first."""
        prefix = experiment_name("")
        published = [name.removeprefix(prefix) for name in suites(self.uri, prefix)]
        there = [suite for suite in SUITES if self._file(suite)] + published
        ordered = [suite for suite in SUITES if suite in there] + sorted(set(there) - set(SUITES))
        return [suite for suite in ordered if self.readable(suite)]

    def readable(self, suite: str) -> bool:
        """Whether the user may read the experiment of a suite; without one only who may read all experiments."""
        store = self.store(suite)
        return self.may_read(store.experiment_id if store else "")

    def check(self, suite: str) -> None:
        """Raises Forbidden when the user may not read the suite's experiment."""
        if not self.readable(suite):
            raise Forbidden(f"you may not read experiment {experiment_name(suite)!r}; ask its owner for permission.")

    def store(self, suite: str) -> Store | None:
        """The suite's experiment. Raises Unavailable."""
        return open_store(self.uri, experiment_name(suite)) if self.uri else None

    def boards(self, suite: str) -> Boards:
        """The boards of a suite: from its file in the project, else from its board runs in the tracking store."""
        self.check(suite)
        path = self._file(suite)
        if path is not None:
            assert self.workspace is not None
            return _from_files(self.workspace, suite, path, _version(path), _version(self.workspace.results / CONTEXTS))
        store = self.store(suite)
        newest, _ = store.page(BOARD_RUNS, 1) if store else ([], None)
        if store is None or not newest:
            raise NotFound(
                f"there are no boards of suite {suite!r} here; run `explainbench publish`, then leaderboard."
            )
        return _from_store(self.uri, suite, store.version() or newest[0].info.run_id)

    def board(self, suite: str, name: str, protocol: str = "") -> Mapping[str, Any]:
        """One board by its name. Raises NotFound."""
        for board in self.boards(suite).boards:
            if board["name"] == name and protocol in ("", board["protocol"]):
                return board
        raise NotFound(f"suite {suite} has no board {name!r}.")

    def cell(self, what: str) -> Found:
        """A cell by its name, its id (or the beginning of it) or the id of its run. Raises NotFound, Forbidden."""
        text = what.strip()
        if not text:
            raise BadInput("give a cell: its name such as T1/lstm/shap, its id, or the id of its run.")
        folder = self._folder(text)
        if folder is None:
            return self._published(text)
        self.check(folder.name.split(".")[0])
        stored = CellStore(folder.parent).read(folder)
        run = self._run_of(stored)
        remark = "" if run else "no finished run of this cell is in the tracking store; run `explainbench publish`."
        return Found(stored, run, remark)

    def run(self, run_id: str) -> tuple[Run, Store]:
        """A run of any experiment the user may read. Raises NotFound, Forbidden."""
        store = next((found for suite in SUITES if (found := self.store(suite))), None)
        run = store.run(run_id.strip()) if store and run_id.strip() else None
        if store is None or run is None:
            raise NotFound(f"nothing here is called {run_id.strip()[:80]!r}: no cell, no cell id, no run.")
        if not self.may_read(run.info.experiment_id):
            raise Forbidden(f"you may not read the experiment of run {run.info.run_id}; ask its owner for permission.")
        if run.info.lifecycle_stage == "deleted":
            raise NotFound(f"run {run.info.run_id} was deleted in MLflow; restore it there to see it.")
        return run, store

    def names(self, suite: str = "energy") -> list[str]:
        """Names of the cells in the project's folder, for the lists that forms suggest."""
        if self.workspace is None or not self.readable(suite):
            return []
        folders = CellStore(self.workspace.cells).folders()
        return ["/".join(folder.name.split(".")[1:-1]) for folder in folders if folder.name.startswith(f"{suite}.")]

    def _file(self, suite: str) -> Path | None:
        if self.workspace is None or suite not in SUITES:
            return None
        path = boards_path(self.workspace, suite)
        return path if path.is_file() else None

    def _folder(self, text: str) -> Path | None:
        """The folder in cells/ that a name or an id means; of several the one in cells.lock.json."""
        if self.workspace is None:
            return None
        folders = CellStore(self.workspace.cells).folders()
        name = _full_name(text)
        if name is not None:
            found = [folder for folder in folders if folder.name.rsplit(".", 1)[0] == name.replace("/", ".")]
        else:
            start = text.lower()[:16]
            found = [folder for folder in folders if len(start) >= 4 and folder.name.split(".")[-1].startswith(start)]
        if len(found) < 2:
            return found[0] if found else None
        locked = {cell_id[:16] for cell_id in read_lock(self.workspace.lock)}
        return next((folder for folder in found if folder.name.split(".")[-1] in locked), found[-1])

    def _published(self, text: str) -> Found:
        """A cell whose files only its run holds."""
        name = _full_name(text)
        if name is None:
            run, store = self.run(text)
        else:
            suite, task, model, method = name.split("/")
            self.check(suite)
            store = self.store(suite)
            query = f"{CURRENT} and {_tag('task', task)} and {_tag('model', model)} and {_tag('method', method)}"
            runs = [] if store is None or "'" in name else [run for run in store.page(query, 20)[0] if complete(run)]
            if store is None or not runs:
                raise NotFound(f"there is no cell {text[:120]!r}, neither in the project nor in the tracking store.")
            run = runs[0]
        if run.data.tags.get(f"{PREFIX}kind") != "cell":
            raise NotFound(f"run {run.info.run_id} is not the run of a cell.")
        record = store.artifact(run, RECORD)
        if record is None:
            raise NotFound(f"run {run.info.run_id} ({cell_name(run)}) has no {RECORD}; publish the cell again.")
        return Found(CellStore(record.parent.parent).read(record.parent), run)

    def _run_of(self, stored: StoredCell) -> Run | None:
        store = self.store(stored.cell.suite)
        if store is None:
            return None
        runs, _ = store.page(f"{CURRENT} and {_tag('cell_id', stored.record.cell_id)}", 20)
        runs = [run for run in runs if complete(run)]
        runs.sort(key=lambda run: run.data.tags.get(f"{PREFIX}record_sha256") != stored.digest)
        return runs[0] if runs else None


_last = itemgetter(1)


def _tag(name: str, value: str) -> str:
    return f"tags.{PREFIX}{name} = '{value}'"


CURRENT = f"{_tag('kind', 'cell')} and {_tag('superseded', 'false')}"
BOARD_RUNS = f"{_tag('kind', 'board')} and {_tag('superseded', 'false')}"


def _full_name(text: str) -> str | None:
    """`suite/task/model/method` from a cell's name with or without its suite, or from a run's name; else None."""
    parts = text.split("/")
    if len(parts) in (3, 4):
        return "/".join(parts[-4:] if len(parts) == 4 else ["energy", *parts])
    pieces = text.split("·")
    return f"energy/{pieces[2]}/{pieces[0]}/{pieces[1]}" if len(pieces) == 3 else None


def _version(path: Path) -> tuple[int, int] | None:
    """Changes when the file does."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size


@lru_cache(maxsize=16)
def _from_files(workspace: Workspace, suite: str, path: Path, version: object, contexts: object) -> Boards:
    """The boards of a suite's file in `results/`, and of contexts.json; read once per version of the two."""
    name = f"results/{path.name}"
    content = read_json(path)
    if not isinstance(content, dict) or not isinstance(content.get("boards"), list):
        return Boards(suite, name, remarks=(f"{name} holds no boards that can be shown; run its stage again.",))
    boards, remarks = [], []
    for index, board in enumerate(content["boards"]):
        try:
            boards.append(normal(board, suite, str(content.get("protocol", ""))))
        except (TypeError, KeyError, ValueError) as error:
            remarks.append(f"board {index + 1} of {name} is left out: it is not a board of this version ({error}).")
    if suite == "energy" and contexts is not None:
        try:
            boards += context_boards(read_json(workspace.results / CONTEXTS))
        except (ExplainBenchError, TypeError, KeyError, ValueError, AttributeError) as error:
            remarks.append(f"results/{CONTEXTS} is left out: it is not of this version ({error}).")
    flagged = content.get("flagged") or {}
    remarks += [f"not verified: {cell}: {reason}" for cell, reason in flagged.items()]
    remarks += [f"failed: {cell}: {reason}" for cell, reason in (content.get("failed") or {}).items()]
    for reason, cells in groupby(sorted((content.get("pending") or {}).items(), key=_last), key=_last):
        remarks.append(f"{len(list(cells))} cells are pending: {reason}")
    if content.get("missing"):
        remarks.append(f"{len(content['missing'])} cells are not in the tracking store; run `explainbench publish`.")
    inputs = content.get("inputs_sha256")
    if inputs is not None:
        try:
            lock = read_lock(workspace.lock)
            stale = inputs not in (sha256_json(lock), sha256_json(locked_cells(workspace)[suite]))
        except Corrupt:
            stale = True
        if stale:
            remarks.append(
                f"{name} was made from another cells.lock.json than the present one; run `explainbench leaderboard`."
            )
    return Boards(suite, name, tuple(boards), tuple(remarks), str(content.get("banner") or ""))


@lru_cache(maxsize=16)
def _from_store(uri: str, suite: str, version: str) -> Boards:
    """The boards that were published, read once per version of the store."""
    store = open_store(uri, experiment_name(suite))
    assert store is not None
    best: dict[tuple[str, str], Mapping[str, Any]] = {}
    remarks: list[str] = []
    cut_off = 0
    for run in sorted(store.runs(BOARD_RUNS), key=lambda run: run.info.start_time):
        if not complete(run):
            cut_off += 1
            continue
        path = store.artifact(run, "board.json")
        try:
            if path is None:
                raise Corrupt("it has no board.json")
            board = normal(read_json(path), suite, "")
        except (ExplainBenchError, TypeError, KeyError, ValueError) as error:
            remarks.append(f"the board of run {run.info.run_id} is left out: {error}")
            continue
        best[board["protocol"], board["name"]] = board
    if cut_off:
        remarks.append(f"{cut_off} board runs were not logged to their end and are left out; publish again.")
    protocols = sorted({protocol for protocol, _ in best})
    if len(protocols) > 1:
        remarks.append(
            f"the store holds boards of {len(protocols)} protocol versions, never mixed: {', '.join(protocols)}."
        )
    boards = tuple(best[key] for key in sorted(best))
    return Boards(suite, f"experiment {experiment_name(suite)}", boards, tuple(remarks))
