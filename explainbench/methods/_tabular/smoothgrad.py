"""SmoothGrad."""

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
        title="SmoothGrad",
        category="attribution",
        source="Smilkov et al. 2017",
        deterministic=False,
        needs=("HasLayers",),
        cost="gradient",
        libraries=("captum", "torch"),
    )
)
@dataclass(frozen=True, slots=True)
class Smoothgrad:
    """The mean slope of P(class 1) over noisy copies of the row.

    std: of the normal noise, in standard deviations of the training columns; copies: per row.
    """

    std: Annotated[float, Field(gt=0.0)] = 0.1
    copies: Annotated[int, Field(ge=2)] = 50

    def explain(
        self, model: TabularModel, rows: Floats, background: Floats, rng: np.random.Generator
    ) -> RowExplanation:
        """Attributions (n, d) per unit of each column, with their signs. Raises NotApplicable without gradients."""
        from captum.attr import Saliency

        noise = self.std * background.std(axis=0) * rng.standard_normal((len(rows), self.copies, rows.shape[1]))
        copies = (rows[:, None] + noise).reshape(-1, rows.shape[1])
        slopes = array(Saliency(differentiable(model)).attribute(tensor(copies).requires_grad_(), abs=False))
        return RowExplanation(slopes.reshape(noise.shape).mean(axis=1))
