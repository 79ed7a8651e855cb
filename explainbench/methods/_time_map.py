"""What the attention methods share: a map over time steps laid on the channels."""

from __future__ import annotations

import numpy as np

from explainbench.core.arrays import Floats
from explainbench.core.masking import Masker

BITS = 40  # resolution of a map, relative to its window's largest value


def on_channels(steps: Floats, masker: Masker) -> Floats:
    """A non-negative map over steps (n, t) as attributions (n, t, c), in equal shares over the model's channels.

    A map over time says nothing of channels. On a univariate model all of it goes to the target; on a multichannel one
    every observed channel in use gets the same share, so a run of steps ties over the channels and the lower index
    comes first. The ties are exact because values are rounded to `BITS` bits, so that sums are free of rounding.
    """
    player = masker.groups.labels >= 0
    channels = max(1, int(player.any(axis=0).sum()))
    _, exponent = np.frexp(steps.max(axis=1, keepdims=True))
    shares = np.ldexp(np.rint(np.ldexp(steps / channels, BITS - exponent)), exponent - BITS)
    return np.where(player, shares[:, :, None], 0.0)
