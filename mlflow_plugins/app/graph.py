"""The lineage graph of a cell: what an audit checked, as boxes from the board down to the data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from mlflow_plugins.app.svg import box, line, picture, tag, text
from mlflow_plugins.lineage import Chain, Link

# part of a chain -> (title, column, row, the parts it was made from)
BOXES: dict[str, tuple[str, float, int, tuple[str, ...]]] = {
    "board": ("Board rows", 1, 0, ("record",)),
    "run": ("MLflow run", 3, 0, ("record",)),
    "record": ("Record of the cell", 2, 1, ("files", "params", "code", "model", "windows", "bundle")),
    "files": ("Files of the cell", 0, 2, ("replay",)),
    "params": ("Parameters", 1, 2, ()),
    "code": ("Source code", 2, 2, ("git",)),
    "model": ("Model and weights", 3, 2, ("data",)),
    "windows": ("Windows", 4, 2, ("data",)),
    "replay": ("Replay", 0, 3, ()),
    "bundle": ("Bundle", 1, 3, ()),
    "git": ("Git", 2, 3, ()),
    "data": ("Data", 3.5, 3, ("dvc",)),
    "dvc": ("DVC", 3.5, 4, ()),
    "": ("Other checks", 1, 4, ()),
}
WIDTH, HEIGHT, ACROSS, DOWN = 190, 58, 208, 100
STATES = ("broken", "differs", "unchecked", "ok")  # worst first
WORDS = {"ok": "ok", "broken": "BROKEN", "differs": "differs", "unchecked": "not checked"}


@dataclass(frozen=True, slots=True)
class Node:
    """A box of the graph with the links it stands for."""

    name: str
    title: str
    x: float
    y: float
    links: tuple[Link, ...]
    sources: tuple[str, ...]

    @property
    def state(self) -> str:
        """The worst of its links; what could not be checked counts only where nothing was."""
        found = {link.state for link in self.links}
        return next(state for state in STATES if state in found and (state != "unchecked" or "ok" not in found))

    @property
    def summary(self) -> str:
        """How many of its links are as the state says."""
        state = "ok" if self.state == "unchecked" else self.state
        return f"{sum(link.state == state for link in self.links)} of {len(self.links)}"


def nodes(chain: Chain) -> list[Node]:
    """The boxes that have links; parts that this version does not know stand together."""
    found: dict[str, list[Link]] = {}
    for link in chain.links:
        found.setdefault(link.part if link.part in BOXES else "", []).append(link)
    return [
        Node(f"part-{name or 'other'}", title, column * ACROSS, row * DOWN, tuple(found[name]), sources)
        for name, (title, column, row, sources) in BOXES.items()
        if name in found
    ]


def draw(found: Sequence[Node], title: str) -> Markup:
    """The graph. A broken box and the lines that rest on it are red, and it says so in words."""
    by_name = {node.name: node for node in found}
    shapes: list[Markup] = []
    for node in found:
        sources = (by_name.get(f"part-{name}") for name in node.sources)
        shapes += [_edge(node, made_from) for made_from in sources if made_from is not None]
    shapes += [_shape(node) for node in found]
    width = max((node.x for node in found), default=0) + WIDTH + 4
    height = max((node.y for node in found), default=0) + HEIGHT + 4
    return picture(width, height, title, shapes, "chart graph")


def _edge(node: Node, made_from: Node) -> Markup:
    ends = (node.x + WIDTH / 2, node.y + HEIGHT, made_from.x + WIDTH / 2, made_from.y)
    return line(*ends, f"edge {made_from.state}")


def _shape(node: Node) -> Markup:
    words = f"{WORDS[node.state]}: {node.summary}"
    shape = [
        box(node.x + 1, node.y + 1, WIDTH, HEIGHT, f"node {node.state}"),
        text(node.x + 14, node.y + 25, node.title, "label strong"),
        text(node.x + 14, node.y + 45, words, f"label {node.state}"),
    ]
    return tag("a", {"href": f"#{node.name}", "aria-label": f"{node.title}, {words}"}, *shape)
