"""The ground-truth suite's table as JSON and Markdown, and the figure of the validation protocols."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from explainbench.analysis.boards_ground_truth import BOARDS
from explainbench.analysis.ground_truth import ERRORS, LEVELS, error_curves, ops_ranking
from explainbench.core.files import atomic_path, write_bytes, write_json
from explainbench.core.params import Params
from explainbench.core.workspace import Workspace
from explainbench.metrics.ops import VERSION
from explainbench.metrics.xfa import VARIANTS
from explainbench.stages.ground_truth_table import forecasts_table, table

FOLDER = "ground_truth"  # in results/
FORECASTS = (  # title, note, and whether the forecasters are planted
    (
        "Energy cells against the simulator's true drivers",
        "The groups above an equal share of what drove the target are the ground truth: recovery of what drives the "
        "data among the groups a model sees, not of the model's reasons.",
        False,
    ),
    (
        "Planted forecasters",
        "Here the ground truth is the model's own: the exact Shapley values of a forecaster known in closed form.",
        True,
    ),
)


def write_table(workspace: Workspace, params: Params) -> dict[str, Any]:
    """Write results/ground_truth/suite.json and .md, and return the document. Raises BadInput or Corrupt."""
    document = {
        "schema": 1,
        "protocol": params.protocol,
        "note": BOARDS.banner,
        "ops": VERSION,
        "suite": table(workspace, params),
        "forecasts": forecasts_table(workspace, params),
    }
    write_json(workspace.results / FOLDER / "suite.json", document)
    write_bytes(workspace.results / FOLDER / "suite.md", markdown(document).encode())
    return document


def markdown(document: Mapping[str, Any]) -> str:
    """The document's tables as Markdown."""
    lines = ["# Ground truth: XFA over the suite's datasets", "", document["note"], ""]
    for name, variant in VARIANTS.items():
        lines += [f"## {name}", "", f"{variant.source}. 0 to 100, weighted by complexity; interval over rows.", ""]
        rows = [
            [
                row["model"],
                f"{row['method']}{' (baseline)' if row['baseline'] else ''}",
                f"{row[name]['mean']:.2f}",
                f"{row[name]['low']:.2f} to {row[name]['high']:.2f}",
                f"{row[f'{name}_correct']['mean']:.2f}",
                *(f"{row[name][kind]:.2f}" for kind in ("perfect", "empty", "everything")),
                f"{row['auc']:.3f}",
                "all" if row["complete"] else str(row["datasets"]),
            ]
            for row in sorted(document["suite"], key=lambda row: (row["model"], -row[name]["mean"]))
        ]
        head = [
            "model",
            "method",
            "XFA",
            "interval",
            "correct rows",
            "perfect",
            "empty",
            "everything",
            "AUC",
            "datasets",
        ]
        lines += _table(head, rows)
    parts = ("completeness", "precision", "specificity", "rank_order", "top_overlap", "ranking")
    lines += ["## Parts, OPS and Overall", "", f"OPS and Overall are {document['ops']}.", ""]
    sizes = ("features", "coverage", "ops", "ops_normalised", "overall")
    lines += _rows(document["suite"], ("model", "method"), (*parts, *sizes))
    for title, note, wanted in FORECASTS:
        rows = [row for row in document["forecasts"] if (row["task"] == "planted") == wanted]
        if rows:
            lines += [f"## {title}", "", note, ""]
            lines += _rows(rows, ("task", "model", "method"), (*VARIANTS, *parts))
    return "\n".join(lines)


def draw_validation(path: Path) -> Path:
    """Draw XFA under controlled errors of 0 to 100 %, and OPS of simulated sets against their distance to the ideal."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context({"font.size": 9}):
        figure = Figure(figsize=(11, 3.2), layout="constrained")
        axes = figure.subplots(1, 4)
        curves = error_curves()
        for axis, kind in zip(axes, ERRORS, strict=False):
            for name in VARIANTS:
                curve = curves[name, kind]
                constant = np.ptp(curve) < 1e-9
                label = name if constant else f"{name}, r = {np.corrcoef(LEVELS, curve)[0, 1]:.2f}"
                axis.plot(100 * LEVELS, curve, marker="o", markersize=3, label=label)
            axis.set(title=f"{kind} features", xlabel="errors, %", ylim=(0, 102))
            axis.legend(fontsize=7)
        axes[0].set_ylabel("XFA")
        far, ops = ops_ranking()
        axes[3].plot(far, ops, "o", markersize=3)
        axes[3].set(title="OPS of simulated sets", xlabel="distance to (0 features, 100 %)", ylabel="OPS")
        with atomic_path(path) as temporary:
            figure.savefig(temporary, format="png", dpi=110, metadata={"Software": None})
    return path


def _rows(rows: Sequence[Mapping[str, Any]], names: Sequence[str], numbers: Sequence[str]) -> list[str]:
    cells = [
        [*(str(row[name]) for name in names), *("" if row[n] is None else f"{row[n]:.3f}" for n in numbers)]
        for row in rows
    ]
    return _table([*names, *numbers], cells)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return [*("| " + " | ".join(line) + " |" for line in lines), ""]
