"""The decision rule and the counterfactual search, against closed forms."""

from dataclasses import replace

import numpy as np
import oracles
import pytest
import torch

from explainbench.core.cell import stream
from explainbench.core.decision import HIGH, LOW, OTHERWISE, Agent
from explainbench.core.errors import NotApplicable
from explainbench.core.forecaster import ExplainedModel, Forecast
from explainbench.core.registry import METHODS
from explainbench.core.search import Plan, search

AGENT = Agent(low=90.0, high=110.0, margin=1e-3, actions=("recharge", "hold", "prepare curtailment"))


def dense() -> tuple[ExplainedModel, np.ndarray]:
    """f(x) = 100 + <w, z> with every load and temperature coefficient different from zero; w per z-unit (t, c)."""
    w = np.zeros((oracles.STEPS, 3))
    w[:, :2] = stream(5, "dense").standard_normal((oracles.STEPS, 2))
    std, mean = (torch.from_numpy(getattr(oracles.channels(), name)) for name in ("std", "mean"))
    slope = torch.from_numpy(w)

    def function(x: torch.Tensor) -> torch.Tensor:
        return 100 + (((x.double() - mean) / std) * slope).sum((1, 2))

    return ExplainedModel(oracles.Oracle(function)), w  # type: ignore[arg-type]


class Closed:
    """The same forecasts without a module to differentiate."""

    def __init__(self, model: ExplainedModel) -> None:
        self.inner = model.forecaster

    def predict(self, context: np.ndarray) -> Forecast:
        return self.inner.predict(context)


def found_by(model, windows, plan=None, agent=AGENT, seed=0):
    return search(model, windows, oracles.masker(), agent, plan or Plan(), stream(seed, "search"))


def gaps(model, windows):
    """How far f is from the nearest other action (n,), with the margin."""
    f = model(windows.context)
    aim, _ = AGENT.aim(f, AGENT.action(f))
    return np.abs(aim - f)


# -------------------------------------------------------------------------------------------------- decision rule


def test_thresholds_are_percentiles_of_what_is_forecast():
    windows, masker = oracles.windows(), oracles.masker()
    agent = Agent.of(oracles.linear(), windows, masker)
    load = masker.climatology.series[:, 0]
    means = np.array([load[i : i + oracles.HORIZON].mean() for i in range(len(load) - oracles.HORIZON + 1)])
    assert agent.low == pytest.approx(np.percentile(means, 30), rel=1e-12)
    assert agent.high == pytest.approx(np.percentile(means, 80), rel=1e-12)
    assert agent.actions == ("recharge", "hold", "prepare curtailment")


def test_actions_and_aims_worked_by_hand():
    f = np.array([80.0, 90.0, 95.0, 104.0, 110.0, 120.0])
    actions = AGENT.action(f)
    assert actions.tolist() == [LOW, LOW, OTHERWISE, OTHERWISE, HIGH, HIGH]
    aim, sign = AGENT.aim(f, actions)
    np.testing.assert_allclose(aim, [90.001, 90.001, 89.999, 110.001, 109.999, 109.999])
    assert sign.tolist() == [1, 1, -1, 1, -1, -1]


def test_no_rule_no_counterfactual():
    windows, masker = oracles.windows(), oracles.masker()
    method = METHODS.build("counterfactual")
    for without in (replace(masker, target=1), replace(masker, target=None), replace(masker, climatology=None)):
        with pytest.raises(NotApplicable, match="decision rule"):
            method.explain(oracles.linear(), windows, without, stream(0, "x"))


# --------------------------------------------------------------------------------------------------------- search


def test_distance_on_a_linear_model_is_the_analytic_minimum():
    model, w = dense()
    windows, masker = oracles.windows(), oracles.masker()
    found = found_by(model, windows)
    strongest = np.sqrt(masker.groups.total((w**2)[None])[0]).max()
    exact = gaps(model, windows) / strongest  # attained by moving one group along its coefficients
    assert found.valid.all()
    ratio = found.distance.min(axis=1) / exact
    assert ratio.min() > 0.999
    assert ratio.max() < 1.05  # what is left of the random starts inside the group that moves
    nearest = found.change[np.arange(len(windows)), found.nearest]
    changed = np.sqrt(masker.groups.total(nearest**2)) > 0.1 * exact[:, None]
    assert (changed.sum(axis=1) <= 2).all()  # the group-sparse optimum moves one group alone; the runner-up lingers


def test_where_the_box_binds_the_next_group_helps():
    model, _ = dense()
    windows = oracles.windows()
    here = windows.channels
    tight = replace(here, low=here.mean - 1.2 * here.std, high=here.mean + 1.2 * here.std)
    windows = replace(windows, channels=tight)
    agent = Agent(low=80.0, high=120.0, margin=1e-3, actions=AGENT.actions)
    found = found_by(model, windows, agent=agent)
    assert found.valid.all()
    cf = windows.context[:, None] + found.change * tight.std
    low, high = np.minimum(windows.context, tight.low)[:, None], np.maximum(windows.context, tight.high)[:, None]
    slack = 1e-9 * tight.std
    assert (cf >= low - slack).all()
    assert (cf <= high + slack).all()
    assert (oracles.masker().groups.total(np.abs(found.change[:, 0])) > 1e-3).sum(axis=1).min() >= 2


def test_every_valid_counterfactual_changes_the_action_and_calendar_inputs_stay():
    windows, masker, model = oracles.windows(), oracles.masker(), oracles.nonlinear()
    agent = Agent(low=-1.0, high=1.0, margin=1e-3, actions=AGENT.actions)
    found = found_by(model, windows, agent=agent)
    assert found.valid.any(axis=1).all()
    before = agent.action(model(windows.context))
    for run in range(10):
        after = agent.action(model(windows.context + found.change[:, run] * windows.channels.std))
        assert np.array_equal(after != before, found.valid[:, run])
    assert (found.change[..., 2] == 0).all()
    assert np.isinf(found.distance[~found.valid]).all()
    assert (masker.groups.labels[:, 2] == -1).all()


def test_a_search_without_gradients_finds_valid_ones_that_are_not_absurdly_far():
    model = ExplainedModel(oracles.Oracle(lambda x: x[:, -6:, 0].mean(1) + 0.1 * x[:, :6, 1].mean(1)))  # type: ignore[arg-type]
    windows = oracles.windows()
    agent = Agent.of(model, windows, oracles.masker())
    with_gradients = found_by(model, windows, agent=agent).distance.min(axis=1)
    blind = found_by(ExplainedModel(Closed(model)), windows, agent=agent)
    near = blind.valid.any(axis=1)
    assert near.all()
    assert np.isfinite(with_gradients).all()
    ratio = blind.distance.min(axis=1) / with_gradients
    assert ratio.min() > 0.95
    assert ratio.max() < 6


def test_nothing_valid_is_a_note_not_an_exception():
    flat = ExplainedModel(oracles.Oracle(lambda x: 100 + 0.0 * x.sum((1, 2))))  # type: ignore[arg-type]
    windows = oracles.windows()
    for model in (flat, ExplainedModel(Closed(flat))):
        explanation = METHODS.build("counterfactual").explain(model, windows, oracles.masker(), stream(0, "x"))
        assert (explanation.attribution == 0).all()
        assert np.array_equal(explanation.counterfactual, windows.context)
        assert (explanation.notes["no_valid"] == 1).all()
        assert (explanation.notes["invalid_share"] == 1).all()


def test_attribution_is_the_change_in_z_units():
    windows, model = oracles.windows(), oracles.linear()
    explanation = METHODS.build("counterfactual").explain(model, windows, oracles.masker(), stream(0, "x"))
    moved = (explanation.counterfactual - windows.context) / windows.channels.std
    np.testing.assert_allclose(moved, explanation.attribution, atol=1e-12)
    known = explanation.notes["no_valid"] == 0
    assert known.any()
    np.testing.assert_allclose(
        explanation.notes["distance"],
        np.sqrt(oracles.masker().groups.total(explanation.attribution**2)).sum(axis=1),
        rtol=1e-9,
    )
