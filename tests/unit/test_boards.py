import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from explainbench.analysis.board import Entry, board_json
from explainbench.analysis.boards import build_boards, check_entries, scores_from_columns
from explainbench.analysis.composites import efficiency
from explainbench.analysis.intervals import mean_intervals, resample_indices
from explainbench.analysis.normalise import Bound, Bounds
from explainbench.core.cell import Cell, Score, Skipped, stream
from explainbench.core.errors import BadInput
from explainbench.core.params import StatisticsParams

STATISTICS = StatisticsParams(bootstrap=300)
BOUNDS = Bounds(version="v1", tasks={"T1": {"faithfulness": Bound(hi=10.0)}})
METHODS = {"shap": 3.0, "lime": 2.5, "integrated_gradients": 4.0, "random": 1.0}
N = 20


def entry(method, model="lstm", task="T1", n=N, **changes):
    rng = np.random.default_rng(len(method))
    hardness = np.random.default_rng(0).uniform(0.5, 1.5, n)
    raw = METHODS[method] * hardness + rng.normal(0, 0.2, n)
    stable = np.clip(0.7 + rng.normal(0, 0.05, n), 0, 1)
    skill = (raw - hardness) / (4 * hardness)
    scores = {
        "faithfulness": Score(raw),
        "faithfulness_skill": Score(skill),
        "diagnosticity": Score(np.ones(n), np.ones(n)),
        "stability": Score(stable, stable),
        "lipschitz": Score(1 - stable),
        "noise_floor": Score(np.full(n, 0.5 if method in ("shap", "lime") else 0.0)),
        "efficiency": efficiency(0.25 if model == "lstm" else 0.5, 1.0),
    }
    skipped = {name: Skipped("pending", f"no {name} yet") for name in ("actionability", "human_interpretability")}
    skipped["counterfactual_consistency"] = Skipped("pending", "no searches yet")
    skipped["uncertainty_awareness"] = Skipped("pending", "no coverage yet")
    skipped["deployment_suitability"] = Skipped("pending", "no contexts yet")
    if method in ("shap", "lime"):
        scores["fidelity"] = Score(stable, stable)
    else:
        skipped["fidelity"] = Skipped("not_applicable", "no surrogate")
    cell = Cell("energy", task, model, method)
    given = Entry(
        cell,
        f"id of {cell}",
        f"digest of {cell}",
        "explainbench-1",
        tuple(f"2024-01-{day + 1:02d}T00:00" for day in range(n)),
        scores,
        skipped,
        baseline=method == "random",
        deterministic=method == "integrated_gradients",
        weights_source="fitted",
    )
    return replace(given, **changes)


def pilot(**changes):
    return [entry(method, model, **changes) for model in ("lstm", "transformer") for method in METHODS]


def with_score(item, name, values):
    values = np.asarray(values, dtype=float)
    return replace(item, scores={**item.scores, name: Score(values, values)})


def boards(entries, bounds=BOUNDS, **more):
    return {board.name: board for board in build_boards(entries, STATISTICS, 42, bounds, **more)}


def rows(board):
    return {row.entry: row for row in board.rows}


def test_the_boards_of_the_pilot():
    composite = {"EQI.F", "EQI.F+Fid", "ESS.S", "CCS", "EDTS", "HIR", "EEI.Eff"}
    metrics = {"faithfulness", "faithfulness_skill", "fidelity", "stability"}
    expected = {f"T1.{name}.cells" for name in composite} | {"T1.faithfulness_skill.models"}
    for model in ("lstm", "transformer"):
        expected |= {f"T1.{name}.methods.{model}" for name in (composite - {"CCS", "EDTS"}) | metrics}
    assert boards(pilot()).keys() == expected


def test_bases_are_never_ranked_together_and_each_cell_is_ranked_once():
    found = boards(pilot())
    with_fidelity, alone = found["T1.EQI.F+Fid.cells"], found["T1.EQI.F.cells"]
    assert {row.method for row in with_fidelity.rows} == {"shap", "lime"}
    assert {row.method for row in alone.rows} == {"integrated_gradients", "random"}
    assert with_fidelity.notes == ("4 further cells have another basis, so another board",)
    assert with_fidelity.bounds == "v1"


def test_every_row_leads_to_its_cell():
    for board in boards(pilot()).values():
        document = board_json(board)
        for row in document["rows"]:
            assert row["cell_id"] == f"id of {row['cell']}"
            assert row["record_digest"] == f"digest of {row['cell']}"
        assert json.loads(json.dumps(document, allow_nan=False)) == document


def test_within_model_board_ranks_methods_and_shows_the_baseline_unranked():
    board = boards(pilot())["T1.faithfulness.methods.lstm"]
    assert [row.entry for row in board.rows] == ["integrated_gradients", "shap", "lime", "random"]
    assert [row.order for row in board.rows] == [1, 2, 3, None]
    assert board.rows[3].baseline
    assert board.rows[3].mean == pytest.approx(1.0, abs=0.2)
    assert board.comparisons == 3
    assert board.friedman is not None
    assert board.detectable is not None
    assert board.detectable > 0.5
    assert board.effective_n is not None
    assert board.effective_n <= N
    assert board.rows[2].co_ranked_with_above is False
    assert board.rows[2].co_ranked_plain is True  # windows differ in difficulty


def test_a_row_is_the_interval_of_its_own_cell():
    """A cell's run in the tracking store publishes the same interval, from the same stream."""
    row = rows(boards(pilot())["T1.stability.methods.lstm"])["shap"]
    values = entry("shap").scores["stability"].raw[:, None]
    alone = mean_intervals(values, resample_indices(N, 300, stream(42, "interval", N)))
    assert (row.mean, row.low, row.high) == pytest.approx((alone.mean[0], alone.low[0], alone.high[0]), rel=1e-12)


def test_stability_stands_beside_its_noise_floor_and_warns():
    board = boards(pilot())["T1.stability.methods.lstm"]
    assert rows(board)["shap"].extra["noise_floor"] == 0.5
    assert rows(board)["shap"].extra["on_noise_floor"]
    assert not rows(board)["integrated_gradients"].extra["on_noise_floor"]
    assert board.notes == ("2 of 3 methods sit on their noise floor: Stability cannot rank them",)


def test_models_are_compared_by_the_methods_they_share():
    entries = [item for item in pilot() if (item.cell.model, item.cell.method) != ("transformer", "lime")]
    board = boards(entries)["T1.faithfulness_skill.models"]
    assert {row.entry for row in board.rows} == {"lstm", "transformer"}
    assert board.notes == ("mean F_skill over integrated_gradients, shap",)
    assert len(board.rows[0].cells) == 2
    assert [row.order for row in board.rows] == [1, 1]  # the same scores in this fixture
    assert board.rows[1].p_vs_above == 1.0


def test_pending_scores_are_rows_with_reasons_and_never_numbers():
    board = boards(pilot())["T1.HIR.cells"]
    assert len(board.rows) == 8
    assert {row.status for row in board.rows} == {"pending"}
    assert {row.reason for row in board.rows} == {"human_interpretability: no human_interpretability yet"}
    assert all(row.mean is row.order is None for row in board.rows)
    no_bounds = boards(pilot(), bounds=None)
    assert "T1.EQI.cells" in no_bounds
    assert "no normalisation bounds" in no_bounds["T1.EQI.cells"].rows[0].reason


def test_set_level_scores_have_an_order_and_no_interval():
    board = boards(pilot())["T1.EEI.Eff.cells"]
    best = board.rows[0]
    assert (best.mean, best.low, best.rank_ub, best.co_ranked_with_above) == (0.8, None, None, None)
    assert "one value for the whole window set" in best.reason
    assert board.notes[-1].startswith("point order only")


def test_model_level_scores_are_one_row_per_model_and_never_a_test_of_zero_by_construction():
    entries = []
    for item in pilot():
        values = np.linspace(0.2, 0.6 if item.cell.model == "lstm" else 0.8, N)
        entries.append(with_score(item, "counterfactual_consistency", values))
        entries[-1] = replace(
            entries[-1], skipped={k: v for k, v in item.skipped.items() if not k.startswith("counter")}
        )
    found = boards(entries)
    board = found["T1.CCS.CC.cells"]
    assert [(row.entry, row.order, len(row.cells)) for row in board.rows] == [("transformer", 1, 3), ("lstm", 2, 3)]
    assert board.comparisons == 1
    assert not any(name.startswith("T1.CCS") and ".methods" in name for name in found)


def test_method_level_scores_collapse_only_where_they_agree():
    same = [replace(item, scores={**item.scores, "efficiency": efficiency(1.0, 1.0)}) for item in pilot()]
    assert {row.entry for row in boards(same)["T1.EEI.Eff.cells"].rows} == {*METHODS}
    assert {row.entry for row in boards(pilot())["T1.EEI.Eff.cells"].rows} >= {"lstm/shap", "transformer/shap"}


def test_an_alias_class_is_one_row():
    entries = pilot()
    entries.append(replace(entry("lime"), cell=Cell("energy", "T1", "lstm", "feature_attribution"), alias="ig"))
    entries = [
        replace(item, alias="ig") if item.cell.method == "integrated_gradients" and item.cell.model == "lstm" else item
        for item in entries
    ]
    board = boards(entries)["T1.faithfulness.methods.lstm"]
    assert len(board.rows) == 4
    (row,) = [row for row in board.rows if row.aliases]
    assert (row.entry, row.aliases) == ("feature_attribution", ("integrated_gradients",))
    assert len(row.cells) == 2


@settings(max_examples=8, deadline=None)
@given(st.permutations(range(8)))
def test_the_order_of_cells_changes_nothing(order):
    entries = pilot()
    one, other = boards(entries), boards([entries[i] for i in order])
    assert {name: board_json(board) for name, board in one.items()} == {
        name: board_json(board) for name, board in other.items()
    }


def test_numbers_are_published_at_six_significant_digits():
    row = board_json(boards(pilot())["T1.faithfulness.methods.lstm"])["rows"][0]
    for key in ("mean", "low", "high"):
        assert row[key] == float(f"{row[key]:.6g}")


def test_no_cells():
    with pytest.raises(BadInput, match="no finished cells to rank"):
        build_boards([], STATISTICS, 42, BOUNDS)


def test_two_protocol_versions_are_refused_with_the_list():
    with pytest.raises(
        BadInput, match=r"2 protocol versions.*explainbench-1: energy/T1/lstm/lime.*-2: energy/T1/lstm/sh"
    ):
        check_entries([entry("lime"), entry("shap", protocol="explainbench-2")])


def test_a_cell_that_is_there_twice_is_refused():
    with pytest.raises(BadInput, match="energy/T1/lstm/lime is there more than once"):
        check_entries([entry("lime"), entry("lime", cell_id="other")])


def test_one_window_per_cell():
    board = boards(pilot(n=1))["T1.faithfulness.methods.lstm"]
    assert [row.order for row in board.rows] == [1, 2, 3, None]
    assert {row.reason for row in board.rows} == {"no interval: an interval needs at least 2 windows, and there is 1"}
    assert all(row.low is row.p_vs_above is None for row in board.rows)


@pytest.mark.parametrize("value", [0.0, 0.1, 1.0])
def test_constant_scores_and_all_ties(value):
    board = boards([with_score(item, "stability", np.full(N, value)) for item in pilot()])["T1.ESS.S.cells"]
    for row in board.rows:
        assert (row.mean, row.low, row.high) == (value, value, value)
        assert row.baseline or (row.order, row.rank_ub) == (1, 1)
        assert row.p_vs_above in (None, 1.0)
    assert board.friedman is not None
    assert (board.friedman.p, board.friedman.reason[:11]) == (1.0, "all entries")
    assert board.effective_n == N


def test_undefined_windows_are_dropped_for_all_and_counted():
    entries = pilot()
    skill = entries[0].scores["faithfulness_skill"].raw.copy()
    skill[:2] = np.nan
    entries[0] = with_score(entries[0], "faithfulness_skill", skill)
    board = boards(entries)["T1.faithfulness_skill.methods.lstm"]
    assert (board.n, board.dropped) == (N - 2, 2)
    assert all(row.n == N - 2 for row in board.rows)
    assert board.notes == ("2 windows are left out: an entry is undefined there",)


def test_a_baseline_never_decides_which_windows_count():
    entries = pilot()
    shown = next(i for i, entry in enumerate(entries) if entry.baseline)
    skill = entries[shown].scores["faithfulness_skill"].raw.copy()
    skill[0] = np.nan
    entries[shown] = with_score(entries[shown], "faithfulness_skill", skill)
    board = boards(entries)[f"T1.faithfulness_skill.methods.{entries[shown].cell.model}"]
    assert (board.n, board.dropped) == (N, 0)
    assert [row.status for row in board.rows if row.baseline] == ["not_applicable"]


@pytest.mark.parametrize("undefined", [11, 20])
def test_a_mostly_undefined_entry_leaves_instead_of_emptying_the_board(undefined):
    entries = pilot()
    skill = entries[0].scores["faithfulness_skill"].raw.copy()
    skill[:undefined] = np.nan
    entries[0] = with_score(entries[0], "faithfulness_skill", skill)
    board = boards(entries)["T1.faithfulness_skill.methods.lstm"]
    assert board.n == N
    assert rows(board)["shap"].status == "not_applicable"
    assert rows(board)["shap"].reason == f"defined on only {20 - undefined} of 20 windows"


def test_cells_on_different_windows_get_no_verdict():
    entries = [entry("shap"), entry("lime", n=N - 2), entry("random")]
    board = boards(entries)["T1.faithfulness.methods.lstm"]
    assert [row.n for row in board.rows] == [N, N - 2, N]
    assert all(row.low is not None and row.rank_ub is row.co_ranked_with_above is None for row in board.rows)
    assert "different windows" in board.notes[-1]


def test_overlapping_windows_get_block_intervals_beside_the_plain_ones():
    board = boards(pilot(), blocks={"T1": 4})["T1.faithfulness.methods.lstm"]
    assert all(row.block_low is not None and row.block_low < row.mean < row.block_high for row in board.rows)
    assert "blocks of 4 windows" in board.notes[-1]
    too_long = boards(pilot(), blocks={"T1": 11})["T1.faithfulness.methods.lstm"]
    assert "needs at least 22 windows" in too_long.notes[-1]


def test_strata_compare_deterministic_with_stochastic_methods():
    strata = boards(pilot())["T1.ESS.S.cells"].strata
    assert strata is not None
    assert sorted(strata.n) == [2, 4]


def test_scores_come_back_from_a_table():
    columns = {
        "window": [1, 0, -1, -1, 0, 1],
        "origin": ["b", "a", "", "", "a", "b"],
        "metric": ["stability", "stability", "fidelity", "efficiency", "faithfulness", "faithfulness"],
        "raw": [0.4, 0.5, None, 0.25, 7.0, None],
        "value": [0.4, 0.5, None, 0.8, None, None],
        "status": ["value", "value", "not_applicable", "value", "value", "not_applicable"],
        "reason": ["", "", "no surrogate", "", "", "undefined for this window"],
    }
    windows, scores, skipped = scores_from_columns(columns)
    assert windows == ("a", "b")
    assert scores["stability"].raw.tolist() == [0.5, 0.4]
    assert scores["stability"].value is not None
    assert scores["faithfulness"].value is None
    np.testing.assert_array_equal(scores["faithfulness"].raw, [7.0, np.nan])
    assert scores["efficiency"].raw.tolist() == [0.25]
    assert skipped == {"fidelity": Skipped("not_applicable", "no surrogate")}
