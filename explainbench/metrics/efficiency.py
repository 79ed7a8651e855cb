"""Computational efficiency."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from explainbench.core.cell import Score
from explainbench.core.errors import Pending
from explainbench.core.evidence import Evidence, MetricCard
from explainbench.core.registry import METRICS


@METRICS.register(MetricCard(title="Computational efficiency", equation="paper 000, eq. 8", level="method"))
@dataclass(frozen=True, slots=True)
class Efficiency:
    """Latency of one explanation against the edge reference budget, 1/(1 + t/t_ref)."""

    def score(self, evidence: Evidence) -> Mapping[str, Score]:
        """Raises Pending: a timing is an archived measurement that the profile stage supplies."""
        raise Pending("timed by the profile stage and joined on boards; timings are never part of a cell")
