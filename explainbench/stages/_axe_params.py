"""The block `suites.axe` of params.yaml, checked."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, ValidationError

from explainbench.core.errors import BadInput
from explainbench.core.params import Block, Params

Count = Annotated[int, Field(ge=1)]


class FairwashingParams(Block):
    """Table 2 as cells. presets: {prefix of the scores: preset}; orders: of the rows, for the sensitivity to them."""

    tables: list[str]
    presets: dict[str, str]
    draws: Count = 50
    orders: Count = 10


class ForecastParams(Block):
    """The forecasting version: windows that are judged, and how many the attacker trains on."""

    windows: Annotated[int, Field(ge=10)] = 66
    training: Annotated[int, Field(ge=20)] = 276
    trees: Count = 40


class RegressionParams(Block):
    """The regression extension over the energy cells. k: neighbours."""

    k: Count = 5


class AxeParams(Block):
    """The grid: tables x models x (methods + baselines), and three further parts.

    folder: where imported public files lie, under the project; rows: of a generated table; explained: rows a table
    that are explained; runs: explanations per row of a stochastic method; draws: perturbed copies a row;
    options: {model or method: its options}.
    """

    folder: str = "public"
    rows: Annotated[int, Field(ge=50)] = 2000
    explained: Annotated[int, Field(ge=2)] = 100
    runs: Count = 1
    preset: str = "explainbench"
    k: list[Count]
    draws: Count = 50
    tables: list[str]
    models: list[str]
    methods: list[str]
    baselines: list[str] = Field(default=[])
    options: dict[str, dict[str, Any]] = Field(default={})
    fairwashing: FairwashingParams | None = None
    forecast: ForecastParams | None = None
    regression: RegressionParams | None = None


def axe_params(params: Params) -> AxeParams:
    """The block, or BadInput naming the key that is wrong."""
    if not params.suites.axe:
        raise BadInput("params.yaml has no block suites.axe, so this suite has no grid.")
    try:
        return AxeParams.model_validate(params.suites.axe)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise BadInput(f"params: suites.axe.{where}: {first['msg']}.") from error
