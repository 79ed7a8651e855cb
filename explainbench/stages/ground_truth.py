"""The ground-truth suite: explanations against the columns that made each row's label (paper 002).

Tables with known rules, planted forecasters, and the energy cells against the simulator's drivers.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from explainbench.core.cell import Cell, CellResult, stream_key
from explainbench.core.grid import GridCell
from explainbench.core.params import Params
from explainbench.core.provenance import sha256_json, source_identity, versions
from explainbench.core.record import CellName, CellSpec
from explainbench.core.tabular import TABULAR_METHODS, TABULAR_MODELS
from explainbench.core.workspace import Workspace
from explainbench.data._ground_truth import COLUMNS
from explainbench.stages._ground_truth_forecasts import Drivers, PlantedForecasters
from explainbench.stages._ground_truth_params import GroundTruthParams, ground_truth_params
from explainbench.stages._ground_truth_scores import Question, Rules, judge
from explainbench.stages.ground_truth_data import Split, card_of, load_split
from explainbench.stages.suite import Composed, Outcome, Part, Suite
from explainbench.store import Rows

ORACLE = "oracle"  # the ground truth itself, as an explanation
ORACLE_CARD = {
    "title": "Ground truth", "category": "baseline", "source": "control (ours)", "deterministic": True,
    "vector": "nonnegative",
}  # fmt: skip
WEIGHT = {"search": 4, "sampling": 3, "gradient": 2, "forward": 1, "free": 0}
OFFERS = {"HasLayers": lambda card: card.input_differentiable, "HasTrees": lambda card: card.trees}


@dataclass(frozen=True, slots=True)
class Datasets:
    """datasets x models x (methods + baselines); models are fitted again from their seed where they are needed."""

    def owns(self, params: Params, cell: Cell) -> bool:
        """Whether the task is a dataset of the block."""
        return cell.task in ground_truth_params(params).datasets

    def grid(self, workspace: Workspace, params: Params) -> tuple[GridCell, ...]:
        """Every pair but those whose method needs what the model does not offer."""
        block = ground_truth_params(params)
        return tuple(
            GridCell(Cell("ground_truth", dataset, model, method), method in block.baselines, _obstacle(model, method))
            for dataset in block.datasets
            for model in block.models
            for method in (*block.methods, *block.baselines)
        )

    def spec(self, workspace: Workspace, params: Params, cell: Cell) -> CellSpec:
        """Dataset, explained rows, model, method and rules. Raises BadInput before the datasets are generated."""
        block, card = ground_truth_params(params), card_of(workspace, cell.task)
        model_card = TABULAR_MODELS.card(cell.model)
        model = {
            "card": asdict(model_card),
            "options": asdict(TABULAR_MODELS.build(cell.model, block.options.get(cell.model))),  # type: ignore[call-overload]
            "seed": params.seed,
            "fitted_on": card["sha256"],
            "split": card["inputs_sha256"],
        }
        method_card: dict[str, Any] = ORACLE_CARD
        modules, libraries, options = [], set(model_card.libraries), {}
        if cell.method != ORACLE:
            declared = TABULAR_METHODS.card(cell.method)
            method_card, libraries = asdict(declared), libraries | set(declared.libraries)
            modules.append(TABULAR_METHODS.module(cell.method))
            options = asdict(TABULAR_METHODS.build(cell.method, block.options.get(cell.method)))  # type: ignore[call-overload]
        rules = asdict(_rules(block))
        return CellSpec(
            protocol=params.protocol,
            cell=CellName(**asdict(cell)),
            seed=params.seed,
            runs=_runs(block, cell.method),
            parameters={
                "task": {"dataset": cell.task, "explained": block.explained},
                "rules": {**rules, "weights": list(rules["weights"])},
                "method": options,
                "metrics": {"xfa_text": {}, "xfa_code_v1": {}, "xfa_v2": {}, "ops": {}, "overall": {}, "model": {}},
            },
            dataset=cell.task,
            dataset_sha256=card["sha256"],
            windows_sha256=sha256_json({"dataset": card["sha256"], "rows": card["explained_rows"]}),
            model_card_sha256=sha256_json(_jsonable(model)),
            weights_sha256=sha256_json({**_jsonable(model), "weights": "fitted again from this seed"}),
            weights_source="trained",
            method_card=_jsonable(method_card),
            sources=source_identity(
                [
                    "explainbench.stages._ground_truth_scores",
                    "explainbench.data._ground_truth",
                    TABULAR_MODELS.module(cell.model),
                    *modules,
                ]
            ),
            libraries=versions({"numpy", "scipy", "scikit-learn", *libraries}),
        )

    def score(self, workspace: Workspace, params: Params, cell: Cell) -> Outcome:
        """Fit the model, explain the rows, score them."""
        block = ground_truth_params(params)
        part, question = _question(workspace, params, cell.task, cell.model)
        method = None if cell.method == ORACLE else TABULAR_METHODS.build(cell.method, block.options.get(cell.method))
        judged = judge(cell, params.seed, question, method, _runs(block, cell.method), _rules(block))
        strata = [f"RR{number}" for number in part.data.rule[part.explained]]
        runs = range(_runs(block, cell.method))
        seeds = {
            "seed": params.seed,
            "streams": {f"explain/{run}": list(stream_key(str(cell), "explain", run)) for run in runs},
            "rule": "numpy SeedSequence(seed, spawn_key = SHA-256 words of the names joined by unit separators)",
        }
        return Outcome(
            CellResult(cell, judged.scores, {}),
            Rows(part.explained, _text(strata)),
            judged.arrays,
            seeds,
            tuple(f"x{c + 1}" for c in range(COLUMNS)),
            judged.counters,
            model_seconds=judged.model_seconds,
        )


PARTS: tuple[Part, ...] = (Datasets(), PlantedForecasters(), Drivers())


def _place(params: Params, cell: Cell) -> tuple[int, str, int, str]:
    """Grouped by (dataset, model), so that a model is fitted once; the expensive methods first."""
    datasets = ground_truth_params(params).datasets
    if cell.task not in datasets:  # a forecast: stored explanations, or a planted forecaster, which costs nothing
        return len(datasets), cell.model, 0, cell.method
    return datasets.index(cell.task), cell.model, -_cost(cell.method), cell.method


SUITE: Suite = Composed(PARTS, _place)


def _obstacle(model: str, method: str) -> str | None:
    if method == ORACLE:
        return None
    for need in TABULAR_METHODS.card(method).needs:
        if not OFFERS[need](TABULAR_MODELS.card(model)):
            return f"{method} needs {need}, which {model} does not offer"
    return None


def _cost(method: str) -> int:
    return 0 if method == ORACLE else WEIGHT[TABULAR_METHODS.card(method).cost]


def _runs(block: GroundTruthParams, method: str) -> int:
    return 1 if method == ORACLE or TABULAR_METHODS.card(method).deterministic else block.runs


def _rules(block: GroundTruthParams) -> Rules:
    return Rules(block.naming, block.top, block.overall.variant, block.overall.weights, block.overall.axis)


@lru_cache(maxsize=1)  # a worker stays on a (dataset, model)
def _fitted(workspace: Workspace, settings: str, dataset: str, model: str) -> tuple[Split, Question]:
    params = Params.model_validate_json(settings)
    part = load_split(workspace, params, dataset)
    fitted = part.fit(model, ground_truth_params(params).options.get(model), params.seed)
    data, rows = part.data, part.explained
    return part, Question(data.x[rows], data.y[rows], data.truth[rows], part.background, fitted, part.auc(fitted))


def _question(workspace: Workspace, params: Params, dataset: str, model: str) -> tuple[Split, Question]:
    return _fitted(workspace, params.model_dump_json(), dataset, model)


def _text(strata: list[str]) -> Any:
    import numpy as np

    return np.array(strata)


def _jsonable(value: Any) -> Any:
    """Tuples as lists, as JSON has them."""
    if isinstance(value, dict):
        return {key: _jsonable(item) for key, item in value.items()}
    return [_jsonable(item) for item in value] if isinstance(value, (list, tuple)) else value
