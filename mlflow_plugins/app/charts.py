"""The charts of the pages: intervals, strips of windows, explanation heat maps, paired differences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import ceil, sqrt
from typing import Any

from markupsafe import Markup

from mlflow_plugins.app.cells import ALL, Heat, ScoreRow, Span
from mlflow_plugins.app.compare import Pair
from mlflow_plugins.app.svg import Scale, box, dot, line, number, picture, polyline, tag, text

LEVELS = 5  # shades on each side of zero
WIDTH, ROW = 320, 30  # of an interval beside its row
LEFT, RIGHT = 150, 12  # room for channel names, and at the other side
CURVE, STRIP = 120, 20  # heights of the curve's panel and of a channel's row
HEAT = 860


def intervals_scale(rows: Iterable[Mapping[str, Any]]) -> Scale:
    """One scale for all rows of a board."""
    return Scale.over([row[key] for row in rows for key in ("mean", "low", "high")], 6, WIDTH - 12)


def interval(row: Mapping[str, Any], scale: Scale) -> Markup:
    """A row's mean and interval, on the scale that all rows share."""
    middle = ROW / 2
    shapes = [line(scale(tick), 0, scale(tick), ROW, "grid") for tick in scale.ticks()]
    if scale.low < 0 < scale.high:
        shapes.append(line(scale(0), 0, scale(0), ROW, "zero"))
    kind = "base" if row["baseline"] else f"g{(row['group'] or 1) % 2}"
    if row["low"] is not None and row["high"] is not None:
        low, high = scale(row["low"]), scale(row["high"])
        shapes.append(line(low, middle, high, middle, f"bar {kind}"))
        shapes += [line(x, middle - 4, x, middle + 4, f"bar {kind}") for x in (low, high)]
    if row["mean"] is not None:
        shapes.append(dot(scale(row["mean"]), middle, 4.5, f"mean {kind}"))
    return picture(WIDTH, ROW, f"{row['entry']}: {spoken(row)}", shapes, "chart interval")


def axis(scale: Scale) -> Markup:
    """The scale of `interval`, for the head of the table."""
    ticks = scale.ticks()
    shapes = [text(scale(tick), 14, number(tick), "tick", "middle") for tick in ticks]
    shapes += [line(scale(tick), 18, scale(tick), 22, "axis") for tick in ticks]
    return picture(WIDTH, 22, f"scale from {number(scale.low)} to {number(scale.high)}", shapes, "chart interval")


def spoken(row: Mapping[str, Any]) -> str:
    """A mean with its interval in words."""
    if row["mean"] is None:
        return f"no value ({row['reason']})"
    if row["low"] is None:
        return number(row["mean"])
    return f"{number(row['mean'])}, interval {number(row['low'])} to {number(row['high'])}"


def strip(row: ScoreRow) -> Markup:
    """Every window's score by regime, with the mean and its interval beside them."""
    names = [name for name in row.by if name != ALL] or [ALL]
    height, left = 26, 76
    ends = [end for name in names for end in (row.by[name].low, row.by[name].high)]
    scale = Scale.over([*(point for group in row.points.values() for point in group), *ends], left, 300)
    bottom = height * len(names)
    shapes: list[Markup] = []
    for tick in scale.ticks():
        shapes += [
            line(scale(tick), 0, scale(tick), bottom, "grid"),
            text(scale(tick), bottom + 14, number(tick), "tick", "middle"),
        ]
    for index, name in enumerate(names):
        middle, stat = height * index + height / 2, row.by[name]
        shapes.append(text(0, middle + 4, name.replace("_", " ")))
        points = row.points.get(name, [])
        for at, value in enumerate(points):
            shift = ((at * 0.618034) % 1 - 0.5) * 12  # apart without chance
            shapes.append(dot(scale(value), middle + shift, 2, f"point r{index % 4}"))
        if stat.low is not None and stat.high is not None:
            shapes.append(line(scale(stat.low), middle, scale(stat.high), middle, "bar ink"))
        shapes.append(dot(scale(stat.mean), middle, 4, "mean ink", f"{name}: {number(stat.mean)}, n = {stat.n}"))
    said = "; ".join(f"{name} {number(row.by[name].mean)}" for name in names)
    return picture(left + 312, bottom + 20, f"{row.metric} per window by regime; means: {said}", shapes)


def heat_map(heat: Heat) -> Markup:
    """e of each feature group over the target's curve, and below it a row per channel."""
    steps, inner = len(heat.curve), HEAT - LEFT - RIGHT
    across = Scale(0, steps, LEFT, inner)
    up = Scale.over(heat.curve, CURVE - 6, -(CURVE - 12))
    shapes: list[Markup] = []
    target = heat.channels[0][1] if heat.channels and heat.channels[0][0] == heat.target else []
    shapes += [_cell(span, across, 0, CURVE, heat) for span in target]
    for tick in up.ticks(3):
        shapes.append(text(LEFT - 8, up(tick) + 4, number(tick), "tick", "end"))
    shapes.append(text(0, 14, heat.target, "label strong"))
    if heat.unit:
        shapes.append(text(0, 30, heat.unit, "tick"))
    points = [(across(step + 0.5), up(value)) for step, value in enumerate(heat.curve)]
    shapes += [polyline(points, "curve halo"), polyline(points, "curve")]
    top = CURVE + 10
    for index, (name, spans) in enumerate(heat.channels):
        y = top + index * (STRIP + 3)
        shapes.append(text(0, y + STRIP - 6, name))
        shapes += [_cell(span, across, y, STRIP, heat) for span in spans]
    bottom = top + len(heat.channels) * (STRIP + 3)
    shapes += _time_axis(heat, across, bottom)
    said = ", ".join(f"{span.group} {number(span.value)}" for span in heat.strongest(3))
    words = f"attribution of window {heat.window} ({heat.regime}, {heat.origin}); strongest: {said}"
    return picture(HEAT, bottom + 36, words, shapes, "chart heat")


def _cell(span: Span, across: Scale, y: float, height: float, heat: Heat) -> Markup:
    x, stop = across(span.start), across(span.stop)
    return box(
        x, y, stop - x, height, shade(span.value, heat), f"{span.group}: {number(span.value)} {heat.scale}".strip()
    )


def shade(value: float, heat: Heat) -> str:
    """The class of an attribution: `h-5` to `h5`, the square root of its share of the window's largest |e|.

    Most groups have small shares; equal steps would paint them all like zero.
    """
    share = abs(value) / heat.largest if heat.largest else 0.0
    level = ceil(LEVELS * sqrt(share) - 0.5)
    return f"h{-level if value < 0 else level}"


def legend(heat: Heat) -> Markup:
    """The shades and what they stand for."""
    levels = range(-LEVELS if heat.signed else 0, LEVELS + 1)
    low = -heat.largest if heat.signed else 0.0
    shapes = [text(70, 14, number(low, 3), "tick", "end")]
    shapes += [box(78 + index * 18, 2, 18, 14, f"h{level}") for index, level in enumerate(levels)]
    end = 78 + len(levels) * 18 + 8
    shapes.append(text(end, 14, f"{number(heat.largest, 3)} {heat.scale}".strip(), "tick"))
    return picture(end + 130, 18, f"shades from {number(low, 3)} to {number(heat.largest, 3)} {heat.scale}", shapes)


def _time_axis(heat: Heat, across: Scale, y: float) -> list[Markup]:
    steps = len(heat.curve)
    marks = list(range(0, steps, max(1, steps // 8)))
    shapes: list[Markup] = []
    for mark in marks:
        words = heat.times[mark][11:] if heat.times else str(mark - steps)
        if heat.times and (mark == 0 or heat.times[mark][:10] != heat.times[marks[marks.index(mark) - 1]][:10]):
            shapes.append(text(across(mark), y + 30, heat.times[mark][:10], "tick", "start"))
        shapes += [
            line(across(mark), y, across(mark), y + 4, "axis"),
            text(across(mark), y + 16, words, "tick", "start"),
        ]
    shapes.append(text(0, y + 16, "time (UTC)" if heat.times else "steps before", "tick"))
    return shapes


def difference(pair: Pair) -> Markup:
    """The paired differences of one score: every window, the mean with its interval, and zero."""
    width, height = 280, 34
    scale = Scale.over([*pair.points, 0.0, pair.low, pair.high, pair.difference], 8, width - 16)
    middle = 15
    shapes = [line(scale(0), 0, scale(0), 30, "zero")]
    for at, value in enumerate(pair.points):
        shapes.append(dot(scale(value), middle + ((at * 0.618034) % 1 - 0.5) * 16, 2, "point r0"))
    if pair.low is not None and pair.high is not None:
        shapes.append(line(scale(pair.low), middle, scale(pair.high), middle, "bar ink"))
    shapes.append(dot(scale(pair.difference), middle, 4, "mean ink"))
    words = f"{pair.score}: mean difference {number(pair.difference)}"
    if pair.low is not None:
        words += f", interval {number(pair.low)} to {number(pair.high)}"
    return picture(width, height, words, shapes, "chart interval")


def bracket(kinds: Sequence[str]) -> Markup:
    """A swatch for a legend: a mean with its interval in the classes given."""
    kind = " ".join(kinds)
    return tag(
        "svg",
        {"viewBox": "0 0 34 14", "width": 34, "height": 14, "class": "chart", "aria-hidden": "true"},
        line(3, 7, 31, 7, f"bar {kind}"),
        dot(17, 7, 4.5, f"mean {kind}"),
    )
