"""A cell as its page shows it: scores by regime with intervals, one window's explanation, its origins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from explainbench.analysis.intervals import mean_intervals, resample_indices
from explainbench.core.arrays import Floats
from explainbench.core.cell import stream
from explainbench.core.errors import Corrupt
from explainbench.core.params import StatisticsParams
from explainbench.figures import REGIMES, STEP_MINUTES
from explainbench.store import StoredCell

ALL = "all"


@dataclass(frozen=True, slots=True)
class Stat:
    """A mean over n windows with its percentile interval, which needs two windows."""

    mean: float
    low: float | None
    high: float | None
    n: int


@dataclass(frozen=True, slots=True)
class ScoreRow:
    """One score of a cell. kind: `0 to 1` or `raw`; by: regime (and `all`) -> Stat; points: regime -> its windows."""

    metric: str
    kind: str
    by: Mapping[str, Stat]
    points: Mapping[str, list[float]]


@dataclass(frozen=True, slots=True)
class Span:
    """A feature group's part of one channel: steps [start, stop) of the context, attribution e, the group's name."""

    start: int
    stop: int
    value: float
    group: str


@dataclass(frozen=True, slots=True)
class Heat:
    """One window's explanation over the target's curve.

    channels: (name, its spans) of every channel that has groups, the target first; curve: (t,) target channel;
    largest: the biggest |e| of this window; output: f(x); filled: f with every group masked; times: of the steps, or
    empty; signed: whether e has a sign.
    """

    window: int
    count: int
    origin: str
    regime: str
    target: str
    unit: str
    scale: str
    channels: list[tuple[str, list[Span]]]
    curve: list[float]
    times: list[str]
    largest: float
    signed: bool
    output: float
    filled: float | None

    def strongest(self, count: int = 10) -> list[Span]:
        """The groups with the largest |e|, best first."""
        spans = {span.group: span for _, found in self.channels for span in found}
        return sorted(spans.values(), key=lambda span: (-abs(span.value), span.group))[:count]


def regimes(names: set[str]) -> list[str]:
    """Regimes in the order in which figures show them."""
    return [name for name in REGIMES if name in names] + sorted(names - set(REGIMES))


def score_rows(stored: StoredCell, statistics: StatisticsParams) -> list[ScoreRow]:
    """Every score with a number, metrics of the protocol first. Raises Corrupt when scores cannot be read."""
    table = stored.scores()
    names = ("window", "regime", "metric", "raw", "value")
    try:
        columns = [table.column(name).to_pylist() for name in names]
    except KeyError as error:
        raise Corrupt(f"scores of {stored.cell} lack a column ({error}); evaluate the cell again.") from error
    found: dict[str, list[tuple[str, float, float | None]]] = {}
    for window, regime, metric, raw, value in zip(*columns, strict=True):
        if raw is not None:
            found.setdefault(metric, []).append((regime if window >= 0 and regime else ALL, raw, value))
    asked = stored.record.spec.parameters.get("metrics")
    first = [name for name in asked if name in found] if isinstance(asked, Mapping) else []
    rows = []
    for metric in [*first, *sorted(set(found) - set(first))]:
        bounded = all(value is not None for _, _, value in found[metric])
        points: dict[str, list[float]] = {}
        for regime, raw, value in found[metric]:
            points.setdefault(regime, []).append(value if bounded and value is not None else raw)
        points = {name: points[name] for name in regimes(set(points))}
        seed = stored.record.spec.seed
        by = {ALL: _stat([point for group in points.values() for point in group], seed, statistics)}
        if set(points) != {ALL}:
            by |= {name: _stat(group, seed, statistics) for name, group in points.items()}
        rows.append(ScoreRow(metric, "0 to 1" if bounded else "raw", by, points))
    return rows


def _stat(values: list[float], seed: int, statistics: StatisticsParams) -> Stat:
    array = np.array(values, dtype=np.float64)
    n = len(array)
    if n < 2:
        return Stat(float(array.mean()), None, None, n)
    indices = resample_indices(n, statistics.bootstrap, stream(seed, "interval", n))  # as published runs have it
    ends = mean_intervals(array[:, None], indices, statistics.confidence)
    return Stat(float(array.mean()), float(ends.low[0]), float(ends.high[0]), n)


def windows(arrays: Mapping[str, Any]) -> list[str]:
    """What each window is, for a list to choose from: `0: ramp, 2024-02-12 06:00`."""
    stamps = [_stamp(origin) for origin in arrays["origin"]]
    return [f"{index}: {regime}, {stamp}" for index, (regime, stamp) in enumerate(zip(arrays["regime"], stamps))]


def heat(stored: StoredCell, arrays: Mapping[str, Any], window: int) -> Heat:
    """One window of the explanations. Raises Corrupt when arrays are missing, and for a window that is not there."""
    try:
        importance: Floats = arrays["importance"][window]
        labels, names = arrays["labels"], [str(name) for name in arrays["channels"]]
        curve, regime, origin = arrays["context"][window], str(arrays["regime"][window]), arrays["origin"][window]
        output = float(arrays["output"][window])
    except (KeyError, IndexError) as error:
        count = len(arrays.get("importance", ()))
        raise Corrupt(f"{stored.cell} has no window {window}; it has {count}, from 0 ({error}).") from error
    card = stored.record.spec.method_card
    signed = card.get("vector", "signed") == "signed"
    task = stored.record.spec.parameters.get("task", {})
    players = [index for index in range(len(names)) if (labels[:, index] >= 0).any()]
    named = task.get("target") if isinstance(task, Mapping) else None
    target = names.index(named) if named in names else players[0]
    ordered = sorted(players, key=lambda index: index != target)
    unit = str(np.ravel(arrays["unit"])[0]) if "unit" in arrays else ""
    filled = arrays.get("filled_output")
    return Heat(
        window=window,
        count=len(arrays["importance"]),
        origin=_stamp(origin),
        regime=regime,
        target=names[target],
        unit=unit,
        scale="z-units" if card.get("category") == "example" else unit if signed else "",
        channels=[(names[index], _spans(labels[:, index], importance, stored.record.groups)) for index in ordered],
        curve=[float(value) for value in curve[:, target]],
        times=_times(origin, len(labels)),
        largest=float(np.nanmax(np.abs(importance))) if np.isfinite(importance).any() else 0.0,
        signed=signed,
        output=output,
        filled=None if filled is None else float(filled[window]),
    )


def _spans(labels: Any, importance: Floats, groups: list[str]) -> list[Span]:
    """Runs of equal labels along one channel (t,); steps without a group are left out."""
    edges = [0, *(np.flatnonzero(np.diff(labels)) + 1), len(labels)]
    spans = []
    for start, stop in pairwise(edges):
        label = int(labels[start])
        if label >= 0 and np.isfinite(importance[label]):
            name = groups[label] if label < len(groups) else str(label)
            spans.append(Span(int(start), int(stop), float(importance[label]), name))
    return spans


def _stamp(origin: Any) -> str:
    if isinstance(origin, np.datetime64):
        return str(origin.astype("datetime64[m]")).replace("T", " ")
    return str(origin)


def _times(origin: Any, steps: int) -> list[str]:
    """The time of each context step (t,), which ends right before the origin."""
    if not isinstance(origin, np.datetime64):
        return []
    stamps = origin.astype("datetime64[m]") + np.arange(-steps, 0) * np.timedelta64(STEP_MINUTES, "m")
    return [_stamp(stamp) for stamp in stamps]
