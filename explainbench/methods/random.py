"""The random baseline."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from explainbench.core.cell import stream
from explainbench.core.explanation import Explanation, MethodCard
from explainbench.core.forecaster import ExplainedModel
from explainbench.core.masking import Masker
from explainbench.core.registry import METHODS
from explainbench.core.windows import Windows


@METHODS.register(
    MethodCard(
        title="Random ranking",
        category="baseline",
        source="control (ours)",
        deterministic=False,
        vector="nonnegative",
        cost="free",
    )
)
@dataclass(frozen=True, slots=True)
class Random:
    """A seeded random ranking of the feature groups: what every explanation has to beat."""

    def explain(self, model: ExplainedModel, windows: Windows, masker: Masker, rng: np.random.Generator) -> Explanation:
        """Attributions (n, t, c) without unit; a window's ranking depends on seed and origin, not on its batch."""
        seed = int(rng.integers(2**32))
        importance = np.stack([stream(seed, str(origin)).random(len(masker.groups)) for origin in windows.origin])
        return Explanation(masker.groups.spread(importance * masker.groups.sizes))
