"""Multilayer perceptron."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from explainbench.core.arrays import Floats
from explainbench.core.tabular import TABULAR_MODELS, Kind, TabularCard, checked_table
from explainbench.models._tabular._fitted import Layered, standardisation


@TABULAR_MODELS.register(
    TabularCard("multilayer perceptron", "scikit-learn", ("scikit-learn",), input_differentiable=True)
)
@dataclass(frozen=True, slots=True)
class Mlp:
    """Multilayer perceptron on standardised columns: rectified hidden layers, Adam.

    hidden: units per hidden layer; epochs: at most; early_stopping: on a tenth of the rows; penalty: L2.
    """

    hidden: tuple[Annotated[int, Field(ge=1)], ...] = (100,)
    epochs: Annotated[int, Field(ge=1)] = 200
    early_stopping: bool = True
    penalty: Annotated[float, Field(ge=0.0)] = 1e-4

    def fit(self, x: Floats, y: Floats, kind: Kind, seed: int) -> Layered:
        """Fit on one thread. Raises BadInput for a table that cannot be fitted."""
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.neural_network import MLPClassifier, MLPRegressor

        checked_table(x, y, kind)
        mean, std = standardisation(x)
        library = MLPClassifier if kind == "classification" else MLPRegressor
        network = library(
            hidden_layer_sizes=self.hidden,
            max_iter=self.epochs,
            early_stopping=self.early_stopping,
            alpha=self.penalty,
            random_state=seed,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # `epochs` is a budget; the test AUC is reported
            network.fit((x - mean) / std, y)
        return Layered(mean, std, tuple(zip(network.coefs_, network.intercepts_, strict=True)), kind)
