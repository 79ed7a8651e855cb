"""The fit stage: quality against simple forecasts, the failed stage, and what a saved model is identified by."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch

import explainbench.stages.fit as fit
from explainbench.core.errors import BadInput
from explainbench.core.forecaster import ExplainedModel, TaskShape
from explainbench.core.params import Params, load_params
from explainbench.core.windows import Channels, Windows
from explainbench.core.workspace import Workspace

ROOT = Path(__file__).parents[2]
SHAPE = TaskShape(context=96, horizon=4, channels=2, target=0)


def windows(n: int, seed: int, noise: float = 1.0) -> Windows:
    """A daily wave whose level drifts, so that yesterday is a poor forecast and the last value a fair one."""
    rng = np.random.default_rng(seed)
    steps = rng.integers(0, 96, (n, 1)) + np.arange(100)
    angle = steps * 2 * np.pi / 96
    level = rng.normal(0, 0.3, (n, 100)).cumsum(1) * 5
    load = 100 + 20 * np.sin(angle) + level + rng.normal(0, noise, (n, 100))
    series = np.stack([load, np.cos(angle)], -1)
    channels = Channels(
        ("load_mw", "tod_cos"), ("MW", "1"), (False, True),
        np.array([100.0, 0.0]), np.array([20.0, 1.0]), np.array([50.0, -1.0]), np.array([150.0, 1.0]),
    )  # fmt: skip
    origin = np.datetime64("2024-01-01T00:00", "m") + np.arange(n) * np.timedelta64(15, "m")
    return Windows(series[:, :96], load[:, 96:], np.full(n, "peak"), origin, channels)


def test_errors_of_a_worked_example() -> None:
    found = fit.errors(np.array([[1.0, 0.0]]), np.array([[3.0, 0.0]]), scale=0.5)
    assert found == {"mae": 1.0, "rmse": round(2**0.5, 5), "mase": 2.0, "smape": 50.0}


def test_simple_forecasts() -> None:
    context = np.arange(2 * 96 * 2, dtype=float).reshape(2, 96, 2)
    some = windows(2, 0)
    given = some.moved_to(context)
    assert np.array_equal(fit.naive(given, SHAPE), np.repeat(context[:, -1:, 0], 4, axis=1))
    assert np.array_equal(fit.seasonal_naive(given, SHAPE), context[:, :4, 0])
    longer = TaskShape(192, 96, 2, 0)
    context = np.arange(192.0).reshape(1, 192, 1)
    assert np.array_equal(fit.seasonal_naive(windows(1, 0).moved_to(context.repeat(2, 2)), longer), context[:, 96:, 0])


def test_linear_autoregression_recovers_a_linear_process() -> None:
    train, test = windows(400, 1), windows(50, 2)
    weights = np.random.default_rng(3).normal(size=(96, 4)) / 10
    train = Windows(train.context, train.context[:, :, 0] @ weights, train.regime, train.origin, train.channels)
    truth = test.context[:, :, 0] @ weights
    found = fit.linear_autoregression(train, test, SHAPE)
    assert np.abs(found - truth).max() < 0.02 * np.ptp(truth)


def test_weakness_names_the_forecast_it_does_not_beat() -> None:
    table = {"m": {"mae": 2.0}, "naive": {"mae": 3.0}, "seasonal_naive": {"mae": 1.5}}
    both = ("seasonal_naive", "naive")
    assert fit.weakness(table, "m", both) == "its MAE 2 does not beat the seasonal_naive forecast's 1.5"
    assert fit.weakness(table, "m", ("naive",)) is None
    assert fit.weakness({**table, "m": {"mae": 1.0}}, "m", both) is None


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Workspace, Params]:
    """params.yaml with tiny models, and windows that need no data on disk."""
    params = load_params(ROOT / "params.yaml", "smoke")
    models = {"lstm": {"hidden": 4, "epochs": 1}, "transformer": {"width": 8, "heads": 2, "layers": 1, "epochs": 1}}
    some = windows(200, 3)
    params = params.model_copy(update={"models": models, "fit": params.fit.model_copy(update={"allow_weak": False})})

    class Task:
        dataset, dataset_sha256, windows = "wave", "0" * 64, some

    monkeypatch.setattr(fit, "training_split", lambda *_: (windows(256, 1), windows(64, 2)))
    monkeypatch.setattr(fit, "quality_windows", lambda *_: windows(200, 3))
    monkeypatch.setattr(fit, "load_task", lambda *_: Task)
    return Workspace(ROOT, tmp_path), params


@pytest.mark.parametrize("name", ["lstm", "transformer"])
def test_fit_saves_a_model_that_loads(project: tuple[Workspace, Params], name: str) -> None:
    workspace, params = project
    fitted = fit.fit_model(workspace, params, "T1", name)
    assert fitted.folder == workspace.models / "T1" / name
    assert fitted.quality[name]["mae"] < fitted.quality["seasonal_naive"]["mae"]
    assert set(fitted.quality) == {name, "naive", "seasonal_naive", "linear_ar"}
    card = json.loads((fitted.folder / "card.json").read_text())
    weights = (fitted.folder / "model.safetensors").read_bytes()
    assert card["quality"]["forecasts"] == fitted.quality
    assert card["dataset_sha256"] == "0" * 64
    assert card["probes"]["scale_equivariance"] > 0
    found = card["uncertainty"]
    assert (found["quantiles"], found["origins"], found["calibration"]["windows"]) == ("split_conformal", 200, 64)
    assert found["awareness_low"] <= found["awareness"] <= 1
    assert len(found["levels"]) == len(found["coverage"]) == len(found["coverage_low"]) == 9
    assert card["training"]["windows_sha256"] == windows(256, 1).digest()
    identity = fit.model_identity(fitted.folder)
    assert identity.weights_sha256 == hashlib.sha256(weights).hexdigest()
    assert identity.card_sha256 == hashlib.sha256((fitted.folder / "card.json").read_bytes()).hexdigest()
    assert identity.weights_source == "trained"
    model = fit.load_forecaster(workspace, "T1", name, params)
    path = ExplainedModel(model).forecast(windows(200, 3).context).mean
    assert fit.errors(path, windows(200, 3).target, 1.0)["mae"] == fitted.quality[name]["mae"]


def test_fit_again_gives_the_same_bytes(project: tuple[Workspace, Params]) -> None:
    workspace, params = project
    folder = fit.fit_model(workspace, params, "T1", "lstm").folder
    files = [folder / "card.json", folder / "model.safetensors"]
    before = [file.read_bytes() for file in files]
    torch.rand(3)  # the state of the global generator must not matter
    fit.fit_model(workspace, params, "T1", "lstm")
    assert [file.read_bytes() for file in files] == before


def test_a_model_worse_than_seasonal_naive_fails_the_stage(
    project: tuple[Workspace, Params], monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace, params = project
    easy = windows(200, 3)
    repeated = Windows(easy.context, easy.context[:, :4, 0], easy.regime, easy.origin, easy.channels)
    monkeypatch.setattr(fit, "quality_windows", lambda *_: repeated)  # yesterday is exactly right here
    with pytest.raises(
        BadInput, match=r"lstm on T1: its MAE .* does not beat the seasonal_naive forecast's 0; nothing"
    ):
        fit.fit_model(workspace, params, "T1", "lstm")
    assert not (workspace.models / "T1").exists()
    weak = params.model_copy(update={"fit": params.fit.model_copy(update={"allow_weak": True})})
    assert fit.fit_model(workspace, weak, "T1", "lstm").folder.is_dir()


def test_a_model_fitted_for_another_shape_is_refused(project: tuple[Workspace, Params]) -> None:
    workspace, params = project
    fit.fit_model(workspace, params, "T1", "lstm")
    (workspace.models / "T2").mkdir()
    (workspace.models / "T1" / "lstm").rename(workspace.models / "T2" / "lstm")
    with pytest.raises(BadInput, match="forecasts 4 steps from 96, but params say 96 from 192 for T2"):
        fit.load_forecaster(workspace, "T2", "lstm", params)


def test_without_a_fit_the_message_says_what_to_run(project: tuple[Workspace, Params]) -> None:
    workspace, params = project
    with pytest.raises(BadInput, match="run the stage that writes it first"):
        fit.load_forecaster(workspace, "T1", "lstm", params)
    with pytest.raises(BadInput, match="run the stage that writes it first"):
        fit.model_identity(fit.model_folder(workspace, "T1", "lstm"))
