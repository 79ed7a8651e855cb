"""Moirai 2 (Woo et al. 2024, arXiv 2402.02592; Liu et al. 2025, arXiv 2511.11698; paper 000, section 4.1)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, cast

import numpy as np
import torch
from pydantic import Field
from torch import nn

from explainbench.core.errors import BadInput
from explainbench.core.files import read_json
from explainbench.core.forecaster import ModelCard
from explainbench.core.registry import MODELS
from explainbench.models import _torch, _zero_shot
from explainbench.models._blocks import rollout
from explainbench.models._zero_shot import HORIZON, LEVELS, FoundationEntry, Phase, PreTraining

LIBRARIES = ("torch",)
LICENCE = "Apache-2.0"
OFFICIAL_LICENCE = "CC-BY-NC-4.0"  # of the official weights: non-commercial
PATCH = 16  # steps, of the stand-in
PHASES = (Phase(1.0, 96, 192),)
HEAD = 64  # width of a head in official checkpoints
EPSILON = 1e-5


class Residual(nn.Module):
    """Two layers with SiLU between them, and a linear skip."""

    def __init__(self, inputs: int, hidden: int, outputs: int) -> None:
        super().__init__()
        self.hidden_layer = nn.Linear(inputs, hidden)
        self.output_layer = nn.Linear(hidden, outputs)
        self.residual_layer = nn.Linear(inputs, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.output_layer(nn.functional.silu(self.hidden_layer(x))) + self.residual_layer(x)


class VariateBias(nn.Module):
    """What official weights add to attention between tokens of one variate: one value for all, so softmax drops it."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.emb = nn.Embedding(2, heads)


class SelfAttention(nn.Module):
    """Causal attention with normalised queries and keys, rotary on the first half of each head."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q_proj = nn.Linear(width, width, bias=False)
        self.k_proj = nn.Linear(width, width, bias=False)
        self.v_proj = nn.Linear(width, width, bias=False)
        self.out_proj = nn.Linear(width, width, bias=False)
        self.q_norm = nn.RMSNorm(width // heads, EPSILON)
        self.k_norm = nn.RMSNorm(width // heads, EPSILON)
        self.var_attn_bias = VariateBias(heads)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n, m, d) -> (n, m, d)."""
        query, key = self._compared(x)
        mixed = nn.functional.scaled_dot_product_attention(query, key, self._split(self.v_proj(x)), is_causal=True)
        return self.out_proj(mixed.transpose(1, 2).reshape(x.shape))

    def weights(self, x: torch.Tensor) -> torch.Tensor:
        """The attention of `forward`: (n, heads, m, m), rows sum to one."""
        query, key = self._compared(x)
        scores = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        return scores.masked_fill(later, -torch.inf).softmax(-1)

    def _split(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)

    def _compared(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        query = rotated(self.q_norm(self._split(self.q_proj(x))))
        return query, rotated(self.k_norm(self._split(self.k_proj(x))))


def rotated(x: torch.Tensor) -> torch.Tensor:
    """Rotary positions (Su et al. 2021) on the first half of the last axis of (n, heads, m, d), in adjacent pairs."""
    tokens, width = x.shape[-2], x.shape[-1] // 2
    speed = 10000.0 ** -(torch.arange(0, width, 2) / width)
    angle = (torch.arange(tokens)[:, None] * speed).to(x.dtype)
    pair = x[..., :width].unflatten(-1, (-1, 2))
    even, odd = pair[..., 0], pair[..., 1]
    turned = torch.stack([even * angle.cos() - odd * angle.sin(), odd * angle.cos() + even * angle.sin()], -1)
    return torch.cat([turned.flatten(-2), x[..., width:]], -1)


class FeedForward(nn.Module):
    """Gated linear unit (Shazeer 2020)."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, hidden, bias=False)
        self.fc2 = nn.Linear(hidden, width, bias=False)
        self.fc_gate = nn.Linear(width, hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc2(nn.functional.silu(self.fc_gate(x)) * self.fc1(x))


class Layer(nn.Module):
    """Pre-norm decoder layer."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.self_attn = SelfAttention(width, heads)
        self.ffn = FeedForward(width, hidden)
        self.norm1 = nn.RMSNorm(width, EPSILON)
        self.norm2 = nn.RMSNorm(width, EPSILON)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n, m, d) -> (n, m, d)."""
        x = x + self.self_attn(self.norm1(x))
        return x + self.ffn(self.norm2(x))


class Encoder(nn.Module):
    """The layers and the last norm."""

    def __init__(self, width: int, heads: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(width, heads, hidden) for _ in range(layers))
        self.norm = nn.RMSNorm(width, EPSILON)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


class Core(nn.Module):
    """Moirai 2 for one variate: our own module whose parameters have the names and shapes of the official one's.

    The official library cannot be installed beside this project's dependencies, and its scaler breaks gradients.
    """

    def __init__(self, width: int, heads: int, hidden: int, layers: int, patch: int, predicted: int) -> None:
        super().__init__()
        self.patch, self.predicted = patch, predicted
        self.in_proj = Residual(2 * patch, width, width)
        self.encoder = Encoder(width, heads, hidden, layers)
        self.out_proj = Residual(width, width, predicted * len(LEVELS) * patch)

    def quantiles(self, series: torch.Tensor, horizon: int) -> torch.Tensor:
        """(n, t) -> (n, h, q). Beyond the tokens it predicts at once, each quantile path is continued and the
        forecasts of all paths are pooled, as the official library does."""
        first = self._last_token(series)
        if horizon <= first.shape[1]:
            return first[:, :horizon]
        parts, paths, levels = [first], series[:, None].expand(-1, len(LEVELS), -1), torch.tensor(LEVELS)
        while sum(part.shape[1] for part in parts) < horizon:
            paths = torch.cat([paths, parts[-1].transpose(1, 2)], 2)
            ahead = self._last_token(paths.flatten(0, 1))
            pooled = ahead.unflatten(0, (len(series), len(LEVELS))).permute(0, 2, 1, 3).flatten(2)
            parts.append(torch.quantile(pooled, levels.to(pooled), dim=2).permute(1, 2, 0))
        return torch.cat(parts, 1)[:, :horizon]

    def received(self, series: torch.Tensor, horizon: int) -> torch.Tensor:
        """Row of the last token, which the forecast is read from, in the rollout of all layers: (n, t)."""
        x, _, _ = self._embedded(series)
        seen = []
        for layer in cast("Iterable[Layer]", self.encoder.layers):
            seen.append(layer.self_attn.weights(layer.norm1(x)))
            x = layer(x)
        return _zero_shot.patch_shares(rollout(seen)[:, -1], series.shape[1], self.patch)

    def each_token(self, series: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The forecasts made after every token, (n, m, h, q), and the scale of each series, (n, 1)."""
        x, mean, scale = self._embedded(series)
        return self._paths(self.encoder(x)) * scale[:, :, None, None] + mean[:, :, None, None], scale

    def _last_token(self, series: torch.Tensor) -> torch.Tensor:
        """The forecast made after the last token, (n, h, q)."""
        x, mean, scale = self._embedded(series)
        return self._paths(self.encoder(x)[:, -1]) * scale[:, :, None] + mean[:, :, None]

    def _paths(self, x: torch.Tensor) -> torch.Tensor:
        """(..., d) -> (..., h, q)."""
        out = self.out_proj(x).unflatten(-1, (self.predicted, len(LEVELS), self.patch))
        return out.transpose(-1, -2).flatten(-3, -2)

    def _embedded(self, series: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Tokens (n, m, d), mean and scale (n, 1): unbiased variance in float64; left padding is 0 before scaling."""
        exact = series.double()
        mean = exact.mean(1, keepdim=True)
        scale = ((exact - mean).square().sum(1, keepdim=True) / (series.shape[1] - 1) + EPSILON).sqrt()
        mean, scale = mean.to(series.dtype), scale.to(series.dtype)
        missing = -series.shape[1] % self.patch
        observed = nn.functional.pad(torch.ones_like(series), (missing, 0))
        scaled = (nn.functional.pad(series, (missing, 0)) - mean) / scale
        tokens = torch.cat([part.unflatten(1, (-1, self.patch)) for part in (scaled, observed)], -1)
        return self.in_proj(tokens), mean, scale


@MODELS.register(
    ModelCard(
        architecture="Moirai 2",
        source="Woo et al. 2024 (arXiv 2402.02592), Liu et al. 2025 (arXiv 2511.11698); own module",
        channels="target",
        attention="patch",
        native_quantiles=True,
        weights_source="standin",
        licence=f"{LICENCE} (stand-in); official weights {OFFICIAL_LICENCE}, non-commercial",
        libraries=LIBRARIES,
    )
)
@dataclass(frozen=True, slots=True)
class Moirai(FoundationEntry):
    """Zero-shot foundation model on the target's own history: a decoder over patches with nine quantiles.

    width, heads, layers: of the stand-in; the rest is its pre-training and the official checkpoint, whose weights are
    CC-BY-NC-4.0, so that `accept_noncommercial` must say yes.
    """

    width: Annotated[int, Field(gt=0)] = 64
    heads: Annotated[int, Field(gt=0)] = 4
    layers: Annotated[int, Field(gt=0)] = 3
    steps: Annotated[int, Field(gt=0)] = 3000
    accept_noncommercial: bool = False

    libraries: ClassVar[tuple[str, ...]] = LIBRARIES
    licence: ClassVar[str] = OFFICIAL_LICENCE

    def __post_init__(self) -> None:
        if self.checkpoint is not None and not self.accept_noncommercial:
            raise BadInput(
                f"the official Moirai weights are {OFFICIAL_LICENCE}, non-commercial; set "
                "models.moirai.accept_noncommercial to true if your use is, or remove models.moirai.checkpoint."
            )

    def build(self) -> Core:
        """The stand-in's core: all 96 steps from one token."""
        return Core(self.width, self.heads, glu_width(self.width), self.layers, PATCH, HORIZON // PATCH)

    def official(self, folder: Path) -> Core:
        """The official checkpoint in `folder`. Raises BadInput for another architecture."""
        config = read_json(folder / "config.json")
        if not isinstance(config, dict) or config.get("quantile_levels", list(LEVELS)) != list(LEVELS):
            raise BadInput(f"{folder} forecasts other quantiles than {LEVELS}; give a Moirai 2 checkpoint.")
        try:
            core = Core(
                config["d_model"],
                config["d_model"] // HEAD,
                config["d_ff"] or glu_width(config["d_model"]),
                config["num_layers"],
                config["patch_size"],
                config["num_predict_token"],
            )
        except KeyError as error:
            raise BadInput(f"{folder / 'config.json'} has no {error}; give a Moirai 2 checkpoint.") from error
        path = folder / _torch.WEIGHTS
        _torch.fill(core, _torch.parse_weights(path.read_bytes(), path), path)
        return core

    def teach(self, core: Core, rng: np.random.Generator) -> dict[str, Any]:
        """Pre-train on the forecasts made after every token, in units of the context's deviation."""
        plan = PreTraining(self.steps, PHASES, self.learning_rate, self.batch_size, self.series)

        def loss_of(series: torch.Tensor, context: int) -> torch.Tensor:
            quantiles, scale = core.each_token(series[:, :context])
            ahead = series[:, PATCH:].unfold(1, HORIZON, PATCH)  # (n, tokens, h)
            scale = scale[:, :, None] + 0.05
            return _zero_shot.pinball(quantiles / scale[..., None], ahead / scale)

        return _zero_shot.pretrain(core, loss_of, plan, rng, PATCH)


def glu_width(width: int) -> int:
    """Hidden width of the gated feed-forward part: two thirds of four times the model's, to the next multiple of 8."""
    return (int(4 * width * 2 / 3) + 7) // 8 * 8
