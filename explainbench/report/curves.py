"""Example explanations over the curve that the model saw: one window per regime, every method of a model below it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from explainbench.core.arrays import Floats
from explainbench.core.cell import Cell
from explainbench.core.errors import BadInput, Corrupt
from explainbench.report.source import SUITE, Source
from explainbench.report.svg import Scale, element, joined, number, scale_of
from explainbench.store import StoredCell

REGIMES = ("peak", "ramp", "off_peak")  # in reading order; others follow by name
REFERENCE = "oracle"  # the true drivers, shown below the methods where they are known
WIDTH, LEFT, RIGHT = 520, 118, 108
TOP, CURVE, STRIP, PITCH = 10, 118, 15, 19
STEPS_PER_HOUR = 4


@dataclass(frozen=True, slots=True)
class Example:
    """One window of one model: the target's curve and a strip per method."""

    regime: str
    when: str
    picture: Markup


@dataclass(frozen=True, slots=True)
class ModelExamples:
    """The examples of one model on one task, or why there are none."""

    task: str
    model: str
    examples: tuple[Example, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class _Strip:
    """One method on one window: e (g,) by group, whether it has signs, where it is audited."""

    method: str
    importance: Floats
    signed: bool
    anchor: str


def examples_of(source: Source, task: str, model: str) -> ModelExamples:
    """The first window of each regime in time order, whatever its scores."""
    energy = source.params.suites.energy
    wanted = [*energy.methods, *(name for name in energy.baselines if name == REFERENCE)]
    stored = [source.cells.get(Cell(SUITE, task, model, method)) for method in wanted]
    found = [one for one in stored if one is not None]
    if not found:
        return ModelExamples(task, model, reason=f"no finished cell of {model} on {task} is in the cell store")
    try:
        arrays = [(one, one.explanations()) for one in found]
    except (BadInput, Corrupt) as error:
        return ModelExamples(task, model, reason=str(error))
    first = arrays[0][1]
    pictures = tuple(
        _example(source, energy.tasks[task].target, arrays, row) for row in _one_per_regime(first["regime"])
    )
    return ModelExamples(task, model, pictures)


def _one_per_regime(regime: NDArray[Any]) -> Iterator[int]:
    names = [str(name) for name in regime]
    order = [name for name in REGIMES if name in names] + sorted(set(names) - set(REGIMES))
    return (names.index(name) for name in order)


def _example(
    source: Source, target: str, arrays: Sequence[tuple[StoredCell, Mapping[str, NDArray[Any]]]], row: int
) -> Example:
    first = arrays[0][1]
    channels = [str(name) for name in first["channels"]]
    column = channels.index(target) if target in channels else 0
    labels = first["labels"][:, column]
    curve = np.asarray(first["context"][row][:, column], dtype=np.float64)
    unit = str(first["unit"].ravel()[0]) if "unit" in first else ""
    strips = [
        _Strip(
            stored.cell.method,
            np.asarray(found["importance"][row], dtype=np.float64),
            stored.record.spec.method_card.get("vector", "signed") == "signed",
            source.references[stored.cell].anchor,
        )
        for stored, found in arrays
        if found["origin"][row] == first["origin"][row]
    ]
    origin = first["origin"][row]
    dated = origin.dtype.kind in "Mm"
    when = f"target from {str(origin.astype('datetime64[m]')).replace('T', ' ')} UTC" if dated else f"window {origin}"
    picture = _picture(curve, float(first["output"][row]), target, unit, labels, strips)
    return Example(str(first["regime"][row]), when, picture)


def _picture(
    curve: Floats, forecast: float, target: str, unit: str, labels: NDArray[Any], strips: Sequence[_Strip]
) -> Markup:
    steps = len(curve)
    across = Scale(0, steps, LEFT, WIDTH - RIGHT)
    up = scale_of([float(curve.min()), float(curve.max()), forecast], TOP + CURVE, TOP, room=0.08)
    below = TOP + CURVE + 26
    height = below + PITCH * len(strips) + 6
    runs = _runs(labels)
    parts = [_curve(curve, forecast, across, up, unit), _hours(steps, across)]
    for position, strip in enumerate(strips):
        parts.append(_strip(strip, runs, across, below + PITCH * position))
    words = f"{target} over {steps} steps before the forecast, with one strip of group importance per method"
    return element(
        "svg",
        {"class": "curve", "viewBox": f"0 0 {WIDTH} {height}", "role": "group", "aria-label": words},
        joined(parts),
    )


def _curve(curve: Floats, forecast: float, across: Scale, up: Scale, unit: str) -> Markup:
    points = " ".join(f"{across(i + 0.5):.1f},{up(value):.1f}" for i, value in enumerate(curve))
    right = WIDTH - RIGHT
    parts = [element("rect", {"class": "ahead", "x": right, "y": TOP, "width": 40, "height": CURVE})]
    for tick in up.ticks(4):
        y = up(tick)
        parts.append(element("line", {"class": "grid", "x1": LEFT, "x2": right + 40, "y1": y, "y2": y}))
        parts.append(element("text", {"x": LEFT - 6, "y": y + 3.5, "text-anchor": "end"}, number(tick, 0)))
    parts.append(element("text", {"class": "unit", "x": 2, "y": TOP + 8}, unit))
    parts.append(element("polyline", {"class": "load", "points": points}))
    parts.append(
        element("line", {"class": "fx", "x1": right + 4, "x2": right + 36, "y1": up(forecast), "y2": up(forecast)})
    )
    parts.append(
        element("text", {"class": "fx", "x": right + 44, "y": up(forecast) + 3.5}, f"f = {number(forecast, 1)}")
    )
    return joined(parts)


def _hours(steps: int, across: Scale) -> Markup:
    hours = steps // STEPS_PER_HOUR
    every = 6 if hours <= 24 else 12
    y = TOP + CURVE
    return joined(
        element("text", {"x": across(steps - ago * STEPS_PER_HOUR), "y": y + 14, "text-anchor": "middle"}, _ago(ago))
        for ago in range(0, hours + 1, every)
    )


def _ago(hours: int) -> str:
    return f"\u2212{hours} h" if hours else "0"


def _strip(strip: _Strip, runs: Sequence[tuple[int, int, int]], across: Scale, y: int) -> Markup:
    """The target's groups, coloured by e relative to the largest |e| of all; right: the share of other channels."""
    size = np.abs(strip.importance)
    largest = float(size.max()) if np.isfinite(size).all() and len(size) else float("nan")
    reference = " ref" if strip.method == REFERENCE else ""
    name = element("text", {"x": LEFT - 6, "y": y + 11, "text-anchor": "end"}, strip.method.replace("_", " "))
    parts = [element("a", {"href": f"#{strip.anchor}", "class": f"who{reference}"}, name)]
    frame = {"class": "frame", "x": LEFT, "y": y, "width": across.end - LEFT, "height": STRIP}
    parts.append(element("rect", frame))
    if not largest > 0:
        why = "no explanation of this window" if largest != 0 else "zero everywhere"
        parts.append(element("text", {"class": "none", "x": LEFT + 6, "y": y + 11}, why))
        return joined(parts)
    for group, first, last in runs:
        value = float(strip.importance[group])
        strength = abs(value) / largest
        if strength < 0.02:
            continue
        kind = "u" if not strip.signed else "p" if value > 0 else "m"
        box = {"x": across(first), "y": y, "width": across(last) - across(first), "height": STRIP}
        parts.append(element("rect", {"class": kind, **box, "opacity": round(strength, 2)}))
    here = {group for group, _, _ in runs}
    if len(here) < len(size):
        away = 1 - float(size[list(here)].sum()) / float(size.sum())
        parts.append(element("text", {"class": "away", "x": across.end + 6, "y": y + 11}, f"{away:.0%} elsewhere"))
    return joined(parts)


def _runs(labels: NDArray[Any]) -> list[tuple[int, int, int]]:
    """(group, first step, step after the last) along the target channel."""
    edges = [0, *(np.flatnonzero(np.diff(labels)) + 1).tolist(), len(labels)]
    return [(int(labels[a]), a, b) for a, b in pairwise(edges) if labels[a] >= 0]
