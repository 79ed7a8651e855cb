"""Actionability."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from explainbench.core.cell import Score
from explainbench.core.errors import Pending
from explainbench.core.evidence import Evidence, MetricCard
from explainbench.core.registry import METRICS
from explainbench.core.search import Plan
from explainbench.metrics._counterfactuals import counterfactuals


@METRICS.register(MetricCard(title="Actionability", equation="paper 000, eq. 5", level="model"))
@dataclass(frozen=True, slots=True)
class Actionability:
    """The share of counterfactuals whose implied change lies in the operationally feasible action set.

    runs: M seeded searches per window, those of counterfactual consistency. A search that finds no counterfactual
    implies no change, so it never counts as feasible.
    """

    runs: Annotated[int, Field(ge=1)] = 10

    def score(self, evidence: Evidence) -> Mapping[str, Score]:
        """Per window (n,) and context c: `act.c` = share of the M runs that are valid and feasible in c.

        `act_valid.c`: the same share among the valid runs alone, NaN where there is none. `actionability` is that of
        the first context, the reference. Raises Pending without contexts, NotApplicable without a decision rule or
        where the dataset has no channel of a context.
        """
        if not evidence.contexts:
            raise Pending("params.yaml names no deployment context (key contexts)")
        found = counterfactuals(evidence, Plan(self.runs))
        count = found.valid.sum(axis=1)
        scores: dict[str, Score] = {}
        for context in evidence.contexts:
            feasible = (context.feasible(found.change, evidence.windows) & found.valid).sum(axis=1)
            share = feasible / self.runs
            scores[f"act.{context.name}"] = Score(share, share)
            with np.errstate(invalid="ignore"):
                among = np.where(count > 0, feasible / np.maximum(count, 1), np.nan)
            scores[f"act_valid.{context.name}"] = Score(among, among)
        return {"actionability": scores[f"act.{evidence.contexts[0].name}"], **scores}
