"""Perturbation analysis."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from explainbench.core.explanation import Explanation, MethodCard
from explainbench.core.forecaster import ExplainedModel
from explainbench.core.masking import CHUNK, Masker
from explainbench.core.registry import METHODS
from explainbench.core.windows import Windows


@METHODS.register(
    MethodCard(
        title="Perturbation analysis",
        category="perturbation",
        source="leave one group out; occlusion after Zeiler and Fergus 2014",
        deterministic=True,
        cost="forward",
        stores="background",
        libraries=("captum",),
    )
)
@dataclass(frozen=True, slots=True)
class Perturbation:
    """The change of f when one feature group is masked: e_g = f(x) - f(x without g).

    Forward passes only, so any forecaster can be explained: one per group, one for the window itself, and the library's
    one for the inputs that are no players, which masking leaves as they are.
    """

    def explain(self, model: ExplainedModel, windows: Windows, masker: Masker, rng: np.random.Generator) -> Explanation:
        """Attributions (n, t, c) in the target's unit, with their signs, shared equally among a group's inputs."""
        import torch
        from captum.attr import FeatureAblation

        def f(context: torch.Tensor) -> torch.Tensor:
            return torch.from_numpy(model(context.numpy()))

        labels = masker.groups.labels
        # feature 0: all inputs that are no players, which masking leaves as they are
        change = FeatureAblation(f).attribute(
            torch.from_numpy(windows.context),
            baselines=torch.from_numpy(masker.fill(windows)),
            feature_mask=torch.from_numpy(labels + 1)[None],
            perturbations_per_eval=max(1, CHUNK // len(windows)),
        )
        # the library gives every input of a group the whole group's change
        return Explanation(masker.groups.spread(masker.groups.average(change.numpy())))
