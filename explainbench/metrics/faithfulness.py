"""Faithfulness."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Annotated

import numpy as np
from pydantic import Field

from explainbench.core.arrays import Bools, Floats, Ints
from explainbench.core.cell import Score
from explainbench.core.evidence import Evidence, MetricCard
from explainbench.core.masking import cumulative_keep, ranking
from explainbench.core.registry import METRICS


@METRICS.register(MetricCard(title="Faithfulness", equation="paper 000, eq. 1", unit="target unit (raw)"))
@dataclass(frozen=True, slots=True)
class Faithfulness:
    """Mean change of the model output while the top-k features per pi are progressively masked, k = 1..K.

    share: K as a share of the groups; top: cap of K; random_rankings: draws of the random reference.
    Beside the raw value: `faithfulness_skill` = (raw - raw of random rankings) / (raw of the greedy ranking - raw of
    random rankings), so 0 is chance and 1 the greedy ranking that masks, at each step, the group that moves f most;
    and `diagnosticity` = P(raw > raw of a random ranking).
    """

    share: Annotated[float, Field(gt=0.0, le=1.0)] = 0.2
    top: Annotated[int, Field(ge=1)] = 20
    random_rankings: Annotated[int, Field(ge=2)] = 20

    def score(self, evidence: Evidence) -> Mapping[str, Score]:
        """Per window (n,); raw in the target's unit, mapped to [0, 1] later with bounds frozen per task.

        NaN where the explanation is all zero (no valid counterfactual, a dead Grad-CAM map).
        """
        k = self.depth(len(evidence.masker.groups))
        full, chance, greedy = evidence.shared(f"faithfulness {self}", lambda: self._references(evidence, k))
        order = ranking(evidence.importance)[:, :k]
        raw = self._raw(evidence, full, order)
        raw[~evidence.importance.any(axis=1)] = np.nan  # an all-zero explanation ranks nothing: undefined, not 0
        room = greedy - chance.mean(axis=1)
        skill = np.divide(raw - chance.mean(axis=1), room, out=np.full_like(raw, np.nan), where=room > 0)
        above = np.where(np.isnan(raw), np.nan, (raw[:, None] > chance).mean(axis=1))
        return {
            "faithfulness": Score(raw),
            "faithfulness_skill": Score(skill),
            "diagnosticity": Score(above, above),
        }

    def depth(self, groups: int) -> int:
        """K = ceil(share x groups), at most `top`."""
        return min(ceil(self.share * groups), self.top, groups)

    def _raw(self, evidence: Evidence, full: Floats, order: Ints) -> Floats:
        keep = cumulative_keep(order, len(evidence.masker.groups))
        return np.abs(full[:, None] - evidence.masker.outputs(evidence.model, evidence.windows, keep)).mean(axis=1)

    def _references(self, evidence: Evidence, k: int) -> tuple[Floats, Floats, Floats]:
        """f(x) (n,), raw of random rankings (n, draws) and of the greedy ranking (n,): the same for every method."""
        groups, windows = len(evidence.masker.groups), evidence.windows
        full = evidence.model(windows.context)
        rng = evidence.task_rng("random rankings")
        draws = np.stack([rng.permutation(groups)[:k] for _ in range(self.random_rankings)])
        keep = cumulative_keep(draws, groups).reshape(-1, groups)
        outputs = evidence.masker.outputs(evidence.model, windows, keep)
        chance = np.abs(full[:, None] - outputs).reshape(len(windows), len(draws), k).mean(axis=2)
        return full, chance, self._greedy(evidence, full, k)

    def _greedy(self, evidence: Evidence, full: Floats, k: int) -> Floats:
        groups, windows = len(evidence.masker.groups), evidence.windows
        rows = np.arange(len(windows))
        kept: Bools = np.ones((len(windows), groups), dtype=bool)
        moved = np.zeros(len(windows))
        for _ in range(k):
            trial = kept[:, None, :] & ~np.eye(groups, dtype=bool)
            change = np.abs(full[:, None] - evidence.masker.outputs(evidence.model, windows, trial))
            change[~kept] = -1.0  # a group can be masked once
            best = change.argmax(axis=1)
            kept[rows, best] = False
            moved += change[rows, best]
        return moved / k
