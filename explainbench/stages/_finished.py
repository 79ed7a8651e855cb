"""What the checks say from finished cells alone: no model and no method is called here."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, astuple, dataclass, replace
from functools import cache
from itertools import combinations, product
from typing import Any

import numpy as np

from explainbench.analysis.ablation import component_shares, weight_sensitivity
from explainbench.analysis.aliases import alias_classes
from explainbench.analysis.board import Entry
from explainbench.analysis.boards import check_entries, scores_from_columns
from explainbench.analysis.comparisons import cliffs_delta_interval, holm, independent_groups, unpaired
from explainbench.analysis.composites import Parts
from explainbench.analysis.intervals import resample_indices
from explainbench.analysis.normalise import SHIPPED, Bounds, load_bounds
from explainbench.analysis.sanity import (
    baseline_places,
    disagreement,
    effective_metrics,
    estimate,
    preference,
    regime_interaction,
)
from explainbench.analysis.suitability import suitability, with_measurements
from explainbench.core.arrays import Floats, Texts
from explainbench.core.cell import Cell, stream
from explainbench.core.errors import BadInput, NotApplicable, Pending
from explainbench.core.files import read_json
from explainbench.core.params import Params, StatisticsParams
from explainbench.core.registry import METHODS, METRICS
from explainbench.core.workspace import Workspace
from explainbench.store import CellStore, StoredCell

COMPONENTS = {  # composites of more than one component, and what these are; DSS has equal weights
    "EQI": ("faithfulness", "fidelity"),
    "EDTS": ("actionability", "uncertainty_awareness"),
    "EEI": ("efficiency", "deployment_suitability"),
    "DSS": ("hardware", "memory", "latency", "energy", "privacy"),
}
JUDGED = ("faithfulness_skill", "stability", "fidelity")  # per-window scores on which baselines and regimes are shown
DEFINED = 0.9  # share of windows on which a method has a score, below which it is left out of a comparison
RESAMPLES = 2_000  # of correlations between metrics, and of differences between regimes


@dataclass(frozen=True, slots=True, eq=False)
class Finished:
    """A finished cell as the checks see it.

    entry: as boards see it; regime: (n,) of its windows; importance: e (n, g), read when asked for.
    """

    entry: Entry
    regime: Texts
    importance: Callable[[], Floats]
    signed: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """The finished cells of the energy suite, in the order of their names, and results/profile.json, if it is there."""

    cells: Mapping[Cell, Finished]
    profile: Mapping[str, Any] | None = None

    def ranked(self, task: str, model: str) -> list[Finished]:
        """The cells of one (task, model) that are no baselines."""
        here = (each for cell, each in self.cells.items() if (cell.task, cell.model) == (task, model))
        return [each for each in here if not each.entry.baseline]

    def groups(self) -> list[tuple[str, str]]:
        """The (task, model) pairs that have cells."""
        return sorted({(cell.task, cell.model) for cell in self.cells})

    def tasks(self) -> list[str]:
        """The tasks that have cells."""
        return sorted({cell.task for cell in self.cells})

    def only(self, models: Collection[str]) -> Grid:
        """The cells of some models. Raises BadInput for a model without one."""
        there = sorted({cell.model for cell in self.cells})
        for name in sorted(models):
            if name not in there:
                raise BadInput(f"{name!r} is no model with finished cells; there are {', '.join(there)}.")
        kept = {cell: each for cell, each in self.cells.items() if cell.model in models}
        check_entries(each.entry for each in kept.values())
        return replace(self, cells=kept)


def read_cells(workspace: Workspace, params: Params) -> Grid:
    """The finished energy cells with what the profile measured joined.

    Raises BadInput: no cells, one cell twice, or two protocol versions in one store, with the list.
    """
    path = workspace.results / "profile.json"
    profile = read_json(path) if path.is_file() else None
    found = [_finished(stored) for stored in CellStore(workspace.cells) if stored.cell.suite == "energy"]
    order = check_entries(each.entry for each in found)
    by_cell = {each.entry.cell: each for each in found}
    reference = params.profile.reference_seconds
    joined = [with_measurements(entry, profile, reference, params.contexts) for entry in order]
    return Grid({entry.cell: replace(by_cell[entry.cell], entry=entry) for entry in joined}, profile)


def _finished(stored: StoredCell) -> Finished:
    table = stored.scores()
    columns = {key: table.column(key).to_pylist() for key in table.column_names}
    windows, scores, skipped = scores_from_columns(columns)
    regime = dict(zip(columns["window"], columns["regime"], strict=True))
    card = stored.record.spec.method_card
    entry = Entry(
        cell=stored.cell,
        cell_id=stored.record.cell_id,
        record_digest=stored.digest,
        protocol=stored.record.spec.protocol,
        windows=windows,
        scores=scores,
        skipped=skipped,
        baseline=card.get("category") == "baseline",
        deterministic=bool(card.get("deterministic")),
        weights_source=stored.record.spec.weights_source,
    )
    return Finished(
        entry,
        np.array([regime[window] for window in range(len(windows))]),
        lambda: stored.explanations()["importance"],
        card.get("vector") == "signed",
    )


def weights(grid: Grid, params: Params) -> list[dict[str, Any]]:
    """Composite weights over their simplex, and each component left out, per task and composite."""
    rows = []
    for task in grid.tasks():
        for composite, names in COMPONENTS.items():
            row: dict[str, Any] = {
                "task": task, "composite": composite, "components": list(names), "entries": 0, "points": [],
                "lowest_tau": None, "shares": [], "reason": "",
            }  # fmt: skip
            values, row["cells"], missing = _components(grid, params, task, composite)
            row["entries"] = len(values)
            default = np.array([getattr(params.statistics.weights, name, 1 / len(names)) for name in names])
            row["default"] = default.tolist()
            try:
                points = weight_sensitivity(values, default, 0.1 if len(names) == 2 else 0.25)
                row["points"] = [{"weights": list(point.weights), "tau": point.tau} for point in points]
                row["lowest_tau"] = min((point.tau for point in points if point.tau is not None), default=None)
                row["shares"] = [asdict(share) for share in component_shares(values, default, names)]
            except NotApplicable as gap:
                row["reason"] = gap.reason if len(values) else missing or gap.reason
            rows.append(row)
    return rows


def _components(grid: Grid, params: Params, task: str, composite: str) -> tuple[Floats, list[str], str]:
    """Mean components (m, k) of the ranked cells that have all of them, the cells, and why the first other has not.

    Cells that agree in all components to 1e-12 count once: a score that cannot depend on the method is one entry.
    """
    means: dict[tuple[float, ...], str] = {}
    reason = ""
    for model in [model for where, model in grid.groups() if where == task]:
        for entry in (each.entry for each in grid.ranked(task, model)):
            try:
                row = _suitability(grid, params, entry) if composite == "DSS" else _parts(params, entry, composite)
            except NotApplicable as gap:
                reason = reason or gap.reason
                continue
            if np.isfinite(row).all():
                means.setdefault(tuple(round(value, 12) for value in row), str(entry.cell))
    return np.array(list(means)).reshape(-1, len(COMPONENTS[composite])), list(means.values()), reason


def _parts(params: Params, entry: Entry, composite: str) -> list[float]:
    """Means over windows of a composite's components, NaN for one without a defined window. Raises NotApplicable."""
    parts = Parts(entry.cell.task, entry.scores, entry.skipped, _bounds(params.protocol), params.statistics.weights)
    found = [parts.faithfulness()[0] if name == "faithfulness" else parts.value(name) for name in COMPONENTS[composite]]
    return [float(values[np.isfinite(values)].mean()) if np.isfinite(values).any() else np.nan for values in found]


def _suitability(grid: Grid, params: Params, entry: Entry) -> list[float]:
    """The five terms of Deployment Suitability in the reference context. Raises Pending."""
    measured = None if grid.profile is None else grid.profile["cells"].get(str(entry.cell))
    if measured is None or not params.contexts:
        raise Pending("not profiled yet, or params.yaml names no deployment context")
    return list(astuple(suitability(measured, METHODS.card(entry.cell.method), params.contexts[0])))


def baselines(grid: Grid, params: Params) -> list[dict[str, Any]]:
    """Where random, recency, seasonal-lag and oracle rankings stand among the methods of each model.

    Holm is over the comparisons of all models and baselines of a (task, metric).
    """
    families: dict[tuple[str, str], list[tuple[dict[str, Any], Floats, dict[str, Floats]]]] = {}
    for task, model, metric in _judged(grid):
        methods = {each.entry.cell.method: scores_of(each.entry, metric) for each in grid.ranked(task, model)}
        methods = {name: scores for name, scores in methods.items() if len(scores)}
        for cell, each in grid.cells.items():
            scores = scores_of(each.entry, metric)
            if each.entry.baseline and (cell.task, cell.model) == (task, model) and len(scores):
                row: dict[str, Any] = {"task": task, "model": model, "metric": metric, "baseline": cell.method}
                families.setdefault((task, metric), []).append((row, scores, methods))
    for family in families.values():
        places = baseline_places([(scores, methods) for _, scores, methods in family], params.statistics.alpha)
        for (row, scores, _), place in zip(family, places, strict=True):
            try:
                found = interval(scores, params)
                if place is None:
                    raise NotApplicable("no method shares two windows with the baseline")
                row |= found | asdict(place) | {"reason": ""}
            except NotApplicable as gap:
                row |= {"value": None, "low": None, "high": None, "place": None, "reason": gap.reason}
    rows = [row for family in families.values() for row, _, _ in family]
    return sorted(rows, key=lambda row: (row["task"], row["model"]))


def diagnosticity(grid: Grid, params: Params) -> list[dict[str, Any]]:
    """Per task and metric: how often a cell beats the random ranking on the same window (Chan et al. 2022).

    Windows are the units: each window's share of wins over all ranked cells, ties half.
    """
    rows = []
    for task in grid.tasks():
        for metric in params.suites.energy.metrics:
            card = METRICS.card(metric)
            row: dict[str, Any] = {"task": task, "metric": metric, "value": None, "low": None, "high": None, "n": 0}
            if card.level != "cell":
                rows.append(row | {"reason": f"a property of the {card.level}: it never looks at an explanation"})
                continue
            wins = []
            for model in [model for where, model in grid.groups() if where == task]:
                control = grid.cells.get(Cell("energy", task, model, "random"))
                if control is None:
                    continue
                there = scores_of(control.entry, metric)
                for each in grid.ranked(task, model):
                    here = scores_of(each.entry, metric)
                    if len(here) and len(here) == len(there):
                        won = preference(here, there)
                        wins.append(won if card.higher_is_better else 1 - won)
            try:
                if not wins:
                    raise NotApplicable("no cell and no random ranking have both been scored on it")
                table = np.array(wins)
                known = np.isfinite(table)
                share = np.where(known, table, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
                row |= interval(np.where(known.any(axis=0), share, np.nan), params) | {"cells": len(wins), "reason": ""}
            except NotApplicable as gap:
                row["reason"] = gap.reason
            rows.append(row)
    return rows


def metric_disagreement(grid: Grid, params: Params) -> list[dict[str, Any]]:
    """Rank correlation between metrics over the ranked cells of each task, and how many metrics that amounts to."""
    rows = []
    for task in grid.tasks():
        ranked = [
            each.entry for each in grid.cells.values() if each.entry.cell.task == task and not each.entry.baseline
        ]
        names = ["faithfulness_skill", *params.suites.energy.metrics]
        table = {}
        for name in names:
            means = np.array([_mean(entry, name) for entry in ranked])
            if np.isfinite(means).sum() >= 4 and np.ptp(means[np.isfinite(means)]) > 0:
                table[name] = means
        if len(table) < 2:
            rows.append({"task": task, "metrics": list(table), "pairs": [], "effective": None, "cells": len(ranked)})
            continue
        draw = cache(lambda n: resample_indices(n, RESAMPLES, stream(params.seed, "checks", "cells", n)))
        complete = {name: values for name, values in table.items() if np.isfinite(values).mean() > 0.9}
        rows.append(
            {
                "task": task,
                "cells": len(ranked),
                "metrics": list(table),
                "pairs": disagreement(table, draw, params.statistics.confidence),
                "effective": effective_metrics(complete),
                "effective_of": list(complete),
            }
        )
    return rows


def regimes(grid: Grid, params: Params) -> list[dict[str, Any]]:
    """Scores per regime of each model's methods, with an interaction test, Holm over the models of (task, metric).

    level: whether regimes differ in the windows' mean score: the test of three or more by the branch that its gate
    took, and Cliff's delta with its interval and Mann-Whitney's p for each pair of them. Every p is corrected by Holm
    over the models of (task, metric), those of pairs over the pairs of all models.
    """
    rows: list[dict[str, Any]] = []
    for task, model, metric in _judged(grid):
        row: dict[str, Any] = {"task": task, "model": model, "metric": metric, "p": None, "p_holm": None, "reason": ""}
        ranked = grid.ranked(task, model)
        scores = {each.entry.cell.method: scores_of(each.entry, metric) for each in ranked}
        scores = {k: values for k, values in scores.items() if len(values) and np.isfinite(values).mean() >= DEFINED}
        try:
            if not scores:
                raise NotApplicable("no method has a score on enough windows")
            regime = ranked[0].regime
            defined = np.all([np.isfinite(values) for values in scores.values()], axis=0)
            kept = {name: values[defined] for name, values in scores.items()}
            rng = stream(params.seed, "checks", "regimes", task, model, metric)
            found = regime_interaction(kept, regime[defined], rng)
            row |= {"methods": found.means, "statistic": found.statistic, "p": found.p, "n": found.n}
            whole = np.mean(list(kept.values()), axis=0)
            groups = {kind: whole[regime[defined] == kind] for kind in sorted(found.n)}
            rng = stream(params.seed, "checks", "levels", task, model, metric)
            row["level"] = _level(groups, params.statistics, rng) if len(groups) >= 3 else None
        except NotApplicable as gap:
            row["reason"] = gap.reason
        rows.append(row)
    for task, metric in product(grid.tasks(), JUDGED):
        tested = [row for row in rows if (row["task"], row["metric"]) == (task, metric) and row["p"] is not None]
        levels = [row["level"] for row in tested if row["level"] is not None]
        for family in (tested, levels, [pair for level in levels for pair in level["pairs"]]):
            for each, p in zip(family, holm(np.array([each["p"] for each in family])), strict=True):
                each["p_holm"] = float(p)
    return rows


def _level(groups: Mapping[str, Floats], statistics: StatisticsParams, rng: np.random.Generator) -> dict[str, Any]:
    """Three or more regimes, each the mean score of its windows, as a whole and two by two."""
    whole = independent_groups(groups, statistics.alpha)
    pairs = []
    for one, other in combinations(groups, 2):
        test = unpaired(groups[one], groups[other])
        low, high = cliffs_delta_interval(groups[one], groups[other], RESAMPLES, rng, statistics.confidence)
        pairs.append({"one": one, "other": other, "delta": test.delta, "low": low, "high": high, "p": test.p})
    return {"branch": whole.branch, "why": whole.why, "p": whole.p, "pairs": pairs}


def aliases(grid: Grid) -> list[dict[str, Any]]:
    """Methods of one model that give the same explanation to 1e-6, measured on their stored explanations."""
    rows = []
    for task, model in grid.groups():
        exact = [each for each in grid.ranked(task, model) if each.entry.deterministic and each.signed]
        compared = {each.entry.cell.method: each.importance() for each in exact}
        classes = sorted(set(alias_classes(compared).values()))
        rows.append({"task": task, "model": model, "compared": sorted(compared), "classes": classes})
    return rows


def scores_of(entry: Entry, metric: str) -> Floats:
    """A metric's scores per window (n,): as a value in [0, 1] where it has one, else raw; empty where it has none."""
    score = entry.scores.get(metric)
    if score is None or len(score.raw) != len(entry.windows):
        return np.empty(0)
    return score.raw if score.value is None else score.value


def _judged(grid: Grid) -> Iterator[tuple[str, str, str]]:
    for task, model in grid.groups():
        for metric in JUDGED:
            if any(metric in each.entry.scores for each in grid.ranked(task, model)):
                yield task, model, metric


def _mean(entry: Entry, metric: str) -> float:
    score = entry.scores.get(metric)
    if score is None:
        return np.nan
    values = score.raw[np.isfinite(score.raw)]
    return float(values.mean()) if len(values) else np.nan


def interval(values: Floats, params: Params) -> dict[str, Any]:
    """The mean of the scores that are defined, with its interval, as plain values. Raises NotApplicable below two."""
    values = values[np.isfinite(values)]
    rng = stream(params.seed, "interval", len(values))
    indices = resample_indices(len(values), params.statistics.bootstrap, rng)
    return asdict(estimate(values, indices, params.statistics.confidence))


@cache
def _bounds(protocol: str) -> Bounds | None:
    return load_bounds(protocol) if (SHIPPED / f"{protocol}.json").is_file() else None
