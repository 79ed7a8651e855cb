"""LSTM with temporal attention pooling (Hochreiter & Schmidhuber 1997; paper 000, section 4.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import nn

from explainbench.core.forecaster import ModelCard
from explainbench.core.registry import MODELS
from explainbench.models._blocks import HorizonQueries
from explainbench.models._torch import Layout, TrainedEntry


class Network(nn.Module):
    """All channels -> hidden sequence -> one attention-pooled answer per hour of the horizon, in z-units."""

    def __init__(self, layout: Layout, hidden: int, layers: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(layout.shape.channels, hidden, layers, batch_first=True)
        self.features = nn.Identity()  # the hidden sequence (n, t, d) by a name that hooks can find
        self.decoder = HorizonQueries(layout, hidden)

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        """(n, t, c) -> forecasts (n, h)."""
        return self.decoder(z, self.features(self.lstm(z)[0]))

    def received(self, z: torch.Tensor) -> torch.Tensor:
        """The pooling weight of each step, averaged over the hours of the horizon: (n, t)."""
        return self.decoder.weights(z, self.lstm(z)[0]).mean(1)

    def shares(self, steps: int) -> torch.Tensor:
        """A token is a step: (t, t)."""
        return torch.eye(steps)


@MODELS.register(
    ModelCard(
        architecture="LSTM with temporal attention pooling",
        source="Hochreiter & Schmidhuber 1997; attention after Bahdanau et al. 2015",
        attention="timestep",
        gradcam_layer="features",
    )
)
@dataclass(frozen=True, slots=True)
class LSTM(TrainedEntry):
    """Recurrent forecaster over all channels with temporal attention pooling.

    hidden: width of the state; layers: stacked LSTMs; the rest is the training schedule.
    """

    hidden: Annotated[int, Field(gt=0)] = 64
    layers: Annotated[int, Field(gt=0)] = 1
    learning_rate: Annotated[float, Field(gt=0)] = 3e-3

    def network(self, layout: Layout) -> Network:
        """The network with fresh parameters."""
        return Network(layout, self.hidden, self.layers)
