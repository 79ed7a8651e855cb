"""The stage `checks`: ablations, and the checks of the benchmark itself that a sceptic demands."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np

from explainbench.analysis import sanity
from explainbench.analysis.ablation import CONCORDANT
from explainbench.analysis.board import DIGITS
from explainbench.core.arrays import Floats
from explainbench.core.cell import Cell
from explainbench.core.errors import BadInput, ExplainBenchError, NotApplicable
from explainbench.core.files import write_json
from explainbench.core.params import Params
from explainbench.core.provenance import sha256_json
from explainbench.core.workspace import Workspace
from explainbench.runner import Failed, run
from explainbench.stages import _finished, _marks, _planted, _probes
from explainbench.stages._finished import Grid, read_cells
from explainbench.stages._probes import Probe, Sizes
from explainbench.stages.cell import build_bench
from explainbench.stages.data import load_task
from explainbench.stages.fit import load_forecaster, model_folder, model_identity
from explainbench.stages.suite import locked_cells
from explainbench.store import CellStore

FILE = "checks.json"
SCHEMA = 1
SIZES = Sizes()
WHOLE = 2**31  # larger than any size, so that none is cut


def checks(
    workspace: Workspace,
    params: Params,
    workers: int,
    on_finished: Callable[[Cell, float], None],
    sizes: Sizes = SIZES,
    only: Iterable[str] = (),
) -> dict[str, Any]:
    """Run every check on the stored cells and the fitted models, and write results/checks.json.

    only: models to look at (all, where none is named). Numbers are published at six significant digits, and no time
    is in the file, so two runs on one machine write the same bytes. Raises BadInput (no cells, two protocol versions,
    a model that is not fitted) and writes nothing then.
    """
    grid = read_cells(workspace, params)
    if wanted := set(only):
        grid = grid.only(wanted)
    jobs = [Cell("energy", task, model, "checks") for task, model in grid.groups()]
    first = jobs[0]
    jobs += [replace(first, method=name) for name in _planted.PLANTED]
    found: dict[Cell, dict[str, Any]] = {}
    for outcome in run(jobs, partial(_examine, workspace, params, sizes), workers):
        if isinstance(outcome, Failed):
            raise ExplainBenchError(f"checks of {outcome.cell}: {outcome.reason}; nothing was written.")
        job, found[job], seconds = outcome
        on_finished(job, seconds)
    examined = {(cell.task, cell.model): found[cell] for cell in jobs if cell.method == "checks"}
    planted = [found[cell] for cell in jobs if cell.method != "checks"]
    document = _document(workspace, params, sizes, grid, examined, planted, first)
    write_json(workspace.results / FILE, document)
    return document


def _examine(workspace: Workspace, params: Params, sizes: Sizes, job: Cell) -> tuple[Cell, dict[str, Any], float]:
    """One job in a worker, on one thread: a (task, model), or a planted forecaster on that task."""
    import torch

    torch.set_num_threads(1)
    began = time.perf_counter()
    load = partial(load_forecaster, workspace, job.task, job.model, params)
    bench = build_bench(params, job.task, job.model, load_task(workspace, job.task), load())
    rows = _probes.subset(bench.data.windows, sizes.windows_per_regime)
    planted = job.method != "checks"
    if planted:  # such a forecaster costs next to nothing, so methods keep the cells' own sizes
        sizes = replace(sizes, coalitions=WHOLE, samples=WHOLE, steps=WHOLE, runs=WHOLE)
    stored = {} if planted else _importance(workspace, params, job, bench.data.windows.digest())
    probe = Probe(params, sizes, job.task, job.model, bench, stored, rows)
    if not planted:
        return job, _probes.examine(probe, load), time.perf_counter() - began
    try:
        plant = _planted.plant(
            job.method, bench.masker, bench.data.windows.channels, params.suites.energy.tasks[job.task]
        )
    except NotApplicable as gap:
        return job, {"methods": [{"planted": job.method, "reason": gap.reason}], "metrics": {}}, 0.0
    marks = {"methods": _marks.recovery(plant, probe), "metrics": _marks.meta_evaluation(plant, probe)}
    return job, marks, time.perf_counter() - began


def _importance(workspace: Workspace, params: Params, job: Cell, windows_sha256: str) -> dict[str, Floats]:
    """Published importance e (n, g) of the (task, model)'s ranked methods, in the order of params.yaml.

    Raises BadInput for a cell that was scored on other windows or weights than are here now.
    """
    methods = params.suites.energy.methods
    here = (windows_sha256, model_identity(model_folder(workspace, job.task, job.model)).weights_sha256)
    found: dict[str, Floats] = {}
    for stored in CellStore(workspace.cells):
        cell, spec = stored.cell, stored.record.spec
        if replace(cell, method=job.method) != job or cell.method not in methods:
            continue
        if (spec.windows_sha256, spec.weights_sha256) != here:
            raise BadInput(f"{cell} was scored on other windows or weights than are here; run `explainbench evaluate`.")
        found[cell.method] = stored.explanations()["importance"]
    return {name: found[name] for name in methods if name in found}


def _document(
    workspace: Workspace,
    params: Params,
    sizes: Sizes,
    grid: Grid,
    examined: Mapping[tuple[str, str], Mapping[str, Any]],
    planted: Sequence[Mapping[str, Any]],
    home: Cell,
) -> dict[str, Any]:
    def section(name: str) -> list[dict[str, Any]]:
        return [{"task": task, "model": model} | found[name] for (task, model), found in examined.items()]

    randomised = [
        {"task": task, "model": model} | row
        for (task, model), found in examined.items()
        for row in found["randomisation"]
    ]
    return rounded(
        {
            "schema": SCHEMA,
            "suite": "energy",
            "protocol": params.protocol,
            "inputs_sha256": sha256_json(locked_cells(workspace)["energy"]),
            "cells": len(grid.cells),
            "settings": asdict(sizes)
            | {
                "bootstrap": params.statistics.bootstrap,
                "confidence": params.statistics.confidence,
                "alpha": params.statistics.alpha,
                "concordant": CONCORDANT,
                "similar": sanity.SIMILAR,
                "permutations": sanity.PERMUTATIONS,
                "planted_on": f"{home.task}",
            },
            "weights": _finished.weights(grid, params),
            "masks": section("masks"),
            "panel": section("panel"),
            "depths": section("depths"),
            "segments": section("segments"),
            "baselines": _finished.baselines(grid, params),
            "diagnosticity": _finished.diagnosticity(grid, params),
            "randomisation": randomised,
            "planted_methods": [row for found in planted for row in found["methods"]],
            "planted_metrics": _meta(planted, params),
            "disagreement": _finished.metric_disagreement(grid, params),
            "regimes": _finished.regimes(grid, params),
            "aliases": _finished.aliases(grid),
            "determinism": section("determinism"),
        }
    )


def _meta(planted: Sequence[Mapping[str, Any]], params: Params) -> list[dict[str, Any]]:
    """Per metric, over all planted forecasters and windows: how often it prefers the truth to a wrong explanation."""
    rows = []
    for name in params.suites.energy.metrics:
        parts = [found["metrics"][name] for found in planted if name in found["metrics"]]
        wins = [part["wins"] for part in parts if "wins" in part]
        row: dict[str, Any] = {"metric": name, "value": None, "low": None, "high": None, "n": 0}
        try:
            if not wins:
                raise NotApplicable(parts[0]["reason"] if parts else "no forecaster could be planted on this task")
            row |= _finished.interval(np.concatenate(wins), params) | {"reason": ""}
        except NotApplicable as gap:
            row["reason"] = gap.reason
        rows.append(row)
    return rows


def summary(document: Mapping[str, Any]) -> dict[str, Any]:
    """What a reader should know first, counted from the document."""
    masks = [row for row in document["masks"] if row["w"] is not None]
    randomised = [row for row in document["randomisation"] if row["verdict"]]
    models = document["determinism"]
    methods = [row for model in models for row in model["methods"]]
    random = [
        row
        for row in document["baselines"]
        if (row["baseline"], row["metric"]) == ("random", "faithfulness_skill") and row["place"] is not None
    ]
    return {
        "one faithfulness ranking supported": f"{sum(row['supported'] for row in masks)} of {len(masks)} (task, model)",
        "random ranking last on F_skill": (
            f"{sum(row['place'] == row['methods'] + 1 for row in random)} of {len(random)} (task, model)"
        ),
        "explanations change with the weights": (
            f"{sum(row['verdict'] == 'changes' for row in randomised)} of {len(randomised)} cells, "
            f"{sum(row['verdict'] == 'ignores the weights' for row in randomised)} ignore them"
        ),
        "methods as deterministic as declared": f"{sum(row['ok'] for row in methods)} of {len(methods)} cells",
        "models with the same bits twice, alone, reordered, reloaded": (
            f"{sum(all(row[key] for key in ('twice', 'alone', 'reordered', 'reloaded')) for row in models)} "
            f"of {len(models)}"
        ),
        "metrics that prefer the planted truth": {
            row["metric"]: f"{row['value']:.2f} [{row['low']:.2f}, {row['high']:.2f}]"
            for row in document["planted_metrics"]
            if row["value"] is not None
        },
    }


def rounded(value: Any) -> Any:
    """Plain JSON, numbers at the boards' significant digits; what is not finite is null."""
    if isinstance(value, Mapping):
        return {str(key): rounded(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [rounded(item) for item in value]
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (float, np.floating)):
        return float(f"{value:.{DIGITS}g}") if np.isfinite(value) else None
    return int(value) if isinstance(value, np.integer) else value
