"""What every registered forecaster must do, whoever wrote it; a ninth model is tested by being there."""

from __future__ import annotations

import copy
import json
from dataclasses import fields, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from explainbench.core.errors import BadInput, Corrupt
from explainbench.core.forecaster import (
    BATCH,
    ExplainedModel,
    HasAttention,
    HasFeatureMap,
    HasQuantiles,
    HasTorchModule,
    TaskShape,
)
from explainbench.core.registry import MODELS
from explainbench.core.windows import Channels, Windows

SHAPE = TaskShape(context=64, horizon=6, channels=4, target=0)
SMALL = {  # options that make an instance tiny; a model without an entry is built with its defaults
    "lstm": {"hidden": 8, "epochs": 2},
    "chronos": {"width": 16, "heads": 2, "layers": 1, "steps": 8, "series": 60, "batch_size": 8},
    "timesfm": {"width": 16, "heads": 2, "layers": 1, "steps": 8, "series": 60, "batch_size": 8},
    "moirai": {"width": 16, "heads": 2, "layers": 1, "steps": 8, "series": 60, "batch_size": 8},
    "patchtst": {"width": 16, "heads": 2, "patch": 8, "stride": 4, "epochs": 2},
    "informer": {"width": 16, "heads": 2, "factor": 1, "epochs": 2},
    "autoformer": {"width": 16, "average": 5, "epochs": 2},
    "transformer": {"width": 16, "heads": 2, "layers": 2, "epochs": 2},
}


def windows(n: int, seed: int) -> Windows:
    """A daily wave with noise, two observed channels beside it and one calendar channel, at level 50."""
    rng = np.random.default_rng(seed)
    phase = rng.uniform(0, 2 * np.pi, (n, 1)) + np.arange(SHAPE.context + SHAPE.horizon) * 2 * np.pi / 16
    load = 50 + 8 * np.sin(phase) + rng.normal(0, 0.5, phase.shape)
    other = rng.normal(20, 5, (2, *phase.shape))
    series = np.stack([load, *other, np.cos(phase)], axis=-1)
    past = series[:, : SHAPE.context]
    flat = past.reshape(-1, SHAPE.channels)
    channels = Channels(
        ("load_mw", "temperature_c", "wind_mw", "day_cos"),
        ("MW", "degC", "MW", "1"),
        (False, False, False, True),
        flat.mean(0), flat.std(0), flat.min(0), flat.max(0),
    )  # fmt: skip
    origin = np.datetime64("2024-01-01T00:00", "m") + np.arange(n) * np.timedelta64(15, "m")
    return Windows(past, load[:, SHAPE.context :], np.full(n, "peak"), origin, channels)


@cache
def fitted(name: str):
    entry = MODELS.build(name, SMALL.get(name))
    return entry.fit(windows(256, 1), windows(64, 2), SHAPE, np.random.default_rng(3))


@pytest.fixture(params=MODELS.names())
def name(request: pytest.FixtureRequest) -> str:
    return request.param


def test_there_are_models() -> None:
    paper = {"lstm", "transformer", "patchtst", "informer", "autoformer", "chronos", "timesfm", "moirai"}
    assert paper <= set(MODELS.names())


def test_predict_is_pure(name: str) -> None:
    model, context = fitted(name), windows(BATCH, 4).context
    before = context.copy()
    torch.manual_seed(1)
    first = model.predict(context)
    torch.manual_seed(2)  # a model that draws must draw from its own generator
    state = torch.get_rng_state()
    second = model.predict(context)
    assert np.array_equal(first.mean, second.mean)
    assert np.array_equal(context, before)
    assert torch.equal(state, torch.get_rng_state())
    assert first.mean.shape == (BATCH, SHAPE.horizon)
    assert first.mean.dtype == np.float64
    assert np.isfinite(first.mean).all()


def test_forecast_of_a_window_ignores_its_companions(name: str) -> None:
    explained = ExplainedModel(fitted(name))
    context, others = windows(BATCH, 4).context, windows(BATCH, 5).context * 3.0
    whole = explained.forecast(context).mean
    alone = np.concatenate([explained.forecast(context[i : i + 1]).mean for i in (0, 7)])
    assert np.array_equal(alone, whole[[0, 7]])
    mixed = explained.forecast(np.concatenate([others[:5], context[:8], others[5:]])).mean
    assert np.array_equal(mixed[5:13], whole[:8])


def test_gradient_agrees_with_finite_differences(name: str) -> None:
    model = fitted(name)
    if not MODELS.card(name).input_differentiable:
        pytest.skip(f"{name} declares no input gradient")
    assert isinstance(model, HasTorchModule)
    module = copy.deepcopy(model.module).double()
    context = torch.from_numpy(windows(4, 6).context).requires_grad_()
    (slope,) = torch.autograd.grad(module(context).mean(1).sum(), context)
    rng = np.random.default_rng(7)
    # The libraries of the foundation models cast to float32 inside, so a small step would measure their rounding.
    step, relative, absolute = (
        (1e-2, 2e-2, 2e-3) if "transformers" in MODELS.card(name).libraries else (1e-4, 1e-4, 1e-6)
    )
    for _ in range(6):
        direction = torch.from_numpy(rng.normal(size=tuple(context.shape)))
        with torch.no_grad():
            ahead, behind = (module(context + sign * step * direction).mean(1) for sign in (1, -1))
        expected = (ahead - behind).double() / (2 * step)
        found = (slope * direction).sum((1, 2))
        assert torch.allclose(found, expected, rtol=relative, atol=absolute)
    assert slope.abs().sum() > 0


def test_used_channels_are_those_the_card_says(name: str) -> None:
    model = fitted(name)
    if not isinstance(model, HasTorchModule):
        pytest.skip(f"{name} has no torch module")
    slope = ExplainedModel(model).gradient(windows(BATCH, 6).context)
    touched = np.abs(slope).sum((0, 1)) > 0
    assert touched[SHAPE.target]
    assert touched[1:].any() == (MODELS.card(name).channels == "all")


def test_attention_rows_sum_to_one(name: str) -> None:
    model = fitted(name)
    if not isinstance(model, HasAttention):
        pytest.skip(f"{name} offers no attention")
    received = model.attention(windows(BATCH, 4).context)
    assert received.shape == (BATCH, SHAPE.context)
    assert (received >= 0).all()
    assert np.allclose(received.sum(1), 1.0, atol=1e-5)
    assert np.ptp(received, axis=1).max() > 0


def test_feature_layer_lies_on_the_time_axis(name: str) -> None:
    model = fitted(name)
    if not isinstance(model, HasFeatureMap):
        pytest.skip(f"{name} offers no feature map")
    assert isinstance(model, HasTorchModule)
    seen: list[torch.Tensor] = []
    handle = model.feature_layer.register_forward_hook(lambda _, __, out: seen.append(out))
    model.module(torch.zeros(3, SHAPE.context, SHAPE.channels))
    handle.remove()
    (out,) = seen
    assert out.ndim == 3
    assert len(out) == 3
    shares = model.feature_shares(SHAPE.context)
    assert shares.shape == (out.shape[1], SHAPE.context)
    placed = shares.sum(1)
    assert np.allclose(placed[placed > 0], 1.0)
    assert (placed > 0).sum() >= len(placed) - 1  # a token may lie nowhere in time, such as a [REG] token
    layer = MODELS.card(name).gradcam_layer
    assert layer is not None
    assert any(part is model.feature_layer and layer in where for where, part in model.module.named_modules())


def test_quantiles_are_ordered(name: str) -> None:
    model = fitted(name)
    if not isinstance(model, HasQuantiles):
        pytest.skip(f"{name} has no native quantiles")
    forecast = model.predict(windows(BATCH, 4).context)
    assert forecast.quantiles is not None
    assert np.array_equal(forecast.levels, model.quantile_levels)
    assert forecast.quantiles.shape == (BATCH, SHAPE.horizon, len(model.quantile_levels))
    assert (np.diff(forecast.quantiles, axis=-1) >= 0).all()


def test_card_says_what_the_object_can_do(name: str) -> None:
    card, model = MODELS.card(name), fitted(name)
    assert card.input_differentiable == isinstance(model, HasTorchModule)
    assert (card.attention != "none") == isinstance(model, HasAttention)
    assert (card.gradcam_layer is not None) == isinstance(model, HasFeatureMap)
    assert card.native_quantiles == isinstance(model, HasQuantiles)


def test_same_seed_same_bits_other_seed_other_model(name: str) -> None:
    entry = MODELS.build(name, SMALL.get(name))
    context = windows(BATCH, 4).context
    torch.rand(1)  # the global generator must not matter
    again = entry.fit(windows(256, 1), windows(64, 2), SHAPE, np.random.default_rng(3))
    assert np.array_equal(again.predict(context).mean, fitted(name).predict(context).mean)
    other = entry.fit(windows(256, 1), windows(64, 2), SHAPE, np.random.default_rng(4))
    assert not np.array_equal(other.predict(context).mean, fitted(name).predict(context).mean)


def saved(name: str, folder: Path) -> Path:
    fitted(name).save(folder)
    return folder


def test_save_and_load_round_trips_bits(name: str, tmp_path: Path) -> None:
    context = windows(BATCH, 4).context
    entry = MODELS.build(name, SMALL.get(name))
    loaded = entry.load(saved(name, tmp_path / "a"))
    assert np.array_equal(loaded.predict(context).mean, fitted(name).predict(context).mean)
    loaded.save(tmp_path / "b")
    for file in ("card.json", "model.safetensors"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()
    assert type(loaded) is type(fitted(name))


def test_changed_weights_are_refused(name: str, tmp_path: Path) -> None:
    weights = saved(name, tmp_path) / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(Corrupt, match="SHA-256"):
        MODELS.build(name, SMALL.get(name)).load(tmp_path)


def test_truncated_weights_are_refused_even_with_a_matching_hash(name: str, tmp_path: Path) -> None:
    import hashlib

    weights = saved(name, tmp_path) / "model.safetensors"
    content = weights.read_bytes()[:-10]
    weights.write_bytes(content)
    with pytest.raises(Corrupt):
        MODELS.build(name, SMALL.get(name)).load(tmp_path)
    rewrite(tmp_path, weights={"file": weights.name, "sha256": hashlib.sha256(content).hexdigest()})
    with pytest.raises(Corrupt, match="complete safetensors"):
        MODELS.build(name, SMALL.get(name)).load(tmp_path)


def rewrite(folder: Path, **changes: object) -> None:
    card = json.loads((folder / "card.json").read_text())
    (folder / "card.json").write_text(json.dumps({**card, **changes}))


def test_another_architecture_is_refused(name: str, tmp_path: Path) -> None:
    other = "lstm" if name != "lstm" else "transformer"
    with pytest.raises(BadInput, match=f"holds a {other} model, not a {name}"):
        MODELS.build(name, SMALL.get(name)).load(saved(other, tmp_path))


def test_weights_that_do_not_fit_the_card_are_refused(name: str, tmp_path: Path) -> None:
    other = saved("lstm" if name != "lstm" else "transformer", tmp_path / "other")
    mine = saved(name, tmp_path / "mine")
    (mine / "model.safetensors").write_bytes((other / "model.safetensors").read_bytes())
    rewrite(mine, weights=json.loads((other / "card.json").read_text())["weights"])
    with pytest.raises(BadInput, match="another architecture"):
        MODELS.build(name, SMALL.get(name)).load(mine)


def test_other_options_than_it_was_fitted_with_are_refused(name: str, tmp_path: Path) -> None:
    saved(name, tmp_path)
    options = json.loads((tmp_path / "card.json").read_text())["options"]
    number = next(key for key, value in options.items() if isinstance(value, int))
    entry = MODELS.build(name, SMALL.get(name))
    assert number in {item.name for item in fields(entry)}
    rewrite(tmp_path, options={**options, number: options[number] + 1})
    with pytest.raises(BadInput, match="fit it again"):
        entry.load(tmp_path)


def test_a_folder_without_a_model_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="does not exist"):
        MODELS.build(name).load(tmp_path)
    (tmp_path / "card.json").write_text('{"schema_version": 1}')
    with pytest.raises(BadInput, match="not a model card"):
        MODELS.build(name).load(tmp_path)


def scale_equivariance(model: object, context: np.ndarray, factor: float = 2.0) -> float:
    """The alias probe: largest |f(k x) - k f(x)| over the spread of f; 0 where IG equals gradient x input."""
    explained = ExplainedModel(model)  # type: ignore[arg-type]
    path = explained.forecast(context).mean
    scaled = explained.forecast(context * factor).mean
    return float(np.abs(scaled - factor * path).max() / np.ptp(path))


@pytest.mark.parametrize("name", ["chronos", "timesfm", "moirai"])
def test_alias_probe_finds_models_that_normalise_each_window(name: str) -> None:
    assert scale_equivariance(fitted(name), windows(BATCH, 4).context) < 1e-4


@pytest.mark.parametrize("name", ["lstm", "transformer"])
def test_alias_probe_clears_models_with_fixed_statistics(name: str) -> None:
    assert scale_equivariance(fitted(name), windows(BATCH, 4).context) > 1e-3


def test_a_constant_channel_is_no_obstacle() -> None:
    flat = windows(64, 1)
    context = flat.context.copy()
    context[:, :, 2] = 7.0
    std = flat.channels.std.copy()
    std[2] = 0.0
    steady = replace(flat, context=context, channels=replace(flat.channels, std=std))
    model = MODELS.build("lstm", SMALL["lstm"]).fit(steady, steady, SHAPE, np.random.default_rng(1))
    assert np.isfinite(model.predict(context).mean).all()
