"""Transformer encoder over short convolutional tokens (Vaswani et al. 2017; paper 000, section 4.1)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, cast

import numpy as np
import torch
from pydantic import Field
from torch import nn

from explainbench.core.arrays import Floats
from explainbench.core.errors import BadInput
from explainbench.core.forecaster import ModelCard, TaskShape
from explainbench.core.registry import MODELS
from explainbench.core.windows import Windows
from explainbench.models import _torch
from explainbench.models._blocks import EncoderBlock, HorizonQueries, Tokens, rollout, steps_of_tokens
from explainbench.models._torch import Layout, Schedule, Standardised, TorchForecaster


class Network(nn.Module):
    """All channels -> tokens -> encoder blocks -> one attention-pooled answer per hour of the horizon, in z-units."""

    def __init__(self, layout: Layout, width: int, heads: int, layers: int, token: int) -> None:
        super().__init__()
        self.tokens = Tokens(layout, width, token)
        self.blocks = nn.ModuleList(EncoderBlock(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)  # the last block's tokens (n, tokens, d): the feature map
        self.decoder = HorizonQueries(layout, width)

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        """(n, t, c) -> forecasts (n, h)."""
        x = self.tokens(z)
        for block in self.blocks:
            x = block(x)
        return self.decoder(z, self.norm(x))

    def received(self, z: torch.Tensor) -> torch.Tensor:
        """The attention that each token receives from the forecast, through all layers: (n, tokens)."""
        x = self.tokens(z)
        seen = []
        for block in cast("Iterable[EncoderBlock]", self.blocks):
            seen.append(block.weights(x))
            x = block(x)
        return self.decoder.weights(z, self.norm(x)).mean(1, keepdim=True).matmul(rollout(seen))[:, 0]


@dataclass(frozen=True, eq=False)
class TransformerForecaster(TorchForecaster):
    """A fitted Transformer: attention rolled out to input steps; its feature map is the encoder's last tokens."""

    module: Standardised[Network]

    def attention(self, context: Floats) -> Floats:
        """(n, t): pooling weights times the encoder's rollout, each token's share spread evenly over its steps."""
        with torch.no_grad():
            received = self.module.network.received(self.module.z(_torch.as_tensor(context)))
        shares = steps_of_tokens(context.shape[1], self.module.network.tokens.token)
        return (received.double() @ shares.double()).numpy()

    @property
    def feature_layer(self) -> nn.Module:
        """The encoder's last tokens, one vector per run of `token` steps."""
        return self.module.network.norm


@MODELS.register(
    ModelCard(
        architecture="Transformer encoder over 4-step tokens",
        source="Vaswani et al. 2017; rollout after Abnar & Zuidema 2020",
        attention="timestep",
        gradcam_layer="norm",
    )
)
@dataclass(frozen=True, slots=True)
class Transformer:
    """Self-attention forecaster over all channels, with its attention weights in the open.

    width: of the tokens; heads: per layer, dividing width; layers: encoder blocks; token: steps per token, at most a
    feature group's; the rest is the training schedule (see LSTM).
    """

    width: Annotated[int, Field(gt=0)] = 64
    heads: Annotated[int, Field(gt=0)] = 4
    layers: Annotated[int, Field(gt=0)] = 2
    token: Annotated[int, Field(gt=0)] = 4
    epochs: Annotated[int, Field(gt=0)] = 6
    learning_rate: Annotated[float, Field(gt=0)] = 1e-3
    batch_size: Annotated[int, Field(gt=0)] = 64
    patience: Annotated[int, Field(gt=0)] = 3

    def __post_init__(self) -> None:
        if self.width % self.heads:
            raise BadInput(f"params: models.transformer: width {self.width} does not divide into {self.heads} heads.")

    def fit(
        self, training: Windows, validation: Windows, shape: TaskShape, rng: np.random.Generator
    ) -> TransformerForecaster:
        """Fit on training windows, stopping early on validation windows."""
        layout = Layout.of(shape, training.channels)
        schedule = Schedule(self.epochs, self.learning_rate, self.batch_size, self.patience)
        module, record = _torch.fit_network(self._network, schedule, training, validation, layout, rng)
        return TransformerForecaster(module, _torch.card_of(self, layout, record))

    def load(self, folder: Path) -> TransformerForecaster:
        """Load what `save` wrote. Raises BadInput (another architecture or other options) or Corrupt (hash)."""
        return TransformerForecaster(*_torch.load_network(self, self._network, folder))

    def _network(self, layout: Layout) -> Network:
        return Network(layout, self.width, self.heads, self.layers, self.token)
