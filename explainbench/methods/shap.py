"""SHAP."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from explainbench.core.arrays import Bools, Floats
from explainbench.core.errors import BadInput
from explainbench.core.explanation import Explanation, MethodCard, Surrogate
from explainbench.core.forecaster import ExplainedModel
from explainbench.core.masking import Masker
from explainbench.core.registry import METHODS
from explainbench.core.windows import Windows


@METHODS.register(
    MethodCard(
        title="SHAP",
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
class Shap:
    """Shapley values of the feature groups, by KernelSHAP on the game "keep these groups, mask the rest".

    coalitions: model evaluations per window. All windows of a batch share one coalition design, so the library solves
    one regression per window over one stream of batched model calls.
    """

    coalitions: Annotated[int, Field(ge=16)] = 512

    def explain(self, model: ExplainedModel, windows: Windows, masker: Masker, rng: np.random.Generator) -> Explanation:
        """Attributions (n, t, c) in the target's unit, each group's value shared equally among its inputs.

        Raises BadInput when there are fewer coalitions than the regression needs.
        """
        from shap import KernelExplainer

        groups = len(masker.groups)
        if self.coalitions < 2 * groups:
            raise BadInput(
                f"params: methods.shap.coalitions = {self.coalitions} is less than two per feature group ({groups} "
                "groups), so the regression has no unique solution; raise it."
            )
        designs: list[Bools] = []

        def game(coalitions: Floats) -> Floats:
            keep = coalitions > 0.5
            designs.append(keep)
            return masker.outputs(model, windows, keep).T  # windows are the outputs of one game

        with _legacy_seed(rng):
            explainer = KernelExplainer(game, np.zeros((1, groups)))
            # l1_reg=False: the library's default silently keeps ten features
            values = explainer.shap_values(np.ones((1, groups)), nsamples=self.coalitions, l1_reg=False, silent=True)
        weights = np.asarray(values, dtype=np.float64)[0].T
        design = max(designs, key=len)
        surrogate = Surrogate(np.asarray(explainer.expected_value, dtype=np.float64), weights, design)
        return Explanation(masker.groups.spread(weights), surrogate)


@contextmanager
def _legacy_seed(rng: np.random.Generator) -> Iterator[None]:
    """Seed numpy's global generator, the only one the library reads, and give it back as it was."""
    before = np.random.get_state()  # noqa: NPY002
    np.random.seed(rng.integers(2**32, dtype=np.uint32))  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(before)  # noqa: NPY002
