"""Counterfactual explanation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from explainbench.core.decision import Agent
from explainbench.core.explanation import Explanation, MethodCard
from explainbench.core.forecaster import ExplainedModel
from explainbench.core.masking import Masker
from explainbench.core.registry import METHODS
from explainbench.core.search import Plan, search
from explainbench.core.windows import Windows


@METHODS.register(
    MethodCard(
        title="Counterfactual",
        category="example",
        source="Wachter, Mittelstadt and Russell 2018; for forecasts Wang et al. 2023 (ForecastCF)",
        deterministic=False,
        cost="search",
        stores="background",
        libraries=("torch",),
    )
)
@dataclass(frozen=True, slots=True)
class Counterfactual:
    """The smallest change of the window that changes the decision: e = x_cf - x for the nearest of M searches.

    The decision is the fixed agent of `core/decision.py`, the distance group-sparse (`core/search.py`), so few groups
    get an attribution at all. runs: M seeded searches; steps, reach, sparsity, smooth, ramp: of the gradient search
    (`core/search.py: Plan`); a model without gradients is searched from training windows inwards.
    """

    runs: Annotated[int, Field(ge=1)] = 10
    steps: Annotated[int, Field(ge=4)] = 24
    reach: Annotated[float, Field(gt=0.0, le=1.0)] = 0.1
    sparsity: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.5
    smooth: Annotated[int, Field(ge=1)] = 1
    ramp: Annotated[float, Field(gt=0.0)] | None = None

    def explain(self, model: ExplainedModel, windows: Windows, masker: Masker, rng: np.random.Generator) -> Explanation:
        """Changes (n, t, c) in z-units, with their signs; the counterfactuals in dataset units.

        notes, per window: `no_valid`, 1 where no search changed the decision (the attribution is then zero and the
        counterfactual the window itself); `invalid_share` of the M searches; `distance` of the nearest, 0 where none.
        Raises NotApplicable where the target has no decision rule.
        """
        agent = Agent.of(model, windows, masker)
        plan = Plan(self.runs, self.steps, self.reach, self.sparsity, self.smooth, self.ramp)
        found = search(model, windows, masker, agent, plan, rng)
        rows = np.arange(len(windows))
        change = found.change[rows, found.nearest]
        known = found.valid.any(axis=1)
        notes = {
            "no_valid": (~known).astype(float),
            "invalid_share": 1.0 - found.valid.mean(axis=1),
            "distance": np.where(known, found.distance[rows, found.nearest], 0.0),
        }
        counterfactual = windows.context + change * windows.channels.std
        return Explanation(change, counterfactual=counterfactual, notes=notes)
