"""Foundation models: adapters against the libraries' own forward, official checkpoints, pre-training, the corpus."""

from __future__ import annotations

import hashlib
import json
import warnings
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

import explainbench.stages.fit as fit
from explainbench.core.errors import BadInput, Corrupt, Unavailable
from explainbench.core.forecaster import TaskShape, ZeroShotEntry
from explainbench.core.params import load_params
from explainbench.core.registry import MODELS
from explainbench.core.windows import Channels, Windows
from explainbench.core.workspace import Workspace
from explainbench.models import _corpus, _torch, _zero_shot
from explainbench.stages.pretrain import pretrain_model, zero_shot_models

ROOT = Path(__file__).parents[2]
NAMES = ("chronos", "timesfm", "moirai")
TINY = {"width": 16, "heads": 2, "layers": 1, "steps": 4, "series": 30, "batch_size": 4}
SHAPE = TaskShape(96, 20, 2, 0)
CHANNELS = Channels(
    ("price", "tod_cos"), ("USD/MWh", "1"), (False, True), np.zeros(2), np.ones(2), -np.ones(2), np.ones(2)
)


def series(n: int, t: int = 96) -> torch.Tensor:
    rng = np.random.default_rng(1)
    wave = 10 * np.sin(2 * np.pi * (np.arange(t) + rng.integers(0, 48, (n, 1))) / 48)
    return torch.from_numpy(20 + wave + rng.normal(size=(n, t))).float()


def contexts(n: int) -> np.ndarray:
    return np.stack([series(n).double().numpy(), np.zeros((n, 96))], -1)


@cache
def core(name: str) -> torch.nn.Module:
    with _torch.seeded(3):
        return _torch.frozen(MODELS.entry(name)(**TINY).build())


def test_chronos_adapter_equals_the_library() -> None:
    from chronos.chronos_bolt import ChronosBoltPipeline

    pipeline = ChronosBoltPipeline(core("chronos").model)
    for steps in (20, 96, 110):  # the last one needs a second pass, whose median path is ours
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the library recommends at most 96 steps
            expected = pipeline.predict(series(5), steps).transpose(1, 2)
        with torch.no_grad():
            found = core("chronos").quantiles(series(5), steps)
        assert found.shape == expected.shape
        assert torch.allclose(found[:, :96], expected[:, :96], atol=1e-4)


@pytest.mark.parametrize("steps", [96, 80])
def test_timesfm_adapter_equals_the_library(steps: int) -> None:
    past = series(5, steps)
    with torch.no_grad():
        model = core("timesfm").model
        expected = model(list(past), truncate_negative=False, forecast_context_len=96).full_predictions[..., 1:]
        found = core("timesfm").quantiles(past, 96)
    assert torch.allclose(found, expected, atol=1e-4)


def test_timesfm_forecast_does_not_depend_on_companions() -> None:
    past = series(5) - 15  # some values negative: the library's default would clamp by the batch's minimum
    with torch.no_grad():
        whole = core("timesfm").quantiles(torch.cat([past, past.abs()]), 20)
        assert torch.allclose(whole[:5], core("timesfm").quantiles(past, 20), atol=1e-5)
    with pytest.raises(BadInput, match="at most 96 steps, not 97"):
        core("timesfm").quantiles(past, 97)


@pytest.mark.parametrize("name", NAMES)
def test_only_the_target_is_read_and_the_median_is_the_forecast(name: str) -> None:
    model = _zero_shot.ZeroShotForecaster(_zero_shot.ZeroShot(core(name), 0, 20), {})
    given = contexts(4)
    other = given.copy()
    other[:, :, 1] = 9.0
    forecast = model.predict(given)
    assert np.array_equal(forecast.mean, model.predict(other).mean)
    assert forecast.quantiles is not None
    assert forecast.quantiles.shape == (4, 20, 9)
    assert np.array_equal(model.module(_torch.as_tensor(given)).detach().double().numpy(), forecast.mean)


def checkpoint(name: str, folder: Path) -> str:
    """A folder as the official publishers lay it out, with random weights; returns the hash of the weights."""
    if name == "moirai":
        from explainbench.models.moirai import Core, glu_width

        model = Core(64, 1, glu_width(64), 1, 16, 2)
        folder.mkdir(parents=True)
        config = {"d_model": 64, "d_ff": None, "num_layers": 1, "patch_size": 16, "num_predict_token": 2}
        (folder / "config.json").write_text(json.dumps(config))
        from safetensors.torch import save_file

        save_file(model.state_dict(), folder / "model.safetensors")
    else:
        core(name).model.save_pretrained(folder)
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def official(name: str, **options: object) -> ZeroShotEntry:
    more = {"accept_noncommercial": True} if name == "moirai" else {}
    return MODELS.build(name, {**options, **more})


@pytest.mark.parametrize("name", NAMES)
def test_an_official_checkpoint_is_loaded_by_its_hash_and_never_copied(name: str, tmp_path: Path) -> None:
    digest = checkpoint(name, tmp_path / "official")
    entry = official(name, checkpoint=str(tmp_path / "official"), sha256=digest)
    model = entry.adapt(tmp_path / "no-such-stand-in", SHAPE, CHANNELS)
    model.save(tmp_path / "mine")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["card.json"]
    card = json.loads((tmp_path / "mine" / "card.json").read_text())
    assert (card["weights_source"], card["weights"]["sha256"]) == ("official", digest)
    assert str(tmp_path) not in json.dumps(card)  # no machine's path in an identity
    again = entry.load(tmp_path / "mine")
    assert np.array_equal(again.predict(contexts(4)).mean, model.predict(contexts(4)).mean)
    if name != "moirai":
        with torch.no_grad():
            assert torch.equal(model.module.core.quantiles(series(4), 20), core(name).quantiles(series(4), 20))
    assert ("NC" in card["licence"]) == (name == "moirai")


@pytest.mark.parametrize("name", NAMES)
def test_bad_checkpoints_are_refused(name: str, tmp_path: Path) -> None:
    digest = checkpoint(name, tmp_path / "a")
    where = str(tmp_path / "a")

    def adapt(**options: object) -> None:
        official(name, **options).adapt(tmp_path, SHAPE, CHANNELS)

    with pytest.raises(Corrupt, match="SHA-256"):
        adapt(checkpoint=where, sha256="0" * 64)
    with pytest.raises(BadInput, match="sha256"):
        adapt(checkpoint=where)
    with pytest.raises(BadInput, match="no folder here"):
        adapt(checkpoint=str(tmp_path / "nowhere"), sha256=digest)
    other = checkpoint("moirai" if name != "moirai" else "timesfm", tmp_path / "b")
    with pytest.raises(BadInput, match="checkpoint"):
        adapt(checkpoint=str(tmp_path / "b"), sha256=other)
    weights = tmp_path / "a" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(Corrupt, match="complete safetensors"):
        adapt(checkpoint=where, sha256=hashlib.sha256(weights.read_bytes()).hexdigest())
    (tmp_path / "b" / "config.json").replace(tmp_path / "a" / "config.json")
    weights.unlink()
    with pytest.raises(BadInput, match=r"holds no config\.json"):
        adapt(checkpoint=where, sha256=digest)


def test_weights_of_another_size_are_refused(tmp_path: Path) -> None:
    digest = checkpoint("timesfm", tmp_path / "a")
    config = json.loads((tmp_path / "a" / "config.json").read_text())
    (tmp_path / "a" / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 2}))
    with pytest.raises(BadInput, match="another architecture"):
        official("timesfm", checkpoint=str(tmp_path / "a"), sha256=digest).adapt(tmp_path, SHAPE, CHANNELS)


def test_an_unreachable_hub_is_said_and_the_stand_in_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub

    def unreachable(*_: object, **__: object) -> None:
        raise OSError("no route to host")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", unreachable)
    entry = official("chronos", checkpoint="owner/name", revision="abc", sha256="0" * 64)
    with pytest.raises(Unavailable, match=r"could not be fetched.*no route to host.*remove that line"):
        entry.adapt(tmp_path, SHAPE, CHANNELS)
    with pytest.raises(BadInput, match=r"needs models\.chronos\.revision"):
        official("chronos", checkpoint="owner/name", sha256="0" * 64).adapt(tmp_path, SHAPE, CHANNELS)


def test_non_commercial_weights_need_a_flag() -> None:
    with pytest.raises(BadInput, match="non-commercial"):
        MODELS.build("moirai", {"checkpoint": "owner/name"})


@pytest.mark.parametrize("name", ["moirai"])
def test_stages_pretrain_once_and_adapt_to_each_task(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    params = load_params(ROOT / "params.yaml", "smoke")
    energy = params.suites.energy.model_copy(update={"models": ["lstm", name]})
    params = params.model_copy(
        update={
            "models": {name: TINY},
            "fit": params.fit.model_copy(update={"allow_weak": True}),
            "suites": params.suites.model_copy(update={"energy": energy}),
        }
    )
    workspace = Workspace(ROOT, tmp_path)
    origin = np.datetime64("2024-01-01", "m") + np.arange(4) * np.timedelta64(15, "m")
    some = Windows(contexts(4), np.full((4, 4), 20.0), np.full(4, "peak"), origin, CHANNELS)

    class Task:
        dataset, dataset_sha256, windows = "wave", "0" * 64, some

    monkeypatch.setattr(fit, "training_split", lambda *_: (some, some))
    monkeypatch.setattr(fit, "quality_windows", lambda *_: some)
    monkeypatch.setattr(fit, "load_task", lambda *_: Task)
    monkeypatch.setattr(fit, "task_shape", lambda *_: TaskShape(96, 4, 2, 0))
    with pytest.raises(BadInput, match="run the stage that writes it first"):
        fit.fit_model(workspace, params, "T1", name)
    assert zero_shot_models(params) == (name,)
    folder = pretrain_model(workspace, params, name).folder
    before = (folder / "model.safetensors").read_bytes()
    fitted = fit.fit_model(workspace, params, "T1", name)
    card = json.loads((fitted.folder / "card.json").read_text())
    assert card["weights_source"] == "standin"
    assert card["training"]["weights_sha256"] == hashlib.sha256(before).hexdigest()
    assert fit.load_forecaster(workspace, "T1", name, params).predict(contexts(4)).mean.shape == (4, 4)
    pretrain_model(workspace, params, name)
    assert (folder / "model.safetensors").read_bytes() == before  # same seed, same bits
    with pytest.raises(BadInput, match="fitted on the training series"):
        pretrain_model(workspace, params, "lstm")


def test_corpus_is_seeded_standardised_and_varied() -> None:
    one, again = (_corpus.corpus(np.random.default_rng(5), 60, 200) for _ in range(2))
    assert np.array_equal(one, again)
    assert np.isfinite(one).all()
    assert np.allclose(one.mean(1), 0, atol=1e-9)
    assert np.allclose(one.std(1), 1, atol=1e-3)
    roughness = np.abs(np.diff(one, axis=1)).mean(1)
    assert roughness.max() > 10 * roughness.min()


def test_pinball_of_a_worked_example() -> None:
    quantiles = torch.zeros(1, 2, 9)
    target = torch.tensor([[1.0, -1.0]])
    # at level q: q for a miss above, 1 - q for one below; both average to 1/2
    assert float(_zero_shot.pinball(quantiles, target)) == pytest.approx(0.5)
    assert float(_zero_shot.pinball(quantiles, target, torch.tensor([2.0, 0.0]))) == pytest.approx(0.5)
    assert float(_zero_shot.pinball(quantiles[..., :] + 1.0, target)) == pytest.approx(0.5)
