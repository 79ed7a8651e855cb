"""Inline SVG: escaped elements, linear scales with round ticks, and how numbers are written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import floor, isfinite, log10

from markupsafe import Markup, escape

MINUS = "\N{MINUS SIGN}"


def element(name: str, attributes: Mapping[str, object], *children: str | Markup) -> Markup:
    """One element. Attribute values and plain strings are escaped, Markup is kept; a value of None leaves one out."""
    given = "".join(
        f' {key}="{_plain(value) if isinstance(value, float) else escape(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    inside = "".join(escape(child) for child in children)
    return Markup(f"<{name}{given}>{inside}</{name}>" if inside else f"<{name}{given}/>")


def joined(parts: Iterable[Markup]) -> Markup:
    """Elements one after the other."""
    return Markup("").join(parts)


def number(value: float | None, digits: int = 3) -> str:
    """A number to read: `digits` decimals below 10, at most four significant digits above; an en dash for None."""
    if value is None or not isfinite(value):
        return "\N{EN DASH}"
    size = abs(value)
    text = f"{value:.{digits}f}" if size < 10 else f"{value:.1f}" if size < 1000 else f"{value:,.0f}"
    if float(text.replace(",", "")) == 0:
        text = text.lstrip("-")
    return text.replace("-", MINUS)


def interval(low: float | None, high: float | None, digits: int = 3) -> str:
    """An interval to read, or nothing where there is none."""
    if low is None or high is None:
        return ""
    between = " to " if low < 0 else "\N{EN DASH}"
    return f"{number(low, digits)}{between}{number(high, digits)}"


def mean_and_interval(estimate: Mapping[str, float | None] | None, digits: int = 2) -> str:
    """`value (low to high)` of an estimate as files hold it."""
    if estimate is None or estimate["value"] is None:
        return "none"
    between = interval(estimate.get("low"), estimate.get("high"), digits)
    return number(estimate["value"], digits) + (f" ({between})" if between else "")


def probability(value: float | None) -> str:
    """A p value: two significant digits, never 0."""
    if value is None or not isfinite(value):
        return ""
    return "< 0.001" if value < 0.001 else f"{value:.2g}"


@dataclass(frozen=True, slots=True)
class Scale:
    """A linear scale from values in [low, high] to [start, end]."""

    low: float
    high: float
    start: float = 0.0
    end: float = 100.0

    def __call__(self, value: float) -> float:
        """The position of a value; values outside are put on the edge."""
        share = min(1.0, max(0.0, (value - self.low) / (self.high - self.low)))
        return round(self.start + share * (self.end - self.start), 1)

    def ticks(self, most: int = 4) -> tuple[float, ...]:
        """Round values within the scale, at most `most` of them."""
        for step in (factor * 10.0**power for power in _powers(self.high - self.low) for factor in (1, 2, 5)):
            first = -floor(-self.low / step + 1e-9)
            count = floor(self.high / step + 1e-9) - first + 1
            if count <= most:
                return tuple(round((first + i) * step, 10) for i in range(max(count, 0)))
        return ()

    def drawn(self, value: float, low: float | None, high: float | None, mark: float | None = None) -> Markup:
        """An interval as a bar and its value as a dot, in percent of the column's width; mark: a value to compare."""
        parts: list[Markup] = []
        if mark is not None:
            at = f"{self(mark)}%"
            parts.append(element("line", {"class": "z", "x1": at, "x2": at, "y1": 0, "y2": 18}))
        if low is not None and high is not None:
            ends = {"x1": f"{self(low)}%", "x2": f"{self(high)}%", "y1": 9, "y2": 9}
            parts.append(element("line", {"class": "i", **ends}))
        parts.append(element("circle", {"cx": f"{self(value)}%", "cy": 9, "r": 4}))
        return element("svg", {"class": "iv", "aria-hidden": "true"}, *parts)

    def axis(self) -> Markup:
        """The scale's ticks, for the head of the column."""
        marks = (
            element("text", {"x": f"{self(tick)}%", "y": 12, "text-anchor": "middle"}, f"{tick:g}".replace("-", MINUS))
            for tick in self.ticks(3)
        )
        return element("svg", {"class": "iv axis", "aria-hidden": "true"}, joined(marks))


def scale_of(values: Iterable[float | None], start: float = 0.0, end: float = 100.0, room: float = 0.04) -> Scale:
    """A scale that shows all finite values with a little room; one value alone, or none, gets a scale of its own."""
    known = [value for value in values if value is not None and isfinite(value)]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    spread = (high - low) or abs(high) * 0.1 or 1.0
    return Scale(low - room * spread, high + room * spread, start, end)


def _powers(spread: float) -> range:
    power = floor(log10(spread)) - 2
    return range(power, power + 5)


def _plain(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
