"""Radar pictures of the Reliability Matrix (paper 000, figure 5): one per method and per model, with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import cos, pi, sin

from markupsafe import Markup

from explainbench.analysis.reliability import COMPOSITES, Matrix, MatrixRow
from explainbench.core.cell import Cell
from explainbench.report.source import Source
from explainbench.report.svg import element, interval, joined, number

WIDTH, HEIGHT, RADIUS = 216, 214, 78
CENTRE = (108.0, 100.0)
RINGS = (0.25, 0.5, 0.75, 1.0)
GAP = 1.7  # between the interval bars of neighbouring traces on one axis


@dataclass(frozen=True, slots=True)
class Radar:
    """One picture: a trace per row of R."""

    title: str
    picture: Markup


def radars_by_method(source: Source, task: str) -> tuple[Radar, ...]:
    """One picture per method; its traces are the models, always in the same colours."""
    matrix, models = source.matrices[task], source.params.suites.energy.models
    return tuple(
        Radar(method, _radar(source, matrix, rows, [row.model for row in rows], models))
        for method in source.params.suites.energy.methods
        if (rows := matrix.of_method(method))
    )


def radars_by_model(source: Source, task: str) -> tuple[Radar, ...]:
    """One picture per model; its traces are the methods."""
    matrix, methods = source.matrices[task], source.params.suites.energy.methods
    return tuple(
        Radar(model, _radar(source, matrix, rows, [row.method for row in rows], methods))
        for model in source.params.suites.energy.models
        if (rows := matrix.of_model(model))
    )


def _radar(
    source: Source, matrix: Matrix, rows: Sequence[MatrixRow], names: Sequence[str], colours: Sequence[str]
) -> Markup:
    spokes = [_spoke(axis, [row.entries[axis].status for row in rows]) for axis in range(len(COMPOSITES))]
    traces = [
        _trace(source, matrix, row, name, colours.index(name) % 8, position - (len(rows) - 1) / 2)
        for position, (row, name) in enumerate(zip(rows, names, strict=True))
    ]
    return element(
        "svg",
        {"class": "radar", "viewBox": f"0 0 {WIDTH} {HEIGHT}", "role": "group", "aria-label": "radar picture"},
        joined(_ring(share) for share in RINGS),
        joined(spokes),
        joined(traces),
    )


def _ring(share: float) -> Markup:
    points = " ".join(_pair(_point(axis, share)) for axis in range(len(COMPOSITES)))
    ring = element("polygon", {"class": "ring", "points": points})
    if share not in (0.5, 1.0):
        return ring
    x, y = _point(0, share)
    return ring + element("text", {"class": "tick", "x": x + 3, "y": y + 9}, f"{share:g}")


def _spoke(axis: int, statuses: Sequence[str]) -> Markup:
    empty = "value" not in statuses
    x, y = _point(axis, 1.0)
    line = {"class": "spoke empty" if empty else "spoke", "x1": CENTRE[0], "y1": CENTRE[1], "x2": x, "y2": y}
    label_x, label_y = _point(axis, 1.2)
    anchored = {"x": label_x, "y": label_y + 4, "text-anchor": "middle", "class": "name empty" if empty else "name"}
    words = [element("text", anchored, COMPOSITES[axis])]
    if empty:
        why = "pending" if "pending" in statuses else "not applicable"
        words.append(element("text", anchored | {"y": label_y + 14, "class": "why"}, why))
    return element("line", line) + joined(words)


def _trace(source: Source, matrix: Matrix, row: MatrixRow, name: str, colour: int, offset: float) -> Markup:
    """A line over the composites that have a number, broken where one has none, with the interval beside each."""
    known = [axis for axis, entry in enumerate(row.entries) if entry.value is not None]
    if not known:
        return Markup("")
    points = {axis: _point(axis, row.entries[axis].value or 0.0) for axis in known}
    axes = len(COMPOSITES)
    path = "".join(
        f"M{_pair(points[axis])}L{_pair(points[(axis + 1) % axes])}" for axis in known if (axis + 1) % axes in points
    )
    closed = len(known) == axes
    if closed:
        path = "M" + "L".join(_pair(points[axis]) for axis in known) + "Z"
    bars = "".join(
        f"M{_pair(_beside(axis, entry.low, offset))}L{_pair(_beside(axis, entry.high, offset))}"
        for axis, entry in enumerate(row.entries)
        if entry.low is not None and entry.high is not None
    )
    dots = "".join(f"M{_pair(points[axis])}h0" for axis in known)
    reference = source.references.get(Cell(matrix.suite, matrix.task, row.model, row.method))
    parts = [element("title", {}, _words(row))]
    parts += [element("path", {"class": "line closed" if closed else "line", "d": path})] if path else []
    parts += [element("path", {"class": "bars", "d": bars})] if bars else []
    parts.append(element("path", {"class": "dots", "d": dots}))
    inside = joined(parts)
    if reference is not None:
        inside = element("a", {"href": f"#{reference.anchor}", "tabindex": -1}, inside)
    return element("g", {"class": f"t k{colour}", "data-entry": name}, inside)


def _words(row: MatrixRow) -> str:
    parts = []
    for name, entry in zip(COMPOSITES, row.entries, strict=True):
        if entry.value is None:
            parts.append(f"{name} {entry.status.replace('_', ' ')}")
        else:
            between = interval(entry.low, entry.high)
            parts.append(f"{name} {number(entry.value)}" + (f" ({between})" if between else ""))
    return f"{row.model}/{row.method}: " + ", ".join(parts)


def _direction(axis: int) -> tuple[float, float]:
    angle = 2 * pi * axis / len(COMPOSITES) - pi / 2
    return cos(angle), sin(angle)


def _point(axis: int, share: float) -> tuple[float, float]:
    x, y = _direction(axis)
    return CENTRE[0] + RADIUS * share * x, CENTRE[1] + RADIUS * share * y


def _beside(axis: int, share: float, offset: float) -> tuple[float, float]:
    x, y = _point(axis, share)
    across, down = _direction(axis)
    return x - GAP * offset * down, y + GAP * offset * across


def _pair(point: tuple[float, float]) -> str:
    return f"{point[0]:.1f} {point[1]:.1f}"
