"""Integrated gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from explainbench.core.arrays import Floats
from explainbench.core.explanation import Explanation, MethodCard
from explainbench.core.forecaster import ExplainedModel, HasTorchModule, require
from explainbench.core.masking import Masker
from explainbench.core.registry import METHODS
from explainbench.core.windows import Windows

PATH_ROWS = 256  # path points per captum step, a multiple of the model batch


@METHODS.register(
    MethodCard(
        title="Integrated gradients",
        category="attribution",
        source="Sundararajan, Taly and Yan 2017",
        deterministic=True,
        needs=("HasTorchModule",),
        cost="gradient",
        stores="background",
        libraries=("captum", "torch"),
    )
)
@dataclass(frozen=True, slots=True)
class IntegratedGradients:
    """The path integral of the gradient from the fully masked window to the window, times their difference.

    The baseline is the masking operator's fully masked window, not a constant: with a constant one, integrated
    gradients of an instance-normalised model are gradient x input. steps: Gauss-Legendre points; tolerance: largest
    accepted completeness gap as a share of abs(f(x) - f(baseline)) plus one thousandth of abs(f(x)); windows above it
    are recomputed with twice the steps, at most max_steps.
    """

    steps: Annotated[int, Field(ge=8)] = 128
    tolerance: Annotated[float, Field(gt=0.0)] = 0.01
    max_steps: Annotated[int, Field(ge=8)] = 1024

    def explain(self, model: ExplainedModel, windows: Windows, masker: Masker, rng: np.random.Generator) -> Explanation:
        """Attributions (n, t, c) in the target's unit; notes: the convergence delta (n,) in the target's unit.

        Raises NotApplicable for a model without input gradients.
        """
        require(model.forecaster, HasTorchModule)
        baseline = masker.fill(windows)
        attribution, delta = self._attribute(model, windows.context, baseline, self.steps)
        value = model(windows.context)
        allowed = self.tolerance * (np.abs(value - model(baseline)) + 1e-3 * np.abs(value))
        steps = self.steps
        open_rows = np.flatnonzero(delta > allowed)
        while len(open_rows) and (steps := steps * 2) <= self.max_steps:
            finer, delta[open_rows] = self._attribute(model, windows.context[open_rows], baseline[open_rows], steps)
            attribution[open_rows] = finer
            open_rows = open_rows[delta[open_rows] > allowed[open_rows]]
        return Explanation(
            attribution, notes={"convergence_delta": delta, "unconverged": (delta > allowed).astype(float)}
        )

    def _attribute(self, model: ExplainedModel, context: Floats, baseline: Floats, steps: int) -> tuple[Floats, Floats]:
        import torch
        from captum.attr import IntegratedGradients as CaptumIntegratedGradients

        attribution, delta = CaptumIntegratedGradients(model.torch).attribute(
            torch.from_numpy(context.astype(np.float32)),
            torch.from_numpy(baseline.astype(np.float32)),
            n_steps=steps,
            method="gausslegendre",
            internal_batch_size=len(context) * max(1, PATH_ROWS // len(context)),
            return_convergence_delta=True,
        )
        return attribution.detach().double().numpy(), np.abs(delta.detach().double().numpy())
