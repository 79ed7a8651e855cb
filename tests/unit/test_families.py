"""Holm per family, tests between groups of a board's entries, and what must not change any of it."""

from dataclasses import replace
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from explainbench.analysis.board import Board, Entry, Row, View, board_json
from explainbench.analysis.board_words import knowledge, whole_tests
from explainbench.analysis.boards import build_boards, scores_from_columns
from explainbench.analysis.comparisons import Pairwise, holm, independent_groups, unpaired
from explainbench.analysis.comparisons import pairwise as wilcoxon_pairs
from explainbench.analysis.families import in_families
from explainbench.analysis.intervals import minimal_detectable_effect
from explainbench.analysis.strata import compare_categories, compare_strata
from explainbench.core.cell import Cell, Score, stream
from explainbench.core.params import StatisticsParams

STATISTICS = StatisticsParams(bootstrap=200)
N = 16
WINDOWS = tuple(f"2024-01-{day + 1:02d}T00:00" for day in range(N))
LEVELS = {"shap": 0.6, "lime": 0.55, "perturbation": 0.6, "attention": 0.3, "random": 0.1}
KIND = {"shap": "attribution", "lime": "surrogate", "perturbation": "perturbation", "attention": "attention"}


def board_of(p, names=("a", "b", "c"), model="lstm", view: View = "methods", score="ESS", task="T1", suite="energy"):
    m = len(names)
    table = np.full((m, m), np.nan)
    table[np.triu_indices(m, 1)] = p
    table = np.where(np.isnan(table), table.T, table)
    pairs = Pairwise(table, np.full((m, m), np.nan), np.zeros((m, m)), np.zeros((m, m), dtype=np.int64))
    rows = tuple(Row(name, model, name, "value", "", ()) for name in names)
    return Board(
        *(suite, task, view, model, score, "", "S", "cell", "1", rows),
        effective_n=50.0, comparisons=m * (m - 1) // 2, ranked=names, pairs=pairs,
    )  # fmt: skip


def cells(seed=0, models=("lstm", "transformer"), order=None):
    rng = np.random.default_rng(seed)
    difficulty = rng.normal(0, 0.1, N)
    order = np.arange(N) if order is None else np.asarray(order)
    entries = []
    for model in models:
        for method, level in LEVELS.items():
            values = np.clip(level + difficulty + rng.normal(0, 0.03, N), 0, 1)[order]
            cell = Cell("energy", "T1", model, method)
            entries.append(
                Entry(
                    *(cell, f"id of {cell}", f"digest of {cell}", "1", tuple(np.array(WINDOWS)[order].tolist())),
                    *({"stability": Score(values, values)}, {}),
                    baseline=method == "random",
                    deterministic=method in ("perturbation", "attention"),
                    category=KIND.get(method, "baseline"),
                )
            )
    return entries


def boards(entries):
    return {board.name: board for board in build_boards(entries, STATISTICS, 42, None)}


def test_holm_is_over_all_boards_of_a_family_worked_numbers():
    """0.005 x 4, 0.01 x 3, 0.03 x 2, 0.04 x 1 made monotone: Holm within a board would leave 0.005 as it is."""
    one, other = in_families([board_of([0.01, 0.04, 0.03]), board_of([0.005], ("a", "b"), "patchtst")])
    assert one.pairs is not None
    assert other.pairs is not None
    np.testing.assert_allclose(one.pairs.p_holm[np.triu_indices(3, 1)], [0.03, 0.06, 0.06])
    np.testing.assert_array_equal(one.pairs.p_holm, one.pairs.p_holm.T)
    assert [row.p_vs_above for row in one.rows] == [None, pytest.approx(0.03), pytest.approx(0.06)]
    assert [row.p_vs_above for row in other.rows] == [None, pytest.approx(0.02)]
    assert one.family == other.family
    assert one.family is not None
    assert (one.family.name, one.family.size, one.family.boards) == ("methods within a model, ESS, T1", 4, 2)
    assert one.detectable == minimal_detectable_effect(50.0, 4)
    assert knowledge(board_json(other)) == [
        "effective n = 50",
        "1 comparison, Holm over the family (methods within a model, ESS, T1; 4 on 2 boards)",
        f"smallest difference seen with 80 % power: d = {one.detectable:.2g}",
    ]


@pytest.mark.parametrize("change", [{"view": "cells"}, {"score": "EQI"}, {"task": "T2"}, {"suite": "axe"}])
def test_other_kinds_scores_tasks_and_suites_are_other_families(change):
    found = in_families([board_of([0.01], ("a", "b")), board_of([0.02], ("a", "b"), **change)])
    assert [board.rows[1].p_vs_above for board in found] == [0.01, 0.02]
    assert [board.family.size for board in found if board.family] == [1, 1]


def test_bases_of_a_composite_are_one_family_and_a_board_without_pairs_has_none():
    found = in_families([board_of([0.01], ("a", "b")), replace(board_of([0.02], ("a", "b")), basis="S+F")])
    assert [board.rows[1].p_vs_above for board in found] == [0.02, 0.02]
    (alone,) = in_families([board_of([], ("a",))])
    assert (alone.family, alone.detectable) == (None, None)


def test_every_board_states_its_family_and_carries_all_pairs():
    found = boards(cells())
    for name, board in found.items():
        if "stability" not in name and "ESS" not in name:
            continue
        document = board_json(board)
        m = len(board.ranked)
        assert {len(column) for column in document["pairs"].values()} == {m * (m - 1) // 2}
        assert document["family"]["size"] == (28 if board.view == "cells" else 12)
        assert document["family"]["boards"] == (1 if board.view == "cells" else 2)
        above = {row["entry"]: row["p_vs_above"] for row in document["rows"]}
        upper = dict(zip(combinations(document["ranked"], 2), document["pairs"]["p_holm"], strict=True))
        for one, other in pairwise(document["ranked"]):
            assert above[other] == pytest.approx(upper[one, other], rel=1e-2)


def test_strata_worked_numbers_and_their_holm():
    """Ranks 3 to 6 against 1 and 2: U = 8 of 8, delta 1, exact two-sided p = 2/15."""
    found = compare_strata(np.array([3.0, 4, 5, 6]), np.array([1.0, 2]), stream(0, "s"), STATISTICS)
    assert found is not None
    assert (found.statistic, found.delta, found.low, found.high, found.n) == (8.0, 1.0, 1.0, 1.0, (4, 2))
    assert found.p == pytest.approx(2 / 15)
    assert compare_strata(np.array([3.0]), np.array([1.0, 2]), stream(0, "s"), STATISTICS) is None
    made = boards(cells())
    tested = [board for board in made.values() if board.score == "ESS" and board.strata is not None]
    assert len(tested) == 3
    raw = np.array([board.strata.p for board in tested if board.strata])
    np.testing.assert_allclose([board.p_holm["strata"] for board in tested], holm(raw))
    for board in tested:
        assert board.strata is not None
        assert board.strata.low <= board.strata.delta <= board.strata.high
        assert "Cliff's delta" in " ".join(whole_tests(board_json(board)))


def test_strata_are_mann_whitney_of_the_entries_means():
    board = boards(cells())["T1.ESS.S.cells"]
    rows = [row for row in board.rows if not row.baseline]
    groups = [np.array([row.mean for row in rows if row.deterministic is kind]) for kind in (True, False)]
    assert board.strata is not None
    assert (board.strata.p, board.strata.delta) == (unpaired(*groups).p, unpaired(*groups).delta)


def test_categories_of_methods_are_compared_on_boards_of_all_cells_with_the_branch():
    found = boards(cells(models=("chronos", "lstm", "patchtst", "transformer")))
    board = found["T1.ESS.S.cells"]
    rows = [row for row in board.rows if not row.baseline]
    groups = {kind: np.array([row.mean for row in rows if KIND[row.method] == kind]) for kind in KIND.values()}
    expected = independent_groups(dict(sorted(groups.items())))
    assert board.categories is not None
    assert (board.categories.branch, board.categories.p) == (expected.branch, pytest.approx(expected.p))
    document = board_json(board)["categories"]
    assert document["p_holm"] == document["p"]
    assert len(document["pairs"]) == 6
    assert document["branch"] in whole_tests(board_json(board))[-1]
    assert found["T1.ESS.S.methods.lstm"].categories is None
    assert compare_categories({"a": [1.0, 2.0], "b": [1.0, 2.0], "c": [1.0]}, 0.05) is None


@settings(max_examples=6, deadline=None)
@given(st.permutations(range(10)), st.integers(0, 50))
def test_the_order_of_cells_changes_no_byte(order, seed):
    entries = cells(seed)
    shuffled = [entries[at] for at in order]
    assert [board_json(board) for board in boards(entries).values()] == [
        board_json(board) for board in boards(shuffled).values()
    ]


@settings(max_examples=6, deadline=None)
@given(st.permutations(range(N)))
def test_the_order_of_windows_changes_no_order_no_p_and_no_effect(order):
    """Intervals are drawn by position, so they move by their sampling error; nothing else does."""
    one, other = (boards(cells(3, order=o))["T1.ESS.S.cells"] for o in (None, order))
    assert one.ranked == other.ranked
    assert one.pairs is not None
    assert other.pairs is not None
    for name in ("p", "p_holm", "effect", "n_zero"):
        np.testing.assert_allclose(getattr(one.pairs, name), getattr(other.pairs, name), rtol=1e-9)
    for left, right in zip(one.rows, other.rows, strict=True):
        assert (left.entry, left.order, left.mean) == (right.entry, right.order, pytest.approx(right.mean, rel=1e-12))
        assert (left.low, left.high) == (pytest.approx(right.low, abs=0.03), pytest.approx(right.high, abs=0.03))


@settings(max_examples=6, deadline=None)
@given(st.permutations(range(8)))
def test_the_order_of_a_tables_rows_changes_nothing(order):
    table = {
        "window": [0, 1, 2, 3] * 2, "origin": list("abcd") * 2, "metric": ["stability"] * 4 + ["faithfulness"] * 4,
        "raw": [float(k) for k in range(8)], "value": [0.1 * k for k in range(8)], "status": ["value"] * 8,
        "reason": [""] * 8,
    }  # fmt: skip
    shuffled = {name: [column[at] for at in order] for name, column in table.items()}
    one, other = scores_from_columns(table), scores_from_columns(shuffled)
    assert one[0] == other[0]
    for metric, score in one[1].items():
        np.testing.assert_array_equal(score.raw, other[1][metric].raw)


def test_resamples_are_shared_by_all_entries():
    """An entry that scores 0.1 more on every window has an interval that lies 0.1 higher, to the last digit."""
    entries = cells(models=("lstm",))
    first = entries[0].scores["stability"].raw * 0.5
    moved = [
        replace(entry, scores={"stability": Score(first + 0.1 * at, first + 0.1 * at)})
        for at, entry in enumerate(entries)
    ]
    rows = {row.entry: row for row in boards(moved)["T1.ESS.S.methods.lstm"].rows}
    base = rows[entries[0].cell.method]
    for at, entry in enumerate(entries):
        row = rows[entry.cell.method]
        assert base.low is not None
        assert base.high is not None
        assert (row.low, row.high) == (pytest.approx(base.low + 0.1 * at), pytest.approx(base.high + 0.1 * at))


def test_ties_share_a_rank_and_the_next_one_is_skipped():
    entries = cells(models=("lstm",))
    same = entries[0].scores
    tied = [replace(entry, scores=same) if entry.cell.method == "perturbation" else entry for entry in entries]
    rows = [row for row in boards(tied)["T1.ESS.S.methods.lstm"].rows if not row.baseline]
    assert [row.order for row in rows] in ([1, 1, 3, 4], [1, 2, 2, 4])
    at = next(k for k in range(1, 4) if rows[k].order == rows[k - 1].order)
    assert (rows[at].p_vs_above, rows[at].effect, rows[at].n_zero, rows[at].rank_ub) == (
        1.0,
        0.0,
        N,
        rows[at - 1].rank_ub,
    )
    assert rows[at].co_ranked_with_above is True


def test_nothing_defined_anywhere_is_a_board_of_reasons():
    nothing = Score(np.full(N, np.nan), np.full(N, np.nan))
    found = boards([replace(entry, scores={"stability": nothing}) for entry in cells()]).values()
    board = next(board for board in found if (board.score, board.view) == ("ESS", "cells"))
    assert (board.ranked, board.pairs, board.family, board.strata) == ((), None, None, None)
    assert {row.reason for row in board.rows} == {f"S is undefined on all {N} windows"}
    assert all(row.mean is row.order is None for row in board.rows)


def test_a_family_keeps_its_error_rate_where_one_board_at_a_time_does_not():
    """Eight boards of seven equal methods: how often any pair of any board is called different (0.05 is promised)."""
    names, upper = tuple("abcdefg"), np.triu_indices(7, 1)
    family, alone = 0, 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        tables = [wilcoxon_pairs(rng.normal(size=(60, 1)) + rng.normal(size=(60, 7))) for _ in range(8)]
        found = in_families([board_of(table.p[upper], names, str(at)) for at, table in enumerate(tables)])
        family += any((board.pairs.p_holm[upper] < 0.05).any() for board in found if board.pairs)
        alone += any((table.p_holm[upper] < 0.05).any() for table in tables)
    assert family / 60 < 0.12
    assert alone / 60 > 0.15


@settings(max_examples=6, deadline=None)
@given(st.floats(0.1, 0.9), st.floats(-0.05, 0.05))
def test_the_unit_of_a_score_decides_nothing(scale, shift):
    entries = cells(1)
    moved = []
    for entry in entries:
        values = np.round(entry.scores["stability"].raw, 3)
        moved.append((Score(values, values), Score(scale * values + shift, scale * values + shift)))
    one, other = (
        boards([replace(entry, scores={"stability": pair[at]}) for entry, pair in zip(entries, moved, strict=True)])
        for at in (0, 1)
    )
    for left, right in zip(one["T1.ESS.S.cells"].rows, other["T1.ESS.S.cells"].rows, strict=True):
        assert (left.entry, left.order, left.rank_ub) == (right.entry, right.order, right.rank_ub)
        assert left.co_ranked_with_above == right.co_ranked_with_above
        assert (left.p_vs_above, left.effect) == (
            None if right.p_vs_above is None else pytest.approx(right.p_vs_above),
            None if right.effect is None else pytest.approx(right.effect),
        )
