"""One cell of the ground-truth suite: explain the rows, score them against what made their labels.

Reads and writes nothing: this module's imports are the code on a cell's path.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from explainbench.core.arrays import Bools, Floats, Ints
from explainbench.core.cell import Cell, Score
from explainbench.core.errors import ExplainBenchError
from explainbench.core.tabular import TabularExplainer, TabularModel
from explainbench.metrics.ops import optimum, overall
from explainbench.metrics.xfa import PARTS, VARIANTS, Naming, names_of, references, scores
from explainbench.models._tabular._metered import metered, per_explanation


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """What all methods of a (dataset, model) share. rows: (n, d); label: (n,); truth: (n, d); background: (m, d);
    auc: of the model over all test rows."""

    rows: Floats
    label: Ints
    truth: Floats
    background: Floats
    model: TabularModel
    auc: float


@dataclass(frozen=True, slots=True)
class Rules:
    """How explanations are read and averaged: the block's naming, K, and Overall's variant, weights and axis."""

    naming: Naming
    top: int
    variant: str
    weights: tuple[float, float]
    axis: Literal["count", "percent"]


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """Scores and arrays of a cell. counters: rows asked of the model, and with gradients, per explanation;
    model_seconds: inside the model, a measurement.
    """

    scores: dict[str, Score]
    arrays: dict[str, NDArray[Any]]
    counters: tuple[float, float]
    model_seconds: float


def judge(
    cell: Cell, seed: int, question: Question, method: TabularExplainer | None, runs: int, rules: Rules
) -> Judged:
    """Explain the rows, or take the ground truth itself where there is no method (the oracle), and score.

    Per row (n,): XFA in every variant, its parts, XFA of the rows that the model predicts correctly (NaN elsewhere),
    and how many columns are named. For the set (1,): OPS, Overall, model AUC and accuracy, and XFA of a perfect, an
    empty and an everything-naming explanation. Raises NotApplicable, ExplainBenchError.
    """
    model, meter = metered(question.model)
    question = replace(question, model=model)
    explained, named, notes = _explained(cell, seed, question, method, runs, rules.naming)
    counters = per_explanation(meter, len(explained) * len(question.rows))
    e, said = explained.mean(axis=0), named.mean(axis=0) > 0.5
    correct = (question.model.predict(question.rows) >= 0.5) == question.label
    found: dict[str, Score] = {}
    for how in VARIANTS:
        parts = scores(e, question.truth, how, named=said, top=rules.top)
        found[how] = Score(parts["xfa"], parts["xfa"] / 100)
        right = np.where(correct, parts["xfa"], np.nan)
        found[f"{how}_correct"] = Score(right, right / 100)
        for name, (variant, part) in PARTS.items():
            if variant == how:
                found[name] = Score(parts[part], parts[part])
        for name, values in references(question.truth, how, rules.top).items():
            found[f"{how}_{name}"] = _set(float(values.mean()))
    size = optimum(said, rules.axis)
    mean = float(found[rules.variant].raw.mean())
    found |= {
        "named_columns": Score(said.sum(axis=1).astype(np.float64)),
        "ops": _set(size.ops),
        "ops_normalised": _set(size.normalised),
        "ops_features": _set(size.features),
        "ops_coverage": _set(size.coverage),
        "overall": _set(overall(mean, size.normalised, rules.weights)),
        "model_auc": _set(question.auc),
        "model_accuracy": _set(float(correct.mean())),
    }
    found |= {f"rule_{name}": Score(values) for name, values in notes.items()}
    arrays: dict[str, NDArray[Any]] = {
        "attribution": explained.astype(np.float32)[:, :, None],
        "importance": e,
        "named": said,
        "truth": question.truth.astype(np.float32),
        "output": question.model.predict(question.rows),
        "label": question.label,
    }
    return Judged(found, arrays, counters, meter.seconds)


def _explained(
    cell: Cell, seed: int, question: Question, method: TabularExplainer | None, runs: int, naming: Naming
) -> tuple[Floats, Bools, Mapping[str, Floats]]:
    """Attributions and named columns (r, n, d), and the mean over runs of the method's own diagnostics (n,)."""
    if method is None:
        return question.truth[None], (question.truth > 0)[None], {}
    done = [
        method.explain(question.model, question.rows, question.background, cell.rng(seed, "explain", run))
        for run in range(runs)
    ]
    values = np.stack([run.attribution for run in done])
    bad = ~np.isfinite(values).all(axis=(0, 2))
    if bad.any():
        raise ExplainBenchError(f"cell {cell}: the explanation of explained row {bad.argmax()} is not finite")
    named = np.stack([names_of(run.attribution, naming) if run.named is None else run.named for run in done])
    diagnostics = [run.notes for run in done if run.notes]
    notes = (
        {name: np.mean([item[name] for item in diagnostics], axis=0) for name in diagnostics[0]} if diagnostics else {}
    )
    return values, named, notes


def _set(value: float) -> Score:
    return Score(np.array([value]))
