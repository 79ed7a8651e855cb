"""Known wrong-result hazards of the libraries, each shown to exist and shown not to reach our results."""

import numpy as np
import oracles
import pytest
import torch

from explainbench.core.cell import stream
from explainbench.core.errors import BadInput
from explainbench.core.forecaster import ExplainedModel
from explainbench.core.masking import Groups, Masker
from explainbench.core.registry import METHODS, METRICS

STEPWISE = Masker(
    Groups.of(oracles.channels(), oracles.STEPS, 1, np.array([0, 1])), "climatology", oracles.masker().climatology
)


def exact_shapley(model, windows, masker):
    """Shapley values by enumeration of all coalitions, from the definition."""
    from math import factorial

    g = len(masker.groups)
    coalitions = (np.arange(2**g)[:, None] >> np.arange(g)) & 1
    value = masker.outputs(model, windows, coalitions.astype(bool))
    shapley = np.zeros((len(windows), g))
    size = coalitions.sum(axis=1)
    for group in range(g):
        without = np.flatnonzero(coalitions[:, group] == 0)
        weight = np.array([factorial(s) * factorial(g - s - 1) / factorial(g) for s in size[without]])
        shapley[:, group] = (value[:, without + 2**group] - value[:, without]) @ weight
    return shapley


def test_shap_equals_the_definition_on_eight_groups():
    windows, masker, model = oracles.windows(), oracles.masker(), oracles.nonlinear()
    found = METHODS.build("shap", {"coalitions": 512}).explain(model, windows, masker, stream(0, "explain"))
    exact = exact_shapley(model, windows, masker)
    np.testing.assert_allclose(masker.groups.total(found.attribution), exact, atol=1e-6 * np.abs(exact).max())


def test_shap_default_regularisation_keeps_ten_players_and_ours_keeps_all():
    import shap

    windows, model = oracles.windows(1), oracles.linear()
    exact = (oracles.weights() * (windows.context - STEPWISE.fill(windows)))[0][:, :2].T.ravel()
    acting = np.flatnonzero(np.abs(exact) > 1e-9)
    assert len(acting) > 10

    np.random.seed(0)  # noqa: NPY002
    game = lambda z: STEPWISE.outputs(model, windows, z > 0.5).T  # noqa: E731
    default = shap.KernelExplainer(game, np.zeros((1, 48))).shap_values(
        np.ones((1, 48)), nsamples=512, l1_reg="num_features(10)", silent=True
    )
    assert np.count_nonzero(np.abs(np.ravel(default)) > 1e-9) <= 10

    ours = METHODS.build("shap", {"coalitions": 512}).explain(model, windows, STEPWISE, stream(0, "explain"))
    np.testing.assert_allclose(STEPWISE.groups.total(ours.attribution)[0], exact, atol=1e-6)


def test_additivity_does_not_show_that_too_few_coalitions_were_drawn():
    windows, model = oracles.windows(1), oracles.nonlinear()
    gap = model(windows.context) - model(STEPWISE.fill(windows))

    def error(coalitions):
        errors = []
        for seed in range(3):
            method = METHODS.build("shap", {"coalitions": coalitions})
            found = method.explain(model, windows, STEPWISE, stream(seed, "explain"))
            total = STEPWISE.groups.total(found.attribution)[0]
            np.testing.assert_allclose(total.sum(), gap[0], atol=1e-6)  # both sum exactly
            errors.append(total)
        return np.std(errors, axis=0).max()

    assert error(97) > 3 * error(2048)


def test_fewer_coalitions_than_the_regression_needs_are_refused():
    with pytest.raises(BadInput, match="two per feature group"):
        METHODS.build("shap", {"coalitions": 40}).explain(
            oracles.linear(), oracles.windows(1), STEPWISE, stream(0, "explain")
        )


def test_lime_explains_every_window_not_only_the_first_output():
    windows, masker, model = oracles.windows(4), oracles.masker(), oracles.linear()
    together = METHODS.build("lime").explain(model, windows, masker, stream(0, "explain"))
    last = METHODS.build("lime").explain(model, windows.take(np.array([3])), masker, stream(0, "explain"))
    np.testing.assert_allclose(together.attribution[3], last.attribution[0], rtol=1e-6, atol=1e-9)
    assert not np.allclose(together.attribution[0], together.attribution[3])


@pytest.mark.parametrize("scale", [1.0, 1e-2, 1e-4])
def test_lime_does_not_vanish_at_small_output_scales(scale):
    windows, masker, base = oracles.windows(2), oracles.masker(), oracles.linear()
    w = torch.from_numpy(oracles.weights()) * scale
    model = ExplainedModel(oracles.Oracle(lambda x: (x * w.to(x.dtype)).sum((1, 2))))
    small = METHODS.build("lime").explain(model, windows, masker, stream(0, "explain")).attribution
    full = METHODS.build("lime").explain(base, windows, masker, stream(0, "explain")).attribution
    np.testing.assert_allclose(small / scale, full, rtol=1e-6, atol=1e-9)


def test_lime_has_the_sign_of_the_effect():
    windows, masker = oracles.windows(), oracles.masker()
    exact = masker.groups.total(oracles.weights() * (windows.context - masker.fill(windows)))
    found = METHODS.build("lime").explain(oracles.linear(), windows, masker, stream(0, "explain"))
    assert np.corrcoef(masker.groups.total(found.attribution).ravel(), exact.ravel())[0, 1] > 0.999


def test_a_constant_baseline_makes_integrated_gradients_an_alias_and_the_climatology_does_not():
    """On an instance-normalised model, IG from a constant is gradient x (input - constant)."""

    def instance_normalised(x):
        load = x[:, :, 0]
        level, spread = load.mean(1, keepdim=True), load.std(1, keepdim=True, unbiased=False)
        z = (load - level) / (spread + 1e-6)
        return (level + spread * torch.tanh(z[:, 6:12].sum(1, keepdim=True)) * 3).squeeze(1)

    model = ExplainedModel(oracles.Oracle(instance_normalised))
    windows = oracles.windows()
    gradient = model.gradient(windows.context)

    def alias_error(operator):
        masker = oracles.masker(operator, used=(0,))
        found = METHODS.build("integrated_gradients", {"steps": 128}).explain(
            model, windows, masker, stream(0, "explain")
        )
        product = gradient * (windows.context - masker.fill(windows))
        return np.abs(found.attribution - product).max() / np.abs(product).max()

    assert alias_error("mean") < 1e-3
    assert alias_error("climatology") > 0.05


def test_stability_of_a_stochastic_method_is_not_its_sampling_noise():
    """With other seeds, Eq. 3 would measure the noise floor; with common ones it measures the explanation."""
    windows, model = oracles.windows(3), oracles.nonlinear()
    from explainbench.core.evidence import Evidence

    def stability(name, options):
        method = METHODS.build(name, options)

        def explain(at, run):
            return method.explain(model, at, STEPWISE, stream(0, "explain", run))

        runs = tuple(explain(windows, run) for run in range(1 if METHODS.card(name).deterministic else 3))
        evidence = Evidence(
            windows, model, STEPWISE, METHODS.card(name), runs, 20.0, explain,
            lambda purpose: stream(0, "cell", purpose), lambda purpose: stream(0, "task", purpose),
            lambda _, compute: compute(),
        )  # fmt: skip
        return METRICS.build("stability", {"draws": 3, "radius": 1e-4}).score(evidence)

    sampled = stability("lime", {"samples": 64})
    assert sampled["noise_floor"].raw.mean() > 3 * sampled["lipschitz"].raw.mean()
    assert stability("integrated_gradients", {"steps": 16})["noise_floor"].raw.max() == 0.0
