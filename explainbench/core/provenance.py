"""Identity: canonical JSON, content hashes, and the source digest of the modules on a cell's path."""

import ast
import hashlib
import json
from collections.abc import Iterable
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

PACKAGE = "explainbench"


def canonical_json(value: Any) -> bytes:
    """The one byte form of a JSON value: sorted keys, no spaces, UTF-8, shortest round-trip floats, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def sha256_json(value: Any) -> str:
    """SHA-256 of the canonical JSON of `value`, as 64 hex digits."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


def sha256_file(path: Path) -> str:
    """SHA-256 of a file's bytes, as 64 hex digits."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def blob_id(content: bytes) -> str:
    """The git blob id of `content`: equals `git rev-parse HEAD:path` once the same bytes are committed."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Installed versions of `packages`; the local build tag (`+cpu`) is part of a version."""
    found = {}
    for name in sorted(set(packages)):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "absent"
    return found


@cache
def _module_file(module: str) -> Path | None:
    try:
        spec = find_spec(module)
    except ModuleNotFoundError:
        return None
    return Path(spec.origin) if spec is not None and spec.origin and spec.origin.endswith(".py") else None


@cache
def _direct_imports(module: str) -> frozenset[str]:
    """Modules of this package that `module` imports anywhere in its text, also inside functions."""
    path = _module_file(module)
    if path is None:
        return frozenset()
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        found.update(name for name in names if name.split(".")[0] == PACKAGE and _module_file(name) is not None)
    return frozenset(found)


def import_closure(modules: Iterable[str]) -> tuple[str, ...]:
    """The named modules and all modules of this package that they import, directly or not, sorted."""
    seen: set[str] = set()
    waiting = list(modules)
    while waiting:
        module = waiting.pop()
        if module not in seen:
            seen.add(module)
            waiting.extend(_direct_imports(module))
    return tuple(sorted(seen))


def source_identity(modules: Iterable[str]) -> dict[str, str]:
    """{module: git blob id of its file} for the import closure of `modules`, the code on a cell's path.

    Entries of other distributions (a ninth method in a user's package) are identified by their own file.
    """
    identity = {}
    for module in import_closure(modules):
        path = _module_file(module)
        if path is not None:
            identity[module] = blob_id(path.read_bytes())
    return identity
