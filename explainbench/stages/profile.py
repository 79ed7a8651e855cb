"""The stage `profile`: how long one explanation takes. Archived measurements with their hardware, never in a digest."""

from __future__ import annotations

import time
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

FILE = "profile.json"
FEW = 4  # model calls up to which an explanation is timed without padding the model's batch


def profile(workspace: Workspace, params: Params, on_cell: Callable[[Cell], None]) -> dict[str, Any]:
    """Time one explanation of one window, on one thread, `repeats` windows per cell after one warm-up.

    Writes results/profile.json: per cell the median and 95th percentile latency in seconds and the deterministic
    model evaluations and gradient passes; once, the hardware and the date. t_ref is a parameter of the boards.
    """
    import torch

    torch.set_num_threads(1)
    cells: dict[str, dict[str, float]] = {}
    for entry in energy_grid(params.suites.energy):
        cell = entry.cell
        if entry.obstacle is not None:
            continue
        forecaster = load_forecaster(workspace, cell.task, cell.model, params)
        bench = build_bench(params, cell.task, cell.model, load_task(workspace, cell.task), forecaster)
        method = METHODS.build(cell.method, params.methods.get(cell.method))
        model = replace(bench.model, meter=Meter())
        seconds: list[float] = []
        try:
            for repeat in range(params.profile.repeats + 1):
                window = bench.data.windows.take(np.array([repeat % len(bench.data.windows)]))
                began = time.perf_counter()
                method.explain(model, window, bench.masker, cell.rng(params.seed, "profile", repeat))
                seconds.append(time.perf_counter() - began)
                if repeat == 0 and model.meter.evaluations <= FEW:  # padding would dominate what one call takes
                    model = replace(model, batch=1)
        except NotApplicable:
            continue
        timed = seconds[1:]
        cells[str(cell)] = {
            "median_seconds": float(np.median(timed)),
            "p95_seconds": float(np.quantile(timed, 0.95)),
            "evaluations": model.meter.evaluations / len(seconds),
            "gradients": model.meter.gradients / len(seconds),
            "batch": model.batch,
        }
        on_cell(cell)
    measured = {
        "schema": 1,
        "measured": datetime.now(UTC).isoformat(timespec="seconds"),
        "hardware": hardware(),
        "reference_seconds": params.profile.reference_seconds,
        "cells": cells,
    }
    write_json(workspace.results / FILE, measured)
    return measured
