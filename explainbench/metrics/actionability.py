"""Actionability."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from explainbench.core.cell import Score
from explainbench.core.errors import Pending
from explainbench.core.evidence import Evidence, MetricCard
from explainbench.core.registry import METRICS


@METRICS.register(MetricCard(title="Actionability", equation="paper 000, eq. 5", level="model"))
@dataclass(frozen=True, slots=True)
class Actionability:
    """The share of counterfactuals whose implied change lies in the operationally feasible action set."""

    def score(self, evidence: Evidence) -> Mapping[str, Score]:
        """Raises Pending: needs the counterfactual search of spec section 5."""
        raise Pending("the counterfactual search and the action sets are not part of this protocol version")
