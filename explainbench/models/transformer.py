"""Transformer encoder over short convolutional tokens (Vaswani et al. 2017; paper 000, section 4.1)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, cast

import torch
from pydantic import Field
from torch import nn

from explainbench.core.forecaster import ModelCard
from explainbench.core.registry import MODELS
from explainbench.models._blocks import EncoderBlock, HorizonQueries, Tokens, rollout, steps_of_tokens
from explainbench.models._torch import Layout, TrainedEntry, check_heads


class Network(nn.Module):
    """All channels -> tokens -> encoder blocks -> one attention-pooled answer per hour of the horizon, in z-units."""

    def __init__(self, layout: Layout, width: int, heads: int, layers: int, token: int) -> None:
        super().__init__()
        self.tokens = Tokens(layout, width, token)
        self.blocks = nn.ModuleList(EncoderBlock(width, heads) for _ in range(layers))
        self.features = nn.LayerNorm(width)  # the last block's tokens (n, tokens, d)
        self.decoder = HorizonQueries(layout, width)

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        """(n, t, c) -> forecasts (n, h)."""
        x = self.tokens(z)
        for block in self.blocks:
            x = block(x)
        return self.decoder(z, self.features(x))

    def received(self, z: torch.Tensor) -> torch.Tensor:
        """The attention that each token receives from the forecast, through all layers: (n, tokens)."""
        x = self.tokens(z)
        seen = []
        for block in cast("Iterable[EncoderBlock]", self.blocks):
            seen.append(block.weights(x))
            x = block(x)
        return self.decoder.weights(z, self.features(x)).mean(1, keepdim=True).matmul(rollout(seen))[:, 0]

    def shares(self, steps: int) -> torch.Tensor:
        """A token is `token` steps: (tokens, t)."""
        return steps_of_tokens(steps, self.tokens.token)


@MODELS.register(
    ModelCard(
        architecture="Transformer encoder over 4-step tokens",
        source="Vaswani et al. 2017; rollout after Abnar & Zuidema 2020",
        attention="timestep",
        gradcam_layer="features",
    )
)
@dataclass(frozen=True, slots=True)
class Transformer(TrainedEntry):
    """Self-attention forecaster over all channels, with its attention weights in the open.

    width: of the tokens; heads: per layer, dividing width; layers: encoder blocks; token: steps per token, at most a
    feature group's; the rest is the training schedule.
    """

    width: Annotated[int, Field(gt=0)] = 64
    heads: Annotated[int, Field(gt=0)] = 4
    layers: Annotated[int, Field(gt=0)] = 2
    token: Annotated[int, Field(gt=0)] = 4

    def __post_init__(self) -> None:
        check_heads(self)

    def network(self, layout: Layout) -> Network:
        """The network with fresh parameters."""
        return Network(layout, self.width, self.heads, self.layers, self.token)
