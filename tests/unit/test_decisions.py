"""Counterfactual consistency, actionability, uncertainty awareness and deployment suitability, worked by hand."""

from dataclasses import replace

import numpy as np
import oracles
import pytest
from test_contexts import context

from explainbench.analysis.board import Entry
from explainbench.analysis.calibration import coverage
from explainbench.analysis.contexts import in_contexts, variance_shares
from explainbench.analysis.suitability import suitability, with_measurements
from explainbench.core.cell import Cell, Score, Skipped, stream
from explainbench.core.decision import Agent
from explainbench.core.errors import NotApplicable, Pending
from explainbench.core.evidence import Evidence
from explainbench.core.forecaster import ExplainedModel, Forecast
from explainbench.core.params import Weights
from explainbench.core.registry import METHODS, METRICS
from explainbench.core.search import Found, Plan, search
from explainbench.models._conformal import Conformal
from explainbench.stages.footprint import measured

RUNS = 4


def evidence(found: Found | None = None, contexts=(), model=None) -> Evidence:
    windows, memo = oracles.windows(), {}
    return Evidence(
        windows, model or oracles.nonlinear(), oracles.masker(), METHODS.card("shap"), (), 20.0,
        lambda at, run: pytest.fail("no metric of the model explains anything"),
        lambda purpose: pytest.fail("streams of the cell must not matter"),
        lambda purpose: stream(0, "task", purpose),
        lambda name, compute: memo.setdefault(name, found if found is not None else compute()),
        tuple(contexts),
    )  # fmt: skip


def runs_found(changes, valid) -> Found:
    """M runs, the same on every window: each changes one input by so many z-units, or is not valid."""
    windows = oracles.windows()
    change = np.zeros((len(windows), len(changes), *windows.context.shape[1:]))
    for run, (step, channel, size) in enumerate(changes):
        change[:, run, step, channel] = size
    ok = np.tile(np.array(valid, dtype=bool), (len(windows), 1))
    change[~ok] = 0.0
    distance = np.where(ok, np.abs(change).sum(axis=(2, 3)), np.inf)
    return Found(change, ok, distance)


def consistency(found: Found):
    return METRICS.build("counterfactual_consistency", {"runs": found.valid.shape[1]}).score(evidence(found))


def test_consistency_by_hand():
    found = runs_found([(-1, 0, 1.0), (-1, 0, 3.0), (-1, 0, 9.0), (-1, 0, 9.0)], [True, True, False, False])
    scores = consistency(found)
    # the box: 200 MW and 60 degrees wide, in deviations of 20 and 5, over 24 steps each
    diameter = np.sqrt(24 * ((200 / 20) ** 2 + (60 / 5) ** 2))
    expected = 2 * (1 - 1.0 / diameter) / 4  # centroid at 2: each of the two valid ones lies 1 away
    np.testing.assert_allclose(scores["counterfactual_consistency"].raw, expected, rtol=1e-12)
    np.testing.assert_allclose(scores["counterfactual_valid"].raw, 0.5)


def test_no_valid_counterfactual_is_consistency_zero_and_not_an_error():
    scores = consistency(runs_found([(-1, 0, 1.0)] * RUNS, [False] * RUNS))
    assert (scores["counterfactual_consistency"].value == 0).all()
    assert (scores["counterfactual_valid"].value == 0).all()


def test_equal_counterfactuals_are_fully_consistent():
    scores = consistency(runs_found([(-1, 0, 2.0)] * RUNS, [True] * RUNS))
    np.testing.assert_allclose(scores["counterfactual_consistency"].raw, 1.0)


def test_actionability_counts_valid_and_feasible_runs_per_context():
    load = context(load_mw={"last_steps": 2, "relative": 9.0}).model_copy(update={"name": "load"})
    fall = context(load_mw={"last_steps": 2, "relative": 9.0, "sign": "decrease"}).model_copy(update={"name": "fall"})
    found = runs_found([(-1, 0, 1.0), (-1, 0, -1.0), (-9, 0, 1.0), (-1, 0, 1.0)], [True, True, True, False])
    scores = METRICS.build("actionability", {"runs": RUNS}).score(evidence(found, [load, fall]))
    np.testing.assert_allclose(scores["act.load"].value, 2 / 4)
    np.testing.assert_allclose(scores["act_valid.load"].value, 2 / 3)
    np.testing.assert_allclose(scores["act.fall"].value, 1 / 4)
    assert scores["actionability"] is scores["act.load"]


def test_actionability_of_a_window_without_counterfactual():
    anything = context(load_mw={"last_steps": 24, "relative": 9.0})
    found = runs_found([(-1, 0, 1.0)] * RUNS, [False] * RUNS)
    scores = METRICS.build("actionability", {"runs": RUNS}).score(evidence(found, [anything]))
    assert (scores["actionability"].value == 0).all()
    assert np.isnan(scores["act_valid.mine"].raw).all()


def test_without_contexts_actionability_waits():
    with pytest.raises(Pending, match="names no deployment context"):
        METRICS.build("actionability").score(evidence())


def test_the_search_is_shared_and_has_the_seeds_of_the_task():
    scores = METRICS.build("counterfactual_consistency", {"runs": 2}).score(evidence())
    again = METRICS.build("counterfactual_consistency", {"runs": 2}).score(evidence())
    assert np.array_equal(scores["counterfactual_consistency"].raw, again["counterfactual_consistency"].raw)


def test_limits_in_time_hold():
    windows, masker = oracles.windows(), oracles.masker()
    even = oracles.Oracle(lambda context: 100 + 0.9 * (context[:, :, 0] - 100).mean(1))
    model = ExplainedModel(even)  # type: ignore[arg-type]
    agent = Agent.of(model, windows, masker)
    free = search(model, windows, masker, agent, Plan(runs=3), stream(0, "s"))
    bound = search(model, windows, masker, agent, Plan(runs=3, smooth=3, ramp=0.05), stream(0, "s"))
    steps = np.abs(np.diff(bound.change, axis=2, prepend=0.0))
    assert bound.valid.all()
    assert steps.max() <= 0.05 + 1e-9
    assert np.abs(np.diff(free.change, axis=2, prepend=0.0)).max() > 0.05


def test_a_flat_training_series_has_no_decision():
    masker = oracles.masker()
    flat = replace(masker, climatology=replace(masker.climatology, series=np.zeros_like(masker.climatology.series)))
    with pytest.raises(NotApplicable, match="thresholds leave a single action"):
        Agent.of(oracles.linear(), oracles.windows(), flat)


class Biased:
    """Forecasts zero; the truth is what the windows say."""

    def predict(self, context) -> Forecast:
        return Forecast(np.zeros((len(context), 1)))


def test_conformal_offsets_are_finite_sample_quantiles():
    windows = oracles.windows()
    rows = np.arange(19) % len(windows)
    residuals = np.arange(1.0, 20.0)[:, None]  # 1..19: the ceil(20 q)-th smallest
    many = replace(windows.take(rows), target=residuals[::-1].copy())
    levels = np.array([0.05, 0.5, 0.9])
    wrapped = Conformal.calibrated(Biased(), many, levels)
    assert wrapped.offsets.tolist() == [[1.0, 10.0, 18.0]]
    forecast = wrapped.predict(windows.context)
    assert forecast.quantiles.shape == (len(windows), 1, 3)
    assert (forecast.crossed == 0).all()
    with pytest.raises(NotApplicable, match="need more than 6 windows"):
        Conformal.calibrated(Biased(), windows, np.array([0.9]))


def test_crossing_quantiles_are_sorted_and_counted():
    quantiles = np.array([[[1.0, 2.0, 3.0], [2.0, 1.0, 3.0]], [[1.0, 1.0, 1.0], [1.0, 2.0, 2.5]]])
    found = Forecast.sorted(quantiles[..., 1], quantiles, np.array([0.1, 0.5, 0.9]))
    assert found.crossed.tolist() == [1, 0]
    assert (np.diff(found.quantiles, axis=-1) >= 0).all()


def test_coverage_and_awareness_by_hand():
    levels = np.array([0.25, 0.75])
    target = np.arange(8.0)[:, None]
    quantiles = np.tile(np.array([1.0, 7.0]), (8, 1, 1))  # covers 2 of 8 and all 8
    found = coverage(quantiles, target, levels, 2, 200, stream(0, "c"))
    assert found.observed.tolist() == [0.25, 1.0]
    assert found.awareness == pytest.approx(1 - (0 + 0.25) / 2)
    assert (found.low <= found.observed).all()
    assert found.interval[0] <= found.awareness <= found.interval[1] + 0.125


def profile(**more):
    return {"median_seconds": 1.0, "seconds": [0.5, 1.0, 3.0], "peak_mb": 3.0, "joules": 1.0} | more


def test_suitability_by_hand():
    here = context(load_mw={"last_steps": 1, "relative": 1.0})  # every reference is 1
    found = suitability(profile(), METHODS.card("shap"), here)
    assert (found.hardware, found.memory, found.energy) == (1.0, 0.25, 0.5)
    assert found.latency == pytest.approx(2 / 3)
    stored = 1.0 if METHODS.card("shap").stores == "nothing" else 0.5
    assert found.total == pytest.approx((1 + 0.25 + 2 / 3 + 0.5 + stored) / 5)
    with pytest.raises(Pending, match="holds no peak_mb"):
        suitability(profile(peak_mb=None), METHODS.card("shap"), here)


def entry(model="lstm", method="shap", **scores) -> Entry:
    skipped = {"deployment_suitability": Skipped("pending", "wait"), "efficiency": Skipped("pending", "wait")}
    given = {name: Score(np.array([value]), np.array([value])) for name, value in scores.items()}
    return Entry(Cell("energy", "T1", model, method), "id", "digest", "p", ("w",), given, skipped)


def test_measurements_are_joined_and_never_made_up():
    here = context(load_mw={"last_steps": 1, "relative": 1.0})
    cells = {"energy/T1/lstm/shap": profile()}
    joined = with_measurements(entry(), {"cells": cells}, 1.0, [here])
    assert joined.scores["efficiency"].value.tolist() == [0.5]
    assert joined.scores["dss.mine"].value == joined.scores["deployment_suitability"].value
    assert not joined.skipped
    old = with_measurements(entry(), {"cells": {"energy/T1/lstm/shap": {"median_seconds": 1.0}}}, 1.0, [here])
    assert old.skipped["deployment_suitability"].status == "pending"
    assert "dss.mine" not in old.scores
    assert with_measurements(entry(), None, 1.0, [here]).skipped["efficiency"].status == "pending"


def test_variance_is_due_to_what_varies():
    entries = [
        entry(model, method, **{"act.one": a, "act.two": a + 0.2, "uncertainty_awareness": 0.5})
        for model, a in (("lstm", 0.1), ("chronos", 0.3))
        for method in ("shap", "lime")
    ]
    rows = in_contexts(entries, ["one", "two"], Weights())
    assert len(rows) == 8
    shares = variance_shares(rows, "act")
    assert shares["context"] == pytest.approx(0.5)
    assert shares["model"] == pytest.approx(0.5)
    assert shares["method"] == pytest.approx(0.0, abs=1e-12)
    first = rows[0]
    assert first.values["edts"] == pytest.approx(0.5 * 0.1 + 0.5 * 0.5)
    assert first.values["eei"] is None
    assert "wait" in first.gaps["eei"]
    with pytest.raises(NotApplicable, match="no method has eei"):
        variance_shares(rows, "eei")


def test_a_footprint_sees_memory_and_work():
    with measured() as cost:
        held = np.ones(20_000_000)  # 160 MB
        held.sum()
    assert cost.seconds > 0
    assert cost.cpu_seconds > 0
    assert cost.peak_mb is None or 100 < cost.peak_mb < 400
