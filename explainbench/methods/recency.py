"""The recency baseline."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from explainbench.core.explanation import Explanation, MethodCard
from explainbench.core.forecaster import ExplainedModel
from explainbench.core.masking import Masker
from explainbench.core.registry import METHODS
from explainbench.core.windows import Windows


@METHODS.register(
    MethodCard(
        title="Recency ranking",
        category="baseline",
        source="control (ours)",
        deterministic=True,
        vector="nonnegative",
        cost="free",
    )
)
@dataclass(frozen=True, slots=True)
class Recency:
    """The latest feature groups first: a hard baseline for series, because forecasts lean on the last hours."""

    def explain(self, model: ExplainedModel, windows: Windows, masker: Masker, rng: np.random.Generator) -> Explanation:
        """Attributions (n, t, c): the position of the group's last step, the same for every window."""
        groups = masker.groups
        # whole numbers, so that the channels of one run tie exactly and the lower index decides
        last = np.array([1 + np.flatnonzero((groups.labels == g).any(axis=1))[-1] for g in range(len(groups))])
        return Explanation(groups.spread(np.tile((last * groups.sizes).astype(np.float64), (len(windows), 1))))
