"""What an audit found: links with what was expected and found, chains of links, and how they are shown."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from explainbench.core.errors import ExplainBenchError

if TYPE_CHECKING:
    from rich.tree import Tree

# The parts of a chain, from what a reader sees down to what everything rests on, and what each is called.
PARTS = {
    "board": "boards",
    "run": "MLflow",
    "record": "record",
    "files": "files of the cell",
    "params": "parameters",
    "code": "code",
    "model": "model",
    "windows": "windows",
    "data": "data",
    "dvc": "DVC",
    "git": "git",
    "bundle": "bundle",
    "replay": "replay",
}


# What readers of altered files raise: our own errors, and those of zip, zlib, JSON, YAML, Parquet and Unicode.
TRIPS = (
    ExplainBenchError, OSError, LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RuntimeError,
    zlib.error, struct.error, zipfile.BadZipFile,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Link:
    """One link of a chain.

    ok: True, False, or None where it could not be checked or where something that no digest covers differs (then
    expected and found say what). detail: for a link that does not hold, the likely cause.
    """

    name: str
    expected: str
    found: str
    ok: bool | None
    detail: str = ""
    part: str = ""

    @property
    def differs(self) -> bool:
        """Whether something that no digest covers is not as it was: named, but no broken link."""
        return self.ok is None and bool(self.found) and self.expected != self.found

    @property
    def state(self) -> str:
        """ok, broken, differs or unchecked."""
        if self.ok is None:
            return "differs" if self.differs else "unchecked"
        return "ok" if self.ok else "broken"


@dataclass(frozen=True, slots=True)
class Chain:
    """The links behind one cell, board or project. cell_id: of a cell, else empty."""

    cell: str
    cell_id: str
    run_id: str | None
    links: tuple[Link, ...]

    @property
    def ok(self) -> bool:
        """Whether no link is broken; links that could not be checked do not count."""
        return not self.broken

    @property
    def broken(self) -> tuple[Link, ...]:
        """The links that do not hold."""
        return tuple(link for link in self.links if link.ok is False)

    @property
    def disagreements(self) -> tuple[Link, ...]:
        """The links that do not hold, and what differs without being under a digest."""
        return tuple(link for link in self.links if link.ok is False or link.differs)

    def as_json(self) -> dict[str, Any]:
        """The chain as plain JSON."""
        return {
            "ok": self.ok,
            "cell": self.cell,
            "cell_id": self.cell_id,
            "run_id": self.run_id,
            "links": [asdict(link) | {"state": link.state} for link in self.links],
        }


def same(name: str, expected: str, found: str, detail: str = "", cause: str = "") -> Link:
    """A link that holds when both sides are equal; `cause` is said instead of `detail` when they are not."""
    holds = expected == found
    return Link(name, expected, found, holds, detail if holds else "; ".join(filter(None, (detail, cause))))


def guarded(name: str, check: Callable[[], Iterable[Link]]) -> list[Link]:
    """The links of a check; one that cannot even start, or that trips over altered bytes, is a broken link itself."""
    found: list[Link] = []
    try:
        found += check()
    except TRIPS as error:
        cause = f"{error or type(error).__name__}: altered or cut; restore it, or run the stage that writes it"
        found.append(Link(name, "readable", "unreadable", False, cause, name if name in PARTS else ""))
    return found


def in_part(part: str, links: Iterable[Link]) -> list[Link]:
    """The links, marked as belonging to a part of the chain."""
    return [replace(link, part=part) for link in links]


def render(chain: Chain) -> Tree:
    """The chain as a tree for a terminal, part by part; broken links in red with what was expected and found."""
    from rich.markup import escape
    from rich.tree import Tree

    marks = {
        "ok": "[green]ok[/]",
        "broken": "[bold red]BROKEN[/]",
        "differs": "[yellow]differs[/]",
        "unchecked": "[yellow]not checked[/]",
    }
    tree = Tree(f"[bold]{escape(chain.cell)}[/]{f' ({chain.cell_id[:16]})' if chain.cell_id else ''}: {verdict(chain)}")
    branches: dict[str, Tree] = {}
    for link in chain.links:
        part = PARTS.get(link.part, "")
        if part and part not in branches:
            branches[part] = tree.add(f"[bold]{part}[/]")
        detail = f": {escape(link.detail)}" if link.detail else ""
        branch = branches.get(part, tree).add(f"{marks[link.state]} {escape(link.name)}{detail}")
        if link.state in ("broken", "differs"):
            branch.add(f"expected {escape(link.expected or '-')}")
            branch.add(f"found    {escape(link.found or '-')}")
        elif link.ok and link.found:
            branch.label = f"{branch.label} [dim]{escape(link.found[:16])}[/]"
    return tree


def verdict(chain: Chain) -> str:
    """One coloured word for a terminal."""
    if chain.ok:
        noted = sum(link.differs for link in chain.links)
        return "[green]verified[/]" + (f" [yellow]({noted} not under a digest differ)[/]" if noted else "")
    return f"[bold red]{len(chain.broken)} broken[/]"
