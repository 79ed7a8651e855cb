"""The windowed methods on tables: a row is a window of one step, a column a channel, a masked one takes its mean."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from explainbench.core.arrays import Floats
from explainbench.core.explanation import Explainer
from explainbench.core.forecaster import ExplainedModel, Forecast
from explainbench.core.masking import Groups, Masker
from explainbench.core.tabular import HasLayers, RowExplanation, TabularModel
from explainbench.core.windows import Channels, Windows

if TYPE_CHECKING:
    import torch

ROWS = 4096  # of a model call: no tabular model needs padding to be pure


@dataclass(frozen=True, slots=True)
class AsForecaster:
    """A tabular model as a forecaster of one step."""

    model: TabularModel

    def predict(self, context: Floats) -> Forecast:
        """P(class 1) of windows (n, 1, d) as a forecast (n, 1)."""
        return Forecast(self.model.predict(context[:, 0])[:, None])

    def save(self, folder: Path) -> None:
        """Never asked for: tabular models are fitted again from their seed."""
        raise NotImplementedError

    def described(self, **more: Any) -> AsForecaster:
        """Never asked for."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class AsDifferentiable(AsForecaster):
    """The same for a model with layers."""

    layered: HasLayers

    @property
    def module(self) -> torch.nn.Module:
        """(n, 1, d) -> (n, 1)."""
        return self.layered.module


def as_model(model: TabularModel) -> ExplainedModel:
    """The model behind the door through which windowed methods call it."""
    forecaster = AsDifferentiable(model, model) if isinstance(model, HasLayers) else AsForecaster(model)
    return ExplainedModel(forecaster, batch=ROWS)


def as_windows(rows: Floats, background: Floats) -> Windows:
    """Rows (n, d) as windows (n, 1, d), with the background's column statistics."""
    d = rows.shape[1]
    std = background.std(axis=0)
    channels = Channels(
        tuple(f"x{c + 1}" for c in range(d)),
        ("1",) * d,
        (False,) * d,
        background.mean(axis=0),
        np.where(std > 0, std, 1.0),
        background.min(axis=0),
        background.max(axis=0),
    )
    return Windows(
        rows[:, None, :],
        np.zeros((len(rows), 1)),
        np.full(len(rows), ""),
        np.arange(len(rows)),
        channels,
    )


def as_masker(windows: Windows) -> Masker:
    """Every column a group; a masked one takes its mean."""
    columns = len(windows.channels)
    return Masker(Groups.of(windows.channels, 1, 1, np.arange(columns)), "mean")


def explained_as_windows(
    method: Explainer, model: TabularModel, rows: Floats, background: Floats, rng: np.random.Generator
) -> RowExplanation:
    """A windowed method's explanation of rows. Raises NotApplicable where it needs what the model does not offer."""
    windows = as_windows(rows, background)
    return RowExplanation(method.explain(as_model(model), windows, as_masker(windows), rng).attribution[:, 0])
