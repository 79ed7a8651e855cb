"""Counterfactual consistency."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from explainbench.core.arrays import Floats
from explainbench.core.cell import Score
from explainbench.core.evidence import Evidence, MetricCard
from explainbench.core.registry import METRICS
from explainbench.core.search import Plan
from explainbench.metrics._counterfactuals import counterfactuals


@METRICS.register(MetricCard(title="Counterfactual consistency", equation="paper 000, eq. 4", level="model"))
@dataclass(frozen=True, slots=True)
class CounterfactualConsistency:
    """Validity-weighted proximity of M counterfactuals to their centroid.

    runs: M seeded searches per window. A property of the model's decision boundary: no method enters it.
    """

    runs: Annotated[int, Field(ge=1)] = 10

    def score(self, evidence: Evidence) -> Mapping[str, Score]:
        """Per window (n,): (1/M) sum over valid m of 1 - norm(x_cf_m - centroid) / diam, 0 where none is valid.

        The centroid is that of the valid runs, diam the diagonal of the training box over the inputs that may change,
        both in z-units. `counterfactual_valid`: n_valid / M. Raises NotApplicable without a decision rule.
        """
        found = counterfactuals(evidence, Plan(self.runs))
        count = found.valid.sum(axis=1)
        change = np.where(found.valid[:, :, None, None], found.change, 0.0)
        centroid = change.sum(axis=1) / np.maximum(count, 1)[:, None, None]
        away = np.sqrt(((change - centroid[:, None]) ** 2).sum(axis=(2, 3)))
        near = np.where(found.valid, 1.0 - away / _diameter(evidence), 0.0)
        share = count / self.runs
        return {
            "counterfactual_consistency": _unit(near.mean(axis=1)),
            "counterfactual_valid": _unit(share),
        }


def _diameter(evidence: Evidence) -> float:
    """Diagonal of the training box over the players, in z-units."""
    channels = evidence.windows.channels
    std = np.where(channels.std > 0, channels.std, np.inf)  # a constant channel has no extent
    extent = (channels.high - channels.low) / std
    _, channel = np.nonzero(evidence.masker.groups.labels >= 0)
    return float(np.sqrt((extent[channel] ** 2).sum()))


def _unit(value: Floats) -> Score:
    return Score(value, np.clip(value, 0.0, 1.0))
