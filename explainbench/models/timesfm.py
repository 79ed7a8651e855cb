"""TimesFM 2.5 (Das et al. 2024, arXiv 2310.10688; paper 000, section 4.1)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import nn

from explainbench.core.errors import BadInput
from explainbench.core.forecaster import ModelCard
from explainbench.core.registry import MODELS
from explainbench.models import _zero_shot
from explainbench.models._blocks import rollout
from explainbench.models._zero_shot import HORIZON, LEVELS, FoundationEntry, Phase, PreTraining

LIBRARIES = ("torch", "transformers")
LICENCE = "Apache-2.0"
PATCH = 32  # steps
PHASES = (Phase(1.0, 192, 192),)  # every patch of every series is a forecast, so one length holds all contexts


class Core(nn.Module):
    """The library's TimesFM 2.5 as a differentiable function of a batch of equally long series.

    It does what `TimesFm2_5ModelForPrediction.forward` does for `truncate_negative=False` and the shortest context that
    holds the series, without that function's loop over windows. (Its default clamps to positive values when the whole
    batch is positive, so that a window's forecast depends on its companions.)
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def quantiles(self, series: torch.Tensor, horizon: int) -> torch.Tensor:
        """(n, t) -> (n, h, q). Raises BadInput for a horizon longer than the checkpoint's."""
        config = self.model.config
        if horizon > config.horizon_length:
            raise BadInput(f"this TimesFM forecasts at most {config.horizon_length} steps, not {horizon}.")
        padded, padding, mean, scale = self._prepared(series)
        safe = torch.where(scale < self.model.model.tolerance, torch.ones_like(scale), scale)
        normal = (padded - mean) / safe
        if config.force_flip_invariance:  # the negated series goes along in the same batch
            point, spread = self._last_patch(torch.cat([normal, -normal]), torch.cat([padding, padding]))
            point, spread = (_halved(part) for part in (point, spread))
        else:
            point, spread = self._last_patch(normal, padding)
        return _combined(config, point, spread)[:, :horizon] * scale[..., None] + mean[..., None]

    def received(self, series: torch.Tensor, horizon: int) -> torch.Tensor:
        """Row of the last patch, which the forecast is read from, in the rollout of all layers: (n, t)."""
        padded, padding, mean, scale = self._prepared(series)
        output = self.model.model(
            past_values=(padded - mean) / scale, past_values_padding=padding, output_attentions=True
        )
        patch = self.model.config.patch_length
        return _zero_shot.patch_shares(rollout(list(output.attentions))[:, -1], series.shape[1], patch)

    def each_patch(self, series: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """For pre-training: the forecasts made after every patch, (n, patches, h, q), and each patch's scale so far."""
        model, config = self.model, self.model.config
        out = model.model(past_values=series, past_values_padding=torch.zeros_like(series))
        shape = (*out.context_mu.shape, -1, len(config.quantiles) + 1)
        heads = []
        for head in (model.output_projection_point, model.output_projection_quantiles):
            heads.append(head(out.last_hidden_state).view(shape))
        combined = _combined(config, heads[0].flatten(0, 1), heads[1].flatten(0, 1)).view(*shape[:2], HORIZON, -1)
        scale = out.context_sigma[..., None, None] + 0.05
        return combined * scale + out.context_mu[..., None, None], scale

    def _last_patch(self, normal: torch.Tensor, padding: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Outputs of both heads for the last patch, (n, steps, 1 + q); the library computes every patch's."""
        model = self.model
        out = model.model(past_values=normal, past_values_padding=padding)
        last, mean, scale = out.last_hidden_state[:, -1], out.context_mu[:, -1:, None], out.context_sigma[:, -1:, None]
        heads = (model.output_projection_point, model.output_projection_quantiles)
        columns = len(model.config.quantiles) + 1
        point, spread = (head(last).view(len(last), -1, columns) * scale + mean for head in heads)
        return point, spread

    def _prepared(self, series: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Left-padded series (n, p), padding marks (n, p + h), mean and deviation of the padded series (n, 1)."""
        missing = -series.shape[1] % self.model.config.patch_length
        padded = nn.functional.pad(series, (missing, 0))
        padding = torch.zeros(len(series), padded.shape[1] + self.model.config.horizon_length, dtype=series.dtype)
        padding[:, :missing] = 1.0
        return padded, padding, padded.mean(1, keepdim=True), padded.std(1, keepdim=True)


def _halved(both: torch.Tensor) -> torch.Tensor:
    """Columns (mean, then quantiles) of a series and of its negative, as one flip-invariant forecast."""
    straight, negated = both.chunk(2)
    return (straight - torch.cat([negated[..., :1], negated[..., 1:].flip(-1)], -1)) / 2


def _combined(config: Any, point: torch.Tensor, spread: torch.Tensor) -> torch.Tensor:
    """Nine quantiles (n, h, q): the point head's median, the others at the distance that the quantile head says."""
    middle = config.decode_index
    horizon = config.horizon_length
    if not config.use_continuous_quantile_head:
        return point[:, :horizon, 1:]
    reach = min(horizon, spread.shape[1])
    median = point[:, :horizon, middle : middle + 1]
    near = spread[:, :reach, 1:] - spread[:, :reach, middle : middle + 1] + median[:, :reach]
    near = torch.cat([near[..., : middle - 1], median[:, :reach], near[..., middle:]], -1)
    return near if reach == horizon else torch.cat([near, point[:, reach:horizon, 1:]], 1)


@MODELS.register(
    ModelCard(
        architecture="TimesFM 2.5",
        source="Das et al. 2024 (arXiv 2310.10688); library transformers",
        channels="target",
        attention="patch",
        native_quantiles=True,
        weights_source="standin",
        licence=LICENCE,
        libraries=LIBRARIES,
    )
)
@dataclass(frozen=True, slots=True)
class TimesFM(FoundationEntry):
    """Zero-shot foundation model on the target's own history: a decoder over 32-step patches with nine quantiles.

    width, heads, layers: of the stand-in; the rest is its pre-training and the official checkpoint.
    """

    width: Annotated[int, Field(gt=0)] = 96
    heads: Annotated[int, Field(gt=0)] = 4
    layers: Annotated[int, Field(gt=0)] = 3
    steps: Annotated[int, Field(gt=0)] = 2500

    libraries: ClassVar[tuple[str, ...]] = LIBRARIES
    licence: ClassVar[str] = LICENCE

    def build(self) -> Core:
        """The stand-in's core."""
        from transformers import TimesFm2_5Config, TimesFm2_5ModelForPrediction

        options: dict[str, Any] = {
            "patch_length": PATCH,
            "context_length": 2048,
            "horizon_length": HORIZON,
            "output_quantile_len": HORIZON,
            "quantiles": list(LEVELS),
            "num_hidden_layers": self.layers,
            "hidden_size": self.width,
            "intermediate_size": self.width,
            "head_dim": self.width // self.heads,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.heads,
            "max_position_embeddings": 2048,
            "attn_implementation": "eager",
        }
        return Core(TimesFm2_5ModelForPrediction(TimesFm2_5Config(**options)))

    def official(self, folder: Path) -> Core:
        """The official checkpoint in `folder`. Raises BadInput for another architecture."""
        from transformers import TimesFm2_5ModelForPrediction

        config = _zero_shot.read_config(folder, "timesfm", "model_type", "timesfm2_5")
        if list(config.get("quantiles", LEVELS)) != list(LEVELS):
            raise BadInput(f"{folder} forecasts other quantiles than {LEVELS}; give a TimesFM 2.5 checkpoint.")
        return Core(_zero_shot.from_pretrained(TimesFm2_5ModelForPrediction, folder))

    def teach(self, core: Core, rng: np.random.Generator) -> dict[str, Any]:
        """Pre-train on the forecasts made after every patch, in units of the deviation seen so far."""
        plan = PreTraining(self.steps, PHASES, self.learning_rate, self.batch_size, self.series)

        def loss_of(series: torch.Tensor, context: int) -> torch.Tensor:
            quantiles, scale = core.each_patch(series[:, :context])
            ahead = series[:, PATCH:].unfold(1, HORIZON, PATCH)  # (n, patches, h)
            return _zero_shot.pinball(quantiles / scale, ahead / scale[..., 0])

        return _zero_shot.pretrain(core, loss_of, plan, rng, PATCH)
