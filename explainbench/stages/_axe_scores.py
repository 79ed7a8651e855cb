"""What the cells of the AXE suite compute (paper 004): pure functions of tables, models and stored explanations.

Reads and writes nothing: this module's imports are the code on a cell's path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from explainbench.core.arrays import Bools, Floats, Ints, Stamps
from explainbench.core.cell import Cell, Score, Skipped, stream
from explainbench.core.errors import ExplainBenchError, NotApplicable, Pending
from explainbench.core.evidence import Evidence, Metric
from explainbench.core.explanation import Explanation, MethodCard
from explainbench.core.forecaster import ExplainedModel, Forecaster
from explainbench.core.masking import Climatology, Groups, Masker
from explainbench.core.tabular import HasLayers, TabularExplainer, TabularModel
from explainbench.core.windows import Channels, Windows
from explainbench.metrics._fairwashing import row_order_sensitivity, table2
from explainbench.metrics._top_n import Preset
from explainbench.metrics.agreement import agreement, agreement_auc
from explainbench.metrics.axe import Axe, axe
from explainbench.metrics.faithfulness import Faithfulness
from explainbench.metrics.prediction_gap import Normal, PredictionGap, prediction_gap
from explainbench.models._fairwashing import DrivenForecaster, FairwashedClassifier, fairwashed_forecaster
from explainbench.models._tabular._metered import metered, per_explanation

STEPS, HORIZON, SEGMENT = 24, 4, 6  # of the forecasting version


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """Scores (n,) per row or (1,) for the set, reasons where there is none, and what is kept beside them.

    counters: rows asked of the model, and with gradients, per explanation; model_seconds: inside it, a measurement.
    """

    scores: Mapping[str, Score]
    skipped: Mapping[str, Skipped] = field(default_factory=dict)
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    notes: Mapping[str, float] = field(default_factory=dict)
    counters: tuple[float, float] = (0.0, 0.0)
    model_seconds: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """What is asked of every method on one (table, model).

    rows: (b, d), the neighbours of AXE; explained: (q,) indices of the rows that are explained; background: (a, d)
    training rows; discrete: (d,) columns of 0 and 1; truth: (d,) what generated the labels, or None.
    """

    rows: Floats
    explained: Ints
    background: Floats
    discrete: Bools
    truth: Floats | None
    model: TabularModel

    @property
    def predictions(self) -> Ints:
        """m(x), (b,): 0 or 1."""
        return (self.model.predict(self.rows) > 0.5).astype(np.int64)

    @property
    def ground_truth(self) -> Floats:
        """e* (d,): the coefficients of a linear model, per unit of each column, else what generated the labels."""
        if isinstance(self.model, HasLayers) and len(self.model.layers) == 1:
            return self.model.layers[0][0][:, 0] / getattr(self.model, "std", 1.0)
        if self.truth is None:
            raise NotApplicable(
                "what this model uses is not known: agreement needs a linear model or a generated table"
            )
        return self.truth


def judge_method(
    cell: Cell, seed: int, question: Question, method: TabularExplainer, runs: int, rule: Preset, k: tuple[int, ...],
    draws: int,
) -> Judged:  # fmt: skip
    """Explain the rows and score AXE, agreement and the prediction gaps (paper 004, Table 1). Raises NotApplicable.

    Every method of a (table, model) meets the same perturbed copies and the same random explanations.
    """
    model, meter = metered(question.model)
    question = replace(question, model=model)
    x = question.rows[question.explained]
    explained = [method.explain(model, x, question.background, cell.rng(seed, "explain", run)) for run in range(runs)]
    counters = per_explanation(meter, runs * len(x))
    per_run = np.stack([np.asarray(run.attribution, dtype=np.float64) for run in explained])
    bad = ~np.isfinite(per_run).all(axis=(0, 2))
    if bad.any():
        raise ExplainBenchError(f"cell {cell}: the explanation of row {question.explained[bad.argmax()]} is not finite")
    e = per_run.mean(axis=0)
    scores: dict[str, Score] = {}
    skipped: dict[str, Skipped] = {}
    arrays: dict[str, NDArray[Any]] = {
        "importance": e, "run_importance": per_run, "output": question.model.predict(x),
    }  # fmt: skip

    def shared(purpose: str) -> np.random.Generator:
        return stream(seed, cell.suite, cell.task, cell.model, purpose)

    def score_axe() -> dict[str, Score]:
        curves = axe(
            *(question.rows, question.predictions, e),
            preset=rule, k=k, explained=question.explained, rng=shared("random explanations"),
        )  # fmt: skip
        areas, chance = curves.auc(), curves.random_auc()
        assert chance is not None
        arrays["axe_curve"] = curves.agreement.astype(np.float32)
        found = {f"axe_k{number}": Score(areas[:, j]) for j, number in enumerate(k)}
        beside = {"axe_base_rate": curves.base_rate, "axe_random": float(chance.mean())}
        return {"axe": Score(areas.mean(axis=1)), **found, **{name: _set(value) for name, value in beside.items()}}

    def score_agreement() -> dict[str, Score]:
        found = agreement(e, question.ground_truth, preset=rule, predictions=question.predictions[question.explained])
        return {
            f"agreement_{name.removesuffix('_agreement')}": Score(
                agreement_auc(values, rule) if values.ndim == 2 else values
            )
            for name, values in found.items()
        }

    def score_gaps() -> dict[str, Score]:
        normal = Normal(rule.std, draws, question.discrete, rule.flip)
        generator = stream(seed, cell.suite, cell.task, "perturbed copies")
        gaps = prediction_gap(question.model.predict, x, e, generator, preset=rule, perturbation=normal)
        important, unimportant = gaps.auc()
        return {"pgi": Score(important), "pgu": Score(unimportant)}

    for name, score in (("axe", score_axe), ("agreement", score_agreement), ("prediction_gap", score_gaps)):
        try:
            scores |= score()
        except NotApplicable as reason:
            skipped[name] = Skipped("not_applicable", reason.reason)
    if "prediction_gap" in skipped:
        skipped["pgi"] = skipped["pgu"] = skipped.pop("prediction_gap")
    notes = {
        name: float(max(run.notes[name].max() for run in explained if run.notes))
        for name in sorted({name for run in explained for name in run.notes or {}})
    }
    return Judged(scores, skipped, arrays, notes, counters, meter.seconds)


# Table 2


def judge_attack(
    cell: Cell, seed: int, model: FairwashedClassifier, rows: Floats, names: tuple[str, ...], protected: str,
    foils: tuple[str, ...], attacked: int, presets: Mapping[str, Preset], draws: int, orders: int,
) -> Judged:  # fmt: skip
    """One row of Table 2: does a metric score the protected feature above every foil, and how surely?

    Scores under `<prefix>_<metric>_...`: the mean score of each role per row; `margin`, protected minus the best foil,
    whose interval says how sure a detection is; `detected`, the inequality of the means. For AXE also `order_spread`:
    by how much the row order moves the score of the protected feature or of a foil.
    """
    model, meter = metered(model)
    labels = model.predict(rows)
    scores: dict[str, Score] = {}
    for prefix, rule in presets.items():
        rule = replace(rule, draws=draws)
        found = table2(
            *(model.output, rows, names, protected, foils, stream(seed, str(cell), prefix, "gaps")),
            attacked=attacked, preset=rule,
        )  # fmt: skip
        for metric, verdict in found.items():
            stem = f"{prefix}_{metric.lstrip('-').lower()}"
            best = max((role for role in verdict.scores if role.startswith("foil")), key=verdict.mean)
            scores |= {f"{stem}_{role}": Score(values) for role, values in verdict.scores.items()}
            scores[f"{stem}_margin"] = Score(verdict.scores["protected"] - verdict.scores[best])
            scores[f"{stem}_detected"] = _set(verdict.detected)
        spread = 0.0
        for name in (protected, *foils[:attacked]):
            rng = stream(seed, str(cell), prefix, "orders", name)
            low, high = row_order_sensitivity(rows, labels, names.index(name), rng, preset=rule, orders=orders)
            spread = max(spread, high - low)
        scores[f"{prefix}_axe_order_spread"] = _set(spread)
    unfair = float((labels == model.biased(rows)).mean())
    return Judged(
        scores,
        arrays={"output": labels.astype(np.float64)},
        notes={"share_decided_by_protected": unfair},
        model_seconds=meter.seconds,
    )


# The forecasting version: a forecaster that detects masked windows and answers them with the seasonal naive


@dataclass(frozen=True, slots=True, eq=False)
class ForecastQuestion:
    """Windows (n), an honest forecaster driven by temperature and the same one fairwashed, and the masking operator."""

    windows: Windows
    honest: Forecaster
    fairwashed: Forecaster
    masker: Masker


def forecast_question(
    stamps: Stamps, values: Floats, training: int, judged: int, trees: int, seed: int
) -> ForecastQuestion:
    """Windows of a series of load and temperature (s, 2): the attacker trains on the first ones and is judged on later.

    Two channels and four groups each. Raises nothing; a pure function of its arguments.
    """
    mean, std = values.mean(axis=0), values.std(axis=0)
    channels = Channels(
        ("load_mw", "temperature_c"), ("MW", "degC"), (False, False), mean, std, values.min(axis=0), values.max(axis=0)
    )
    cut = len(values) * 7 // 10
    early = np.linspace(0, cut - STEPS - HORIZON, training).astype(int)
    late = np.linspace(cut, len(values) - STEPS - HORIZON, judged).astype(int)
    groups = Groups.of(channels, STEPS, SEGMENT, np.arange(2))
    masker = Masker(groups, "climatology", Climatology.of(stamps, values), target=0)
    honest = DrivenForecaster(1, HORIZON)
    attack = fairwashed_forecaster(
        honest, _windows(stamps, values, early, channels), masker, target=0, segment=SEGMENT,
        rng=stream(seed, "axe", "forecast attack"), season=STEPS, trees=trees,
    )  # fmt: skip
    return ForecastQuestion(_windows(stamps, values, late, channels), honest, attack, masker)


def _windows(stamps: Stamps, values: Floats, starts: Ints, channels: Channels) -> Windows:
    context = np.stack([values[s : s + STEPS] for s in starts])
    target = np.stack([values[s + STEPS : s + STEPS + HORIZON, 0] for s in starts])
    return Windows(context, target, np.full(len(starts), "all"), stamps[starts + STEPS], channels)


def planted_ranking(name: str, windows: int, rng: np.random.Generator) -> Floats:
    """`driver` ranks the temperature groups first, `foil` yesterday's load, `random` neither: (n, 8)."""
    if name == "random":
        return rng.random((windows, 8))
    driver = np.array([0.0, 0, 0, 0, 1, 2, 8, 9])
    return np.tile(driver if name == "driver" else driver[::-1], (windows, 1))


def judge_ranking(cell: Cell, seed: int, question: ForecastQuestion) -> Judged:
    """Score a planted ranking by what masks (Faithfulness), perturbs (PGI) and never leaves the data (AXE)."""
    importance = planted_ranking(cell.method, len(question.windows), cell.rng(seed, "ranking"))
    forecaster = question.honest if cell.model == "honest" else question.fairwashed
    metrics: dict[str, Metric] = {
        "faithfulness": Faithfulness(share=0.5, random_rankings=5),
        "axe": Axe(),
        "prediction_gap": PredictionGap(std=0.4),
    }
    model = ExplainedModel(forecaster)
    judged = judge_importance(cell, seed, question.windows, model, question.masker, importance, metrics)
    return replace(judged, model_seconds=model.meter.seconds)


# The regression extension over the energy cells


def judge_stored(
    cell: Cell, seed: int, windows: Windows, masker: Masker, stored: Mapping[str, NDArray[Any]],
    beside: Mapping[str, Score], k: int,
) -> Judged:  # fmt: skip
    """AXE for forecasts, an extension of ours: k-NN regression of a stored forecast on the top groups (R2 skill).

    stored: `output` (n,) and `importance` (n, g) of an energy cell; beside: scores of that cell, shown with it.
    """
    outputs = np.asarray(stored["output"], dtype=np.float64)
    model = cast(ExplainedModel, lambda context: outputs)  # every window was asked already
    judged = judge_importance(cell, seed, windows, model, masker, stored["importance"], {"axe": Axe(k)})
    return replace(judged, scores={**judged.scores, **beside})


def judge_importance(
    cell: Cell, seed: int, windows: Windows, model: ExplainedModel, masker: Masker, importance: Floats,
    metrics: Mapping[str, Metric],
) -> Judged:  # fmt: skip
    """Score given group importances (n, g) with registered metrics; AXE's scores are named `axe_regression...`."""
    found = (Explanation(masker.groups.spread(np.asarray(importance, dtype=np.float64))),)
    card = MethodCard(title="given", category="attribution", source="stored", deterministic=True)

    def nothing_else(windows: Windows, run: int) -> Explanation:
        raise NotApplicable("a given explanation cannot be asked about other windows")

    memo: dict[str, Any] = {}

    def shared(name: str, compute: Callable[[], Any]) -> Any:
        if name not in memo:
            memo[name] = compute()
        return memo[name]

    evidence = Evidence(
        windows=windows, model=model, masker=masker, method=card, runs=found,
        target_std=float(windows.channels.std[masker.target or 0]),
        explain_again=nothing_else,
        rng=lambda purpose: cell.rng(seed, purpose),
        task_rng=lambda purpose: stream(seed, cell.suite, cell.task, purpose),
        shared=shared,
    )  # fmt: skip
    scores: dict[str, Score] = {}
    skipped: dict[str, Skipped] = {}
    for name, metric in metrics.items():
        try:
            for score, value in metric.score(evidence).items():
                scores[score.replace("axe", "axe_regression", 1) if name == "axe" else score] = value
        except NotApplicable as reason:
            status = "pending" if isinstance(reason, Pending) else "not_applicable"
            skipped["axe_regression" if name == "axe" else name] = Skipped(status, reason.reason)
    return Judged(scores, skipped, {"importance": np.asarray(importance, dtype=np.float64)})


def _set(value: float | bool) -> Score:
    """A score of the whole set."""
    return Score(np.array([float(value)]))
