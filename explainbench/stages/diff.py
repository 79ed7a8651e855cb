"""`diff`: two result folders or bundles, what changed between them and which link of the chain explains it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from explainbench.core.errors import BadInput
from explainbench.core.files import read_json
from explainbench.core.record import CellRecord
from explainbench.core.workspace import Workspace
from explainbench.stages.bundle import opened
from explainbench.store import CellStore, StoredCell

LINKS = {  # part of a cell's specification -> the link of the chain that it is
    "protocol": "protocol",
    "seed": "parameters",
    "runs": "parameters",
    "parameters": "parameters",
    "method_card": "method",
    "dataset": "data",
    "dataset_sha256": "data",
    "windows_sha256": "windows",
    "model_card_sha256": "model card",
    "weights_sha256": "weights",
    "weights_source": "weights",
    "sources": "code",
    "libraries": "libraries",
    "schema_version": "schema",
}
SHOWN = 6  # items named per line
OTHER_BITS = "the same specification gave other bits"


@dataclass(frozen=True, slots=True)
class CellChange:
    """One cell on both sides. explains: {link: what changed}; scores: {score: (before, after)} where they moved."""

    cell: str
    explains: dict[str, list[str]]
    scores: dict[str, tuple[float | None, float | None]]


@dataclass(frozen=True, slots=True)
class Difference:
    """Two sides compared. boards: {board: [`entry: place and mean before -> after`]}."""

    same: int
    changed: tuple[CellChange, ...]
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]
    boards: dict[str, list[str]]

    @property
    def equal(self) -> bool:
        """Whether both sides hold the same cells, bit for bit, and the same boards."""
        return not (self.changed or self.only_first or self.only_second or self.boards)

    def lines(self) -> Iterator[str]:
        """The same for a terminal."""
        yield f"{self.same} cells are the same, bit for bit; {len(self.changed)} changed"
        for change in self.changed:
            yield f"{change.cell}"
            for link, items in change.explains.items():
                yield f"  {link}: {_few(items)}"
            for score, (before, after) in change.scores.items():
                yield f"  {score}: {_number(before)} -> {_number(after)}"
            if not change.scores:
                yield "  no mean of a score moved"
        for side, names in (("first", self.only_first), ("second", self.only_second)):
            yield from (f"{name} is only in the {side}" for name in names)
        for board, entries in self.boards.items():
            yield f"board {board}: {_few(entries)}"


def diff(first: Path, second: Path) -> Difference:
    """Compare two bundles or folders with cells/. Raises BadInput when a side holds no cells."""
    with ExitStack() as stack:
        one, two = (stack.enter_context(_side(path)) for path in (first, second))
        ours, theirs = _cells(one), _cells(two)
        shared = sorted(ours.keys() & theirs.keys())
        changes = [_change(name, ours[name], theirs[name]) for name in shared]
        changed = tuple(change for change in changes if change is not None)
        return Difference(
            len(shared) - len(changed),
            changed,
            tuple(sorted(ours.keys() - theirs.keys())),
            tuple(sorted(theirs.keys() - ours.keys())),
            dict(_board_changes(_boards(one), _boards(two))),
        )


@contextmanager
def _side(path: Path) -> Iterator[Workspace]:
    if path.is_file():
        with opened(path) as workspace:
            yield workspace
        return
    if not (path / "cells").is_dir():
        raise BadInput(f"{path} is neither a bundle nor a folder that holds cells/.")
    yield Workspace(path, path)


def _cells(side: Workspace) -> dict[str, StoredCell]:
    return {str(stored.cell): stored for stored in CellStore(side.cells)}


def _change(name: str, one: StoredCell, two: StoredCell) -> CellChange | None:
    if one.digest == two.digest:
        return None
    before, after = (side.record.spec.model_dump(mode="json") for side in (one, two))
    explains: dict[str, list[str]] = {}
    for key, link in LINKS.items():
        if before[key] != after[key]:
            explains.setdefault(link, []).extend(_what(key, before[key], after[key]))
    if not explains:
        explains[OTHER_BITS] = list(_platforms(one, two))
    return CellChange(name, explains, _moved(one.record, two.record))


def _what(key: str, before: Any, after: Any) -> Iterator[str]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in sorted(before.keys() | after.keys()):
            if before.get(name) != after.get(name):
                if key == "sources":
                    yield name if name in before and name in after else f"{name} {'gone' if name in before else 'new'}"
                else:
                    yield from _what(name, before.get(name), after.get(name))
    else:
        one, two = (str(side)[:12] if key.endswith("sha256") else str(side) for side in (before, after))
        yield f"{key}: {one} -> {two}"


def _platforms(one: StoredCell, two: StoredCell) -> Iterator[str]:
    sides = one.measured(), two.measured()
    if None in sides:
        yield "and the platforms are not on record"
        return
    fields = [
        (name, *(getattr(side, name) for side in sides)) for name in ("cpu", "cpu_capability", "torch", "threads")
    ]
    found = [f"{name}: {before} -> {after}" for name, before, after in fields if before != after]
    yield from found or ["on the same platform: files were altered, or something undeclared influenced the cell"]


def _moved(one: CellRecord, two: CellRecord) -> dict[str, tuple[float | None, float | None]]:
    found = {}
    for name in sorted(one.scores.keys() | two.scores.keys()):
        before, after = (side.scores[name].raw if name in side.scores else None for side in (one, two))
        gone = (before is None) != (after is None)
        if gone or (before is not None and after is not None and not math.isclose(before, after, rel_tol=1e-12)):
            found[name] = (before, after)
    return found


def _boards(side: Workspace) -> dict[str, dict[str, dict[str, Any]]]:
    """{board: {entry: row}} of every file of boards."""
    found = {}
    for path in sorted(side.results.glob("*.json")):
        content = read_json(path)
        boards = content.get("boards") if isinstance(content, dict) and "inputs_sha256" in content else None
        for board in boards or []:
            found[board["name"]] = {row["entry"]: row for row in board["rows"]}
    return found


def _board_changes(
    one: dict[str, dict[str, dict[str, Any]]], two: dict[str, dict[str, dict[str, Any]]]
) -> Iterator[tuple[str, list[str]]]:
    for name in sorted(one.keys() | two.keys()):
        if name not in one or name not in two:
            yield name, ["only in the second" if name in two else "only in the first"]
            continue
        lines = []
        for entry in one[name].keys() | two[name].keys():
            before, after = (_place(side[name].get(entry)) for side in (one, two))
            if before != after:
                lines.append(f"{entry}: {before} -> {after}")
        if lines:
            yield name, sorted(lines)


def _few(items: Sequence[str]) -> str:
    more = len(items) - SHOWN
    return "; ".join(items[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"


def _place(row: Mapping[str, Any] | None) -> str:
    return "absent" if row is None else f"{'-' if row['order'] is None else row['order']} ({row['mean']})"
