"""What every method on tables must do, on models whose right explanation is known."""

from dataclasses import dataclass

import numpy as np
import pytest

from explainbench.core.cell import stream
from explainbench.core.errors import NotApplicable
from explainbench.core.tabular import TABULAR_METHODS
from explainbench.models._tabular._fitted import Layered

SMALL = {"tabular_lime": {"samples": 500, "listed": 3}, "tabular_shap": {"coalitions": 128}}
OWN = ("anchor", "tabular_lime", "tabular_shap")


def rows(n, seed=0):
    return np.random.default_rng(seed).random((n, 6))


def linear():
    """P(class 1) from columns 0 and 1 alone."""
    slopes = np.array([[6.0], [-4.0], [0], [0], [0], [0]])
    return Layered(np.zeros(6), np.ones(6), ((slopes, np.array([-1.0])),), "classification")


def explain(name, at, model=None, seed=0):
    method = TABULAR_METHODS.build(name, SMALL.get(name))
    try:
        return method.explain(model or linear(), at, rows(400, 1), stream(seed, "explain"))
    except NotApplicable as reason:
        pytest.skip(str(reason))


@pytest.fixture(params=TABULAR_METHODS.names())
def name(request):
    return request.param


def test_shape_same_seed_same_bits_and_untouched_input(name):
    at = rows(5)
    before = at.copy()
    one, two = explain(name, at), explain(name, at)
    assert one.attribution.shape == at.shape
    assert np.isfinite(one.attribution).all()
    assert np.array_equal(one.attribution, two.attribution)
    assert np.array_equal(at, before)
    if TABULAR_METHODS.card(name).vector == "nonnegative":
        assert (one.attribution >= 0).all()
    if one.named is not None:
        assert one.named.shape == at.shape
        assert (one.attribution[~one.named] == 0).all()


@pytest.mark.parametrize("name", [*OWN, "perturbation", "kernel_shap", "masked_lime"])
def test_finds_the_columns_that_act(name):
    found = np.abs(explain(name, rows(12)).attribution).mean(axis=0)
    assert set(np.argsort(-found)[:2].tolist()) == {0, 1}


@pytest.mark.parametrize("name", OWN)
def test_a_row_does_not_depend_on_its_company(name):
    at = rows(6)
    whole = explain(name, at).attribution
    assert np.allclose(whole[3:4], explain(name, at[3:4]).attribution, atol=1e-9)
    assert np.allclose(whole[::-1], explain(name, at[::-1].copy()).attribution, atol=1e-9)


def test_global_random_state_is_not_moved(name):
    np.random.seed(1)  # noqa: NPY002
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    explain(name, rows(2))
    assert np.array_equal(np.random.get_state()[1], state)  # noqa: NPY002


def test_shap_of_a_linear_model_is_its_closed_form():
    at, background = rows(4), rows(400, 1)
    slopes = np.array([6.0, -4, 0, 0, 0, 0])
    expected = slopes * (at - background[:100].mean(axis=0))
    found = explain("tabular_shap", at).attribution
    assert np.corrcoef(found.ravel(), expected.ravel())[0, 1] > 0.99
    assert (found[:, 2:] == 0).all()


@dataclass
class Always:
    """Class 1 for every row."""

    def predict(self, x):
        return np.ones(len(x))

    def digest(self):
        return ""


def test_anchor_of_a_constant_model_is_empty():
    found = explain("anchor", rows(3), Always())
    assert not found.named.any()
    assert found.notes["coverage"].tolist() == [1.0] * 3
    assert found.notes["found"].tolist() == [1.0] * 3
