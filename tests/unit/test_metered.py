"""A metered tabular model answers as the model does, and counts what it was asked."""

from __future__ import annotations

import numpy as np
import pytest

from explainbench.core.tabular import TABULAR_METHODS, TABULAR_MODELS, HasLayers, HasTrees
from explainbench.models._tabular._metered import metered, per_explanation

OPTIONS = {"logistic_regression": {}, "mlp": {"hidden": [4], "epochs": 5}, "random_forest": {"trees": 5}, "xgboost": {}}


@pytest.fixture(scope="module")
def table() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 3))
    return x, (x[:, 0] + 0.3 * rng.normal(size=120) > 0).astype(float)


@pytest.mark.parametrize("name", TABULAR_MODELS.names())
def test_a_metered_model_answers_and_offers_the_same(name, table):
    x, y = table
    model = TABULAR_MODELS.build(name, OPTIONS[name]).fit(x, y, "classification", seed=1)
    twin, meter = metered(model)
    np.testing.assert_array_equal(twin.predict(x[:7]), model.predict(x[:7]))
    assert (meter.evaluations, meter.gradients) == (7, 0)
    assert meter.seconds > 0
    assert twin.digest() == model.digest()
    for capability in (HasLayers, HasTrees):
        assert isinstance(twin, capability) == isinstance(model, capability)
    model.predict(x)
    assert meter.evaluations == 7  # the model itself is left alone


@pytest.mark.parametrize(
    ("method", "options", "asked"),
    [
        ("gradient", {}, (1.0, 1.0)),
        ("smoothgrad", {"copies": 6}, (6.0, 6.0)),
        ("random", {}, (0.0, 0.0)),
        ("tabular_lime", {"samples": 100}, (100.0, 0.0)),
    ],
)
def test_the_cost_of_an_explanation_is_counted(method, options, asked, table):
    x, y = table
    model = TABULAR_MODELS.build("mlp", OPTIONS["mlp"]).fit(x, y, "classification", seed=1)
    twin, meter = metered(model)
    explainer = TABULAR_METHODS.build(method, options)
    again = explainer.explain(twin, x[:5], x, np.random.default_rng(3)).attribution
    assert per_explanation(meter, 5) == asked
    np.testing.assert_array_equal(again, explainer.explain(model, x[:5], x, np.random.default_rng(3)).attribution)
