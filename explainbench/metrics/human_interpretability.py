"""Human interpretability."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from explainbench.core.cell import Score
from explainbench.core.errors import Pending
from explainbench.core.evidence import Evidence, MetricCard
from explainbench.core.registry import METRICS


@METRICS.register(MetricCard(title="Human interpretability", equation="paper 000, eq. 7", level="cell"))
@dataclass(frozen=True, slots=True)
class HumanInterpretability:
    """Normalised mean Likert rating across independent raters."""

    def score(self, evidence: Evidence) -> Mapping[str, Score]:
        """Raises Pending: ratings come from people."""
        raise Pending("no human ratings have been imported; they are never simulated")
