"""The six composite indices of paper 000, section 5.2, per window where they are defined per window."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from explainbench.analysis.normalise import Bounds, normalise
from explainbench.core.arrays import Floats
from explainbench.core.cell import Score, Skipped
from explainbench.core.errors import NotApplicable, Pending
from explainbench.core.params import Weights

Level = Literal["cell", "model", "method"]
Name = Literal["EQI", "ESS", "CCS", "EDTS", "HIR", "EEI"]


@dataclass(frozen=True, slots=True, eq=False)
class Composite:
    """One composite of one cell.

    values: (n,) per window, or (1,) where all its components hold for the window set only; in [0, 1];
    basis: the components it is made of; composites of different bases are never ranked together;
    clipped: share of windows whose Faithfulness lay outside the frozen bounds, where it has a part.
    """

    values: Floats
    basis: str
    clipped: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """What composites are made from: scores of one cell, its skipped metrics, the task's bounds, the weights."""

    task: str
    scores: Mapping[str, Score]
    skipped: Mapping[str, Skipped]
    bounds: Bounds | None
    weights: Weights

    def value(self, metric: str) -> Floats:
        """A metric in [0, 1], (n,) or (1,). Raises Pending or NotApplicable with the metric's own reason."""
        skip = self.skipped.get(metric)
        if skip is not None:
            raise (Pending if skip.status == "pending" else NotApplicable)(f"{metric}: {skip.reason}")
        if metric not in self.scores:
            raise Pending(f"{metric}: not measured in this run")
        value = self.scores[metric].value
        if value is None:
            raise Pending(f"{metric}: only its raw value is known, and no bounds that map it to [0, 1] are frozen")
        return value

    def faithfulness(self) -> tuple[Floats, float]:
        """Faithfulness in [0, 1] (n,) by the frozen bounds, and the share of windows clipped. Raises Pending."""
        if "faithfulness" not in self.scores:
            return self.value("faithfulness"), 0.0  # raises with the reason
        if self.bounds is None:
            raise Pending("faithfulness: no normalisation bounds are frozen; `explainbench freeze` writes them")
        scaled = normalise(self.scores["faithfulness"].raw, self.bounds.bound(self.task, "faithfulness"))
        return scaled.values, scaled.clipped


def explanation_quality(parts: Parts) -> Composite:
    """EQI = w1 Faithfulness + w2 Fidelity; Faithfulness alone (basis `F`) where the method has no surrogate.

    Raises Pending while either is pending, so that a cell never changes basis when a measurement arrives.
    """
    faithfulness, clipped = parts.faithfulness()
    try:
        fidelity = parts.value("fidelity")
    except Pending:
        raise
    except NotApplicable:
        return Composite(faithfulness, "F", clipped)
    return Composite(parts.weights.faithfulness * faithfulness + parts.weights.fidelity * fidelity, "F+Fid", clipped)


def explanation_stability(parts: Parts) -> Composite:
    """ESS: the evaluation-set mean of Stability."""
    return Composite(parts.value("stability"), "S")


def counterfactual_consistency(parts: Parts) -> Composite:
    """CCS: Counterfactual Consistency (eq. 4), a property of the model's decision boundary."""
    return Composite(parts.value("counterfactual_consistency"), "CC")


def decision_transparency(parts: Parts) -> Composite:
    """EDTS = w3 Actionability + w4 Uncertainty Awareness; neither looks at the explanation method."""
    actionability, awareness = parts.value("actionability"), parts.value("uncertainty_awareness")
    weights = parts.weights
    return Composite(weights.actionability * actionability + weights.uncertainty_awareness * awareness, "Act+UA")


def human_interpretability(parts: Parts) -> Composite:
    """HIR: the evaluation-set mean of the panel's rating."""
    return Composite(parts.value("human_interpretability"), "h")


def edge_efficiency(parts: Parts) -> Composite:
    """EEI = w5 Efficiency + w6 Deployment Suitability; Efficiency alone (basis `Eff`) while that has no number."""
    efficiency = parts.value("efficiency")
    try:
        suitability = parts.value("deployment_suitability")
    except NotApplicable:
        return Composite(efficiency, "Eff")
    weights = parts.weights
    return Composite(weights.efficiency * efficiency + weights.deployment_suitability * suitability, "Eff+DSS")


COMPOSITES: Mapping[Name, Callable[[Parts], Composite]] = {
    "EQI": explanation_quality,
    "ESS": explanation_stability,
    "CCS": counterfactual_consistency,
    "EDTS": decision_transparency,
    "HIR": human_interpretability,
    "EEI": edge_efficiency,
}
# `model`: cannot depend on the method; `method`: cannot depend on the model. Such differences are never tested.
LEVELS: Mapping[Name, Level] = {
    "EQI": "cell",
    "ESS": "cell",
    "CCS": "model",
    "EDTS": "model",
    "HIR": "cell",
    "EEI": "method",
}
# The paper gives abbreviations only; these say what each is about. Every composite is better when higher.
TITLES: Mapping[Name, str] = {
    "EQI": "explanation quality",
    "ESS": "explanation stability",
    "CCS": "counterfactual consistency",
    "EDTS": "edge decision transparency",
    "HIR": "human interpretability",
    "EEI": "edge explanation efficiency",
}


def efficiency(seconds: float, reference_seconds: float) -> Score:
    """Computational Efficiency (paper 000, eq. 8) of a measured latency: 1/(1 + t/t_ref), one value (1,) per cell."""
    return Score(np.array([seconds]), np.array([1 / (1 + seconds / reference_seconds)]))


def composites(parts: Parts) -> dict[Name, Composite | Skipped]:
    """All six, each a Composite or the reason why it has no number (Algorithm 4 for one cell)."""
    found: dict[Name, Composite | Skipped] = {}
    for name, compute in COMPOSITES.items():
        try:
            composite = compute(parts)
        except Pending as gap:
            found[name] = Skipped("pending", gap.reason)
        except NotApplicable as gap:
            found[name] = Skipped("not_applicable", gap.reason)
        else:
            found[name] = composite if np.isfinite(composite.values).any() else _undefined(composite)
    return found


def _undefined(composite: Composite) -> Skipped:
    return Skipped("not_applicable", f"{composite.basis} is undefined on all {len(composite.values)} windows")
