"""What many audits of one project share, read and hashed once: lock, boards, git, data, models, code, runs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, cast

import yaml

from explainbench.core.errors import BadInput, Corrupt, ExplainBenchError
from explainbench.core.files import read_json
from explainbench.core.params import Params, load_params
from explainbench.core.provenance import blob_id, source_identity
from explainbench.core.workspace import Workspace
from explainbench.store import read_lock
from mlflow_plugins._checkout import Checkout, git, git_bytes, read_checkout
from mlflow_plugins.publish import boards_path

T = TypeVar("T")
COMMITS = 300  # how far back the code of a record is looked for
PACKAGE = Path(__file__).parents[1] / "explainbench"
CODE = "code"  # folder of a bundle that holds the sources behind its cells


@dataclass
class Site:
    """One project under audit.

    params: as the command line read them, or None; bundle: an unpacked export; many: more than one cell is audited.
    """

    workspace: Workspace
    params: Params | None = None
    bundle: bool = False
    many: bool = False
    memo: dict[Any, Any] = field(default_factory=dict)

    def once(self, key: Any, compute: Callable[[], T]) -> T:
        """The result of `compute` under that key; an error it raises is raised every time."""
        if key not in self.memo:
            try:
                self.memo[key] = compute()
            except ExplainBenchError as error:
                self.memo[key] = error
        if isinstance(self.memo[key], ExplainBenchError):
            raise self.memo[key]
        return cast(T, self.memo[key])

    @property
    def lock(self) -> dict[str, str]:
        """cells.lock.json. Raises Corrupt."""
        return self.once("lock", lambda: read_lock(self.workspace.lock))

    @cached_property
    def checkout(self) -> Checkout:
        """Where git and DVC stand."""
        return read_checkout(self.workspace.root)

    def boards(self, suite: str) -> dict[str, Any] | None:
        """The file of a suite's boards, or None where there is none. Raises Corrupt."""
        path = boards_path(self.workspace, suite)

        def read() -> dict[str, Any] | None:
            if not path.is_file():
                return None
            content = read_json(path)
            whole = isinstance(content, dict) and isinstance(content.get("boards"), list)
            if not whole or not all(isinstance(board, dict) and "rows" in board for board in content["boards"]):
                raise Corrupt(f"{path.name} is not a leaderboard; run `explainbench leaderboard`.")
            return content

        return self.once(("boards", suite), read)

    def committed(self, path: Path) -> bytes | None:
        """A file as the newest commit holds it, or None outside a repository and for files git does not track."""
        top = self.top
        resolved = path.resolve()
        if top is None or not resolved.is_relative_to(top):
            return None
        return self.once(
            ("committed", path), lambda: git_bytes(top, "show", f"HEAD:{resolved.relative_to(top).as_posix()}")
        )

    @cached_property
    def top(self) -> Path | None:
        """The folder of the repository that holds the project."""
        found = None if self.bundle else git(self.workspace.root, "rev-parse", "--show-toplevel")
        return None if found is None else Path(found).resolve()

    @cached_property
    def candidates(self) -> dict[str, Params]:
        """The parameters that may have been used: as given, then every profile of params.yaml."""
        found: dict[str, Params] = {} if self.params is None else {"": self.params}
        path = self.workspace.params
        try:
            found.setdefault("", load_params(path))
            for name in yaml.safe_load(path.read_text(encoding="utf-8")).get("profiles") or {}:
                found[f"profile {name}"] = load_params(path, name)
        except (ExplainBenchError, AttributeError, OSError, yaml.YAMLError):
            pass  # a broken params.yaml is named by the check that needs it
        return found

    def sources(self, recorded: dict[str, str]) -> dict[str, str]:
        """{module: git blob id of its file now} for the modules of a record; absent ones are `missing`."""

        def now() -> dict[str, str]:
            if self.bundle:
                files = {module: self.workspace.root / CODE / f"{module.replace('.', '/')}.py" for module in recorded}
                return {module: blob_id(path.read_bytes()) for module, path in files.items() if path.is_file()}
            return source_identity(recorded)

        there = self.once(("sources", frozenset(recorded)), now)
        return {module: there.get(module, "missing") for module in recorded}

    def commit_with(self, recorded: dict[str, str]) -> tuple[str | None, str]:
        """The newest commit whose package holds exactly these blobs, and else why none was found."""
        return self.once(("commit", frozenset(recorded.items())), lambda: self._commit_with(recorded))

    def _commit_with(self, recorded: dict[str, str]) -> tuple[str | None, str]:
        ours = {name: blob for name, blob in recorded.items() if name.split(".")[0] == PACKAGE.name}
        top = self.once("package top", lambda: git(PACKAGE, "rev-parse", "--show-toplevel"))
        if top is None:
            return None, "no git repository holds the package"
        prefix = PACKAGE.resolve().relative_to(Path(top).resolve()).as_posix()
        limit = f"--max-count={COMMITS}"
        commits = self.once("commits", lambda: git(Path(top), "rev-list", limit, "HEAD", "--", prefix) or "").split()
        for commit in commits:
            tree = self.once(("tree", commit), lambda commit=commit: _blobs(Path(top), commit, prefix))
            if all(_blob_of(module, prefix, tree) == blob for module, blob in ours.items()):
                return commit, ""
        return None, f"none of the last {len(commits)} commits that touch {prefix} holds this code (not committed yet?)"


def _blobs(top: Path, commit: str, prefix: str) -> dict[str, str]:
    found = {}
    for line in (git(top, "ls-tree", "-r", commit, "--", prefix) or "").splitlines():
        meta, path = line.split("\t", 1)
        found[path] = meta.split()[2]
    return found


def _blob_of(module: str, prefix: str, blobs: dict[str, str]) -> str | None:
    path = "/".join([prefix, *module.split(".")[1:]])
    return blobs.get(f"{path}.py") or blobs.get(f"{path}/__init__.py")


def directory_md5(folder: Path, ignored: Callable[[Path], bool] = lambda path: False) -> str:
    """DVC's hash of a folder: the MD5 of the JSON list of its files' MD5s and relative paths, with `.dir`."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not ignored(path))
    entries = [{"md5": file_md5(path), "relpath": path.relative_to(folder).as_posix()} for path in files]
    entries.sort(key=lambda entry: entry["relpath"])
    listing = json.dumps(entries, sort_keys=True).encode()
    return hashlib.md5(listing, usedforsecurity=False).hexdigest() + ".dir"


def file_md5(path: Path) -> str:
    """DVC's hash of a file."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """{dotted key: leaf} of nested mappings and lists."""
    if isinstance(value, dict) and value:
        items = [(str(key), item) for key, item in value.items()]
    elif isinstance(value, list) and value:
        items = [(str(index), item) for index, item in enumerate(value)]
    else:
        return {prefix: value}
    found: dict[str, Any] = {}
    for key, item in items:
        found |= flat(item, f"{prefix}.{key}" if prefix else key)
    return found


def changes(expected: Any, found: Any) -> list[tuple[str, str, str]]:
    """(dotted key, expected, found) where two nested values differ; `missing` on the side that lacks the key."""
    one, two = flat(expected), flat(found)
    keys = [key for key in one if key not in two or two[key] != one[key]] + [key for key in two if key not in one]
    return [(key, str(one.get(key, "missing")), str(two.get(key, "missing"))) for key in keys]


def parsed(path: Path, content: bytes) -> Any:
    """A YAML or JSON file's content. Raises BadInput."""
    try:
        return json.loads(content) if path.suffix == ".json" else yaml.safe_load(content)
    except (ValueError, yaml.YAMLError) as error:
        raise BadInput(f"{path.name} cannot be parsed ({str(error).splitlines()[0]}); restore it from git.") from error
