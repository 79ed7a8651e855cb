"""The stage `checks` on the tiny project: what it asks of models, and forecasters whose right explanation is known."""

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from explainbench.core.cell import Cell
from explainbench.core.errors import BadInput, ExplainBenchError, NotApplicable
from explainbench.core.registry import METHODS
from explainbench.stages import _marks, _planted, _probes
from explainbench.stages._probes import Probe, Sizes
from explainbench.stages.cell import build_bench
from explainbench.stages.checks import FILE, _importance, checks, summary
from explainbench.stages.data import load_task
from explainbench.stages.fit import load_forecaster
from explainbench.store import CellStore

SMALL = Sizes(windows_per_regime=1, coalitions=64, samples=64, steps=8, runs=2, batch=8, redraws=1, resamples=100)


JOB = Cell("energy", "T1", "transformer", "checks")


@pytest.fixture(scope="module")
def loader(project):
    return partial(load_forecaster, project.workspace, "T1", "transformer", project.params)


@pytest.fixture(scope="module")
def probe(project, finished, loader):
    data = load_task(project.workspace, "T1")
    bench = build_bench(project.params, "T1", "transformer", data, loader())
    stored = _importance(finished, project.params, JOB, data.windows.digest())
    return Probe(project.params, SMALL, "T1", "transformer", bench, stored, np.arange(3))


@pytest.fixture(scope="module")
def document(project, finished):
    return checks(finished, project.params, 1, lambda job, seconds: None, SMALL)


def test_the_file_is_whole_plain_and_the_same_twice(project, finished, document):
    path = finished.results / FILE
    first = path.read_bytes()
    assert json.loads(first) == document
    assert b"seconds" not in first
    checks(finished, project.params, 1, lambda job, seconds: None, SMALL)
    assert path.read_bytes() == first
    assert {(row["task"], row["model"]) for row in document["masks"]} == {("T1", "transformer"), ("T2", "transformer")}
    for section in ("panel", "depths", "segments", "determinism", "baselines", "randomisation", "regimes", "aliases"):
        assert document[section], section
    assert {row["planted"] for row in document["planted_methods"]} == set(_planted.PLANTED)
    assert len(summary(document)) == 6


@pytest.mark.slow
def test_two_workers_write_the_bytes_of_one(project, finished, document, tmp_path):
    other = replace(finished, output=tmp_path)
    for name in ("build", "models", "cells", "cells.lock.json", "results"):
        if name != "results":
            (tmp_path / name).symlink_to(finished.output / name)
    checks(other, project.params, 2, lambda job, seconds: None, SMALL)
    assert (tmp_path / "results" / FILE).read_bytes() == (finished.results / FILE).read_bytes()


def test_no_finished_cells_is_said_and_nothing_written(project, tmp_path):
    empty = project.output(tmp_path / "empty")
    with pytest.raises(BadInput, match="no finished cells"):
        checks(empty, project.params, 1, lambda job, seconds: None, SMALL)
    assert not empty.results.exists()


def test_two_protocol_versions_in_one_store_are_refused_with_the_list(project, finished, tmp_path, monkeypatch):
    cells = list(CellStore(finished.cells))
    spec = cells[0].record.spec.model_copy(update={"protocol": "explainbench-0"})
    cells[0] = replace(cells[0], record=cells[0].record.model_copy(update={"spec": spec}))
    monkeypatch.setattr(CellStore, "__iter__", lambda self: iter(cells))
    with pytest.raises(BadInput, match=r"2 protocol versions cannot share a board .*explainbench-0: energy/T1"):
        checks(finished, project.params, 1, lambda job, seconds: None, SMALL)


def test_a_failing_job_writes_nothing(project, finished, document, monkeypatch):
    path = finished.results / FILE
    path.unlink()
    monkeypatch.setattr(_probes, "examine", lambda probe, load: (_ for _ in ()).throw(NotApplicable("no such thing")))
    with pytest.raises(ExplainBenchError, match="energy/T1/transformer/checks: no such thing; nothing was written"):
        checks(finished, project.params, 1, lambda job, seconds: None, SMALL)
    assert not path.exists()


def test_cells_of_other_windows_are_refused(project, finished):
    with pytest.raises(BadInput, match=r"energy/T1/transformer/.* was scored on other windows or weights"):
        _importance(finished, project.params, JOB, "another digest")


def test_a_subset_is_spread_over_time_and_even_over_regimes(probe):
    windows = probe.bench.data.windows.take(np.tile(np.arange(3), 5))
    rows = _probes.subset(windows, 2)
    assert len(rows) == 6
    assert (np.diff(rows) > 0).all()
    assert sorted(np.unique(windows.regime[rows], return_counts=True)[1]) == [2, 2, 2]
    assert len(_probes.subset(windows, 99)) == 15


def test_weights_are_redrawn_by_name_and_data_statistics_stay(probe, loader):
    plain, once, again, other = (dict(module(forecaster).named_parameters()) for forecaster in (
        loader(), _probes.redrawn(loader(), probe, 0), _probes.redrawn(loader(), probe, 0),
        _probes.redrawn(loader(), probe, 1),
    ))  # fmt: skip
    for name, tensor in plain.items():
        assert once[name].equal(again[name])
        assert once[name].flatten().sort().values.equal(tensor.flatten().sort().values)  # the same values, shuffled
        if len(set(tensor.flatten().tolist())) > 4:
            assert not once[name].equal(tensor), name
            assert not once[name].equal(other[name]), name
    buffers = dict(module(loader()).named_buffers())
    for name, buffer in module(_probes.redrawn(loader(), probe, 0)).named_buffers():
        assert buffer.equal(buffers[name])


def module(forecaster):
    return forecaster.module


def test_an_explanation_that_ignores_the_weights_gets_the_badge(probe, loader):
    """The recency baseline never looks at the model; a random one changes with every stream."""
    windows, masker = probe.windows, probe.bench.masker
    published = {name: probe.explain(name, probe.bench.model, windows, masker) for name in ("recency", "random")}
    rows = {row["method"]: row for row in _probes.randomisation(replace(probe, stored=published), loader)}
    assert rows["recency"]["verdict"] == "ignores the weights"
    assert rows["recency"]["value"] == 1.0
    assert rows["random"]["verdict"] == "changes"


def test_a_model_without_weights_has_a_reason(probe):
    rows = _probes.randomisation(probe, lambda: object())
    assert all(row["verdict"] is None and "HasTorchModule" in row["reason"] for row in rows)


def test_a_false_declaration_of_determinism_is_seen(probe, loader, monkeypatch):
    stored = dict.fromkeys(("random", "recency"), probe.stored["shap"])
    honest = _probes.repeated(replace(probe, stored=stored), loader)
    assert all(row["ok"] for row in honest["methods"])
    assert honest["twice"]
    assert honest["reloaded"]
    card, entry = METHODS._found["random"]
    monkeypatch.setitem(METHODS._found, "random", (replace(card, deterministic=True), entry))
    lying = {row["method"]: row["ok"] for row in _probes.repeated(replace(probe, stored=stored), loader)["methods"]}
    assert lying == {"random": False, "recency": True}


def test_a_stateful_model_is_seen(probe, loader):
    class Drifting:
        calls = 0

        def predict(self, context):
            self.calls += 1
            forecast = loader().predict(context)
            return replace(forecast, mean=forecast.mean + 1e-9 * self.calls)

    bench = replace(probe.bench, model=replace(probe.bench.model, forecaster=Drifting()))
    found = _probes.repeated(replace(probe, bench=bench, stored={}), loader)
    assert not found["twice"]
    assert not found["reloaded"]


def test_faithfulness_of_the_checks_is_that_of_the_cells(probe, finished):
    """The published scores again, from the stored importance under the cell's own mask."""
    depth = _probes.default_depth(probe.params, len(probe.bench.masker.groups))
    windows = probe.bench.data.windows
    for stored in CellStore(finished.cells):
        if (stored.cell.task, stored.cell.method) == ("T1", "shap"):
            table = stored.scores().to_pandas()
            published = table[table["metric"] == "faithfulness"].sort_values("window")["raw"].to_numpy()
    moved = _probes.changes(probe.bench.masker, probe.bench.model, windows, probe.stored["shap"], depth)
    np.testing.assert_allclose(moved.mean(axis=1), published, rtol=1e-12)


def plant(name, probe):
    spec = probe.params.suites.energy.tasks["T1"]
    return _planted.plant(name, probe.bench.masker, probe.windows.channels, spec)


@pytest.mark.parametrize("name", _planted.PLANTED)
def test_planted_truth_is_efficient_and_null_where_nothing_acts(probe, name):
    planted = plant(name, probe)
    truth = planted.truth(probe.windows)
    masked = planted.model(planted.masker.fill(probe.windows))
    np.testing.assert_allclose(truth.sum(axis=1), planted.model(probe.windows.context) - masked, atol=1e-8)
    assert not np.delete(truth, planted.acting, axis=1).any()
    moved = probe.windows.context.copy()
    silent = ~np.isin(planted.masker.groups.labels, planted.acting)
    moved[:, silent] += 100 * probe.windows.channels.std[np.nonzero(silent)[1]]
    np.testing.assert_array_equal(planted.model(moved), planted.model(probe.windows.context))


def test_planted_linear_truth_is_weight_times_distance(probe):
    """f is z averaged over the first segment of steps a day ago, in the target's unit: weights 1/segment."""
    planted = plant("seasonal", probe)
    spec = probe.params.suites.energy.tasks["T1"]
    target = probe.windows.channels.index(spec.target)
    distance = (probe.windows.context - planted.masker.fill(probe.windows))[:, : spec.segment, target]
    np.testing.assert_allclose(planted.truth(probe.windows)[:, planted.acting[0]], distance.mean(axis=1), atol=1e-9)


def test_methods_that_should_be_exact_are_and_baselines_are_not(probe):
    rows = {row["method"]: row for row in _marks.recovery(plant("seasonal", probe), probe)}
    for name in ("shap", "lime", "integrated_gradients"):
        assert rows[name]["exact"]
        assert rows[name]["error"] < 2e-3
        assert rows[name]["recall"]["value"] == 1.0
    assert rows["random"]["null_share"]["value"] > 0.5


def test_metrics_are_marked_on_the_planted_truth(probe):
    found = _marks.meta_evaluation(plant("linear_ar", probe), probe)
    assert found["faithfulness"]["wins"].mean() > 0.8
    assert found["fidelity"]["wins"].mean() > 0.8
    np.testing.assert_array_equal(
        found["stability"]["wins"], 0.5
    )  # the wrong explanation is as smooth as the right one
    assert "never looks at an explanation" in found["efficiency"]["reason"]


def test_an_unknown_planted_forecaster_is_refused(probe):
    with pytest.raises(BadInput, match="no planted forecaster"):
        plant("oracle", probe)
