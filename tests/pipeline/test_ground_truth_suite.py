"""The ground-truth suite on the engine: generated, evaluated, brought together over datasets; and what it refuses."""

import json

import numpy as np
import pytest
import yaml

from explainbench.core.cell import Cell
from explainbench.core.errors import BadInput, Corrupt
from explainbench.core.params import Params, load_params
from explainbench.core.workspace import Workspace
from explainbench.metrics.xfa import VARIANTS
from explainbench.stages import ground_truth_data
from explainbench.stages._ground_truth_params import ground_truth_params
from explainbench.stages._planted import PLANTED
from explainbench.stages.evaluate import evaluate
from explainbench.stages.ground_truth import SUITE
from explainbench.stages.ground_truth_table import forecasts_table, table
from explainbench.store import CellStore

BLOCK = {
    "datasets": ["rr-1-3", "rr-3-9-10"],
    "rows": 400,
    "explained": 13,
    "models": ["logistic_regression", "random_forest"],
    "methods": ["anchor", "perturbation", "gradient"],
    "options": {"anchor": {"budget": 300, "longest": 2, "shared": 100}, "random_forest": {"trees": 5}},
}


def changed(params: Params, **block) -> Params:
    suites = params.suites.model_copy(update={"ground_truth": BLOCK | block})
    return params.model_copy(update={"suites": suites})


@pytest.fixture(scope="module")
def params(root):
    loaded = changed(load_params(root / "params.yaml"))
    return loaded.model_copy(update={"statistics": loaded.statistics.model_copy(update={"bootstrap": 200})})


@pytest.fixture(scope="module")
def scored(params, tmp_path_factory):
    folder = tmp_path_factory.mktemp("ground_truth")
    workspace = Workspace(folder, folder)
    ground_truth_data.generate_all(workspace, params)
    summary = evaluate(workspace, params, 1, lambda plan: None, lambda done: None, "ground_truth")
    assert not summary.failed
    return workspace


def test_the_grid_excludes_gradients_of_trees_and_has_both_baselines(scored, params):
    grid = SUITE.grid(scored, params)
    assert len(grid) == 2 * 2 * 5
    excluded = [entry for entry in grid if entry.obstacle]
    assert {(entry.cell.model, entry.cell.method) for entry in excluded} == {("random_forest", "gradient")}
    assert {entry.cell.method for entry in grid if entry.baseline} == {"random", "oracle"}


def test_datasets_are_described_and_validated(scored):
    card = ground_truth_data.card_of(scored, "rr-3-9-10")
    assert card["published_rank"] == 2
    assert card["rules"]["3"]["columns"] == ["x4", "x5", "x6"]
    assert len(card["explained_rows"]) == 13
    found = json.loads((scored.results / "ground_truth" / "expectations.json").read_text())
    assert found["success"]
    assert len(found["tables"]) == 2


def test_explained_rows_are_test_rows_and_as_many_of_each_rule(scored, params):
    part = ground_truth_data.load_split(scored, params, "rr-3-9-10")
    assert set(part.explained) <= set(part.test)
    assert not set(part.train) & set(part.test)
    counts = np.bincount(part.data.rule[part.explained])[[3, 9, 10]]
    assert counts.max() - counts.min() <= 1


def test_every_score_stands_beside_its_references_and_the_models_auc(scored):
    cell = Cell("ground_truth", "rr-1-3", "random_forest", "oracle")
    stored = next(item for item in CellStore(scored.cells) if item.cell == cell)
    scores = stored.record.scores
    assert scores["completeness"].raw == scores["specificity"].raw == 1.0
    for how in VARIANTS:
        assert scores[how].raw == pytest.approx(scores[f"{how}_perfect"].raw)
        assert {f"{how}_empty", f"{how}_everything", f"{how}_correct"} <= set(scores)
    assert scores["xfa_code_v1_empty"].raw == pytest.approx(100 / 3)
    assert 0.5 < scores["model_auc"].raw <= 1.0
    assert scores["xfa_text_correct"].n <= 13


def test_the_same_cell_again_is_the_same(scored, params):
    cell = Cell("ground_truth", "rr-1-3", "logistic_regression", "anchor")
    stored = next(item for item in CellStore(scored.cells) if item.cell == cell)
    again = SUITE.score(scored, params, cell)
    assert np.array_equal(again.arrays["importance"], stored.explanations()["importance"])
    spec = SUITE.spec(scored, params, cell)
    assert spec == stored.record.spec
    assert "explainbench.methods._tabular._anchor_search" in spec.sources
    assert "explainbench.stages.evaluate" not in spec.sources


def test_the_suite_over_its_datasets(scored, params):
    rows = {(row["model"], row["method"]): row for row in table(scored, params)}
    assert len(rows) == 9
    oracle, random = rows["random_forest", "oracle"], rows["random_forest", "random"]
    assert oracle["complete"]
    assert oracle["baseline"]
    assert oracle["xfa_text"]["mean"] == pytest.approx(100.0)
    assert oracle["xfa_text"]["mean"] > rows["random_forest", "anchor"]["xfa_text"]["mean"] > 0
    assert random["xfa_v2"]["low"] <= random["xfa_v2"]["mean"] <= random["xfa_v2"]["high"]
    assert random["xfa_code_v1"]["empty"] == pytest.approx(100 / 3, abs=1e-5)
    assert oracle["coverage"] == 100.0
    total = (oracle["xfa_text"]["mean"] + oracle["ops_normalised"]) / 2
    assert oracle["overall"] == pytest.approx(total, abs=1e-5)


def test_weights_of_datasets_matter(scored, params):
    only = table(scored, changed(params, weights={"rr-1-3": 1.0, "rr-3-9-10": 0.0}))
    row = next(item for item in only if (item["model"], item["method"]) == ("random_forest", "random"))
    stored = next(
        item
        for item in CellStore(scored.cells)
        if item.cell == Cell("ground_truth", "rr-1-3", "random_forest", "random")
    )
    assert row["xfa_text"]["mean"] == pytest.approx(stored.record.scores["xfa_text"].raw, abs=1e-5)


def test_a_changed_dataset_or_parameter_is_noticed(scored, params, tmp_path):
    with pytest.raises(BadInput, match="generated with other parameters"):
        ground_truth_data.load_split(scored, changed(params, test_share=0.3), "rr-1-3")
    with pytest.raises(BadInput, match="ground-truth generate"):
        SUITE.spec(Workspace(tmp_path, tmp_path), params, Cell("ground_truth", "rr-1-3", "random_forest", "random"))
    copy = Workspace(tmp_path, tmp_path / "copy")
    source = scored.output / "build" / "ground_truth"
    target = copy.output / "build" / "ground_truth"
    target.mkdir(parents=True)
    for name in ("rr-1-3.json", "rr-1-3.parquet"):
        (target / name).write_bytes((source / name).read_bytes())
    (target / "rr-1-3.parquet").write_bytes(b"x")
    with pytest.raises(Corrupt, match="not what its card describes"):
        ground_truth_data.load_split(copy, params, "rr-1-3")


def test_a_locked_cell_that_was_altered_is_noticed(scored, params, tmp_path):
    import shutil

    copy = Workspace(tmp_path, tmp_path / "out")
    shutil.copytree(scored.cells, copy.cells)
    shutil.copy(scored.lock, copy.lock)
    next(copy.cells.glob("ground_truth.*/scores.parquet")).write_bytes(b"x")
    with pytest.raises(Corrupt, match="SHA-256"):
        table(copy, params)


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ({"datasets": ["rr-1-99"]}, "'rr-1-99' is no combination of relationship rules"),
        ({"datasets": []}, "ground_truth.datasets: .*at least 1 item"),
        ({"datasets": ["rr-1-3", "rr-1-3"]}, "rr-1-3 is listed twice"),
        ({"models": []}, "ground_truth.models: .*at least 1 item"),
        ({"weights": {"rr-1-3": -1.0, "rr-3-9-10": 1.0}}, "numbers from zero on"),
        ({"weights": {"rr-1-3": 0.0, "rr-3-9-10": 0.0}}, "one of them above zero"),
        ({"datasets": ["rr-1-2"]}, "rr-1-2 is not one of the paper's 11 datasets"),
        ({"overall": {"xfa": 0.0, "ops": 0.0}}, "not both zero"),
        ({"overall": {"xfa": -1.0}}, "not both zero"),
        ({"top_k": 3}, "ground_truth.top_k"),
    ],
)
def test_bad_parameters_in_one_sentence(params, block, message):
    with pytest.raises(BadInput, match=message):
        ground_truth_params(changed(params, **block))


def test_too_many_rows_to_explain(scored, params):
    with pytest.raises(BadInput, match="cannot be explained of 80 test rows"):
        ground_truth_data.load_split(scored, changed(params, explained=81), "rr-1-3")


def test_selection_scores_the_pool_and_goes_on_where_it_stopped(params, tmp_path):
    workspace, seen = Workspace(tmp_path, tmp_path), []
    names = [f"rr-{a}-{b}" for a in (1, 2, 3, 4) for b in (5, 6, 7)]
    small = changed(params, rows=100, options={"random_forest": {"trees": 2}})
    chosen = ground_truth_data.select_datasets(workspace, small, names, lambda name, auc: seen.append(auc))
    assert len(chosen) == len(set(chosen)) == 11
    again = ground_truth_data.select_datasets(workspace, small, names, lambda name, auc: seen.append(auc))
    assert again == chosen
    assert seen[:12] == seen[12:]


def test_params_of_the_project_are_valid(root):
    raw = yaml.safe_load((root / "params.yaml").read_text(encoding="utf-8"))
    for profile in (None, "smoke"):
        block = ground_truth_params(load_params(root / "params.yaml", profile))
        assert set(block.datasets) <= set(block.complexity())
    assert raw["suites"]["ground_truth"]["models"][0] == "random_forest"


# Forecasts whose drivers are known


@pytest.fixture(scope="module")
def driven(project, finished, tmp_path_factory):
    """The tiny project's energy cells against the simulator's drivers, and planted forecasters; all evaluated."""
    import shutil

    forecasts = {"task": "T1", "methods": ["perturbation", "random"]}
    params = changed(
        project.params, datasets=["rr-1-3"], models=["logistic_regression"], methods=[], forecasts=forecasts
    )
    workspace = project.output(tmp_path_factory.mktemp("driven") / "out")
    shutil.copytree(finished.cells, workspace.cells)
    shutil.copy(finished.lock, workspace.lock)
    shutil.copytree(finished.results, workspace.results, dirs_exist_ok=True)
    ground_truth_data.generate_all(workspace, params)
    summary = evaluate(workspace, params, 1, lambda plan: None, lambda done: None, "ground_truth")
    assert not summary.failed
    return workspace, params


def test_energy_cells_are_scored_against_the_true_drivers(driven):
    workspace, params = driven
    energy = {item.cell: item for item in CellStore(workspace.cells) if item.cell.suite == "energy"}
    mine = [item for item in CellStore(workspace.cells) if item.cell.task == "T1" and item.cell.suite == "ground_truth"]
    assert {Cell("energy", item.cell.task, item.cell.model, item.cell.method) for item in mine} == {
        cell for cell in energy if cell.task == "T1"
    }
    for item in mine:
        source = energy[Cell("energy", "T1", item.cell.model, item.cell.method)]
        assert item.record.spec.parameters["task"]["result_digest"] == source.record.result_digest
        assert item.record.scores["xfa_text_perfect"].raw == pytest.approx(100.0)
    assert SUITE.spec(workspace, params, mine[0].cell) == mine[0].record.spec
    rows = forecasts_table(workspace, params)
    assert {row["task"] for row in rows} >= {"T1", "planted"}


def test_planted_forecasters_are_recovered_better_than_by_chance(driven):
    workspace, params = driven
    rows = {
        (row["model"], row["method"]): row for row in forecasts_table(workspace, params) if row["task"] == "planted"
    }
    assert {model for model, _ in rows} == set(PLANTED)
    for model in PLANTED:
        assert rows[model, "perturbation"]["xfa_v2"] > rows[model, "random"]["xfa_v2"]
    stored = next(
        item
        for item in CellStore(workspace.cells)
        if item.cell.method == "perturbation" and item.cell.task == "planted"
    )
    assert stored.record.evaluations_per_explanation > 0
    again = SUITE.score(workspace, params, stored.cell)
    assert np.array_equal(again.arrays["importance"], stored.explanations()["importance"])


def test_without_energy_cells_or_windows_they_are_pending(project, tmp_path):
    params = changed(project.params, forecasts={"task": "T1", "methods": ["random"]})
    grid = [cell for cell in SUITE.grid(Workspace(tmp_path, tmp_path), params) if not cell.cell.task.startswith("rr")]
    assert grid
    assert all(entry.pending and "run `explainbench" in entry.pending for entry in grid)


def test_methods_of_planted_forecasters_must_exist(project, params):
    with pytest.raises(BadInput, match="'nope' is not a registered method"):
        SUITE.grid(project.workspace, changed(params, forecasts={"task": "T1", "methods": ["nope"]}))
