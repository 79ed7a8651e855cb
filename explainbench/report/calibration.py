"""Reliability diagrams of the predictive quantiles behind Uncertainty Awareness (paper 000, eq. 6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from explainbench.report.source import Source
from explainbench.report.svg import Scale, element, interval, joined, number

SIZE, EDGE = 190, 30


@dataclass(frozen=True, slots=True)
class Diagram:
    """Coverage by level of one model on one task. native: the model's own quantiles, else the conformal wrapper's."""

    task: str
    model: str
    native: bool
    awareness: str
    interval: str
    origins: int
    anchor: str
    picture: Markup


def diagrams(source: Source, task: str) -> tuple[Diagram, ...]:
    """One diagram per model whose card holds coverage by level."""
    return tuple(
        _diagram(source, task, model, card["uncertainty"])
        for (card_task, model), card in source.cards.items()
        if card_task == task and card.get("uncertainty")
    )


def _diagram(source: Source, task: str, model: str, block: Mapping[str, Any]) -> Diagram:
    file = source.file(f"models/{task}/{model}/card.json")
    return Diagram(
        task,
        model,
        block["quantiles"] == "native",
        number(block["awareness"]),
        interval(block.get("awareness_low"), block.get("awareness_high")),
        block["origins"],
        file.anchor if file else "",
        _picture(block),
    )


def _picture(block: Mapping[str, Any]) -> Markup:
    across, up = Scale(0, 1, EDGE, SIZE - 8), Scale(0, 1, SIZE - EDGE, 8)
    observed = [(across(level), up(value)) for level, value in zip(block["levels"], block["coverage"], strict=True)]
    parts = [
        element("line", {"class": "grid", "x1": across(tick), "x2": across(tick), "y1": up(0), "y2": up(1)})
        + element("line", {"class": "grid", "x1": across(0), "x2": across(1), "y1": up(tick), "y2": up(tick)})
        + element("text", {"x": across(tick), "y": up(0) + 13, "text-anchor": "middle"}, f"{tick:g}")
        + element("text", {"x": across(0) - 5, "y": up(tick) + 3.5, "text-anchor": "end"}, f"{tick:g}")
        for tick in (0.0, 0.5, 1.0)
    ]
    parts.append(element("line", {"class": "ideal", "x1": across(0), "y1": up(0), "x2": across(1), "y2": up(1)}))
    if "coverage_low" in block:
        upper = list(zip(block["levels"], block["coverage_high"], strict=True))
        lower = list(zip(block["levels"], block["coverage_low"], strict=True))
        band = " ".join(f"{across(level)},{up(value)}" for level, value in upper + lower[::-1])
        parts.append(element("polygon", {"class": "band", "points": band}))
    parts.append(element("polyline", {"class": "seen", "points": " ".join(f"{x},{y}" for x, y in observed)}))
    parts += [element("circle", {"class": "seen", "cx": x, "cy": y, "r": 2.6}) for x, y in observed]
    words = "; ".join(
        f"{level:.0%} level, {value:.0%} covered"
        for level, value in zip(block["levels"], block["coverage"], strict=True)
    )
    return element(
        "svg",
        {"class": "diagram", "viewBox": f"0 0 {SIZE} {SIZE}", "role": "img", "aria-label": words},
        joined(parts),
    )
