"""Gradient methods on tables: worked slopes of a logistic model, completeness, and models without gradients."""

import numpy as np
import pytest

from explainbench.core.cell import stream
from explainbench.core.errors import NotApplicable
from explainbench.core.tabular import TABULAR_METHODS, TABULAR_MODELS
from explainbench.models._tabular._fitted import Layered

GRADIENTS = ("gradient", "input_x_gradient", "integrated_gradients", "smoothgrad")
W, MEAN, STD = np.array([1.5, -2.0, 0.0]), np.array([1.0, 0.0, -1.0]), np.array([2.0, 1.0, 0.5])


@pytest.fixture(scope="module")
def rows():
    return stream(0, "rows").standard_normal((5, 3))


@pytest.fixture(scope="module")
def linear():
    return Layered(MEAN, STD, ((W[:, None], np.array([0.25])),), "classification")


def explained(name, model, rows, **options):
    method = TABULAR_METHODS.build(name, options)
    return method.explain(model, rows, stream(1, "background").standard_normal((40, 3)), stream(2, "method"))


def test_the_slope_of_a_logistic_model(linear, rows):
    p = linear.predict(rows)
    slope = (p * (1 - p))[:, None] * W / STD
    assert explained("gradient", linear, rows).attribution == pytest.approx(slope, abs=1e-6)
    assert explained("input_x_gradient", linear, rows).attribution == pytest.approx(slope * rows, abs=1e-6)
    noisy = explained("smoothgrad", linear, rows, std=0.01, copies=200).attribution
    assert noisy == pytest.approx(slope, abs=2e-3)
    assert not np.array_equal(noisy, slope)


def test_integrated_gradients_add_up(linear, rows):
    found = explained("integrated_gradients", linear, rows)
    baseline = stream(1, "background").standard_normal((40, 3)).mean(axis=0, keepdims=True)
    assert found.attribution.sum(axis=1) == pytest.approx(linear.predict(rows) - linear.predict(baseline), abs=1e-5)
    assert found.notes is not None
    assert found.notes["convergence_delta"].max() < 1e-5


@pytest.mark.parametrize("name", GRADIENTS)
def test_a_forest_has_no_gradient(name, rows):
    forest = TABULAR_MODELS.build("random_forest", {"trees": 2}).fit(
        stream(3, "x").standard_normal((30, 3)), (np.arange(30) % 2).astype(float), "classification", 0
    )
    with pytest.raises(NotApplicable, match="does not offer HasLayers"):
        explained(name, forest, rows)


def test_random_is_noise(linear, rows):
    found = explained("random", linear, rows).attribution
    assert found.shape == rows.shape
    assert np.array_equal(found, explained("random", linear, rows).attribution)
    assert TABULAR_METHODS.card("random").category == "baseline"
