"""The grid: all cells of a suite and, for each, the obstacle or none."""

from __future__ import annotations

from dataclasses import dataclass

from explainbench.core.cell import Cell
from explainbench.core.params import EnergyParams
from explainbench.core.registry import METHODS, MODELS

# Which model property a capability protocol needs, for the check that a declared map agrees with the cards.
_OFFERS = {
    "HasTorchModule": lambda card: card.input_differentiable,
    "HasAttention": lambda card: card.attention != "none",
    "HasFeatureMap": lambda card: card.gradcam_layer is not None,
    "HasQuantiles": lambda card: card.native_quantiles,
}


@dataclass(frozen=True, slots=True)
class GridCell:
    """A cell, whether it is a baseline (shown, never ranked), and why it cannot be run, if so."""

    cell: Cell
    baseline: bool
    obstacle: str | None = None


def obstacle(model: str, method: str) -> str | None:
    """The reason why `method` is not registered for `model`, or None."""
    card = MODELS.card(model)
    for need in METHODS.card(method).needs:
        if not _OFFERS[need](card):
            return f"{method} needs {need}, which {model} does not offer"
    return None


def energy_grid(params: EnergyParams) -> tuple[GridCell, ...]:
    """tasks x models x (methods + baselines), in the order of params.yaml."""
    return tuple(
        GridCell(Cell("energy", task, model, method), method in params.baselines, obstacle(model, method))
        for task in params.tasks
        for model in params.models
        for method in (*params.methods, *params.baselines)
    )
