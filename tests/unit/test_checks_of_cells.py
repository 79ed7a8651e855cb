"""What the checks say from finished cells alone, on cells made by hand."""

from dataclasses import replace

import numpy as np
import pytest

from explainbench.analysis.board import Entry
from explainbench.analysis.comparisons import holm
from explainbench.core.cell import Cell, Score, Skipped
from explainbench.core.errors import BadInput
from explainbench.core.params import load_params
from explainbench.stages import _finished
from explainbench.stages._finished import Finished, Grid

N = 24
REGIME = np.array(["off_peak", "peak", "ramp"] * (N // 3))
SKILL = {"shap": 0.8, "lime": 0.6, "integrated_gradients": 0.7, "perturbation": 0.7, "random": 0.0}


@pytest.fixture(scope="module")
def params(root):
    full = load_params(root / "params.yaml")
    return full.model_copy(update={"statistics": full.statistics.model_copy(update={"bootstrap": 300})})


def finished(method, model="lstm", n=N, scores=None, protocol="explainbench-1"):
    rng = np.random.default_rng([len(method), len(model)])
    skill = SKILL[method] + rng.normal(0, 0.05, n)
    stable = np.clip(0.7 + rng.normal(0, 0.05, n), 0, 1)
    found = {
        "faithfulness": Score(50 * (skill + 1)),
        "faithfulness_skill": Score(skill),
        "stability": Score(stable, stable),
        "actionability": Score(np.full(n, 0.2 * len(model)), np.full(n, 0.02 * len(model))),
        "uncertainty_awareness": Score(np.array([1 / len(model)]), np.array([1 / len(model)])),
    }
    skipped = {"deployment_suitability": Skipped("pending", "not profiled yet")}
    if method in ("shap", "lime"):
        found["fidelity"] = Score(stable, stable)
    else:
        skipped["fidelity"] = Skipped("not_applicable", "the method induces no local surrogate")
    cell = Cell("energy", "T1", model, method)
    windows = tuple(f"2024-01-{day + 1:02d}T00:00" for day in range(n))
    entry = Entry(
        cell, f"id of {cell}", "digest", protocol, windows, found | (scores or {}), skipped, method == "random",
        method in ("integrated_gradients", "perturbation"),
    )  # fmt: skip
    importance = np.random.default_rng(0 if method != "shap" else 1).random((n, 6))
    return Finished(entry, REGIME[:n], lambda: importance)


def grid(*models, n=N, **scores):
    names = models or ("lstm", "transformer", "moirai")
    return Grid({
        each.entry.cell: each
        for each in (finished(method, model, n, scores) for model in names for method in SKILL)
    })  # fmt: skip


def by(rows, **wanted):
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def test_weights_are_ablated_where_a_composite_has_its_components(params):
    rows = _finished.weights(grid(), params)
    (quality,) = by(rows, composite="EQI")
    assert quality["entries"] == 6  # shap and lime on three models
    assert len(quality["points"]) == 11
    assert {tuple(point["weights"]): point["tau"] for point in quality["points"]}[0.5, 0.5] == pytest.approx(1.0)
    assert quality["lowest_tau"] < 1
    assert sum(share["share"] for share in quality["shares"]) == pytest.approx(1.0)
    (transparency,) = by(rows, composite="EDTS")
    assert transparency["entries"] == 3  # it cannot depend on the method, so a model is one entry
    (efficiency,) = by(rows, composite="EEI")
    assert (efficiency["entries"], efficiency["points"]) == (0, [])
    assert "efficiency" in efficiency["reason"]
    (suitability,) = by(rows, composite="DSS")
    assert "not profiled" in suitability["reason"]


def test_the_five_terms_of_suitability_are_weighted_too(params):
    cells = grid()
    timed = {
        str(cell): {"median_seconds": 0.1, "seconds": [0.1 * k, 3.0], "peak_mb": 100.0 * k, "joules": 1.0 + k}
        for k, cell in enumerate(cells.cells, 1)
    }
    (row,) = by(_finished.weights(replace(cells, profile={"cells": timed}), params), composite="DSS")
    assert (row["entries"], len(row["points"]), row["default"]) == (12, 70, [0.2] * 5)
    assert row["lowest_tau"] < 1
    assert sum(share["share"] for share in row["shares"]) == pytest.approx(1.0)


def test_the_random_ranking_is_last_and_beaten(params):
    (row,) = by(_finished.baselines(grid("lstm"), params), metric="faithfulness_skill", baseline="random")
    assert (row["place"], row["methods"], row["below"]) == (5, 4, ())
    assert set(row["above"]) == {"shap", "lime", "integrated_gradients", "perturbation"}
    assert row["low"] < row["value"] < row["high"]


def test_diagnosticity_per_metric(params):
    rows = _finished.diagnosticity(grid(), params)
    (faithful,) = by(rows, metric="faithfulness")
    assert (faithful["value"], faithful["n"], faithful["cells"]) == (1.0, N, 12)
    (stable,) = by(rows, metric="stability")
    assert 0.3 < stable["value"] < 0.7
    (model_level,) = by(rows, metric="actionability")
    assert model_level["value"] is None
    assert "never looks at an explanation" in model_level["reason"]
    (surrogate,) = by(rows, metric="fidelity")
    assert surrogate["value"] is None


def test_metrics_disagree_over_cells(params):
    (found,) = _finished.metric_disagreement(grid(), params)
    pairs = {tuple(pair["metrics"]): pair for pair in found["pairs"]}
    assert pairs["faithfulness_skill", "faithfulness"]["rho"] == pytest.approx(1.0)
    assert pairs["actionability", "uncertainty_awareness"]["rho"] == pytest.approx(-1.0)
    assert 1 < found["effective"] < len(found["effective_of"])


def test_regimes_and_their_interaction(params):
    failing = np.where(REGIME == "ramp", -0.5, 0.0)
    cells = grid("lstm")
    lime = cells.cells[Cell("energy", "T1", "lstm", "lime")]
    skill = Score(lime.entry.scores["faithfulness_skill"].raw + failing)
    entry = replace(lime.entry, scores={**lime.entry.scores, "faithfulness_skill": skill})
    torn = Grid({**cells.cells, lime.entry.cell: replace(lime, entry=entry)})
    (row,) = by(_finished.regimes(torn, params), metric="faithfulness_skill")
    assert row["p"] < 0.001
    assert row["p_holm"] == row["p"]
    assert row["methods"]["lime"]["ramp"] < row["methods"]["lime"]["peak"] - 0.3
    assert row["level"]["branch"] in ("anova+games-howell", "kruskal-wallis+dunn")
    assert row["level"]["p_holm"] == row["level"]["p"]  # one model is a family of one
    pairs = row["level"]["pairs"]
    assert [(pair["one"], pair["other"]) for pair in pairs] == [
        ("off_peak", "peak"), ("off_peak", "ramp"), ("peak", "ramp"),
    ]  # fmt: skip
    assert all(pair["low"] <= pair["delta"] <= pair["high"] for pair in pairs)
    assert [pair["p_holm"] for pair in pairs] == pytest.approx(holm(np.array([pair["p"] for pair in pairs])))
    (even,) = by(_finished.regimes(cells, params), metric="faithfulness_skill")
    assert even["p"] > 0.01


def test_only_deterministic_signed_methods_can_be_aliases():
    (row,) = _finished.aliases(grid("lstm"))
    assert row["compared"] == ["integrated_gradients", "perturbation"]
    assert row["classes"] == ["integrated_gradients=perturbation"]  # lime agrees too, by chance of its seed


def test_one_window_per_cell_has_reasons_and_no_intervals(params):
    cells = grid("lstm", n=1)
    for row in (*_finished.baselines(cells, params), *_finished.diagnosticity(cells, params)):
        assert row["value"] is None
        assert row["reason"]
    assert all(row["p"] is None and row["reason"] for row in _finished.regimes(cells, params))
    (quality,) = by(_finished.weights(cells, params), composite="EQI")
    assert "at least 3 entries" in quality["reason"]


def test_constant_scores_are_ties_everywhere(params):
    same = {name: Score(np.full(N, 0.5), np.full(N, 0.5)) for name in ("faithfulness_skill", "stability", "fidelity")}
    same["faithfulness"] = Score(np.full(N, 20.0))
    cells = grid("lstm", **same)
    (row,) = by(_finished.baselines(cells, params), metric="faithfulness_skill")
    assert (row["place"], row["above"], row["below"]) == (1, (), ())
    (won,) = by(_finished.diagnosticity(cells, params), metric="faithfulness")
    assert (won["value"], won["low"], won["high"]) == (0.5, 0.5, 0.5)
    assert all(row["p"] == 1.0 for row in by(_finished.regimes(cells, params), metric="faithfulness_skill"))
    (quality,) = by(_finished.weights(cells, params), composite="EQI")
    assert "at least 3 entries" in quality["reason"]  # two cells with the same components are one entry
    (found,) = _finished.metric_disagreement(cells, params)
    assert found["effective"] is None


def test_all_nan_rows_leave_with_a_reason(params):
    gone = {name: Score(np.full(N, np.nan)) for name in ("faithfulness", "faithfulness_skill", "stability", "fidelity")}
    cells = grid("lstm", **gone)
    rows = (
        _finished.baselines(cells, params) + _finished.diagnosticity(cells, params) + _finished.weights(cells, params)
    )
    assert all(row["reason"] for row in rows)
    assert all(row["p"] is None and row["reason"] for row in _finished.regimes(cells, params))


def test_nan_windows_are_dropped_for_all_and_counted(params):
    cells = grid("lstm")
    shap = cells.cells[Cell("energy", "T1", "lstm", "shap")]
    shap.entry.scores["faithfulness_skill"].raw[:2] = np.nan
    (row,) = by(_finished.regimes(cells, params), metric="faithfulness_skill")
    assert sum(row["n"].values()) == N - 2


def test_a_model_without_cells_is_refused():
    with pytest.raises(BadInput, match="'informer' is no model with finished cells; there are lstm"):
        grid("lstm").only({"informer"})
