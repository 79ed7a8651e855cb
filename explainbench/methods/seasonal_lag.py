"""The seasonal-lag baseline."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from explainbench.core.explanation import Explanation, MethodCard
from explainbench.core.forecaster import ExplainedModel
from explainbench.core.masking import Masker
from explainbench.core.registry import METHODS
from explainbench.core.windows import Windows

DAY = 24 * 60  # minutes


@METHODS.register(
    MethodCard(
        title="Seasonal-lag ranking",
        category="baseline",
        source="control (ours)",
        deterministic=True,
        vector="nonnegative",
        cost="free",
    )
)
@dataclass(frozen=True, slots=True)
class SeasonalLag:
    """The feature groups one day before the target first, then outward in both directions.

    Groups that overlap the target's own hours a day earlier come first, the others by how many steps lie between.
    """

    def explain(self, model: ExplainedModel, windows: Windows, masker: Masker, rng: np.random.Generator) -> Explanation:
        """Attributions (n, t, c): steps nearer to the day-old target than the farthest input, the same everywhere."""
        groups = masker.groups
        steps, horizon = windows.context.shape[1], windows.target.shape[1]
        first = steps - DAY // masker.step_minutes  # where the target's first step was a day ago
        position = np.arange(steps)
        away = np.maximum(0, np.maximum(first - position, position - (first + horizon - 1)))
        nearest = np.array([away[(groups.labels == g).any(axis=1)].min() for g in range(len(groups))])
        # whole numbers, so that equally distant groups tie exactly and the lower index decides
        near = 1 + away.max() - nearest
        return Explanation(groups.spread(np.tile((near * groups.sizes).astype(np.float64), (len(windows), 1))))
