"""Raw scores to [0, 1] with frozen bounds, so that a new entry never changes an old score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from explainbench.core.arrays import Floats
from explainbench.core.errors import BadInput, Pending
from explainbench.core.files import read_json

SHIPPED = Path(__file__).parent / "bounds"
QUANTILE = 0.99


class Bound(BaseModel):
    """The raw values that become 0 and 1, in the unit of the raw score."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    lo: Annotated[float, Field(allow_inf_nan=False)] = 0.0
    hi: Annotated[float, Field(allow_inf_nan=False)]

    @model_validator(mode="after")
    def _not_empty(self) -> Bound:
        if self.hi <= self.lo:
            raise ValueError(f"hi = {self.hi:g} must be above lo = {self.lo:g}")
        return self


class Bounds(BaseModel):
    """Frozen bounds of one registry version: task -> metric -> bound (a file in `bounds/`, named by its version)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: str
    source: str = ""  # which run they were frozen from
    tasks: dict[str, dict[str, Bound]]

    def bound(self, task: str, metric: str) -> Bound:
        """The bound of a metric on a task. Raises Pending when it is not frozen."""
        found = self.tasks.get(task, {}).get(metric)
        if found is None:
            raise Pending(
                f"bounds {self.version} hold no {metric} on {task}; `explainbench freeze` writes them after a full run"
            )
        return found

    def as_json(self) -> dict[str, object]:
        """The content of the file, for `core.files.write_json`."""
        return self.model_dump()


@dataclass(frozen=True, slots=True, eq=False)
class Normalised:
    """values: (n,) in [0, 1]; clipped: share of windows that lay outside the bounds (NaN windows do not count)."""

    values: Floats
    clipped: float


def load_bounds(version: str, folder: Path = SHIPPED) -> Bounds:
    """The bounds file `<version>.json`, shipped with the package or in `folder`. Raises BadInput."""
    path = folder / f"{version}.json"
    if not path.is_file():
        known = ", ".join(sorted(item.stem for item in folder.glob("*.json"))) or "none"
        raise BadInput(f"there are no normalisation bounds {version!r} in {folder}; there are: {known}.")
    try:
        bounds = Bounds.model_validate(read_json(path))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise BadInput(f"{path}: {where}: {first['msg']}.") from error
    if bounds.version != version:
        raise BadInput(f"{path} says it is version {bounds.version!r}; a bounds file is named by its version.")
    return bounds


def freeze(raw: Mapping[str, Mapping[str, Sequence[Floats]]], version: str, source: str = "") -> Bounds:
    """Bounds of a new version: lo = 0, hi = the 99th percentile of raw over all ranked cells of a full run.

    raw: task -> metric -> one array (n,) per cell; undefined windows are left out. Raises BadInput for a metric
    without a positive finite value.
    """
    tasks: dict[str, dict[str, Bound]] = {}
    for task, metrics in raw.items():
        for metric, cells in metrics.items():
            values = np.concatenate([np.asarray(cell, dtype=np.float64).ravel() for cell in cells] or [np.empty(0)])
            values = values[np.isfinite(values)]
            hi = float(np.quantile(values, QUANTILE)) if len(values) else 0.0
            if hi <= 0:
                raise BadInput(
                    f"cannot freeze {metric} on {task}: "
                    f"the 99th percentile of {len(values)} finite raw values is {hi:g}; "
                    "evaluate the full grid first."
                )
            tasks.setdefault(task, {})[metric] = Bound(hi=hi)
    return Bounds(version=version, source=source, tasks=tasks)


def normalise(raw: Floats, bound: Bound) -> Normalised:
    """clip((raw - lo) / (hi - lo)) over windows (n,); NaN stays NaN (spec section 4, Faithfulness)."""
    scaled = (raw - bound.lo) / (bound.hi - bound.lo)
    defined = scaled[~np.isnan(scaled)]
    outside = float(((defined < 0) | (defined > 1)).mean()) if len(defined) else 0.0
    return Normalised(np.clip(scaled, 0.0, 1.0), outside)
