"""LIME on tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from explainbench.core.arrays import Floats
from explainbench.core.cell import stream
from explainbench.core.explanation import MethodCard
from explainbench.core.tabular import TABULAR_METHODS, RowExplanation, TabularModel


@TABULAR_METHODS.register(
    MethodCard(
        title="LIME (tabular)",
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
class TabularLime:
    """The library's tabular explainer on quartiles, with its defaults: a ridge on 5,000 samples, ten columns listed.

    samples: per row; listed: columns of an explanation.
    """

    samples: Annotated[int, Field(ge=100)] = 5000
    listed: Annotated[int, Field(ge=1)] = 10

    def explain(
        self, model: TabularModel, rows: Floats, background: Floats, rng: np.random.Generator
    ) -> RowExplanation:
        """Attributions (n, d): the listed columns' weights for P(class 1); named: these columns."""
        from lime.lime_tabular import LimeTabularExplainer

        seed = int(rng.integers(2**32))
        explainer = LimeTabularExplainer(background, random_state=0)

        def both(x: Floats) -> Floats:
            one = model.predict(x)
            return np.stack([1 - one, one], axis=1)

        attribution = np.zeros(rows.shape)
        for number, row in enumerate(rows):
            # the library draws from one state for all rows: a row's own state makes it independent of the others
            own = np.random.RandomState(int(stream(seed, row.tobytes().hex()).integers(2**32)))
            for part in (explainer, explainer.base, explainer.discretizer):
                setattr(part, "random_state", own)  # noqa: B010, the stubs know no discretiser
            found = explainer.explain_instance(row, both, num_features=self.listed, num_samples=self.samples)
            for column, weight in found.as_map()[1]:
                attribution[number, column] = weight
        return RowExplanation(attribution, attribution != 0)
