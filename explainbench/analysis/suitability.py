"""Efficiency and Deployment Suitability (paper 000, eqs. 8 and 12), from archived measurements and declared needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any

import numpy as np

from explainbench.analysis.board import Entry
from explainbench.analysis.composites import efficiency
from explainbench.core.cell import Score, Skipped
from explainbench.core.context import Context, privacy
from explainbench.core.errors import BadInput, Pending
from explainbench.core.explanation import MethodCard
from explainbench.core.registry import METHODS


@dataclass(frozen=True, slots=True)
class Suitability:
    """The five terms in [0, 1] of one explanation method on one device; `total` weighs them equally."""

    hardware: float  # share of the context's needs that the method meets
    memory: float  # 1 / (1 + peak / reference)
    latency: float  # share of the timed calls within the context's budget
    energy: float  # 1 / (1 + E / reference)
    privacy: float

    @property
    def total(self) -> float:
        """The equal-weight mean."""
        return float(np.mean(astuple(self)))


def suitability(measured: Mapping[str, Any], card: MethodCard, context: Context) -> Suitability:
    """The terms from one cell's entry in results/profile.json.

    Raises Pending where the profile lacks a measurement: it was taken by an older version, or by a system that does not
    tell a process its peak of memory.
    """
    missing = [key for key in ("seconds", "peak_mb", "joules") if measured.get(key) is None]
    if missing:
        raise Pending(
            f"the profile holds no {missing[0]} of this cell; run `explainbench profile` where it can be read"
        )
    seconds = np.asarray(measured["seconds"], dtype=np.float64)
    return Suitability(
        hardware=context.met(card),
        memory=1 / (1 + float(measured["peak_mb"]) / context.memory_mb.value),
        latency=float((seconds <= context.latency_seconds.value).mean()),
        energy=1 / (1 + float(measured["joules"]) / context.energy_joules.value),
        privacy=privacy(card),
    )


def with_measurements(
    entry: Entry, profile: Mapping[str, Any] | None, reference_seconds: float, contexts: Sequence[Context]
) -> Entry:
    """The entry with what the profile says of its cell: `efficiency`, and `dss.c` for every context c.

    `efficiency`: raw = median seconds t, value = 1/(1 + t/t_ref); `deployment_suitability` is that of the first
    context. What was not measured stays pending, with the reason.
    """
    measured = None if profile is None else profile["cells"].get(str(entry.cell))
    if measured is None:
        return entry
    scores = {**entry.scores, "efficiency": efficiency(float(measured["median_seconds"]), reference_seconds)}
    skipped: dict[str, Skipped] = {key: gap for key, gap in entry.skipped.items() if key != "efficiency"}
    try:
        card = METHODS.card(entry.cell.method)
        for place, context in enumerate(contexts):
            total = np.array([suitability(measured, card, context).total])
            scores[f"dss.{context.name}"] = Score(total, total)
            if place == 0:
                scores["deployment_suitability"] = Score(total, total)
                skipped.pop("deployment_suitability", None)
    except BadInput:
        reason = f"{entry.cell.method} is not registered here, so its needs are not known"
        skipped["deployment_suitability"] = Skipped("pending", reason)
    except Pending as gap:
        skipped["deployment_suitability"] = Skipped("pending", gap.reason)
    return replace(entry, scores=scores, skipped=skipped)
