"""A tabular model that counts what it is asked."""

from __future__ import annotations

import time
from copy import copy
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from numpy.typing import NDArray

from explainbench.core.arrays import Floats
from explainbench.core.forecaster import Meter
from explainbench.core.tabular import HasLayers

if TYPE_CHECKING:
    import torch


class Predicts(Protocol):
    """Whatever answers rows (n, d) with (n,)."""

    def predict(self, rows: Floats) -> NDArray[Any]: ...


Model = TypeVar("Model", bound=Predicts)


def metered(model: Model) -> tuple[Model, Meter]:
    """The same model, and a meter of the rows it is asked about, those among them asked with a gradient, and seconds.

    The twin offers what the model offers, so that methods choose the same path. Not counted: what reads the trees or
    the weights themselves and asks nothing, such as TreeSHAP; and the seconds of backward passes.
    """
    twin, meter = copy(model), Meter()

    def predict(rows: Floats) -> NDArray[Any]:
        began = time.perf_counter()
        found = model.predict(rows)
        meter.seconds += time.perf_counter() - began
        meter.evaluations += len(rows)
        return found

    object.__setattr__(twin, "predict", predict)  # models are frozen, and their copies too
    if isinstance(model, HasLayers):
        object.__setattr__(twin, "module", _counted(model.module, meter))
    return twin, meter


def per_explanation(meter: Meter, explanations: int) -> tuple[float, float]:
    """Rows asked, and rows asked with a gradient, by explanation."""
    return meter.evaluations / explanations, meter.gradients / explanations


def _counted(module: torch.nn.Module, meter: Meter) -> torch.nn.Module:
    from torch import nn

    began: list[float] = []

    def enter(_: Any, rows: tuple[torch.Tensor, ...]) -> None:
        began.append(time.perf_counter())

    def leave(_: Any, rows: tuple[torch.Tensor, ...], __: Any) -> None:
        meter.seconds += time.perf_counter() - began.pop()
        meter.evaluations += len(rows[0])
        meter.gradients += len(rows[0]) if rows[0].requires_grad else 0

    outer = nn.Sequential(module)  # a shell of its own: the model's module keeps no hooks
    outer.register_forward_pre_hook(enter)
    outer.register_forward_hook(leave)
    return outer
