"""EAMEX against the authors' library and the equations; each case's README says how it was made.

The one difference: the library's distance of a uniform vector is NaN (the square root of a rounding error), ours is 0.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from explainbench.metrics import eamex

HERE = Path(__file__).parent


def _case(name):
    with np.load(HERE / name / "inputs.npz") as stored:
        return {key: stored[key] for key in stored.files}, json.loads((HERE / name / "expected.json").read_text())


def test_golden_spread():
    inputs, expected = _case("eamex_spread")
    assert inputs.keys() == expected.keys()
    for name, importance in inputs.items():
        library = expected[name]["spread_divergence_lib(JS distance, base 2)"]
        paper = expected[name]["js_divergence_paper(= square)"]
        if isinstance(library, dict):
            library = 0.0
        assert eamex.spread_divergence(importance, "holisticai") == pytest.approx(library, abs=1e-10), name
        assert eamex.spread_divergence(importance) == pytest.approx(paper, abs=1e-10), name


def test_golden_rank_consistency_and_importance_stability():
    inputs, expected = _case("eamex_local_rank_consistency_stability")
    for name, local in inputs.items():
        want = expected[name]
        close = lambda key, want=want: pytest.approx(want[key], abs=1e-7)  # noqa: E731
        consistency, stability = eamex.rank_consistency_by_feature, eamex.importance_stability_by_feature
        assert eamex.rank_consistency(local, "holisticai") == close("rank_consistency_lib(lower=better)")
        assert eamex.rank_consistency(local) == close("rank_consistency_paper_def3.5(higher=better)")
        assert list(consistency(local, "holisticai")) == close("rank_consistency_lib_per_feature")
        assert eamex.importance_stability(local, "holisticai") == close("importance_stability_lib(lower=better)")
        assert eamex.importance_stability(local) == close("importance_stability_paper_def3.6(higher=better)")
        assert list(stability(local, "holisticai")) == close("importance_stability_lib_per_feature")
        weight = eamex.global_importance(local)
        assert weight @ consistency(local, "holisticai") == close("rank_consistency_lib_weighted")


def test_golden_fluctuation_ratio():
    inputs, expected = _case("eamex_fluctuation_ratio")
    for grid, curves, library, paper in (
        ("grid", "curves", "lib_even_grid", "formula_paper_even(n-2 below)"),
        ("grid_uneven", "curves_uneven", "lib_uneven_grid", "formula_paper_uneven"),
    ):
        x, y = inputs[grid], inputs[curves]
        np.testing.assert_allclose(eamex.fluctuations(x, y, "holisticai"), expected[library], atol=1e-12)
        np.testing.assert_allclose(eamex.fluctuations(x, y), expected[paper], atol=1e-12)
    both = [
        eamex.Curves("uneven", inputs["grid_uneven"], inputs["curves_uneven"]),
        eamex.Curves("even", inputs["grid"], inputs["curves"]),
    ]
    library = expected["lib_fluctuation_ratio_two_features(mean over ICE curves then features)"]
    assert eamex.fluctuation_ratio(both, "holisticai") == pytest.approx(library, abs=1e-12)
    average = expected["on_average_curve_instead(paper text)"]
    assert [eamex.fluctuation_ratio(one) * 98 / 100 for one in both] == pytest.approx(average, abs=1e-12)


def test_golden_surrogate_scores():
    i, expected = _case("eamex_surrogate_scores")
    degradation, fidelity = eamex.performance_degradation, eamex.surrogate_fidelity
    close = lambda key: pytest.approx(expected[key], abs=1e-10)  # noqa: E731
    assert degradation(i["y"], i["y_pred"], i["y_surrogate"], "classification") == close("accuracy_degradation")
    assert fidelity(i["y_pred"], i["y_surrogate"], "classification") == close("fidelity_classification")
    assert degradation(i["y_reg"], i["y_pred_reg"], i["y_surr_reg"], "regression") == close("mse_degradation")
    better = degradation(i["y_reg"], i["y_surr_reg"], i["y_pred_reg"], "regression")
    assert better == close("mse_degradation_surrogate_better(clipped to 0)")
    for model, tree, key in (
        ("y_pred_reg", "y_surr_reg", "fidelity_regression"),
        ("y_pred_reg_zeros", "y_surr_reg_zeros", "fidelity_regression_with_zeros"),
    ):
        assert fidelity(i[model], i[tree], "regression", "holisticai") == close(key)
        assert fidelity(i[model], i[tree], "regression") == pytest.approx(expected[key], abs=1e-8)
