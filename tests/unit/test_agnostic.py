"""The agnostic suite: studies of models, its tables, its three kinds of cells, its boards and radar."""

from dataclasses import replace

import numpy as np
import oracles
import pytest

from explainbench.analysis.board import Entry, Resampled
from explainbench.analysis.boards_agnostic import build
from explainbench.core.cell import Cell, Score, Skipped, stream
from explainbench.core.dataset import TaskData
from explainbench.core.errors import BadInput, NotApplicable
from explainbench.core.masking import Climatology, Groups
from explainbench.core.params import StatisticsParams
from explainbench.data._agnostic_tables import TABLES, generated, load_table, table, table_digest
from explainbench.figures_radar import draw_radars, traces
from explainbench.metrics import eamex
from explainbench.stages._agnostic_params import AgnosticParams
from explainbench.stages.agnostic_cell import (
    METHOD,
    _shifted,
    _swapped,
    judge_explanations,
    judge_forecaster,
    judge_table,
)
from explainbench.stages.cell import Bench

NINE = set(eamex.DEFINITIONS["paper"])
SMALL = AgnosticParams(
    tables=["generated_classes"],
    models={"logistic_regression": {}, "random_forest": {"trees": 5}},
    rows=60, explained=8, coalitions=40, top=3, points=6, forecast_points=5, repeats=2, learned=20, resamples=100,
)  # fmt: skip


def _rule(x):
    return (x[:, 0] + 2 * x[:, 3] > 0.5).astype(int)


def _study(preset="paper", task="classification"):
    rng = stream(0, "study")
    x = rng.standard_normal((120, 5))
    predict = _rule if task == "classification" else lambda rows: rows[:, 0] + 2 * rows[:, 3]
    y = predict(x + 0.3 * rng.standard_normal(x.shape))
    local = np.abs(x[:40]) * [1, 0.1, 0.1, 2, 0.1]
    return (
        x,
        y,
        predict,
        local,
        eamex.study(predict, x, y, task, local=local, preset=preset, top=2, bootstraps=2, rng=stream(0, "s")),
    )


@pytest.mark.parametrize("preset", ["paper", "holisticai"])
@pytest.mark.parametrize("task", ["classification", "regression"])
def test_a_study_gives_what_the_functions_give(preset, task):
    x, y, predict, local, study = _study(preset, task)
    scores, reasons = study.scores(preset=preset)
    assert scores.keys() == NINE
    assert not reasons
    assert scores["rank_consistency"] == eamex.rank_consistency(local, preset)
    assert scores["importance_stability"] == eamex.importance_stability(local, preset)
    tree = eamex.fit_surrogate(x, predict(x), task, preset).predict(x)
    assert scores["surrogate_fidelity"] == eamex.surrogate_fidelity(predict(x), tree, task, preset)
    assert scores["performance_degradation"] == eamex.performance_degradation(y, predict(x), tree, task)
    drawn = study.resampled(np.ones((1, 120)), np.ones((1, 40)), stream(0, "k"), preset=preset)
    for name in NINE - {"surrogate_feature_stability"}:  # each row once: the metric itself
        assert drawn[name][0] == pytest.approx(scores[name], abs=1e-12), name


def test_a_resample_is_scored_as_its_rows_would_be():
    _, y, _, local, study = _study()
    rows = stream(0, "rows").integers(0, 120, 120)
    times = np.bincount(rows, minlength=120)[None].astype(float)
    near = stream(0, "near").integers(0, 40, 40)
    drawn = study.resampled(times, np.bincount(near, minlength=40)[None].astype(float), stream(0, "k"))
    assert study.surrogate is not None
    found = eamex.surrogate_fidelity(study.output[rows], study.surrogate[rows], "classification")
    assert drawn["surrogate_fidelity"][0] == pytest.approx(found)
    found = eamex.performance_degradation(y[rows], study.output[rows], study.surrogate[rows], "classification")
    assert drawn["performance_degradation"][0] == pytest.approx(found)
    assert drawn["rank_consistency"][0] == pytest.approx(eamex.rank_consistency(local[near]))
    assert drawn["importance_stability"][0] == pytest.approx(eamex.importance_stability(local[near]))
    averaged = [replace(curve, ice=curve.ice[rows]) for curve in study.curves]
    assert drawn["fluctuation_ratio"][0] == pytest.approx(eamex.fluctuation_ratio(averaged))


def test_what_a_study_cannot_say_has_a_reason():
    x = stream(0, "constant").standard_normal((30, 3))
    study = eamex.study(lambda rows: np.ones(len(rows), dtype=int), x, np.arange(30) % 2, "classification")
    scores, reasons = study.scores()
    assert scores == {"fluctuation_ratio": 0.0}
    assert "no feature, permuted, makes the model worse" in reasons["spread_divergence"]
    assert "into one group, 1" in reasons["rank_alignment"]
    assert "all 30 rows into class 1" in reasons["surrogate_fidelity"]
    assert "no importances of single rows" in reasons["rank_consistency"]
    assert scores.keys() | reasons.keys() == NINE
    drawn = study.resampled(np.ones((2, 30)), np.ones((2, 0)), stream(0, "k"))
    assert drawn.keys() == scores.keys()
    with pytest.raises(BadInput, match="5 rows, fewer than the 10 bootstraps"):
        eamex.study(_rule, np.eye(5), [0, 1, 0, 1, 0], "classification")


def test_tables_by_name(tmp_path):
    split = generated("regression", stream(0, "table"))
    assert split.train_x.shape == (1500, 12)
    assert split.test_x.shape == (500, 12)
    halves = generated("classification", stream(0, "table"))
    np.testing.assert_array_equal(halves.train_x, split.train_x)
    assert np.concatenate([halves.train_y, halves.test_y]).mean() == 0.5
    again = load_table("generated_values", tmp_path, 1)
    np.testing.assert_array_equal(again.train_y, load_table("generated_values", tmp_path, 1).train_y)
    assert table("generated_classes").missing(tmp_path) is None
    assert "Adult, training part" in str(table("adult").missing(tmp_path))
    with pytest.raises(BadInput, match="'titanic' is not a table"):
        load_table("titanic", tmp_path, 0)
    assert len({table_digest(name, seed) for name in TABLES for seed in (0, 1)}) == 2 * len(TABLES)


@pytest.mark.parametrize("model", SMALL.models)
def test_a_model_of_a_table(model, tmp_path):
    cell = Cell("agnostic", "generated_classes", model, METHOD)
    split = load_table(cell.task, tmp_path, 0)
    judged = judge_table(SMALL, 0, cell, "classification", split)
    assert judged.result.scores.keys() == NINE
    for name, score in judged.result.scores.items():
        assert score.raw.shape == (1,), name
        assert 0 <= score.value[0] <= 1, name  # type: ignore[index]
    assert judged.arrays["draws"].shape == (100, 9)
    assert judged.arrays["importance"].shape == (8, 12)
    assert set(np.argsort(judged.arrays["permutation"])[-3:]) <= {0, 1, 2, 3, 4, 10}  # what the label depends on
    again = judge_table(SMALL, 0, cell, "classification", split)
    np.testing.assert_array_equal(again.arrays["draws"], judged.arrays["draws"])
    assert again.model_sha256 == judged.model_sha256


def _bench(n=12):
    windows = oracles.windows(n)
    climatology = Climatology.of(*oracles.series())
    return Bench(TaskData(windows, climatology, 20.0, "oracle", "0" * 64, {}), oracles.linear(), oracles.masker())


def test_groups_of_windows_are_permuted_and_shifted_exactly():
    bench = _bench()
    groups, context = bench.masker.groups, bench.data.windows.context
    sources = np.repeat(np.arange(3.0)[:, None], 8, axis=1)
    np.testing.assert_array_equal(_swapped(bench, sources), context[:3])
    sources[1, 2] = 5  # group 2 of window 1 comes from window 5
    swapped = _swapped(bench, sources)
    moved = groups.labels == 2
    np.testing.assert_array_equal(swapped[1][moved], context[5][moved])
    np.testing.assert_array_equal(swapped[1][~moved], context[1][~moved])
    means = np.column_stack([groups.average(context), np.arange(len(context))])
    np.testing.assert_allclose(_shifted(bench, means), context, atol=1e-12)
    means[4, 6] += 3
    shifted = _shifted(bench, means)
    np.testing.assert_allclose(shifted[4][groups.labels == 6], context[4][groups.labels == 6] + 3)
    np.testing.assert_allclose(groups.average(shifted), means[:, :-1])


def test_a_forecaster_as_a_black_box():
    bench = _bench()
    windows = bench.data.windows
    answered = replace(windows, target=bench.model.forecast(windows.context).mean)  # a model that errs nowhere
    bench = replace(bench, data=replace(bench.data, windows=answered))
    every = Groups.of(oracles.channels(), oracles.STEPS, oracles.SEGMENT, np.array([0, 1]))
    bench = replace(bench, masker=oracles.masker(used=(0,)))  # the model's explainers see the load only
    cell = Cell("agnostic", "T1", "linear", METHOD)
    judged = judge_forecaster(SMALL, 0, cell, bench, oracles.windows(20), every)
    assert judged.result.scores.keys() | judged.result.skipped.keys() == NINE
    assert judged.result.skipped.keys() == set(eamex.LOCAL)
    importance = judged.arrays["permutation"]
    assert importance.shape == (8,)
    assert (
        importance[:2].max() < 1e-12 * importance[2:4].min()
    )  # the oracle uses the last twelve steps of the load only
    assert (importance[4:] == 0).all()  # temperature is never asked about
    assert judged.result.scores["fluctuation_ratio"].raw[0] == 0.0  # a linear model
    assert judged.features == every.names
    assert judged.counters[0] > 0
    assert judged.model_seconds > 0


def test_stored_explanations_and_groups_a_model_does_not_see():
    every = Groups.of(oracles.channels(), oracles.STEPS, oracles.SEGMENT, np.array([0, 1]))
    cell = Cell("agnostic", "T1", "lstm", "shap")
    importance = stream(0, "stored").standard_normal((12, 4))
    importance[3] = 0
    windows = oracles.windows(12)
    stored = {"importance": importance, "regime": windows.regime, "origin": windows.origin}
    judged = judge_explanations(SMALL, 0, cell, stored, every.names[:4], every)
    whole = np.hstack([np.abs(importance), np.zeros((12, 4))])
    seen = np.arange(12) != 3
    want = eamex.explanation_scores(whole[seen], windows.regime[seen])
    assert {name: score.raw[0] for name, score in judged.result.scores.items()} == pytest.approx(want)
    assert judged.left_out == 1
    assert judged.result.scores.keys() | judged.result.skipped.keys() == NINE
    with pytest.raises(BadInput, match="is no group of the task now"):
        judge_explanations(SMALL, 0, cell, stored, [*every.names[:3], "load_mw[-48:-24]"], every)
    with pytest.raises(NotApplicable, match="0 of 12 windows"):
        judge_explanations(SMALL, 0, cell, stored | {"importance": importance * 0}, every.names[:4], every)


def _entry(model, method, values, source="trained"):
    rng = stream(0, "entry", model, method)
    scores = {name: Score(np.array([value])) for name, value in values.items()}
    draws = {name: value + 0.01 * rng.standard_normal(200) for name, value in values.items()}
    skipped = {name: Skipped("not_applicable", "one class") for name in NINE - values.keys()}
    return Entry(
        Cell("agnostic", "T1", model, method), f"id-{model}-{method}", "d" * 64, "p1", (), scores, skipped,
        weights_source=source, resampled=Resampled(30, draws),
    )  # fmt: skip


def test_boards_rank_models_in_the_metrics_direction():
    entries = [
        _entry("lstm", METHOD, {"alpha_importance": 0.2, "surrogate_fidelity": 0.995}),
        _entry("transformer", METHOD, {"alpha_importance": 0.4, "surrogate_fidelity": 0.9}),
        _entry("informer", METHOD, {"surrogate_fidelity": 0.9}),
        _entry("lstm", "shap", {"rank_consistency": 0.5}),
        _entry("lstm", "lime", {"rank_consistency": 0.7}),
        _entry("lstm", "grad_cam", {"rank_consistency": 0.0}),  # the other model has no such cell
        _entry("transformer", "shap", {"rank_consistency": 0.7}),
        _entry("transformer", "lime", {"rank_consistency": 0.9}),
    ]
    boards = {(board.score, board.basis): board for board in build(entries, StatisticsParams())}
    assert set(boards) == {
        ("alpha_importance", ""), ("surrogate_fidelity", ""), ("rank_consistency", "explanations")
    }  # fmt: skip
    alpha = boards["alpha_importance", ""]
    assert [(row.entry, row.order, row.status) for row in alpha.rows] == [
        ("lstm", 1, "value"), ("transformer", 2, "value"), ("informer", None, "not_applicable")
    ]  # fmt: skip
    assert alpha.rows[2].reason == "one class"
    assert "lower is better" in alpha.notes
    assert alpha.n == 30
    fidelity = boards["surrogate_fidelity", ""]
    assert fidelity.rows[0].entry == "lstm"
    assert fidelity.rows[0].high == 1.0  # an interval ends where the metric does
    local = boards["rank_consistency", "explanations"]
    assert [(row.entry, row.mean) for row in local.rows] == [
        ("transformer", pytest.approx(0.8)), ("lstm", pytest.approx(0.6))
    ]  # fmt: skip
    assert [ref.cell for ref in local.rows[1].cells] == ["agnostic/T1/lstm/lime", "agnostic/T1/lstm/shap"]
    official = build([*entries, _entry("chronos", METHOD, {"alpha_importance": 0.1}, "official")], StatisticsParams())
    chronos = [board.basis for board in official if any(row.entry == "chronos" for row in board.rows)]
    assert chronos
    assert all(basis.startswith("official") for basis in chronos)


def test_the_radar_turns_every_metric_outwards(tmp_path):
    row = {"model": "lstm", "mean": 0.2, "low": 0.1, "high": 0.4}
    boards = [
        {"task": "T1", "basis": "", "score": "alpha_importance", "rows": [row]},
        {"task": "T1", "basis": "", "score": "rank_alignment", "rows": [row, row | {"model": "gru", "mean": None}]},
        {"task": "T1", "basis": "explanations", "score": "alpha_importance", "rows": [row | {"mean": 0.9}]},
    ]
    found = traces(boards)
    assert found["T1"]["lstm"]["alpha_importance"] == pytest.approx((0.8, 0.6, 0.9))
    assert found["T1"]["lstm"]["rank_alignment"] == pytest.approx((0.2, 0.1, 0.4))
    assert "gru" not in found["T1"]
    written = draw_radars({"boards": boards}, tmp_path)
    assert [path.name for path in written] == ["T1.svg", "T1.png"]
    first = [path.read_bytes() for path in written]
    draw_radars({"boards": boards}, tmp_path)
    assert [path.read_bytes() for path in written] == first  # no time in a picture
    with pytest.raises(BadInput, match="hold no number"):
        draw_radars({"boards": []}, tmp_path)
