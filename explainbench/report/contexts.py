"""Task T3: what changes when the same explanation is used in another place, from results/contexts.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from explainbench.core.cell import Cell
from explainbench.report.checks import Box, Row, Table
from explainbench.report.source import SUITE, Source, anchor
from explainbench.report.svg import element, joined, number

FILE = anchor("file", "results/contexts.json")
INDICES = {
    "edts": ("EDTS", "edge decision transparency"),
    "eei": ("EEI", "edge explanation efficiency"),
    "act": ("Act", "share of the searches whose counterfactual can be carried out there"),
    "act_valid": ("Act among valid", "the same among the searches that found a counterfactual"),
    "dss": ("DSS", "deployment suitability of the method"),
}
FACTORS = ("context", "model", "method", "interaction")


@dataclass(frozen=True, slots=True)
class Shares:
    """What the variance of one index on one task is due to: a stacked bar and its parts, or the reason for none."""

    task: str
    index: str
    parts: tuple[str, ...]
    bar: Markup | None
    reason: str = ""


def shares(source: Source) -> tuple[Shares, ...]:
    """One row per task and index."""
    tasks = (source.contexts or {"tasks": {}})["tasks"]
    return tuple(
        _shares(task, INDICES[index][0], content["variance_shares"][index])
        for task, content in tasks.items()
        for index in INDICES
        if index in content["variance_shares"]
    )


def tables(source: Source, task: str) -> tuple[Table, ...]:
    """One grid per index: cells against contexts, or models against contexts where the method makes no difference."""
    document = source.contexts or {"contexts": [], "tasks": {}}
    rows = document["tasks"].get(task, {}).get("rows", [])
    names = [context["name"] for context in document["contexts"]]
    return tuple(_table(source, task, index, names, rows) for index in INDICES) if rows else ()


def _table(source: Source, task: str, index: str, names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Table:
    by_pair: dict[tuple[str, str], dict[str, Mapping[str, Any]]] = {}
    for row in rows:
        by_pair.setdefault((row["model"], row["method"]), {})[row["context"]] = row
    values = {pair: tuple(_value(found.get(name), index) for name in names) for pair, found in by_pair.items()}
    models = dict.fromkeys(model for model, _ in values)
    of_model = {model: {found for (one, _), found in values.items() if one == model} for model in models}
    by_model = all(len(found) == 1 for found in of_model.values())
    short, what = INDICES[index]
    shown: dict[tuple[str, str], tuple[str, str]] = {}  # label -> the pair whose numbers stand in the row
    for pair in values:
        shown.setdefault((pair[0], "all methods" if by_model else pair[1]), pair)
    grid = []
    for labels, pair in shown.items():
        reference = source.references.get(Cell(SUITE, task, *pair))
        boxes = tuple(_box(by_pair[pair].get(name), index) for name in names)
        grid.append(Row(labels, boxes, reference.anchor if reference else FILE))
    return Table(f"{short} on {task}", f"{what[0].upper()}{what[1:]}.", ("model", "method", *names), grid=tuple(grid))


def _value(row: Mapping[str, Any] | None, index: str) -> float | None:
    return None if row is None else row["values"][index]


def _box(row: Mapping[str, Any] | None, index: str) -> Box:
    value = _value(row, index)
    if value is None:
        return Box("none", "" if row is None else row["gaps"].get(index, ""))
    return Box(number(value), heat=min(1.0, max(0.0, value)))


def _shares(task: str, index: str, found: Mapping[str, Any]) -> Shares:
    if "reason" in found:
        return Shares(task, index, (), None, found["reason"])
    parts, at = [], 0.0
    for position, factor in enumerate(FACTORS):
        width = 100 * float(found[factor])
        box = {"class": f"share s{position}", "x": f"{at:.2f}%", "width": f"{width:.2f}%", "y": 2, "height": 14}
        parts.append(element("rect", box))
        at += width
    bar = element("svg", {"class": "iv", "aria-hidden": "true"}, joined(parts))
    return Shares(task, index, tuple(f"{float(found[factor]):.0%}" for factor in FACTORS), bar)
