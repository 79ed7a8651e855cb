"""Forecasters whose right explanations are known in closed form, and small windows to explain."""

from pathlib import Path

import numpy as np
import torch

from explainbench.core.cell import stream
from explainbench.core.forecaster import ExplainedModel, Forecast
from explainbench.core.masking import Climatology, Groups, Masker
from explainbench.core.windows import Channels, Windows

STEPS, HORIZON, SEGMENT = 24, 4, 6
NAMES = ("load_mw", "temperature_c", "weekend")


def channels() -> Channels:
    """Two observed channels and one calendar channel."""
    return Channels(
        names=NAMES,
        units=("MW", "degC", "1"),
        known=(False, False, True),
        mean=np.array([100.0, 10.0, 0.0]),
        std=np.array([20.0, 5.0, 1.0]),
        low=np.array([0.0, -20.0, 0.0]),
        high=np.array([200.0, 40.0, 1.0]),
    )


def series(days: int = 21, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A quarter-hourly series: stamps (s,), values (s, 3)."""
    rng = stream(seed, "oracle series")
    stamps = np.datetime64("2025-01-06T00:00", "m") + np.arange(days * 96) * np.timedelta64(15, "m")
    hour = np.arange(len(stamps)) % 96 / 4
    load = 100 + 15 * np.sin((hour - 8) / 24 * 2 * np.pi) + 5 * rng.standard_normal(len(stamps))
    temperature = 10 + 5 * np.sin((hour - 14) / 24 * 2 * np.pi) + rng.standard_normal(len(stamps))
    weekend = (np.arange(len(stamps)) // 96 % 7 >= 5).astype(float)
    return stamps, np.stack([load, temperature, weekend], axis=1)


def windows(n: int = 6) -> Windows:
    """n disjoint windows of the series."""
    stamps, values = series()
    starts = np.arange(n) * 90 + 7
    context = np.stack([values[s : s + STEPS] for s in starts])
    target = np.stack([values[s + STEPS : s + STEPS + HORIZON, 0] for s in starts])
    regime = np.array(["peak", "off_peak", "ramp"] * n)[:n]
    return Windows(context, target, regime, stamps[starts + STEPS], channels())


def masker(operator: str = "climatology", used: tuple[int, ...] = (0, 1)) -> Masker:
    """The masking operator over groups of six steps: four groups per used channel."""
    groups = Groups.of(channels(), STEPS, SEGMENT, np.array(used))
    return Masker(groups, operator, Climatology.of(*series()), target=0)  # type: ignore[arg-type]


class Net(torch.nn.Module):
    """A forecast from a function of the context, the same for every horizon step up to a factor."""

    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, context: torch.Tensor) -> torch.Tensor:
        return self.function(context)[:, None] * torch.linspace(0.5, 1.5, HORIZON)


class Oracle:
    """A forecaster around `function`: (n, t, c) tensor -> (n,) mean forecast."""

    def __init__(self, function) -> None:
        self.module = Net(function).eval()

    def predict(self, context: np.ndarray) -> Forecast:
        with torch.no_grad():
            return Forecast(self.module(torch.from_numpy(context)).numpy())

    def save(self, folder: Path) -> None:
        raise NotImplementedError


def weights() -> np.ndarray:
    """Coefficients (t, c) of the linear oracle: only some load steps and early temperatures matter."""
    rng = stream(3, "oracle weights")
    w = np.zeros((STEPS, 3))
    w[12:, 0] = rng.standard_normal(12)
    w[:6, 1] = 2 * rng.standard_normal(6)
    w[:, 2] = 0.3  # calendar inputs act, but are no players
    return w


def linear() -> ExplainedModel:
    """f(x) = <w, x>."""
    w = torch.from_numpy(weights())
    return ExplainedModel(Oracle(lambda x: (x * w.to(x.dtype)).sum((1, 2))))  # type: ignore[arg-type]


def nonlinear() -> ExplainedModel:
    """f(x) = tanh of one group times the mean of another, plus a square: groups 2, 3 and 4 act, the others are null."""

    def function(x: torch.Tensor) -> torch.Tensor:
        a = (x[:, 12:18, 0].mean(1) - 100) / 20
        b = (x[:, 18:24, 0].mean(1) - 100) / 20
        c = (x[:, :6, 1].mean(1) - 10) / 5
        return 10 * (torch.tanh(a) * b + c**2)

    return ExplainedModel(Oracle(function))  # type: ignore[arg-type]


class SeenNet(torch.nn.Module):
    """Two-step tokens of the load on the time axis, attended to with known weights: a layer and a map to explain."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Linear(2, 5, dtype=torch.float64)
        self.features = torch.nn.Identity()  # (n, tokens, 5)
        with torch.no_grad():
            for parameter in self.embed.parameters():
                parameter.copy_(torch.from_numpy(stream(4, "seen", len(parameter)).standard_normal(parameter.shape)))

    def weights(self, context: torch.Tensor) -> torch.Tensor:
        """(n, tokens): softmax of the tokens' mean load, masked to the first and third quarter of the context."""
        tokens = ((context[:, :, 0] - 100) / 20).unflatten(1, (-1, 2)).mean(2)
        part = torch.arange(tokens.shape[1]) * 4 // tokens.shape[1]
        return tokens.masked_fill((part == 1) | (part == 3), -torch.inf).softmax(1)

    def forward(self, context: torch.Tensor) -> torch.Tensor:
        context = context.double()
        tokens = self.features(self.embed(((context[:, :, 0] - 100) / 20).unflatten(1, (-1, 2))))
        value = (self.weights(context)[:, :, None] * torch.tanh(tokens)).sum((1, 2))
        return 100 + 10 * value[:, None] * torch.linspace(0.5, 1.5, HORIZON, dtype=torch.float64)


class Seeing(Oracle):
    """A forecaster with every capability that the attention methods need."""

    def __init__(self) -> None:
        self.module = SeenNet().eval().requires_grad_(False)

    @property
    def feature_layer(self) -> torch.nn.Module:
        return self.module.features

    def feature_shares(self, steps: int) -> np.ndarray:
        return np.repeat(np.eye(steps // 2), 2, axis=1) / 2

    def attention(self, context: np.ndarray) -> np.ndarray:
        return self.module.weights(torch.from_numpy(context)).repeat_interleave(2, 1).numpy() / 2


def seeing() -> ExplainedModel:
    """f of the load's first and third quarter alone, by attention over tokens: groups 0 and 2 act."""
    return ExplainedModel(Seeing())  # type: ignore[arg-type]


SEEN = (0, 2)  # groups on which `seeing` depends
ACTING = (2, 3, 4)  # groups on which `nonlinear` depends
