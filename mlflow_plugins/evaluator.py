"""MLflow's evaluator `explainbench`: `mlflow.models.evaluate` scores explanations of a user's own model."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
from mlflow.models.evaluation.artifacts import ImageEvaluationArtifact, JsonEvaluationArtifact
from mlflow.models.evaluation.base import EvaluationResult, ModelEvaluator

from explainbench.analysis.intervals import mean_intervals, resample_indices
from explainbench.core.arrays import Floats
from explainbench.core.cell import Cell, Score, Skipped, Status, stream
from explainbench.core.errors import BadInput, NotApplicable
from explainbench.core.params import Params
from explainbench.core.registry import METHODS
from explainbench.stages.cell import Scored, score_cell
from mlflow_plugins._user_model import Case, Config, forecaster_case, read_config, table_case

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS = (None, "regressor", "classifier", "forecaster")
PREFIX = "explainbench"
METHODS_TRIED = ("shap", "lime", "perturbation", "integrated_gradients", "feature_attribution")
RESAMPLES, CONFIDENCE = 2_000, 0.95
BATCH = 1_000  # metrics per request: MLflow's limit
SHOWN = 30  # groups in the figure
TINY = 1e-300


@dataclass(frozen=True, slots=True, eq=False)
class Explained:
    """One method's result: scores or the reason there is none, and the mean importance of each group (g,)."""

    method: str
    scores: Mapping[str, Score]
    skipped: Mapping[str, Skipped]
    importance: Floats | None


@dataclass(frozen=True, slots=True)
class Line:
    """One row of the table of scores. n: windows or rows with a number; unit: whether the score lies in [0, 1]."""

    method: str
    score: str
    mean: float | None
    low: float | None
    high: float | None
    n: int
    unit: bool
    status: Status = "value"
    reason: str = ""


class ExplainBenchEvaluator(ModelEvaluator):
    """Explain the model on the data, score the explanations, log numbers, tables and figures to the run.

    The model: any pyfunc (a function too), with gradients where it is a torch module. The data: a numeric table, or,
    with `evaluator_config={"forecast": ...}`, a regular series in columns. See docs/mlflow.md.
    """

    @classmethod
    def can_evaluate(cls, *, model_type: str | None, evaluator_config: Any, **kwargs: Any) -> bool:
        """Whether the model type is one with numeric inputs and outputs."""
        return model_type in KINDS

    def evaluate(  # pyright: ignore[reportIncompatibleMethodOverride] - annotated as returning nothing
        self,
        *,
        model_type: str | None,
        dataset: Any,
        run_id: str,
        evaluator_config: Any,
        model: Any = None,
        extra_metrics: Any = None,
        custom_artifacts: Any = None,
        predictions: Any = None,
        **kwargs: Any,
    ) -> EvaluationResult:
        """Score the explanations. Raises BadInput, in one sentence, for what cannot be explained."""
        if model is None:
            raise BadInput("explanations are scored by asking the model, and only its predictions were given.")
        config = read_config(evaluator_config)
        case = _case(model, dataset, config, model_type)
        found = explain(case, config)
        return _logged(run_id, case, found, config)


def explain(case: Case, config: Config) -> list[Explained]:
    """Every method that applies, and a random ranking beside them, scored by every metric."""
    methods = config.methods or METHODS_TRIED
    params = _params(config, case)
    found: list[Explained] = []
    for method in (*methods, *(() if "random" in methods else ("random",))):
        cell = Cell(PREFIX, "data", "model", method)
        try:
            scored = score_cell(params, cell, case.bench)
        except NotApplicable as reason:
            if config.methods is not None and method in config.methods:
                found.append(Explained(method, {}, {method: Skipped("not_applicable", reason.reason)}, None))
            continue
        scores, skipped = dict(scored.result.scores), dict(scored.result.skipped)
        if case.table is not None and "axe" in config.metrics:
            _label_axe(case, scored, config, scores, skipped)
        importance = np.abs(scored.explanations["importance"])
        found.append(Explained(method, scores, skipped, importance.mean(axis=0)))
    if not any(one.scores for one in found if one.method != "random" or "random" in methods):
        raise BadInput(f"none of {', '.join(methods)} can explain this model: {_reasons(found)}")
    return found


def _case(model: Any, dataset: Any, config: Config, model_type: str | None) -> Case:
    import pandas as pd

    data = dataset.features_data
    frame = data if isinstance(data, pd.DataFrame) else pd.DataFrame(data, columns=dataset.feature_names)
    if config.forecast is not None:
        if dataset.has_targets and dataset.targets_name is not None:  # the target's past is an input as well
            frame = frame.assign(**{dataset.targets_name: dataset.labels_data})
        return forecaster_case(model, frame, config.forecast, config)
    if model_type == "forecaster":
        raise BadInput('a forecaster needs evaluator_config={"forecast": {...}}; see docs/mlflow.md.')
    kind = "classifier" if model_type == "classifier" else "regressor"
    return table_case(model, frame, dataset.labels_data, config, kind)


def _params(config: Config, case: Case) -> Params:
    """The configuration as the benchmark's own parameters. Raises BadInput for an unknown method, metric or option."""
    from explainbench.core.registry import METRICS

    known = (*(config.methods or METHODS_TRIED), "random", *config.metrics)
    for name in config.options:
        if name not in known:
            raise BadInput(f"evaluator_config: options: {name!r} is neither a method nor a metric of this evaluation.")
    for name in (*(config.methods or ()), *config.metrics):
        registry = METRICS if name in config.metrics else METHODS
        registry.build(name, config.options.get(name))
    metrics = [name for name in config.metrics if not (name == "axe" and case.table is not None)]  # of labels instead
    # windows and masking are there already: of this task only the name of an input is read
    names = case.bench.data.windows.channels.names
    task = {"target": names[0], "context": 1, "horizon": 1, "segment": 1, "windows_per_regime": 1}
    energy = {"dataset": "", "tasks": {"data": task}, "models": [], "methods": [], "metrics": metrics}
    return Params.model_validate(
        {
            "protocol": PREFIX,
            "seed": config.seed,
            "runs": config.runs,
            "suites": {"energy": energy},
            "methods": {name: block for name, block in config.options.items() if name not in config.metrics},
            "metrics": {name: block for name, block in config.options.items() if name in config.metrics},
        }
    )


def _label_axe(
    case: Case, scored: Scored, config: Config, scores: dict[str, Score], skipped: dict[str, Skipped]
) -> None:
    """AXE of a classifier (paper 004): do the k rows nearest in the top n columns share the predicted label?"""
    from explainbench.metrics.axe import axe

    assert case.table is not None
    rows, labels, explained = case.table
    asked = config.options.get("axe", {}).get("k")
    ks = tuple(k for k in (1, 3, 5, 9) if k < len(rows)) if asked is None else (asked,)
    try:
        rng = stream(config.seed, PREFIX, "axe random explanations")
        curves = axe(rows, labels, scored.explanations["importance"], k=ks, explained=explained, rng=rng)
    except NotApplicable as reason:
        skipped["axe"] = Skipped("not_applicable", reason.reason)
        return
    per_row = curves.auc().mean(axis=1)
    scores["axe"] = Score(per_row, per_row)
    random = curves.random_auc()
    if random is not None:
        scores["axe_random"] = Score(np.array([float(random.mean())]))


def _lines(found: list[Explained], config: Config) -> list[Line]:
    """Every score of every method with a percentile-bootstrap interval over windows or rows, or why there is none."""
    lines: list[Line] = []
    for one in found:
        for name, score in one.scores.items():
            # a score with a map to [0, 1] is known by that value; what it was before is `.raw`
            numbers = {"": score.raw} if score.value is None else {"": score.value, ".raw": score.raw}
            for suffix, array in numbers.items():
                finite = array[np.isfinite(array)]
                if not len(finite):
                    continue
                low = high = None
                if len(finite) > 1:
                    indices = resample_indices(len(finite), RESAMPLES, stream(config.seed, "interval", len(finite)))
                    ends = mean_intervals(finite[:, None], indices, CONFIDENCE)
                    low, high = float(ends.low[0]), float(ends.high[0])
                unit = suffix == "" and score.value is not None
                lines.append(Line(one.method, f"{name}{suffix}", float(finite.mean()), low, high, len(finite), unit))
        for name, gap in one.skipped.items():
            lines.append(Line(one.method, name, None, None, None, 0, False, gap.status, gap.reason))
    return lines


def _logged(run_id: str, case: Case, found: list[Explained], config: Config) -> EvaluationResult:
    """Metrics, two tables and a figure in the run, and the same as MLflow's result."""
    from mlflow import MlflowClient
    from mlflow.entities import Metric

    client = MlflowClient()
    lines = _lines(found, config)
    metrics = {
        f"{PREFIX}/{line.method}/{line.score}{end}": number
        for line in lines
        for end, number in (("", line.mean), (".lo", line.low), (".hi", line.high))
        if number is not None
    }
    now = int(time.time() * 1000)
    entries = [Metric(name, value, now, 0) for name, value in metrics.items()]
    for start in range(0, len(entries), BATCH):
        client.log_batch(run_id, metrics=entries[start : start + BATCH])
    client.log_dict(run_id, config.model_dump(mode="json"), f"{PREFIX}/config.json")
    home = client.get_run(run_id).info.artifact_uri
    artifacts: dict[str, Any] = {}
    for name, content in (("scores", [asdict(line) for line in lines]), ("importance", _importance(case, found))):
        path = f"{PREFIX}/{name}.json"
        client.log_table(run_id, {key: [row[key] for row in content] for key in content[0]}, path)
        artifacts[path] = JsonEvaluationArtifact(uri=f"{home}/{path}", content=content)
    with TemporaryDirectory() as temporary:
        picture = Path(temporary) / "explanations.png"
        figure(case, found, lines).savefig(picture)
        client.log_artifact(run_id, str(picture), PREFIX)
        image = ImageEvaluationArtifact(uri=f"{home}/{PREFIX}/{picture.name}")
        image._load(str(picture))
        artifacts[f"{PREFIX}/{picture.name}"] = image
    return EvaluationResult(metrics=metrics, artifacts=artifacts, run_id=run_id)


def _importance(case: Case, found: list[Explained]) -> list[dict[str, Any]]:
    return [
        {"method": one.method, "group": group, "mean_absolute_importance": float(value)}
        for one in found
        if one.importance is not None
        for group, value in zip(_group_names(case), one.importance, strict=True)
    ]


def _group_names(case: Case) -> list[str]:
    """Of a table the columns' own names, without the steps that runs of a series have."""
    names = case.bench.masker.groups.names
    return list(names) if case.kind == "forecaster" else [name.removesuffix("[-1:0]") for name in names]


def figure(case: Case, found: list[Explained], lines: list[Line]) -> Figure:
    """Left: how important each group is to each method, as a share; right: the scores in [0, 1] with intervals."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    shares = {
        one.method: one.importance / max(one.importance.sum(), TINY) for one in found if one.importance is not None
    }
    share = np.stack(list(shares.values()))
    top = np.sort(np.argsort(-share.mean(axis=0), kind="stable")[:SHOWN])
    names = _group_names(case)
    drawn = Figure(figsize=(13, 2.2 + 0.24 * max(len(top), 12)), dpi=100, layout="constrained")
    FigureCanvasAgg(drawn)
    left, right = drawn.subplots(1, 2)
    image = left.imshow(share[:, top].T, aspect="auto", cmap="cividis", vmin=0)
    left.set_xticks(range(len(shares)), list(shares), rotation=30, ha="right")
    left.set_yticks(range(len(top)), [names[i] for i in top], fontsize=8)
    some = "" if len(top) == len(names) else f", the {SHOWN} largest of {len(names)} groups"
    left.set_title(f"share of importance{some}")
    drawn.colorbar(image, ax=left)
    scores = sorted({line.score for line in lines if line.unit})
    for offset, method in enumerate(shares):
        mine = [line for line in lines if line.unit and line.method == method]
        mean = np.array([line.mean for line in mine], dtype=np.float64)
        low, high = (
            np.where(np.isnan(ends), mean, ends)
            for ends in np.array([(line.low, line.high) for line in mine], dtype=np.float64).reshape(-1, 2).T
        )
        place = np.array([scores.index(line.score) for line in mine]) + 0.8 * (offset + 0.5) / len(shares) - 0.4
        right.errorbar(
            mean, place, xerr=np.clip([mean - low, high - mean], 0, None), fmt="o", markersize=4, label=method
        )
    right.set_yticks(range(len(scores)), scores)
    right.set_xlim(-0.03, 1.03)
    right.set_title(f"scores in [0, 1], mean and {CONFIDENCE:.0%} interval")
    right.grid(axis="x", alpha=0.3)
    right.legend(fontsize=8)
    return drawn


def _reasons(found: list[Explained]) -> str:
    return "; ".join(gap.reason for one in found for gap in one.skipped.values()) or "no method applies"
