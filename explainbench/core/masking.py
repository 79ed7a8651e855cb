"""Feature groups (the players) and the one masking operator that every method and metric shares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from explainbench.core.arrays import Bools, Floats, Ints, Stamps
from explainbench.core.windows import Channels, Windows

if TYPE_CHECKING:
    from explainbench.core.forecaster import ExplainedModel

Operator = Literal["climatology", "mean", "interpolate", "resample", "raw_zero"]
OPERATORS: tuple[Operator, ...] = ("climatology", "mean", "interpolate", "resample", "raw_zero")
CHUNK = 4096  # masked windows built at a time: bounds memory, has no influence on bits
QUARTERS = 96  # quarter-hours of a day


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """Runs of `segment` steps of one channel. labels: (t, c) group of each input, -1 where it is not a player."""

    labels: Ints
    names: tuple[str, ...]

    @classmethod
    def of(cls, channels: Channels, steps: int, segment: int, used: Ints) -> Groups:
        """Cut each used, observed channel of a window of `steps` steps into runs, oldest run first.

        The oldest run of a channel is the short one where `segment` does not divide `steps`.
        """
        labels = np.full((steps, len(channels)), -1)
        names: list[str] = []
        runs = -(-steps // segment)
        for channel in np.intersect1d(used, channels.observed):
            for run in range(runs):
                stop = steps - (runs - 1 - run) * segment
                start = max(0, stop - segment)
                labels[start:stop, channel] = len(names)
                names.append(f"{channels.names[channel]}[{start - steps}:{stop - steps}]")
        return cls(labels, tuple(names))

    def __len__(self) -> int:
        return len(self.names)

    @property
    def sizes(self) -> Ints:
        """(g,) inputs in each group."""
        return np.bincount(self.labels[self.labels >= 0], minlength=len(self))

    def total(self, attribution: Floats) -> Floats:
        """Sum (n, t, c) into groups: (n, g)."""
        member = self.labels >= 0
        onehot = np.zeros((int(member.sum()), len(self)))
        onehot[np.arange(len(onehot)), self.labels[member]] = 1.0
        return attribution[:, member] @ onehot

    def average(self, attribution: Floats) -> Floats:
        """Mean of (n, t, c) over each group: (n, g)."""
        return self.total(attribution) / self.sizes

    def spread(self, values: Floats) -> Floats:
        """Share group values (n, g) equally among their inputs: (n, t, c), zero elsewhere; `total` undoes it."""
        shares = np.concatenate([values / self.sizes, np.zeros((len(values), 1))], axis=1)
        return shares[:, self.labels]

    def kept(self, keep: Bools) -> Bools:
        """Coalitions (k, g) as input masks (k, t, c); inputs that are no players are always kept."""
        always = np.concatenate([keep, np.ones((len(keep), 1), dtype=bool)], axis=1)
        return always[:, self.labels]


@dataclass(frozen=True, slots=True, eq=False)
class Climatology:
    """Training-series means by day type and quarter-hour, and the series itself for resampling.

    table: (2, 96, c) in dataset units, day types working day and weekend; series: (s, c), starting at a midnight.
    """

    table: Floats
    series: Floats
    weekend: Bools  # (s // 96,) day type of each whole day of `series`

    @classmethod
    def of(cls, stamps: Stamps, values: Floats) -> Climatology:
        """Fit on a quarter-hourly series: stamps (s,), values (s, c); incomplete days are left out."""
        minute = (stamps - stamps.astype("datetime64[D]")).astype("timedelta64[m]").astype(int)
        first = int(np.flatnonzero(minute == 0)[0])
        days = (len(stamps) - first) // QUARTERS
        series = values[first : first + days * QUARTERS]
        weekend = is_weekend(stamps[first : first + days * QUARTERS : QUARTERS])
        daily = series.reshape(days, QUARTERS, -1)
        table = np.stack([daily[~weekend].mean(axis=0), daily[weekend].mean(axis=0)])
        return cls(table, series, weekend)


def is_weekend(stamps: Stamps) -> Bools:
    """True on Saturdays and Sundays (UTC)."""
    weekday = (stamps.astype("datetime64[D]").astype(int) + 3) % 7  # 1970-01-01 was a Thursday
    return weekday >= 5


@dataclass(frozen=True, slots=True, eq=False)
class Masker:
    """The masking operator: what a group's inputs become when the group is masked.

    climatology is None for tabular data, whose masked columns take the training mean; target: the channel that is
    forecast, from whose training series the decision agent takes its thresholds, where there is one.
    """

    groups: Groups
    operator: Operator = "climatology"
    climatology: Climatology | None = None
    step_minutes: int = 15
    target: int | None = None

    def fill(self, windows: Windows) -> Floats:
        """The fully masked windows (n, t, c): every player replaced, all other inputs untouched."""
        filled = windows.context.copy()
        player = self.groups.labels >= 0
        filled[:, player] = self._replacement(windows)[:, player]
        return filled

    def outputs(self, model: ExplainedModel, windows: Windows, keep: Bools) -> Floats:
        """f at windows whose groups outside the coalition are masked: (n, k).

        keep: (k, g) coalitions shared by all windows, or (n, k, g) one set per window. One batched stream of model
        calls; the masked windows are built `CHUNK` at a time from index arrays.
        """
        n = len(windows)
        shared = keep.ndim == 2
        k = keep.shape[-2]
        masks = self.groups.kept(keep) if shared else None
        flat = keep.reshape(-1, len(self.groups))
        filled = self.fill(windows)
        values = np.empty(n * k)
        for start in range(0, n * k, CHUNK):
            rows = np.arange(start, min(start + CHUNK, n * k))
            window, draw = np.divmod(rows, k)
            kept = masks[draw] if masks is not None else self.groups.kept(flat[rows])
            values[rows] = model(np.where(kept, windows.context[window], filled[window]))
        return values.reshape(n, k)

    def _stamps(self, windows: Windows) -> Stamps:
        steps = windows.context.shape[1]
        offsets = np.arange(-steps, 0) * np.timedelta64(self.step_minutes, "m")
        return windows.origin.astype("datetime64[m]")[:, None] + offsets

    def _replacement(self, windows: Windows) -> Floats:
        if self.operator == "raw_zero":
            return np.zeros_like(windows.context)
        if self.operator == "interpolate":
            return self._interpolated(windows.context)
        if self.climatology is None or self.operator == "mean":
            return np.broadcast_to(windows.channels.mean, windows.context.shape)
        stamps = self._stamps(windows)
        quarter = (stamps - stamps.astype("datetime64[D]")).astype("timedelta64[m]").astype(int) // self.step_minutes
        weekend = is_weekend(stamps)
        if self.operator == "climatology":
            return self.climatology.table[weekend.astype(int), quarter]
        return self._resampled(stamps, weekend, quarter)

    def _interpolated(self, context: Floats) -> Floats:
        """Each group becomes the straight line between its channel's neighbours just outside it (flat at the edges)."""
        filled = context.copy()
        last = context.shape[1] - 1
        for group in range(len(self.groups)):
            steps, channel = np.nonzero(self.groups.labels == group)
            before, after = steps[0] - 1, steps[-1] + 1
            left = context[:, max(before, 0), channel[0]] if before >= 0 else context[:, min(after, last), channel[0]]
            right = context[:, after, channel[0]] if after <= last else left
            fraction = (steps - before) / (after - before)
            filled[:, steps, channel[0]] = left[:, None] + (right - left)[:, None] * fraction
        return filled

    def _resampled(self, stamps: Stamps, weekend: Bools, quarter: Ints) -> Floats:
        """Training days of the same day type, one drawn per calendar day of the window by a hash of that day."""
        assert self.climatology is not None
        pools = [np.flatnonzero(self.climatology.weekend == kind) for kind in (False, True)]
        day = stamps.astype("datetime64[D]").astype(np.int64)
        scrambled = (day * 2654435761) % 4294967296  # Knuth's multiplicative hash: keyed by the day, not by position
        picked = np.where(weekend, pools[1][scrambled % len(pools[1])], pools[0][scrambled % len(pools[0])])
        return self.climatology.series[picked * QUARTERS + quarter]


def ranking(importance: Floats) -> Ints:
    """pi: group indices by decreasing |e|, ties by lower index; (n, g) -> (n, g)."""
    return np.argsort(-np.abs(importance), axis=-1, kind="stable")


def cumulative_keep(order: Ints, groups: int) -> Bools:
    """Coalitions that drop the first 1..K groups of each order (n, K): (n, K, g)."""
    n, top = order.shape
    position = np.full((n, groups), top)
    np.put_along_axis(position, order, np.broadcast_to(np.arange(top), order.shape), axis=1)
    return position[:, None, :] > np.arange(top)[None, :, None]
