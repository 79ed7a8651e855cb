"""What every metric of a cell must do, and a worked number for each equation."""

from dataclasses import replace

import numpy as np
import oracles
import pytest
import torch

from explainbench.core.cell import stream
from explainbench.core.errors import NotApplicable, Pending
from explainbench.core.evidence import Evidence
from explainbench.core.explanation import Explanation
from explainbench.core.forecaster import ExplainedModel
from explainbench.core.masking import Groups, Masker, cumulative_keep, ranking
from explainbench.core.registry import METHODS, METRICS

SCORED = ("faithfulness", "fidelity", "stability")


def evidence(method="shap", model=None, options=None, runs=2, windows=None, masker=None):
    windows = windows if windows is not None else oracles.windows()
    masker = masker or oracles.masker()
    model = model or oracles.nonlinear()
    entry = METHODS.build(method, options)

    def explain(at, run):
        return entry.explain(model, at, masker, stream(0, method, run))

    memo = {}

    def shared(name, compute):
        if name not in memo:
            memo[name] = compute()
        return memo[name]

    return Evidence(
        windows, model, masker, METHODS.card(method), tuple(explain(windows, run) for run in range(runs)), 20.0,
        explain, lambda purpose: stream(0, "cell", purpose), lambda purpose: stream(0, "task", purpose), shared,
    )  # fmt: skip


def explained_as(base, importance):
    """The same evidence with explanations replaced by group importances (n, g)."""
    return replace(base, runs=(Explanation(base.masker.groups.spread(importance)),))


def test_registry_holds_the_nine_components():
    assert {
        "faithfulness", "fidelity", "stability", "counterfactual_consistency", "actionability",
        "uncertainty_awareness", "human_interpretability", "efficiency", "deployment_suitability",
    } <= set(METRICS.names())  # fmt: skip


@pytest.mark.parametrize("name", METRICS.names())
def test_scores_are_finite_per_window_or_have_a_reason(name):
    base = evidence()
    try:
        scores = METRICS.build(name).score(base)
    except NotApplicable as skipped:
        reason = skipped.reason
        scores = None
    if scores is None:
        assert len(reason) > 10
        return
    assert name in scores
    for score in scores.values():
        assert score.raw.shape in {(len(base.windows),), (1,)}
        if score.value is not None:
            finite = score.value[np.isfinite(score.value)]
            assert ((finite >= 0) & (finite <= 1)).all()


@pytest.mark.parametrize("name", SCORED)
def test_window_order_does_not_matter(name):
    order = np.array([3, 1, 5, 0, 2, 4])
    metric = METRICS.build(name, {"draws": 20} if name == "fidelity" else {})
    options = {"coalitions": 64}
    one = metric.score(evidence(options=options))[name].raw
    two = metric.score(evidence(options=options, windows=oracles.windows().take(order)))[name].raw
    np.testing.assert_allclose(two, one[order], rtol=1e-6)


def test_faithfulness_by_hand():
    """f = sum of two groups; masking the first changes f by d0, both by d0 + d1: F = (|d0| + |d0 + d1|) / 2."""
    model = ExplainedModel(oracles.Oracle(lambda x: x[:, :, 0].sum(1)))
    windows = oracles.windows(1)
    groups = Groups.of(oracles.channels(), oracles.STEPS, 12, np.array([0]))
    masker = Masker(groups, "mean")
    gap = windows.context[0, :, 0] - 100.0
    first, second = gap[:12].sum(), gap[12:].sum()
    base = explained_as(evidence("random", model, windows=windows, masker=masker), np.array([[1.0, 2.0]]))
    raw = METRICS.build("faithfulness", {"share": 1.0}).score(base)["faithfulness"].raw[0]
    assert raw == pytest.approx((abs(second) + abs(second + first)) / 2, rel=1e-6)


def test_faithfulness_prefers_the_right_explanation_to_noise_and_greedy_is_one():
    base = evidence()
    right = METRICS.build("faithfulness").score(base)
    random = METRICS.build("faithfulness").score(evidence("random"))
    wrong = METRICS.build("faithfulness").score(explained_as(base, -np.abs(base.importance) + 1e3))
    assert right["faithfulness_skill"].raw.mean() > 0.8
    assert right["faithfulness_skill"].raw.max() <= 1.0 + 1e-9
    assert right["diagnosticity"].raw.mean() > 0.75
    assert random["faithfulness"].raw.mean() < right["faithfulness"].raw.mean()
    assert wrong["faithfulness_skill"].raw.mean() < 0.2


def test_random_rankings_have_no_skill_on_average():
    base = evidence(model=oracles.nonlinear())
    skill = [
        METRICS.build("faithfulness", {"random_rankings": 200})
        .score(explained_as(base, stream(seed, "ranking").random(base.importance.shape)))["faithfulness_skill"]
        .raw.mean()
        for seed in range(20)
    ]
    assert abs(np.mean(skill)) < 0.1


@pytest.mark.parametrize(("option", "one", "two"), [("share", 0.1, 0.6), ("top", 1, 20), ("random_rankings", 2, 50)])
def test_every_faithfulness_option_matters(option, one, two):
    base = explained_as(evidence(), stream(1, "ranking").random((6, 8)))
    scores = [METRICS.build("faithfulness", {"share": 0.6} | {option: v}).score(base) for v in (one, two)]
    assert any(not np.allclose(scores[0][key].raw, scores[1][key].raw, equal_nan=True) for key in scores[0])


def test_fidelity_of_an_exact_surrogate_is_one():
    masker = Masker(
        Groups.of(oracles.channels(), oracles.STEPS, 2, np.array([0, 1])), "climatology", oracles.masker().climatology
    )
    for method in ("shap", "lime"):
        raw = METRICS.build("fidelity", {"draws": 50}).score(evidence(method, oracles.linear(), masker=masker))
        assert raw["fidelity"].raw.min() > 0.999


def test_fidelity_by_hand():
    """A surrogate that says zero everywhere: Fid = 1 - mean abs(f(x')) / sigma over the fresh draws."""
    base = evidence(model=oracles.nonlinear())
    surrogate = base.runs[0].surrogate
    silent = replace(
        surrogate,
        intercept=0 * surrogate.intercept,
        weights=0 * surrogate.weights,
        fitted_on=np.zeros((1, 8), dtype=bool),
    )
    metric = METRICS.build("fidelity", {"draws": 100})
    raw = metric.score(replace(base, runs=(replace(base.runs[0], surrogate=silent),)))["fidelity"].raw
    fresh, outputs = metric._neighbourhood(base)
    np.testing.assert_allclose(raw, 1 - np.abs(outputs[:, :100]).mean(axis=1) / 20.0)
    assert len(np.unique(fresh, axis=0)) == len(fresh)


def test_fidelity_never_scores_a_coalition_that_was_fitted_on():
    base = evidence(options={"coalitions": 254})  # all coalitions of eight groups
    with pytest.raises(NotApplicable, match="disjoint"):
        METRICS.build("fidelity", {"draws": 100}).score(base)
    with pytest.raises(NotApplicable, match="no local surrogate"):
        METRICS.build("fidelity").score(evidence("integrated_gradients", runs=1))


def test_stability_by_hand():
    """f = <w, x>: IG is w (x - b) exactly, so Lip follows from the perturbed windows themselves."""
    base = evidence("integrated_gradients", oracles.linear(), {"steps": 8}, runs=1)
    metric = METRICS.build("stability", {"draws": 2, "radius": 0.05})
    moved, distance = metric._neighbours(base)
    w, n = oracles.weights(), len(base.windows)
    std = base.windows.channels.std
    here = base.masker.groups.total(w * (base.windows.context - base.masker.fill(base.windows)))
    there = base.masker.groups.total(w * (moved.context - base.masker.fill(moved)))
    unit = lambda v: v / np.linalg.norm(v, axis=1, keepdims=True)  # noqa: E731
    z = ((moved.context - np.tile(base.windows.context, (2, 1, 1))) / std).reshape(2, n, -1)
    np.testing.assert_allclose(np.linalg.norm(z, axis=2), distance, rtol=1e-9)
    assert distance.max() <= 0.05 * np.sqrt(48) + 1e-12
    lip = (np.linalg.norm(unit(there).reshape(2, n, -1) - unit(here), axis=2) / distance).max(axis=0)
    scores = metric.score(base)
    np.testing.assert_allclose(scores["lipschitz"].raw, lip, rtol=1e-3)
    np.testing.assert_allclose(scores["stability"].value, np.clip(1 - lip, 0, 1), atol=2e-3)
    np.testing.assert_allclose(scores["stability_bounded"].raw, 1 / (1 + lip), rtol=1e-3)


def test_stability_moves_only_observed_inputs_by_the_same_draws_for_every_cell():
    metric = METRICS.build("stability")
    one, _ = metric._neighbours(evidence("shap"))
    two, _ = metric._neighbours(evidence("lime", oracles.linear()))
    assert np.array_equal(one.context, two.context)
    assert np.array_equal(one.context[:, :, 2], np.tile(oracles.windows().context[:, :, 2], (5, 1)))
    few, _ = metric._neighbours(evidence(windows=oracles.windows().take(np.array([2]))))
    assert np.array_equal(few.context[0], one.context[2])


def test_a_wild_explanation_is_less_stable_than_a_smooth_one():
    smooth = METRICS.build("stability").score(evidence("integrated_gradients", oracles.linear(), runs=1))
    wild = ExplainedModel(oracles.Oracle(lambda x: torch.sin(40 * x[:, :, 0]).sum(1)))
    rough = METRICS.build("stability").score(evidence("integrated_gradients", wild, {"steps": 8}, runs=1))
    assert rough["lipschitz"].raw.mean() > 1.5 * smooth["lipschitz"].raw.mean()


@pytest.mark.parametrize(("metric", "key"), [("faithfulness", "faithfulness"), ("stability", "stability")])
def test_a_window_without_an_explanation_has_no_score(metric, key):
    base = evidence("integrated_gradients", runs=1)
    blank = base.runs[0].attribution.copy()
    blank[2] = 0.0
    raw = METRICS.build(metric).score(replace(base, runs=(Explanation(blank),)))[key].raw
    assert np.isnan(raw).tolist() == [False, False, True, False, False, False]


def test_cumulative_masks_drop_the_top_groups_in_order():
    order = ranking(np.array([[0.5, -2.0, 0.5, 1.0]]))
    assert order.tolist() == [[1, 3, 0, 2]]  # by |e|, ties by lower index
    keep = cumulative_keep(order[:, :3], 4)
    assert keep.tolist() == [[[True, False, True, True], [True, False, True, False], [False, False, True, False]]]


def test_human_ratings_are_never_made_up():
    with pytest.raises(Pending, match="never simulated"):
        METRICS.build("human_interpretability").score(evidence())
