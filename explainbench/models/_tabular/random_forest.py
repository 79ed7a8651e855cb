"""Random forest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from explainbench.core.arrays import Floats
from explainbench.core.tabular import TABULAR_MODELS, Kind, TabularCard, checked_table
from explainbench.models._tabular._fitted import TreeEnsemble, digest_of


@TABULAR_MODELS.register(
    TabularCard("random forest", "Breiman 2001; scikit-learn's defaults", ("scikit-learn",), trees=True)
)
@dataclass(frozen=True, slots=True)
class RandomForest:
    """A standard ML model, RandomForest (paper 002, section 4). trees: their number; min_leaf: rows in a leaf."""

    trees: Annotated[int, Field(ge=1)] = 100
    min_leaf: Annotated[int, Field(ge=1)] = 1

    def fit(self, x: Floats, y: Floats, kind: Kind, seed: int) -> TreeEnsemble:
        """Fit on one thread. Raises BadInput for a table that cannot be fitted."""
        from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

        checked_table(x, y, kind)
        library = RandomForestClassifier if kind == "classification" else RandomForestRegressor
        forest = library(
            n_estimators=self.trees,
            min_samples_leaf=self.min_leaf,
            random_state=seed,
            n_jobs=1,
        ).fit(x, y)
        trees = [member.tree_ for member in forest.estimators_]
        names = ("children_left", "children_right", "feature", "threshold", "value")
        return TreeEnsemble(forest, kind, digest_of(getattr(tree, name) for tree in trees for name in names))
