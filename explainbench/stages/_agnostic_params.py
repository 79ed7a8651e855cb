"""The block `suites.agnostic` of params.yaml, checked."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, ValidationError

from explainbench.core.errors import BadInput
from explainbench.core.params import Block, Params

Count = Annotated[int, Field(ge=1)]


class AgnosticParams(Block):
    """tables x models, and the energy suite's forecasters and explanations; the metrics are those of preset `paper`.

    folder: where imported public files lie, under the project; models: {tabular model: its options}; energy: whether
    the energy suite is judged too; rows: of a table, on which the metrics are computed; explained: of these, explained
    one by one with `coalitions` of KernelSHAP; top: features whose partial dependence is taken, at `points` values
    (`forecast_points` of a forecaster); repeats: permutations; bootstraps: of the surrogate; learned: training windows
    of a forecaster's surrogate; resamples: of the rows, for intervals.
    """

    folder: str = "public"
    alpha: Annotated[float, Field(gt=0.0, le=1.0)] = 0.8
    tables: list[str]
    models: dict[str, dict[str, Any]]
    energy: bool = True
    rows: Annotated[int, Field(ge=20)] = 2000
    explained: Annotated[int, Field(ge=2)] = 200
    coalitions: Annotated[int, Field(ge=16)] = 1024
    top: Count = 8
    points: Annotated[int, Field(ge=2)] = 50
    forecast_points: Annotated[int, Field(ge=2)] = 20
    repeats: Count = 5
    bootstraps: Count = 10
    learned: Annotated[int, Field(ge=20)] = 500
    resamples: Annotated[int, Field(ge=100)] = 1000


def agnostic_params(params: Params) -> AgnosticParams:
    """The block, or BadInput naming the key that is wrong."""
    if not params.suites.agnostic:
        raise BadInput("params.yaml has no block suites.agnostic, so this suite has no grid.")
    try:
        return AgnosticParams.model_validate(params.suites.agnostic)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise BadInput(f"params: suites.agnostic.{where}: {first['msg']}.") from error
