"""Chronos-Bolt (Ansari et al. 2024, arXiv 2403.07815; paper 000, section 4.1)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import nn

from explainbench.core.arrays import Floats
from explainbench.core.errors import BadInput
from explainbench.core.forecaster import ModelCard
from explainbench.core.registry import MODELS
from explainbench.models import _zero_shot
from explainbench.models._blocks import rollout, steps_of_tokens
from explainbench.models._zero_shot import HORIZON, LEVELS, FoundationEntry, Phase, PreTraining, ZeroShotForecaster

LIBRARIES = ("torch", "transformers", "chronos-forecasting")
LICENCE = "Apache-2.0"
PATCH = 16  # steps

# The decoder's one token must learn by cross-attention alone where the series ends. With contexts of every length and
# all steps weighted alike it never leaves the window's mean; one short length first and near steps heavier, it does.
PHASES = (Phase(0.15, 64, 64, gaussian=False), Phase(0.25, 48, 128, gaussian=False), Phase(0.6, 96, 192))
NEAR = 16.0  # steps ahead at which a step weighs half


class Core(nn.Module):
    """The library's Chronos-Bolt as a differentiable function of a series."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def quantiles(self, series: torch.Tensor, horizon: int) -> torch.Tensor:
        """(n, t) -> (n, h, q). Beyond the model's own horizon it continues from its median."""
        parts = []
        while sum(part.shape[1] for part in parts) < horizon:
            part = self.model(context=series).quantile_preds.transpose(1, 2)
            parts.append(part)
            series = torch.cat([series, part[..., _zero_shot.MEDIAN]], 1)
        return torch.cat(parts, 1)[:, :horizon]

    def received(self, series: torch.Tensor, horizon: int) -> torch.Tensor:
        """Cross-attention of the decoder's token times the encoder's rollout, (n, t); the [REG] token is left out."""
        hidden, _, embedded, mask = self.model.encode(context=series)
        encoder = self.model.encoder(attention_mask=mask, inputs_embeds=embedded, output_attentions=True)
        start = torch.full((len(series), 1), self.model.config.decoder_start_token_id)
        decoder = self.model.decoder(
            input_ids=start, encoder_hidden_states=hidden, encoder_attention_mask=mask, output_attentions=True
        )
        asked = torch.stack(decoder.cross_attentions).mean((0, 2))  # (n, 1, tokens)
        tokens = (asked @ rollout(list(encoder.attentions)))[:, 0]
        patch = self.model.chronos_config.input_patch_size
        return _zero_shot.patch_shares(tokens[:, : -(-series.shape[1] // patch)], series.shape[1], patch)


@dataclass(frozen=True, eq=False)
class ChronosForecaster(ZeroShotForecaster):
    """Chronos-Bolt on a task's target; its feature map is the encoder's patches."""

    @property
    def feature_layer(self) -> nn.Module:
        """The encoder's last layer norm: one token per patch, then the [REG] token."""
        core: Any = self.module.core
        return core.model.encoder.final_layer_norm

    def feature_shares(self, steps: int) -> Floats:
        """(patches + 1, t): each patch on its steps; the [REG] token lies nowhere in time."""
        core: Any = self.module.core
        patches = steps_of_tokens(steps, core.model.chronos_config.input_patch_size).double().numpy()
        return np.concatenate([patches, np.zeros((1, steps))])


@MODELS.register(
    ModelCard(
        architecture="Chronos-Bolt",
        source="Ansari et al. 2024 (arXiv 2403.07815); library chronos-forecasting",
        channels="target",
        attention="patch",
        gradcam_layer="final_layer_norm",
        native_quantiles=True,
        weights_source="standin",
        licence=LICENCE,
        libraries=LIBRARIES,
    )
)
@dataclass(frozen=True, slots=True)
class Chronos(FoundationEntry):
    """Zero-shot foundation model on the target's own history: patches in, nine quantiles out in one shot.

    width, heads, layers: of the stand-in; the rest is its pre-training and the official checkpoint.
    """

    width: Annotated[int, Field(gt=0)] = 64
    heads: Annotated[int, Field(gt=0)] = 4
    layers: Annotated[int, Field(gt=0)] = 2
    steps: Annotated[int, Field(gt=0)] = 3500

    libraries: ClassVar[tuple[str, ...]] = LIBRARIES
    licence: ClassVar[str] = LICENCE
    forecaster: ClassVar[type[ZeroShotForecaster]] = ChronosForecaster

    def build(self) -> Core:
        """The stand-in's core. Started as the library does (factor 0.05) it learns no more than the window's mean."""
        from chronos.chronos_bolt import ChronosBoltModelForForecasting
        from transformers import T5Config

        options: dict[str, Any] = {
            "d_model": self.width,
            "d_kv": self.width // self.heads,
            "d_ff": 4 * self.width,
            "num_layers": self.layers,
            "num_decoder_layers": self.layers,
            "num_heads": self.heads,
            "dropout_rate": 0.0,
            "feed_forward_proj": "relu",
            "decoder_start_token_id": 0,
            "pad_token_id": 0,
            "eos_token_id": 1,
            "vocab_size": 2,
            "attn_implementation": "eager",
        }
        config = T5Config(**options)
        config.chronos_config = {
            "context_length": 2048,
            "prediction_length": HORIZON,
            "input_patch_size": PATCH,
            "input_patch_stride": PATCH,
            "quantiles": list(LEVELS),
            "use_reg_token": True,
        }
        model = ChronosBoltModelForForecasting(config)
        for name, parameter in model.named_parameters():
            if "layer_norm" in name:
                nn.init.ones_(parameter)
            elif "relative_attention_bias" in name or "shared" in name or "embed_tokens" in name:
                nn.init.normal_(parameter)
            elif parameter.ndim == 2:
                nn.init.xavier_uniform_(parameter)
                scale = (self.width // self.heads) ** -0.5 if name.endswith(".q.weight") else 1.0
                parameter.data.mul_(0.3 if name.startswith("output_patch_embedding") else scale)
        return Core(model)

    def official(self, folder: Path) -> Core:
        """The official checkpoint in `folder`. Raises BadInput for another architecture."""
        from chronos.chronos_bolt import ChronosBoltModelForForecasting

        config = _zero_shot.read_config(folder, "chronos", "architectures", "ChronosBoltModelForForecasting")
        if config.get("chronos_config", {}).get("quantiles") != list(LEVELS):
            raise BadInput(f"{folder} forecasts other quantiles than {LEVELS}; give a Chronos-Bolt checkpoint.")
        return Core(_zero_shot.from_pretrained(ChronosBoltModelForForecasting, folder))

    def teach(self, core: Core, rng: np.random.Generator) -> dict[str, Any]:
        """Pre-train on forecasts from the end of the context, in units of the context's deviation."""
        weight = 1 / (1 + torch.arange(HORIZON) / NEAR)
        weight = weight / weight.mean()
        plan = PreTraining(self.steps, PHASES, self.learning_rate, self.batch_size, self.series)

        def loss_of(series: torch.Tensor, context: int) -> torch.Tensor:
            past, ahead = series[:, :context], series[:, context:]
            scale = past.std(1, keepdim=True) + 0.05
            quantiles = core.quantiles(past, HORIZON)
            return _zero_shot.pinball(quantiles / scale[..., None], ahead / scale, weight)

        return _zero_shot.pretrain(core, loss_of, plan, rng, PATCH)
