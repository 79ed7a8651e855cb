"""Which scores of the AXE suite are boards."""

from explainbench.analysis.boards import MetricBoard
from explainbench.analysis.suites import SuiteBoards

_RATES = ("axe_base_rate", "axe_random")  # never read AXE without them


def _margins(prefix: str, title: str) -> tuple[MetricBoard, ...]:
    """Table 2 under one preset: how far the protected feature is above the best foil, by each metric."""
    return tuple(
        MetricBoard(
            f"{prefix}_{metric}_margin",
            f"Fairwashing, {name}, {title}: protected minus best foil, above 0 is detected",
            "raw",
            (f"{prefix}_{metric}_protected", f"{prefix}_{metric}_foil_1", f"{prefix}_{metric}_foil_2", *more),
            view="cells",
        )
        for metric, name, more in (
            ("axe", "AXE", (f"{prefix}_axe_order_spread",)),
            ("pgi", "PGI", ()),
            ("pgu", "-PGU", ()),
        )
    )


BOARDS = SuiteBoards(
    metrics=(
        MetricBoard("axe", "AXE: area over n, mean over k; perfect is 1", "raw", _RATES),
        MetricBoard("pgi", "PGI: change of the output when the top n columns move", "raw"),
        MetricBoard("pgu", "PGU: change when all others move", "raw", higher_is_better=False),
        MetricBoard("agreement_feature", "FA with the ground truth, area over n", "raw"),
        MetricBoard("agreement_rank", "RA with the ground truth, area over n", "raw"),
        MetricBoard("agreement_sign", "SA with the ground truth, area over n", "raw"),
        MetricBoard("agreement_signed_rank", "SRA with the ground truth, area over n", "raw"),
        MetricBoard("agreement_rank_correlation", "RC with the ground truth", "raw"),
        MetricBoard("agreement_pairwise_rank", "PRA with the ground truth", "raw"),
        *_margins("ours", "preset explainbench"),
        *_margins("paper", "preset axe-sec4.1"),
        MetricBoard(
            *("axe_regression", "AXE for forecasts, an extension of ours: R2 skill of k-NN on the top groups", "raw"),
            ("axe_regression_random", "axe_regression_gain", "faithfulness_skill"),
        ),
        MetricBoard("faithfulness", "Faithfulness beside it, raw, in the target's unit", "raw"),
        MetricBoard("prediction_gap", "PGI on forecasts, in sigma of the target", "raw"),
    ),
    counted="rows or windows",
    compared=(
        ("axe", "pgi"),
        ("axe", "pgu"),
        ("axe", "agreement_feature"),
        ("pgi", "agreement_feature"),
        ("axe_regression_gain", "faithfulness_skill"),
        ("axe_regression", "faithfulness"),
    ),
)
