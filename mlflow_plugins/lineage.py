"""Audit: from a row, run or cell back to the data, every link hashed again, every disagreement named."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from explainbench.core.errors import BadInput, Corrupt, ExplainBenchError, NotApplicable, Unavailable
from explainbench.core.files import read_json
from explainbench.core.params import Params, StatisticsParams
from explainbench.core.provenance import sha256_file, sha256_json, source_identity
from explainbench.core.workspace import Workspace
from explainbench.data._manifest import NAME as MANIFEST
from explainbench.data._manifest import data_files, dataset_sha256, read_manifest
from explainbench.stages.suite import NAMES as SUITES
from explainbench.stages.suite import load_suite
from explainbench.store import DETERMINISTIC, RECORD, CellStore, StoredCell, read_lock
from mlflow_plugins._checkout import dvc_md5, git, read_checkout
from mlflow_plugins._mlflow import Store, complete, open_store
from mlflow_plugins.publish import PREFIX, boards_path, experiment_name, headline, parameters, record_tags

if TYPE_CHECKING:
    from mlflow.entities import Run
    from rich.tree import Tree

COMMITS = 300  # how far back the code of a record is looked for
MEASURED = "measured/"  # metrics that no audit compares


class Replayed(Protocol):
    """What recomputing a cell found (`explainbench.stages.replay.Replay`)."""

    @property
    def expected(self) -> str: ...
    @property
    def found(self) -> str: ...
    @property
    def detail(self) -> str: ...
    @property
    def same_bits(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Link:
    """One link of the chain. ok: True, False, or None where it could not be checked; detail says why."""

    name: str
    expected: str
    found: str
    ok: bool | None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Chain:
    """The links of one cell, from its run down to git."""

    cell: str
    cell_id: str
    run_id: str | None
    links: tuple[Link, ...]

    @property
    def ok(self) -> bool:
        """Whether no link is broken; links that could not be checked do not count."""
        return all(link.ok is not False for link in self.links)

    @property
    def broken(self) -> tuple[Link, ...]:
        """The links that do not hold."""
        return tuple(link for link in self.links if link.ok is False)

    def as_json(self) -> dict[str, Any]:
        """The chain as plain JSON."""
        return {
            "ok": self.ok,
            "cell": self.cell,
            "cell_id": self.cell_id,
            "run_id": self.run_id,
            "links": [asdict(link) for link in self.links],
        }


def audit(
    workspace: Workspace,
    what: str,
    recompute: Callable[[StoredCell], Replayed] | None = None,
    params: Params | None = None,
) -> Chain:
    """Check the whole chain behind a run id, a cell id (or its beginning) or a cell name such as `T1/lstm/shap`.

    Works without a tracking store; that link is then left unchecked, with the reason. `recompute` adds a replay;
    `params` lets cells of suites without files of their own be identified again. Raises BadInput when nothing is found.
    """
    subject = _resolve(workspace, what)
    links = [*_run_links(workspace, subject)]
    stored = subject.stored
    if stored is None:
        links.append(Link("record", subject.cell, "unreadable", False, subject.problem))
        links.append(Link("everything behind the record", "", "", None, "the record cannot be read"))
        return Chain(subject.cell, subject.cell_id, subject.run_id, tuple(links))
    links = [*_row_links(workspace, stored), *links]
    energy = (_weight_links, _window_links, _data_links, _dvc_links) if stored.cell.suite == "energy" else ()
    for check in (_record_links, _file_links, _source_links, *energy):
        try:
            links += check(workspace, stored)
        except ExplainBenchError as error:  # a check that cannot even start is a broken link, and the rest goes on
            links.append(
                Link(check.__name__.strip("_").removesuffix("_links"), "readable", "unreadable", False, str(error))
            )
    if not energy:
        links += _input_links(workspace, stored, params)
    links += _git_links(workspace, stored)
    if recompute is not None:
        links.append(_replay_link(stored, recompute))
    return Chain(str(stored.cell), stored.record.cell_id, subject.run_id, tuple(links))


def render(chain: Chain) -> Tree:
    """The chain as a tree for a terminal; broken links in red with what was expected and found."""
    from rich.markup import escape
    from rich.tree import Tree

    verdict = "[green]verified[/]" if chain.ok else f"[bold red]{len(chain.broken)} broken[/]"
    tree = Tree(f"[bold]{escape(chain.cell)}[/] ({chain.cell_id[:16]}): {verdict}")
    for link in chain.links:
        mark = {True: "[green]ok[/]", False: "[bold red]BROKEN[/]", None: "[yellow]not checked[/]"}[link.ok]
        detail = f": {escape(link.detail)}" if link.detail else ""
        branch = tree.add(f"{mark} {escape(link.name)}{detail}")
        if link.ok is False:
            branch.add(f"expected {escape(link.expected or '-')}")
            branch.add(f"found    {escape(link.found or '-')}")
        elif link.ok and link.found:
            branch.label = f"{branch.label} [dim]{escape(link.found[:16])}[/]"
    return tree


@dataclass(slots=True)
class _Subject:
    """What an audit is about, as far as it could be found."""

    cell: str
    cell_id: str
    stored: StoredCell | None
    problem: str = ""  # why there is no readable record
    runs: list[Run] = field(default_factory=list)
    store: Store | None = None
    unavailable: str = ""  # why the tracking store was not asked
    asked_for_run: bool = False

    @property
    def run_id(self) -> str | None:
        return self.runs[0].info.run_id if self.runs else None


def _resolve(workspace: Workspace, what: str) -> _Subject:
    text = what.strip()
    if not text:
        raise BadInput("give a run id, a cell id (or its beginning) or a cell name such as T1/lstm/shap.")
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
    if found:
        lock = read_lock(workspace.lock)
        ids = {key[:16] for key in lock}
        folder = next((one for one in found if one.name.rsplit(".", 1)[-1] in ids), found[-1])
        subject = _of_folder(folder)
        _look_up_runs(workspace, subject)
        return subject
    return _of_run(workspace, text, what)


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
    name, cell_id = "/".join(parts[:-1]), parts[-1]
    try:
        stored = CellStore(folder.parent).read(folder)
    except (BadInput, Corrupt) as error:
        return _Subject(name, cell_id, None, str(error))
    return _Subject(str(stored.cell), stored.record.cell_id, stored)


def _of_run(workspace: Workspace, text: str, what: str) -> _Subject:
    unknown = BadInput(
        f"no run, cell id or cell name {what!r} in {workspace.cells} or its tracking store; "
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
        raise BadInput(f"run {text} is not a cell's run; audit the rows of a board by their cell names.")
    cell_id = tags.get(f"{PREFIX}cell_id", "")
    record = store.artifact(run, RECORD)
    folders = CellStore(workspace.cells).folders()
    folder = next((one for one in folders if cell_id and one.name.endswith(f".{cell_id[:16]}")), None)
    if folder is None and record is not None:
        folder = record.parent  # a superseded cell: only its run still has the files
    name = "/".join(tags.get(PREFIX + key, "?") for key in ("suite", "task", "model", "method"))
    subject = _Subject(name, cell_id, None, f"neither cells/ nor the run holds {RECORD} of cell {cell_id[:16]}")
    if folder is not None:
        found = _of_folder(folder)
        if folder.parent != workspace.cells and found.stored is None:
            subject.problem = found.problem
        else:
            subject = found
    subject.store, subject.runs, subject.asked_for_run = store, [run], True
    return subject


def _look_up_runs(workspace: Workspace, subject: _Subject) -> None:
    """The run of this cell: by its id, else by its name, so that a run with altered tags is still found."""
    suite, task, model, method = subject.cell.split("/")
    try:
        store = open_store(workspace.tracking_uri, experiment_name(suite))
        if store is None:
            subject.unavailable = "nothing was published yet; run `explainbench publish`"
            return
        subject.store = store
        found = list(store.runs(f"tags.{PREFIX}kind = 'cell' and tags.{PREFIX}cell_id = '{subject.cell_id}'"))
        if not found:
            wanted = (
                f"tags.{PREFIX}task = '{task}' and tags.{PREFIX}model = '{model}' and tags.{PREFIX}method = '{method}'"
            )
            found = [run for run in store.runs(wanted) if run.data.tags.get(f"{PREFIX}kind") != "board"]
    except Unavailable as error:
        subject.unavailable = str(error)
        return
    current = [run for run in found if run.data.tags.get(f"{PREFIX}superseded") != "true" and complete(run)]
    digest = subject.stored.digest if subject.stored is not None else ""
    current.sort(key=lambda run: run.data.tags.get(f"{PREFIX}record_sha256") != digest)
    subject.runs = current[:1]
    if not current:
        subject.unavailable = "no finished run of this cell is in the tracking store; run `explainbench publish`"


def _row_links(workspace: Workspace, stored: StoredCell) -> Iterator[Link]:
    """The rows of the suite's boards that show this cell: made from its record, and not altered since."""
    path = boards_path(workspace, stored.cell.suite)
    if not path.is_file():
        yield Link("board rows", stored.digest, "", None, f"no results/{path.name} yet; run `explainbench leaderboard`")
        return
    name, count, altered = str(stored.cell), 0, False
    others: list[str] = []
    try:
        for board in read_json(path)["boards"]:
            digests = [ref["record_digest"] for row in board["rows"] for ref in row["cells"] if ref["cell"] == name]
            count += len(digests)
            others += [digest for digest in digests if digest != stored.digest]
            found = sha256_json(board["rows"])
            if digests and found != board["rows_sha256"]:
                altered = True
                detail = "rows were altered after the board was made; run `explainbench leaderboard`"
                yield Link(f"board {board['name']}", board["rows_sha256"], found, False, detail)
    except (BadInput, Corrupt, KeyError, TypeError) as error:
        yield Link("board rows", "readable", "unreadable", False, f"{path.name} is not a leaderboard: {error}")
        return
    if others:
        detail = f"{len(others)} of {count} rows of {path.name} were made from another record; rebuild the boards"
        yield Link("board rows", stored.digest, others[0], False, detail)
    elif not count:
        yield Link("board rows", stored.digest, "", None, "no board shows this cell")
    elif not altered:
        yield Link("board rows", stored.digest, stored.digest, True, f"{count} rows of {path.name} name this record")


def _run_links(workspace: Workspace, subject: _Subject) -> Iterator[Link]:
    if not subject.runs or subject.store is None:
        yield Link("run", subject.cell_id, "", None, subject.unavailable)
        return
    run, stored = subject.runs[0], subject.stored
    superseded = run.data.tags.get(f"{PREFIX}superseded") == "true"
    yield Link("run", run.info.run_id, run.info.run_id, True, "superseded by a later one" if superseded else "found")
    if stored is None:
        return
    expected = record_tags(stored)
    yield from _compared("tag", "run tags", expected, run.data.tags)
    statistics = _statistics(run)
    yield from _compared("param", "run params", parameters(stored, statistics), run.data.params)
    yield from _metric_links(stored, run, statistics)
    files = {RECORD: stored.digest, **{name: stored.record.artifacts.get(name, "") for name in DETERMINISTIC}}
    wrong = False
    for name, digest in files.items():
        path = subject.store.artifact(run, name)
        found = "missing" if path is None else sha256_file(path)
        if found != digest:
            wrong = True
            yield Link(f"run artifact {name}", digest, found, False, "the run's file is not that of the record")
    if not wrong:
        yield Link("run artifacts", "", "", True, f"{len(files)} files have the digests of the record")


def _compared(kind: str, title: str, expected: dict[str, str], found: dict[str, str]) -> Iterator[Link]:
    wrong = [key for key, value in expected.items() if found.get(key) != value]
    for key in wrong:
        yield Link(
            f"run {kind} {key}", expected[key], found.get(key, "missing"), False, "does not follow from the record"
        )
    if not wrong:
        yield Link(title, "", "", True, f"{len(expected)} follow from the record")


def _metric_links(stored: StoredCell, run: Run, statistics: StatisticsParams) -> Iterator[Link]:
    try:
        expected = headline(stored, statistics)
    except (BadInput, Corrupt) as error:
        yield Link("run metrics", "", "", None, f"the scores cannot be read: {error}")
        return
    found = {key: value for key, value in run.data.metrics.items() if not key.startswith(MEASURED)}
    wrong = [
        key
        for key in sorted(expected.keys() | found.keys())
        if key not in expected
        or key not in found
        or not math.isclose(expected[key], found[key], rel_tol=1e-9, abs_tol=1e-12)
    ]
    for key in wrong:
        wanted, got = (repr(side[key]) if key in side else "missing" for side in (expected, found))
        yield Link(f"run metric {key}", wanted, got, False, "does not follow from scores.parquet")
    if not wrong:
        yield Link("run metrics", "", "", True, f"{len(expected)} follow from scores.parquet")


def _statistics(run: Run) -> StatisticsParams:
    params = run.data.params
    try:
        return StatisticsParams(
            bootstrap=int(params["statistics.bootstrap"]), confidence=float(params["statistics.confidence"])
        )
    except (KeyError, ValueError):
        return StatisticsParams()


def _record_links(workspace: Workspace, stored: StoredCell) -> Iterator[Link]:
    record = stored.record
    lock = read_lock(workspace.lock)
    found = lock.get(record.cell_id)
    detail = f"{RECORD} has the digest that {workspace.lock.name} holds for this cell"
    if not lock:
        yield Link("record in the lock", stored.digest, "", None, f"there is no {workspace.lock.name}; run evaluate")
    elif found is None:
        detail = f"{workspace.lock.name} does not list this cell: it left the grid or was never locked"
        yield Link("record in the lock", stored.digest, "missing", False, detail)
    elif found != stored.digest:
        detail = f"{RECORD} or {workspace.lock.name} was altered; `git log -p {workspace.lock.name}` says which"
        yield Link("record in the lock", found, stored.digest, False, detail)
    else:
        yield Link("record in the lock", found, stored.digest, True, detail)
    derived = sha256_json(record.spec.model_dump(mode="json"))
    yield _same("cell id", record.cell_id, derived, "SHA-256 of the specification in the record")
    result = sha256_json(record.artifacts)
    yield _same("result digest", record.result_digest, result, "SHA-256 of the artifact list in the record")


def _file_links(workspace: Workspace, stored: StoredCell) -> Iterator[Link]:
    for name in DETERMINISTIC:
        path = stored.folder / name
        found = sha256_file(path) if path.is_file() else "missing"
        yield _same(name, stored.record.artifacts.get(name, "not in the record"), found, "")


def _source_links(workspace: Workspace, stored: StoredCell) -> Iterator[Link]:
    """The code now, and which commit holds the code of the record."""
    recorded = stored.record.spec.sources
    there = source_identity(recorded)
    now = {module: there.get(module, "missing") for module in recorded}
    changed = [module for module in recorded if now[module] != recorded[module]]
    commit, searched = _commit_with(recorded)
    where = f"committed in {commit[:12]}" if commit else searched
    digest = sha256_json(recorded)
    if not changed:
        yield Link("source modules", digest, digest, True, f"{len(recorded)} modules unchanged; {where}")
        return
    detail = f"{', '.join(changed[:4])}{' and others' if len(changed) > 4 else ''} changed since; "
    found = sha256_json(now)
    if commit:
        detail += f"the record's code is {where}"
        yield Link("source modules", digest, digest, True, detail)
    else:
        yield Link("source modules", digest, found, False, detail + f"{where}: evaluate again, or find the code")


def _commit_with(recorded: dict[str, str]) -> tuple[str | None, str]:
    """The newest commit whose package holds exactly these blobs, and else why none was found."""
    package = Path(__file__).parents[1] / "explainbench"
    ours = {name: blob for name, blob in recorded.items() if name.split(".")[0] == package.name}
    top = git(package, "rev-parse", "--show-toplevel")
    if top is None:
        return None, "no git repository holds the package"
    prefix = package.resolve().relative_to(Path(top).resolve()).as_posix()
    commits = (git(Path(top), "rev-list", f"--max-count={COMMITS}", "HEAD", "--", prefix) or "").split()
    for commit in commits:
        blobs = {}
        for line in (git(Path(top), "ls-tree", "-r", commit, "--", prefix) or "").splitlines():
            meta, path = line.split("\t", 1)
            blobs[path] = meta.split()[2]
        if all(_blob_of(module, prefix, blobs) == blob for module, blob in ours.items()):
            return commit, ""
    return None, f"none of the last {len(commits)} commits that touch {prefix} holds this code (not committed yet?)"


def _blob_of(module: str, prefix: str, blobs: dict[str, str]) -> str | None:
    path = "/".join([prefix, *module.split(".")[1:]])
    return blobs.get(f"{path}.py") or blobs.get(f"{path}/__init__.py")


def _weight_links(workspace: Workspace, stored: StoredCell) -> Iterator[Link]:
    spec = stored.record.spec
    folder = workspace.models / spec.cell.task / spec.cell.model
    card_path = folder / "card.json"
    found = sha256_file(card_path) if card_path.is_file() else "missing"
    yield _same("model card", spec.model_card_sha256, found, f"{spec.cell.task}/{spec.cell.model}/card.json")
    if found == "missing":
        yield Link("weights", spec.weights_sha256, "", None, "there is no model card that names the file")
        return
    card = read_json(card_path)
    if card.get("weights", {}).get("file", "") is None:
        detail = f"official weights of {card.get('options', {}).get('checkpoint')} lie outside the project"
        yield Link("weights", spec.weights_sha256, "", None, detail)
        return
    weights = folder / str(card.get("weights", {}).get("file", "model.safetensors"))
    if weights.parent != folder or not weights.is_file():
        yield Link(
            "weights", spec.weights_sha256, "missing", False, f"{weights.name} is not there; run `dvc pull` or fit"
        )
    else:
        yield _same("weights", spec.weights_sha256, sha256_file(weights), weights.name)
    trained_on = card.get("dataset_sha256")
    if trained_on is None:
        yield Link("training record", spec.dataset_sha256, "", None, "the card names no dataset")
    else:
        training = card.get("training", {})
        detail = f"{training.get('windows', '?')} training windows, {training.get('epochs', '?')} epochs, same dataset"
        yield _same("training record", spec.dataset_sha256, str(trained_on), detail)


def _window_links(workspace: Workspace, stored: StoredCell) -> Iterator[Link]:
    from explainbench.stages.data import load_task

    spec = stored.record.spec
    if not (workspace.windows / f"{spec.cell.task}.npz").is_file():
        yield Link("windows", spec.windows_sha256, "", None, "not cut here; run `explainbench data windows`")
        return
    yield _same("windows", spec.windows_sha256, load_task(workspace, spec.cell.task).windows.digest(), "window set")


def _data_links(workspace: Workspace, stored: StoredCell) -> Iterator[Link]:
    spec = stored.record.spec
    found = dataset_sha256(workspace.root, spec.dataset)
    yield _same("dataset manifest", spec.dataset_sha256, found, f"part of {MANIFEST} about {spec.dataset}")
    files = data_files(workspace.root)
    wrong = False
    listed = {name: entry for name, entry in read_manifest(workspace.root).items() if _belongs(name, spec.dataset)}
    for name, entry in sorted(listed.items()):
        found = sha256_file(files[name]) if name in files else "missing"
        if found != entry["sha256"]:
            wrong = True
            detail = "restore it with `dvc checkout --force data.dvc`"
            yield Link(f"data file {name}", entry["sha256"], found, False, detail)
    for name in sorted(name for name in files if _belongs(name, spec.dataset) and name not in listed):
        wrong = True
        yield Link(
            f"data file {name}", f"not in {MANIFEST}", sha256_file(files[name]), False, "a file nobody vouches for"
        )
    if not wrong:
        yield Link("data files", "", "", True, f"{len(listed)} files have the digests of {MANIFEST}")


def _belongs(name: str, dataset: str) -> bool:
    return name.startswith(f"data/{dataset}/")


def _input_links(workspace: Workspace, stored: StoredCell, params: Params | None) -> Iterator[Link]:
    """Data and model of a cell whose suite identifies them itself: identified again, and compared with the record."""
    spec = stored.record.spec
    try:
        if params is None:
            raise BadInput("the parameters were not given")
        now = load_suite(spec.cell.suite).spec(workspace, params, stored.cell)
    except (ExplainBenchError, NotApplicable) as reason:
        yield Link("data and model", spec.dataset_sha256, "", None, f"cannot be identified here: {reason}")
        return
    for key, title in (
        ("dataset_sha256", "dataset"),
        ("windows_sha256", "rows"),
        ("model_card_sha256", "model card"),
        ("weights_sha256", "weights"),
    ):
        yield _same(title, getattr(spec, key), getattr(now, key), f"{spec.dataset}, {spec.weights_source} weights")


def _dvc_links(workspace: Workspace, stored: StoredCell) -> Iterator[Link]:
    expected = dvc_md5(workspace.root / "data.dvc")
    if expected is None:
        yield Link("DVC", "", "", None, "no data.dvc in this project")
        return
    yield _same("DVC", expected, directory_md5(workspace.data), "data.dvc, hash of the folder recomputed")


def directory_md5(folder: Path) -> str:
    """DVC's hash of a folder: the MD5 of the JSON list of its files' MD5s and relative paths, with `.dir`."""
    entries = []
    for path in sorted(item for item in folder.rglob("*") if item.is_file()):
        with path.open("rb") as handle:
            digest = hashlib.file_digest(handle, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
        entries.append({"md5": digest, "relpath": path.relative_to(folder).as_posix()})
    entries.sort(key=lambda entry: entry["relpath"])
    listing = json.dumps(entries, sort_keys=True).encode()
    return hashlib.md5(listing, usedforsecurity=False).hexdigest() + ".dir"


def _git_links(workspace: Workspace, stored: StoredCell) -> Iterator[Link]:
    checkout = read_checkout(workspace.root)
    if checkout.commit is None:
        yield Link("git", "", "", None, "the project is in no git repository, or nothing is committed")
        return
    state = f"at {checkout.commit[:12]}, {'with uncommitted changes' if checkout.dirty else 'clean'}"
    top = git(workspace.root, "rev-parse", "--show-toplevel")
    lock = workspace.lock.resolve()
    committed = None
    if top is not None and lock.is_relative_to(Path(top).resolve()):
        committed = git(workspace.root, "show", f"HEAD:{lock.relative_to(Path(top).resolve()).as_posix()}")
    if committed is None:
        yield Link("git", stored.digest, "", None, f"{state}; {lock.name} is not committed, so nothing outside vouches")
        return
    try:
        found = json.loads(committed)["cells"].get(stored.record.cell_id, "missing")
    except (json.JSONDecodeError, KeyError, TypeError, AttributeError):
        found = "unreadable"
    if found == "missing":
        yield Link("git", stored.digest, found, None, f"{state}; the committed {lock.name} does not list this cell yet")
    else:
        detail = f"{state}; digest in the committed {lock.name}"
        if found != stored.digest:
            detail += "; computed on another processor type? then compare with `explainbench verify --against`"
        yield _same("git", found, stored.digest, detail)


def _replay_link(stored: StoredCell, recompute: Callable[[StoredCell], Replayed]) -> Link:
    expected = stored.record.result_digest
    try:
        replay = recompute(stored)
    except NotApplicable as reason:
        return Link("replay", expected, "", None, reason.reason)
    except ExplainBenchError as error:
        return Link("replay", expected, "", False, str(error))
    return Link("replay", replay.expected, replay.found, replay.same_bits, replay.detail)


def _same(name: str, expected: str, found: str, detail: str) -> Link:
    return Link(name, expected, found, expected == found, detail)
