"""R holds what the boards hold: nothing imputed, nothing averaged, every gap with its reason."""

import pytest

from explainbench.analysis.reliability import COMPOSITES, reliability_matrix

PAIRS = (("lstm", "shap"), ("lstm", "lime"), ("chronos", "shap"), ("chronos", "grad_cam"))


def row(cells, mean=None, low=None, high=None, status="value", reason="", n=60):
    refs = [{"cell": f"energy/T1/{cell}", "cell_id": cell, "record_digest": cell} for cell in cells]
    found = {"cells": refs, "cell": refs[0]["cell"], "mean": mean, "low": low, "high": high}
    return found | {"status": status, "reason": reason, "n": n}


def board(score, rows, basis="", level="cell", **changes):
    name = ".".join(part for part in ("T1", score, basis, "cells") if part)
    found = {"suite": "energy", "task": "T1", "view": "cells", "score": score, "basis": basis, "level": level}
    return found | {"name": name, "rows": rows} | changes


def matrix(*boards, pairs=PAIRS):
    return reliability_matrix(boards, "energy", "T1", pairs)


def test_rows_are_the_pairs_in_order_and_columns_the_six_composites():
    found = matrix()
    assert [(one.model, one.method) for one in found.rows] == list(PAIRS)
    assert COMPOSITES == ("EQI", "ESS", "CCS", "EDTS", "HIR", "EEI")
    assert all(len(one.entries) == 6 for one in found.rows)
    assert found.counts()["EQI"] == {"pending": 4}


def test_values_and_intervals_are_those_of_the_board_whatever_the_basis():
    found = matrix(
        board("EQI", [row(["lstm/shap"], 0.62, 0.6, 0.64)], basis="F+Fid"),
        board("EQI", [row(["chronos/shap"], 0.31, 0.27, 0.36, n=59)], basis="F"),
    )
    entry = found.rows[0]["EQI"]
    assert (entry.value, entry.low, entry.high, entry.basis, entry.n) == (0.62, 0.6, 0.64, "F+Fid", 60)
    assert (found.rows[2]["EQI"].basis, found.rows[2]["EQI"].n) == ("F", 59)
    assert found.rows[0]["EQI"].board == "T1.EQI.F+Fid.cells"


def test_a_gap_keeps_its_reason_and_a_number_is_never_lost_to_one():
    pending = row(["lstm/shap"], status="pending", reason="no ratings")
    found = matrix(
        board("HIR", [pending]),
        board("EQI", [row(["lstm/shap"], status="not_applicable", reason="elsewhere")], basis="F"),
        board("EQI", [row(["lstm/shap"], 0.5, 0.5, 0.5)], basis="F+Fid"),
    )
    assert (found.rows[0]["HIR"].status, found.rows[0]["HIR"].reason) == ("pending", "no ratings")
    assert found.rows[0]["HIR"].value is None
    assert (found.rows[0]["EQI"].value, found.rows[0]["EQI"].low) == (0.5, 0.5)  # constant scores: zero width
    assert found.rows[3]["EQI"].reason == "this pair has no finished cell in the boards"
    assert found.counts()["EQI"] == {"value": 1, "pending": 3}


def test_a_row_for_several_cells_fills_all_of_them_and_aliases_say_so():
    found = matrix(
        board("CCS", [row(["lstm/shap", "lstm/lime"], 0.8, 0.7, 0.9)], level="model"),
        board("ESS", [row(["lstm/shap", "lstm/lime"], 0.9, 0.8, 1.0)], basis="S"),
    )
    assert [one["CCS"].value for one in found.of_model("lstm")] == [0.8, 0.8]
    assert [one["CCS"].alias_of for one in found.of_model("lstm")] == ["", ""]
    assert [one["ESS"].alias_of for one in found.of_model("lstm")] == ["", "energy/T1/lstm/shap"]
    assert [one.model for one in found.of_method("shap")] == ["lstm", "chronos"]


def test_one_value_for_the_set_has_no_interval():
    found = matrix(board("EEI", [row(["lstm/shap"], 0.97, reason="no interval: one value", n=1)], level="method"))
    assert found.rows[0]["EEI"].low is None
    assert found.rows[0]["EEI"].reason.startswith("no interval")


@pytest.mark.parametrize("order", [1, -1])
def test_official_weights_fill_only_what_other_boards_do_not(order):
    own = board("ESS", [row(["lstm/shap"], 0.9)], basis="S")
    official = board("ESS", [row(["lstm/shap"], 0.8), row(["chronos/shap"], 0.7)], basis="S")
    official["name"] = "official." + official["name"]
    found = matrix(*[own, official][::order])
    assert (found.rows[0]["ESS"].value, found.rows[2]["ESS"].value) == (0.9, 0.7)


def test_other_tasks_views_and_scores_are_not_read():
    shown = [row(["lstm/shap"], 0.9)]
    found = matrix(board("ESS", shown, task="T2"), board("ESS", shown, view="methods"), board("stability", shown))
    assert found.counts()["ESS"] == {"pending": 4}
