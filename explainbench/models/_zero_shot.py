"""What the foundation models share: a univariate quantile core seen as a forecaster, pre-training, official weights."""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, ClassVar, Protocol

import numpy as np
import torch
from pydantic import Field
from torch import nn

from explainbench.core.arrays import Floats
from explainbench.core.errors import BadInput, Corrupt, Unavailable
from explainbench.core.files import read_json, write_json
from explainbench.core.forecaster import Forecast, TaskShape
from explainbench.core.provenance import sha256_file
from explainbench.core.windows import Channels, Windows
from explainbench.models import _blocks, _torch
from explainbench.models._corpus import corpus, harmonics, standardised
from explainbench.models._torch import Layout, TorchForecaster

LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
MEDIAN = LEVELS.index(0.5)
HORIZON = 96  # steps that a stand-in forecasts: the longest of the tasks
LONGEST = 192  # context steps that a stand-in sees in pre-training


class Core(Protocol):
    """A univariate foundation model: series (n, t) -> quantiles (n, h, q) at `LEVELS`, differentiable."""

    def quantiles(self, series: torch.Tensor, horizon: int) -> torch.Tensor: ...

    def received(self, series: torch.Tensor, horizon: int) -> torch.Tensor:
        """The attention that each step receives, (n, t), rows summing to one."""
        ...


class ZeroShot(nn.Module):
    """Contexts (n, t, c) -> median forecasts (n, h): the core on the target channel alone, in the target's unit."""

    def __init__(self, core: nn.Module, target: int, horizon: int) -> None:
        super().__init__()
        self.core = core
        self.target, self.horizon = target, horizon

    def quantiles(self, context: torch.Tensor) -> torch.Tensor:
        """(n, t, c) -> (n, h, q)."""
        return self.core.quantiles(context[:, :, self.target], self.horizon)  # type: ignore[operator]

    def forward(self, context: torch.Tensor) -> torch.Tensor:
        return self.quantiles(context)[..., MEDIAN]


@dataclass(frozen=True, eq=False)
class ZeroShotForecaster(TorchForecaster):
    """A frozen foundation model on a task's target: median and nine native quantiles, attention over patches."""

    module: ZeroShot

    @property
    def quantile_levels(self) -> Floats:
        """The levels of the native quantiles."""
        return np.asarray(LEVELS)

    def save(self, folder: Path) -> None:
        """Write weights and card; of an official checkpoint the card alone, which names the weights by their hash."""
        if self.card["weights_source"] != "official":
            return super().save(folder)
        weights = {"file": None, "sha256": self.card["training"]["weights_sha256"]}
        write_json(folder / _torch.CARD, {**self.card, "weights": weights})

    def predict(self, context: Floats) -> Forecast:
        """Median and quantiles for contexts (n, t, c); quantiles that cross are sorted, the median is left alone."""
        with torch.no_grad():
            quantiles = self.module.quantiles(_torch.as_tensor(context)).double().numpy()
        return Forecast.sorted(quantiles[..., MEDIAN].copy(), quantiles, self.quantile_levels)

    def attention(self, context: Floats) -> Floats:
        """(n, t): what the forecast receives from each step, each patch's share spread evenly over its steps."""
        module = self.module
        with torch.no_grad():
            series = _torch.as_tensor(context)[:, :, module.target]
            return module.core.received(series, module.horizon).double().numpy()  # type: ignore[operator]


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of pre-training: its share of the steps, shortest and longest context, Gaussian processes or not."""

    share: float
    shortest: int
    longest: int
    gaussian: bool = True


@dataclass(frozen=True, slots=True)
class PreTraining:
    """Pre-training: steps and their phases, AdamW learning rate (warm-up, then cosine), series per step and in all."""

    steps: int
    phases: tuple[Phase, ...]
    learning_rate: float
    batch_size: int
    series: int


def pretrain(
    core: nn.Module,
    loss_of: Callable[[torch.Tensor, int], torch.Tensor],
    plan: PreTraining,
    rng: np.random.Generator,
    multiple: int,
) -> dict[str, Any]:
    """Minimise `loss_of(series (b, t + h), t)` over the synthetic corpus; returns the training record.

    Contexts are drawn per step, in multiples of `multiple`. One thread, all draws from `rng`: the same bits in two
    processes.
    """
    length = LONGEST + HORIZON
    pools = {
        False: standardised(harmonics(rng, plan.series, length)).astype(np.float32),
        True: corpus(rng, plan.series, length).astype(np.float32),
    }
    optimiser = torch.optim.AdamW(core.parameters(), lr=plan.learning_rate, weight_decay=1e-2)
    warm = max(1, plan.steps // 50)

    def rate(step: int) -> float:
        return min(1.0, (step + 1) / warm) * (0.02 + 0.49 * (1 + np.cos(np.pi * step / plan.steps)))

    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, rate)
    losses: list[float] = []
    core.train()
    for phase in (part for part in plan.phases for _ in range(round(part.share * plan.steps))):
        context = multiple * int(rng.integers(-(-phase.shortest // multiple), phase.longest // multiple + 1))
        rows = rng.integers(0, plan.series, plan.batch_size)
        start = int(rng.integers(0, LONGEST - context + 1))
        series = torch.from_numpy(pools[phase.gaussian][rows, start : start + context + HORIZON])
        optimiser.zero_grad(set_to_none=True)
        loss = loss_of(series, context)
        loss.backward()
        nn.utils.clip_grad_norm_(core.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        losses.append(float(loss.detach()))
    stretch = max(1, len(losses) // 20)
    return {
        "corpus": "synthetic: Gaussian processes, harmonics, mixtures; no series of any dataset",
        "corpus_sha256": hashlib.sha256(b"".join(pools[key].tobytes() for key in (False, True))).hexdigest(),
        "loss": "pinball over nine levels",
        "steps": len(losses),
        "training_loss": [float(np.mean(losses[at : at + stretch])) for at in range(0, len(losses), stretch)],
    }


def pinball(quantiles: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None = None) -> torch.Tensor:
    """Mean pinball loss of quantiles (..., h, q) against targets (..., h), steps weighted by `weight` (h,)."""
    error = target[..., None] - quantiles
    levels = torch.tensor(LEVELS)
    loss = torch.maximum(levels * error, (levels - 1) * error)
    return loss.mean() if weight is None else (loss * weight[:, None]).mean()


@dataclass(frozen=True, slots=True)
class FoundationEntry(ABC):
    """What the foundation models' entries share: pre-training of the stand-in, official weights, and a task told.

    steps, learning_rate, batch_size, series: of the pre-training on a synthetic corpus; checkpoint: a folder or hub id
    of official weights, with `revision` and the `sha256` of its model.safetensors.
    """

    steps: Annotated[int, Field(gt=0)] = 3000
    learning_rate: Annotated[float, Field(gt=0)] = 2e-3
    batch_size: Annotated[int, Field(gt=0)] = 32
    series: Annotated[int, Field(gt=0)] = 6000
    checkpoint: str | None = None
    revision: str | None = None
    sha256: str | None = None

    libraries: ClassVar[tuple[str, ...]] = ("torch",)
    licence: ClassVar[str] = "Apache-2.0"  # of the official weights
    forecaster: ClassVar[type[ZeroShotForecaster]] = ZeroShotForecaster

    @abstractmethod
    def build(self) -> nn.Module:
        """The stand-in's core with fresh parameters."""

    @abstractmethod
    def official(self, folder: Path) -> nn.Module:
        """The core of the official checkpoint in `folder`. Raises BadInput for another architecture."""

    @abstractmethod
    def teach(self, core: Any, rng: np.random.Generator) -> dict[str, Any]:
        """Pre-train the stand-in's core; returns the training record."""

    def pretrain(self, rng: np.random.Generator) -> TorchForecaster:
        """The stand-in pre-trained from `rng`, of no task yet; save it for `adapt`."""
        seed = int(rng.integers(2**62))
        with _torch.seeded(seed):
            core = self.build()
            record = self.teach(core, rng)
        layout = Layout(TaskShape(LONGEST, HORIZON, 1, 0), ("series",), ("1",), (False,))
        card = _torch.card_of(self, layout, {"seed": seed, **record}, source="standin", libraries=self.libraries)
        return TorchForecaster(_torch.frozen(core), card)

    def adapt(self, folder: Path, shape: TaskShape, channels: Channels) -> ZeroShotForecaster:
        """The weights that `pretrain` saved in `folder`, or the official ones, told the task; nothing is fitted.

        Raises BadInput or Corrupt as `_torch.read_weights` does, Unavailable where a hub cannot be reached.
        """
        layout = Layout.of(shape, channels)
        if self.checkpoint is not None:
            return _official(self, layout)
        card = _torch.read_card(self, folder)
        core = _stored(self, folder, card, prefix="")
        record = {**card["training"], "weights_sha256": card["weights"]["sha256"]}
        mine = _torch.card_of(self, layout, record, source="standin", libraries=self.libraries)
        return self.forecaster(_on_task(core, layout), mine)

    def fit(
        self, training: Windows, validation: Windows, shape: TaskShape, rng: np.random.Generator
    ) -> ZeroShotForecaster:
        """Pre-train and adapt in one go, through a temporary folder; the windows are not looked at."""
        with TemporaryDirectory() as folder:
            if self.checkpoint is None:
                self.pretrain(rng).save(Path(folder))
            return self.adapt(Path(folder), shape, training.channels)

    def load(self, folder: Path) -> ZeroShotForecaster:
        """What `save` wrote. Raises BadInput or Corrupt; Unavailable where a hub cannot be reached."""
        card = _torch.read_card(self, folder)
        layout = _torch.layout_of(card)
        if card["weights_source"] == "official":
            return _official(self, layout)
        core = _stored(self, folder, card, prefix="core.")
        mine = {key: value for key, value in card.items() if key != "weights"}
        return self.forecaster(_on_task(core, layout), mine)


def _stored(entry: FoundationEntry, folder: Path, card: Mapping[str, Any], prefix: str) -> nn.Module:
    state = _torch.read_weights(folder, card)
    with _torch.seeded(0):
        core = entry.build()
    mine = {name.removeprefix(prefix): tensor for name, tensor in state.items()}
    return _torch.fill(core, mine, folder / _torch.WEIGHTS)


def _on_task(core: nn.Module, layout: Layout) -> ZeroShot:
    module = ZeroShot(core, layout.shape.target, layout.shape.horizon)
    _torch.frozen(module)
    return module


def _official(entry: FoundationEntry, layout: Layout) -> ZeroShotForecaster:
    assert entry.checkpoint is not None
    folder, digest = resolve(_torch.architecture_name(entry), entry.checkpoint, entry.revision, entry.sha256)
    record = {"checkpoint": _shown(entry.checkpoint), "revision": entry.revision, "weights_sha256": digest}
    card = _torch.card_of(entry, layout, record, source="official", licence=entry.licence, libraries=entry.libraries)
    return entry.forecaster(_on_task(entry.official(folder), layout), card)


def resolve(name: str, checkpoint: str, revision: str | None, sha256: str | None) -> tuple[Path, str]:
    """The folder of an official checkpoint and the SHA-256 of its weights; a local folder, or fetched from the hub.

    Raises BadInput (no hash or revision given, no such file), Corrupt (hash differs), Unavailable (hub out of reach).
    """
    if sha256 is None:
        raise BadInput(
            f"params: models.{name}.checkpoint needs models.{name}.sha256, the hash of its {_torch.WEIGHTS}."
        )
    folder = Path(checkpoint)
    if not folder.is_dir():
        folder = _fetched(name, checkpoint, revision)
    path = folder / _torch.WEIGHTS
    if not path.is_file() or not (folder / "config.json").is_file():
        raise BadInput(f"{folder} holds no config.json with {_torch.WEIGHTS}; give the folder of a {name} checkpoint.")
    found = sha256_file(path)
    if found != sha256:
        raise Corrupt(f"{path} has SHA-256 {found}, but params say {sha256}; fetch it again or correct the hash.")
    return folder, found


def _fetched(name: str, checkpoint: str, revision: str | None) -> Path:
    if revision is None or "/" not in checkpoint or checkpoint.startswith((".", "/", "~")):
        raise BadInput(
            f"params: models.{name}.checkpoint = {checkpoint!r} is no folder here, and a hub id (owner/name) needs "
            f"models.{name}.revision, a commit."
        )
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(checkpoint, revision=revision, allow_patterns=["config.json", _torch.WEIGHTS]))
    except (OSError, ValueError, RuntimeError) as error:  # the hub client's errors all derive from these
        reason = " ".join(str(error).split())[:150]
        raise Unavailable(
            f"{checkpoint} could not be fetched from the hub ({reason}); copy the checkpoint here and give its folder "
            f"as models.{name}.checkpoint, or remove that line to use the stand-in."
        ) from error


def read_config(folder: Path, name: str, key: str, value: str) -> dict[str, Any]:
    """config.json of a checkpoint. Raises BadInput when `key` does not say `value`: another architecture."""
    config = read_json(folder / "config.json")
    found = config.get(key) if isinstance(config, dict) else None
    if found != value and not (isinstance(found, list) and value in found):
        raise BadInput(f"{folder} holds a checkpoint of {found}, not of {name} ({value}); give the matching one.")
    return config


def _shown(checkpoint: str) -> str:
    """A hub id, or the name of a local folder: no machine's paths in a card."""
    return Path(checkpoint).name if Path(checkpoint).is_dir() else checkpoint


def patch_shares(received: torch.Tensor, context: int, patch: int) -> torch.Tensor:
    """Weights of patches (n, p) that end at the last step -> weights of steps (n, t), rows summing to one."""
    weights = received @ _blocks.steps_of_tokens(context, patch).to(received)
    return weights / weights.sum(1, keepdim=True)


def from_pretrained(kind: Any, folder: Path) -> nn.Module:
    """A transformers model from a local folder, every weight accounted for, eager attention. BadInput or Corrupt."""
    _torch.parse_weights((folder / _torch.WEIGHTS).read_bytes(), folder / _torch.WEIGHTS)
    try:
        model, said = kind.from_pretrained(
            folder, attn_implementation="eager", local_files_only=True, output_loading_info=True, dtype=torch.float32
        )
    except (RuntimeError, ValueError, KeyError, TypeError, AssertionError) as error:
        reason = " ".join(str(error).split())[:150]
        raise BadInput(f"{folder} holds weights of another architecture ({reason}); give the matching ones.") from error
    wrong = [*said["missing_keys"], *said["unexpected_keys"], *(str(key) for key in said["mismatched_keys"])]
    if wrong:
        raise BadInput(f"{folder} holds weights of another architecture ({wrong[0]}); give the matching ones.")
    return model
