"""All pairs of a board as one picture: a row scores above the columns right of it, and how surely it does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from explainbench.report.svg import element, joined

EFFECTS = (0.5, 0.7, 0.9)  # rank-biserial correlations from which a pair gets the next shade
FEW = 12  # entries up to which squares are large and every column has its number
LABEL = 6.2  # pixels per character


@dataclass(frozen=True, slots=True)
class Pairs:
    """The picture, how many of the pairs differ, and what a pointer is told: p in thousandths, effect in percent."""

    picture: Markup
    apart: int
    count: int
    names: str
    numbers: str


def all_pairs(board: Mapping[str, Any]) -> Pairs | None:
    """The pairs of a board's ranked entries; None where nothing was tested."""
    found, names = board.get("pairs"), [name.replace("_", " ") for name in board["ranked"]]
    if not found:
        return None
    m = len(names)
    i, j = np.triu_indices(m, 1)
    p, effect = np.array(found["p_holm"], dtype=np.float64), np.array(found["effect"], dtype=np.float64)
    shade = np.where(p < board["alpha"], 1 + np.searchsorted(EFFECTS, np.abs(effect), side="right"), 0)
    shade = np.where((shade > 0) & (effect < 0), -1, shade)  # the means are in the other order
    side = 18 if m <= FEW else 9
    left = round(LABEL * max(len(f"{k + 1} {name}") for k, name in enumerate(names))) + 6
    top = 14
    table = np.full((m, m), -2)
    table[i, j] = shade
    paths = [
        element("path", {"class": f"q{'x' if kind < 0 else kind}", "d": _runs(table == kind)})
        for kind in np.unique(shade).tolist()
    ]
    squares = element(
        "g",
        {"transform": f"translate({left} {top}) scale({side})"},
        joined(paths),
        element("path", {"class": "lattice", "d": _lattice(m)}),
    )
    rows = (
        element("text", {"x": left - 4, "y": round(top + side * (k + 0.72), 1)}, f"{name} {k + 1}")
        for k, name in enumerate(names[:-1])
    )
    step = 1 if m <= FEW else 5
    columns = (
        element("text", {"x": left + side * (k + 0.5), "y": top - 4}, str(k + 1))
        for k in range(1, m)
        if (k + 1) % step == 0
    )
    apart = int((shade != 0).sum())
    width, height = left + side * m + 2, top + side * (m - 1) + 2
    picture = element(
        "svg",
        {
            "viewBox": f"0 0 {width} {height}", "width": width, "height": height, "role": "img",
            "aria-label": f"{apart} of {len(p)} pairs differ", "data-at": f"{left} {top} {side}",
        },
        squares, element("g", {"class": "r"}, joined(rows)), element("g", {"class": "c"}, joined(columns)),
    )  # fmt: skip
    numbers = " ".join(f"{round(1000 * a)},{round(100 * b)}" for a, b in zip(p, effect, strict=True))
    return Pairs(picture, apart, len(p), ";".join(names), numbers)


def _runs(table: Any) -> str:
    """One path over the true squares of a table, neighbours in a row drawn as one."""
    parts = []
    for row, line in enumerate(table):
        edges = np.flatnonzero(np.diff(np.concatenate([[0], line.astype(int), [0]])))
        parts += [f"M{start} {row}h{end - start}v1h-{end - start}z" for start, end in edges.reshape(-1, 2).tolist()]
    return "".join(parts)


def _lattice(m: int) -> str:
    return "".join(f"M{k + 1} {k}H{m}M{k} 0V{k}" for k in range(1, m)) + f"M1 0H{m}V{m - 1}"
