"""Fidelity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from explainbench.core.arrays import Bools, Floats
from explainbench.core.cell import Score
from explainbench.core.errors import NotApplicable
from explainbench.core.evidence import Evidence, MetricCard
from explainbench.core.registry import METRICS


@METRICS.register(MetricCard(title="Fidelity", equation="paper 000, eq. 2"))
@dataclass(frozen=True, slots=True)
class Fidelity:
    """Agreement between f and the local surrogate s_e over a freshly sampled neighbourhood.

    draws: coalitions, their size uniform on 1..g-1 and their members uniform given the size, so that neither
    surrogate is scored on its own sampling distribution; coalitions that a surrogate was fitted on are replaced.
    """

    draws: Annotated[int, Field(ge=10)] = 500

    def score(self, evidence: Evidence) -> Mapping[str, Score]:
        """Per window (n,): raw = 1 - mean abs(f(x') - s(x')) / sigma of the target; value = raw clipped to [0, 1].

        Averaged over runs. Raises NotApplicable for a method that induces no surrogate.
        """
        if evidence.method.surrogate is None:
            raise NotApplicable("the method induces no local surrogate (paper 000, section 7)")
        surrogates = [run.surrogate for run in evidence.runs if run.surrogate is not None]
        fresh, outputs = evidence.shared(f"fidelity {self}", lambda: self._neighbourhood(evidence))
        gaps = []
        for surrogate in surrogates:
            unseen = _not_among(fresh, surrogate.fitted_on)
            if unseen.sum() < 0.5 * self.draws:
                raise NotApplicable(
                    f"only {int(unseen.sum())} of {self.draws} coalitions of {fresh.shape[1]} groups are disjoint from "
                    "those the surrogate was fitted on"
                )
            kept = np.flatnonzero(unseen)[: self.draws]
            gaps.append(np.abs(outputs[:, kept] - surrogate(fresh[kept])).mean(axis=1))
        raw = 1.0 - np.mean(gaps, axis=0) / evidence.target_std
        return {"fidelity": Score(raw, np.clip(raw, 0.0, 1.0))}

    def _neighbourhood(self, evidence: Evidence) -> tuple[Bools, Floats]:
        """Coalitions (k, g) and f at them (n, k), shared by all surrogate methods of the (task, model).

        Half as many again as needed are drawn, distinct, so that those a surrogate has seen can be left out.
        """
        groups = len(evidence.masker.groups)
        rng = evidence.task_rng("fidelity draws")
        wanted = self.draws + self.draws // 2
        sizes = rng.integers(1, max(2, groups), size=4 * wanted)
        order = rng.random((4 * wanted, groups)).argsort(axis=1).argsort(axis=1)
        drawn = order < sizes[:, None]
        _, first = np.unique(drawn, axis=0, return_index=True)
        fresh = drawn[np.sort(first)[:wanted]]
        return fresh, evidence.masker.outputs(evidence.model, evidence.windows, fresh)


def _not_among(fresh: Bools, fitted: Bools) -> Bools:
    seen = {row.tobytes() for row in fitted}
    return np.array([row.tobytes() not in seen for row in fresh])
