"""The oracle baseline."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from explainbench.core.errors import NotApplicable
from explainbench.core.explanation import Explanation, MethodCard
from explainbench.core.forecaster import ExplainedModel
from explainbench.core.masking import Masker
from explainbench.core.registry import METHODS
from explainbench.core.windows import Windows


@METHODS.register(
    MethodCard(
        title="Oracle ranking",
        category="baseline",
        source="control (ours)",
        deterministic=True,
        vector="nonnegative",
        cost="free",
    )
)
@dataclass(frozen=True, slots=True)
class Oracle:
    """The feature groups ranked by what they truly contributed to the target, where the dataset knows it.

    What drives the data need not be what a model uses, so this is a reference for recovery, not an upper bound.
    """

    def explain(self, model: ExplainedModel, windows: Windows, masker: Masker, rng: np.random.Generator) -> Explanation:
        """Attributions (n, t, c): each group's share of the target. Raises NotApplicable without known drivers."""
        if windows.truth is None:
            raise NotApplicable("the true drivers of this dataset are not known")
        totals = np.abs(masker.groups.total(windows.truth))
        return Explanation(masker.groups.spread((totals * masker.groups.sizes).astype(np.float64)))
