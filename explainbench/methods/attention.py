"""Attention visualisation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from explainbench.core.explanation import Explanation, MethodCard
from explainbench.core.forecaster import ExplainedModel, HasAttention, require
from explainbench.core.masking import Masker
from explainbench.core.registry import METHODS
from explainbench.core.windows import Windows
from explainbench.methods._time_map import on_channels


@METHODS.register(
    MethodCard(
        title="Attention visualisation",
        category="attention",
        source="attention rollout, Abnar and Zuidema 2020",
        deterministic=True,
        vector="nonnegative",
        needs=("HasAttention",),
        cost="forward",
    )
)
@dataclass(frozen=True, slots=True)
class Attention:
    """The attention that the forecast pays to each context step, rolled out to the input by the model.

    How maps over tokens, patches or lags become steps is the model's own declared rule (`HasAttention`). The map has no
    channel axis: it lies on the target's channel for univariate models, and in equal shares on all observed channels
    in use for multichannel ones.
    """

    def explain(self, model: ExplainedModel, windows: Windows, masker: Masker, rng: np.random.Generator) -> Explanation:
        """Attributions (n, t, c), non-negative, without unit. Raises NotApplicable for a model without attention."""
        forecaster = require(model.forecaster, HasAttention)
        parts = []
        for start in range(0, len(windows), model.batch):  # padded as model calls are: same bits in any batch
            part = windows.context[start : start + model.batch]
            missing = model.batch - len(part)
            filled = np.concatenate([part, np.repeat(part[-1:], missing, axis=0)]) if missing else part
            parts.append(forecaster.attention(filled)[: len(part)])
        model.meter.evaluations += len(windows)
        return Explanation(on_channels(np.concatenate(parts), masker))
