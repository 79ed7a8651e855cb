"""Gradient."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from explainbench.core.arrays import Floats
from explainbench.core.explanation import MethodCard
from explainbench.core.tabular import TABULAR_METHODS, RowExplanation, TabularModel
from explainbench.methods._tabular._differentiable import array, differentiable, tensor


@TABULAR_METHODS.register(
    MethodCard(
        title="Gradient",
        category="attribution",
        source="Simonyan, Vedaldi and Zisserman 2014, with its sign",
        deterministic=True,
        needs=("HasLayers",),
        cost="gradient",
        libraries=("captum", "torch"),
    )
)
@dataclass(frozen=True, slots=True)
class Gradient:
    """The slope of P(class 1) along every column, at the row."""

    def explain(
        self, model: TabularModel, rows: Floats, background: Floats, rng: np.random.Generator
    ) -> RowExplanation:
        """Attributions (n, d) per unit of each column, with their signs. Raises NotApplicable without gradients."""
        from captum.attr import Saliency

        return RowExplanation(
            array(Saliency(differentiable(model)).attribute(tensor(rows).requires_grad_(), abs=False))
        )
