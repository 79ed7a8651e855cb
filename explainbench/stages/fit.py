"""`fit`: train each model on the training series, measure it against simple forecasts, and freeze it with its card."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from threadpoolctl import threadpool_limits

from explainbench.analysis.aliases import scale_equivariance
from explainbench.analysis.calibration import coverage
from explainbench.core.arrays import Floats
from explainbench.core.cell import Cell, stream
from explainbench.core.errors import BadInput, NotApplicable
from explainbench.core.files import read_json
from explainbench.core.forecaster import ExplainedModel, Forecaster, HasQuantiles, TaskShape, ZeroShotEntry
from explainbench.core.params import Params
from explainbench.core.provenance import sha256_file
from explainbench.core.registry import MODELS
from explainbench.core.windows import Windows
from explainbench.core.workspace import Workspace
from explainbench.models._conformal import Conformal
from explainbench.stages.data import load_task, quality_windows, training_split

SEASON = 96  # steps of a day
DIGITS = 6  # significant digits of published numbers
LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # of the quantiles whose coverage is measured


class Identity(NamedTuple):
    """What of a fitted model enters a cell's id."""

    card_sha256: str
    weights_sha256: str
    weights_source: str


@dataclass(frozen=True, slots=True)
class Fitted:
    """One fitted model: where it lies, its quality table {forecast: {measure: value}}, CPU seconds it took."""

    folder: Path
    quality: dict[str, dict[str, float]]
    seconds: float


def model_folder(workspace: Workspace, task_name: str, model_name: str) -> Path:
    """Where a fitted model lies."""
    return workspace.models / task_name / model_name


def task_shape(params: Params, task_name: str, windows: Windows) -> TaskShape:
    """The shape that a model of this task has. Raises BadInput when the target is no channel of the windows."""
    task = params.suites.energy.tasks[task_name]
    return TaskShape(task.context, task.horizon, len(windows.channels), windows.channels.index(task.target))


def fit_model(workspace: Workspace, params: Params, task_name: str, model_name: str) -> Fitted:
    """Fit, measure on the benchmark series, and save. Raises BadInput when the model is too weak.

    A trained model must beat the seasonal-naive and the naive forecast; a foundation model is not fitted but told the
    task, and must beat the naive one.
    """
    began = time.process_time()
    training, validation = training_split(workspace, params, task_name)
    shape = task_shape(params, task_name, training)
    entry = MODELS.build(model_name, params.models.get(model_name))
    zero_shot = isinstance(entry, ZeroShotEntry)
    if zero_shot:
        forecaster = entry.adapt(workspace.pretrained / model_name, shape, training.channels)
    else:
        forecaster = entry.fit(training, validation, shape, stream(params.seed, "fit", task_name, model_name))
    benchmark = quality_windows(workspace, params, task_name)
    table = quality(forecaster, model_name, training, benchmark, shape)
    problem = weakness(table, model_name, ("naive",) if zero_shot else ("seasonal_naive", "naive"))
    if problem is not None and not params.fit.allow_weak:
        raise BadInput(
            f"{model_name} on {task_name}: {problem}; nothing was saved. Give it more epochs or width in params.yaml "
            "(models), or a shorter fit.stride."
        )
    task = load_task(workspace, task_name)
    rng = stream(params.seed, "uncertainty", task_name, model_name)
    card = {
        "task": task_name,
        "seed": params.seed,
        "dataset": task.dataset,
        "dataset_sha256": task.dataset_sha256,
        "quality": {"windows": len(benchmark), "windows_sha256": benchmark.digest(), "forecasts": table},
        "uncertainty": uncertainty(forecaster, validation, benchmark, params, rng),
        "probes": {"scale_equivariance": _published(scale_equivariance(ExplainedModel(forecaster), task.windows))},
    }
    folder = model_folder(workspace, task_name, model_name)
    forecaster.described(**card).save(folder)
    return Fitted(folder, table, time.process_time() - began)


def uncertainty(
    forecaster: Forecaster, validation: Windows, benchmark: Windows, params: Params, rng: np.random.Generator
) -> dict[str, Any] | None:
    """Coverage of the predictive quantiles over all test origins, for the card (paper 000, eq. 6).

    Native quantiles where the model has them, else split-conformal ones calibrated on the validation windows (the last
    part of the training series, on which a trained model also stopped early). Intervals: a moving-block bootstrap whose
    blocks share no target step.
    """
    native = isinstance(forecaster, HasQuantiles)
    if native:
        quantiled, calibration = forecaster, None
    else:
        try:
            quantiled = Conformal.calibrated(forecaster, validation, np.asarray(LEVELS))
        except NotApplicable:  # too short a series to calibrate on: no block, so Uncertainty Awareness stays pending
            return None
        calibration = {
            "windows": len(validation),
            "windows_sha256": validation.digest(),
            "offsets_sha256": hashlib.sha256(quantiled.offsets.tobytes()).hexdigest(),
        }
    forecast = ExplainedModel(cast(Forecaster, quantiled)).forecast(benchmark.context)
    assert forecast.quantiles is not None
    assert forecast.levels is not None
    assert forecast.crossed is not None
    horizon = benchmark.target.shape[1]
    span = max(SEASON, horizon) // params.fit.stride + 1  # origins that share a day or a target step
    found = coverage(forecast.quantiles, benchmark.target, forecast.levels, span, params.statistics.bootstrap, rng)
    block = {
        "quantiles": "native" if native else "split_conformal",
        "calibration": calibration,
        "origins": found.origins,
        "levels": list(map(float, found.levels)),
        "coverage": [_published(value) for value in found.observed],
        "awareness": _published(found.awareness),
        "crossed_share": _published(float(forecast.crossed.mean()) / horizon),
    }
    if np.isnan(found.low).any():
        return block  # too few origins for an interval
    return {
        **block,
        "coverage_low": [_published(value) for value in found.low],
        "coverage_high": [_published(value) for value in found.high],
        "awareness_low": _published(found.interval[0]),
        "awareness_high": _published(found.interval[1]),
    }


def _published(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def fit_cell(workspace: Workspace, params: Params, job: Cell) -> Fitted:
    """Fit the (task, model) of `job`: the form in which the runner hands out work."""
    return fit_model(workspace, params, job.task, job.model)


def load_forecaster(workspace: Workspace, task_name: str, model_name: str, params: Params) -> Forecaster:
    """The fitted model of a task. Raises BadInput (missing, other architecture, other options or shape) or Corrupt."""
    folder = model_folder(workspace, task_name, model_name)
    forecaster = MODELS.build(model_name, params.models.get(model_name)).load(folder)
    task = params.suites.energy.tasks[task_name]
    shape = read_json(folder / "card.json")["shape"]
    if (shape["context"], shape["horizon"]) != (task.context, task.horizon):
        raise BadInput(
            f"{folder} forecasts {shape['horizon']} steps from {shape['context']}, but params say {task.horizon} from "
            f"{task.context} for {task_name}; fit it again."
        )
    return forecaster


def model_identity(folder: Path) -> Identity:
    """Hashes of a fitted model, read from its files. Raises BadInput when there is none."""
    card = read_json(folder / "card.json")
    return Identity(sha256_file(folder / "card.json"), card["weights"]["sha256"], card["weights_source"])


def quality(
    forecaster: Forecaster, name: str, training: Windows, benchmark: Windows, shape: TaskShape
) -> dict[str, dict[str, float]]:
    """MAE, RMSE (target units), MASE (scaled by the daily seasonal naive on the training windows) and sMAPE (percent)
    of a model, the naive and seasonal-naive forecasts, and linear autoregression, over all benchmark windows."""
    paths = {
        name: ExplainedModel(forecaster).forecast(benchmark.context).mean,
        "naive": naive(benchmark, shape),
        "seasonal_naive": seasonal_naive(benchmark, shape),
        "linear_ar": linear_autoregression(training, benchmark, shape),
    }
    scale = float(np.abs(seasonal_naive(training, shape) - training.target).mean())
    return {key: errors(path, benchmark.target, scale) for key, path in paths.items()}


def errors(path: Floats, target: Floats, scale: float) -> dict[str, float]:
    """MAE, RMSE, MASE = MAE / scale, sMAPE = 200 mean(|e| / (|y| + |f|)) with 0/0 = 0; paths and targets (n, h)."""
    error = np.abs(path - target)
    size = np.abs(path) + np.abs(target)
    relative = np.divide(error, size, out=np.zeros_like(error), where=size > 0)
    mae = error.mean()
    values = {"mae": mae, "rmse": np.sqrt((error**2).mean()), "mase": mae / scale, "smape": 200 * relative.mean()}
    return {key: _published(value) for key, value in values.items()}


def weakness(table: dict[str, dict[str, float]], name: str, against: tuple[str, ...]) -> str | None:
    """Why a model is too weak to be explained, or None: it must beat the simple forecasts `against` on MAE."""
    for simple in against:
        if table[name]["mae"] >= table[simple]["mae"]:
            return f"its MAE {table[name]['mae']:g} does not beat the {simple} forecast's {table[simple]['mae']:g}"
    return None


def naive(windows: Windows, shape: TaskShape) -> Floats:
    """The last value, repeated: (n, h)."""
    return np.repeat(windows.context[:, -1:, shape.target], shape.horizon, axis=1)


def seasonal_naive(windows: Windows, shape: TaskShape) -> Floats:
    """The value at the same time yesterday: (n, h)."""
    season = min(SEASON, shape.context)
    steps = shape.context - season + np.arange(shape.horizon) % season
    return windows.context[:, steps, shape.target]


def linear_autoregression(training: Windows, benchmark: Windows, shape: TaskShape) -> Floats:
    """Ridge regression of all horizon steps on the target's own context and the last step's calendar: (n, h)."""
    from sklearn.linear_model import Ridge

    channels = training.channels
    calendar = np.flatnonzero(channels.known)

    def inputs(windows: Windows) -> Floats:
        z = (windows.context - channels.mean) / np.where(channels.std > 0, channels.std, 1.0)
        return np.concatenate([z[:, :, shape.target], z[:, -1, calendar]], axis=1)

    with threadpool_limits(1):
        model = Ridge(alpha=1.0, solver="cholesky").fit(inputs(training), training.target)
        return model.predict(inputs(benchmark)).reshape(benchmark.target.shape)
