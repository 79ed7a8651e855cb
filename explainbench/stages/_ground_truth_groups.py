"""XFA of explanations of forecasts, where what drove them is known: explanations and ground truths over groups.

Reads and writes nothing: this module's imports are the code on a cell's path.
"""

from __future__ import annotations

import numpy as np

from explainbench.core.arrays import Bools, Floats
from explainbench.core.cell import Score
from explainbench.core.errors import NotApplicable
from explainbench.metrics.xfa import PARTS, TOP, VARIANTS, drivers, references, scores

ROUNDING = 1e-6  # of a row's largest value: what is below is what rounding left of a zero


def judge_groups(importance: Floats, shares: Floats) -> dict[str, Score]:
    """XFA in every variant, its parts, and what a perfect, an empty and an everything-naming explanation would get.

    importance: (n, g) of a method; shares: (n, g) what each group contributed, whose ground truth is the groups above
    an equal share. Scores are (n,); NaN for windows in which no group acts, or that have no explanation. Raises
    NotApplicable where no window is left.
    """
    e, truth = settled(importance), drivers(settled(shares))
    seen: Bools = np.logical_and(truth.any(axis=1), np.isfinite(importance).all(axis=1))
    if not seen.any():
        raise NotApplicable("in no explained window does a group act that the model sees")
    e, truth, top = e[seen], truth[seen], min(TOP, truth.shape[1])

    def spread(values: Floats) -> Floats:
        whole = np.full(len(seen), np.nan)
        whole[seen] = values
        return whole

    found: dict[str, Score] = {}
    for how in VARIANTS:
        parts = scores(e, truth, how, top=top)
        xfa = spread(parts["xfa"])
        found[how] = Score(xfa, xfa / 100)
        for name, (variant, part) in PARTS.items():
            if variant == how and np.isfinite(parts[part]).any():
                found[name] = Score(spread(parts[part]), spread(parts[part]))
        for name, values in references(truth, how, top).items():
            found[f"{how}_{name}"] = Score(np.array([values.mean()]))
    return found


def settled(values: Floats) -> Floats:
    """Values (n, g) without what is only rounding."""
    size = np.abs(values)
    return np.where(size > ROUNDING * size.max(axis=1, keepdims=True), values, 0.0)
