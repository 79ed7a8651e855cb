"""Aliases: methods that on one model give the same explanation, so that one row of a board stands for them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from explainbench.core.arrays import Floats
from explainbench.core.forecaster import ExplainedModel
from explainbench.core.windows import Windows

TOLERANCE = 1e-6  # largest difference, relative to the larger explanation's largest importance
SCALES = (0.5, 2.0, 10.0)


def alias_classes(importance: Mapping[str, Floats], tolerance: float = TOLERANCE) -> dict[str, str]:
    """Method -> its alias class, for the methods of one (task, model) that have one: names joined by an equals sign.

    importance: method -> e (n, g) on the same windows and groups. A method joins a class when it agrees with the
    class's first member by name within `tolerance`; explanations that are zero everywhere agree with nothing.
    """
    classes: list[list[str]] = []
    for method in sorted(importance):
        for members in classes:
            if _agree(importance[members[0]], importance[method], tolerance):
                members.append(method)
                break
        else:
            classes.append([method])
    return {method: "=".join(members) for members in classes if len(members) > 1 for method in members}


def scale_equivariance(model: ExplainedModel, windows: Windows) -> float:
    """How far f is from f(a x) = a f(x): the largest deviation over windows and a in `SCALES`, relative to a max f(x).

    All observed channels are scaled in dataset units, calendar channels left alone. On models at 0 (mean scaling
    without shift) gradients are the same along the ray to zero, so that integrated gradients from a zero baseline are
    gradient x input; from the masked window they need not be, which is why `alias_classes` measures per cell.
    """
    here = model(windows.context)
    worst = 0.0
    for scale in SCALES:
        context = windows.context.copy()
        context[..., windows.channels.observed] *= scale
        there = model(context)
        worst = max(worst, float(np.abs(there - scale * here).max() / (scale * np.abs(here).max())))
    return worst


def _agree(one: Floats, other: Floats, tolerance: float) -> bool:
    if one.shape != other.shape:
        return False
    size = max(np.abs(one).max(initial=0.0), np.abs(other).max(initial=0.0))
    return bool(size > 0 and np.abs(one - other).max() <= tolerance * size)
