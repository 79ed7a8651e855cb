"""Uncertainty awareness."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from explainbench.core.cell import Score
from explainbench.core.errors import Pending
from explainbench.core.evidence import Evidence, MetricCard
from explainbench.core.forecaster import HasCard, require
from explainbench.core.registry import METRICS


@METRICS.register(MetricCard(title="Uncertainty awareness", equation="paper 000, eq. 6", level="model"))
@dataclass(frozen=True, slots=True)
class UncertaintyAwareness:
    """One minus the expected calibration error of the predictive quantiles.

    Measured once per model by the stage that fits it, over all test origins; the card says whether the quantiles are
    native or those of the split-conformal wrapper. A property of the model: no method enters it.
    """

    def score(self, evidence: Evidence) -> Mapping[str, Score]:
        """For the set (1,): the metric, and `native_quantiles`, 1 for a model's own and 0 for conformal quantiles.

        Raises NotApplicable for a model without a card, Pending for a card without the block.
        """
        block = require(evidence.model.forecaster, HasCard).card.get("uncertainty")
        if block is None:
            raise Pending("the model's card holds no coverage of its quantiles; fit the model again")
        value = np.array([float(block["awareness"])])
        native = np.array([float(block["quantiles"] == "native")])
        return {
            "uncertainty_awareness": Score(value, np.clip(value, 0.0, 1.0)),
            "native_quantiles": Score(native),
        }
