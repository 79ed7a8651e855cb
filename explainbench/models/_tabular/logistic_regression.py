"""Logistic regression."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from explainbench.core.arrays import Floats
from explainbench.core.tabular import TABULAR_MODELS, Kind, TabularCard, checked_table
from explainbench.models._tabular._fitted import Layered, standardisation


@TABULAR_MODELS.register(
    TabularCard("generalised linear", "scikit-learn's defaults", ("scikit-learn",), input_differentiable=True)
)
@dataclass(frozen=True, slots=True)
class LogisticRegression:
    """Logistic regression on standardised columns; for a numeric target, ordinary least squares.

    inverse_penalty: scikit-learn's C.
    """

    inverse_penalty: Annotated[float, Field(gt=0.0)] = 1.0

    def fit(self, x: Floats, y: Floats, kind: Kind, seed: int) -> Layered:
        """Fit; the optimum is unique, so the seed is not used. Raises BadInput for a table that cannot be fitted."""
        from sklearn.linear_model import LinearRegression
        from sklearn.linear_model import LogisticRegression as Library

        checked_table(x, y, kind)
        mean, std = standardisation(x)
        library = Library(C=self.inverse_penalty, max_iter=1000) if kind == "classification" else LinearRegression()
        library.fit((x - mean) / std, y)
        weights = np.asarray(library.coef_, dtype=np.float64).reshape(-1, 1)
        return Layered(mean, std, ((weights, np.atleast_1d(library.intercept_).astype(np.float64)),), kind)
