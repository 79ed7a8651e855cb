"""params.yaml, read once and checked: every protocol constant under its name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from explainbench.core.context import Context, load_context
from explainbench.core.errors import BadInput
from explainbench.core.forecaster import Functional
from explainbench.core.masking import Operator

Unit = Annotated[float, Field(ge=0.0, le=1.0)]


class Block(BaseModel):
    """A block of params.yaml: an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class FunctionalParams(Block):
    """How a forecast path becomes the explained scalar; first and last are horizon steps of a block mean."""

    kind: Literal["mean", "max", "block_mean"] = "mean"
    first: Annotated[int, Field(ge=0)] = 0
    last: int | None = None

    def build(self) -> Functional:
        """The functional that turns a forecast path into the explained scalar."""
        return Functional(self.kind, self.first, self.last)


class TaskParams(Block):
    """One forecasting task. context, horizon and segment in steps; windows_per_regime in windows."""

    target: str
    context: Annotated[int, Field(gt=0)]
    horizon: Annotated[int, Field(gt=0)]
    segment: Annotated[int, Field(gt=0)]
    windows_per_regime: Annotated[int, Field(gt=0)]
    functional: FunctionalParams = FunctionalParams()

    @model_validator(mode="after")
    def _segment_fits(self) -> TaskParams:
        if self.segment > self.context:
            raise ValueError(f"segment {self.segment} is longer than the context of {self.context} steps")
        return self


class EnergyParams(Block):
    """The energy suite's grid: tasks x models x methods, and baselines that are shown but never ranked."""

    dataset: str
    masker: Operator = "climatology"
    compatibility: str = "compat-v1"  # which (model, method) pairs are cells: a file of core/rules
    overlapping_windows: bool = False  # allowed only for series too short for disjoint ones; effective n is reported
    tasks: dict[str, TaskParams]
    models: list[str]
    methods: list[str]
    baselines: list[str] = []
    metrics: list[str]


class SuitesParams(Block):
    """One block per suite. The three further suites check their own blocks in their own stages."""

    energy: EnergyParams
    ground_truth: dict[str, Any] = {}
    agnostic: dict[str, Any] = {}
    axe: dict[str, Any] = {}


class Weights(Block):
    """Composite weights w1..w6 (paper 000, Table 8); each pair sums to one."""

    faithfulness: Unit = 0.5
    fidelity: Unit = 0.5
    actionability: Unit = 0.5
    uncertainty_awareness: Unit = 0.5
    efficiency: Unit = 0.5
    deployment_suitability: Unit = 0.5

    @model_validator(mode="after")
    def _pairs_sum_to_one(self) -> Weights:
        pairs = (
            ("faithfulness", "fidelity"),
            ("actionability", "uncertainty_awareness"),
            ("efficiency", "deployment_suitability"),
        )
        for one, other in pairs:
            total = getattr(self, one) + getattr(self, other)
            if abs(total - 1.0) > 1e-9:
                raise ValueError(f"{one} + {other} = {total:g}, but the two weights must sum to 1")
        return self


class StatisticsParams(Block):
    """Resamples B, confidence level, significance level, seed purpose is fixed (`bootstrap`)."""

    bootstrap: Annotated[int, Field(ge=100)] = 10_000
    confidence: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.95
    alpha: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.05
    weights: Weights = Weights()


class ProfileParams(Block):
    """The efficiency stage: t_ref in seconds, explanations timed per cell, watts where no energy counter is exposed."""

    reference_seconds: Annotated[float, Field(gt=0.0)] = 1.0
    repeats: Annotated[int, Field(ge=3)] = 5
    watts: Annotated[float, Field(gt=0.0)] = 10.0


class FitParams(Block):
    """Training: strides in steps between training windows, per task the training series is cut the same way.

    allow_weak: keep a model that does not beat seasonal-naive (tiny profiles for tests only).
    """

    stride: Annotated[int, Field(gt=0)] = 4
    validation_share: Annotated[float, Field(gt=0.0, lt=0.5)] = 0.15
    allow_weak: bool = False


class Params(Block):
    """The whole of params.yaml after its profile was applied."""

    protocol: str
    seed: Annotated[int, Field(ge=0)]
    runs: Annotated[int, Field(ge=1)]
    suites: SuitesParams
    fit: FitParams = FitParams()
    models: dict[str, dict[str, Any]] = {}
    methods: dict[str, dict[str, Any]] = {}
    metrics: dict[str, dict[str, Any]] = {}
    contexts: tuple[Context, ...] = ()  # deployment contexts; the first is the one that boards of T1 and T2 speak of
    statistics: StatisticsParams = StatisticsParams()
    profile: ProfileParams = ProfileParams()


def load_params(path: Path, profile: str | None = None) -> Params:
    """Read params.yaml and lay the named profile over it. Raises BadInput naming the key that is wrong."""
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise BadInput(f"{path} does not exist; run inside an explainbench project or give --root.") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} is not valid YAML: {str(error).splitlines()[0]}.") from error
    if not isinstance(raw, dict):
        raise BadInput(f"{path} must be a mapping of parameter blocks.")
    profiles = raw.pop("profiles", None) or {}
    if profile is not None:
        if profile not in profiles:
            raise BadInput(
                f"{path} has no profile {profile!r}; its profiles are {', '.join(sorted(profiles)) or 'none'}."
            )
        raw = _overlaid(raw, profiles[profile])
    if "contexts" in raw:
        raw["contexts"] = _contexts(raw["contexts"], path)
    try:
        return Params.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise BadInput(f"{path}: {where}: {first['msg']} (got {_shown(first['input'])}).") from error


def _contexts(names: Any, path: Path) -> list[Context]:
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise BadInput(f"{path}: contexts must be a list of context names or files (got {_shown(names)}).")
    found = [load_context(name, path.parent) for name in names]
    twice = {context.name for context in found if sum(other.name == context.name for other in found) > 1}
    if twice:
        raise BadInput(f"{path}: contexts names {sorted(twice)[0]} twice; a context is listed once.")
    return found


def _overlaid(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        merged[key] = _overlaid(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return merged


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
