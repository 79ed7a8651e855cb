"""Task T3: how the indices change with the deployment context, and what their variance is due to (paper 000, T3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from explainbench.analysis.board import Entry
from explainbench.core.arrays import Floats
from explainbench.core.errors import NotApplicable
from explainbench.core.params import Weights

INDICES = ("act", "act_valid", "dss", "edts", "eei")


@dataclass(frozen=True, slots=True)
class InContext:
    """One cell in one context: its indices in [0, 1], None with the reason in `gaps` where there is no number."""

    model: str
    method: str
    context: str
    values: Mapping[str, float | None]
    gaps: Mapping[str, str]


def in_contexts(entries: Sequence[Entry], contexts: Sequence[str], weights: Weights) -> list[InContext]:
    """Every cell of a task in every context: Act, act_valid, DSS, EDTS = w3 Act + w4 UA, EEI = w5 Eff + w6 DSS.

    Means over windows; act_valid over the windows that have a valid counterfactual.
    """
    rows = []
    for entry, context in product(entries, contexts):
        act, valid = _mean(entry, f"act.{context}"), _mean(entry, f"act_valid.{context}")
        suitability = _mean(entry, f"dss.{context}")
        awareness, efficiency = _mean(entry, "uncertainty_awareness"), _mean(entry, "efficiency")
        values = {
            "act": act,
            "act_valid": valid,
            "dss": suitability,
            "edts": _weighted(act, weights.actionability, awareness, weights.uncertainty_awareness),
            "eei": _weighted(efficiency, weights.efficiency, suitability, weights.deployment_suitability),
        }
        reasons = {
            "act": _reason(entry, "actionability", f"act.{context} is not among the cell's scores"),
            "act_valid": _reason(entry, "actionability", "no window has a valid counterfactual"),
            "dss": _reason(entry, "deployment_suitability", "the cell has not been profiled"),
            "edts": _reason(entry, "uncertainty_awareness", _reason(entry, "actionability", "no actionability")),
            "eei": _reason(entry, "efficiency", _reason(entry, "deployment_suitability", "not profiled")),
        }
        gaps = {name: reasons[name] for name, value in values.items() if value is None}
        rows.append(InContext(entry.cell.model, entry.cell.method, context, values, gaps))
    return rows


def variance_shares(rows: Sequence[InContext], index: str) -> dict[str, float]:
    """Shares of the variance of an index due to context, model and method alone, and to their interactions.

    Sums of squares of a complete table contexts x models x methods, made of the methods that every model has a number
    for in every context. Raises NotApplicable where there is no such table or nothing varies.
    """
    known = {(r.context, r.model, r.method): r.values[index] for r in rows if r.values[index] is not None}
    contexts, models = (sorted({key[axis] for key in known}) for axis in (0, 1))
    methods = [
        method
        for method in sorted({key[2] for key in known})
        if all((context, model, method) in known for context in contexts for model in models)
    ]
    if not methods:
        raise NotApplicable(f"no method has {index} for every model and context")
    table = np.array([[[known[c, m, g] for g in methods] for m in models] for c in contexts], dtype=np.float64)
    centred = table - table.mean()
    total = float((centred**2).sum())
    if total <= 1e-24 * table.size:
        raise NotApplicable(f"{index} is the same everywhere")
    names = ("context", "model", "method")
    shares = {}
    for axis, name in enumerate(names):
        others = tuple(other for other in range(3) if other != axis)
        effect: Floats = centred.mean(axis=others)
        shares[name] = float((effect**2).sum() * table.size / table.shape[axis] / total)
    shares["interaction"] = max(0.0, 1.0 - sum(shares.values()))
    return shares


def _mean(entry: Entry, name: str) -> float | None:
    score = entry.scores.get(name)
    if score is None or score.value is None or not np.isfinite(score.value).any():
        return None
    return float(score.value[np.isfinite(score.value)].mean())


def _weighted(one: float | None, one_weight: float, other: float | None, other_weight: float) -> float | None:
    return None if one is None or other is None else one_weight * one + other_weight * other


def _reason(entry: Entry, metric: str, otherwise: str) -> str:
    skip = entry.skipped.get(metric)
    return otherwise if skip is None else f"{metric}: {skip.reason}"
