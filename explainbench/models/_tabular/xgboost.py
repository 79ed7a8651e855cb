"""XGBoost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from explainbench.core.arrays import Floats
from explainbench.core.tabular import TABULAR_MODELS, Kind, TabularCard, checked_table
from explainbench.models._tabular._fitted import TreeEnsemble, digest_of


@TABULAR_MODELS.register(
    TabularCard("gradient-boosted trees", "Chen and Guestrin 2016; xgboost's defaults", ("xgboost-cpu",), trees=True)
)
@dataclass(frozen=True, slots=True)
class Xgboost:
    """Gradient-boosted trees. trees: rounds of boosting; depth: of a tree; rate: learning rate."""

    trees: Annotated[int, Field(ge=1)] = 100
    depth: Annotated[int, Field(ge=1)] = 6
    rate: Annotated[float, Field(gt=0.0, le=1.0)] = 0.3

    def fit(self, x: Floats, y: Floats, kind: Kind, seed: int) -> TreeEnsemble:
        """Fit on one thread. Raises BadInput for a table that cannot be fitted."""
        from xgboost import XGBClassifier, XGBRegressor

        checked_table(x, y, kind)
        library = XGBClassifier if kind == "classification" else XGBRegressor
        model = library(
            n_estimators=self.trees, max_depth=self.depth, learning_rate=self.rate, random_state=seed, n_jobs=1
        ).fit(x, y)
        return TreeEnsemble(model, kind, digest_of([bytes(model.get_booster().save_raw("json"))]))
