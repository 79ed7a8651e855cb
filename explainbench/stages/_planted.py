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

from explainbench.analysis.sanity import preference, rank_correlations
from explainbench.core.arrays import Floats, Ints
from explainbench.core.cell import stream
from explainbench.core.errors import BadInput, NotApplicable
from explainbench.core.evidence import Evidence
from explainbench.core.explanation import Explanation, MethodCard, Surrogate
from explainbench.core.forecaster import ExplainedModel, Forecast, Forecaster
from explainbench.core.masking import Groups, Masker, ranking
from explainbench.core.registry import METRICS
from explainbench.core.windows import Windows
from explainbench.stages._probes import Probe

PLANTED = ("linear_ar", "seasonal", "threshold", "covariate_switch", "null_covariate")
LINEAR = ("linear_ar", "seasonal")  # here the methods below have no error but rounding (LIME: its small ridge)
EXACT = ("shap", "lime", "integrated_gradients", "feature_attribution", "perturbation")
DAY = 24 * 60  # minutes
CONTROLS = 5  # permuted explanations per window that a metric must put below the true one
TRUTH = MethodCard(
    title="Planted truth", category="baseline", source="control (ours)", deterministic=True, surrogate="additive"
)


class PlantedNet(torch.nn.Module):
    """Contexts (n, t, c) -> forecasts (n, h): the same planted value at every step, in the target's unit."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor], horizon: int) -> None:
        super().__init__()
        self.function, self.horizon = function, horizon

    def forward(self, context: torch.Tensor) -> torch.Tensor:
        return self.function(context)[:, None].expand(-1, self.horizon)


@dataclass(frozen=True, eq=False)
class PlantedForecaster:
    """A forecaster around a known function. Nothing is fitted, so nothing is saved."""

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
class Planted:
    """A planted forecaster with the groups that it uses.

    acting: (s,) groups that f depends on; truth(masked): exact Shapley values of all groups.
    """

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


def plant(name: str, probe: Probe) -> Planted:
    """The named planted forecaster on the task of `probe`. Raises NotApplicable where the task lacks what it needs."""
    channels = probe.bench.data.windows.channels
    spec = probe.params.suites.energy.tasks[probe.task]
    # whatever channels the bench's model uses: here all observed ones are players, most of them null
    groups = Groups.of(channels, spec.context, spec.segment, channels.observed)
    masker, labels = replace(probe.bench.masker, groups=groups), groups.labels
    target, steps = channels.index(spec.target), spec.context
    mean, std = torch.from_numpy(channels.mean), torch.from_numpy(np.where(channels.std > 0, channels.std, 1.0))

    def z(x: torch.Tensor) -> torch.Tensor:
        return (x - mean.to(x.dtype)) / std.to(x.dtype)

    def members(channel: int, first: int, last: int) -> Ints:
        return np.unique(labels[first:last, channel])

    recent = slice(steps - spec.segment, steps)
    earlier = slice(steps - 2 * spec.segment, steps - spec.segment)
    day = max(0, steps - DAY // masker.step_minutes)  # where the target's first step was a day ago
    covariates = [c for c in channels.observed.tolist() if c != target]

    if name == "linear_ar":
        lags = np.arange(2 * spec.segment)  # the newest first
        weight = torch.zeros(steps, dtype=torch.float64)
        weight[steps - 1 - lags] = torch.from_numpy(0.9**lags * np.cos(lags / 3))
        value = lambda x: (z(x)[:, :, target] * weight.to(x.dtype)).sum(1)  # noqa: E731
        acting = members(target, steps - len(lags), steps)
    elif name == "seasonal":
        season = slice(day, min(day + spec.segment, steps))
        value = lambda x: z(x)[:, season, target].mean(1)  # noqa: E731
        acting = members(target, season.start, season.stop)
    elif name == "threshold":
        value = lambda x: torch.where(  # noqa: E731
            z(x)[:, recent, target].mean(1) > 0,
            2 * z(x)[:, earlier, target].mean(1),
            -z(x)[:, earlier, target].mean(1),
        )
        acting = members(target, earlier.start, steps)
    elif name == "covariate_switch":
        if not covariates:
            raise NotApplicable("the dataset has no observed channel beside the target that could switch")
        switch = covariates[0]
        value = lambda x: torch.where(  # noqa: E731
            z(x)[:, recent, switch].mean(1) > 0,
            z(x)[:, recent, target].mean(1),
            2 * z(x)[:, earlier, target].mean(1),
        )
        acting = np.union1d(members(target, earlier.start, steps), members(switch, recent.start, steps))
    elif name == "null_covariate":
        value = lambda x: (  # noqa: E731
            torch.tanh(z(x)[:, recent, target].mean(1)) + 0.5 * z(x)[:, earlier, target].mean(1) ** 2
        )
        acting = members(target, earlier.start, steps)
    else:
        raise BadInput(f"{name!r} is no planted forecaster; there are: {', '.join(PLANTED)}.")
    net = PlantedNet(lambda x: mean[target].to(x.dtype) + std[target].to(x.dtype) * value(x), spec.horizon)
    return Planted(name, ExplainedModel(PlantedForecaster(net.eval()), spec.functional.build()), masker, acting)


def recovery(planted: Planted, probe: Probe) -> list[dict[str, Any]]:
    """How well each method finds the planted truth, over windows where the truth is not zero.

    correlation: Spearman of |e| with |truth| over groups; recall: share of the acting groups among as many top ones;
    null_share: share of the |e| that lies on groups f does not use; error: largest deviation from the exact Shapley
    values relative to the largest of them, where the method estimates them.
    """
    windows = probe.windows
    truth = planted.truth(windows)
    known = np.abs(truth).max(axis=1) > 0
    energy = probe.params.suites.energy
    rows: list[dict[str, Any]] = []
    for name in (*energy.methods, *(each for each in energy.baselines if each != "oracle")):
        row: dict[str, Any] = {"planted": planted.name, "method": name, "baseline": name in energy.baselines}
        try:
            found = probe.explain(name, planted.model, windows, planted.masker, "planted", planted.name)
            top = ranking(found)[:, : len(planted.acting)]
            size = np.abs(found).sum(axis=1)
            null = np.delete(np.abs(found), planted.acting, axis=1).sum(axis=1)
            measured = {
                "correlation": rank_correlations(np.abs(truth), np.abs(found)),
                "recall": np.isin(top, planted.acting).mean(axis=1),
                "null_share": np.divide(null, size, out=np.full(len(size), np.nan), where=size > 0),
            }
            error = None
            if name in EXACT:
                error = float((np.abs(found - truth).max(axis=1)[known] / np.abs(truth).max(axis=1)[known]).max())
            row |= {key: probe.shown(np.where(known, values, np.nan)) for key, values in measured.items()}
            row |= {"error": error, "exact": name in EXACT and planted.name in LINEAR, "reason": ""}
        except NotApplicable as gap:
            row |= {"reason": gap.reason}
        rows.append(row)
    return rows


@dataclass(frozen=True, slots=True, eq=False)
class Truth:
    """The planted truth as a method; order: (g,) permutation of groups that turns it into a wrong explanation."""

    planted: Planted
    order: Ints

    def explain(self, model: ExplainedModel, windows: Windows, masker: Masker, rng: np.random.Generator) -> Explanation:
        """Exact Shapley values with their additive surrogate, dealt to the groups in `order`."""
        weights = self.planted.truth(windows)[:, self.order]
        nothing = np.zeros((1, len(masker.groups)), dtype=bool)
        intercept = masker.outputs(model, windows, nothing)[:, 0]
        return Explanation(masker.groups.spread(weights), Surrogate(intercept, weights, nothing))


def meta_evaluation(planted: Planted, probe: Probe) -> dict[str, dict[str, Any]]:
    """Per metric: P(it prefers the planted truth to the same values on other groups), per window (n,), or the reason.

    The wrong explanations keep size, sparsity and smoothness of the true one, so only being right can tell them apart.
    """
    groups = len(planted.masker.groups)
    rng = stream(probe.params.seed, "checks", "planted orders", planted.name)
    wrong = [rng.permutation(groups) for _ in range(CONTROLS)]
    found: dict[str, dict[str, Any]] = {}
    for name in probe.params.suites.energy.metrics:
        card = METRICS.card(name)
        if card.level != "cell":
            found[name] = {"reason": f"a property of the {card.level}: it never looks at an explanation"}
            continue
        try:
            metric = METRICS.build(name, probe.params.metrics.get(name))
            memo: dict[str, Any] = {}
            truth = metric.score(_evidence(planted, probe, np.arange(groups), memo))[name].raw
            controls = [metric.score(_evidence(planted, probe, order, memo))[name].raw for order in wrong]
            wins = np.mean([preference(truth, control) for control in controls], axis=0)
            found[name] = {"wins": wins if card.higher_is_better else 1 - wins}
        except NotApplicable as gap:
            found[name] = {"reason": gap.reason}
    return found


def _evidence(planted: Planted, probe: Probe, order: Ints, memo: dict[str, Any]) -> Evidence:
    explainer, windows, seed = Truth(planted, order), probe.windows, probe.params.seed

    def explain(at: Windows, run: int) -> Explanation:
        return explainer.explain(planted.model, at, planted.masker, stream(seed, "planted", run))

    def shared(name: str, compute: Callable[[], Any]) -> Any:
        if name not in memo:
            memo[name] = compute()
        return memo[name]

    return Evidence(
        windows=windows,
        model=planted.model,
        masker=planted.masker,
        method=TRUTH,
        runs=(explain(windows, 0),),
        target_std=probe.bench.data.target_std,
        explain_again=explain,
        rng=lambda purpose: stream(seed, "planted", planted.name, purpose),
        task_rng=lambda purpose: stream(seed, "planted", planted.name, "task", purpose),
        shared=shared,
    )
