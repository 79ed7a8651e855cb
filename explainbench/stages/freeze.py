"""`freeze`: the normalisation bounds of a protocol version, written once after a full run."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np

from explainbench.analysis.normalise import SHIPPED, freeze
from explainbench.core.arrays import Floats
from explainbench.core.errors import BadInput
from explainbench.core.files import write_json
from explainbench.core.grid import energy_grid
from explainbench.core.params import Params
from explainbench.core.registry import METHODS
from explainbench.core.workspace import Workspace
from explainbench.store import CellStore

METRICS = ("faithfulness",)  # metrics whose raw value has a unit, so that [0, 1] needs a bound


def freeze_bounds(workspace: Workspace, params: Params, replace: bool) -> Path:
    """Write explainbench/analysis/bounds/<protocol>.json: per task, the 99th percentile of raw over all ranked cells.

    Raises BadInput when the bounds exist already (later entries must not change old scores) or a cell of the grid of
    params.yaml is missing.
    """
    path = SHIPPED / f"{params.protocol}.json"
    if path.is_file() and not replace:
        raise BadInput(
            f"the bounds of protocol {params.protocol!r} are frozen in {path}; give the protocol a new name in "
            "params.yaml, or --replace to break with every score published under this one."
        )
    scored = {stored.cell for stored in CellStore(workspace.cells)}
    missing = [
        entry.cell for entry in energy_grid(params.suites.energy) if not entry.obstacle and entry.cell not in scored
    ]
    if missing:
        raise BadInput(
            f"{len(missing)} cells of the grid are not scored, {missing[0]} first; run `explainbench evaluate`."
        )
    raw: dict[str, dict[str, list[Floats]]] = defaultdict(lambda: defaultdict(list))
    cells = 0
    for stored in CellStore(workspace.cells):
        if stored.cell.suite != "energy" or METHODS.card(stored.cell.method).category == "baseline":
            continue
        table = stored.scores().to_pandas()
        for metric in METRICS:
            values = table.loc[table["metric"] == metric, "raw"].to_numpy(dtype=np.float64)
            raw[stored.cell.task][metric].append(values[np.isfinite(values)])
        cells += 1
    models = sorted({stored.cell.model for stored in CellStore(workspace.cells)})
    bounds = freeze(raw, params.protocol, f"{cells} cells of {', '.join(models)}")
    write_json(path, bounds.as_json())
    return path
