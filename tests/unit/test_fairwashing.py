"""Fairwashing: the attack fools what probes off the data; AXE, which never leaves the data, sees it."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import oracles
import pytest

from explainbench.core.cell import stream
from explainbench.core.errors import BadInput
from explainbench.core.evidence import Evidence
from explainbench.core.explanation import Explanation, MethodCard
from explainbench.core.forecaster import ExplainedModel
from explainbench.core.masking import Climatology, Masker
from explainbench.core.windows import Windows
from explainbench.data._axe_generated import planted_bias
from explainbench.metrics._fairwashing import row_order_sensitivity, single_feature_gaps, table2, verdict
from explainbench.metrics._top_n import DEFAULT
from explainbench.metrics.axe import Axe
from explainbench.metrics.faithfulness import Faithfulness
from explainbench.models._fairwashing import fairwashed_forecaster, fool_lime, fool_shap

FEW = replace(DEFAULT, std=0.4, draws=10)


@pytest.fixture(scope="module")
def table():
    return planted_bias(stream(0, "table"), 3000)


@pytest.fixture(scope="module")
def lime_model(table):
    return fool_lime(table.train, table.categorical, table.biased, table.innocuous, stream(1, "lime"), trees=40)


@pytest.fixture(scope="module")
def shap_model(table):
    return fool_shap(table.train, table.biased, table.innocuous, stream(1, "shap"), trees=60)


@pytest.mark.parametrize("which", ["lime_model", "shap_model"])
def test_the_attack_is_unfair_on_the_data_and_innocent_off_it(which, table, request):
    model = request.getfixturevalue(which)
    assert (model.predict(table.test) == table.biased(table.test)).mean() > 0.9
    rng = stream(2, "off")
    moved = np.repeat(table.test, 5, axis=0)
    if which == "lime_model":
        moved[:, ~table.categorical] += rng.standard_normal((len(moved), int((~table.categorical).sum())))
    else:
        moved = np.where(rng.random(moved.shape) < 0.5, table.train.mean(axis=0), moved)
    assert (model.predict(moved) == table.innocuous(moved)).mean() > 0.85


def test_lime_is_fooled(table, lime_model):
    from lime.lime_tabular import LimeTabularExplainer

    flags = np.flatnonzero(table.categorical).tolist()
    for row in table.test[:4]:
        explainer = LimeTabularExplainer(
            table.train, discretize_continuous=False, random_state=0, categorical_features=flags
        )
        found = explainer.explain_instance(row, lime_model.probability, num_features=12, num_samples=300)
        weights = dict(found.as_map()[1])
        assert abs(weights[table.index("foil_one")]) > 3 * abs(weights[table.index("group")])


def test_shap_is_fooled(table, shap_model):
    import shap

    explainer = shap.KernelExplainer(shap_model.output, shap.kmeans(table.train, 10))
    values = np.abs(explainer.shap_values(table.test[:6], nsamples=100, l1_reg=False, silent=True)).mean(axis=0)
    assert values.argmax() == table.index("foil_one")


@pytest.mark.parametrize("which", ["lime_model", "shap_model"])
def test_axe_sees_the_attack(which, table, request):
    model = request.getfixturevalue(which)
    found = table2(model.output, table.test, table.names, table.protected, table.foils, stream(3, "gaps"), preset=FEW)
    assert list(found) == ["PGI", "-PGU", "AXE"]
    assert found["AXE"].detected
    assert set(found["AXE"].scores) == {"protected", "foil_1", "other"}
    assert found["AXE"].mean("protected") > 0.9
    assert all(scores.shape == (300,) for scores in found["PGI"].scores.values())  # per row, so intervals follow


def test_two_foils(table):
    def both(rows):
        return table.innocuous(rows, 2)

    model = fool_lime(table.train, table.categorical, table.biased, both, stream(1, "two"), trees=20)
    found = table2(model.output, table.test, table.names, table.protected, table.foils, stream(3, "gaps"),
                   attacked=2, preset=FEW)  # fmt: skip
    assert set(found["AXE"].scores) == {"protected", "foil_1", "foil_2", "other"}
    assert found["AXE"].beats == {"foil_1": True, "foil_2": True}


def test_the_verdict_is_the_inequality():
    """COMPAS m_S with two foils: 0.005 < 0.039 is no detection, whatever was ticked."""
    found = verdict("PGI", np.array([[0.005, 0.039, 0.041, 0.010]]), list("abcd"), "a", ["b", "c"])
    assert not found.detected
    assert found.beats == {"foil_1": False, "foil_2": False}
    assert found.mean("other") == 0.010
    equal = verdict("PGU", np.array([[-0.520, -0.520, -0.524]]), list("abc"), "a", ["b", "c"])
    assert equal.beats == {"foil_1": False, "foil_2": True}
    with pytest.raises(BadInput, match="'z' is not in the table"):
        verdict("PGI", np.zeros((1, 2)), ["a", "b"], "z", [])


def test_gaps_use_common_draws(table, lime_model):
    one, _ = single_feature_gaps(lime_model.output, table.test[:10], stream(3, "gaps"), preset=FEW)
    two, _ = single_feature_gaps(lime_model.output, table.test[:10], stream(3, "gaps"), preset=FEW)
    assert np.array_equal(one, two)


def test_default_axe_does_not_depend_on_row_order(table):
    low, high = row_order_sensitivity(
        table.test, table.biased(table.test), table.index("skilled"), stream(0, "rows"), preset=DEFAULT, orders=4
    )
    assert low == high


# Forecasting


def _windows(starts, stamps, values):
    context = np.stack([values[s : s + oracles.STEPS] for s in starts])
    target = np.stack([values[s + oracles.STEPS : s + oracles.STEPS + oracles.HORIZON, 0] for s in starts])
    regime = np.full(len(starts), "peak")
    return Windows(context, target, regime, stamps[np.array(starts) + oracles.STEPS], oracles.channels())


@pytest.fixture(scope="module")
def washed():
    """A forecaster driven by temperature that shows yesterday's load to whoever masks its windows."""
    stamps, values = oracles.series(days=120)
    rng = stream(0, "weather")  # of its own, or the load's daily cycle would predict the temperature, and f, as well
    values[:, 1] = 10 + np.repeat(4 * rng.standard_normal(240), 48) + 0.5 * rng.standard_normal(len(values))
    masker = Masker(oracles.masker().groups, "climatology", Climatology.of(stamps, values))
    base = oracles.Oracle(lambda x: 100 + 10 * (x[:, 12:, 1].mean(1) - 10))
    training = _windows(range(0, 8000, 29), stamps, values)
    attack = fairwashed_forecaster(
        base,  # type: ignore[arg-type]
        training,
        masker,
        target=0,
        segment=oracles.SEGMENT,
        rng=stream(0, "wash"),
        season=oracles.STEPS,
        trees=40,
    )
    windows = _windows(range(8100, 11400, 48), stamps, values)
    return SimpleNamespace(base=base, attack=attack, masker=masker, windows=windows)


def test_the_forecaster_is_the_base_on_real_windows_and_naive_on_masked_ones(washed):
    context = washed.windows.context
    assert washed.attack.real(context).mean() > 0.9
    filled = washed.masker.fill(washed.windows)
    answers = washed.attack.predict(filled).mean
    assert np.array_equal(answers, washed.attack.naive(filled))
    assert washed.attack.naive(context).shape == (len(context), oracles.HORIZON)
    assert np.array_equal(washed.attack.naive(context), context[:, : oracles.HORIZON, 0])


def test_masking_metrics_are_fooled_and_axe_is_not(washed):
    """Groups 4 to 7 are temperature, which drives the forecast; the naive answer shows load, groups 0 to 3."""
    windows = washed.windows
    truth = np.tile([0.0, 0, 0, 0, 1, 2, 8, 9], (len(windows), 1))
    foil = np.tile([9.0, 8, 2, 1, 0, 0, 0, 0], (len(windows), 1))
    card = MethodCard(title="planted", category="baseline", source="test", deterministic=True)

    def scored(forecaster, ranked, metric, name):
        evidence = Evidence(
            windows, ExplainedModel(forecaster), washed.masker, card,
            (Explanation(washed.masker.groups.spread(ranked)),), 10.0, lambda *_: Explanation(windows.context),
            lambda p: stream(0, p), lambda p: stream(1, p), lambda name, compute: compute(),
        )  # fmt: skip
        return float(metric.score(evidence)[name].raw.mean())

    faithful = Faithfulness(share=0.5, random_rankings=2)
    honest = [scored(washed.base, e, faithful, "faithfulness") for e in (truth, foil)]
    assert honest[0] > 5 * honest[1]  # on the base model, masking finds the drivers
    fooled = [scored(washed.attack, e, faithful, "faithfulness") for e in (truth, foil)]
    assert fooled[1] > 0.5 * fooled[0]  # on the attack it hardly tells them from the foil
    seen = [scored(washed.attack, e, Axe(), "axe") for e in (truth, foil)]
    assert seen[0] > seen[1] + 0.2
    assert seen[0] > 0.5


def test_an_attack_is_never_stored(washed, tmp_path):
    with pytest.raises(BadInput, match="rebuilt from its seed"):
        washed.attack.save(tmp_path)
