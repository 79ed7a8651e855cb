"""LIME."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, cast

import numpy as np
from pydantic import Field

from explainbench.core.arrays import Floats
from explainbench.core.explanation import Explanation, MethodCard, Surrogate
from explainbench.core.forecaster import ExplainedModel
from explainbench.core.masking import Masker
from explainbench.core.registry import METHODS
from explainbench.core.windows import Windows


@METHODS.register(
    MethodCard(
        title="LIME",
        category="surrogate",
        source="Ribeiro, Singh and Guestrin 2016",
        deterministic=False,
        surrogate="linear",
        cost="sampling",
        stores="background",
        libraries=("lime", "scikit-learn"),
    )
)
@dataclass(frozen=True, slots=True)
class Lime:
    """A local linear surrogate: ridge on the kernel-weighted neighbourhood of masked feature groups.

    samples: coalitions, each group kept with probability one half, the unmasked window first; kernel_width: of the
    exponential kernel on the cosine distance between coalitions; ridge: penalty, small so that a linear model is
    recovered rather than shrunk. The neighbourhood is shared by all windows of a batch.
    """

    samples: Annotated[int, Field(ge=16)] = 512
    kernel_width: Annotated[float, Field(gt=0.0)] = 0.25
    ridge: Annotated[float, Field(gt=0.0)] = 1e-3

    def explain(self, model: ExplainedModel, windows: Windows, masker: Masker, rng: np.random.Generator) -> Explanation:
        """Attributions (n, t, c) in the target's unit: surrogate weights shared equally among a group's inputs."""
        from lime.lime_base import LimeBase
        from sklearn.linear_model import Ridge
        from sklearn.metrics.pairwise import cosine_distances

        groups = len(masker.groups)
        keep = rng.random((self.samples, groups)) < 0.5
        keep[0] = True
        outputs = masker.outputs(model, windows, keep)
        neighbourhood = keep.astype(np.float64)
        distances = cosine_distances(neighbourhood, neighbourhood[:1]).ravel()
        base = LimeBase(self._kernel)
        weights = np.empty((len(windows), groups))
        intercept = np.empty(len(windows))
        for window in range(len(windows)):
            # one regression per window: given several outputs at once, the library would explain only the first
            intercept[window], pairs, _, _ = base.explain_instance_with_data(
                neighbourhood,
                outputs.T,
                distances,
                label=window,
                num_features=groups,
                feature_selection="none",
                model_regressor=Ridge(alpha=self.ridge),
            )
            for group, weight in cast(list[tuple[int, float]], pairs):
                weights[window, group] = weight
        return Explanation(masker.groups.spread(weights), Surrogate(intercept, weights, keep))

    def _kernel(self, distances: Floats) -> Floats:
        return np.sqrt(np.exp(-(distances**2) / self.kernel_width**2))
