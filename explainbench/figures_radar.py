"""The radar of the agnostic suite: one axis per EAMEX metric, outside is easier to explain, one trace per model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from explainbench.core.errors import BadInput
from explainbench.core.files import atomic_path
from explainbench.metrics.eamex import DEFINITIONS, definition

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 110
FORMATS = ("svg", "png")
# Okabe and Ito 2008, without yellow; the line changes where the colours begin again
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
LINES = ("-", "--")
INK, GRID = "#222222", "#cccccc"

Traces = Mapping[str, Mapping[str, tuple[float, float, float]]]  # {model: {metric: (value, low, high)}}


def draw_radars(document: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw `<task>.svg` and `<task>.png` for every task of the suite's boards (`results/agnostic.json`).

    Raises BadInput where the boards hold no number, Unavailable where `folder` cannot be written.
    """
    tasks = traces(document["boards"])
    if not tasks:
        raise BadInput("the boards hold no number to draw; run `explainbench leaderboard --suite agnostic` first.")
    written = []
    for task, models in tasks.items():
        figure = radar_figure(task, models)
        for kind in FORMATS:
            path = folder / f"{task}.{kind}"
            _save(figure, path, kind)
            written.append(path)
    return written


def traces(boards: Sequence[Mapping[str, Any]]) -> Mapping[str, Traces]:
    """{task: {model: {metric: (value, low, high)}}}, turned so that higher is better, and scaled to [0, 1].

    Where a metric has a board of the models themselves and one of their explanations, the first counts.
    """
    found: dict[str, dict[str, dict[str, tuple[float, float, float]]]] = {}
    for board in sorted(boards, key=lambda board: (board["task"], board["basis"])):
        meaning = definition(board["score"])
        for row in board["rows"]:
            if row["mean"] is None:
                continue
            low, high = sorted(meaning.scaled(row[key]) for key in ("low", "high"))
            values = found.setdefault(board["task"], {}).setdefault(row["model"], {})
            values.setdefault(board["score"], (meaning.scaled(row["mean"]), low, high))
    return found


def radar_figure(task: str, models: Traces) -> Figure:
    """One closed line per model; a metric without a number leaves a gap; bars are intervals."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    metrics = [name for name in DEFINITIONS["paper"] if any(name in values for values in models.values())]
    angles = np.linspace(0, 2 * np.pi, len(metrics), endpoint=False)
    figure = Figure(figsize=(8.4, 6.4), dpi=DPI)
    FigureCanvasAgg(figure)
    axes: Any = figure.add_axes((0.08, 0.08, 0.62, 0.78), projection="polar")
    axes.set_theta_offset(np.pi / 2)
    axes.set_theta_direction(-1)
    axes.set_ylim(0, 1)
    axes.set_yticks([0.25, 0.5, 0.75, 1.0], ["", "0.5", "", "1"], fontsize=8, color=INK)
    axes.set_xticks(angles, [definition(name).title.replace(" ", "\n", 1) for name in metrics], fontsize=9, color=INK)
    axes.tick_params(axis="x", pad=14)
    axes.grid(color=GRID, linewidth=0.7)
    axes.spines["polar"].set_color(GRID)
    for index, (model, values) in enumerate(sorted(models.items())):
        colour, line = COLOURS[index % len(COLOURS)], LINES[index // len(COLOURS) % len(LINES)]
        middle = np.array([values[name][0] if name in values else np.nan for name in metrics])
        axes.plot(
            np.append(angles, angles[0]), np.append(middle, middle[0]),
            color=colour, linestyle=line, linewidth=1.6, marker="o", markersize=3, label=model.replace("_", " "),
        )  # fmt: skip
        aside = (index - (len(models) - 1) / 2) * 0.02  # so that intervals do not hide each other
        for angle, name in zip(angles, metrics, strict=True):
            if name in values:
                axes.plot([angle + aside] * 2, values[name][1:], color=colour, linewidth=1.0, alpha=0.6)
    figure.legend(loc="center right", fontsize=9, frameon=False)
    figure.suptitle(f"{task}: how explainable the models are (EAMEX); outside is better", fontsize=12, color=INK)
    return figure


def _save(figure: Figure, path: Path, kind: str) -> None:
    from matplotlib import rc_context

    stamp = {"Software": None} if kind == "png" else {"Date": None, "Creator": None}
    with atomic_path(path) as temporary, rc_context({"svg.hashsalt": "explainbench", "svg.fonttype": "none"}):
        figure.savefig(temporary, format=kind, metadata=stamp)  # no time, no version: same picture, same bytes
