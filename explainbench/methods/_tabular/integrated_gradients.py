"""Integrated gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from explainbench.core.arrays import Floats
from explainbench.core.explanation import MethodCard
from explainbench.core.tabular import TABULAR_METHODS, RowExplanation, TabularModel
from explainbench.methods._tabular._differentiable import array, differentiable, tensor


@TABULAR_METHODS.register(
    MethodCard(
        title="Integrated gradients",
        category="attribution",
        source="Sundararajan, Taly and Yan 2017",
        deterministic=True,
        needs=("HasLayers",),
        cost="gradient",
        libraries=("captum", "torch"),
    )
)
@dataclass(frozen=True, slots=True)
class IntegratedGradients:
    """The path integral of the gradient from the mean training row to the row, times their difference.

    steps: Gauss-Legendre points of the path.
    """

    steps: Annotated[int, Field(ge=8)] = 64

    def explain(
        self, model: TabularModel, rows: Floats, background: Floats, rng: np.random.Generator
    ) -> RowExplanation:
        """Attributions (n, d) in probability; notes: the convergence delta (n,). Raises NotApplicable."""
        from captum.attr import IntegratedGradients as Library

        baseline = tensor(background.mean(axis=0, keepdims=True))
        attribution, delta = Library(differentiable(model)).attribute(
            *(tensor(rows), baseline), n_steps=self.steps, method="gausslegendre", return_convergence_delta=True
        )
        return RowExplanation(array(attribution), notes={"convergence_delta": np.abs(array(delta))})
