"""Pictures of one cell: where its attributions lie over the context curve, and how its scores spread by regime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from explainbench.core.arrays import Floats
from explainbench.core.files import atomic_path
from explainbench.store import StoredCell

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DPI = 100
STEP_MINUTES = 15
MAX_PANELS = 8
REGIMES = ("peak", "ramp", "off_peak")  # in the order they are drawn; others follow by name
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00")  # Okabe & Ito 2008: told apart by colour-blind eyes
INK = "#222222"


def draw_cell(stored: StoredCell, folder: Path) -> list[Path]:
    """Draw `attribution.png` and `scores.png` of a finished cell into `folder`; returns what was written.

    Raises Corrupt when the cell's files cannot be read, Unavailable when `folder` cannot be written.
    """
    written = [_save(attribution_figure(stored), folder / "attribution.png")]
    scores = scores_figure(stored)
    if scores is not None:
        written.append(_save(scores, folder / "scores.png"))
    return written


@dataclass(frozen=True, slots=True, eq=False)
class _Shown:
    """One window as it is drawn; painted: e of the group that each input belongs to, NaN where it is no player."""

    title: str
    times: NDArray[Any]  # (t + 1,) edges of the context steps
    curve: Floats  # (t,) target channel
    painted: Floats  # (t, c)


def attribution_figure(stored: StoredCell) -> Figure:
    """One window per regime: e of each feature group, over the target's curve and for every channel."""
    from matplotlib.colors import Normalize, TwoSlopeNorm
    from matplotlib.patheffects import withStroke

    arrays = stored.explanations()
    labels = arrays["labels"]
    channels = [str(name) for name in arrays["channels"]]
    players = np.flatnonzero((labels >= 0).any(axis=0))
    target = _target(stored, channels, players)
    importance = arrays["importance"]
    shown = [_window(arrays, row, target) for row in _one_per_regime(arrays["regime"])]
    signed = stored.record.spec.method_card.get("vector", "signed") == "signed"
    largest = max((float(np.nanmax(np.abs(one.painted))) for one in shown if np.isfinite(one.painted).any()), default=0)
    largest = largest or 1.0
    norm = TwoSlopeNorm(0.0, -largest, largest) if signed else Normalize(0.0, largest)
    colours = "RdBu_r" if signed else "Blues"
    unit = str(arrays["unit"].ravel()[0]) if "unit" in arrays else ""

    figure = _figure(3.9 * len(shown) + 1.2, 2.4 + 0.32 * len(players))
    figure.subplots_adjust(left=0.135, right=0.9, top=0.87, bottom=0.13, wspace=0.14, hspace=0.06)
    grid = figure.subplots(2, len(shown), squeeze=False, height_ratios=(2.0, 0.32 * len(players) + 0.2), sharex="col")
    image: Any = None
    for column, one in enumerate(shown):
        above, below = grid[0][column], grid[1][column]
        edges = one.times
        low, high = float(one.curve.min()), float(one.curve.max())
        margin = 0.08 * (high - low or 1.0)
        box = (low - margin, high + margin)
        above.pcolormesh(edges, box, one.painted[None, :, target], cmap=colours, norm=norm, rasterized=True)
        halo = [withStroke(linewidth=3.0, foreground="white")]  # so that the curve is seen on the darkest colours
        above.plot(_middles(edges), one.curve, color=INK, linewidth=1.4, path_effects=halo)
        above.tick_params(labelsize=8)
        above.set_ylim(*box)
        above.set_title(one.title, fontsize=10)
        image = below.pcolormesh(
            edges, np.arange(len(players) + 1), one.painted[:, players].T, cmap=colours, norm=norm, rasterized=True
        )
        below.invert_yaxis()
        below.set_yticks(
            np.arange(len(players)) + 0.5, [channels[channel] for channel in players] if column == 0 else []
        )
        below.tick_params(axis="y", length=0)
        for boundary in range(1, len(players)):
            below.axhline(boundary, color="white", linewidth=1.5)
        _time_axis(below, edges)
    grid[0][0].set_ylabel(f"{channels[target]}" + (f"\n({unit})" if unit else ""), fontsize=9)
    bar = figure.colorbar(image, cax=figure.add_axes((0.915, 0.13, 0.012, 0.74)))
    card = stored.record.spec.method_card
    scale = "z-units" if card.get("category") == "example" else unit if signed else ""
    measure = f"{scale} per group" if scale else "per group"
    bar.set_label(f"attribution e, {measure}", fontsize=9)
    bar.ax.tick_params(labelsize=8)
    figure.suptitle(
        f"{stored.cell}: attribution of {len(importance[0])} feature groups, "
        f"mean of {len(arrays['attribution'])} run(s); one window per regime",
        fontsize=11,
    )
    return figure


def scores_figure(stored: StoredCell) -> Figure | None:
    """Per-window scores by regime, one panel per score: quartiles, median and every window; None without scores."""
    panels = _panels(stored)
    if not panels:
        return None
    columns = min(4, len(panels))
    rows = -(-len(panels) // columns)
    figure = _figure(2.9 * columns + 0.3, 2.5 * rows + 0.5)
    figure.subplots_adjust(
        left=0.05, right=0.99, top=1 - 0.75 / (2.5 * rows + 0.5), bottom=0.1, wspace=0.22, hspace=0.42
    )
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, (name, kind, groups) in zip(grid, panels):
        for position, values in enumerate(groups.values()):
            colour = COLOURS[position % len(COLOURS)]
            axes.boxplot(
                [values], positions=[position], widths=0.6, showfliers=False,
                medianprops={"color": INK, "linewidth": 1.6}, boxprops={"color": colour},
                whiskerprops={"color": colour}, capprops={"color": colour},
            )  # fmt: skip
            axes.plot(position + _spread(values), values, "o", markersize=3, color=colour, alpha=0.65, zorder=3)
        axes.set_xticks(range(len(groups)), [f"{regime}\nn = {len(values)}" for regime, values in groups.items()])
        axes.tick_params(labelsize=8)
        axes.set_title(f"{name} ({kind})", fontsize=9)
        axes.set_xlim(-0.6, len(groups) - 0.4)
        axes.grid(axis="y", color="#dddddd", linewidth=0.6)
        axes.set_axisbelow(True)
        if kind == "0 to 1":
            axes.set_ylim(-0.03, 1.03)
    for axes in grid[len(panels) :]:
        axes.set_visible(False)
    figure.suptitle(f"{stored.cell}: scores per window, by regime", fontsize=11)
    return figure


def draw_contexts(document: Mapping[str, Any], path: Path) -> Path:
    """Task T3 as heat maps, a row per task: Act and EDTS of models, DSS and EEI of methods, in every context.

    document: results/contexts.json. Each cell is the mean over what its row does not name.
    """
    panels = (("act", "model"), ("edts", "model"), ("dss", "method"), ("eei", "method"))
    names = [context["name"] for context in document["contexts"]]
    tasks = document["tasks"]
    figure = _figure(4.2 * len(panels), 3.6 * len(tasks))
    grid = figure.subplots(len(tasks), len(panels), squeeze=False)
    figure.subplots_adjust(left=0.09, right=0.97, top=0.93, bottom=0.17, wspace=0.75, hspace=0.65)
    for line, (task, found) in zip(grid, tasks.items(), strict=True):
        for axes, (index, by) in zip(line, panels, strict=True):
            labels = sorted({row[by] for row in found["rows"]})
            table = np.full((len(labels), len(names)), np.nan)
            for (i, label), (j, context) in product(enumerate(labels), enumerate(names)):
                here = [r["values"][index] for r in found["rows"] if r[by] == label and r["context"] == context]
                known = [value for value in here if value is not None]
                if known:
                    table[i, j] = np.mean(known)
            axes.imshow(table, vmin=0, vmax=1, cmap="cividis", aspect="auto")
            for i, j in np.ndindex(table.shape):
                text = "-" if np.isnan(table[i, j]) else f"{table[i, j]:.2f}"
                dark = np.isnan(table[i, j]) or table[i, j] > 0.55
                axes.text(j, i, text, ha="center", va="center", fontsize=6, color=INK if dark else "white")
            axes.set_xticks(range(len(names)), names, rotation=40, ha="right", fontsize=7)
            axes.set_yticks(range(len(labels)), labels, fontsize=7)
            share = found["variance_shares"][index].get("context")
            due = "" if share is None else f", {share:.0%} due to context"
            axes.set_title(f"{task}: {index.upper()}{due}", fontsize=9, loc="left")
    figure.suptitle("Deployment contexts (illustrative values)", fontsize=11)
    return _save(figure, path)


def _figure(width: float, height: float) -> Figure:
    """A figure with an Agg canvas of its own: no pyplot, no global state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=DPI)  # placed by hand: an automatic layout doubles the time
    FigureCanvasAgg(figure)
    return figure


def _save(figure: Figure, path: Path) -> Path:
    with atomic_path(path) as temporary:
        figure.savefig(
            temporary, format="png", metadata={"Software": None}
        )  # no version stamp: same picture, same bytes
    return path


def _one_per_regime(regime: NDArray[Any]) -> list[int]:
    """The first window of each regime, in drawing order."""
    names = [str(name) for name in regime]
    order = [name for name in REGIMES if name in names] + sorted(set(names) - set(REGIMES))
    return [names.index(name) for name in order]


def _window(arrays: Mapping[str, NDArray[Any]], row: int, target: int) -> _Shown:
    labels = arrays["labels"]
    steps = len(labels)
    painted = np.where(labels >= 0, arrays["importance"][row][np.maximum(labels, 0)], np.nan)
    offsets = np.arange(-steps, 1)
    origin = arrays["origin"][row]
    if arrays["origin"].dtype.kind in "Mm":
        times = origin.astype("datetime64[m]") + offsets * np.timedelta64(STEP_MINUTES, "m")
        when = f"target from {str(origin.astype('datetime64[m]')).replace('T', ' ')} UTC"
    else:
        times, when = offsets, f"window {origin}"
    return _Shown(f"{arrays['regime'][row]}: {when}", times, arrays["context"][row][:, target], painted)


def _middles(edges: NDArray[Any]) -> NDArray[Any]:
    return edges[:-1] + (edges[1:] - edges[:-1]) / 2 if edges.dtype.kind != "M" else edges[:-1] + np.diff(edges) // 2


def _time_axis(axes: Axes, edges: NDArray[Any]) -> None:
    if edges.dtype.kind == "M":
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

        locator = AutoDateLocator(minticks=3, maxticks=6)
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))
        axes.xaxis.get_offset_text().set_fontsize(8)
        axes.set_xlabel("time (UTC)", fontsize=8)
    else:
        axes.set_xlabel("steps before the target", fontsize=8)
    axes.tick_params(labelsize=8)


def _target(stored: StoredCell, channels: Sequence[str], players: NDArray[np.intp]) -> int:
    """Position of the task's target channel; the first player where the record does not name one."""
    task = stored.record.spec.parameters.get("task", {})
    name = task.get("target") if isinstance(task, Mapping) else None
    return channels.index(name) if name in channels else int(players[0])


def _panels(stored: StoredCell) -> list[tuple[str, str, dict[str, Floats]]]:
    """(score, `0 to 1` or `raw`, {regime: values}) of every per-window score, metrics of the protocol first."""
    table = stored.scores()
    columns = {name: table.column(name).to_pylist() for name in ("window", "regime", "metric", "raw", "value")}
    found: dict[str, list[tuple[str, float, float | None]]] = {}
    for window, regime, metric, raw, value in zip(*columns.values(), strict=True):
        if window >= 0 and raw is not None:
            found.setdefault(metric, []).append((regime, raw, value))
    asked = stored.record.spec.parameters.get("metrics")
    first = [name for name in asked if name in found] if isinstance(asked, Mapping) else []
    panels: list[tuple[str, str, dict[str, Floats]]] = []
    for name in [*first, *sorted(set(found) - set(first))][:MAX_PANELS]:
        entries = found[name]
        bounded = all(value is not None for _, _, value in entries)
        present = {regime for regime, _, _ in entries}
        order = [regime for regime in REGIMES if regime in present] + sorted(present - set(REGIMES))
        panels.append(
            (
                name,
                "0 to 1" if bounded else "raw",
                {
                    regime: np.array([value if bounded else raw for at, raw, value in entries if at == regime], float)
                    for regime in order
                },
            )
        )
    return panels


def _spread(values: Floats) -> Floats:
    """Sideways offsets (n,) that keep points apart, by rank and without chance: neighbours in value alternate sides."""
    rank = np.argsort(np.argsort(values, kind="stable"), kind="stable").astype(np.float64)
    return ((rank * 0.618034) % 1.0 - 0.5) * 0.4
