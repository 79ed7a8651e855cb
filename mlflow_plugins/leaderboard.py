"""The leaderboard: boards made from the tracking store by query, every row cross-checked against the trust root."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from shutil import rmtree
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import ValidationError

from explainbench.analysis.ablation import faithfulness_note
from explainbench.analysis.aliases import alias_classes
from explainbench.analysis.board import SCHEMA, Entry, Resampled, board_json
from explainbench.analysis.boards import build_boards, scores_from_columns
from explainbench.analysis.intervals import overlap_block
from explainbench.analysis.normalise import SHIPPED, Bounds, load_bounds
from explainbench.analysis.suitability import with_measurements
from explainbench.analysis.suites import disagreement, load_boards, suite_boards
from explainbench.core.arrays import Floats
from explainbench.core.errors import BadInput, Corrupt
from explainbench.core.files import read_json, read_npz, write_bytes
from explainbench.core.params import Params
from explainbench.core.provenance import canonical_json, sha256_file, sha256_json
from explainbench.core.record import CellRecord
from explainbench.core.workspace import Workspace
from explainbench.stages.suite import grid_status, locked_cells
from explainbench.store import EXPLANATIONS, RECORD, SCORES, read_lock, read_scores
from mlflow_plugins._board_text import board_markdown, caption, headers, plain, texts, title
from mlflow_plugins._mlflow import Store, complete, open_store
from mlflow_plugins.publish import PREFIX, boards_path, cell_name, experiment_name, workspace_name

if TYPE_CHECKING:
    from mlflow.entities import Run
    from rich.table import Table

PLOTS = "plots"  # folder of results/
CONTENT = "content_sha256"  # key of a file of boards: the digest of everything else in it
SUITE = "energy"
FAITHFUL = ("faithfulness", "faithfulness_skill", "EQI")  # scores that rank by what masks do
STEP = np.timedelta64(15, "m")
MEASURED = ("EEI",)  # scores with a timing in them: never compared bit for bit
COLUMNS = (
    "order", "entry", "mean", "low", "high", "rank_ub", "co_ranked_with_above", "co_ranked_plain", "p_vs_above",
    "effect", "effect_low", "effect_high", "n", "status", "reason", "baseline", "deterministic", "weights_source",
    "aliases", "verified", "unverified_because", "cell", "cell_id", "record_digest",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Collected:
    """A cell as the tracking store has it. problem: why its digests disagree, or empty when the row is verified.

    importance: e (n, g) of a deterministic method with signs, which may be an alias of another; None of others.
    """

    entry: Entry
    run_id: str
    problem: str = ""
    importance: Floats | None = None


@dataclass(frozen=True, slots=True)
class Collection:
    """What a query of the tracking store found.

    rows: one per cell; left_out: {cell: why its run cannot be shown}; missing: cells of cells.lock.json without a run.
    """

    protocol: str
    rows: tuple[Collected, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()


def build_leaderboard(workspace: Workspace, params: Params, suite: str = SUITE) -> dict[str, Any]:
    """Query, cross-check, rank, and write the suite's boards; the JSON file's content is returned.

    Files: `results/leaderboard.json`, `.csv` and `.md` of the energy suite, `results/<suite>.*` of another. Raises
    BadInput when nothing is published, Unavailable when the tracking store cannot be used.
    """
    found = collect(workspace, params.protocol, suite)
    problems = {str(row.entry.cell): row.problem for row in found.rows if row.problem}
    profile = read_profile(workspace) if suite == SUITE else None
    if suite == SUITE:
        boards, more = _energy_boards(found, profile, params), {"banner": _banner(params.suites.energy.dataset)}
    else:
        entries = [row.entry for row in found.rows]
        boards = suite_boards(suite, entries, params.statistics, params.seed)
        more = {
            "banner": load_boards(suite).banner or None,
            "pending": unscored_cells(workspace, suite, "pending"),
            "disagreement": disagreement(suite, entries),
        }
    checks = _read_checks(workspace) if suite == SUITE else None
    documents = [_checked(_with_mask_note(board, checks), problems) for board in boards]
    document = {
        "schema": SCHEMA,
        "suite": suite,
        "protocol": found.protocol,
        "inputs_sha256": sha256_json(locked_cells(workspace)[suite]),
        "profile_sha256": None if profile is None else sha256_json(profile),
        "verified": not problems and not found.left_out and not found.missing,
        "flagged": dict(sorted((problems | dict(found.left_out)).items())),
        "failed": unscored_cells(workspace, suite, "failed"),
        "missing": list(found.missing),
        **more,
        "means": _means(documents),
        "boards": documents,
    }
    document[CONTENT] = sha256_json(document)
    path = boards_path(workspace, suite)
    content = canonical_json(document)
    write_bytes(path, content + b"\n")  # in one line: indented, it is half as large again
    document = json.loads(content)  # in the file's order, so that what stands beside the file follows from it
    write_bytes(path.with_suffix(".csv"), board_csv(document["boards"]).encode())
    write_bytes(path.with_suffix(".md"), markdown(document).encode())
    if suite == SUITE:
        _write_plots(workspace, document["boards"])
    return document


def _write_plots(workspace: Workspace, boards: Iterable[Mapping[str, Any]]) -> None:
    """results/plots/: entry and mean of every board of a whole task, for `dvc plots`, which draws file by file."""
    folder = workspace.results / PLOTS
    rmtree(folder, ignore_errors=True)
    for board in boards:
        rows = [f"{row['entry']},{row['mean']}\n" for row in board["rows"] if row["mean"] is not None]
        if rows and not board["model"] and board["score"] not in MEASURED:
            write_bytes(folder / f"{board['name']}.csv", "".join(["entry,mean\n", *rows]).encode())


def _energy_boards(found: Collection, profile: Mapping[str, Any] | None, params: Params) -> list[dict[str, Any]]:
    entries = [
        with_measurements(row.entry, profile, params.profile.reference_seconds, params.contexts) for row in found.rows
    ]
    bounds = frozen_bounds(params.protocol)
    blocks = _overlaps(entries, params)
    return [
        {**board_json(board), "name": f"{prefix}{board.name}"}
        for prefix, sharing in _by_weights(entries).items()
        for board in build_boards(sharing, params.statistics, params.seed, bounds, blocks)
    ]


def _overlaps(entries: Iterable[Entry], params: Params) -> dict[str, int]:
    """task -> windows per block of the moving-block intervals, 1 where windows are disjoint."""
    windows = {entry.cell.task: entry.windows for entry in entries}
    found: dict[str, int] = {}
    for task, stamps in windows.items():
        asked = params.suites.energy.tasks.get(task)
        if asked is not None:
            span = (asked.context + asked.horizon) * STEP
            found[task] = overlap_block(np.array(stamps, dtype="datetime64[m]"), span)
    return found


def _with_mask_note(board: dict[str, Any], checks: Mapping[str, Any] | None) -> dict[str, Any]:
    """The board with what the checks say of masks: whether a single faithfulness ranking is supported at all."""
    note = faithfulness_note(checks, board["task"], board["model"]) if board["score"] in FAITHFUL else None
    return board if note is None else {**board, "notes": [*board["notes"], note]}


def collect(workspace: Workspace, protocol: str | None = None, suite: str = SUITE) -> Collection:
    """Query the tracking store for finished cells of one protocol version that nothing supersedes.

    Each run's record and scores are read from its artifacts; a row is verified when record, scores, tags and
    cells.lock.json agree. Raises BadInput when nothing is published, or when several versions are and none is named.
    """
    store = open_store(workspace.tracking_uri, experiment_name(suite))
    if store is None:
        raise BadInput(f"{workspace.tracking_uri} holds no cells of suite {suite}; run `explainbench publish` first.")
    query = f"tags.{PREFIX}kind = 'cell' and tags.{PREFIX}superseded = 'false' and attributes.status = 'FINISHED'"
    runs = [run for run in store.runs(query) if complete(run)]
    versions = sorted({run.data.tags.get(f"{PREFIX}protocol", "") for run in runs})
    if protocol is None:
        if len(versions) > 1:
            raise BadInput(
                f"the tracking store holds cells of {len(versions)} protocol versions: {', '.join(versions)}; name one."
            )
        protocol = versions[0] if versions else ""
    runs = [run for run in runs if run.data.tags.get(f"{PREFIX}protocol") == protocol]
    if not runs:
        others = f"; it holds {', '.join(versions)}" if versions else ""
        raise BadInput(
            f"the tracking store holds no finished cell of protocol {protocol!r}{others}. "
            "Run `explainbench publish`, and check `protocol` in params.yaml."
        )
    lock = read_lock(workspace.lock)
    rows: list[Collected] = []
    left_out: dict[str, str] = {}
    for name, run in _one_run_per_cell(runs, lock, workspace_name(workspace)).items():
        try:
            rows.append(_collected(store, run, lock))
        except (BadInput, Corrupt) as error:
            left_out[name] = str(error)
    if not rows:
        raise BadInput(f"no run of protocol {protocol!r} can be read: {next(iter(left_out.values()))}")
    there = {row.entry.cell_id for row in rows} | {run.data.tags.get(f"{PREFIX}cell_id", "") for run in runs}
    missing = tuple(sorted(cell_id[:16] for cell_id in locked_cells(workspace)[suite] if cell_id not in there))
    return Collection(protocol, _with_aliases(sorted(rows, key=lambda row: row.entry.cell)), left_out, missing)


def _with_aliases(rows: list[Collected]) -> tuple[Collected, ...]:
    """The rows, marked where methods give the same explanation on one (task, model)."""
    groups: dict[tuple[str, str], dict[str, Floats]] = {}
    for row in rows:
        if row.importance is not None:
            groups.setdefault((row.entry.cell.task, row.entry.cell.model), {})[row.entry.cell.method] = row.importance
    classes = {group: alias_classes(importance) for group, importance in groups.items()}
    marked: list[Collected] = []
    for row in rows:
        cell = row.entry.cell
        alias = classes.get((cell.task, cell.model), {}).get(cell.method, "")
        marked.append(replace(row, entry=replace(row.entry, alias=alias)))
    return tuple(marked)


def _importance(store: Store, run: Run, record: CellRecord) -> Floats | None:
    card = record.spec.method_card
    if card.get("category") == "baseline" or not card.get("deterministic") or card.get("vector") != "signed":
        return None
    return _explanations(store, run, record).get("importance")


def _resampled(store: Store, run: Run, record: CellRecord) -> Resampled | None:
    arrays = _explanations(store, run, record) if record.spec.method_card.get("resampled") else {}
    return Resampled.of(arrays) if arrays else None


def _explanations(store: Store, run: Run, record: CellRecord) -> dict[str, Any]:
    path = store.artifact(run, EXPLANATIONS)
    if path is None or sha256_file(path) != record.artifacts.get(EXPLANATIONS):
        return {}  # the audit says what is wrong; here it only means no alias and no interval
    return read_npz(path)


def _one_run_per_cell(runs: Iterable[Run], lock: Mapping[str, str], ours: str) -> dict[str, Run]:
    """Of several runs of a cell the one in our lock, else of our project, else the latest."""

    def preference(run: Run) -> tuple[bool, bool, int]:
        tags = run.data.tags
        digest = lock.get(tags.get(f"{PREFIX}cell_id", ""))
        locked = digest is not None and digest == tags.get(f"{PREFIX}record_sha256")
        return locked, tags.get(f"{PREFIX}workspace") == ours, run.info.start_time

    best: dict[str, Run] = {}
    for run in runs:
        name = cell_name(run)
        if name not in best or preference(run) > preference(best[name]):
            best[name] = run
    return dict(sorted(best.items()))


def _collected(store: Store, run: Run, lock: Mapping[str, str]) -> Collected:
    tags = run.data.tags
    name = f"run {run.info.run_id} ({cell_name(run)})"
    record_path, scores_path = store.artifact(run, RECORD), store.artifact(run, SCORES)
    if record_path is None or scores_path is None:
        raise BadInput(f"{name} has no {RECORD if record_path is None else SCORES}; publish the cell again.")
    try:
        record = CellRecord.model_validate(read_json(record_path))
    except ValidationError as error:
        raise Corrupt(f"{name}: {RECORD} is not a cell record of this version: {error.errors()[0]['msg']}.") from error
    table = read_scores(scores_path)
    windows, scores, skipped = scores_from_columns({key: table.column(key).to_pylist() for key in table.column_names})
    card = record.spec.method_card
    digest = sha256_file(record_path)
    problem = ""
    for disagrees, sentence in (
        (tags.get(f"{PREFIX}record_sha256") != digest, "the run's record_sha256 tag is not the digest of its record"),
        (tags.get(f"{PREFIX}cell_id") != record.cell_id, "the run's cell_id tag is not that of its record"),
        (run.data.params.get("record_sha256") != digest, "the run's record_sha256 param is not its record's digest"),
        (cell_name(run) != str(record.spec.cell.cell), "the run's tags name another cell than its record"),
        (sha256_json(record.spec.model_dump(mode="json")) != record.cell_id, "the record's cell id is not its own"),
        (record.artifacts.get(SCORES) != sha256_file(scores_path), f"{SCORES} is not the file of the record"),
        (record.cell_id not in lock, "cells.lock.json does not list this cell"),
        (lock.get(record.cell_id, digest) != digest, "cells.lock.json holds another digest for this cell"),
    ):
        if disagrees:
            problem = sentence
            break
    entry = Entry(
        cell=record.spec.cell.cell,
        cell_id=record.cell_id,
        record_digest=digest,
        protocol=record.spec.protocol,
        windows=windows,
        scores=scores,
        skipped=skipped,
        baseline=card.get("category") == "baseline",
        deterministic=bool(card.get("deterministic")),
        weights_source=record.spec.weights_source,
        resampled=_resampled(store, run, record),
        category=str(card.get("category", "")),
    )
    return Collected(entry, run.info.run_id, problem, _importance(store, run, record))


def read_profile(workspace: Workspace) -> dict[str, Any] | None:
    """results/profile.json, the archived timings, or None before the profile stage ran. Raises Corrupt."""
    path = workspace.results / "profile.json"
    if not path.is_file():
        return None
    content = read_json(path)
    if not isinstance(content, dict) or not isinstance(content.get("cells"), dict):
        raise Corrupt(f"{path} is not a profile; run `explainbench profile` again.")
    return content


def _read_checks(workspace: Workspace) -> dict[str, Any] | None:
    """results/checks.json, or None before the stage `checks` ran."""
    path = workspace.results / "checks.json"
    return read_json(path) if path.is_file() else None


def unscored_cells(workspace: Workspace, suite: str, status: str) -> dict[str, str]:
    """{cell: why} of the suite's cells with that status (failed, pending) after the last evaluation."""
    return {
        row["cell"]: row["reason"]
        for row in grid_status(workspace)
        if row["status"] == status and row["cell"].split("/")[0] == suite
    }


def _by_weights(entries: list[Entry]) -> dict[str, list[Entry]]:
    """Official and stand-in weights never share a board: {prefix of the boards' names: entries}."""
    own = [entry for entry in entries if entry.weights_source != "official"]
    if len(own) == len(entries):
        return {"": entries}
    official = [entry for entry in entries if entry.weights_source != "standin"]
    return {"official.": official} | ({"": own} if own else {})


def frozen_bounds(protocol: str) -> Bounds | None:
    """The normalisation bounds frozen for a protocol version, or None while there are none."""
    return load_bounds(protocol) if (SHIPPED / f"{protocol}.json").is_file() else None


def selected(document: Mapping[str, Any], task: str | None, composite: str | None) -> dict[str, Any]:
    """The leaderboard with only the boards of a task and of a score. Raises BadInput when there is no such board."""
    boards = document["boards"]
    tasks = sorted({board["task"] for board in boards})
    scores = sorted({board["score"] for board in boards})
    for wanted, known, what in ((task, tasks, "task"), (composite, scores, "composite")):
        if wanted is not None and wanted.lower() not in {item.lower() for item in known}:
            raise BadInput(f"there is no board of {what} {wanted!r}; there are {', '.join(known)}.")
    kept = [
        board
        for board in boards
        if (task is None or board["task"].lower() == task.lower())
        and (composite is None or board["score"].lower() == composite.lower())
    ]
    return {**document, "boards": kept}


def render_boards(document: Mapping[str, Any]) -> Iterator[Table | str]:
    """Tables for a terminal: what is flagged first, then each board; boards without any number as one line."""
    from rich.markup import escape
    from rich.table import Table

    if document.get("banner"):
        yield f"[yellow]{escape(document['banner'])}[/]"
    for cell, reason in document["flagged"].items():
        yield f"[bold red]not verified[/] {escape(cell)}: {escape(reason)}"
    for cell, reason in document["failed"].items():
        yield f"[bold red]failed[/] {escape(cell)}: {escape(reason)}"
    for reason, cells in _by_reason(document.get("pending", {})).items():
        yield f"[yellow]{len(cells)} cells are pending[/] ({escape(cells[0])}, ...): {escape(reason)}"
    if document["missing"]:
        yield f"[yellow]{len(document['missing'])} cells are not in the tracking store; run `explainbench publish`[/]"
    for board in document["boards"]:
        if all(row["mean"] is None for row in board["rows"]):
            reasons = sorted({row["reason"] for row in board["rows"] if row["reason"]})
            yield f"[bold]{escape(title(board))}[/]: no number yet ({escape('; '.join(reasons))})"
            continue
        table = Table(title=title(board), title_justify="left", caption=caption(board), caption_justify="left")
        for name in headers(board):
            table.add_column(name, justify="left" if name in ("entry", "beside it") else "right")
        for row in board["rows"]:
            style = "dim" if row["baseline"] else None if row["verified"] else "red"
            table.add_row(*(escape(text) for text in texts(row)), style=style)
        yield table


def markdown(document: Mapping[str, Any]) -> str:
    """The boards as a markdown page."""
    lines = [f"# Leaderboard, suite {document['suite']}, protocol {document['protocol']}", ""]
    if document.get("banner"):
        lines += [f"> {document['banner']}", ""]
    state = "every row verified against `cells.lock.json`" if document["verified"] else "NOT every row is verified"
    lines += [f"{state}; check any row's whole chain with `explainbench audit CELL`.", ""]
    lines += [f"- not verified: `{cell}`: {reason}" for cell, reason in sorted(document["flagged"].items())]
    lines += [f"- failed: `{cell}`: {reason}" for cell, reason in sorted(document["failed"].items())]
    for reason, cells in _by_reason(document.get("pending", {})).items():
        lines.append(f"- {len(cells)} cells pending (`{cells[0]}`, ...): {reason}")
    empty = []
    for board in document["boards"]:
        if all(row["mean"] is None for row in board["rows"]):
            empty.append(board)
            continue
        lines += ["", *board_markdown(board)]
    if empty:
        lines += ["", "## Without a number yet", ""]
        for board in empty:
            reasons = sorted({row["reason"] for row in board["rows"] if row["reason"]})
            lines.append(f"- {title(board)}: {'; '.join(reasons)}")
    if document.get("disagreement"):
        lines += ["", "## Do the metrics agree?", "", "Kendall's tau of the methods' order, within one model.", ""]
        lines += ["| task | model | metrics | methods | tau |", "| --- | --- | --- | ---: | ---: |"]
        for row in document["disagreement"]:
            tau = "" if row["tau"] is None else f"{row['tau']:.2f}"
            lines.append(
                f"| {row['task']} | {row['model']} | {row['one']}, {row['other']} | {row['methods']} | {tau} |"
            )
    return "\n".join(lines) + "\n"


def _by_reason(cells: Mapping[str, str]) -> dict[str, list[str]]:
    """{reason: cells}, in the order of their names, so that a page made from the file is the page made with it."""
    found: dict[str, list[str]] = {}
    for cell, reason in sorted(cells.items()):
        found.setdefault(reason, []).append(cell)
    return found


def _checked(board: dict[str, Any], problems: Mapping[str, str]) -> dict[str, Any]:
    """The board with `verified` and `unverified_because` on every row, from all cells the row stands for."""
    for row in board["rows"]:
        reasons = [f"{ref['cell']}: {problems[ref['cell']]}" for ref in row["cells"] if ref["cell"] in problems]
        row["verified"], row["unverified_because"] = not reasons, "; ".join(reasons)
    board["rows_sha256"] = sha256_json(board["rows"])
    return board


def _means(boards: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """{board: {entry: mean}}: the numbers alone, which `dvc metrics show` and `diff` can read."""
    return {
        board["name"]: {row["entry"]: row["mean"] for row in board["rows"] if row["mean"] is not None}
        for board in boards
        if any(row["mean"] is not None for row in board["rows"])
    }


def board_csv(boards: Iterable[Mapping[str, Any]]) -> str:
    """All rows of all boards in long form; scores with a timing in them are left out: the file is bit-reproducible."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    head = ("suite", "task", "view", "model", "score", "basis")
    writer.writerow([*head, *COLUMNS])
    for board in boards:
        if board["score"] in MEASURED:
            continue
        for row in board["rows"]:
            writer.writerow([*(board[key] for key in head), *(plain(row[key]) for key in COLUMNS)])
    return text.getvalue()


def _banner(dataset: str) -> str | None:
    from explainbench.core.registry import DATASETS

    try:
        return DATASETS.card(dataset).banner
    except BadInput:
        return None
