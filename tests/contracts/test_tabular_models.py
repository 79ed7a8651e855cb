"""What every tabular model must do: learn, repeat its bits, say what it learned, and refuse what it cannot fit."""

import numpy as np
import pytest

from explainbench.core.errors import BadInput
from explainbench.core.tabular import TABULAR_MODELS, HasLayers, HasTrees

SMALL = {"random_forest": {"trees": 20}, "xgboost": {"trees": 20}, "mlp": {"epochs": 40, "early_stopping": False}}


def table(kind):
    rng = np.random.default_rng(0)
    x = rng.random((500, 5))
    value = 4 * x[:, 0] - 3 * x[:, 1] + 0.1 * rng.normal(size=500)
    return x, (value > 0.5).astype(np.float64) if kind == "classification" else value


def fitted(name, kind, seed=1):
    x, y = table(kind)
    return TABULAR_MODELS.build(name, SMALL.get(name)).fit(x[:400], y[:400], kind, seed)


@pytest.fixture(params=TABULAR_MODELS.names())
def name(request):
    return request.param


@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_learns_and_repeats(name, kind):
    x, y = table(kind)
    one, two = fitted(name, kind), fitted(name, kind)
    predicted = one.predict(x[400:])
    assert predicted.shape == (100,)
    assert np.corrcoef(predicted, y[400:])[0, 1] > 0.7
    assert np.array_equal(predicted, two.predict(x[400:]))
    assert one.digest() == two.digest()
    assert len(one.digest()) == 64
    if kind == "classification":
        assert 0 <= predicted.min() <= predicted.max() <= 1


def test_digest_follows_what_was_learned(name):
    x, y = table("classification")
    other = TABULAR_MODELS.build(name, SMALL.get(name)).fit(x[100:], y[100:], "classification", 1)
    assert other.digest() != fitted(name, "classification").digest()


def test_capabilities_are_as_declared(name):
    model, card = fitted(name, "classification"), TABULAR_MODELS.card(name)
    assert isinstance(model, HasTrees) == card.trees
    assert isinstance(model, HasLayers) == card.input_differentiable


@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_torch_module_is_the_same_function(name, kind):
    import torch

    model = fitted(name, kind)
    if not isinstance(model, HasLayers):
        pytest.skip("a tree ensemble has no layers")
    rows = table(kind)[0][400:]
    found = model.module(torch.tensor(rows[:, None, :], dtype=torch.float32)).numpy()[:, 0]
    assert found == pytest.approx(model.predict(rows), abs=1e-5)


def test_refuses_what_is_no_table(name):
    x, y = table("classification")
    entry = TABULAR_MODELS.build(name, SMALL.get(name))
    with pytest.raises(BadInput, match="labels 0 and 1, both"):
        entry.fit(x, np.ones(500), "classification", 0)
    with pytest.raises(BadInput, match="no NaN"):
        entry.fit(np.where(x > 0.99, np.nan, x), y, "classification", 0)
    with pytest.raises(BadInput, match=r"rows \(n, d\) and n labels"):
        entry.fit(x, y[:-1], "classification", 0)


def test_unknown_option_is_named():
    with pytest.raises(BadInput, match="tree is not an option"):
        TABULAR_MODELS.build("random_forest", {"tree": 3})
