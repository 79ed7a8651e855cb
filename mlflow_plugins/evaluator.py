"""MLflow's evaluator `explainbench`: `mlflow.models.evaluate` scores explanations of a user's own model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
from mlflow.models.evaluation.artifacts import ImageEvaluationArtifact, JsonEvaluationArtifact
from mlflow.models.evaluation.base import EvaluationResult, ModelEvaluator

from explainbench.analysis.intervals import mean_intervals, resample_indices
from explainbench.core.arrays import Floats
from explainbench.core.cell import Cell, Score, Skipped, stream
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
RESAMPLES = 2_000
SHOWN = 30  # groups in the figure


@dataclass(frozen=True, slots=True, eq=False)
class Explained:
    """One method's result: scores or the reason there is none, and the mean importance of each group (g,)."""

    method: str
    scores: Mapping[str, Score]
    skipped: Mapping[str, Skipped]
    importance: Floats | None


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
    options = {name: tuple(value) for name, value in config.options.get("axe", {}).items() if name == "k"}
    ks = options.get("k") or tuple(k for k in (1, 3, 5, 9) if k < len(rows))
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


def _rows(found: list[Explained], config: Config) -> list[dict[str, Any]]:
    """One row per method and score: mean, percentile-bootstrap interval over windows or rows, or why there is none."""
    rows: list[dict[str, Any]] = []
    for one in found:
        for name, score in one.scores.items():
            for kind, array in (("raw", score.raw), ("value", score.value)):
                finite = np.empty(0) if array is None else array[np.isfinite(array)]
                if not len(finite):
                    continue
                row = {
                    "method": one.method,
                    "score": name,
                    "kind": kind,
                    "mean": float(finite.mean()),
                    "n": len(finite),
                }
                row |= {"low": None, "high": None, "status": "value", "reason": ""}
                if len(finite) > 1:
                    indices = resample_indices(len(finite), RESAMPLES, stream(config.seed, "interval", len(finite)))
                    ends = mean_intervals(finite[:, None], indices, 0.95)
                    row |= {"low": float(ends.low[0]), "high": float(ends.high[0])}
                rows.append(row)
        for name, gap in one.skipped.items():
            row = {"method": one.method, "score": name, "kind": "", "mean": None, "n": 0, "low": None, "high": None}
            rows.append(row | {"status": gap.status, "reason": gap.reason})
    return rows


def _logged(run_id: str, case: Case, found: list[Explained], config: Config) -> EvaluationResult:
    """Metrics, two tables and a figure in the run, and the same as MLflow's result."""
    from mlflow import MlflowClient
    from mlflow.entities import Metric

    client = MlflowClient()
    rows = _rows(found, config)
    metrics: dict[str, float] = {}
    for row in rows:
        if row["status"] == "value":
            name = f"{PREFIX}/{row['method']}/{row['score']}" + (".raw" if row["kind"] == "raw" else "")
            metrics[name] = row["mean"]
            if row["low"] is not None:
                metrics |= {f"{name}.lo": row["low"], f"{name}.hi": row["high"]}
    # scores without a map to [0, 1] have nothing but a raw value: then the plain name is free for it
    metrics = {name.replace(".raw", "") if name.replace(".raw", "") not in metrics else name: value
               for name, value in metrics.items()}  # fmt: skip
    client.log_batch(run_id, metrics=[Metric(name, value, 0, 0) for name, value in metrics.items()])
    tables = {
        "scores": {key: [row[key] for row in rows] for key in rows[0]},
        "importance": _importance_table(case, found),
    }
    artifacts: dict[str, Any] = {}
    with TemporaryDirectory() as temporary:
        for name, table in tables.items():
            path = f"{PREFIX}/{name}.json"
            client.log_table(run_id, data=table, artifact_file=path)
            content = [dict(zip(table, values, strict=True)) for values in zip(*table.values(), strict=True)]
            artifacts[path] = JsonEvaluationArtifact(uri=_uri(client, run_id, path), content=content)
        picture = Path(temporary) / "explanations.png"
        figure(case, found, rows).savefig(picture)
        client.log_artifact(run_id, str(picture), PREFIX)
        path = f"{PREFIX}/{picture.name}"
        image = ImageEvaluationArtifact(uri=_uri(client, run_id, path))
        image._load(str(picture))
        artifacts[path] = image
    client.log_dict(run_id, config.model_dump(mode="json"), f"{PREFIX}/config.json")
    return EvaluationResult(metrics=metrics, artifacts=artifacts, run_id=run_id)


def _importance_table(case: Case, found: list[Explained]) -> dict[str, list[Any]]:
    names = _group_names(case)
    shown = [one for one in found if one.importance is not None]
    return {
        "method": [one.method for one in shown for _ in names],
        "group": names * len(shown),
        "mean_absolute_importance": [float(value) for one in shown for value in one.importance],  # type: ignore[union-attr]
    }


def _group_names(case: Case) -> list[str]:
    names = case.bench.masker.groups.names
    return [name.split("[")[0] for name in names] if case.table or case.kind == "regressor" else list(names)


def figure(case: Case, found: list[Explained], rows: list[dict[str, Any]]) -> Figure:
    """Left: how important each group is to each method, as a share; right: the scores in [0, 1] with intervals."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    shown = [one for one in found if one.importance is not None]
    share = np.stack([one.importance / max(one.importance.sum(), 1e-300) for one in shown])  # type: ignore[operator]
    top = np.sort(np.argsort(-share.mean(axis=0), kind="stable")[:SHOWN])
    names = [_group_names(case)[i] for i in top]
    drawn = Figure(figsize=(13, 2.2 + 0.24 * max(len(top), 12)), dpi=100, layout="constrained")
    FigureCanvasAgg(drawn)
    left, right = drawn.subplots(1, 2)
    image = left.imshow(share[:, top].T, aspect="auto", cmap="cividis", vmin=0)
    left.set_xticks(range(len(shown)), [one.method for one in shown], rotation=30, ha="right")
    left.set_yticks(range(len(top)), names, fontsize=8)
    left.set_title(
        "share of importance" + (f", {SHOWN} largest of {share.shape[1]} groups" if len(top) < share.shape[1] else "")
    )
    drawn.colorbar(image, ax=left)
    scores = sorted({row["score"] for row in rows if row["kind"] == "value"})
    for offset, one in enumerate(shown):
        mine = {row["score"]: row for row in rows if row["method"] == one.method and row["kind"] == "value"}
        at = [i for i, name in enumerate(scores) if name in mine]
        mean = np.array([mine[scores[i]]["mean"] for i in at])
        low, high = (
            np.array([mine[scores[i]][end] if mine[scores[i]][end] is not None else m for i, m in zip(at, mean)])
            for end in ("low", "high")
        )
        place = np.array(at) + 0.8 * (offset + 0.5) / len(shown) - 0.4
        right.errorbar(mean, place, xerr=[mean - low, high - mean], fmt="o", markersize=4, label=one.method)
    right.set_yticks(range(len(scores)), scores)
    right.set_xlim(-0.03, 1.03)
    right.set_title("scores in [0, 1], mean and 95 % interval")
    right.grid(axis="x", alpha=0.3)
    right.legend(fontsize=8)
    return drawn


def _uri(client: Any, run_id: str, path: str) -> str:
    return f"{client.get_run(run_id).info.artifact_uri}/{path}"


def _reasons(found: list[Explained]) -> str:
    return "; ".join(gap.reason for one in found for gap in one.skipped.values()) or "no method applies"
