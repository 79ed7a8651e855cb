"""What each page and its JSON twin say: one function per page, from the source and the parameters to plain facts."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from explainbench.core.errors import BadInput, ExplainBenchError
from explainbench.store import read_lock
from mlflow_plugins._board_text import beside, caption, title
from mlflow_plugins._mlflow import complete
from mlflow_plugins.app.boards import CHOICES, SHARED, Choice, Rows, as_board, choices, families, reasons
from mlflow_plugins.app.cells import heat, score_rows, windows
from mlflow_plugins.app.compare import compare, differences
from mlflow_plugins.app.source import Found, NotFound, Source
from mlflow_plugins.board_query import query_board
from mlflow_plugins.publish import COLUMNS, PREFIX, cell_name

if TYPE_CHECKING:
    from mlflow.entities import Run

Arguments = Mapping[str, Any]
Facts = dict[str, Any]
PAGE = 50  # runs on a page
FILES = ("record.json", "scores.parquet", "explanations.npz", "seeds.json", "measured.json")
_FOLDERS = re.compile(r"""(?<![\w.])/(?:[^\s/'"():]+/)+""")  # of absolute paths
_one_audit = threading.Lock()  # an audit hashes every file behind a cell: reloading a page must not pile them up


def boards(source: Source, asked: Arguments) -> Facts:
    """The boards of a suite, grouped by task and score; the choices that narrow them down."""
    suites = source.suites()
    if not suites and not asked["suite"]:
        raise NotFound(
            "there are no boards that you can read here. Run `explainbench publish` and `explainbench leaderboard`, "
            "and start the server in the project's folder or on its tracking store."
        )
    suite = asked["suite"] or suites[0]
    found = source.boards(suite)
    choice = Choice(**{key: asked[key] for key in CHOICES})
    kept = choice.chosen(found.boards)
    shown, empty = families(kept)
    return {
        "suite": suite,
        "suites": suites,
        "source": found.source,
        "banner": found.banner,
        "remarks": list(found.remarks),
        "choice": asdict(choice),
        "choices": choices(found.boards),
        "count": len(kept),
        "tasks": sorted({str(board["task"]) for board in found.boards}),
        "metrics": [name for name in COLUMNS if not name.endswith((".lo", ".hi"))],
        "families": [
            {
                **_head(family.first),
                "leaders": [row["entry"] for row in family.leaders],
                "boards": [_head(board) for board in family.boards],
            }
            for family in shown
        ],
        "empty": [{**_head(family.first), "reasons": reasons(family.boards)} for family in empty],
    }


def _head(board: Mapping[str, Any]) -> Facts:
    keys = (
        "name", "suite", "task", "score", "title", "basis", "context", "weights", "view", "model", "protocol", "n",
        "confidence", "counted", "higher_is_better",
    )  # fmt: skip
    return {key: board[key] for key in keys} | {"entries": sum(row["mean"] is not None for row in board["rows"])}


def board(source: Source, asked: Arguments) -> Facts:
    """One board: its rows as filtered and sorted, with their co-ranked groups."""
    suite = asked["suite"] or "energy"
    found = source.board(suite, asked["name"], asked["protocol"])
    siblings = [one for one in source.boards(suite).boards if all(one[key] == found[key] for key in SHARED)]
    wanted = Rows(asked["q"], asked["source"], asked["baselines"], asked["sort"] or "order", asked["down"])
    rows = wanted.chosen(found)
    return _ranked(found, rows, {**asked, "suite": suite, "sort": wanted.sort}) | {
        "count": len(rows),
        "total": len(found["rows"]),
        "siblings": [_head(other) for other in siblings],
    }


def live(source: Source, asked: Arguments) -> Facts:
    """Any metric of a task straight from the tracking store, of any size: means and intervals as the runs have them."""
    suite = asked["suite"] or "energy"
    source.check(suite)
    store = source.store(suite)
    if store is None:
        raise NotFound(f"nothing of suite {suite!r} was published yet; run `explainbench publish`.")
    lock = read_lock(source.workspace.lock) if source.workspace is not None else None
    found = query_board(
        store,
        asked["task"],
        asked["metric"],
        protocol=asked["protocol"] or None,
        model=asked["model"] or None,
        lower_is_better=asked["lower"],
        lock=lock or None,
    )
    board = as_board(found, suite, asked)
    rows = _ranked(board, board["rows"], {**asked, "suite": suite, "sort": "order", "down": False})
    return rows | {"count": len(found), "total": len(found), "siblings": []}


def _ranked(found: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], asked: Arguments) -> Facts:
    return {
        **_head(found),
        "heading": title(found),
        "caption": caption(found),
        "notes": list(found["notes"]),
        "sources": sorted({row["weights_source"] for row in found["rows"] if row["weights_source"]}),
        "asked": asked,
        "groups": max((row["group"] or 0 for row in rows), default=0),
        "rows": [{**row, "beside": beside(row)} for row in rows],
    }


def cell(source: Source, asked: Arguments) -> Facts:
    """One cell: its scores by regime, one window's explanation, its seeds, where everything came from."""
    if not asked["id"]:
        return {"cell": None, "names": source.names()}
    found = source.cell(asked["id"])
    record, spec = found.stored.record, found.stored.record.spec
    facts: Facts = {
        **_identity(found),
        "names": source.names(),
        "remarks": [found.remark] if found.remark else [],
        "confidence": source.statistics.confidence,
        "skipped": {name: skip.model_dump() for name, skip in record.skipped.items()},
        "parameters": _flat(spec.parameters),
        "notes": dict(record.notes),
        "evaluations": record.evaluations_per_explanation,
        "gradients": record.gradients_per_explanation,
        "provenance": _provenance(found),
        "sources": dict(spec.sources),
        "libraries": dict(spec.libraries),
    }
    facts["scores"] = _or_remark(facts, lambda: score_rows(found.stored, source.statistics)) or []
    facts["seeds"] = _or_remark(facts, found.stored.seeds)
    measured = found.stored.measured()
    facts["measured"] = measured.model_dump() if measured else None
    facts |= _explained(facts, found, asked["window"])
    return facts


def _explained(facts: Facts, found: Found, window: int) -> Facts:
    arrays = _or_remark(facts, found.stored.explanations)
    if arrays is None or not {"importance", "labels", "context", "origin", "regime", "channels"} <= set(arrays):
        if arrays is not None:
            facts["remarks"].append("this suite keeps no explanation over a time series, so no heat map is drawn.")
        return {"heat": None, "windows": []}
    return {"heat": _or_remark(facts, lambda: heat(found.stored, arrays, window)), "windows": windows(arrays)}


def _or_remark(facts: Facts, read: Any) -> Any:
    """What `read` returns, or None with its error as a remark: a missing file leaves the rest of the page standing."""
    try:
        return read()
    except ExplainBenchError as error:
        facts["remarks"].append(without_folder(str(error)))
        return None


def without_folder(sentence: str) -> str:
    """Sentences name files; where the server keeps them is nobody's business who looks at a page."""
    return _FOLDERS.sub("", sentence)


def _identity(found: Found) -> Facts:
    record, spec = found.stored.record, found.stored.record.spec
    run = found.run
    return {
        "cell": str(found.stored.cell),
        "cell_id": record.cell_id,
        "record_sha256": found.stored.digest,
        "suite": spec.cell.suite,
        "task": spec.cell.task,
        "model": spec.cell.model,
        "method": spec.cell.method,
        "title": str(spec.method_card.get("title", spec.cell.method)),
        "protocol": spec.protocol,
        "weights_source": spec.weights_source,
        "deterministic": bool(spec.method_card.get("deterministic")),
        "baseline": spec.method_card.get("category") == "baseline",
        "runs": spec.runs,
        "run": None if run is None else {"run_id": run.info.run_id, "experiment_id": run.info.experiment_id},
        "files": list(FILES) if run is not None else [],
    }


def _provenance(found: Found) -> Facts:
    record, spec = found.stored.record, found.stored.record.spec
    tags = found.run.data.tags if found.run is not None else {}
    named = {
        "cell id": record.cell_id,
        "record": found.stored.digest,
        "result": record.result_digest,
        "dataset": f"{spec.dataset}, {spec.dataset_sha256}",
        "windows": spec.windows_sha256,
        "model card": spec.model_card_sha256,
        "weights": spec.weights_sha256,
        "weights source": spec.weights_source,
        "git commit": tags.get(f"{PREFIX}git_commit", ""),
        "uncommitted changes": tags.get(f"{PREFIX}git_dirty", ""),
        "code tree": tags.get(f"{PREFIX}code_tree", ""),
        "DVC data hash": tags.get(f"{PREFIX}dvc_data_md5", ""),
        "dvc.lock": tags.get(f"{PREFIX}dvc_lock_sha256", ""),
        "params.yaml": tags.get(f"{PREFIX}params_sha256", ""),
    }
    return {key: value for key, value in named.items() if value}


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in values.items():
        found |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": str(value)}
    return found


def lineage(source: Source, asked: Arguments) -> Facts:
    """The audit of a cell, made now: every link from the board's rows down to the data, broken ones first."""
    from mlflow_plugins.lineage import audit

    if not asked["id"]:
        return {"cell": None, "names": source.names()}
    found = source.cell(asked["id"])
    if source.workspace is None:
        raise NotFound("an audit needs the project's files; start the server in the project's folder.")
    with _one_audit:
        begun = time.perf_counter()
        chain = audit(source.workspace, found.stored.record.cell_id)
        seconds = time.perf_counter() - begun
    return {**chain.as_json(), "names": source.names(), "seconds": round(seconds, 2), "_chain": chain}


def comparison(source: Source, asked: Arguments) -> Facts:
    """Two cells: every score they share with the paired test, the same window's explanations side by side."""
    ticked = asked["cell"]
    if len(ticked) > 2:
        raise BadInput(f"{len(ticked)} cells are ticked; a comparison is of two. Go back and tick two.")
    names = [asked["a"] or (ticked[0] if ticked else ""), asked["b"] or (ticked[1] if len(ticked) > 1 else "")]
    facts: Facts = {"a": None, "b": None, "asked": names, "names": source.names(), "remarks": [], "pairs": []}
    if not all(names):
        return facts
    found = [source.cell(name) for name in names]
    result = compare(found[0].stored, found[1].stored, source.statistics)
    facts |= {"confidence": source.statistics.confidence, "pairs": list(result.pairs)}
    facts["remarks"] += list(result.remarks)
    for key, one in zip(("a", "b"), found, strict=True):
        facts[key] = _identity(one) | _explained(facts, one, asked["window"])
    facts["remarks"] = list(dict.fromkeys(facts["remarks"]))
    return facts


def runs(source: Source, asked: Arguments) -> Facts:
    """The runs of a suite's experiment, newest first, each with what it is and why it is not on a board."""
    suites = source.suites()
    suite = asked["suite"] or (suites[0] if suites else "energy")
    source.check(suite)
    store = source.store(suite)
    if store is None:
        raise NotFound(f"nothing of suite {suite!r} was published yet; run `explainbench publish`.")
    found, token = store.page(asked["filter"], PAGE, asked["token"] or None)
    return {
        "suite": suite,
        "suites": suites,
        "filter": asked["filter"],
        "experiment_id": store.experiment_id,
        "runs": [_run_row(run) for run in found],
        "next": token,
    }


def _run_row(run: Run) -> Facts:
    tags = run.data.tags
    kind = tags.get(f"{PREFIX}kind", "")
    state = "current"
    if not kind:
        state = "not a run of ExplainBench"
    elif tags.get(f"{PREFIX}superseded") == "true":
        state = "superseded" + (f": {because}" if (because := tags.get(f"{PREFIX}superseded_because")) else "")
    elif not complete(run):
        state = "not logged to its end"
    return {
        "run_id": run.info.run_id,
        "experiment_id": run.info.experiment_id,
        "name": run.info.run_name or "",
        "kind": kind,
        "cell": cell_name(run) if kind == "cell" else "",
        "protocol": tags.get(f"{PREFIX}protocol", ""),
        "started": _when(run.info.start_time),
        "state": state,
    }


def diff(source: Source, asked: Arguments) -> Facts:
    """Two runs field by field: params, metrics, tags, and what they are."""
    ticked = asked["run"]
    if len(ticked) > 2:
        raise BadInput(f"{len(ticked)} runs are ticked; a difference is of two. Go back and tick two.")
    names = [asked["a"] or (ticked[0] if ticked else ""), asked["b"] or (ticked[1] if len(ticked) > 1 else "")]
    if not all(names):
        return {"a": None, "b": None, "asked": names, "changes": [], "same": 0, "all": asked["all"]}
    found = [source.run(name)[0] for name in names]
    changes = differences(found[0], found[1])
    return {
        "a": _run_row(found[0]),
        "b": _run_row(found[1]),
        "asked": names,
        "all": asked["all"],
        "same": sum(change.same for change in changes),
        "changes": [change for change in changes if asked["all"] or not change.same],
    }


def _when(milliseconds: int | None) -> str:
    return "" if milliseconds is None else time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(milliseconds / 1000))
