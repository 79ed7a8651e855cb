"""The stage `profile`: what one explanation costs. Archived measurements with their hardware, never in a digest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from explainbench.core.cell import Cell
from explainbench.core.errors import NotApplicable
from explainbench.core.files import write_json
from explainbench.core.forecaster import Meter
from explainbench.core.grid import energy_grid
from explainbench.core.params import Params
from explainbench.core.registry import METHODS
from explainbench.core.workspace import Workspace
from explainbench.stages.cell import build_bench
from explainbench.stages.data import load_task
from explainbench.stages.evaluate import hardware
from explainbench.stages.fit import load_forecaster
from explainbench.stages.footprint import Footprint, measured

FILE = "profile.json"
FEW = 4  # model calls up to which an explanation is timed without padding the model's batch


def profile(workspace: Workspace, params: Params, on_cell: Callable[[Cell], None]) -> dict[str, Any]:
    """Measure one explanation of one window, on one thread, `repeats` windows per cell after one warm-up.

    Writes results/profile.json: per cell all latencies in seconds, their median and 95th percentile, the largest peak
    of memory above what was held before, energy in joules (from a hardware counter, else CPU seconds times
    `profile.watts`, marked as estimated), and the deterministic model evaluations and gradient passes; once, the
    hardware and the date. References and budgets belong to the boards and the deployment contexts.
    """
    import torch

    torch.set_num_threads(1)
    cells: dict[str, dict[str, Any]] = {}
    for entry in energy_grid(params.suites.energy):
        cell = entry.cell
        if entry.obstacle is not None:
            continue
        forecaster = load_forecaster(workspace, cell.task, cell.model, params)
        bench = build_bench(params, cell.task, cell.model, load_task(workspace, cell.task), forecaster)
        method = METHODS.build(cell.method, params.methods.get(cell.method))
        model = replace(bench.model, meter=Meter())
        found: list[Footprint] = []
        try:
            for repeat in range(params.profile.repeats + 1):
                window = bench.data.windows.take(np.array([repeat % len(bench.data.windows)]))
                with measured() as cost:
                    method.explain(model, window, bench.masker, cell.rng(params.seed, "profile", repeat))
                found.append(cost)
                if repeat == 0 and model.meter.evaluations <= FEW:  # padding would dominate what one call takes
                    model = replace(model, batch=1)
        except NotApplicable:
            continue
        timed = [cost.seconds for cost in found[1:]]
        peaks = [cost.peak_mb for cost in found[1:] if cost.peak_mb is not None]
        joules = [cost.joules for cost in found[1:] if cost.joules is not None]
        estimated = len(joules) < len(timed)
        if estimated:
            joules = [params.profile.watts * cost.cpu_seconds for cost in found[1:]]
        cells[str(cell)] = {
            "seconds": timed,
            "median_seconds": float(np.median(timed)),
            "p95_seconds": float(np.quantile(timed, 0.95)),
            "peak_mb": max(peaks) if peaks else None,
            "joules": float(np.median(joules)),
            "joules_estimated": estimated,
            "evaluations": model.meter.evaluations / len(found),
            "gradients": model.meter.gradients / len(found),
            "batch": model.batch,
        }
        on_cell(cell)
    document = {
        "schema": 2,
        "measured": datetime.now(UTC).isoformat(timespec="seconds"),
        "hardware": hardware(),
        "watts": params.profile.watts,
        "cells": cells,
    }
    write_json(workspace.results / FILE, document)
    return document
