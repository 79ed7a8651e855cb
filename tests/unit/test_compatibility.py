"""The compatibility map: 58 pairs, a reason for each of the others, and no pair that the cards contradict."""

import pytest

from explainbench.core.errors import BadInput
from explainbench.core.grid import RULES, Compatibility, energy_grid, lacking, load_compatibility, obstacle
from explainbench.core.params import EnergyParams
from explainbench.core.registry import METHODS, MODELS

VERSIONS = ("compat-v1", "compat-v1-plain-lstm")


@pytest.mark.parametrize("version", VERSIONS)
def test_58_of_64_pairs_each_other_with_a_reason(version):
    found = load_compatibility(version)
    assert (len(found.models), len(found.methods)) == (8, 8)
    assert len(found.pairs) == len(set(found.pairs)) == 58
    reasons = [reason for each in found.excluded.values() for reason in each.values()]
    assert len(reasons) == 6
    assert all(len(reason.split()) > 4 for reason in reasons)


def test_no_registered_pair_lacks_what_its_method_needs():
    found = load_compatibility("compat-v1")
    assert set(found.models) <= set(MODELS.names())
    assert set(found.methods) <= set(METHODS.names())
    pairs = {pair: obstacle(*pair, found) for pair in found.pairs}
    assert set(pairs.values()) == {None}


def test_the_six_of_compat_v1_are_grad_cam():
    excluded = load_compatibility("compat-v1").excluded
    assert len(excluded) == 6
    assert all(set(reasons) == {"grad_cam"} for reasons in excluded.values())


def test_both_profiles_can_be_selected():
    for version in ("compat-v1", "compat-v1-plain-lstm"):
        compatibility = load_compatibility(version)
        assert not [pair for pair in compatibility.pairs if obstacle(*pair, compatibility)]


def test_capabilities_do_not_redefine_the_map():
    # the LSTM has attention and a feature map, and this profile excludes both all the same
    plain = load_compatibility("compat-v1-plain-lstm")
    assert lacking("lstm", "attention") is None
    assert "plain LSTM" in (obstacle("lstm", "attention", plain) or "")


def test_a_pair_that_the_cards_contradict_is_an_error():
    wrong = load_compatibility("compat-v1").model_copy(update={"excluded": {}})
    with pytest.raises(BadInput, match="holds timesfm x grad_cam, but grad_cam needs HasFeatureMap"):
        obstacle("timesfm", "grad_cam", wrong)


def test_entries_outside_the_map_go_by_their_cards():
    small = load_compatibility("compat-v1").model_copy(update={"methods": ("shap",), "excluded": {}})
    assert obstacle("lstm", "grad_cam", small) is None
    assert "HasFeatureMap" in (obstacle("moirai", "grad_cam", small) or "")
    assert obstacle("lstm", "recency", load_compatibility("compat-v1")) is None


def test_the_grid_has_116_ranked_cells():
    found = load_compatibility("compat-v1")
    task = {"target": "load_mw", "context": 96, "horizon": 4, "segment": 8, "windows_per_regime": 1}
    params = EnergyParams(
        dataset="bqeb_standin",
        tasks={"T1": task, "T2": task},
        models=list(found.models),
        methods=list(found.methods),
        baselines=["random"],
        metrics=[],
    )
    grid = energy_grid(params)
    assert sum(entry.obstacle is None and not entry.baseline for entry in grid) == 116
    assert sum(entry.obstacle is not None for entry in grid) == 12
    with pytest.raises(BadInput, match="'compat-v9' is no compatibility map; there are: compat-v1, "):
        energy_grid(params.model_copy(update={"compatibility": "compat-v9"}))


def test_a_reason_for_an_unknown_pair_is_refused():
    assert (RULES / "compat-v1.yaml").is_file()
    with pytest.raises(ValueError, match="not one of the map's pairs"):
        Compatibility(version="x", models=("lstm",), methods=("shap",), excluded={"lstm": {"lime": "a long reason"}})
