"""The AXE suite on the engine: its grid without public files, its four kinds of cells, its boards."""

import hashlib
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import oracles
import pytest
import yaml

from explainbench.analysis.board import Entry
from explainbench.analysis.boards import scores_from_columns
from explainbench.analysis.suites import disagreement, load_boards, suite_boards
from explainbench.core.cell import Cell, Score, stream
from explainbench.core.errors import BadInput, Corrupt, ExplainBenchError, Unavailable
from explainbench.core.params import StatisticsParams, load_params
from explainbench.core.tabular import RowExplanation
from explainbench.core.workspace import Workspace
from explainbench.data._agnostic_tables import PUBLIC
from explainbench.data._axe_tables import SOURCES, fetch_public, import_public, load_table
from explainbench.metrics._top_n import preset
from explainbench.models._tabular._fitted import Layered
from explainbench.stages._axe_params import axe_params
from explainbench.stages._axe_scores import Question, judge_method, judge_stored
from explainbench.stages.axe import PUBLIC_FILES
from explainbench.stages.evaluate import evaluate, plan
from explainbench.stages.replay import replay_cell
from explainbench.stages.suite import grid_status, load_suite, locked_cells
from explainbench.stages.verify import verify
from explainbench.store import CellStore, StoredCell, write_lock

AXE = {
    "rows": 400, "explained": 10, "k": [1, 3], "draws": 5,
    "tables": ["planted_bias", "german"],
    "models": ["logistic_regression", "random_forest", "published_lr"],
    "methods": ["gradient", "input_x_gradient", "smoothgrad"],
    "baselines": ["random"],
    "options": {"random_forest": {"trees": 5}},
    "fairwashing": {"tables": ["planted_bias"], "presets": {"ours": "explainbench"}, "draws": 5, "orders": 2},
    "forecast": {"windows": 24, "training": 80, "trees": 20},
}  # fmt: skip


@pytest.fixture(scope="module")
def root_folder(root, tmp_path_factory):
    folder = tmp_path_factory.mktemp("axe")
    raw = yaml.safe_load((root / "params.yaml").read_text(encoding="utf-8"))
    raw["suites"]["axe"] = AXE
    (folder / "params.yaml").write_text(yaml.safe_dump(raw), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def params(root_folder):
    return load_params(root_folder / "params.yaml")


@pytest.fixture(scope="module")
def finished(root_folder, params) -> Workspace:
    workspace = Workspace.find(root_folder)
    write_lock(workspace.lock, {"e" * 64: "of an energy cell that is not here"})
    summary = evaluate(workspace, params, 1, lambda plan: None, lambda outcome: None, "axe")
    assert not summary.failed
    assert summary.computed == 4 + 1 + 4 + 6  # logistic regression, forest (random only), Table 2, forecasting
    return workspace


def scores_of(stored: StoredCell):
    table = stored.scores()
    return scores_from_columns({key: table.column(key).to_pylist() for key in table.column_names})


def entry(stored: StoredCell) -> Entry:
    windows, scores, skipped = scores_of(stored)
    card = stored.record.spec.method_card
    return Entry(
        stored.cell, stored.record.cell_id, stored.digest, "p", windows, scores, skipped,
        baseline=card["category"] == "baseline", weights_source=stored.record.spec.weights_source,
    )  # fmt: skip


@pytest.fixture(scope="module")
def cells(finished) -> dict[str, StoredCell]:
    return {str(stored.cell): stored for stored in CellStore(finished.cells)}


def test_the_grid_says_what_does_not_fit_and_what_the_user_must_supply(root_folder, params):
    workspace = Workspace(root_folder, root_folder)
    entries = {str(entry.cell): entry for entry in load_suite("axe").grid(workspace, params)}
    assert "does not offer" not in (entries["axe/planted_bias/random_forest/random"].obstacle or "")
    assert "needs HasLayers" in (entries["axe/planted_bias/random_forest/gradient"].obstacle or "")
    assert "published for german, compas, adult only" in (
        entries["axe/planted_bias/published_lr/random"].obstacle or ""
    )
    pending = entries["axe/german/published_lr/gradient"].pending or ""
    assert "openxai_models/german_lr.npz" in pending
    assert "run `explainbench data public --from FOLDER`" in pending
    assert str(root_folder) not in pending  # grid.json is committed: no path of this machine
    assert entries["axe/german/logistic_regression/random"].baseline
    assert not any(entry.pending for name, entry in entries.items() if "german" not in name)


def test_all_suites_share_the_lock_and_the_grid(finished, params):
    locked = locked_cells(finished)
    assert len(locked["axe"]) == 15
    assert locked["energy"] == {"e" * 64: "of an energy cell that is not here"}  # kept, though nothing here knows it
    assert all(name == "axe" or not ids for name, ids in locked.items() if name != "energy")
    status = {row["cell"]: row["status"] for row in grid_status(finished)}
    assert status["axe/german/logistic_regression/gradient"] == "pending"
    assert status["axe/planted_bias/random_forest/gradient"] == "excluded"
    assert status["axe/planted_bias/logistic_regression/gradient"] == "scored"
    problems = verify(finished)
    assert len(problems) == 1
    assert problems[0].startswith("cell eeeeeeee")


def test_a_second_run_computes_nothing_and_a_replay_gives_the_same_bits(finished, params, cells):
    todo = plan(finished, params, "axe")
    assert (todo.todo, len(todo.done)) == ((), 15)
    for name in ("axe/planted_bias/logistic_regression/smoothgrad", "axe/forecast_attack/fairwashed/foil"):
        assert replay_cell(finished, params, cells[name]).same_bits


def test_a_changed_option_changes_only_its_cells(finished, params):
    changed = {**params.suites.axe, "options": {**AXE["options"], "smoothgrad": {"copies": 7}}}
    suites = params.suites.model_copy(update={"axe": changed})
    todo = plan(finished, params.model_copy(update={"suites": suites}), "axe").todo
    assert [str(cell) for cell in todo] == ["axe/planted_bias/logistic_regression/smoothgrad"]


def test_a_comparison_cell_holds_every_metric_and_what_to_read_beside_it(cells):
    _, scores, skipped = scores_of(cells["axe/planted_bias/logistic_regression/gradient"])
    assert not skipped
    agreements = ("feature", "rank", "sign", "signed_rank", "rank_correlation", "pairwise_rank")
    wanted = {"axe", "axe_k1", "axe_k3", "pgi", "pgu", *(f"agreement_{name}" for name in agreements)}
    assert wanted <= set(scores)
    assert {len(scores[name].raw) for name in ("axe_base_rate", "axe_random")} == {1}
    assert scores["agreement_feature"].raw == pytest.approx(1.0)  # a linear model's gradient is its coefficients
    assert scores["axe"].raw == pytest.approx((scores["axe_k1"].raw + scores["axe_k3"].raw) / 2)
    _, noise, _ = scores_of(cells["axe/planted_bias/logistic_regression/random"])
    assert scores["pgi"].raw.mean() > noise["pgi"].raw.mean()
    assert scores["pgu"].raw.mean() < noise["pgu"].raw.mean()
    _, _, skipped = scores_of(cells["axe/planted_bias/random_forest/random"])
    assert "agreement needs a linear model" in skipped["agreement"].reason


def test_table_2_as_cells(cells):
    for model in ("lime_1foil", "lime_2foils", "shap_1foil", "shap_2foils"):
        stored = cells[f"axe/table2_planted_bias/{model}/single_feature"]
        _, scores, _ = scores_of(stored)
        assert scores["ours_axe_detected"].raw.tolist() == [1.0]
        margin = scores["ours_axe_margin"].raw
        best = max(scores[name].raw.mean() for name in scores if name.startswith("ours_axe_foil"))
        assert margin.mean() == pytest.approx(scores["ours_axe_protected"].raw.mean() - best)
        assert scores["ours_axe_order_spread"].raw.tolist() == [0.0]  # our AXE does not know the order of the rows
        assert ("ours_axe_foil_2" in scores) == model.endswith("2foils")
        assert stored.record.notes["share_decided_by_protected"] > 0.85


def test_the_forecasting_attack_fools_what_masks(cells):
    def mean(model, ranking, score):
        return scores_of(cells[f"axe/forecast_attack/{model}/{ranking}"])[1][score].raw.mean()

    assert mean("honest", "driver", "faithfulness") > 3 * mean("honest", "foil", "faithfulness")
    assert mean("fairwashed", "foil", "faithfulness") > 0.6 * mean("fairwashed", "driver", "faithfulness")
    assert mean("fairwashed", "driver", "axe_regression") > mean("fairwashed", "foil", "axe_regression") + 0.2


def test_boards_show_the_rates_and_never_rank_a_baseline(cells):
    statistics = StatisticsParams(bootstrap=100)
    entries = [entry(stored) for stored in cells.values()]
    boards = {board["name"]: board for board in suite_boards("axe", entries, statistics, 1)}
    axe = boards["planted_bias.axe.methods.logistic_regression"]
    assert axe["counted"] == "rows or windows"
    assert all({"axe_base_rate", "axe_random"} <= set(row["extra"]) for row in axe["rows"])
    assert "random" not in axe["ranked"]
    assert all(row["low"] <= row["mean"] <= row["high"] for row in axe["rows"])
    pgu = boards["planted_bias.pgu.methods.logistic_regression"]
    ranked = [row["mean"] for row in pgu["rows"] if not row["baseline"]]
    assert ranked == sorted(ranked)
    assert "lower is better" in pgu["notes"]
    assert len(boards["table2_planted_bias.ours_axe_margin.cells"]["rows"]) == 4
    wanted = {score for pair in load_boards("axe").compared for score in pair}
    assert wanted <= {board.score for board in load_boards("axe").metrics} | {
        name for board in load_boards("axe").metrics for name in board.companions
    }


def test_disagreement_of_two_orders(cells):
    entries = [entry(stored) for stored in cells.values()]
    rows = {(row["model"], row["one"], row["other"]): row for row in disagreement("axe", entries)}
    found = rows["logistic_regression", "axe", "pgi"]
    assert found["methods"] == 3  # the random baseline has no say
    assert found["tau"] is None or -1 <= found["tau"] <= 1
    three = [e for e in entries if e.cell.model == "logistic_regression" and not e.baseline]
    planted = [
        replace(e, scores={"axe": Score(np.full(4, float(i))), "pgu": Score(np.full(4, float(i)))})
        for i, e in enumerate(three)
    ]
    assert [row["tau"] for row in disagreement("axe", planted)] == [-1.0]  # a high PGU is bad
    assert disagreement("axe", planted[:2]) == []  # two orders of two methods say nothing


# The regression extension


def test_the_extension_finds_the_groups_that_act():
    windows, masker = oracles.windows(20), oracles.masker()
    model = oracles.nonlinear()
    acting = np.isin(np.arange(8), oracles.ACTING).astype(float) * (1 + np.arange(8))
    beside = {"faithfulness": Score(np.ones(20))}

    def judged(importance):
        stored = {"output": model(windows.context), "importance": np.tile(importance, (20, 1))}
        return judge_stored(Cell("axe", "T1", "m", "x"), 1, windows, masker, stored, beside, 3)

    good, bad = judged(acting), judged(acting[::-1])
    assert good.scores["axe_regression"].raw.mean() > bad.scores["axe_regression"].raw.mean()
    assert np.array_equal(good.scores["axe_regression_random"].raw, bad.scores["axe_regression_random"].raw)
    assert good.scores["faithfulness"] is beside["faithfulness"]
    assert np.isnan(judged(np.zeros(8)).scores["axe_regression"].raw).all()  # ranks nothing


# Bad input


def question(model, rows=60):
    x = stream(0, "question").standard_normal((rows, 3))
    return Question(x, np.arange(10), x, np.zeros(3, dtype=bool), None, model)


class Fixed:
    """A method that returns what it is given."""

    def __init__(self, attribution):
        self.attribution = attribution

    def explain(self, model, rows, background, rng):
        return RowExplanation(np.broadcast_to(self.attribution, rows.shape).copy())


def linear(weight, bias=0.0):
    return Layered(np.zeros(3), np.ones(3), ((np.array(weight)[:, None], np.array([bias])),), "classification")


def judge(model, attribution, k=(1,)):
    cell = Cell("axe", "t", "m", "x")
    return judge_method(cell, 1, question(model), Fixed(attribution), 1, preset("explainbench"), k, 3)


def test_an_explanation_that_is_not_finite_names_the_cell_and_the_row():
    with pytest.raises(ExplainBenchError, match="cell axe/t/m/x: the explanation of row 0 is not finite"):
        judge(linear([1.0, 0.0, 0.0]), [np.nan, 1.0, 1.0])


def test_constant_predictions_have_no_axe_but_have_gaps():
    judged = judge(linear([0.1, 0.0, 0.0], 50.0), [1.0, 2.0, 3.0])
    assert "undefined for a constant model" in judged.skipped["axe"].reason
    assert "axe" not in judged.scores
    assert "pgi" in judged.scores


def test_an_explanation_of_zeros_gets_neither_credit_nor_a_rank_correlation():
    judged = judge(linear([1.0, 0.0, 0.0]), np.zeros(3))
    assert 0 < judged.scores["axe"].raw.mean() < 1
    assert np.isnan(judged.scores["agreement_rank_correlation"].raw).all()


def test_more_neighbours_than_rows_are_refused():
    with pytest.raises(BadInput, match="k = 99 neighbours cannot be found among 60 rows"):
        judge(linear([1.0, 0.0, 0.0]), [1.0, 2.0, 3.0], k=(99,))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tables": ["iris"]}, "'iris' is not a table; there are four_gaussians"),
        ({"fairwashing": {"tables": ["pima"], "presets": {}}}, "'pima' is not a table of Table 2"),
        ({"preset": "nope"}, "'nope' is not a preset of the AXE suite"),
        ({"models": ["nope"]}, "'nope' is not a registered tabular model"),
        ({"methods": ["nope"]}, "'nope' is not a registered tabular method"),
        ({"k": [0]}, r"suites\.axe\.k\.0"),
        ({"colour": "red"}, r"suites\.axe\.colour: Extra inputs"),
    ],
)
def test_a_wrong_block_is_one_sentence(root_folder, params, change, said):
    suites = params.suites.model_copy(update={"axe": {**params.suites.axe, **change}})
    with pytest.raises(BadInput, match=said):
        plan(Workspace(root_folder, root_folder / "nothing"), params.model_copy(update={"suites": suites}), "axe")


def test_no_block_no_suite(params):
    suites = params.suites.model_copy(update={"axe": {}})
    with pytest.raises(BadInput, match=r"no block suites\.axe"):
        axe_params(params.model_copy(update={"suites": suites}))
    with pytest.raises(BadInput, match="'AXE' is not a suite; there are energy"):
        load_suite("AXE")


# Public files


def test_importing_checks_every_file_before_it_copies_any(tmp_path):
    with pytest.raises(BadInput, match=f"holds none of the {len(PUBLIC_FILES)} public files"):
        import_public(tmp_path, tmp_path / "to", PUBLIC_FILES)
    (tmp_path / "pima").mkdir()
    (tmp_path / "pima" / "pima_indians_diabetes_raw.csv").write_text("1,2\n")
    with pytest.raises(BadInput, match="but the published file has"):
        import_public(tmp_path, tmp_path / "to", PUBLIC_FILES)
    assert not (tmp_path / "to").exists()


def test_fetching_checks_what_a_source_serves(tmp_path):
    there = tmp_path / "served.csv"
    there.write_bytes(b"1,2\n")
    sources, digest = {"a/b.csv": there.as_uri()}, hashlib.sha256(b"1,2\n").hexdigest()
    with pytest.raises(Corrupt, match="it was not kept"):
        fetch_public(tmp_path / "to", sources, {"a/b.csv": "0" * 64})
    assert not (tmp_path / "to").exists()
    assert fetch_public(tmp_path / "to", sources, {"a/b.csv": digest}) == ["a/b.csv"]
    assert fetch_public(tmp_path / "to", sources, {"a/b.csv": digest}) == []  # it is there
    there.unlink()
    with pytest.raises(Unavailable, match="offline, name a folder that holds the file with --from"):
        fetch_public(tmp_path / "other", sources, {"a/b.csv": digest})
    assert SOURCES.keys() < PUBLIC_FILES.keys()


def test_the_command_imports_what_every_suite_wants(shared, root, tmp_path):
    shutil.copy(root / "params.yaml", tmp_path / "params.yaml")
    command = [
        sys.executable,
        "-m",
        "explainbench.cli",
        "--root",
        tmp_path,
        "data",
        "public",
        "--from",
        shared / "data",
    ]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    wanted = {**PUBLIC_FILES, **PUBLIC}
    assert f"{len(wanted)} files added, {len(wanted)} of {len(wanted)} in" in said
    for suite in ("axe", "agnostic"):
        grid = load_suite(suite).grid(Workspace.find(tmp_path), load_params(tmp_path / "params.yaml"))
        assert not [entry.pending for entry in grid if "public" in (entry.pending or "")]


def test_imported_files_make_their_cells_runnable(shared, root_folder, params, tmp_path):
    shutil.copy(root_folder / "params.yaml", tmp_path / "params.yaml")
    copied = import_public(shared / "data", tmp_path / "public", PUBLIC_FILES)
    assert copied == sorted(PUBLIC_FILES)
    workspace = Workspace.find(tmp_path)
    grid = load_suite("axe").grid(workspace, params)
    assert not any(entry.pending for entry in grid)
    german = next(entry.cell for entry in grid if str(entry.cell) == "axe/german/published_lr/gradient")
    spec = load_suite("axe").spec(workspace, params, german)
    assert spec.weights_source == "official"
    assert spec.weights_sha256 == PUBLIC_FILES["openxai_models/german_lr.npz"]
    outcome = load_suite("axe").score(workspace, params, german)
    assert outcome.result.scores["agreement_feature"].raw == pytest.approx(1.0)
    assert len(outcome.groups) == 60


def test_generated_tables_are_the_same_for_the_same_seed(tmp_path):
    one, two = (load_table("four_gaussians", tmp_path, 200, 3) for _ in range(2))
    assert one.digest == two.digest
    assert one.digest != load_table("four_gaussians", tmp_path, 200, 4).digest
    assert len(one.train) + len(one.test) == 200
