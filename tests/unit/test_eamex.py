"""EAMEX on plain arrays: worked numbers, limits, column order, batched model calls, bad input, and over a cell."""

from dataclasses import replace

import numpy as np
import oracles
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from explainbench.core.cell import stream
from explainbench.core.errors import BadInput, NotApplicable
from explainbench.core.evidence import Evidence
from explainbench.core.explanation import Explanation
from explainbench.core.registry import METHODS, METRICS
from explainbench.metrics import eamex

PRESETS = ("paper", "holisticai")
# few distinct values, so that features tie
tied = st.lists(st.integers(0, 4).map(float), min_size=2, max_size=9).filter(any)


def test_directions_are_explicit_for_every_metric_and_preset():
    assert len(eamex.DEFINITIONS["paper"]) == 9
    lower = {
        preset: {name for name, one in eamex.DEFINITIONS[preset].items() if not one.higher_is_better}
        for preset in PRESETS
    }
    assert lower["paper"] == {"alpha_importance", "fluctuation_ratio", "performance_degradation"}
    assert lower["holisticai"] == lower["paper"] | {"rank_consistency", "importance_stability"}
    assert eamex.definition("alpha_importance").oriented(0.25) == 0.75
    assert eamex.definition("alpha_importance").scaled(0.25) == 0.75
    degradation = eamex.definition("performance_degradation")
    assert [degradation.scaled(value) for value in (-0.5, 0.0, 0.5, 2.0)] == [1.0, 1.0, 0.75, 0.0]
    assert [eamex.definition("surrogate_fidelity").scaled(value) for value in (-0.2, 0.4, 1.0)] == [0.0, 0.4, 1.0]
    with pytest.raises(BadInput, match="'paper2' is not a preset"):
        eamex.definition("alpha_importance", "paper2")  # type: ignore[arg-type]


@pytest.mark.parametrize("metric", eamex.DEFINITIONS["paper"])
def test_a_metric_says_its_shapes_range_direction_and_equation(metric):
    text = getattr(eamex, metric).__doc__
    assert metric in eamex.__all__
    assert "(d,)" in text or "(n,)" in text or "(n, d)" in text or "(k,)" in text
    assert " is better" in text
    assert any(part in text for part in ("In [", "in [", "in ("))
    assert any(part in text for part in ("eq. ", "eqs. ", "def. "))


def test_spread_and_alpha_by_hand():
    d = 10
    one_hot = np.eye(d)[3]
    most = 1 - (np.log2((d + 1) / d) + np.log2(d + 1) / d) / 2
    assert eamex.spread_divergence(one_hot) == pytest.approx(most, abs=1e-12)
    assert eamex.spread_divergence(np.full(7, 1 / 3)) == 0.0
    assert eamex.spread_divergence(np.full(7, 0.1), "holisticai") == 0.0  # NaN in the library
    assert (eamex.spread_divergence([2.0]), eamex.spread_divergence([2.0], "holisticai")) == (0.0, 1.0)
    assert eamex.alpha_importance([0.5, 0.3, 0.15, 0.05]) == 0.5  # 0.5 + 0.3 reaches 0.8, rounding or not
    assert eamex.alpha_importance([0.1] * 10, alpha=0.3) == 0.3
    assert eamex.alpha_importance([0.1] * 10, alpha=1.0) == 1.0
    assert eamex.alpha_importance([0.5, 0.3, 0.15, 0.05], alpha=0.5, preset="holisticai") == 0.5  # 0.8, not 0.5


def test_rank_alignment_by_hand():
    overall = [6, 3, 1, 0, 0]  # the top is {0, 1}: 0.9 >= 0.8
    assert eamex.rank_alignment(overall, {"same": [5, 4, 1, 0, 0]}) == 1.0
    assert eamex.rank_alignment(overall, {"same": [5, 4, 1, 0, 0], "other": [0, 0, 0, 6, 4]}) == 0.5
    assert eamex.rank_alignment(overall, [[9, 1, 0, 0, 0]]) == 0.5  # {0} of {0, 1}
    split = [4, 2, 2, 1, 1]  # 0.8 after 0, 1, 2
    assert eamex.rank_alignment(split, [[6, 1, 1, 1, 1]]) == 3 / 5  # all tied ones come in
    assert eamex.rank_alignment(split, [[6, 1, 1, 1, 1]], preset="holisticai") == 1 / 5  # {0, 3, 4}


def test_rank_consistency_and_importance_stability_by_hand():
    local = [[3, 2, 1], [3, 2, 1], [2, 3, 1], [3, 2, 1]]  # ranks of 0: 1 1 2 1, mode 1, deviation 1/4, range 1
    assert eamex.rank_consistency_by_feature(local) == pytest.approx([0.75, 0.75, 1.0])
    assert eamex.rank_consistency(local) == pytest.approx(5 / 6)
    assert eamex.rank_consistency(local, "holisticai") == pytest.approx(1 / 6, abs=1e-7)
    extreme = [[1, 0], [0, 1]]  # variance 1/4 of at most 1/4
    assert eamex.importance_stability(extreme) == 0.0
    assert eamex.importance_stability(extreme, "holisticai") == 1.0
    assert eamex.importance_stability([[1.0], [2.0]]) == 1.0  # one feature holds everything
    assert eamex.rank_consistency([[1.0], [2.0]]) == 1.0
    assert eamex.rank_consistency([[1, 1, 0], [2, 2, 0]]) == 1.0  # ties keep their mean rank


@settings(max_examples=40, deadline=None)
@given(tied, st.data())
def test_shuffled_columns_change_nothing(importance, data):
    d = len(importance)
    order = np.array(data.draw(st.permutations(range(d))))
    rng = stream(0, "shuffle", repr(importance))
    local = rng.integers(0, 3, (6, d)) + np.where(np.arange(d) == 0, 1.0, 0.0)
    groups = rng.integers(0, 3, (2, d)) + np.where(np.arange(d) == d - 1, 1.0, 0.0)
    x = np.asarray(importance)
    for preset in PRESETS:
        assert eamex.spread_divergence(x, preset) == eamex.spread_divergence(x[order], preset)
        assert eamex.alpha_importance(x, preset=preset) == eamex.alpha_importance(x[order], preset=preset)
        one = eamex.rank_alignment(x, groups, preset=preset)
        assert one == eamex.rank_alignment(x[order], groups[:, order], preset=preset)
        assert eamex.rank_consistency(local, preset) == eamex.rank_consistency(local[:, order], preset)
        assert eamex.importance_stability(local, preset) == eamex.importance_stability(local[:, order], preset)


@settings(max_examples=30, deadline=None)
@given(tied, st.floats(0.05, 1.0))
def test_values_lie_in_their_ranges_and_scale_does_not_matter(importance, alpha):
    for preset in PRESETS:
        found = {
            "spread_divergence": eamex.spread_divergence(importance, preset),
            "alpha_importance": eamex.alpha_importance(importance, alpha, preset),
            "rank_alignment": eamex.rank_alignment(importance, [importance[::-1]], alpha, preset),
        }
        for name, value in found.items():
            one = eamex.definition(name, preset)
            assert one.low <= value <= one.high, name
        assert eamex.alpha_importance(np.array(importance) * 8, alpha, preset) == found["alpha_importance"]
    assert eamex.rank_alignment(importance, [importance], alpha) == 1.0


def test_resamples_are_scored_as_their_rows_would_be():
    rng = stream(0, "resamples")
    local, group = rng.integers(0, 4, (20, 5)) + np.eye(20, 5), np.repeat(["a", "b"], [15, 5])
    ready = eamex.LocalImportance.of(local, group)
    rows = [np.arange(20), rng.integers(0, 20, 20), np.repeat(16, 20)]
    times = np.array([np.bincount(row, minlength=20) for row in [*rows, []]], dtype=float)
    for preset in PRESETS:
        drawn = ready.resampled(times, preset=preset)
        for index, row in enumerate(rows[:2]):
            want = eamex.explanation_scores(local[row], group[row], preset=preset)
            assert {name: values[index] for name, values in drawn.items()} == pytest.approx(want), preset
        assert np.isnan(drawn["rank_alignment"][2:]).all()  # group a is not drawn, and then nothing is
        assert list(np.isnan(drawn["rank_consistency"])) == [False, False, False, True]


def test_fluctuation_of_curves_whose_shape_is_known():
    x = np.linspace(-1, 1, 41)
    curves = np.stack([x, 0 * x + 0.3, np.abs(x) + 0.1 * x, np.sin(3 * np.pi * x)])
    changes = eamex.fluctuations(x, curves) * 98
    np.testing.assert_allclose(changes, [0, 0, 1, 6])
    noisy = 0.3 + 1e-17 * stream(0, "noise").standard_normal(41)
    assert eamex.fluctuations(x, [noisy]) == [0.0]  # a constant, but for rounding
    assert eamex.fluctuations([1.0], [[5.0]]) == [0.0]  # a feature with one value
    flat = eamex.Curves("x", x, np.stack([np.sin(9 * x), -np.sin(9 * x)]))
    assert eamex.fluctuation_ratio(flat) == 0.0  # the partial dependence is constant
    assert eamex.fluctuation_ratio(flat, "holisticai") > 0.0  # its individual curves are not


def _table(n=400, seed=0):
    rng = stream(seed, "table")
    x = rng.standard_normal((n, 6))
    x[:, 3:] = x[:, 3:] > 0.8  # rare flags
    y = (x[:, 0] + 2 * x[:, 3] + 0.3 * rng.standard_normal(n) > 0.5).astype(int)
    return x, y


def _rule(x):
    """Labels that use columns 0, 1 and 3."""
    return (x[:, 0] + 0.5 * x[:, 1] + 2 * x[:, 3] > 0.5).astype(int)


def test_permutation_importance_is_that_of_scikit_learn():
    """The library calls scikit-learn, whatever its seed argument, with random_state 0."""
    from sklearn.base import BaseEstimator
    from sklearn.inspection import permutation_importance

    class Model(BaseEstimator):
        def fit(self, x, y):
            return self

        def score(self, x, y):
            return (_rule(x) == y).mean()

    x, y = _table()
    ours = eamex.permutation_importance(_rule, x, y, "classification", groups=y, preset="holisticai")
    for importance, rows in ((ours.overall, slice(None)), *((ours.by_group[str(c)], y == c) for c in (0, 1))):
        theirs = permutation_importance(Model(), x[rows], y[rows], n_repeats=5, random_state=0)["importances_mean"]
        np.testing.assert_allclose(importance, np.abs(theirs), atol=1e-15)
    assert ours.score == (_rule(x) == y).mean()
    target = x[:, 0] + 3 * x[:, 3]
    regression = eamex.permutation_importance(lambda x: x[:, 0] + x[:, 3], x, target, "regression", preset="holisticai")
    Model.score = lambda self, x, y: ((x[:, 0] + x[:, 3] - y) ** 2).mean()
    theirs = permutation_importance(Model(), x, target, n_repeats=5, random_state=0)["importances_mean"]
    np.testing.assert_allclose(regression.overall, np.abs(theirs), atol=1e-12)


def test_partial_dependence_is_that_of_scikit_learn():
    from sklearn.inspection import partial_dependence
    from sklearn.linear_model import LinearRegression

    x, _ = _table(200)
    model = LinearRegression().fit(x, np.sin(x[:, 0]) + x[:, 3])
    for feature, curve in zip((0, 3), eamex.partial_dependence(model.predict, x, [0, 3], percentiles=(0.05, 0.95))):
        theirs = partial_dependence(model, x, [feature], grid_resolution=50, kind="both")
        np.testing.assert_allclose(curve.grid, theirs["grid_values"][0], atol=1e-12)
        np.testing.assert_allclose(curve.ice, theirs["individual"][0], atol=1e-12)
        np.testing.assert_allclose(curve.average, theirs["average"][0], atol=1e-12)


def test_few_large_model_calls_and_none_about_unchanged_rows():
    sizes = []

    def model(x):
        sizes.append(len(x))
        return _rule(x)

    x, y = _table(1000)
    eamex.permutation_importance(model, x, y, "classification", groups=y)
    assert len(sizes) == 2  # the rows as they are, and one block
    assert sum(sizes) < 0.6 * 2 * 5 * 6 * 1000
    sizes.clear()
    eamex.partial_dependence(model, x, [0])
    assert sizes == [50_000]


def test_column_order_changes_no_model_side_value():
    x, y = _table()
    order = np.array([4, 2, 5, 0, 3, 1])
    place = np.argsort(order)
    shuffled = lambda z: _rule(z[:, place])  # noqa: E731
    groups = eamex.groups_of(_rule(x), "classification")
    for preset in PRESETS:
        one = eamex.permutation_importance(_rule, x, y, "classification", groups=groups, preset=preset)
        two = eamex.permutation_importance(shuffled, x[:, order], y, "classification", groups=groups, preset=preset)
        np.testing.assert_array_equal(one.overall[order], two.overall)
        np.testing.assert_array_equal(one.by_group["1"][order], two.by_group["1"])
    doubled = np.hstack([x, x[:, :2]])  # equal columns: the tree must choose one
    order = np.array([7, 4, 2, 5, 0, 6, 3, 1])
    labels = _rule(x)
    one = eamex.fit_surrogate(doubled, labels, "classification")
    two = eamex.fit_surrogate(doubled[:, order], labels, "classification")
    np.testing.assert_array_equal(one.predict(doubled), two.predict(doubled[:, order]))
    stability = eamex.surrogate_feature_stability
    assert stability(doubled, labels, "classification") == stability(doubled[:, order], labels, "classification")


def test_top_features_break_ties_by_name():
    names = ("b", "a", "c")
    nothing = np.empty((0, 3))
    found = eamex.PermutationImportance(names, np.array([1.0, 1.0, 2.0]), {}, 1.0, nothing, nothing, np.array([]))
    assert found.top(2) == ("c", "a")


def test_surrogates_find_the_features_a_model_uses():
    x, _ = _table(600)
    for preset in PRESETS:
        tree = eamex.fit_surrogate(x, _rule(x), "classification", preset)
        assert tree.features[[0, 3]].all()
        assert eamex.surrogate_fidelity(_rule(x), tree.predict(x), "classification") > 0.85
    named = np.array(["no", "yes"])[_rule(x)]
    tree = eamex.fit_surrogate(x, named, "classification", "holisticai")
    assert set(tree.predict(x)) == {"no", "yes"}
    steady = eamex.surrogate_feature_stability(x[:, [0, 3]], _rule(x), "classification", rng=stream(0, "rows"))
    assert steady == 1.0
    smooth = x[:, 0] + x[:, 3]
    assert eamex.fit_surrogate(x, smooth, "regression").features.sum() == 2
    assert 0 < eamex.surrogate_feature_stability(x, smooth, "regression", bootstraps=3, preset="holisticai") <= 1


def test_degradation_and_fidelity_limits():
    zero, one = np.zeros(4), np.ones(4)
    assert eamex.performance_degradation(zero, one, one, "classification") == 0.0  # both always wrong
    assert eamex.performance_degradation(zero, one, zero, "classification") == -2.0
    assert eamex.performance_degradation(zero, zero, zero, "regression") == 0.0
    assert eamex.performance_degradation(zero, one, zero, "regression") == 0.0  # a better surrogate degrades nothing
    assert eamex.surrogate_fidelity(zero, zero, "regression") == 1.0
    assert eamex.surrogate_fidelity(one, -one, "regression") == -1.0


def test_data_frames_reach_the_model_as_data_frames():
    x, y = _table(60)
    frame = pd.DataFrame(x, columns=list("abcdef"))
    rule = lambda z: _rule(z[list("abcdef")].to_numpy())  # noqa: E731
    found = eamex.permutation_importance(rule, frame, y, "classification")
    assert found.names == tuple("abcdef")
    assert eamex.partial_dependence(rule, frame, ["d"])[0].name == "d"


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: eamex.spread_divergence([0.5, -0.2, 0.7]), r"importance\[1\] is -0.2, and 1 values are negative"),
        (lambda: eamex.alpha_importance([0.0, 0.0]), "sums to zero"),
        (lambda: eamex.alpha_importance([1.0, np.nan]), r"importance\[1\] is nan"),
        (lambda: eamex.alpha_importance([]), "empty"),
        (lambda: eamex.alpha_importance([1.0], alpha=1.5), "alpha must lie"),
        (lambda: eamex.alpha_importance([[1.0]]), "must be a vector"),
        (lambda: eamex.importance_stability([[1, 2], [0, 0], [0, 0]]), "row 1 and 1 others"),
        (lambda: eamex.importance_stability([[1, 2], [3, -1]]), r"\[1, 1\] is -1"),
        (lambda: eamex.rank_alignment([1, 2], {"day": [1, 2, 3]}), r"by_group\['day'\] has 3 features"),
        (lambda: eamex.rank_alignment([1, 2], {}), "by_group is empty"),
        (lambda: eamex.explanation_scores([[1, 2], [3, 4]], ["a"]), "one name per row"),
        (lambda: eamex.fluctuations([0, 2, 1], [[1, 2, 3]]), "the grid must rise"),
        (lambda: eamex.fluctuation_ratio([]), "no curves"),
        (
            lambda: eamex.fit_surrogate(pd.DataFrame({"age": [1], "job": ["clerk"]}), [0], "classification"),
            "column job of X holds 'clerk' in row 0.*encode",
        ),
        (
            lambda: eamex.surrogate_feature_stability(np.eye(4), [0, 1, 0, 1], "classification"),
            "4 rows, fewer than the 10 bootstraps",
        ),
        (lambda: eamex.surrogate_fidelity([1, 2], [1], "regression"), "differ in length"),
        (lambda: eamex.partial_dependence(lambda x: x, np.eye(3), [0]), "one number or label per row"),
        (lambda: eamex.partial_dependence(lambda x: x[:, 0], np.eye(3), [7]), "7 is not a column"),
        (
            lambda: eamex.permutation_importance(lambda x: x[:, 0] / 7, np.eye(3) + 1, [1, 0, 0], "classification"),
            "labels, not probabilities",
        ),
        (lambda: eamex.permutation_importance(lambda x: x[:, 0], np.eye(3), [1, 0], "regression"), "one value per row"),
        (lambda: eamex.permutation_importance(len, np.eye(3), [1, 0, 0], "ranking"), "'ranking' is not a task"),  # type: ignore[arg-type]
    ],
)
def test_bad_input_is_said_in_one_sentence(call, sentence):
    with pytest.raises(BadInput, match=sentence):
        call()


def test_what_is_not_defined_has_a_reason():
    with pytest.raises(NotApplicable, match="all 3 rows into class 1"):
        eamex.fit_surrogate(np.eye(3), [1, 1, 1], "classification")
    for metric in (eamex.rank_consistency, eamex.importance_stability):
        with pytest.raises(NotApplicable, match="at least 2 rows"):
            metric([[1.0, 2.0]])


def _evidence(importance):
    masker, windows, model = oracles.masker(), oracles.windows(), oracles.linear()
    none = lambda *_: None  # noqa: E731
    return Evidence(
        windows, model, masker, METHODS.card("integrated_gradients"),
        (Explanation(masker.groups.spread(importance)),), 20.0, none, none, none, none,
    )  # type: ignore[arg-type]  # fmt: skip


def test_over_a_cell_regimes_are_the_groups_of_rows():
    importance = stream(0, "cell").standard_normal((6, 8))
    share = np.abs(importance) / np.abs(importance).sum(axis=1, keepdims=True)
    regime = oracles.windows().regime
    scores = METRICS.build("eamex").score(_evidence(importance))
    by_regime = {name: share[regime == name].mean(axis=0) for name in np.unique(regime)}
    assert scores["rank_alignment"].raw[0] == pytest.approx(eamex.rank_alignment(share.mean(axis=0), by_regime))
    assert scores["rank_consistency"].raw[0] == pytest.approx(eamex.rank_consistency(share))
    for name, score in scores.items():
        assert score.raw.shape == (1,), name
        if name != "eamex":
            turned = eamex.definition(name).oriented(score.raw[0])
            assert score.value[0] == pytest.approx(turned)
    rest = [score.value[0] for name, score in scores.items() if name != "eamex"]
    assert scores["eamex"].value[0] == pytest.approx(np.mean(rest))
    for option in ({"preset": "holisticai"}, {"alpha": 0.4}):
        other = METRICS.build("eamex", option).score(_evidence(importance))
        assert other["eamex"].raw[0] != scores["eamex"].raw[0]
    with pytest.raises(BadInput, match="preset"):
        METRICS.build("eamex", {"preset": "paper2"})


def test_over_a_cell_an_empty_explanation_has_no_shares():
    with pytest.raises(NotApplicable, match="2 of 6 windows is zero"):
        METRICS.build("eamex").score(_evidence(np.repeat([0.0, 1.0], [2, 4])[:, None] * np.ones((6, 8))))
    windows = replace(_evidence(np.ones((6, 8))), windows=oracles.windows().take(np.array([0, 3])))  # one regime
    windows = replace(windows, runs=(Explanation(windows.masker.groups.spread(np.ones((2, 8)))),))
    assert "rank_alignment" not in METRICS.build("eamex").score(windows)
