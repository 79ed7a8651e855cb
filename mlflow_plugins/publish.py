"""Cells and boards into the tracking store: one flat run each, from files, idempotent by cell id and record digest."""

from __future__ import annotations

import fcntl
import hashlib
import random
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Self

import numpy as np

from explainbench.analysis.intervals import mean_intervals, resample_indices
from explainbench.analysis.suites import load_boards
from explainbench.core.arrays import Floats
from explainbench.core.cell import stream
from explainbench.core.errors import BadInput, Corrupt, ExplainBenchError, Unavailable
from explainbench.core.files import read_json, write_bytes, write_json
from explainbench.core.params import StatisticsParams
from explainbench.core.provenance import sha256_json
from explainbench.core.record import SCHEMA, CellRecord
from explainbench.core.workspace import Workspace
from explainbench.stages.suite import NAMES as SUITES
from explainbench.stages.suite import load_suite
from explainbench.store import RECORD, CellStore, StoredCell, first_problem, read_lock
from mlflow_plugins._board_text import board_markdown
from mlflow_plugins._checkout import Checkout, read_checkout, working_tree
from mlflow_plugins._mlflow import MARKER, DatasetUse, Row, Store, ensure_store

if TYPE_CHECKING:
    from mlflow.entities import Run

PREFIX = "explainbench."
# Where a score stands in MLflow: `family/name`, one chart section per family. Others follow the rule in `metric_name`.
NAMES = {
    "counterfactual_valid": "counterfactual_consistency/valid",
    "diagnosticity": "faithfulness/diagnosticity",
    "lipschitz": "stability/lipschitz",
    "native_quantiles": "uncertainty_awareness/native",
    "noise_floor": "stability/noise_floor",
}
UNPUBLISHED = "act_valid."  # scores that stay in files, so that MLflow's table of columns stays readable
COLUMNS = [  # of the saved view; the first one sorts
    "faithfulness/skill",
    "faithfulness/skill.lo",
    "faithfulness/skill.hi",
    "faithfulness/raw",
    "fidelity/value",
    "stability/value",
    "stability/value.lo",
    "stability/value.hi",
]
DESCRIPTION = (
    "# ExplainBench, suite {suite}\n\nOne run per cell (model x method x task), one per board. "
    "Rows are a projection of `cells.lock.json`; rebuild them with `explainbench publish`, check any of them with "
    "`explainbench audit RUN_ID`. Open the Runs tab with "
    "`?viewStateShareKey=explainbench&workflowType=machine_learning` for the leaderboard view. Useful filters: "
    "`tags.explainbench.method = 'lime'`, `tags.explainbench.superseded = 'false'`, "
    '`metrics."stability/value.lo" < 0.5`.\n'
)


ABANDONED = 60.0  # seconds after which a run that we watch and nobody completes is taken over
KNOWN_BY = [
    MARKER,
    *(
        f"{PREFIX}{key}"
        for key in ("suite", "task", "model", "method", "cell_id", "record_sha256", "workspace", "superseded")
    ),
]


@dataclass(frozen=True, slots=True)
class Counts:
    """What publishing did. refused: one sentence per cell whose files do not have their digests."""

    published: int = 0
    already: int = 0
    superseded: int = 0
    replaced: int = 0  # runs that an interruption had left half-logged
    refused: tuple[str, ...] = ()


@dataclass(slots=True)
class _Known:
    """What one experiment holds about cells."""

    store: Store
    complete: dict[tuple[str, str], Row] = field(default_factory=dict)  # by cell id and record digest
    extra: list[Row] = field(default_factory=list)  # a second run of the same record
    half: list[Row] = field(default_factory=list)  # cut off, or still being written by somebody
    changed: bool = False

    def read(self) -> None:
        """What the store holds now."""
        self.complete, self.extra, self.half = {}, [], []
        for row in self.store.rows(f"tags.{PREFIX}kind = 'cell'", KNOWN_BY):
            key = (row.tags.get(f"{PREFIX}cell_id", ""), row.tags.get(f"{PREFIX}record_sha256", ""))
            if not row.complete:
                self.half.append(row)
            elif key in self.complete:
                self.extra.append(row)
            else:
                self.complete[key] = row

    def tag(self, row: Row, key: str, value: str) -> None:
        """Set a tag of a run."""
        self.store.set_tag(row.run_id, f"{PREFIX}{key}", value)
        self.changed = True


class Publisher:
    """Publishes cells as they finish. Use it as a context manager, in the parent process only.

    One publisher per project and store at a time: opening a second one raises Unavailable, as does a store that cannot
    be used. Publishers of other projects, on other machines too, may write the same cells to the same store at once:
    each cell gets one run. Leaving the context waits for the cells that others were writing, marks what was superseded
    and refreshes the database's statistics.
    """

    def __init__(
        self, workspace: Workspace, statistics: StatisticsParams | None = None, *, whole: bool = False
    ) -> None:
        self.workspace = workspace
        self.whole = whole  # all cells pass by: then cells.lock.json says what is superseded
        self.statistics = statistics or StatisticsParams()
        self.name = workspace_name(workspace)
        self._lock: IO[str] | None = None
        self._known: dict[str, _Known] = {}
        self._session: dict[tuple[str, str], str] = {}  # cell id and record digest -> cell name
        self._checkout: Checkout | None = None
        self._tree: str | None = None
        self._counts = {"published": 0, "already": 0, "superseded": 0, "replaced": 0}
        self._refused: list[str] = []
        self._waiting: list[StoredCell] = []  # cells that another project is publishing now

    def __enter__(self) -> Self:
        name = hashlib.sha256(f"{self.workspace.output} {self.workspace.tracking_uri}".encode()).hexdigest()[:16]
        self._lock = (Path(tempfile.gettempdir()) / f"explainbench-publish-{name}.lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._lock.close()
            raise Unavailable(
                f"another process is publishing {self.workspace.output}; wait for it to end, then run publish again."
            ) from error
        self._checkout = read_checkout(self.workspace.root)
        self._tree = working_tree(Path(__file__).parents[1] / "explainbench")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._settle()
                self._supersede()
                for known in self._known.values():
                    if known.changed:
                        known.store.touch()
                        known.store.analyse()
        finally:
            if self._lock is not None:
                self._lock.close()

    @property
    def counts(self) -> Counts:
        """What was done so far."""
        return Counts(**self._counts, refused=tuple(self._refused))

    def open(self, suite: str = "energy") -> Store:
        """The experiment of a suite, created where it is missing. Raises Unavailable."""
        return self._of(suite).store

    def publish(self, stored: StoredCell) -> str | None:
        """Publish one cell; the id of its run, or None when the cell was refused. Raises Unavailable."""
        problem = first_problem(stored)
        if problem is not None:
            self._refused.append(problem)
            return None
        known = self._of(stored.cell.suite)
        key = (stored.record.cell_id, stored.digest)
        self._session[key] = str(stored.cell)
        if key in known.complete:
            self._counts["already"] += 1
            return known.complete[key].run_id
        checkout = self._checkout
        assert checkout is not None, "use Publisher as a context manager"
        _draw(stored)
        metrics = headline(stored, self.statistics)
        tags = {
            **record_tags(stored),
            **checkout.tags(),
            **({f"{PREFIX}code_tree": self._tree} if self._tree else {}),
            f"{PREFIX}workspace": self.name,
            f"{PREFIX}superseded": "false",
            "mlflow.note.content": note(stored, metrics, self.statistics.confidence),
        }
        run_id = known.store.write(
            run_name(stored.record),
            tags,
            parameters(stored, self.statistics),
            metrics | measurements(stored),
            [_dataset(stored.record, checkout)],
            stored.folder,
            unique=f"{PREFIX}record_sha256",
        )
        if run_id is None:
            self._waiting.append(stored)
            known.read()
            return None
        known.complete[key] = Row(run_id, "FINISHED", 0, {**tags, MARKER: "true"}, {})
        known.changed = True
        self._counts["published"] += 1
        return run_id

    def _of(self, suite: str) -> _Known:
        if suite not in self._known:
            known = _Known(open_experiment(self.workspace, suite))
            known.read()
            for row in known.half:
                if row.tags.get(f"{PREFIX}workspace") == self.name:  # others' may still be written
                    self._replace(known, row, "logging was interrupted")
            self._known[suite] = known
        return self._known[suite]

    def _replace(self, known: _Known, row: Row, because: str) -> None:
        """Close a half-logged run; its cell is then published anew."""
        if row.tags.get(f"{PREFIX}superseded") == "true":
            return
        known.tag(row, "superseded", "true")
        known.tag(row, "superseded_because", because)
        known.store.kill(row.run_id)
        self._counts["replaced"] += 1

    def _settle(self) -> None:
        """Come back to the cells that others were publishing, until each has its run; take over what they abandoned."""
        seen: dict[str, float] = {}  # run id -> when we first saw it unfinished, by our own clock
        pause = random.Random(self.name)  # two writers that made room for each other must not meet again
        while self._waiting:
            waiting, self._waiting = self._waiting, []
            time.sleep(pause.uniform(0.05, 0.5))
            for known in self._known.values():
                known.read()
                for row in known.half:
                    if time.monotonic() - seen.setdefault(row.run_id, time.monotonic()) > ABANDONED:
                        self._replace(known, row, "its writer went away")
            for stored in waiting:
                self.publish(stored)

    def _supersede(self) -> None:
        """Mark this project's runs whose cell was published anew or, in a whole sync, left cells.lock.json; unmark
        those that came back."""
        lock = set(self._session)
        if self.whole:
            lock |= set(read_lock(self.workspace.lock).items())
        names = set(self._session.values())
        for known in self._known.values():
            for key, row in known.complete.items():
                marked = row.tags.get(f"{PREFIX}superseded") == "true"
                ours = row.tags.get(f"{PREFIX}workspace") == self.name
                if key in lock:
                    if marked:
                        known.tag(row, "superseded", "false")
                elif ours and not marked and (self.whole or _cell_of(row.tags) in names):
                    known.tag(row, "superseded", "true")
                    self._counts["superseded"] += 1
            for row in known.extra:
                if row.tags.get(f"{PREFIX}superseded") != "true":
                    known.tag(row, "superseded", "true")
                    self._counts["superseded"] += 1


def publish_cells(
    workspace: Workspace,
    cells: Iterable[StoredCell],
    statistics: StatisticsParams | None = None,
    *,
    whole: bool = False,
) -> Counts:
    """Publish the cells that the tracking store does not hold. Raises Unavailable.

    whole: these are all cells there are, so runs of this project that cells.lock.json does not list are superseded.
    """
    found = list(cells)
    begin = int(workspace_name(workspace), 16) % max(1, len(found))  # projects that publish the same cells at once meet
    with Publisher(workspace, statistics, whole=whole) as publisher:  # late, when most of them are there
        for stored in found[begin:] + found[:begin]:
            publisher.publish(stored)
    return publisher.counts


def publish_workspace(workspace: Workspace, statistics: StatisticsParams | None = None) -> dict[str, Any]:
    """Bring the tracking store to the cells of cells.lock.json and to the boards of results/; twice changes nothing.

    Returns counts, and one sentence per cell that was refused. Raises Unavailable.
    """
    from mlflow_plugins.documents import publish_documents  # which itself builds on this module

    lock = read_lock(workspace.lock)
    store = CellStore(workspace.cells)
    cells: list[StoredCell] = []
    refused: list[str] = []
    listed = {cell_id[:16]: digest for cell_id, digest in lock.items()}
    for folder in store.folders():
        expected = listed.pop(folder.name.rsplit(".", 1)[-1], None)
        try:
            stored = store.read(folder)
        except (BadInput, Corrupt) as error:
            refused.append(str(error))
            continue
        if expected is None:
            refused.append(f"{folder.name} is not in {workspace.lock.name}; run `explainbench evaluate`")
        elif expected != stored.digest:
            refused.append(f"{folder / RECORD} does not have the digest that {workspace.lock.name} holds")
        else:
            cells.append(stored)
    refused += [f"cell {short} of {workspace.lock.name} is not in {workspace.cells}" for short in listed]
    counts = publish_cells(workspace, cells, statistics, whole=True)
    files = {suite: boards_path(workspace, suite) for suite in SUITES}
    boards = [
        publish_boards(
            workspace, read_json(path).get("boards", []), suite, [one for one in cells if one.cell.suite == suite]
        )
        for suite, path in files.items()
        if path.is_file()
    ]
    return {
        **asdict(counts),
        "refused": [*refused, *counts.refused],
        "boards_published": sum(done.published for done in boards),
        "boards_already": sum(done.already for done in boards),
        "boards_superseded": sum(done.superseded for done in boards),
        "documents_published": publish_documents(workspace),
    }


def boards_path(workspace: Workspace, suite: str) -> Path:
    """The file of a suite's boards."""
    return workspace.results / ("leaderboard.json" if suite == "energy" else f"{suite}.json")


@contextmanager
def live(
    workspace: Workspace, statistics: StatisticsParams | None, say: Callable[[str], None], suite: str = "energy"
) -> Iterator[Callable[[Path], None]]:
    """A function that publishes a finished cell's folder; a store out of reach is said once and stops nothing."""
    publisher: Publisher | None = Publisher(workspace, statistics)
    with ExitStack() as stack:

        def give_up(problem: Unavailable) -> None:
            nonlocal publisher
            publisher = None
            say(str(problem))

        def log(folder: Path) -> None:
            if publisher is None:
                return
            try:
                publisher.publish(CellStore(workspace.cells).read(folder))
            except Unavailable as problem:
                give_up(problem)

        try:
            publisher.open(suite)  # before any cell: a server that is down is found out now
            stack.enter_context(publisher)
        except Unavailable as problem:
            give_up(problem)
        yield log
        try:
            stack.close()
        except Unavailable as problem:
            say(str(problem))


def publish_boards(
    workspace: Workspace, boards: Iterable[Mapping[str, Any]], suite: str = "energy", cells: Iterable[StoredCell] = ()
) -> Counts:
    """One run per board that holds a number, idempotent by the digest of its content. Raises Unavailable.

    boards: as `analysis.boards.board_json` writes them. Their plain values at the top become tags, the means and
    intervals of their rows metrics, the datasets of their cells inputs; runs of boards that changed or went are tagged
    as superseded.
    """
    store = open_experiment(workspace, suite)
    name = workspace_name(workspace)
    wanted = {board["name"]: board for board in boards if any(row.get("mean") is not None for row in board["rows"])}
    digests = {key: sha256_json(board) for key, board in wanted.items()}
    there: set[str] = set()
    superseded = replaced = 0
    asked = [MARKER, *(f"{PREFIX}{key}" for key in ("board", "board_sha256", "superseded"))]
    for row in store.rows(f"tags.{PREFIX}kind = 'board' and tags.{PREFIX}workspace = '{name}'", asked):
        board = row.tags.get(f"{PREFIX}board", "")
        current = row.complete and board not in there and row.tags.get(f"{PREFIX}board_sha256") == digests.get(board)
        marked = row.tags.get(f"{PREFIX}superseded") == "true"
        if current:
            there.add(board)
        if current == marked:
            store.set_tag(row.run_id, f"{PREFIX}superseded", str(not current).lower())
            superseded += not current
        if not row.complete and not marked:
            store.kill(row.run_id)
            replaced += 1
    missing = sorted(wanted.keys() - there)
    if missing:
        checkout = read_checkout(workspace.root)
        uses = {stored.record.spec.dataset: _dataset(stored.record, checkout) for stored in cells}
        for key in missing:
            given = {**checkout.tags(), f"{PREFIX}workspace": name, f"{PREFIX}board_sha256": digests[key]}
            _write_board(store, wanted[key], given, uses.values())
    if missing or superseded:
        store.touch()
        store.analyse()
    return Counts(len(missing), len(there), superseded, replaced)


def _write_board(
    store: Store, board: Mapping[str, Any], given: Mapping[str, str], datasets: Iterable[DatasetUse]
) -> None:
    plain = {key: value for key, value in board.items() if isinstance(value, (str, int, float, bool)) and value != ""}
    tags = {f"{PREFIX}{key}": _text(value) for key, value in plain.items()} | dict(given)
    text = "\n".join(board_markdown(board)) + "\n"
    tags |= {
        f"{PREFIX}kind": "board",
        f"{PREFIX}schema": str(SCHEMA),
        f"{PREFIX}board": board["name"],
        f"{PREFIX}superseded": "false",
        "mlflow.note.content": text,
    }
    metrics = {}
    for row in board["rows"]:
        for key, suffix in (("mean", ""), ("low", ".lo"), ("high", ".hi")):
            if row.get(key) is not None:
                metrics[f"board/{_safe(row['entry'])}{suffix}"] = float(row[key])
    params = {"board_sha256": given[f"{PREFIX}board_sha256"], "protocol": board.get("protocol", "")}
    with tempfile.TemporaryDirectory(prefix="explainbench-") as temporary:
        write_json(Path(temporary) / "board.json", dict(board))
        write_bytes(Path(temporary) / "board.md", text.encode())
        store.write(board["name"], tags, params, metrics, datasets, Path(temporary))


def open_experiment(workspace: Workspace, suite: str) -> Store:
    """The experiment of a suite in the project's tracking store, created where it is missing. Raises Unavailable."""
    artifacts = workspace.output / "mlartifacts" / suite
    return ensure_store(
        workspace.tracking_uri, experiment_name(suite), artifacts, description(suite), view_columns(suite)
    )


def description(suite: str) -> str:
    """The experiment's description in MLflow."""
    return DESCRIPTION.format(suite=suite)


def view_columns(suite: str) -> list[str]:
    """Columns of the saved view of a suite's runs; the first one sorts."""
    if suite == "energy":
        return COLUMNS
    return [metric_name(board.score, board.which, [board.score]) for board in load_boards(suite).metrics]


def experiment_name(suite: str) -> str:
    """The MLflow experiment of a suite."""
    return f"explainbench-{suite}"


def workspace_name(workspace: Workspace) -> str:
    """Twelve hex digits that tell projects apart which share a tracking store; part of no digest."""
    return hashlib.sha256(str(workspace.output).encode()).hexdigest()[:12]


def run_name(record: CellRecord) -> str:
    """`model·method·task`."""
    cell = record.spec.cell
    return f"{cell.model}·{cell.method}·{cell.task}"


def cell_name(run: Run) -> str:
    """`suite/task/model/method` of a cell's run, from its tags."""
    return _cell_of(run.data.tags)


def _cell_of(tags: Mapping[str, str]) -> str:
    return "/".join(tags.get(PREFIX + key, "?") for key in ("suite", "task", "model", "method"))


def record_tags(stored: StoredCell) -> dict[str, str]:
    """The tags that follow from the record alone; an audit computes them again and compares."""
    record, spec = stored.record, stored.record.spec
    card = spec.method_card
    streams = stored.seeds().get("streams", {})
    named = {
        "kind": "cell",
        "schema": record.schema_version,
        "protocol": spec.protocol,
        "suite": spec.cell.suite,
        "task": spec.cell.task,
        "model": spec.cell.model,
        "method": spec.cell.method,
        "cell_id": record.cell_id,
        "record_sha256": stored.digest,
        "result_digest": record.result_digest,
        "dataset": spec.dataset,
        "dataset_sha256": spec.dataset_sha256,
        "windows_sha256": spec.windows_sha256,
        "model_card_sha256": spec.model_card_sha256,
        "weights_sha256": spec.weights_sha256,
        "weights_source": spec.weights_source,
        "deterministic": card.get("deterministic"),
        "baseline": card.get("category") == "baseline",
        "runs": spec.runs,
        "seed": spec.seed,
        "seed_sequence": f"SeedSequence({spec.seed}, spawn_key=SHA-256 of names): {', '.join(sorted(streams))}",
        "masker": spec.parameters.get("masker"),
        "groups": len(record.groups),
        "basis": _basis(record),
        "sources_sha256": sha256_json(spec.sources),
    }
    return {PREFIX + key: _text(value) for key, value in named.items()}


def _basis(record: CellRecord) -> str:
    """Of what the energy suite's EQI is made; other suites have no composites."""
    if record.spec.cell.suite != "energy":
        return ""
    return "F+Fid" if "fidelity" in record.scores else "F"


def parameters(stored: StoredCell, statistics: StatisticsParams) -> dict[str, str]:
    """MLflow params, which its API cannot overwrite: protocol, task, method and metric options, the record's digest."""
    spec = stored.record.spec
    found: dict[str, Any] = {
        "protocol": spec.protocol,
        "seed": spec.seed,
        "runs": spec.runs,
        "model": spec.cell.model,
        "method": spec.cell.method,
        "task": spec.cell.task,
        "record_sha256": stored.digest,
        "statistics.bootstrap": statistics.bootstrap,
        "statistics.confidence": statistics.confidence,
    }
    found |= _flat(spec.parameters)
    found |= {f"library.{name}": version for name, version in spec.libraries.items()}
    return {_safe(key): _text(value) for key, value in found.items()}


def headline(stored: StoredCell, statistics: StatisticsParams) -> dict[str, float]:
    """Numbers that follow from the cell's files alone: means over windows with `.lo` and `.hi`, counters, diagnostics.

    The interval is the percentile bootstrap of the mean over the windows where the score is defined.
    """
    metrics: dict[str, float] = {}
    columns: dict[int, dict[str, Floats]] = {}
    asked = stored.record.spec.parameters.get("metrics", {})
    for score, (raw, value) in sorted(score_arrays(stored).items()):
        if score.startswith(UNPUBLISHED):
            continue
        for kind, array in (("value", value), ("raw", raw)):
            name = metric_name(score, kind, asked)
            if array is None or name in metrics:
                continue
            finite = array[np.isfinite(array)]
            if not len(finite):
                continue
            metrics[name] = float(finite.mean())
            if len(finite) > 1:
                columns.setdefault(len(finite), {})[name] = finite
    for n, arrays in columns.items():
        indices = resample_indices(n, statistics.bootstrap, stream(stored.record.spec.seed, "interval", n))
        intervals = mean_intervals(np.stack(list(arrays.values()), axis=1), indices, statistics.confidence)
        for name, low, high in zip(arrays, intervals.low, intervals.high, strict=True):
            metrics[f"{name}.lo"], metrics[f"{name}.hi"] = float(low), float(high)
    record = stored.record
    metrics["cost/evaluations_per_explanation"] = record.evaluations_per_explanation
    metrics["cost/gradients_per_explanation"] = record.gradients_per_explanation
    metrics |= {f"diagnostics/{_safe(name)}": value for name, value in record.notes.items()}
    return metrics


def measurements(stored: StoredCell) -> dict[str, float]:
    """Archived measurements of this execution; in no digest and compared by no audit."""
    measured = stored.measured()
    if measured is None:
        return {}
    return {
        "measured/seconds": measured.seconds,
        "measured/model_seconds": measured.model_seconds,
        "measured/peak_memory_mb": measured.peak_memory_mb,
    }


def score_arrays(stored: StoredCell) -> dict[str, tuple[Floats, Floats | None]]:
    """{score: (raw (n,), value (n,) or None)} in window order, NaN where a window has none; a set's score is (1,)."""
    table = stored.scores()
    columns = [table.column(name).to_pylist() for name in ("metric", "window", "status", "raw", "value")]
    rows: dict[str, list[tuple[int, float | None, float | None]]] = {}
    for metric, window, status, raw, value in zip(*columns, strict=True):
        if status == "value" or window >= 0:
            rows.setdefault(metric, []).append((window, raw, value))
    found: dict[str, tuple[Floats, Floats | None]] = {}
    for metric, items in rows.items():
        items.sort(key=lambda item: item[0])
        raw = np.array([np.nan if item[1] is None else item[1] for item in items], dtype=np.float64)
        value = np.array([np.nan if item[2] is None else item[2] for item in items], dtype=np.float64)
        found[metric] = (raw, None if np.isnan(value).all() else value)
    return found


def metric_name(score: str, kind: str, metrics: Iterable[str]) -> str:
    """`family/name`: a metric's own score is `metric/value` ([0, 1]) or `metric/raw`, its others `metric/other`."""
    if score in NAMES:
        return NAMES[score]
    if score.startswith("act."):  # Actionability in one deployment context
        return score
    families = sorted((name for name in metrics if score == name or score.startswith(f"{name}_")), key=len)
    if not families:
        return f"score/{score}"
    family = families[-1]
    return f"{family}/{kind}" if score == family else f"{family}/{score.removeprefix(f'{family}_')}"


def note(stored: StoredCell, metrics: Mapping[str, float], confidence: float = 0.95) -> str:
    """The run's description in markdown: what the cell is, its numbers with intervals, its gaps, how to audit it."""
    record, spec = stored.record, stored.record.spec
    cell = spec.cell
    lines = [
        f"**{cell.model} x {cell.method}** on task {cell.task} ({spec.parameters.get('task', {}).get('target', '')})",
        "",
    ]
    banner = _banner(spec.dataset)
    if banner:
        lines += [f"> {banner}", ""]
    lines += [f"| score | mean | {confidence:.0%} interval |", "| --- | --- | --- |"]
    for name, value in metrics.items():
        if f"{name}.lo" in metrics:
            lines.append(f"| {name} | {value:.4g} | [{metrics[f'{name}.lo']:.4g}, {metrics[f'{name}.hi']:.4g}] |")
    if record.skipped:
        lines += [
            "",
            "Without a number: " + "; ".join(f"{k} ({v.status}: {v.reason})" for k, v in record.skipped.items()),
        ]
    audit = f"explainbench audit {cell.cell}"
    lines += ["", f"Check the whole chain behind these numbers: `{audit}`, and compute them again: `{audit} --replay`."]
    return "\n".join(lines)


def _draw(stored: StoredCell) -> None:
    """Draw the cell's figures where they are missing; a cell is worth publishing without them."""
    if not stored.figures():
        try:
            load_suite(stored.cell.suite).draw(stored)
        except ExplainBenchError:
            return


def _dataset(record: CellRecord, checkout: Checkout) -> DatasetUse:
    source = {
        "url": "data",
        "dataset": record.spec.dataset,
        "sha256": record.spec.dataset_sha256,
        "revision": checkout.commit,
        "md5": checkout.data_md5,
    }
    return DatasetUse(record.spec.dataset, record.spec.dataset_sha256, source)


def _banner(dataset: str) -> str | None:
    from explainbench.core.registry import DATASETS

    try:
        return DATASETS.card(dataset).banner
    except BadInput:
        return None


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _safe(name: str) -> str:
    """A name that MLflow accepts: letters, digits and `_-. /`; the dot between model and method becomes a full stop."""
    return "".join(char if char.isalnum() or char in "_-. /" else "_" for char in name.replace("·", "."))
