"""Perturbation analysis on tables."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from explainbench.core.arrays import Floats
from explainbench.core.explanation import MethodCard
from explainbench.core.tabular import TABULAR_METHODS, RowExplanation, TabularModel
from explainbench.methods import perturbation
from explainbench.methods._tabular._windowed import explained_as_windows


@TABULAR_METHODS.register(
    MethodCard(
        title="Perturbation analysis",
        category="perturbation",
        source="Zeiler and Fergus 2014, leave one out",
        deterministic=True,
        libraries=("captum", "torch"),
    )
)
@dataclass(frozen=True, slots=True)
class Perturbation:
    """The energy registry's leave-one-group-out method: the change of P(class 1) when a column takes its mean."""

    def explain(
        self, model: TabularModel, rows: Floats, background: Floats, rng: np.random.Generator
    ) -> RowExplanation:
        """Attributions (n, d) of P(class 1)."""
        return explained_as_windows(perturbation.Perturbation(), model, rows, background, rng)
