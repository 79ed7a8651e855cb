"""Input x gradient."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from explainbench.core.arrays import Floats
from explainbench.core.explanation import MethodCard
from explainbench.core.tabular import TABULAR_METHODS, RowExplanation, TabularModel
from explainbench.methods._tabular._differentiable import array, differentiable, tensor


@TABULAR_METHODS.register(
    MethodCard(
        title="Input x gradient",
        category="attribution",
        source="Shrikumar et al. 2016",
        deterministic=True,
        needs=("HasLayers",),
        cost="gradient",
        libraries=("captum", "torch"),
    )
)
@dataclass(frozen=True, slots=True)
class InputXGradient:
    """The slope of P(class 1) at the row, times the row: the linear part of what it adds to an all-zero row."""

    def explain(
        self, model: TabularModel, rows: Floats, background: Floats, rng: np.random.Generator
    ) -> RowExplanation:
        """Attributions (n, d) in probability, with their signs. Raises NotApplicable without gradients."""
        from captum.attr import InputXGradient as Library

        return RowExplanation(array(Library(differentiable(model)).attribute(tensor(rows).requires_grad_())))
