"""From series to windows: calendar channels, channel statistics, regimes, and which windows are scored or fitted on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from explainbench.core.arrays import Floats, Ints, Stamps, Texts
from explainbench.core.cell import stream
from explainbench.core.dataset import Series
from explainbench.core.errors import BadInput
from explainbench.core.masking import Climatology, is_weekend
from explainbench.core.params import TaskParams
from explainbench.core.windows import Channels, Windows

STEP = np.timedelta64(15, "m")
HOUR = 4  # steps
DAY = 96
CALENDAR = ("tod_sin", "tod_cos", "dow_sin", "dow_cos", "weekend")
REGIMES = ("ramp", "peak", "off_peak")
REGIME_TYPE = "<U8"


def calendar(stamps: Stamps) -> Floats:
    """Calendar features of UTC stamps (s,): time of day and day of week as sine and cosine, weekend flag; (s, 5)."""
    day = stamps.astype("datetime64[D]")
    turn = 2 * np.pi * (stamps - day).astype("timedelta64[m]").astype(np.float64) / (24 * 60)
    week = 2 * np.pi * ((day.astype(np.int64) + 3) % 7) / 7  # Monday at 0
    waves = np.round([np.sin(turn), np.cos(turn), np.sin(week), np.cos(week)], 12)  # the last bits depend on the CPU
    return np.stack([*waves, is_weekend(stamps).astype(float)], axis=1)


def with_calendar(series: Series) -> Series:
    """The series with the calendar channels after the observed ones."""
    return replace(
        series,
        values=np.concatenate([series.values, calendar(series.stamps)], axis=1),
        names=(*series.names, *CALENDAR),
        units=(*series.units, *("1" for _ in CALENDAR)),
    )


def settled(values: Floats) -> Floats:
    """`values` at nine significant digits: derived numbers whose last bits depend on the processor's vector width.

    Window hashes, and so cell ids, are then the same on every processor type.
    """
    exponent = np.floor(np.log10(np.where(values == 0, 1.0, np.abs(values))))
    scale = 10.0 ** (8 - exponent)
    return np.round(values * scale) / scale


def channels(training: Sequence[Series]) -> Channels:
    """The channels with their training statistics. Calendar channels get mean 0 and deviation 1: z-scoring leaves them.

    Raises BadInput for a channel that never changes in the training series.
    """
    first = training[0]
    values = np.concatenate([series.values for series in training])
    known = np.asarray([name in CALENDAR for name in first.names])
    mean = np.where(known, 0.0, values.mean(axis=0))
    std = np.where(known, 1.0, values.std(axis=0))
    for channel in np.flatnonzero(std == 0):
        raise BadInput(
            f"column {first.names[channel]!r} has the same value in every training row; leave it out of the mapping."
        )
    return Channels(
        first.names,
        first.units,
        tuple(bool(flag) for flag in known),
        mean=settled(mean),
        std=settled(std),
        low=values.min(axis=0),
        high=values.max(axis=0),
    )


def climatology(training: Sequence[Series]) -> Climatology:
    """Training means by day type and quarter-hour over all channels, and the whole days of the training series."""
    stamps, values = [], []
    for series in training:
        minute = (series.stamps - series.stamps.astype("datetime64[D]")).astype("timedelta64[m]").astype(int)
        midnights = np.flatnonzero(minute == 0)
        days = (len(minute) - int(midnights[0])) // DAY if len(midnights) else 0
        if days:
            whole = slice(int(midnights[0]), int(midnights[0]) + days * DAY)
            stamps.append(series.stamps[whole])
            values.append(series.values[whole])
    weekend = [is_weekend(part[::DAY]) for part in stamps]
    if not weekend or not {True, False} <= set(np.concatenate(weekend).tolist()):
        raise BadInput(
            "the training series holds no whole working day and whole weekend day; "
            "give a longer series, a month at the least."
        )
    fitted = Climatology.of(np.concatenate(stamps), np.concatenate(values))
    return replace(fitted, table=settled(fitted.table))


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Regime limits, from the training series. ramp: the 80th percentile of the largest 1-h change of a target block;
    peak: the 75th percentile of its mean; both in the target's unit."""

    ramp: float
    peak: float


def block_features(target: Floats, starts: Ints, horizon: int) -> tuple[Floats, Floats]:
    """Largest 1-h change and mean of the target blocks that start at rows `starts` (n,): two (n,).

    A 1-h change belongs to the block in which it ends, so the first hour of a block is compared with the context's last
    hour and a block of one hour has four changes. target: (s,); starts must be at least one hour in.
    """
    change = np.abs(target[HOUR:] - target[:-HOUR])  # change[i] ends at row i + HOUR
    largest = sliding_window_view(change, horizon).max(axis=1)
    mean = sliding_window_view(target, horizon).mean(axis=1)
    return largest[starts - HOUR], mean[starts]


def thresholds(training: Sequence[Series], task: TaskParams) -> Thresholds:
    """Regime limits over every target block of the training series. Raises BadInput for a series too short."""
    ramps, means = [], []
    for series in training:
        starts = np.arange(HOUR, len(series.stamps) - task.horizon + 1)
        if len(starts) == 0:
            raise BadInput(
                f"a training series of {len(series.stamps)} rows is too short for {task.horizon} steps ahead."
            )
        ramp, mean = block_features(series.values[:, _index(series, task.target)], starts, task.horizon)
        ramps.append(ramp)
        means.append(mean)
    return Thresholds(
        ramp=float(np.quantile(np.concatenate(ramps), 0.80)), peak=float(np.quantile(np.concatenate(means), 0.75))
    )


def regimes(largest: Floats, mean: Floats, limits: Thresholds) -> Texts:
    """`ramp` where the largest 1-h change is above its limit, else `peak` where the mean is, else `off_peak`; (n,)."""
    found = np.where(largest > limits.ramp, "ramp", np.where(mean > limits.peak, "peak", "off_peak"))
    return found.astype(REGIME_TYPE)


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """Which windows are scored. starts: (n,) row of the first target step, ascending; regime: (n,);
    available: regime -> windows there were to draw from; shortfall: regime -> windows missing;
    stride: steps between candidate windows; effective_n: how many of the drawn windows are mutually disjoint.
    """

    starts: Ints
    regime: Texts
    available: dict[str, int]
    shortfall: dict[str, int]
    stride: int
    effective_n: int


def draw(series: Series, task: TaskParams, limits: Thresholds, seed: int, *names: str, overlap: bool = False) -> Sample:
    """Draw `windows_per_regime` windows of each regime from the disjoint windows of a benchmark series.

    Candidates lie on a grid of stride context + horizon, so no two share a row, and a paired test over them keeps its
    level. `overlap` allows a finer grid (the stride is halved until every regime is full, but not below one horizon or
    one hour) and is for short series only; then `effective_n` is smaller than the number of windows.
    names: of the random stream. Raises BadInput when the series holds no window.
    """
    steps = task.context + task.horizon
    target = series.values[:, _index(series, task.target)]
    if len(target) < steps:
        raise BadInput(
            f"the benchmark series has {len(target)} rows, but one window takes {steps} "
            f"({task.context} context + {task.horizon} ahead); give a longer series or a shorter context."
        )
    stride = steps
    while True:
        starts = np.arange(max(task.context, HOUR), len(target) - task.horizon + 1, stride)
        kind = regimes(*block_features(target, starts, task.horizon), limits)
        available = {name: int((kind == name).sum()) for name in REGIMES}
        full = all(count >= task.windows_per_regime for count in available.values())
        finer = max(stride // 2, task.horizon, HOUR)
        if full or not overlap or finer >= stride:
            break
        stride = finer
    picked = np.sort(
        np.concatenate(
            [
                stream(seed, *names, "windows", name).permutation(np.flatnonzero(kind == name))[
                    : task.windows_per_regime
                ]
                for name in REGIMES
            ]
        )
    )
    chosen = starts[picked]
    shortfall = {name: max(0, task.windows_per_regime - count) for name, count in available.items()}
    return Sample(chosen, kind[picked], available, shortfall, stride, disjoint(chosen, steps))


def disjoint(starts: Ints, steps: int) -> int:
    """Largest number of windows of `steps` rows that share no row, of windows at ascending `starts`."""
    count, free = 0, -np.inf
    for start in starts:
        if start >= free:
            count, free = count + 1, start + steps
    return count


def windows(
    series: Series, task: TaskParams, described: Channels, starts: Ints, regime: Texts, truth: Floats | None = None
) -> Windows:
    """The windows whose first target step is at rows `starts` (n,). truth: (n, t, c), if known."""
    context = sliding_window_view(series.values, task.context, axis=0).transpose(0, 2, 1)
    ahead = sliding_window_view(series.values[:, _index(series, task.target)], task.horizon)
    return Windows(
        context=np.ascontiguousarray(context[starts - task.context]),
        target=np.ascontiguousarray(ahead[starts]),
        regime=regime,
        origin=series.stamps[starts].astype("datetime64[m]"),
        channels=described,
        truth=truth,
    )


def cut(
    pieces: Sequence[Series], task: TaskParams, described: Channels, stride: int, limits: Thresholds | None = None
) -> Windows:
    """Every `stride`-th window of one or more series, in time order; regimes are named where limits are given."""
    parts = []
    for series in pieces:
        starts = np.arange(max(task.context, HOUR), len(series.stamps) - task.horizon + 1, stride)
        if limits is None:
            kind = np.full(len(starts), "", dtype=REGIME_TYPE)
        else:
            target = series.values[:, _index(series, task.target)]
            kind = regimes(*block_features(target, starts, task.horizon), limits)
        parts.append(windows(series, task, described, starts, kind))
    return Windows(
        context=np.concatenate([part.context for part in parts]) if len(parts) > 1 else parts[0].context,
        target=np.concatenate([part.target for part in parts]),
        regime=np.concatenate([part.regime for part in parts]),
        origin=np.concatenate([part.origin for part in parts]),
        channels=described,
    )


def split(series: Series, share: float) -> tuple[Series, Series]:
    """Chronological split: all but the last `share` of the rows, and the last `share`."""
    cut = round(len(series.stamps) * (1 - share))
    early = replace(series, stamps=series.stamps[:cut], values=series.values[:cut])
    return early, replace(series, stamps=series.stamps[cut:], values=series.values[cut:])


def _index(series: Series, name: str) -> int:
    if name not in series.names:
        raise BadInput(f"the target {name!r} is not in the dataset; its channels are {', '.join(series.names)}.")
    return series.names.index(name)
