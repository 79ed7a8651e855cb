"""Audit: from a board, run or cell back to the data, every link hashed again, every disagreement named."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from explainbench.core.cell import Cell
from explainbench.core.errors import BadInput, Corrupt, ExplainBenchError, NotApplicable, Unavailable
from explainbench.core.params import Params
from explainbench.core.provenance import sha256_file
from explainbench.core.workspace import Workspace
from explainbench.stages.bundle import CHECKSUMS, checksum_problems, opened, read_crate
from explainbench.stages.suite import NAMES as SUITES
from explainbench.store import RECORD, CellStore, StoredCell
from mlflow_plugins._board_links import board_links, row_links
from mlflow_plugins._chain import Chain, Link, guarded, in_part, render, verdict
from mlflow_plugins._file_links import CHECKS, LAST_CHECKS, OTHER_CHECKS, STAGED, STAGED_CHECKS
from mlflow_plugins._mlflow import Store, open_store
from mlflow_plugins._project_links import project_links
from mlflow_plugins._run_links import find_run, run_folder, run_links, runs_of
from mlflow_plugins._site import Site, directory_md5
from mlflow_plugins.publish import PREFIX, experiment_name

if TYPE_CHECKING:
    from mlflow.entities import Run

__all__ = [
    "Chain", "Link", "Replayed", "audit", "audit_all", "audit_board", "audit_bundle", "cells_of", "directory_md5",
    "render", "verdict",
]  # fmt: skip


class Replayed(Protocol):
    """What recomputing a cell found (`explainbench.stages.replay.Replay`)."""

    @property
    def expected(self) -> str: ...
    @property
    def found(self) -> str: ...
    @property
    def detail(self) -> str: ...
    @property
    def holds(self) -> bool: ...


Recompute = Callable[[StoredCell], Replayed]


def audit(
    workspace: Workspace,
    what: str,
    recompute: Recompute | None = None,
    params: Params | None = None,
) -> Chain:
    """Check the whole chain behind a run id, a cell id (or its beginning) or a cell name such as `T1/lstm/shap`.

    Works without a tracking store; that link is then left unchecked, with the reason. `recompute` adds a replay;
    `params` are those of the command line, with its profile. Raises BadInput when nothing is found.
    """
    site = Site(workspace, params)
    return _chain(site, _resolve(workspace, what), recompute)


def audit_all(
    workspace: Workspace, recompute: Recompute | None = None, params: Params | None = None, bundle: bool = False
) -> Iterator[Chain]:
    """The project as a whole, every board, then every cell. bundle: the workspace is an unpacked export."""
    site = Site(workspace, params, bundle, many=True)
    yield Chain(str(workspace.output), "", None, tuple(guarded("project", lambda: project_links(site))))
    for suite in SUITES:
        yield from _boards(site, suite)
    for folder in CellStore(workspace.cells).folders():
        yield _chain(site, _of_folder(folder), recompute)


def audit_board(
    workspace: Workspace, name: str, recompute: Recompute | None = None, params: Params | None = None
) -> Iterator[Chain]:
    """A board such as `T1.EQI.F.cells` and the chain of every cell behind its rows. Raises BadInput."""
    site = Site(workspace, params, many=True)
    for suite in SUITES:
        board = next((one for one in (site.boards(suite) or {"boards": []})["boards"] if one["name"] == name), None)
        if board is None:
            continue
        yield Chain(f"board {name}", "", None, tuple(in_part("board", board_links(site, suite, board))))
        for cell in sorted({ref["cell"] for row in board["rows"] for ref in row["cells"]}):
            yield _chain(site, _resolve(workspace, cell), recompute)
        return
    raise BadInput(f"there is no board {name!r} in {workspace.results}.")


def is_board(workspace: Workspace, name: str) -> bool:
    """Whether a suite has a board of that name."""
    site = Site(workspace)
    return any(one["name"] == name for suite in SUITES for one in (site.boards(suite) or {"boards": []})["boards"])


def cells_of(workspace: Workspace, what: str) -> list[StoredCell]:
    """The stored cells behind a board, or the one behind a run id, a cell id or a cell name. Raises BadInput."""
    site, names = Site(workspace), [what]
    for suite in SUITES:
        for board in (site.boards(suite) or {"boards": []})["boards"]:
            if board["name"] == what:
                names = sorted({ref["cell"] for row in board["rows"] for ref in row["cells"]})
    subjects = [_resolve(workspace, name) for name in names]
    for subject in subjects:
        if subject.stored is None:
            raise BadInput(f"{subject.cell}: {subject.problem}")
    return [subject.stored for subject in subjects if subject.stored is not None]


def audit_bundle(path: Path, recompute: Callable[[Workspace], Recompute] | None = None) -> Iterator[Chain]:
    """A file of `explainbench export`, on its own: its checksums, its crate, then everything that is in it.

    Raises BadInput or Corrupt for a file that is no bundle or does not unpack safely.
    """
    with opened(path) as workspace:
        yield Chain(path.name, "", None, tuple(in_part("bundle", bundle_links(workspace.root))))
        chains = audit_all(workspace, None if recompute is None else recompute(workspace), None, bundle=True)
        yield replace(next(chains), cell=f"the project in {path.name}")  # not a temporary folder's name
        yield from chains


def bundle_links(folder: Path) -> Iterator[Link]:
    """Every file of an unpacked bundle against its list of checksums, and the crate's metadata against the same."""
    problems = checksum_problems(folder)
    for name, expected, found in problems:
        cause = f"{name} or {CHECKSUMS} was altered after the export; get the bundle from its publisher again"
        yield Link(f"bundle file {name}", expected, found, False, cause)
    if not problems:
        yield Link("bundle files", "", "", True, f"every file has the digest of {CHECKSUMS}")
    try:
        described = read_crate(folder)
    except BadInput as error:
        yield Link("RO-Crate", "readable", "unreadable", False, str(error))
        return
    wrong = [name for name, digest in described.items() if _digest(folder / name) != digest]
    for name in wrong:
        yield Link(
            f"crate entity {name}", described[name], _digest(folder / name), False, "the crate or file was altered"
        )
    if not wrong:
        yield Link("RO-Crate", "", "", True, f"{len(described)} files as its metadata describes them")


def _digest(path: Path) -> str:
    return sha256_file(path) if path.is_file() else "missing"


def _boards(site: Site, suite: str) -> Iterator[Chain]:
    try:
        document = site.boards(suite)
    except ExplainBenchError:
        return  # said by the project's chain
    for board in () if document is None else document["boards"]:
        links = guarded("board", lambda board=board: in_part("board", board_links(site, suite, board)))
        yield Chain(f"board {board.get('name', '?')}", "", None, tuple(links))


@dataclass(slots=True)
class _Subject:
    """What an audit is about, as far as it could be found."""

    cell: str
    cell_id: str
    stored: StoredCell | None
    problem: str = ""  # why there is no readable record
    run: Run | None = None  # asked for by its id
    store: Store | None = None


def _chain(site: Site, subject: _Subject, recompute: Recompute | None) -> Chain:
    stored = subject.stored
    run, store, missing = subject.run, subject.store, ""
    if run is None:
        cell = Cell.parse(subject.cell) if stored is None else stored.cell
        runs = runs_of(site, cell.suite)
        run, missing = find_run(runs, cell, subject.cell_id, stored.digest if stored is not None else "")
        store = runs.store
    links: list[Link] = []
    if stored is not None:
        found = run is not None or (bool(missing) and site.bundle)
        links += guarded("board", lambda: in_part("board", row_links(site, stored, found)))
    if run is None or store is None:
        links += in_part("run", [Link("run", subject.cell_id, "", None, missing)])
    else:
        links += guarded("run", lambda: in_part("run", run_links(site, store, run, stored)))
    if stored is None:
        links += in_part("record", [Link("record", subject.cell, "unreadable", False, subject.problem)])
        links.append(Link("everything behind the record", "", "", None, "the record cannot be read"))
        return Chain(subject.cell, subject.cell_id, run.info.run_id if run else None, tuple(links))
    checks = CHECKS | (STAGED_CHECKS if stored.cell.suite in STAGED else OTHER_CHECKS) | LAST_CHECKS
    for part, members in checks.items():
        for check in members:
            links += guarded(part, lambda part=part, check=check: in_part(part, check(site, stored)))
    if recompute is not None:
        links += in_part("replay", [_replay_link(stored, recompute)])
    return Chain(str(stored.cell), stored.record.cell_id, run.info.run_id if run else None, tuple(links))


def _resolve(workspace: Workspace, what: str) -> _Subject:
    text = what.strip()
    if not text:
        raise BadInput("give a run id, a cell id (or its beginning), a cell name such as T1/lstm/shap, or a board.")
    folders = CellStore(workspace.cells).folders()
    named = _as_name(text)
    if named is not None:
        found = [folder for folder in folders if folder.name.rsplit(".", 1)[0] == named.replace("/", ".")]
    else:
        found = [folder for folder in folders if folder.name.rsplit(".", 1)[-1] == text.lower()[:16]]
        if not found and len(text) >= 4:
            found = [folder for folder in folders if folder.name.rsplit(".", 1)[-1].startswith(text.lower())]
    if named is None and len(found) > 1:
        raise BadInput(f"{text!r} is the beginning of {len(found)} cell ids; give more digits.")
    if not found:
        return _of_run(workspace, text, what)
    ids = {key[:16] for key in Site(workspace).lock}
    return _of_folder(next((one for one in found if one.name.rsplit(".", 1)[-1] in ids), found[-1]))


def _as_name(text: str) -> str | None:
    """`suite/task/model/method` from a cell name, a row's name `model·method·task`, or None."""
    parts = text.split("/")
    if len(parts) == 4:
        return text
    if len(parts) == 3:
        return f"energy/{text}"
    pieces = text.split("·")
    return f"energy/{pieces[2]}/{pieces[0]}/{pieces[1]}" if len(pieces) == 3 else None


def _of_folder(folder: Path) -> _Subject:
    parts = folder.name.split(".")
    name, cell_id = "/".join([*parts[:3], ".".join(parts[3:-1])]), parts[-1]
    try:
        stored = CellStore(folder.parent).read(folder)
    except (BadInput, Corrupt) as error:
        return _Subject(name, cell_id, None, str(error))
    return _Subject(str(stored.cell), stored.record.cell_id, stored)


def _of_run(workspace: Workspace, text: str, what: str) -> _Subject:
    unknown = BadInput(
        f"no run, cell id, cell name or board {what!r} in {workspace.cells} or its tracking store; "
        "`explainbench list cells` shows what there is."
    )
    if "/" in text:
        raise unknown
    try:
        stores = (open_store(workspace.tracking_uri, experiment_name(suite)) for suite in SUITES)
        store = next((one for one in stores if one is not None), None)
        run = store.run(text) if store is not None else None  # whichever experiment it is in
    except Unavailable as error:
        raise BadInput(f"{what!r} is no cell, and whether it is a run cannot be told: {error}") from error
    if store is None or run is None:
        raise unknown
    tags = run.data.tags
    if tags.get(f"{PREFIX}kind") != "cell":
        raise BadInput(f"run {text} is not a cell's run; audit a board by its name, such as {run.info.run_name}.")
    cell_id = tags.get(f"{PREFIX}cell_id", "")
    folders = CellStore(workspace.cells).folders()
    folder = next((one for one in folders if cell_id and one.name.endswith(f".{cell_id[:16]}")), None)
    copy = run_folder(store, run)
    name = "/".join(tags.get(PREFIX + key, "?") for key in ("suite", "task", "model", "method"))
    subject = _Subject(name, cell_id, None, f"neither cells/ nor the run holds {RECORD} of cell {cell_id[:16]}")
    if folder is not None:
        subject = _of_folder(folder)
    elif copy is not None:  # a superseded cell: only its run still has the files
        found = _of_folder(copy)
        subject = found if found.stored is not None else _Subject(name, cell_id, None, found.problem)
    subject.store, subject.run = store, run
    return subject


def _replay_link(stored: StoredCell, recompute: Recompute) -> Link:
    expected = stored.record.result_digest
    try:
        replay = recompute(stored)
    except NotApplicable as reason:
        return Link("replay", expected, "", None, reason.reason)
    except ExplainBenchError as error:
        return Link("replay", expected, "unreadable", False, str(error))
    return Link("replay", replay.expected, replay.found, replay.holds, replay.detail)
