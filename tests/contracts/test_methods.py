"""What every registered explanation method must do, a third party's included."""

from dataclasses import replace

import numpy as np
import oracles
import pytest

from explainbench.core import forecaster as capabilities
from explainbench.core.cell import stream
from explainbench.core.forecaster import ExplainedModel, Forecast
from explainbench.core.registry import METHODS

ALL = METHODS.names()
EXPLAINING = tuple(name for name in ALL if METHODS.card(name).category != "baseline")
SIGNED = tuple(
    name for name in EXPLAINING if METHODS.card(name).vector == "signed" and METHODS.card(name).category != "example"
)
# Options small enough for tests, large enough that eight groups are solved exactly.
OPTIONS = {"shap": {"coalitions": 512}, "lime": {"samples": 512}, "integrated_gradients": {"steps": 64}}


def explain(name, model, windows, masker, seed=0):
    return METHODS.build(name, OPTIONS.get(name)).explain(model, windows, masker, stream(seed, "explain"))


def offers(model, name) -> bool:
    """Whether the oracle has every capability the method needs."""
    return all(isinstance(model.forecaster, getattr(capabilities, need)) for need in METHODS.card(name).needs)


def grouped(name, explanation, masker):
    groups = masker.groups
    return (groups.total if METHODS.card(name).vector == "signed" else groups.average)(explanation.attribution)


def known_windows():
    """The oracles' windows with known drivers."""
    windows = oracles.windows()
    return replace(windows, truth=np.abs(oracles.weights() * windows.context))


def suited(name):
    """The closed-form oracle to explain, and the groups on which it depends: one with the capabilities needed."""
    model = oracles.nonlinear()
    return (model, oracles.ACTING) if offers(model, name) else (oracles.seeing(), oracles.SEEN)


@pytest.fixture(params=ALL)
def name(request):
    return request.param


def test_registry_is_not_empty():
    assert {"shap", "lime", "integrated_gradients", "random"} <= set(ALL)
    assert len(SIGNED) >= 3


def test_shape_and_untouched_input(name):
    windows = known_windows()
    before = windows.context.copy()
    explanation = explain(name, suited(name)[0], windows, oracles.masker())
    assert explanation.attribution.shape == windows.context.shape
    assert np.isfinite(explanation.attribution).all()
    assert np.array_equal(windows.context, before)
    if METHODS.card(name).vector == "nonnegative":
        assert (explanation.attribution >= 0).all()


def test_same_seed_same_bits(name):
    one, two = (explain(name, suited(name)[0], known_windows(), oracles.masker()) for _ in range(2))
    assert np.array_equal(one.attribution, two.attribution)


def test_determinism_is_as_declared(name):
    masker = oracles.masker()
    if METHODS.card(name).category == "surrogate" or name == "shap":
        # so many groups that no coalition design is exhaustive
        from explainbench.core.masking import Groups

        groups = Groups.of(oracles.channels(), oracles.STEPS, 1, np.array([0, 1]))
        masker = replace(masker, groups=groups)
    one, two = (explain(name, suited(name)[0], known_windows(), masker, seed) for seed in (0, 1))
    assert np.array_equal(one.attribution, two.attribution) == METHODS.card(name).deterministic


def test_global_random_state_is_neither_read_nor_moved(name):
    np.random.seed(1)  # noqa: NPY002
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    one = explain(name, suited(name)[0], known_windows(), oracles.masker())
    assert np.array_equal(np.random.get_state()[1], state)  # noqa: NPY002
    np.random.seed(2)  # noqa: NPY002
    two = explain(name, suited(name)[0], known_windows(), oracles.masker())
    assert np.array_equal(one.attribution, two.attribution)


def test_a_batch_of_one_equals_its_row_in_a_batch(name):
    windows = known_windows()
    whole = explain(name, suited(name)[0], windows, oracles.masker()).attribution
    alone = explain(name, suited(name)[0], windows.take(np.array([3])), oracles.masker()).attribution
    np.testing.assert_allclose(alone[0], whole[3], rtol=1e-6, atol=1e-9 + 1e-6 * np.abs(whole[3]).max())


@pytest.mark.parametrize("name", SIGNED)
def test_recovers_a_linear_model(name):
    windows, masker = known_windows(), oracles.masker()
    exact = masker.groups.total(oracles.weights() * (windows.context - masker.fill(windows)))
    found = grouped(name, explain(name, oracles.linear(), windows, masker), masker)
    np.testing.assert_allclose(found, exact, rtol=2e-3, atol=2e-3 * np.abs(exact).max())


# Grad-CAM weighs a feature by its mean gradient over all steps, so active features of null steps show: no null axiom
@pytest.mark.parametrize("name", [name for name in EXPLAINING if name != "grad_cam"])
def test_null_features_get_zero(name):
    windows, masker = known_windows(), oracles.masker()
    model, acting = suited(name)
    if METHODS.card(name).category == "attention":  # their maps lie on time alone: the model uses one channel
        masker = oracles.masker(used=(0,))
    found = grouped(name, explain(name, model, windows, masker), masker)
    null = np.setdiff1d(np.arange(len(masker.groups)), acting)
    # LIME regresses on all groups at once, so sampling noise leaks into null groups; the others are exact
    tolerance = 0.15 if name == "lime" else 1e-5
    assert np.abs(found[:, null]).max() <= tolerance * np.abs(found).max()


@pytest.mark.parametrize("name", ["shap", "integrated_gradients"])
def test_completeness_on_a_nonlinear_model(name):
    windows, masker, model = known_windows(), oracles.masker(), oracles.nonlinear()
    found = grouped(name, explain(name, model, windows, masker), masker).sum(axis=1)
    np.testing.assert_allclose(found, model(windows.context) - model(masker.fill(windows)), rtol=1e-3, atol=1e-3)


def test_refuses_a_model_without_what_its_card_needs():
    class Blind:
        def predict(self, context):
            return Forecast(context[:, -1:, 0])

        def save(self, folder):
            raise NotImplementedError

    for name in ALL:
        if METHODS.card(name).needs:
            with pytest.raises(capabilities.NotApplicable, match="does not offer"):
                explain(name, ExplainedModel(Blind()), known_windows(), oracles.masker())
