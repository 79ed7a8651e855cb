"""The forecasting counterpart of XFA: stored energy cells against the simulator's drivers, and planted forecasters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from numpy.typing import NDArray

from explainbench.core.arrays import Floats
from explainbench.core.cell import Cell, CellResult, Score, Skipped, stream_key
from explainbench.core.errors import BadInput, NotApplicable
from explainbench.core.grid import GridCell, energy_grid
from explainbench.core.masking import Groups, Masker
from explainbench.core.params import Params
from explainbench.core.provenance import sha256_json, source_identity, versions
from explainbench.core.record import CellName, CellSpec
from explainbench.core.registry import METHODS
from explainbench.core.windows import Windows
from explainbench.core.workspace import Workspace
from explainbench.stages._energy_cells import awaited, energy_cell, energy_folders, spec_about
from explainbench.stages._ground_truth_groups import judge_groups
from explainbench.stages._ground_truth_params import ForecastsParams, ground_truth_params
from explainbench.stages._planted import PLANTED, Planted, plant
from explainbench.stages.cell import options
from explainbench.stages.data import TaskData, load_task
from explainbench.stages.suite import Outcome

SUITE = "ground_truth"
PLANTED_TASK = "planted"
GROUPS = "explainbench.stages._ground_truth_groups"  # the module whose imports are the code on a cell's path
NUMERICAL = ("numpy", "scipy", "scikit-learn")
METRICS: Mapping[str, Any] = {"xfa_text": {}, "xfa_code_v1": {}, "xfa_v2": {}}
RULE = "numpy SeedSequence(seed, spawn_key = SHA-256 words of the names joined by unit separators)"


@dataclass(frozen=True, slots=True)
class Drivers:
    """One cell per stored energy cell: does its explanation name what the simulator says drove the target?

    Groups that the model does not see are no players, so this is recovery of the drivers among those it sees.
    """

    def owns(self, params: Params, cell: Cell) -> bool:
        """Whether the task is one of the energy suite's."""
        return cell.task in params.suites.energy.tasks

    def grid(self, workspace: Workspace, params: Params) -> Iterator[GridCell]:
        """Pending where the energy cell is not in the store; impossible where a dataset's drivers are not known."""
        if ground_truth_params(params).forecasts is None:
            return
        there = energy_folders(workspace)
        unknown = {task: _unknown(workspace, task) for task in sorted({cell.task for cell in there})}
        for entry in energy_grid(params.suites.energy):
            if entry.runnable:
                pending = awaited(entry.cell, there)
                obstacle = None if pending else unknown[entry.cell.task]
                yield GridCell(replace(entry.cell, suite=SUITE), entry.baseline, obstacle, pending)

    def spec(self, workspace: Workspace, params: Params, cell: Cell) -> CellSpec:
        """The energy cell's identity and what it produced. Raises BadInput where it is not in the store."""
        return spec_about(energy_cell(workspace, cell), params, cell, METRICS, GROUPS, NUMERICAL)

    def score(self, workspace: Workspace, params: Params, cell: Cell) -> Outcome:
        """Judge the stored explanation. Raises BadInput where the windows are not those it was made on."""
        energy = energy_cell(workspace, cell)
        windows = load_task(workspace, cell.task).windows
        if windows.truth is None or windows.digest() != energy.record.spec.windows_sha256:
            raise BadInput(f"{energy.cell} was made on other windows than {cell.task} has now; evaluate it again.")
        arrays = energy.explanations()
        shares = Groups(arrays["labels"], tuple(energy.record.groups)).total(windows.truth)
        return _outcome(cell, params, windows, tuple(energy.record.groups), arrays["importance"], shares, {})


@dataclass(frozen=True, slots=True)
class PlantedForecasters:
    """Forecasters known in closed form: here the ground truth is the model's own, its exact Shapley values."""

    def owns(self, params: Params, cell: Cell) -> bool:
        """Whether the task is theirs."""
        return cell.task == PLANTED_TASK

    def grid(self, workspace: Workspace, params: Params) -> Iterator[GridCell]:
        """Pending before the windows are cut; impossible where the dataset lacks a channel that one needs.

        Raises BadInput for an unknown method.
        """
        block = ground_truth_params(params).forecasts
        if block is None:
            return
        cut = (workspace.windows / f"{block.task}.json").is_file()
        pending = None if cut else f"the windows of {block.task} are not cut; run `explainbench data windows` first"
        for name in PLANTED:
            obstacle = _lacks(workspace, params, name) if cut else None
            for method in block.methods:
                baseline = METHODS.card(method).category == "baseline"
                yield GridCell(Cell(SUITE, PLANTED_TASK, name, method), baseline, obstacle, pending)

    def spec(self, workspace: Workspace, params: Params, cell: Cell) -> CellSpec:
        """Windows, rule of the forecaster, method. Raises BadInput."""
        block, data = _block(params), load_task(workspace, _block(params).task)
        card = METHODS.card(cell.method)
        rule = {"planted": cell.model, "task": params.suites.energy.tasks[block.task].model_dump(mode="json")}
        return CellSpec(
            protocol=params.protocol,
            cell=CellName(**asdict(cell)),
            seed=params.seed,
            runs=1,
            parameters={
                "task": rule["task"],
                "method": options(METHODS.build(cell.method, params.methods.get(cell.method))),
                "metrics": METRICS,
            },
            dataset=data.dataset,
            dataset_sha256=data.dataset_sha256,
            windows_sha256=data.windows.digest(),
            model_card_sha256=sha256_json(rule),
            weights_sha256=sha256_json({**rule, "weights": "none: a closed form"}),
            weights_source="planted",
            method_card=_plain(asdict(card)),
            sources=source_identity([GROUPS, "explainbench.stages._planted", METHODS.module(cell.method)]),
            libraries=versions({*NUMERICAL, "torch", *card.libraries}),
        )

    def score(self, workspace: Workspace, params: Params, cell: Cell) -> Outcome:
        """Explain the planted forecaster and compare with its Shapley values."""
        data, planted = _planted(workspace, params, cell.model)
        windows, groups, meter = data.windows, planted.masker.groups, planted.model.meter
        shares = planted.truth(windows)
        asked, gradients = meter.evaluations, meter.gradients
        entry = METHODS.build(cell.method, params.methods.get(cell.method))
        found = entry.explain(planted.model, windows, planted.masker, cell.rng(params.seed, "explain"))
        counters = ((meter.evaluations - asked) / len(windows), (meter.gradients - gradients) / len(windows))
        reduce = groups.total if METHODS.card(cell.method).vector == "signed" else groups.average
        streams = {"explain/0": list(stream_key(str(cell), "explain", 0))}
        return _outcome(
            *(cell, params, windows, groups.names, reduce(found.attribution), shares, streams), counters, meter.seconds
        )


def _outcome(
    cell: Cell, params: Params, windows: Windows, groups: tuple[str, ...], importance: Floats, shares: Floats,
    streams: Mapping[str, Any], counters: tuple[float, float] = (0.0, 0.0), model_seconds: float = 0.0,
) -> Outcome:  # fmt: skip
    scores: dict[str, Score] = {}
    skipped: dict[str, Skipped] = {}
    try:
        scores = judge_groups(importance, shares)
    except NotApplicable as reason:
        skipped = dict.fromkeys(METRICS, Skipped("not_applicable", reason.reason))
    arrays: dict[str, NDArray[Any]] = {"importance": importance, "truth": shares}
    return Outcome(
        CellResult(cell, scores, skipped),
        windows,
        arrays,
        {"seed": params.seed, "streams": dict(streams), "rule": RULE},
        groups,
        counters,
        model_seconds=model_seconds,
    )


def _unknown(workspace: Workspace, task: str) -> str | None:
    """Why a task's windows have no ground truth, if they have none."""
    data = load_task(workspace, task)
    return f"what drove the target is not known in {data.dataset}" if data.windows.truth is None else None


def _block(params: Params) -> ForecastsParams:
    block = ground_truth_params(params).forecasts
    if block is None:
        raise BadInput("params.yaml has no block suites.ground_truth.forecasts.")
    if block.task not in params.suites.energy.tasks:
        raise BadInput(f"params: suites.ground_truth.forecasts.task: {block.task} is no task of the energy suite.")
    return block


def _planted(workspace: Workspace, params: Params, name: str) -> tuple[TaskData, Planted]:
    block = _block(params)
    spec, data = params.suites.energy.tasks[block.task], load_task(workspace, block.task)
    channels = data.windows.channels
    groups = Groups.of(channels, spec.context, spec.segment, channels.observed)
    masker = Masker(groups, params.suites.energy.masker, data.climatology, target=channels.index(spec.target))
    return data, plant(name, masker, channels, spec)


def _lacks(workspace: Workspace, params: Params, name: str) -> str | None:
    try:
        _planted(workspace, params, name)
    except NotApplicable as reason:
        return reason.reason
    return None


def _plain(card: dict[str, Any]) -> dict[str, Any]:
    """Tuples as lists, as a record holds them."""
    return {key: list(value) if isinstance(value, tuple) else value for key, value in card.items()}
