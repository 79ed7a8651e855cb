"""The random baseline."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from explainbench.core.arrays import Floats
from explainbench.core.explanation import MethodCard
from explainbench.core.tabular import TABULAR_METHODS, RowExplanation, TabularModel


@TABULAR_METHODS.register(
    MethodCard(
        title="Random explanation", category="baseline", source="control (ours)", deterministic=False, cost="free"
    )
)
@dataclass(frozen=True, slots=True)
class Random:
    """Normal noise in every column: what every explanation has to beat."""

    def explain(
        self, model: TabularModel, rows: Floats, background: Floats, rng: np.random.Generator
    ) -> RowExplanation:
        """Attributions (n, d) without unit or meaning."""
        return RowExplanation(rng.standard_normal(rows.shape))
