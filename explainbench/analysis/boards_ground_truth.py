"""Which scores of the ground-truth suite are boards: one per dataset; the suite's own table is in `ground_truth`."""

from explainbench.analysis.boards import MetricBoard
from explainbench.analysis.suites import SuiteBoards


def _xfa(name: str, title: str, *parts: str) -> MetricBoard:
    """A variant with its parts, and what a perfect, an empty and an everything-naming explanation would get."""
    beside = (f"{name}_perfect", f"{name}_empty", f"{name}_everything")
    return MetricBoard(name, title, "raw", (*parts, *beside, f"{name}_correct", "model_auc"), view="cells")


BOARDS = SuiteBoards(
    metrics=(
        _xfa("xfa_text", "XFA as the text says it, 0 to 100", "completeness", "precision", "rank_order"),
        _xfa("xfa_code_v1", "XFA as its author's first code computes it", "completeness", "specificity", "top_overlap"),
        _xfa("xfa_v2", "XFA in its author's second form", "completeness", "specificity", "ranking"),
        MetricBoard(
            "ops", "OPS, reconstructed-v1: distance to 0 columns and full coverage", "raw",
            ("ops_features", "ops_coverage", "ops_normalised"), higher_is_better=False, view="cells",
        ),
        MetricBoard(
            "overall", "Overall, reconstructed-v1: XFA and OPS normalised", "raw", ("ops_normalised", "model_auc"),
            view="cells",
        ),
    ),
    banner=(
        "XFA measures recovery of the rule that made the labels, not of the model's reasons: rows carry no mark of "
        "their stratum, so read it beside the model's AUC and on correctly predicted rows (_correct)."
    ),
    compared=(("xfa_text", "xfa_code_v1"), ("xfa_text", "xfa_v2"), ("xfa_text", "ops")),
)  # fmt: skip
