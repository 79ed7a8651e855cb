"""Alias classes and the probe that predicts them."""

import numpy as np
import oracles
import pytest

from explainbench.analysis.aliases import alias_classes, scale_equivariance
from explainbench.core.cell import stream
from explainbench.core.forecaster import ExplainedModel
from explainbench.core.registry import METHODS

E = stream(0, "alias").standard_normal((5, 8))


def test_equal_to_one_part_in_a_million_is_an_alias_and_more_is_not():
    near, far = E + 0.9e-6 * np.abs(E).max(), E + 1.1e-5 * np.abs(E).max()
    found = alias_classes({"shap": far, "integrated_gradients": E, "feature_attribution": near})
    joined = "feature_attribution=integrated_gradients"
    assert found == {"feature_attribution": joined, "integrated_gradients": joined}


@pytest.mark.parametrize("other", [-E, E[:, ::-1], E[:4], np.zeros_like(E)])
def test_sign_order_shape_and_zero_are_no_aliases(other):
    assert alias_classes({"a": E, "b": other}) == {}


def test_all_zero_explanations_agree_with_nothing():
    assert alias_classes({"a": np.zeros((3, 4)), "b": np.zeros((3, 4))}) == {}


def measured(model):
    windows, masker = oracles.windows(), oracles.masker()
    found = {}
    for name in ("integrated_gradients", "feature_attribution", "perturbation"):
        explanation = METHODS.build(name).explain(model, windows, masker, stream(0, "x"))
        found[name] = masker.groups.total(explanation.attribution)
    return found


def test_on_a_linear_model_gradients_are_aliases_and_on_a_bent_one_they_are_not():
    slope = 0.25 * np.sign(oracles.weights())  # exact in single precision
    import torch

    w = torch.from_numpy(slope)
    straight = ExplainedModel(oracles.Oracle(lambda x: (x.double() * w).sum((1, 2))))  # type: ignore[arg-type]
    assert set(alias_classes(measured(straight))) >= {"integrated_gradients", "feature_attribution"}
    assert alias_classes(measured(oracles.nonlinear())) == {}


def test_scale_equivariance_tells_mean_scaling_from_an_offset():
    scaled = ExplainedModel(oracles.Oracle(lambda x: x[:, :, 0].mean(1) * (1 + x[:, -1, 0] / x[:, 0, 0])))  # type: ignore[arg-type]
    shifted = ExplainedModel(oracles.Oracle(lambda x: 50 + x[:, :, 0].mean(1)))  # type: ignore[arg-type]
    assert scale_equivariance(scaled, oracles.windows()) < 1e-6
    assert scale_equivariance(shifted, oracles.windows()) > 0.1
