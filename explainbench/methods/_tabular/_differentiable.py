"""What the gradient methods share: a tabular model as a differentiable function of its rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from explainbench.core.arrays import Floats
from explainbench.core.forecaster import require
from explainbench.core.tabular import HasLayers, TabularModel

if TYPE_CHECKING:
    import torch


def differentiable(model: TabularModel) -> Callable[[torch.Tensor], torch.Tensor]:
    """P(class 1) of rows (n, d): (n,). Raises NotApplicable for a model without layers."""
    module = require(model, HasLayers).module
    return lambda rows: module(rows)[:, 0]


def tensor(rows: Floats) -> torch.Tensor:
    """float32, as the networks compute."""
    import torch

    return torch.from_numpy(rows.astype(np.float32))


def array(attribution: torch.Tensor) -> Floats:
    """float64, for the metrics."""
    return attribution.detach().double().numpy()
