"""Fairwashing: the rows of Table 2 (paper 004, section 4.1), and a forecaster that detects masked windows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from explainbench.core.arrays import Ints
from explainbench.core.cell import Cell, stream, stream_key
from explainbench.core.errors import BadInput
from explainbench.core.grid import GridCell
from explainbench.core.params import Params
from explainbench.core.provenance import sha256_json
from explainbench.core.record import CellSpec
from explainbench.core.workspace import Workspace
from explainbench.data._attack_table import AttackTable
from explainbench.data._axe_generated import load_and_weather
from explainbench.data._axe_tables import attack_files_of, load_attack_table, sha256_arrays
from explainbench.metrics._top_n import preset
from explainbench.models._fairwashing import FairwashedClassifier, fool_lime, fool_shap
from explainbench.stages._axe_params import AxeParams, FairwashingParams, ForecastParams, axe_params
from explainbench.stages._axe_parts import SCORES, awaits, dataset_sha256, outcome_of, spec_of
from explainbench.stages._axe_scores import forecast_question, judge_attack, judge_ranking
from explainbench.stages.suite import Outcome
from explainbench.store import Rows

TABLE2, ATTACKED = "table2_", "forecast_attack"
SINGLE = {"title": "one feature at a time", "category": "attribution", "deterministic": True, "vector": "nonnegative"}


@dataclass(frozen=True, slots=True)
class Table2:
    """One cell per row of Table 2: an attack on LIME or SHAP with one foil or two, section 4.1."""

    def owns(self, params: Params, cell: Cell) -> bool:
        """Whether the task is a table of Table 2."""
        return cell.task.startswith(TABLE2)

    def grid(self, workspace: Workspace, params: Params) -> Iterator[GridCell]:
        """German Credit has one foil, every other table two."""
        block = axe_params(params)
        for table in block.fairwashing.tables if block.fairwashing else ():
            pending = awaits(workspace, block, attack_files_of(table))
            for foils in ("1foil",) if table == "german" else ("1foil", "2foils"):
                for fooled in ("lime", "shap"):
                    cell = Cell("axe", f"{TABLE2}{table}", f"{fooled}_{foils}", "single_feature")
                    yield GridCell(cell, False, None, pending)

    def spec(self, workspace: Workspace, params: Params, cell: Cell) -> CellSpec:
        """Table, attack and presets."""
        block, part = axe_params(params), _fairwashing(params)
        table = _attack_table(workspace, block, cell, params.seed)
        arrays = (table.train, table.test, table.train_labels, table.test_labels)
        digest = sha256_arrays(*arrays, names=table.names)
        files = attack_files_of(cell.task.removeprefix(TABLE2))
        card = {"model": f"fairwashed classifier {cell.model}", "fitted_on": digest, "seed": params.seed}
        presets = {prefix: asdict(preset(name)) for prefix, name in part.presets.items()}
        return spec_of(
            params,
            cell,
            runs=1,
            parameters={
                "task": {"table": cell.task, "orders": part.orders, "draws": part.draws},
                "presets": presets,
                "metrics": {prefix: {} for prefix in part.presets},
            },
            dataset=cell.task.removeprefix(TABLE2),
            dataset_sha256=dataset_sha256(table.title, files, digest),
            windows_sha256=sha256_arrays(table.test),
            model_card=card,
            weights_sha256=sha256_json(card),
            weights_source="trained",
            method_card=SINGLE,
            modules=[SCORES, "explainbench.data._axe_tables"],
            libraries=set(),
        )

    def score(self, workspace: Workspace, params: Params, cell: Cell) -> Outcome:
        """Train the attack, and judge what every metric makes of it."""
        block, part = axe_params(params), _fairwashing(params)
        table = _attack_table(workspace, block, cell, params.seed)
        foils = 2 if cell.model.endswith("2foils") else 1
        model = _attack(table, cell.model.startswith("lime"), foils, cell.rng(params.seed, "attack"))
        judged = judge_attack(
            *(cell, params.seed, model, table.test, table.names, table.protected, table.foils, foils),
            *({prefix: preset(name) for prefix, name in part.presets.items()}, part.draws, part.orders),
        )
        strata = np.array([f"class {label}" for label in judged.arrays["output"].astype(int)])
        seeds = {"attack": list(stream_key(str(cell), "attack", 0))}
        return outcome_of(cell, params.seed, judged, Rows(np.arange(len(table.test)), strata), table.names, seeds)


def _attack(table: AttackTable, lime: bool, foils: int, rng: np.random.Generator) -> FairwashedClassifier:
    def innocuous(rows: Any) -> Ints:
        return table.innocuous(rows, foils)

    if lime:
        return fool_lime(table.train, table.categorical, table.biased, innocuous, rng)
    return fool_shap(table.train, table.biased, innocuous, rng)


@dataclass(frozen=True, slots=True)
class ForecastAttack:
    """An honest and a fairwashed forecaster, each with the true ranking, the foil's, and a random one."""

    def owns(self, params: Params, cell: Cell) -> bool:
        """Whether this is the task of the forecasting version."""
        return cell.task == ATTACKED

    def grid(self, workspace: Workspace, params: Params) -> Iterator[GridCell]:
        """Two forecasters, two planted rankings and the random one."""
        if axe_params(params).forecast is not None:
            for model in ("honest", "fairwashed"):
                for ranking in ("driver", "foil", "random"):
                    yield GridCell(Cell("axe", ATTACKED, model, ranking), ranking == "random")

    def spec(self, workspace: Workspace, params: Params, cell: Cell) -> CellSpec:
        """Series, windows and attack follow from the seed."""
        part = _forecast(params)
        stamps, values = _series(params.seed)
        digest = sha256_arrays(stamps.astype(np.int64), values)
        card = {"model": cell.model, "trees": part.trees, "training": part.training, "fitted_on": digest}
        category = "baseline" if cell.method == "random" else "attribution"
        return spec_of(
            params,
            cell,
            runs=1,
            parameters={
                "task": {"windows": part.windows},
                "metrics": {"faithfulness": {}, "axe_regression": {}, "prediction_gap": {}},
            },
            dataset="load_and_weather",
            dataset_sha256=digest,
            windows_sha256=sha256_json({"series": digest, "windows": part.windows, "training": part.training}),
            model_card=card,
            weights_sha256=sha256_json(card),
            weights_source="trained",
            method_card={**SINGLE, "title": f"planted ranking: {cell.method}", "category": category},
            modules=[SCORES, "explainbench.data._axe_generated"],
            libraries=set(),
        )

    def score(self, workspace: Workspace, params: Params, cell: Cell) -> Outcome:
        """Judge a planted ranking of the groups."""
        part = _forecast(params)
        question = forecast_question(*_series(params.seed), part.training, part.windows, part.trees, params.seed)
        judged = judge_ranking(cell, params.seed, question)
        return outcome_of(cell, params.seed, judged, question.windows, question.masker.groups.names, {})


@lru_cache(maxsize=4)
def _loaded_attack(name: str, folder: Path, rows: int, seed: int) -> AttackTable:
    return load_attack_table(name, folder, rows, seed)


def _attack_table(workspace: Workspace, block: AxeParams, cell: Cell, seed: int) -> AttackTable:
    return _loaded_attack(cell.task.removeprefix(TABLE2), workspace.root / block.folder, block.rows, seed)


@lru_cache(maxsize=1)
def _series(seed: int) -> tuple[Any, Any]:
    return load_and_weather(stream(seed, "axe", "load_and_weather"), 120)


def _fairwashing(params: Params) -> FairwashingParams:
    part = axe_params(params).fairwashing
    if part is None:
        raise BadInput("params.yaml has no block suites.axe.fairwashing.")
    return part


def _forecast(params: Params) -> ForecastParams:
    part = axe_params(params).forecast
    if part is None:
        raise BadInput("params.yaml has no block suites.axe.forecast.")
    return part
