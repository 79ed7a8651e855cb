"""EAMEX: nine metrics of how explainable a model is, on plain arrays, and over the explanations of a cell.

The functions take arrays (n rows, d features) and a preset: `paper`, the equations of paper 003 with their limits, or
`holisticai`, the numbers of the authors' library with its departures. `definition(metric, preset)` says which direction
is better. A classifier or regressor is any callable `predict(X) -> (n,)`.

    >>> from explainbench.metrics import eamex
    >>> eamex.alpha_importance([0.5, 0.3, 0.15, 0.05])
    0.5
    >>> eamex.definition("rank_consistency", "holisticai").higher_is_better
    False
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from explainbench.core.cell import Score
from explainbench.core.errors import NotApplicable
from explainbench.core.evidence import Evidence, MetricCard
from explainbench.core.registry import METRICS
from explainbench.metrics._eamex_definitions import DEFINITIONS, Definition, Preset, Task, definition, shares
from explainbench.metrics._eamex_importance import (
    LocalImportance,
    alpha_importance,
    explanation_scores,
    global_importance,
    importance_stability,
    importance_stability_by_feature,
    rank_alignment,
    rank_consistency,
    rank_consistency_by_feature,
    spread_divergence,
)
from explainbench.metrics._eamex_model import (
    Curves,
    PermutationImportance,
    Predict,
    fluctuation_ratio,
    fluctuations,
    groups_of,
    partial_dependence,
    permutation_importance,
)
from explainbench.metrics._eamex_study import LOCAL, Study, study
from explainbench.metrics._eamex_surrogate import (
    Surrogate,
    fit_surrogate,
    performance_degradation,
    surrogate_feature_stability,
    surrogate_fidelity,
    surrogate_overlaps,
)

__all__ = [
    "DEFINITIONS",
    "LOCAL",
    "Curves",
    "Definition",
    "Eamex",
    "LocalImportance",
    "PermutationImportance",
    "Predict",
    "Preset",
    "Study",
    "Surrogate",
    "Task",
    "alpha_importance",
    "definition",
    "explanation_scores",
    "fit_surrogate",
    "fluctuation_ratio",
    "fluctuations",
    "global_importance",
    "groups_of",
    "importance_stability",
    "importance_stability_by_feature",
    "partial_dependence",
    "performance_degradation",
    "permutation_importance",
    "rank_alignment",
    "rank_consistency",
    "rank_consistency_by_feature",
    "shares",
    "spread_divergence",
    "study",
    "surrogate_feature_stability",
    "surrogate_fidelity",
    "surrogate_overlaps",
]


@METRICS.register(MetricCard(title="Explainability (EAMEX)", equation="paper 003, eqs. 1-3 and 4-8"))
@dataclass(frozen=True, slots=True)
class Eamex:
    """How concentrated a model's importances are over groups of inputs, and how alike over windows and regimes.

    Features are the groups, importances |e|, and the regimes are the groups of rows of rank alignment. preset: `paper`
    or `holisticai`; alpha: the share of importance that the top groups hold.
    """

    preset: Literal["paper", "holisticai"] = "paper"
    alpha: Annotated[float, Field(gt=0.0, le=1.0)] = 0.8

    def score(self, evidence: Evidence) -> Mapping[str, Score]:
        """For the set (1,): the five metrics that need nothing but explanations; value turned so that higher is better.

        `eamex` [ours] is the mean of the turned values. Rank alignment is left out where all windows share a regime.
        Raises NotApplicable for a single window, or where an explanation is zero throughout.
        """
        importance = np.abs(evidence.importance)
        empty = np.flatnonzero(importance.sum(axis=1) == 0)
        if len(empty):
            raise NotApplicable(
                f"the explanation of {len(empty)} of {len(importance)} windows is zero throughout (the first: "
                f"{evidence.windows.origin[empty[0]]}), so there are no shares of importance"
            )
        found = explanation_scores(importance, evidence.windows.regime, self.alpha, self.preset)
        turned = {name: definition(name, self.preset).oriented(value) for name, value in found.items()}
        mean = np.array([float(np.mean(list(turned.values())))])
        scores = {name: Score(np.array([value]), np.array([turned[name]])) for name, value in found.items()}
        return {"eamex": Score(mean, mean)} | scores
