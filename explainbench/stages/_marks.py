"""How well methods find a planted truth, and whether metrics prefer it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from explainbench.analysis.sanity import preference, recovered, relative_error
from explainbench.core.arrays import Ints
from explainbench.core.cell import stream
from explainbench.core.errors import NotApplicable
from explainbench.core.evidence import Evidence
from explainbench.core.explanation import Explanation, MethodCard, Surrogate
from explainbench.core.forecaster import ExplainedModel
from explainbench.core.masking import Masker
from explainbench.core.registry import METRICS
from explainbench.core.windows import Windows
from explainbench.stages._planted import LINEAR, Planted
from explainbench.stages._probes import Probe

ESTIMATING = ("shap", "lime", "integrated_gradients", "feature_attribution", "perturbation")  # e is in f's unit
CONTROLS = 5  # wrong explanations that a metric must put below the true one
TRUTH = MethodCard(
    title="Planted truth", category="baseline", source="control (ours)", deterministic=True, surrogate="additive"
)


def recovery(planted: Planted, probe: Probe) -> list[dict[str, Any]]:
    """How well each method and baseline finds the planted truth (`analysis.sanity.recovered`).

    error: largest deviation from the exact Shapley values, where the method estimates f in its unit; exact: whether it
    should have none but rounding (and LIME its small ridge).
    """
    truth = planted.truth(probe.windows)
    energy = probe.params.suites.energy
    rows: list[dict[str, Any]] = []
    for name in (*energy.methods, *(each for each in energy.baselines if each != "oracle")):
        row: dict[str, Any] = {"planted": planted.name, "method": name, "baseline": name in energy.baselines}
        try:
            found = probe.explain(name, planted.model, probe.windows, planted.masker, "planted", planted.name)
        except NotApplicable as gap:
            rows.append(row | {"reason": gap.reason})
            continue
        marks = {key: probe.shown(values) for key, values in recovered(truth, found).items()}
        error = relative_error(truth, found) if name in ESTIMATING else None
        exact = name in ESTIMATING and planted.name in LINEAR
        rows.append(row | marks | {"error": error, "exact": exact, "reason": ""})
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
