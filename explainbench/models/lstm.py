"""LSTM with temporal attention pooling (Hochreiter & Schmidhuber 1997; paper 000, section 4.1)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from pydantic import Field
from torch import nn

from explainbench.core.arrays import Floats
from explainbench.core.forecaster import ModelCard, TaskShape
from explainbench.core.registry import MODELS
from explainbench.core.windows import Windows
from explainbench.models import _torch
from explainbench.models._blocks import HorizonQueries
from explainbench.models._torch import Layout, Schedule, Standardised, TorchForecaster


class Network(nn.Module):
    """All channels -> hidden sequence -> one attention-pooled answer per hour of the horizon, in z-units."""

    def __init__(self, layout: Layout, hidden: int, layers: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(layout.shape.channels, hidden, layers, batch_first=True)
        self.sequence = nn.Identity()  # the hidden sequence (n, t, d) by a name that hooks can find
        self.decoder = HorizonQueries(layout, hidden)

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        """(n, t, c) -> forecasts (n, h)."""
        return self.decoder(z, self.sequence(self.lstm(z)[0]))

    def pooling(self, z: torch.Tensor) -> torch.Tensor:
        """The decoder's attention over steps (n, blocks, t)."""
        return self.decoder.weights(z, self.lstm(z)[0])


@dataclass(frozen=True, eq=False)
class LSTMForecaster(TorchForecaster):
    """A fitted LSTM: attention over its hidden sequence, which is also its feature map."""

    module: Standardised[Network]

    def attention(self, context: Floats) -> Floats:
        """(n, t): the pooling weight of each step, averaged over the hours of the horizon."""
        with torch.no_grad():
            weights = self.module.network.pooling(self.module.z(_torch.as_tensor(context)))
        return weights.double().mean(1).numpy()

    @property
    def feature_layer(self) -> nn.Module:
        """The hidden sequence, one vector per step."""
        return self.module.network.sequence


@MODELS.register(
    ModelCard(
        architecture="LSTM with temporal attention pooling",
        source="Hochreiter & Schmidhuber 1997; attention after Bahdanau et al. 2015",
        attention="timestep",
        gradcam_layer="sequence",
    )
)
@dataclass(frozen=True, slots=True)
class LSTM:
    """Recurrent forecaster over all channels with temporal attention pooling.

    hidden: width of the state; layers: stacked LSTMs; the rest is the training schedule (learning rate of AdamW,
    windows per step, epochs without improvement before it stops).
    """

    hidden: Annotated[int, Field(gt=0)] = 64
    layers: Annotated[int, Field(gt=0)] = 1
    epochs: Annotated[int, Field(gt=0)] = 6
    learning_rate: Annotated[float, Field(gt=0)] = 3e-3
    batch_size: Annotated[int, Field(gt=0)] = 64
    patience: Annotated[int, Field(gt=0)] = 3

    def fit(self, training: Windows, validation: Windows, shape: TaskShape, rng: np.random.Generator) -> LSTMForecaster:
        """Fit on training windows, stopping early on validation windows."""
        layout = Layout.of(shape, training.channels)
        schedule = Schedule(self.epochs, self.learning_rate, self.batch_size, self.patience)
        module, record = _torch.fit_network(self._network, schedule, training, validation, layout, rng)
        return LSTMForecaster(module, _torch.card_of(self, layout, record))

    def load(self, folder: Path) -> LSTMForecaster:
        """Load what `save` wrote. Raises BadInput (another architecture or other options) or Corrupt (hash)."""
        return LSTMForecaster(*_torch.load_network(self, self._network, folder))

    def _network(self, layout: Layout) -> Network:
        return Network(layout, self.hidden, self.layers)
