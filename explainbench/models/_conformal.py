"""Split-conformal quantiles around a point forecaster (Vovk et al. 2005; per level and horizon step)."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Self

import numpy as np

from explainbench.core.arrays import Floats
from explainbench.core.errors import NotApplicable
from explainbench.core.forecaster import ExplainedModel, Forecast, Forecaster
from explainbench.core.windows import Windows


@dataclass(frozen=True, slots=True, eq=False)
class Conformal:
    """A forecaster with the quantiles that its own errors on calibration windows imply.

    levels: (q,); offsets: (h, q) in the target's unit, each the finite-sample quantile of the signed residuals at its
    horizon step: the ceil((n + 1) level)-th smallest of n.
    """

    forecaster: Forecaster
    levels: Floats
    offsets: Floats

    @classmethod
    def calibrated(cls, forecaster: Forecaster, windows: Windows, levels: Floats) -> Self:
        """Fit the offsets on windows that no gradient step saw. Raises NotApplicable where they are too few."""
        n = len(windows)
        ranks = [ceil((n + 1) * level) for level in levels]
        if max(ranks) > n:
            raise NotApplicable(f"split-conformal quantiles up to {max(levels):g} need more than {n} windows")
        residuals = np.sort(windows.target - ExplainedModel(forecaster).forecast(windows.context).mean, axis=0)
        return cls(forecaster, levels, np.stack([residuals[rank - 1] for rank in ranks], axis=-1))

    def predict(self, context: Floats) -> Forecast:
        """The point forecast with quantiles (n, h, q), ordered because the offsets are."""
        mean = self.forecaster.predict(context).mean
        return Forecast.sorted(mean, mean[..., None] + self.offsets, self.levels)
