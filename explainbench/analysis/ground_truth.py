"""The ground-truth suite over its datasets: XFA weighted by complexity, OPS and Overall over all rows, intervals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from explainbench.core.arrays import Floats, Texts
from explainbench.core.cell import stream
from explainbench.data._ground_truth import COLUMNS, RULES
from explainbench.metrics.ops import Axis, optimum, optimum_of, overall
from explainbench.metrics.xfa import PARTS, VARIANTS, scores, weighted

DIGITS = 6
REFERENCES = ("perfect", "empty", "everything")


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """A cell's scores, raw. rows: {score: (n,)}; whole: {score: number}; rule: (n,) the rule of a row; columns: d."""

    dataset: str
    model: str
    method: str
    baseline: bool
    rows: Mapping[str, Floats]
    whole: Mapping[str, float]
    rule: Texts
    columns: int


@dataclass(frozen=True, slots=True)
class Averaging:
    """How datasets come together: complexity C_d, the confidence and resamples of intervals, Overall and OPS."""

    complexity: Mapping[str, float]
    confidence: float
    resamples: int
    seed: int
    variant: str
    weights: tuple[float, float]
    axis: Axis


def suite_table(cells: Iterable[Scored], how: Averaging) -> list[dict[str, Any]]:
    """One row per (model, method) that was scored on every dataset, the best XFA first within a model.

    Intervals: percentile bootstrap over the rows of each dataset, the same resamples for every entry.
    """
    groups: dict[tuple[str, str], list[Scored]] = {}
    for cell in cells:
        groups.setdefault((cell.model, cell.method), []).append(cell)
    counts: dict[tuple[str, int], Floats] = {}
    rows = [_row(sorted(group, key=lambda cell: cell.dataset), how, counts) for group in groups.values()]
    return sorted(rows, key=lambda row: (row["model"], -row[how.variant]["mean"], row["method"]))


def _row(group: Sequence[Scored], how: Averaging, counts: dict[tuple[str, int], Floats]) -> dict[str, Any]:
    first = group[0]
    row: dict[str, Any] = {
        "model": first.model,
        "method": first.method,
        "baseline": first.baseline,
        "datasets": len(group),
        "complete": {cell.dataset for cell in group} == set(how.complexity),
        "auc": _rounded(np.mean([cell.whole["model_auc"] for cell in group])),
    }
    for name, variant in VARIANTS.items():
        weights = {
            cell.dataset: how.complexity[cell.dataset] if variant.complexity == "rank" else 1 - cell.whole["model_auc"]
            for cell in group
        }
        for score in (name, f"{name}_correct"):
            row[score] = _interval(group, score, weights, how, counts, variant.by_rule)
        row[name] |= {
            kind: _rounded(weighted({cell.dataset: cell.whole[f"{name}_{kind}"] for cell in group}, weights))
            for kind in REFERENCES
        }
    row |= {part: _part(group, part, how.complexity) for part in PARTS}
    size = optimum_of(np.concatenate([cell.rows["named_columns"] for cell in group]), first.columns, how.axis)
    total = overall(row[how.variant]["mean"], size.normalised, how.weights)
    found = {
        "features": size.features,
        "coverage": size.coverage,
        "ops": size.ops,
        "ops_normalised": size.normalised,
        "overall": total,
    }
    return row | {name: _rounded(value) for name, value in found.items()}


def _interval(
    group: Sequence[Scored],
    score: str,
    weights: Mapping[str, float],
    how: Averaging,
    counts: dict[tuple[str, int], Floats],
    by_rule: bool,
) -> dict[str, float]:
    """Weighted mean over datasets of the mean over rows, or over rules, with a bootstrap interval; NaN is left out."""
    means, resampled = {}, {}
    for cell in group:
        values = cell.rows[score]
        known = np.isfinite(values).astype(np.float64)
        filled = np.nan_to_num(values)
        key = (cell.dataset, len(values))
        if key not in counts:
            rng = stream(how.seed, "ground truth", cell.dataset, "bootstrap")
            drawn_rows = rng.multinomial(len(values), np.full(len(values), 1 / len(values)), size=how.resamples)
            counts[key] = drawn_rows.astype(np.float64)
        member = (cell.rule[:, None] == np.unique(cell.rule)) if by_rule else np.ones((len(values), 1), dtype=bool)
        sums, sizes = counts[key] @ (filled[:, None] * member), counts[key] @ (known[:, None] * member)
        once = (filled @ member) / np.maximum(known @ member, 1e-300)
        drawn = np.where(sizes > 0, sums / np.maximum(sizes, 1), once)
        means[cell.dataset] = float(once.mean())
        resampled[cell.dataset] = drawn.mean(axis=1)
    mean, tail = weighted(means, weights), 100 * (1 - how.confidence) / 2
    every = np.average(list(resampled.values()), axis=0, weights=[weights[name] for name in resampled])
    low, high = np.percentile(every, (tail, 100 - tail))
    return {"mean": _rounded(mean), "low": _rounded(low), "high": _rounded(high)}


def _part(group: Sequence[Scored], part: str, complexity: Mapping[str, float]) -> float | None:
    """A part of XFA over the datasets in which it is defined, as rank order is not where no rule has an order."""
    known = {cell.dataset: cell.rows[part][np.isfinite(cell.rows[part])] for cell in group}
    means = {dataset: float(values.mean()) for dataset, values in known.items() if len(values)}
    return _rounded(weighted(means, {name: complexity[name] for name in means})) if means else None


def _rounded(value: Any) -> float:
    return round(float(value), DIGITS)


# The validation protocols of paper 002, section 4.

LEVELS = np.linspace(0.0, 1.0, 11)
ERRORS = ("missing", "extra", "mis-ranked")


def with_errors(truth: Floats, kind: str, level: float, rng: np.random.Generator) -> Floats:
    """The ground truth (n, d) as an explanation with a controlled share of errors (paper 002, XFA validation).

    `missing`: of the true features are left out; `extra`: of the others come in, below the true ones; `mis-ranked`: of
    the rows have their true features in the opposite order. The same draws at every level, so that errors are nested.
    """
    inside, draw = truth > 0, rng.random(truth.shape)
    if kind == "missing":
        return np.where(draw < level, 0.0, truth)
    if kind == "extra":
        return np.where(~inside & (draw < level), 0.5 * truth[inside].min(), truth)
    low = np.where(inside, truth, np.inf).min(axis=1, keepdims=True)
    turned = np.where(inside, truth.max(axis=1, keepdims=True) + low - truth, 0.0)
    return np.where(draw[:, :1] < level, turned, truth)


def rules_truth(copies: int = 1) -> Floats:
    """The ground truth of one row per rule, `copies` of each: (12 copies, 48)."""
    truth = np.zeros((len(RULES), COLUMNS))
    for row, relation in enumerate(RULES):
        truth[row, relation.columns] = 1.0 + max(relation.tiers) - np.asarray(relation.tiers)
    return np.repeat(truth, copies, axis=0)


def error_curves(copies: int = 60, seed: int = 0) -> dict[tuple[str, str], Floats]:
    """Mean XFA at every level of every kind of error, per variant: {(variant, kind): (levels,)}."""
    truth = rules_truth(copies)
    curves = {}
    for kind in ERRORS:
        wrong = [with_errors(truth, kind, level, stream(seed, "errors", kind)) for level in LEVELS]
        for how in VARIANTS:
            curves[how, kind] = np.array([scores(e, truth, how, naming="nonzero")["xfa"].mean() for e in wrong])
    return curves


def ops_ranking(rows: int = 400, columns: int = 48, seed: int = 0) -> tuple[Floats, Floats]:
    """Explanation sets of known simplicity and coverage: their distance to the ideal, and their OPS (paper 002, OPS
    validation), one per set."""
    rng = stream(seed, "simulated sets")
    far, found = [], []
    for features in (1, 2, 5, 10, 20, columns):
        for share in (0.1, 0.4, 0.7, 0.9, 1.0):
            place = np.argsort(rng.random((rows, columns)), axis=1)
            named = (place < features) & (np.arange(rows) < share * rows)[:, None]
            far.append(float(np.hypot(features, 100 - 100 * share)))
            found.append(optimum(named).ops)
    return np.array(far), np.array(found)
