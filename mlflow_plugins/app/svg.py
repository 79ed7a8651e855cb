"""Charts as SVG text: a builder that escapes everything, a linear scale, and the shapes that charts share.

Colours are classes, never values, so that one picture serves light and dark; the page's policy allows no inline style.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, isfinite, log10

from markupsafe import Markup, escape

Attributes = Mapping[str, str | float | int]


def tag(name: str, attributes: Attributes, *children: str | Markup) -> Markup:
    """One element; text children are escaped, numbers are written with at most two decimals."""
    written = "".join(f' {key}="{escape(_text(value))}"' for key, value in attributes.items())
    return Markup(f"<{name}{written}>") + Markup("").join(children) + Markup(f"</{name}>")


def picture(width: float, height: float, title: str, children: Iterable[Markup], kind: str = "chart") -> Markup:
    """A drawing that scales with its container and says in words what it shows; a `graph` may hold links."""
    role = "group" if "graph" in kind else "img"
    box = {"viewBox": f"0 0 {_text(width)} {_text(height)}", "class": kind, "role": role, "aria-label": title}
    return tag("svg", box | {"width": width, "height": height}, *children)


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    """A straight line of a class."""
    return tag("line", {"x1": x1, "y1": y1, "x2": x2, "y2": y2, "class": kind})


def text(x: float, y: float, words: str, kind: str = "label", anchor: str = "start") -> Markup:
    """Words at a point."""
    return tag("text", {"x": x, "y": y, "class": kind, "text-anchor": anchor}, words)


def dot(x: float, y: float, radius: float, kind: str, hint: str = "") -> Markup:
    """A point; `hint` is shown when the pointer rests on it."""
    return tag("circle", {"cx": x, "cy": y, "r": radius, "class": kind}, *([tag("title", {}, hint)] if hint else []))


def box(x: float, y: float, width: float, height: float, kind: str, hint: str = "") -> Markup:
    """A rectangle; `hint` as in `dot`."""
    shape = {"x": x, "y": y, "width": width, "height": height, "class": kind}
    return tag("rect", shape, *([tag("title", {}, hint)] if hint else []))


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps [low, high] to pixels from `start` over `length`."""

    low: float
    high: float
    start: float
    length: float

    @classmethod
    def over(cls, values: Iterable[float | None], start: float, length: float, margin: float = 0.04) -> Scale:
        """A scale that holds all finite values, with a margin as a share of their range."""
        known = [value for value in values if value is not None and isfinite(value)]
        low, high = (min(known), max(known)) if known else (0.0, 1.0)
        room = margin * (high - low) or 0.5 * abs(high) or 0.5
        return cls(low - room, high + room, start, length)

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * self.length

    def ticks(self, about: int = 4) -> list[float]:
        """Round values inside the scale."""
        rough = (self.high - self.low) / about
        unit = 10 ** floor(log10(rough))
        step = next(factor * unit for factor in (1, 2, 5, 10) if factor * unit >= rough)
        return [round(k * step, 12) for k in range(ceil(self.low / step), floor(self.high / step) + 1)]


def polyline(points: Sequence[tuple[float, float]], kind: str) -> Markup:
    """A line through points."""
    return tag("polyline", {"points": " ".join(f"{_text(x)},{_text(y)}" for x, y in points), "class": kind})


def number(value: float | None, digits: int = 4) -> str:
    """A number as pages show it: four significant digits, a true minus sign, nothing for None."""
    if value is None or not isfinite(value):
        return ""
    written = f"{value:.{digits}g}"
    return written if "e" in written else written.replace("-", "\N{MINUS SIGN}")


def _text(value: str | float | int) -> str:
    return value if isinstance(value, str) else f"{value:.2f}".rstrip("0").rstrip(".")
