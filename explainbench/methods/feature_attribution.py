"""Feature attribution."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from explainbench.core.explanation import Explanation, MethodCard
from explainbench.core.forecaster import ExplainedModel, HasTorchModule, require
from explainbench.core.masking import Masker
from explainbench.core.registry import METHODS
from explainbench.core.windows import Windows


@METHODS.register(
    MethodCard(
        title="Feature attribution",
        category="attribution",
        source="gradient x (input - baseline), Shrikumar et al. 2016",
        deterministic=True,
        needs=("HasTorchModule",),
        cost="gradient",
        stores="background",
        libraries=("captum", "torch"),
    )
)
@dataclass(frozen=True, slots=True)
class FeatureAttribution:
    """The gradient at the window times the difference between the window and the fully masked window.

    One gradient pass per window: the linear part of what masking everything would change. The baseline is that of
    integrated gradients, so the two differ only where the gradient changes along the path.
    """

    def explain(self, model: ExplainedModel, windows: Windows, masker: Masker, rng: np.random.Generator) -> Explanation:
        """Attributions (n, t, c) in the target's unit, with their signs. Raises NotApplicable without gradients."""
        import torch
        from captum.attr import InputXGradient

        require(model.forecaster, HasTorchModule)
        context = torch.from_numpy(windows.context.astype(np.float32))
        difference = torch.from_numpy((windows.context - masker.fill(windows)).astype(np.float32))

        def shifted(step: torch.Tensor) -> torch.Tensor:
            return model.torch(context + (step - difference))

        # the library multiplies a gradient by its input: its input is the difference, its point is still the window
        return Explanation(
            InputXGradient(shifted).attribute(difference.clone().requires_grad_()).detach().double().numpy()
        )
