"""The ground-truth suite beyond its cells: averaging by hand, forecasts with known drivers, the figure."""

import numpy as np
import pytest

from explainbench.analysis.ground_truth import Averaging, Scored, suite_table
from explainbench.core.errors import BadInput, NotApplicable
from explainbench.metrics.xfa import PARTS, VARIANTS, drivers
from explainbench.report.ground_truth import draw_validation, markdown
from explainbench.stages._ground_truth_groups import judge_groups

N = 8


def scored(dataset, value, auc, rule=("RR1",) * N, named=3, method="m", **changed):
    rows = {name: np.full(N, float(value)) for how in VARIANTS for name in (how, f"{how}_correct")}
    rows |= {part: np.full(N, 0.5) for part in PARTS} | {"named_columns": np.full(N, float(named))} | changed
    whole = {f"{how}_{kind}": 50.0 for how in VARIANTS for kind in ("perfect", "empty", "everything")}
    return Scored(dataset, "rf", method, False, rows, whole | {"model_auc": auc}, np.array(rule), 48)


def averaging(**complexity):
    return Averaging(complexity, 0.95, 300, 0, "xfa_text", (1.0, 1.0), "count")


def test_datasets_weigh_by_complexity_or_by_what_the_model_fails_at():
    cells = [scored("a", 90, 0.9), scored("b", 60, 0.6)]
    (row,) = suite_table(cells, averaging(a=1.0, b=2.0))
    assert row["xfa_text"]["mean"] == pytest.approx((90 + 2 * 60) / 3)
    assert row["xfa_v2"]["mean"] == pytest.approx((0.1 * 90 + 0.4 * 60) / 0.5)
    assert row["xfa_text"]["low"] == row["xfa_text"]["high"] == pytest.approx(70.0)  # constant rows
    assert (row["complete"], row["datasets"], row["auc"]) == (True, 2, 0.75)
    assert (row["features"], row["coverage"], row["ops"]) == (3.0, 100.0, 3.0)
    (part,) = suite_table(cells[:1], averaging(a=1.0, b=2.0))
    assert not part["complete"]


def test_the_second_form_takes_the_mean_over_rules_first():
    values = np.array([100.0] + [0.0] * (N - 1))
    cell = scored("a", 0, 0.5, rule=["RR1"] + ["RR3"] * (N - 1), xfa_v2=values, xfa_text=values)
    (row,) = suite_table([cell], averaging(a=1.0))
    assert row["xfa_v2"]["mean"] == 50.0
    assert row["xfa_text"]["mean"] == 100 / N
    assert row["xfa_text"]["low"] < 100 / N < row["xfa_text"]["high"]


def test_rows_that_a_model_gets_wrong_are_left_out_of_the_twin():
    right = np.array([80.0] * 4 + [np.nan] * 4)
    (row,) = suite_table([scored("a", 60, 0.5, xfa_text_correct=right)], averaging(a=1.0))
    assert row["xfa_text"]["mean"] == 60.0
    assert row["xfa_text_correct"]["mean"] == 80.0


def test_an_undefined_part_is_none_and_impossible_weights_are_refused():
    nothing = scored("a", 60, 0.5, rank_order=np.full(N, np.nan))
    (row,) = suite_table([nothing], averaging(a=1.0))
    assert row["rank_order"] is None
    with pytest.raises(BadInput, match="one of them above zero"):
        suite_table([nothing], averaging(a=0.0))


def test_windows_are_scored_by_the_groups_that_drive_them():
    shares = np.array([[0.6, 0.3, 0.05, 0.05], [0.1, 0.1, 0.1, 0.7]])
    truth = drivers(shares)
    assert (truth > 0).tolist() == [[True, True, False, False], [False, False, False, True]]
    right = judge_groups(truth, shares)
    assert right["xfa_text"].raw.tolist() == pytest.approx([100.0, 100.0])
    assert right["xfa_text_perfect"].raw.tolist() == [100.0]
    assert right["rank_order"].raw.tolist() == pytest.approx([1.0, np.nan], nan_ok=True)  # one driver has no order
    assert judge_groups(truth[:, ::-1], shares)["completeness"].raw.tolist() == [0.0, 0.0]


def test_windows_without_a_driver_or_an_explanation_are_left_out():
    shares = np.array([[0.6, 0.4, 0.0], [0.0, 0.0, 0.0], [0.5, 0.4, 0.1]])
    importance = np.array([[1.0, 0.8, 0.0], [1.0, 0.5, 0.0], [np.nan, np.nan, np.nan]])
    found = judge_groups(importance, shares)["xfa_v2"].raw.tolist()
    assert found == pytest.approx([100.0, np.nan, np.nan], nan_ok=True)
    with pytest.raises(NotApplicable, match="in no explained window does a group act"):
        judge_groups(importance[1:], shares[1:])
    # what rounding left of a zero is no driver and names nothing
    rounded = judge_groups(np.array([[1.0, 1e-9, 0.0]]), np.array([[1.0, -1e-12, 0.0]]))
    assert rounded["xfa_text"].raw.tolist() == pytest.approx([100.0])


def test_the_document_reads_as_markdown():
    rows = suite_table([scored("a", 90, 0.9)], averaging(a=1.0))
    parts = {name: score.raw.mean() for name, score in judge_groups(np.eye(3), np.eye(3)).items()}
    parts["rank_order"] = None  # a single driver has no order
    document = {
        "note": "note", "ops": "reconstructed-v1", "suite": rows,
        "forecasts": [
            {"task": "T1", "model": "lstm", "method": "shap"} | parts,
            {"task": "planted", "model": "linear_ar", "method": "shap"} | parts,
        ],
    }  # fmt: skip
    text = markdown(document)
    assert "| rf | m | 90.00 | 90.00 to 90.00 | 90.00 | 50.00 | 50.00 | 50.00 | 0.900 | all |" in text
    assert "## Planted forecasters" in text


def test_the_figure_is_always_the_same_bytes(tmp_path):
    one, two = draw_validation(tmp_path / "one.png"), draw_validation(tmp_path / "two.png")
    assert one.read_bytes() == two.read_bytes()
    assert one.read_bytes().startswith(b"\x89PNG")
