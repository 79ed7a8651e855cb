"""KernelSHAP on tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from explainbench.core.arrays import Floats
from explainbench.core.explanation import MethodCard
from explainbench.core.tabular import TABULAR_METHODS, RowExplanation, TabularModel
from explainbench.methods._tabular._windowed import explained_as_windows
from explainbench.methods.shap import Shap


@TABULAR_METHODS.register(
    MethodCard(
        title="KernelSHAP",
        category="attribution",
        source="Lundberg and Lee 2017, KernelSHAP",
        deterministic=False,
        surrogate="additive",
        cost="sampling",
        stores="background",
        libraries=("shap",),
    )
)
@dataclass(frozen=True, slots=True)
class KernelShap:
    """The energy registry's KernelSHAP: columns outside a coalition take their means. coalitions: for all rows."""

    coalitions: Annotated[int, Field(ge=16)] = 512

    def explain(
        self, model: TabularModel, rows: Floats, background: Floats, rng: np.random.Generator
    ) -> RowExplanation:
        """Attributions (n, d) of P(class 1)."""
        return explained_as_windows(Shap(self.coalitions), model, rows, background, rng)
