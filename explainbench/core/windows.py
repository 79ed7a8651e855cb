"""A batch of context windows with their targets, regimes and origins, and the channels they are made of."""

import hashlib
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from explainbench.core.arrays import Floats, Ints, Stamps, Texts
from explainbench.core.errors import BadInput


@dataclass(frozen=True, slots=True, eq=False)
class Channels:
    """The input channels of a dataset, with the training-series statistics that define z-units and the training box.

    names, units: one per channel; known: True for calendar features, which are never players;
    mean, std, low, high: (c,) in dataset units, of the training series.
    """

    names: tuple[str, ...]
    units: tuple[str, ...]
    known: tuple[bool, ...]
    mean: Floats
    std: Floats
    low: Floats
    high: Floats

    def __len__(self) -> int:
        return len(self.names)

    def index(self, name: str) -> int:
        """Position of channel `name`. Raises BadInput with the channels there are."""
        if name not in self.names:
            raise BadInput(f"channel {name!r} is not in the dataset; its channels are {', '.join(self.names)}.")
        return self.names.index(name)

    @property
    def observed(self) -> Ints:
        """Indices of the channels that are measured, so may be masked, perturbed and explained."""
        return np.flatnonzero(~np.asarray(self.known))


@dataclass(frozen=True, slots=True, eq=False)
class Windows:
    """A batch of windows, never one window. A tabular row is a window with t = 1.

    context: (n, t, c) in dataset units; target: (n, h) in the target's unit; regime: (n,) names;
    origin: (n,) time stamp of the first target step, or row ids;
    truth: (n, t, c) share of the target that each input generated, where the dataset knows it, else None.
    """

    context: Floats
    target: Floats
    regime: Texts
    origin: Stamps | Ints
    channels: Channels
    truth: Floats | None = None

    def __post_init__(self) -> None:
        n, _, c = self.context.shape
        if c != len(self.channels) or len(self.target) != n or len(self.regime) != n or len(self.origin) != n:
            raise ValueError(
                f"windows disagree: context {self.context.shape}, target {self.target.shape}, "
                f"{len(self.regime)} regimes, {len(self.origin)} origins, {len(self.channels)} channels"
            )

    def __len__(self) -> int:
        return len(self.context)

    def take(self, rows: NDArray[np.integer] | slice) -> Self:
        """The windows at `rows`, in that order."""
        return replace(
            self,
            context=self.context[rows],
            target=self.target[rows],
            regime=self.regime[rows],
            origin=self.origin[rows],
            truth=None if self.truth is None else self.truth[rows],
        )

    def moved_to(self, context: Floats) -> Self:
        """The same windows with other contexts (n, t, c): the same calendar, so the same masks."""
        return replace(self, context=context)

    def digest(self) -> str:
        """SHA-256 over every array and channel statistic: the window-set hash."""
        state = hashlib.sha256()
        arrays: list[NDArray] = [
            self.context, self.target, self.regime, self.origin,
            self.channels.mean, self.channels.std, self.channels.low, self.channels.high,
        ]  # fmt: skip
        if self.truth is not None:
            arrays.append(self.truth)
        state.update(repr((self.channels.names, self.channels.units, self.channels.known)).encode())
        for array in arrays:
            state.update(repr((array.shape, array.dtype.str)).encode())
            state.update(np.ascontiguousarray(array).tobytes())
        return state.hexdigest()
