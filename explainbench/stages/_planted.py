"""Planted forecasters: the right explanation is known in closed form, so methods and metrics can be marked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product
from math import factorial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from explainbench.core.arrays import Floats, Ints
from explainbench.core.errors import BadInput, NotApplicable
from explainbench.core.forecaster import ExplainedModel, Forecast, Forecaster
from explainbench.core.masking import Groups, Masker
from explainbench.core.params import TaskParams
from explainbench.core.windows import Channels, Windows

PLANTED = ("linear_ar", "seasonal", "threshold", "covariate_switch", "null_covariate")
LINEAR = ("linear_ar", "seasonal")
DAY = 24 * 60  # minutes

Rule = Callable[[torch.Tensor], torch.Tensor]  # z-scores (n, t, c) -> the planted value (n,), in z-units of the target


class PlantedNet(torch.nn.Module):
    """Contexts (n, t, c) -> forecasts (n, h) in the target's unit: the same planted value at every step."""

    def __init__(self, rule: Rule, channels: Channels, target: int, horizon: int) -> None:
        super().__init__()
        self.rule, self.target, self.horizon = rule, target, horizon
        self.mean = torch.from_numpy(channels.mean)
        self.std = torch.from_numpy(np.where(channels.std > 0, channels.std, 1.0))

    def forward(self, context: torch.Tensor) -> torch.Tensor:
        mean, std = self.mean.to(context.dtype), self.std.to(context.dtype)
        value = mean[self.target] + std[self.target] * self.rule((context - mean) / std)
        return value[:, None].expand(-1, self.horizon)


class WeightedSum(torch.nn.Module):
    """A linear rule: the sum over steps of weight (t,) x z-score of one channel, by a layer that hooks can find."""

    def __init__(self, weight: Floats, channel: int) -> None:
        super().__init__()
        self.weight, self.channel = torch.from_numpy(weight), channel
        self.terms = torch.nn.Identity()  # (n, t, 1): what each step adds

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        return self.terms((z[:, :, self.channel] * self.weight.to(z.dtype))[:, :, None]).sum((1, 2))


@dataclass(frozen=True, eq=False)
class PlantedForecaster:
    """A forecaster around a known rule. Nothing is fitted, so nothing is saved."""

    module: PlantedNet

    def predict(self, context: Floats) -> Forecast:
        """Forecasts (n, h) in double precision."""
        with torch.no_grad():
            return Forecast(self.module(torch.from_numpy(context)).numpy().copy())

    def save(self, folder: Path) -> None:
        """Raises BadInput: a planted forecaster has no weights."""
        raise BadInput("a planted forecaster has no weights to save")

    def described(self, **more: Any) -> Forecaster:
        """The same forecaster: it has no card."""
        return self


@dataclass(frozen=True, eq=False)
class LinearForecaster(PlantedForecaster):
    """A planted linear forecaster. Its attention is each step's share of the weights, its feature map the terms."""

    linear: WeightedSum

    def attention(self, context: Floats) -> Floats:
        """(n, t): |w| over its sum, the same for every window."""
        size = np.abs(self.linear.weight.numpy())
        return np.tile(size / size.sum(), (len(context), 1))

    @property
    def feature_layer(self) -> torch.nn.Module:
        """The terms of the sum."""
        return self.linear.terms

    def feature_shares(self, steps: int) -> Floats:
        """Each term is one step: (t, t)."""
        return np.eye(steps)


@dataclass(frozen=True, eq=False)
class Planted:
    """A planted forecaster, the groups of all observed channels, and those it uses. acting: (s,) group indices."""

    name: str
    model: ExplainedModel
    masker: Masker
    acting: Ints

    def truth(self, windows: Windows) -> Floats:
        """Exact Shapley values (n, g) of the game "keep these groups, mask the rest", in the target's unit.

        Only the acting groups play: all others are null players, so 2^s coalitions tell everything. For a linear f
        this is w (x - masked x), summed over each group.
        """
        size, groups = len(self.acting), len(self.masker.groups)
        members = np.array(list(product((False, True), repeat=size)))
        keep = np.zeros((len(members), groups), dtype=bool)
        keep[:, self.acting] = members
        value = self.masker.outputs(self.model, windows, keep)
        place = {tuple(row): k for k, row in enumerate(members.tolist())}
        truth = np.zeros((len(windows), groups))
        for player, group in enumerate(self.acting):
            for k, coalition in enumerate(members.tolist()):
                if coalition[player]:
                    before = sum(coalition) - 1
                    weight = factorial(before) * factorial(size - before - 1) / factorial(size)
                    without = [*coalition[:player], False, *coalition[player + 1 :]]
                    truth[:, group] += weight * (value[:, k] - value[:, place[tuple(without)]])
        return truth


def plant(name: str, masker: Masker, channels: Channels, spec: TaskParams) -> Planted:
    """The named planted forecaster of a task, whose groups are those of all observed channels, most of them null.

    Raises NotApplicable where the dataset lacks what it needs.
    """
    groups = Groups.of(channels, spec.context, spec.segment, channels.observed)
    target, steps, run = channels.index(spec.target), spec.context, spec.segment
    recent, earlier = slice(steps - run, steps), slice(steps - 2 * run, steps - run)

    def mean(z: torch.Tensor, span: slice, channel: int = target) -> torch.Tensor:
        return z[:, span, channel].mean(1)

    def threshold(z: torch.Tensor) -> torch.Tensor:
        return torch.where(mean(z, recent) > 0, 2 * mean(z, earlier), -mean(z, earlier))

    def null_covariate(z: torch.Tensor) -> torch.Tensor:
        return torch.tanh(mean(z, recent)) + 0.5 * mean(z, earlier) ** 2

    used: list[tuple[slice, int]] = [(recent, target), (earlier, target)]
    rule: Rule
    if name == "linear_ar":
        lags = np.arange(2 * run)  # the newest first
        weight = np.zeros(steps)
        weight[steps - 1 - lags] = 0.9**lags * np.cos(lags / 3)
        rule = WeightedSum(weight, target)
    elif name == "seasonal":
        day = max(0, steps - DAY // masker.step_minutes)  # where the target's first step was a day ago
        weight = np.zeros(steps)
        weight[day : day + run] = 1 / run
        rule = WeightedSum(weight, target)
        used = [(slice(day, day + run), target)]
    elif name == "threshold":
        rule = threshold
    elif name == "covariate_switch":
        covariates = [channel for channel in channels.observed.tolist() if channel != target]
        if not covariates:
            raise NotApplicable("the dataset has no observed channel beside the target that could switch")
        switch = covariates[0]
        used.append((recent, switch))

        def covariate_switch(z: torch.Tensor) -> torch.Tensor:
            return torch.where(mean(z, recent, switch) > 0, mean(z, recent), 2 * mean(z, earlier))

        rule = covariate_switch
    elif name == "null_covariate":
        rule = null_covariate
    else:
        raise BadInput(f"{name!r} is no planted forecaster; there are: {', '.join(PLANTED)}.")

    net = PlantedNet(rule, channels, target, spec.horizon).eval()
    forecaster = LinearForecaster(net, rule) if isinstance(rule, WeightedSum) else PlantedForecaster(net)
    acting = np.unique(np.concatenate([groups.labels[span, channel] for span, channel in used]))
    return Planted(name, ExplainedModel(forecaster, spec.functional.build()), replace(masker, groups=groups), acting)
