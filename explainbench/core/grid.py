"""The grid: all cells of a suite and, for each, the obstacle or none."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from explainbench.core.cell import Cell
from explainbench.core.errors import BadInput
from explainbench.core.params import EnergyParams, Params
from explainbench.core.registry import METHODS, METRICS, MODELS

RULES = Path(__file__).parent / "rules"

# Which model property a capability protocol needs, for the check that a declared map agrees with the cards.
_OFFERS = {
    "HasTorchModule": lambda card: card.input_differentiable,
    "HasAttention": lambda card: card.attention != "none",
    "HasFeatureMap": lambda card: card.gradcam_layer is not None,
    "HasQuantiles": lambda card: card.native_quantiles,
}


class Compatibility(BaseModel):
    """Which (model, method) pairs are cells (paper 000, section 4.3): a file of `rules/`, named by its version.

    models, methods: what the map speaks of; excluded: model -> method -> why it does not apply. All other pairs of
    these models and methods are cells. Of entries outside the map, such as a user's own, it says nothing.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: str
    models: tuple[str, ...]
    methods: tuple[str, ...]
    excluded: dict[str, dict[str, Annotated[str, Field(min_length=10)]]]

    @model_validator(mode="after")
    def _excludes_what_it_lists(self) -> Compatibility:
        for model, reasons in self.excluded.items():
            for method in reasons:
                if model not in self.models or method not in self.methods:
                    raise ValueError(f"{model} x {method} is excluded but not one of the map's pairs")
        return self

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """The (model, method) pairs that are cells."""
        return tuple(
            (model, method)
            for model in self.models
            for method in self.methods
            if method not in self.excluded.get(model, {})
        )


@cache
def load_compatibility(version: str) -> Compatibility:
    """The map `<version>.yaml` of `rules/`. Raises BadInput naming the maps there are."""
    path = RULES / f"{version}.yaml"
    known = sorted(item.stem for item in RULES.glob("compat-*.yaml"))
    if version not in known:
        raise BadInput(
            f"params: suites.energy.compatibility = {version!r} is no compatibility map; there are: {', '.join(known)}."
        )
    try:
        found = Compatibility.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except ValidationError as error:
        raise BadInput(f"{path}: {error.errors()[0]['msg']}.") from error
    if found.version != version:
        raise BadInput(f"{path} says it is version {found.version!r}; a map is named by its version.")
    return found


@dataclass(frozen=True, slots=True)
class GridCell:
    """A cell, whether it is a baseline (shown, never ranked), and why it cannot be run, if so.

    obstacle: the pair does not fit together; pending: what the user must supply first, such as a file.
    """

    cell: Cell
    baseline: bool
    obstacle: str | None = None
    pending: str | None = None

    @property
    def runnable(self) -> bool:
        """Whether `evaluate` computes it."""
        return self.obstacle is None and self.pending is None


def lacking(model: str, method: str) -> str | None:
    """What `method` needs and `model` does not declare, as a reason, or None."""
    card = MODELS.card(model)
    for need in METHODS.card(method).needs:
        if not _OFFERS[need](card):
            return f"{method} needs {need}, which {model} does not offer"
    return None


def obstacle(model: str, method: str, compatibility: Compatibility) -> str | None:
    """The reason why `method` is not registered for `model`, or None.

    The map's word where it has one, checked against the cards; for entries outside it, what the cards declare.
    Raises BadInput where the map holds a pair whose model lacks what the method needs.
    """
    missing = lacking(model, method)
    if model not in compatibility.models or method not in compatibility.methods:
        return missing
    reason = compatibility.excluded.get(model, {}).get(method)
    if reason is None and missing is not None:
        raise BadInput(
            f"{compatibility.version} holds {model} x {method}, but {missing}; correct the model's card, or exclude "
            "the pair with a reason in a new version of the map."
        )
    return reason


def energy_grid(params: EnergyParams) -> tuple[GridCell, ...]:
    """tasks x models x (methods + baselines), in the order of params.yaml. Raises BadInput."""
    compatibility = load_compatibility(params.compatibility)
    return tuple(
        GridCell(
            Cell("energy", task, model, method), method in params.baselines, obstacle(model, method, compatibility)
        )
        for task in params.tasks
        for model in params.models
        for method in (*params.methods, *params.baselines)
    )


def check_blocks(params: Params) -> None:
    """Every block of `models`, `methods` and `metrics` belongs to an entry, and there is a task. Raises BadInput."""
    if not params.suites.energy.tasks:
        raise BadInput("params: suites.energy.tasks names no task.")
    for registry, blocks in ((MODELS, params.models), (METHODS, params.methods), (METRICS, params.metrics)):
        known = registry.names() if blocks else ()
        for name in blocks:
            if name not in known:
                raise BadInput(
                    f"params: {registry.kind}s.{name}: {name!r} is not a registered {registry.kind}; registered are "
                    f"{', '.join(known)}."
                )
