"""Uncertainty awareness."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from explainbench.core.cell import Score
from explainbench.core.errors import Pending
from explainbench.core.evidence import Evidence, MetricCard
from explainbench.core.registry import METRICS


@METRICS.register(MetricCard(title="Uncertainty awareness", equation="paper 000, eq. 6", level="model"))
@dataclass(frozen=True, slots=True)
class UncertaintyAwareness:
    """One minus the expected calibration error of the predictive quantiles."""

    def score(self, evidence: Evidence) -> Mapping[str, Score]:
        """Raises Pending: needs quantiles of every model."""
        raise Pending("the conformal wrapper for models without native quantiles is not part of this protocol version")
