"""Audit, the boards: rows against their digest, the records and the run they came from; files against each other."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from explainbench.core.errors import BadInput, Corrupt, Unavailable
from explainbench.core.files import read_json
from explainbench.core.provenance import sha256_json
from explainbench.stages.suite import locked_cells
from explainbench.store import StoredCell
from mlflow_plugins._chain import Link, same
from mlflow_plugins._mlflow import complete
from mlflow_plugins._run_links import Runs, history_links, runs_of, seal_links
from mlflow_plugins._site import Site, changes
from mlflow_plugins.leaderboard import CONTENT, SCHEMA, board_csv, markdown
from mlflow_plugins.publish import PREFIX, boards_path

if TYPE_CHECKING:
    from mlflow.entities import Run

SHOWN = 3  # altered values that are named per board


def row_links(site: Site, stored: StoredCell, run_found: bool) -> Iterator[Link]:
    """The rows of the suite's boards that show this cell: made from its record, and not altered since."""
    suite = stored.cell.suite
    path = boards_path(site.workspace, suite)
    try:
        document = site.boards(suite)
        if document is None:
            detail = f"no results/{path.name} yet; run `explainbench leaderboard`"
            yield Link("board rows", stored.digest, "", None, detail)
            return
        showing = [(board, _digests(board, str(stored.cell))) for board in document["boards"]]
    except (BadInput, Corrupt, KeyError, TypeError) as error:
        yield Link("board rows", "readable", "unreadable", False, f"{path.name} is not a leaderboard: {error}")
        return
    altered = [link for board, digests in showing if digests for link in _rows_digest(site, suite, board)]
    altered = [link for link in altered if not link.ok]
    yield from altered
    digests = [digest for _, found in showing for digest in found]
    others = [digest for digest in digests if digest != stored.digest]
    if others:
        detail = (
            f"{len(others)} of {len(digests)} rows of {path.name} were made from another record; rebuild the boards"
        )
        yield Link("board rows", stored.digest, others[0], False, detail)
    elif not digests:
        yield Link("board rows", stored.digest, "", None, "no board shows this cell")
    elif not altered:
        yield Link("board rows", stored.digest, stored.digest, True, f"{len(digests)} rows of {path.name} name it")
    runs = runs_of(site, suite)
    if digests and not run_found and runs.store is not None and not others:
        cause = "boards are made from runs, and this cell's is gone or altered beyond recognition; publish again"
        yield Link("run", "a run of this cell", "none", False, cause)


def _digests(board: Mapping[str, Any], cell: str) -> list[str]:
    return [ref["record_digest"] for row in board["rows"] for ref in row["cells"] if ref["cell"] == cell]


def board_links(site: Site, suite: str, board: Mapping[str, Any]) -> Iterator[Link]:
    """One board: its digest, the records behind its rows, its run in MLflow."""
    yield from _rows_digest(site, suite, board)
    wrong = 0
    refs = {(ref["cell"], ref["cell_id"], ref["record_digest"]) for row in board["rows"] for ref in row["cells"]}
    for cell, cell_id, digest in sorted(refs):
        found = site.lock.get(cell_id, "missing")
        if found != digest:
            wrong += 1
            cause = f"the row was made from another record than {site.workspace.lock.name} holds; rebuild the boards"
            yield Link(f"record of {cell}", found, digest, False, cause)
    if not wrong:
        yield Link("records", "", "", True, f"{len(refs)} records are those of {site.workspace.lock.name}")
    yield from _board_run_links(site, suite, board)


def _rows_digest(site: Site, suite: str, board: Mapping[str, Any]) -> list[Link]:
    """Whether the rows have the digest that the board carries, and if not, which value is another than elsewhere."""

    def check() -> list[Link]:
        name, carried = f"board {board['name']}", str(board.get("rows_sha256", "missing"))
        found = sha256_json(board["rows"])
        where = "" if carried == found else _where(site, suite, board)
        cause = f"rows were altered after the board was made{where}; run `explainbench leaderboard`"
        return [same(name, carried, found, "digest of the rows", cause)]

    return site.once(("rows", suite, board["name"]), check)


def _where(site: Site, suite: str, board: Mapping[str, Any]) -> str:
    """What of the rows differs from the run's or else the committed copy of the board."""
    for copy in (_run_copy(site, suite, board), _committed_copy(site, suite, board)):
        if copy is None:
            continue
        one, two = ({row["entry"]: row for row in side["rows"]} for side in (copy, board))
        found = [f"{key}: {expected} became {value}" for key, expected, value in changes(one, two)]
        return f" ({'; '.join(found[:SHOWN])})" if found else ""
    return ""


def _committed_copy(site: Site, suite: str, board: Mapping[str, Any]) -> Mapping[str, Any] | None:
    content = site.committed(boards_path(site.workspace, suite))
    try:
        boards = [] if content is None else json.loads(content)["boards"]
    except (ValueError, KeyError, TypeError):
        return None
    return next((one for one in boards if one["name"] == board["name"]), None)


def _run_copy(site: Site, suite: str, board: Mapping[str, Any]) -> Mapping[str, Any] | None:
    runs = runs_of(site, suite)
    run = _board_run(runs, board)
    path = None if run is None or runs.store is None else runs.store.artifact(run, "board.json")
    return None if path is None else read_json(path)


def _board_run(runs: Runs, board: Mapping[str, Any]) -> Run | None:
    if runs.store is None:
        return None
    name = board["name"]
    queries = (f"tags.{PREFIX}board = '{name}'", f"attributes.run_name = '{name}'")
    try:
        found = (
            runs.by_name.get(name, []) if runs.whole else [run for query in queries for run in runs.store.runs(query)]
        )
    except Unavailable:
        return None
    digest = sha256_json(board)

    def preference(run: Run) -> tuple[bool, bool, int]:
        its = digest in (run.data.tags.get(f"{PREFIX}board_sha256"), run.data.params.get("board_sha256"))
        return its, run.data.tags.get(f"{PREFIX}superseded") != "true" and complete(run), run.info.start_time or 0

    return max(found, key=preference, default=None)


def _board_run_links(site: Site, suite: str, board: Mapping[str, Any]) -> Iterator[Link]:
    runs = runs_of(site, suite)
    run = _board_run(runs, board)
    if run is None or runs.store is None:
        empty = all(row.get("mean") is None for row in board["rows"])
        reason = "a board without a number has no run" if empty else runs.problem or "its run is not published yet"
        yield Link("board run", "", "", None, reason)
        return
    digest, tags = sha256_json(board), run.data.tags
    cause = "the board or its run was altered, or the board was built again; run `explainbench publish`"
    yield same("board run", digest, tags.get(f"{PREFIX}board_sha256", "missing"), "digest of the whole board", cause)
    yield same("board run param", digest, run.data.params.get("board_sha256", "missing"), "", cause)
    yield same("board run status", "FINISHED", run.info.status, "", "logging was interrupted; publish again")
    yield same(f"board run tag {PREFIX}superseded", "false", tags.get(f"{PREFIX}superseded", "missing"), "", cause)
    yield same(f"board run tag {PREFIX}complete", "true", tags.get(f"{PREFIX}complete", "missing"), "", cause)
    copy = _run_copy(site, suite, board)
    yield same("board run artifact board.json", digest, "missing" if copy is None else sha256_json(copy), "", cause)
    yield from seal_links(runs.store, run)
    yield from history_links(runs.store, run)


def file_links(site: Site, suite: str, document: Mapping[str, Any]) -> Iterator[Link]:
    """The suite's files of boards: whole, made from the present lock and profile, and telling one story."""
    path = boards_path(site.workspace, suite)
    if document.get("schema") != SCHEMA:
        detail = f"of schema {document.get('schema')}, this version writes {SCHEMA}; run `explainbench leaderboard`"
        yield Link(f"{path.name}: beside it", "", "", None, f"tables are not compared: {detail}")
    carried = document.get(CONTENT)
    if carried is None:
        yield Link(path.name, "", "", None, "made before boards' files carried a digest")
    else:
        found = sha256_json({key: value for key, value in document.items() if key != CONTENT})
        yield same(path.name, carried, found, "digest of its content", "the file was edited; build the boards again")
    stale = "cells were evaluated again since, or a file was altered; run `explainbench leaderboard`"
    if document.get("inputs_sha256"):
        lock = sha256_json(site.once("locks", lambda: locked_cells(site.workspace)).get(suite, {}))
        yield same(
            f"{path.name}: lock", document["inputs_sha256"], lock, "digest of its part of cells.lock.json", stale
        )
    profile = site.workspace.results / "profile.json"
    if document.get("profile_sha256") and profile.is_file():
        timed = site.once("profile.json", lambda: sha256_json(read_json(profile)))
        yield same(f"{path.name}: profile", document["profile_sha256"], timed, "digest of profile.json", stale)
    tables = {".csv": lambda: board_csv(document["boards"]), ".md": lambda: markdown(document)}
    for suffix, write in tables.items() if document.get("schema") == SCHEMA else ():
        other = path.with_suffix(suffix)
        if other.is_file():
            content, text = write(), other.read_bytes().decode(errors="replace")
            pairs = enumerate(zip(content.splitlines(), text.splitlines()), 1)
            line = next((str(number) for number, (one, two) in pairs if one != two), "the last")
            cause = f"line {line} is not what {path.name} says; one of the two was edited"
            yield same(other.name, sha256_json(content), sha256_json(text), f"follows from {path.name}", cause)
