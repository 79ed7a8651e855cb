"""Autoformer (Wu et al. 2021, arXiv 2106.13008; paper 000, section 4.1)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, cast

import torch
from pydantic import Field
from torch import nn

from explainbench.core.forecaster import ModelCard
from explainbench.core.registry import MODELS
from explainbench.models._blocks import HorizonQueries, Tokens, rollout, steps_of_tokens
from explainbench.models._torch import Layout, TrainedEntry


def trend(tokens: int, steps: int) -> torch.Tensor:
    """(m, m): the moving average over `steps` (odd) tokens as a matrix, edges repeated (eq. 1); rows sum to one."""
    half = steps // 2
    reached = (torch.arange(tokens)[:, None] + torch.arange(-half, half + 1)).clamp(0, tokens - 1)
    return torch.zeros(tokens, tokens).scatter_add(1, reached, torch.full(reached.shape, 1.0 / steps))


class AutoCorrelation(nn.Module):
    """Auto-correlation (section 3.2): the k delays at which the series resembles itself most, aggregated by rolling.

    R(delay) is summed along the wrapped diagonals of the query-key product, which for these lengths is faster than the
    FFT of eq. 8 and equal to it. Every window has delays of its own; a widely used implementation applies the delays
    of one window to another.
    """

    lag: torch.Tensor
    ahead: torch.Tensor

    def __init__(self, width: int, tokens: int, factor: int) -> None:
        super().__init__()
        self.count = min(tokens, max(1, math.ceil(factor * math.log(tokens))))
        self.project = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        position = torch.arange(tokens)
        # [i, j]: the delay at which row i reaches column j;  [delay, j]: the query that key j meets at that delay.
        self.register_buffer("lag", (position - position[:, None]) % tokens, persistent=False)
        self.register_buffer("ahead", (position[:, None] + position) % tokens, persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n, m, d) -> (n, m, d)."""
        query, key, value = self.project(x).chunk(3, -1)
        return self.out(self._rows(query, key) @ value)

    def weights(self, x: torch.Tensor) -> torch.Tensor:
        """The aggregation as a matrix (n, 1, m, m): row i holds the weight of each delay at column i + delay."""
        query, key, _ = self.project(x).chunk(3, -1)
        return self._rows(query, key)[:, None]

    def _rows(self, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        similarity = self.correlation(query, key)
        top = similarity.topk(self.count, dim=1)
        share = torch.zeros_like(similarity).scatter(1, top.indices, top.values.softmax(1))
        return share[:, self.lag]

    def correlation(self, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        """R(delay) (n, m), averaged over channels: how much the query at j + delay resembles the key at j."""
        product = query @ key.transpose(1, 2)
        return product.gather(1, self.ahead.expand(len(query), -1, -1)).sum(2) / query.shape[-1]


class Layer(nn.Module):
    """Encoder layer (eq. 4): auto-correlation and a feed-forward part, only the seasonal part kept after each."""

    seasonal: torch.Tensor

    def __init__(self, width: int, tokens: int, factor: int, average: int) -> None:
        super().__init__()
        self.register_buffer("seasonal", torch.eye(tokens) - trend(tokens, average), persistent=False)
        self.correlate = AutoCorrelation(width, tokens, factor)
        self.widen = nn.Linear(width, 2 * width)
        self.narrow = nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n, m, d) -> (n, m, d)."""
        x = self.seasonal @ (x + self.correlate(x))
        return self.seasonal @ (x + self.narrow(nn.functional.gelu(self.widen(x))))


class Network(nn.Module):
    """All channels -> tokens -> seasonal encoder -> one-shot decoder around the trend anchor, in z-units."""

    def __init__(self, layout: Layout, width: int, layers: int, token: int, factor: int, average: int) -> None:
        super().__init__()
        self.tokens = Tokens(layout, width, token)
        count = len(self.tokens.position)
        self.layers = nn.ModuleList(Layer(width, count, factor, average) for _ in range(layers))
        self.features = nn.LayerNorm(width)  # the seasonal part of the tokens (n, tokens, d)
        self.decoder = HorizonQueries(layout, width)

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        """(n, t, c) -> forecasts (n, h)."""
        x = self.tokens(z)
        for layer in self.layers:
            x = layer(x)
        return self.decoder(z, self.features(x))

    def received(self, z: torch.Tensor) -> torch.Tensor:
        """The weight that each token receives from the forecast, through the delays of all layers: (n, tokens)."""
        x = self.tokens(z)
        seen = []
        for layer in cast("Iterable[Layer]", self.layers):
            seen.append(layer.correlate.weights(x))
            x = layer(x)
        return (self.decoder.weights(z, self.features(x)).mean(1, keepdim=True) @ rollout(seen))[:, 0]

    def shares(self, steps: int) -> torch.Tensor:
        """A token is `token` steps: (tokens, t)."""
        return steps_of_tokens(steps, self.tokens.token)


@MODELS.register(
    ModelCard(
        architecture="Autoformer: series decomposition and auto-correlation",
        source="Wu et al. 2021 (arXiv 2106.13008); own module with per-window delays",
        attention="lag",
        gradcam_layer="features",
    )
)
@dataclass(frozen=True, slots=True)
class Autoformer(TrainedEntry):
    """Decomposition forecaster over all channels whose attention is over delays.

    width: of the tokens; layers: encoder layers; token: steps per token; factor: c of the paper (delays kept are
    c ln m); average: tokens of the moving average, odd; the rest is the training schedule.
    """

    width: Annotated[int, Field(gt=0)] = 64
    layers: Annotated[int, Field(gt=0)] = 2
    token: Annotated[int, Field(gt=0)] = 4
    factor: Annotated[int, Field(gt=0)] = 2
    average: Annotated[int, Field(gt=0)] = 25

    def network(self, layout: Layout) -> Network:
        """The network with fresh parameters."""
        return Network(layout, self.width, self.layers, self.token, self.factor, self.average | 1)
