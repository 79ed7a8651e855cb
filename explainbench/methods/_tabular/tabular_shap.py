"""SHAP on tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from explainbench.core.arrays import Floats
from explainbench.core.explanation import MethodCard
from explainbench.core.tabular import TABULAR_METHODS, HasLayers, HasTrees, RowExplanation, TabularModel
from explainbench.methods._tabular.kernel_shap import KernelShap


@TABULAR_METHODS.register(
    MethodCard(
        title="SHAP (tabular)",
        category="attribution",
        source="Lundberg et al. 2020, TreeSHAP; Lundberg and Lee 2017",
        deterministic=False,
        surrogate="additive",
        cost="sampling",
        stores="background",
        libraries=("shap",),
    )
)
@dataclass(frozen=True, slots=True)
class TabularShap:
    """Shapley values of the columns: TreeSHAP for trees, the closed form for a linear model, KernelSHAP for the rest.

    coalitions: of KernelSHAP, shared by all rows.
    """

    coalitions: Annotated[int, Field(ge=16)] = 2048

    def explain(
        self, model: TabularModel, rows: Floats, background: Floats, rng: np.random.Generator
    ) -> RowExplanation:
        """Attributions (n, d), of P(class 1), or of its log-odds for boosted trees and linear models."""
        import shap

        if isinstance(model, HasTrees):
            values = np.asarray(shap.TreeExplainer(model.estimator).shap_values(rows, check_additivity=False))
            return RowExplanation(values[..., 1] if values.ndim == 3 else values)
        if isinstance(model, HasLayers) and len(model.layers) == 1:
            slopes = model.layers[0][0][:, 0] / model.std
            explainer = shap.LinearExplainer((slopes, 0.0), background)
            return RowExplanation(np.asarray(explainer.shap_values(rows), dtype=np.float64))
        return KernelShap(self.coalitions).explain(model, rows, background, rng)
