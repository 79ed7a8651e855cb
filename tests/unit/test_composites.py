import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from explainbench.analysis.composites import COMPOSITES, LEVELS, TITLES, Composite, Parts, composites, efficiency
from explainbench.analysis.normalise import Bound, Bounds
from explainbench.core.cell import Score, Skipped
from explainbench.core.params import Weights

BOUNDS = Bounds(version="v1", tasks={"T1": {"faithfulness": Bound(hi=10.0)}})
PENDING = {
    name: Skipped("pending", f"no {name} yet")
    for name in (
        "counterfactual_consistency", "actionability", "uncertainty_awareness", "human_interpretability",
        "efficiency", "deployment_suitability",
    )
}  # fmt: skip


def unit(*values):
    return Score(np.array(values), np.array(values))


def parts(scores, skipped=PENDING, bounds=BOUNDS, weights=None):
    return Parts("T1", scores, skipped, bounds, weights or Weights())


def pilot(**more):
    return {"faithfulness": Score(np.array([2.0, 4.0, 20.0])), "stability": unit(0.9, 0.8, 0.7), **more}


def test_worked_eqi_of_a_surrogate_method():
    found = composites(parts(pilot(fidelity=unit(0.8, 0.6, 1.0)), weights=Weights(faithfulness=0.25, fidelity=0.75)))
    eqi = found["EQI"]
    assert isinstance(eqi, Composite)
    np.testing.assert_allclose(eqi.values, [0.25 * 0.2 + 0.75 * 0.8, 0.25 * 0.4 + 0.75 * 0.6, 0.25 + 0.75])
    assert eqi.basis == "F+Fid"
    assert eqi.clipped == pytest.approx(1 / 3)


def test_eqi_without_a_surrogate_is_faithfulness_alone_under_its_own_basis():
    skipped = PENDING | {"fidelity": Skipped("not_applicable", "integrated_gradients has no surrogate")}
    eqi = composites(parts(pilot(), skipped))["EQI"]
    assert isinstance(eqi, Composite)
    assert eqi.basis == "F"
    np.testing.assert_allclose(eqi.values, [0.2, 0.4, 1.0])


def test_eqi_never_changes_basis_while_fidelity_is_pending():
    skipped = PENDING | {"fidelity": Skipped("pending", "draws still running")}
    eqi = composites(parts(pilot(), skipped))["EQI"]
    assert eqi == Skipped("pending", "fidelity: draws still running")


def test_without_frozen_bounds_eqi_is_pending_and_nothing_else_is_touched():
    found = composites(parts(pilot(fidelity=unit(0.8, 0.6, 1.0)), bounds=None))
    assert isinstance(found["EQI"], Skipped)
    assert found["EQI"].status == "pending"
    assert "no normalisation bounds" in found["EQI"].reason
    assert isinstance(found["ESS"], Composite)


def test_the_pilot_has_eqi_ess_and_eei_and_reasons_for_the_rest():
    skipped = {name: skip for name, skip in PENDING.items() if name != "efficiency"}
    found = composites(parts(pilot(fidelity=unit(0.8, 0.6, 1.0), efficiency=unit(0.75)), skipped))
    assert {name for name, item in found.items() if isinstance(item, Composite)} == {"EQI", "ESS", "EEI"}
    eei = found["EEI"]
    assert isinstance(eei, Composite)
    assert (eei.basis, eei.values.tolist()) == ("Eff", [0.75])
    assert found["CCS"] == Skipped("pending", "counterfactual_consistency: no counterfactual_consistency yet")
    assert found["EDTS"] == Skipped("pending", "actionability: no actionability yet")
    assert found["HIR"] == Skipped("pending", "human_interpretability: no human_interpretability yet")


def test_set_level_components_combine_with_per_window_ones():
    scores = {"actionability": unit(0.0, 1.0, 0.5), "uncertainty_awareness": unit(0.6)}
    scores |= {"efficiency": unit(0.5), "deployment_suitability": unit(0.9)}
    found = composites(parts(scores, {}))
    edts, eei = found["EDTS"], found["EEI"]
    assert isinstance(edts, Composite)
    assert isinstance(eei, Composite)
    np.testing.assert_allclose(edts.values, [0.3, 0.8, 0.55])
    assert edts.basis == "Act+UA"
    np.testing.assert_allclose(eei.values, [0.7])
    assert eei.basis == "Eff+DSS"
    assert found["EQI"] == Skipped("pending", "faithfulness: not measured in this run")


def test_a_metric_without_a_map_to_the_unit_interval_is_pending():
    found = composites(parts({"stability": Score(np.array([3.0, 4.0]))}, {}))["ESS"]
    assert isinstance(found, Skipped)
    assert found.status == "pending"
    assert "raw value" in found.reason


def test_undefined_on_every_window_is_not_applicable():
    found = composites(parts({"stability": unit(np.nan, np.nan)}, {}))["ESS"]
    assert found == Skipped("not_applicable", "S is undefined on all 2 windows")


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 50), st.floats(0, 1)), min_size=1, max_size=6), st.floats(0, 1))
def test_composites_stay_in_the_unit_interval_and_between_their_components(pairs, weight):
    raw, fidelity = np.array(pairs).T
    weights = Weights(faithfulness=weight, fidelity=1 - weight)
    eqi = composites(parts({"faithfulness": Score(raw), "fidelity": Score(fidelity, fidelity)}, {}, weights=weights))
    values = eqi["EQI"]
    assert isinstance(values, Composite)
    scaled = np.clip(raw / 10, 0, 1)
    assert (values.values >= np.minimum(scaled, fidelity) - 1e-12).all()
    assert (values.values <= np.maximum(scaled, fidelity) + 1e-12).all()


def test_six_composites_with_titles():
    assert list(COMPOSITES) == list(TITLES) == list(LEVELS) == ["EQI", "ESS", "CCS", "EDTS", "HIR", "EEI"]


def test_worked_efficiency():
    score = efficiency(0.25, 1.0)
    assert (score.raw.tolist(), score.value.tolist()) == ([0.25], [0.8])
