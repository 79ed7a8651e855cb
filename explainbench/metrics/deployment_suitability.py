"""Deployment suitability."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from explainbench.core.cell import Score
from explainbench.core.errors import Pending
from explainbench.core.evidence import Evidence, MetricCard
from explainbench.core.registry import METRICS


@METRICS.register(MetricCard(title="Deployment suitability", equation="paper 000, eq. 12", level="method"))
@dataclass(frozen=True, slots=True)
class DeploymentSuitability:
    """The weighted sum of hardware, memory, latency, energy and privacy suitability."""

    def score(self, evidence: Evidence) -> Mapping[str, Score]:
        """Raises Pending: measurements of the profile stage, in every deployment context."""
        raise Pending("measured by the profile stage and joined on boards; measurements are never part of a cell")
