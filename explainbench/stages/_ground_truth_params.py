"""The block `suites.ground_truth` of params.yaml, checked."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, ValidationError, field_validator

from explainbench.core.errors import BadInput
from explainbench.core.params import Block, Params
from explainbench.data._ground_truth import PUBLISHED, ROWS, name_of, rules_of
from explainbench.metrics.ops import overall
from explainbench.metrics.xfa import TOP, VariantName

Count = Annotated[int, Field(ge=1)]
Weight = Annotated[float, Field(ge=0.0)]


class OverallParams(Block):
    """Overall: which variant of XFA it averages with OPS, by which weights, and the axis of OPS (reconstructed-v1)."""

    variant: VariantName = "xfa_text"
    xfa: float = 1.0
    ops: float = 1.0
    axis: Literal["count", "percent"] = "count"

    @property
    def weights(self) -> tuple[float, float]:
        """(w1, w2)."""
        return self.xfa, self.ops


class ForecastsParams(Block):
    """The forecasting counterpart. task: whose windows planted forecasters get; methods: that explain these."""

    task: str
    methods: list[str]


class GroundTruthParams(Block):
    """The grid: datasets x models x (methods + baselines).

    datasets: names of combinations, the paper's 11 by default; rows: of a dataset; test_share: of its rows; explained:
    test rows that every method explains, as many from each rule; runs: explanations per row of a stochastic method;
    naming: which columns a vector names where the method does not say; top: K of xfa_code_v1; weights: {dataset:
    complexity}, instead of the paper's ranks; options: {model or method: its options}; forecasts: energy cells and
    planted forecasters too.
    """

    datasets: list[str] = Field(default=[name_of(rules) for rules in PUBLISHED], min_length=1)
    rows: Annotated[int, Field(ge=100)] = ROWS
    test_share: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.2
    explained: Annotated[int, Field(ge=2)] = 200
    runs: Count = 1
    naming: Literal["share", "nonzero"] = "share"
    top: Count = TOP
    models: Annotated[list[str], Field(min_length=1)]
    methods: list[str]
    baselines: list[str] = Field(default=["random", "oracle"])
    overall: OverallParams = OverallParams()
    weights: dict[str, float] = Field(default={})
    options: dict[str, dict[str, Any]] = Field(default={})
    forecasts: ForecastsParams | None = None

    @field_validator("datasets")
    @classmethod
    def _buildable(cls, names: list[str]) -> list[str]:
        for name in names:
            rules_of(name)
            if names.count(name) > 1:
                raise ValueError(f"{name} is listed twice")
        return names

    def complexity(self) -> dict[str, float]:
        """C_d of every dataset: the weights given, else the paper's ranks, 1 for the easiest. Raises BadInput."""
        ranks = self.weights or {name_of(rules): float(rank) for rank, rules in enumerate(PUBLISHED, start=1)}
        missing = [name for name in self.datasets if name not in ranks]
        if missing:
            raise BadInput(
                f"{missing[0]} is not one of the paper's 11 datasets, so its complexity is not known; give every "
                "dataset a weight in suites.ground_truth.weights."
            )
        chosen = [ranks[name] for name in self.datasets]
        if not np.isfinite(chosen).all() or min(chosen) < 0 or sum(chosen) == 0:
            raise BadInput(
                "params: suites.ground_truth.weights must be finite numbers from zero on, and one of them above zero."
            )
        return {name: ranks[name] for name in self.datasets}


def ground_truth_params(params: Params) -> GroundTruthParams:
    """The block, or BadInput naming the key that is wrong."""
    if not params.suites.ground_truth:
        raise BadInput("params.yaml has no block suites.ground_truth, so this suite has no grid.")
    try:
        block = GroundTruthParams.model_validate(params.suites.ground_truth)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise BadInput(f"params: suites.ground_truth.{where}: {first['msg']}.") from error
    overall(0.0, 0.0, block.overall.weights)
    block.complexity()
    return block
