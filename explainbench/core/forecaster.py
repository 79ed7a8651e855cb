"""M: what a forecasting model is, what it may be capable of, and the explained scalar f(x)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from explainbench.core.arrays import Floats, Ints
from explainbench.core.errors import ExplainBenchError, NotApplicable
from explainbench.core.windows import Channels, Windows

if TYPE_CHECKING:
    import torch

BATCH = 64  # model calls are padded to this many rows: batches of 1 to 3 rows differ from it in the last bits


@dataclass(frozen=True, slots=True, eq=False)
class Forecast:
    """mean: (n, h) in the target's unit; quantiles: (n, h, q) at `levels` (q,), sorted, where the model has them;
    crossed: (n,) horizon steps whose quantiles came in the wrong order and had to be sorted."""

    mean: Floats
    quantiles: Floats | None = None
    levels: Floats | None = None
    crossed: Ints | None = None

    @classmethod
    def sorted(cls, mean: Floats, quantiles: Floats, levels: Floats) -> Self:
        """A forecast with its quantiles (n, h, q) sorted, and how many steps of each row needed it."""
        crossed = (np.diff(quantiles, axis=-1) < 0).any(axis=-1).sum(axis=-1)
        return cls(mean, np.sort(quantiles, axis=-1), levels, crossed)

    @classmethod
    def joined(cls, parts: Sequence[Forecast]) -> Self:
        """Forecasts one below the other."""
        mean = np.concatenate([part.mean for part in parts])
        quantiles = [part.quantiles for part in parts if part.quantiles is not None]
        crossed = [part.crossed for part in parts if part.crossed is not None]
        return cls(
            mean,
            np.concatenate(quantiles) if quantiles else None,
            parts[0].levels,
            np.concatenate(crossed) if crossed else None,
        )

    def first(self, rows: int) -> Forecast:
        """The forecast of the first rows."""
        quantiles = None if self.quantiles is None else self.quantiles[:rows]
        crossed = None if self.crossed is None else self.crossed[:rows]
        return Forecast(self.mean[:rows], quantiles, self.levels, crossed)


class Forecaster(Protocol):
    """A fitted forecasting model: `predict` is a pure function of (weights, context)."""

    def predict(self, context: Floats) -> Forecast:
        """Forecast from contexts (n, t, c) in dataset units."""
        ...

    def save(self, folder: Path) -> None:
        """Write weights (safetensors) and the JSON card into `folder`."""
        ...

    def described(self, **more: Any) -> Forecaster:
        """The same forecaster with more blocks in its card."""
        ...


@runtime_checkable
class HasTorchModule(Protocol):
    """Differentiable: `module` maps a float32 tensor (n, t, c) in dataset units to forecasts (n, h), in eval mode."""

    @property
    def module(self) -> torch.nn.Module: ...


@runtime_checkable
class HasAttention(Protocol):
    """`attention` returns the attention that each context step receives, (n, t), rows summing to one."""

    def attention(self, context: Floats) -> Floats: ...


@runtime_checkable
class HasFeatureMap(Protocol):
    """`feature_layer` is the module inside `module` whose output is (n, tokens, d); `feature_shares` places its tokens.

    feature_shares(t): (tokens, t), how much of each token lies on each context step; rows sum to one or to zero.
    """

    @property
    def feature_layer(self) -> torch.nn.Module: ...

    def feature_shares(self, steps: int) -> Floats: ...


@runtime_checkable
class HasQuantiles(Protocol):
    """`quantile_levels` are the levels that `predict` returns natively."""

    @property
    def quantile_levels(self) -> Floats: ...


@runtime_checkable
class HasCard(Protocol):
    """`card` is what `card.json` says of a fitted model: architecture, training record, quality, uncertainty."""

    @property
    def card(self) -> Mapping[str, Any]: ...


Capability = TypeVar("Capability")


def require(model: object, capability: type[Capability]) -> Capability:
    """Return `model` narrowed to `capability`. Raises NotApplicable with the reason when it lacks it."""
    if not isinstance(model, capability):
        raise NotApplicable(f"{type(model).__name__} does not offer {capability.__name__}")
    return model


class NonFiniteForecast(ExplainBenchError):
    """A model returned NaN or infinity; the message names the first row of the batch it happened in."""


@dataclass(frozen=True, slots=True)
class Functional:
    """How a forecast path becomes the explained scalar: its mean, its maximum, or its mean over steps first..last."""

    kind: Literal["mean", "max", "block_mean"] = "mean"
    first: int = 0
    last: int | None = None

    def __call__(self, path: Any) -> Any:
        """Reduce the last axis of a numpy array or torch tensor (..., h) to (...)."""
        if self.kind == "mean":
            return path.mean(-1)
        if self.kind == "max":
            return path.max(-1) if isinstance(path, np.ndarray) else path.amax(-1)
        return path[..., self.first : self.last].mean(-1)


@dataclass(slots=True)
class Meter:
    """Deterministic counters of model work, and the seconds spent inside the model (a measurement)."""

    evaluations: int = 0
    gradients: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class ExplainedModel:
    """f(x): a forecaster seen through the functional; the only door through which methods and metrics call a model.

    Calls are cut into batches of `batch` rows, the last one padded by repeating its final row, so that bits do not
    depend on how many rows a caller asks for.
    """

    forecaster: Forecaster
    functional: Functional = Functional()
    batch: int = BATCH
    meter: Meter = field(default_factory=Meter, compare=False)

    def __call__(self, context: Floats) -> Floats:
        """f(x) for contexts (n, t, c) in dataset units: (n,) in the target's unit. Raises NonFiniteForecast."""
        return self.functional(self.forecast(context).mean)

    def forecast(self, context: Floats) -> Forecast:
        """The whole forecast for contexts (n, t, c), in padded batches."""
        parts: list[Forecast] = []
        for start, rows, filled in self._padded(context):
            began = time.perf_counter()
            part = self.forecaster.predict(filled)
            self.meter.seconds += time.perf_counter() - began
            parts.append(part if rows == len(filled) else part.first(rows))
            bad = ~np.isfinite(parts[-1].mean).all(axis=1)
            if bad.any():
                raise NonFiniteForecast(f"the model returned a non-finite forecast for row {start + int(bad.argmax())}")
        self.meter.evaluations += len(context)
        return Forecast.joined(parts)

    def torch(self, context: torch.Tensor) -> torch.Tensor:
        """f(x) as a differentiable function of a float32 tensor (n, t, c), in padded batches. Raises NotApplicable."""
        import torch

        module = require(self.forecaster, HasTorchModule).module
        began = time.perf_counter()
        outputs = []
        for start in range(0, len(context), self.batch):
            part = context[start : start + self.batch]
            rows = len(part)
            if rows < self.batch:
                part = torch.cat([part, part[-1:].expand(self.batch - rows, *part.shape[1:])])
            outputs.append(self.functional(module(part))[:rows])
        value = torch.cat(outputs)
        self.meter.seconds += time.perf_counter() - began
        self.meter.evaluations += len(context)
        if torch.is_grad_enabled() and context.requires_grad:
            self.meter.gradients += len(context)
            self._time_backward(value, context)
        return value

    def gradient(self, context: Floats) -> Floats:
        """df/dx for contexts (n, t, c): (n, t, c), target units per dataset unit. Raises NotApplicable."""
        import torch

        leaf = torch.from_numpy(context.astype(np.float32)).requires_grad_()
        (slope,) = torch.autograd.grad(self.torch(leaf).sum(), leaf)
        return slope.double().numpy()

    def _time_backward(self, value: torch.Tensor, context: torch.Tensor) -> None:
        """Count the seconds between the backward pass reaching f(x) and leaving it at x as model time."""
        began: list[float] = []
        value.register_hook(lambda _: began.append(time.perf_counter()))

        def left(_: torch.Tensor) -> None:
            self.meter.seconds += time.perf_counter() - began.pop()

        context.register_hook(left)

    def _padded(self, context: Floats) -> Iterator[tuple[int, int, Floats]]:
        for start in range(0, len(context), self.batch):
            part = context[start : start + self.batch]
            rows = len(part)
            if rows < self.batch:
                part = np.concatenate([part, np.repeat(part[-1:], self.batch - rows, axis=0)])
            yield start, rows, part


@dataclass(frozen=True, slots=True)
class TaskShape:
    """What a model is built for: t context steps, h horizon steps, c channels, and which channel is the target."""

    context: int
    horizon: int
    channels: int
    target: int


@dataclass(frozen=True, slots=True)
class ModelCard:
    """What a registered forecasting model declares (paper 000, Table 2). Checked against what it can really do."""

    architecture: str
    source: str  # paper or library
    channels: Literal["all", "target"] = "all"
    input_differentiable: bool = True
    attention: Literal["none", "timestep", "patch", "lag"] = "none"
    gradcam_layer: str | None = None
    native_quantiles: bool = False
    deterministic: bool = True
    weights_source: Literal["trained", "standin", "official"] = "trained"
    licence: str = "Apache-2.0"
    libraries: tuple[str, ...] = ("torch",)


class ModelEntry(Protocol):
    """One file in `models/`: a frozen dataclass of hyper-parameters that fits and loads its forecaster."""

    def fit(self, training: Windows, validation: Windows, shape: TaskShape, rng: np.random.Generator) -> Forecaster:
        """Fit on training windows, stopping early on validation windows."""
        ...

    def load(self, folder: Path) -> Forecaster:
        """Load what `save` wrote. Raises BadInput (wrong architecture) or Corrupt (hash)."""
        ...


@runtime_checkable
class ZeroShotEntry(Protocol):
    """A foundation model's entry: pre-trained once for all tasks, or an official checkpoint, then told the task."""

    @property
    def checkpoint(self) -> str | None:
        """Folder or hub id of official weights; None for the stand-in."""
        ...

    def pretrain(self, rng: np.random.Generator) -> Forecaster:
        """Pre-train the stand-in on a synthetic corpus."""
        ...

    def adapt(self, folder: Path, shape: TaskShape, channels: Channels) -> Forecaster:
        """The weights in `folder` (or the official ones) on a task, zero-shot."""
        ...


def as_contexts(array: NDArray[Any]) -> Floats:
    """float64, C order, (n, t, c): the form in which contexts are handed to models."""
    return np.ascontiguousarray(array, dtype=np.float64)
