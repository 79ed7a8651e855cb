"""LIME on masked tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from explainbench.core.arrays import Floats
from explainbench.core.explanation import MethodCard
from explainbench.core.tabular import TABULAR_METHODS, RowExplanation, TabularModel
from explainbench.methods._tabular._windowed import explained_as_windows
from explainbench.methods.lime import Lime


@TABULAR_METHODS.register(
    MethodCard(
        title="LIME (masked columns)",
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
class MaskedLime:
    """The energy registry's LIME: ridge on the neighbourhood of rows whose masked columns take their mean.

    samples: shared by all rows.
    """

    samples: Annotated[int, Field(ge=16)] = 512

    def explain(
        self, model: TabularModel, rows: Floats, background: Floats, rng: np.random.Generator
    ) -> RowExplanation:
        """Attributions (n, d) of P(class 1)."""
        return explained_as_windows(Lime(self.samples), model, rows, background, rng)
