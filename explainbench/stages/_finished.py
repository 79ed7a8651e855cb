"""What the checks say from finished cells alone: no model and no method is called here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from explainbench.analysis.ablation import component_shares, weight_sensitivity
from explainbench.analysis.aliases import alias_classes
from explainbench.analysis.boards import Entry, check_entries, scores_from_columns
from explainbench.analysis.comparisons import holm, independent_groups
from explainbench.analysis.composites import Parts, efficiency
from explainbench.analysis.intervals import resample_indices
from explainbench.analysis.normalise import SHIPPED, Bounds, load_bounds
from explainbench.analysis.sanity import (
    baseline_place,
    disagreement,
    effective_metrics,
    estimate,
    preference,
    regime_interaction,
)
from explainbench.core.arrays import Floats, Texts
from explainbench.core.cell import Cell, stream
from explainbench.core.errors import NotApplicable
from explainbench.core.files import read_json
from explainbench.core.params import Params
from explainbench.core.registry import METRICS
from explainbench.core.workspace import Workspace
from explainbench.store import CellStore, StoredCell

COMPONENTS = {  # composites of more than one component, and what these are
    "EQI": ("faithfulness", "fidelity"),
    "EDTS": ("actionability", "uncertainty_awareness"),
    "EEI": ("efficiency", "deployment_suitability"),
}
JUDGED = ("faithfulness_skill", "stability", "fidelity")  # per-window scores on which baselines and regimes are shown
RESAMPLES = 2_000  # of correlations between metrics


@dataclass(frozen=True, slots=True, eq=False)
class Stored:
    """Finished cells as the checks see them: the boards' entries by cell, and the stored cells they come from."""

    entries: Mapping[Cell, Entry]
    cells: Mapping[Cell, StoredCell]

    def ranked(self, task: str, model: str) -> list[Entry]:
        """The cells of one (task, model) that are no baselines, by name."""
        return [
            entry
            for cell, entry in self.entries.items()
            if (cell.task, cell.model) == (task, model) and not entry.baseline
        ]

    @property
    def tasks(self) -> list[str]:
        """The tasks that have cells."""
        return sorted({cell.task for cell in self.entries})

    def models(self, task: str) -> list[str]:
        """The models that have cells on a task."""
        return sorted({cell.model for cell in self.entries if cell.task == task})

    def importance(self, cell: Cell) -> Floats:
        """e (n, g) of a cell, from its explanations.npz."""
        return self.cells[cell].explanations()["importance"]

    def regime(self, cell: Cell) -> Texts:
        """Regimes (n,) of a cell's windows."""
        return self.cells[cell].explanations()["regime"]


def read_cells(workspace: Workspace, params: Params) -> Stored:
    """The finished energy cells with their latency joined. Raises BadInput: no cells, or two protocol versions."""
    cells = {stored.cell: stored for stored in CellStore(workspace.cells) if stored.cell.suite == "energy"}
    entries = check_entries(_entry(stored) for stored in cells.values())
    path = workspace.results / "profile.json"
    timed = read_json(path)["cells"] if path.is_file() else {}
    joined = [_with_latency(entry, timed, params.profile.reference_seconds) for entry in entries]
    return Stored({entry.cell: entry for entry in joined}, cells)


def _entry(stored: StoredCell) -> Entry:
    table = stored.scores()
    windows, scores, skipped = scores_from_columns({key: table.column(key).to_pylist() for key in table.column_names})
    card = stored.record.spec.method_card
    return Entry(
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


def _with_latency(entry: Entry, timed: Mapping[str, Any], reference_seconds: float) -> Entry:
    if str(entry.cell) not in timed:
        return entry
    score = efficiency(float(timed[str(entry.cell)]["median_seconds"]), reference_seconds)
    skipped = {key: gap for key, gap in entry.skipped.items() if key != "efficiency"}
    return replace(entry, scores={**entry.scores, "efficiency": score}, skipped=skipped)


def weights(stored: Stored, params: Params) -> list[dict[str, Any]]:
    """Composite weights over their simplex, and each component left out, per task and composite."""
    rows = []
    for task in stored.tasks:
        for composite, names in COMPONENTS.items():
            row: dict[str, Any] = {
                "task": task, "composite": composite, "components": list(names), "entries": 0, "points": [],
                "lowest_tau": None, "shares": [], "reason": "",
            }  # fmt: skip
            values, row["cells"], row["reason"] = _components(stored, params, task, names)
            row["entries"] = len(values)
            default = np.array([getattr(params.statistics.weights, name) for name in names])
            row["default"] = default.tolist()
            try:
                points = weight_sensitivity(values, default)
                row["points"] = [{"weights": list(point.weights), "tau": point.tau} for point in points]
                row["lowest_tau"] = min((point.tau for point in points if point.tau is not None), default=None)
                row["shares"] = [asdict(share) for share in component_shares(values, default, names)]
                row["reason"] = ""
            except NotApplicable as gap:
                row["reason"] = row["reason"] or gap.reason
            rows.append(row)
    return rows


def _components(stored: Stored, params: Params, task: str, names: tuple[str, ...]) -> tuple[Floats, list[str], str]:
    """Mean components (m, k) of the ranked cells that have all of them, the cells, and why the first other has not.

    Cells that agree in all components to 1e-12 count once: a score that cannot depend on the method is one entry.
    """
    bounds = _bounds(params.protocol)
    means: dict[tuple[float, ...], str] = {}
    reason = ""
    for model in stored.models(task):
        for entry in stored.ranked(task, model):
            parts = Parts(task, entry.scores, entry.skipped, bounds, params.statistics.weights)
            try:
                row = [parts.faithfulness()[0] if name == "faithfulness" else parts.value(name) for name in names]
            except NotApplicable as gap:
                reason = reason or gap.reason
                continue
            if all(np.isfinite(values).any() for values in row):
                means.setdefault(tuple(round(float(np.nanmean(values)), 12) for values in row), str(entry.cell))
    return np.array(list(means)).reshape(-1, len(names)), list(means.values()), reason


def baselines(stored: Stored, params: Params) -> list[dict[str, Any]]:
    """Where random, recency, seasonal-lag and oracle rankings stand among the methods of each model."""
    rows = []
    for task, model, metric in _judged(stored):
        methods = {entry.cell.method: scores_of(entry, metric) for entry in stored.ranked(task, model)}
        methods = {name: scores for name, scores in methods.items() if len(scores)}
        for cell, entry in stored.entries.items():
            scores = scores_of(entry, metric)
            if not entry.baseline or (cell.task, cell.model) != (task, model) or not len(scores):
                continue
            row: dict[str, Any] = {"task": task, "model": model, "metric": metric, "baseline": cell.method}
            try:
                row |= interval(scores, params)
                row |= asdict(baseline_place(scores, methods, params.statistics.alpha))
                row["reason"] = ""
            except NotApplicable as gap:
                row |= {"value": None, "low": None, "high": None, "place": None, "reason": gap.reason}
            rows.append(row)
    return rows


def diagnosticity(stored: Stored, params: Params) -> list[dict[str, Any]]:
    """Per task and metric: how often a cell beats the random ranking on the same window (Chan et al. 2022).

    Windows are the units: each window's share of wins over all ranked cells, ties half.
    """
    rows = []
    for task in stored.tasks:
        for metric in params.suites.energy.metrics:
            card = METRICS.card(metric)
            row: dict[str, Any] = {"task": task, "metric": metric, "value": None, "low": None, "high": None, "n": 0}
            if card.level != "cell":
                rows.append(row | {"reason": f"a property of the {card.level}: it never looks at an explanation"})
                continue
            wins = []
            for model in stored.models(task):
                control = stored.entries.get(Cell("energy", task, model, "random"))
                for entry in stored.ranked(task, model) if control else ():
                    here, there = (scores_of(each, metric) for each in (entry, control) if each)
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


def metric_disagreement(stored: Stored, params: Params) -> list[dict[str, Any]]:
    """Rank correlation between metrics over the ranked cells of each task, and how many metrics that amounts to."""
    rows = []
    for task in stored.tasks:
        ranked = [entry for cell, entry in stored.entries.items() if cell.task == task and not entry.baseline]
        names = sorted({name for entry in ranked for name in entry.scores})
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


def regimes(stored: Stored, params: Params) -> list[dict[str, Any]]:
    """Scores per regime of each model's methods, with an interaction test, Holm over the models of (task, metric).

    level: the test of three or more regimes on the window's mean score, by the branch that its gate took.
    """
    rows: list[dict[str, Any]] = []
    for task, model, metric in _judged(stored):
        entries = [entry for entry in stored.ranked(task, model) if len(scores_of(entry, metric))]
        row: dict[str, Any] = {"task": task, "model": model, "metric": metric, "p": None, "p_holm": None, "reason": ""}
        scores = {entry.cell.method: scores_of(entry, metric) for entry in entries}
        scores = {name: values for name, values in scores.items() if np.isfinite(values).mean() >= 0.9}
        try:
            if not scores:
                raise NotApplicable("no method has a score on enough windows")
            regime = stored.regime(entries[0].cell)
            defined = np.all([np.isfinite(values) for values in scores.values()], axis=0)
            kept = {name: values[defined] for name, values in scores.items()}
            rng = stream(params.seed, "checks", "regimes", task, model, metric)
            found = regime_interaction(kept, regime[defined], rng)
            row |= {"methods": found.means, "statistic": found.statistic, "p": found.p, "n": found.n}
            whole = np.mean(list(kept.values()), axis=0)
            kinds = sorted(found.n)
            row["level"] = None
            if len(kinds) >= 3:
                level = independent_groups({kind: whole[regime[defined] == kind] for kind in kinds})
                row["level"] = {"branch": level.branch, "why": level.why, "p": level.p}
        except NotApplicable as gap:
            row["reason"] = gap.reason
        rows.append(row)
    for task in stored.tasks:
        for metric in JUDGED:
            family = [row for row in rows if (row["task"], row["metric"]) == (task, metric) and row["p"] is not None]
            for row, p in zip(family, holm(np.array([row["p"] for row in family])), strict=True):
                row["p_holm"] = float(p)
    return rows


def aliases(stored: Stored) -> list[dict[str, Any]]:
    """Methods of one model that give the same explanation to 1e-6, measured on their stored explanations."""
    rows = []
    for task in stored.tasks:
        for model in stored.models(task):
            compared = {}
            for entry in stored.ranked(task, model):
                card = stored.cells[entry.cell].record.spec.method_card
                if card.get("deterministic") and card.get("vector") == "signed":
                    compared[entry.cell.method] = stored.importance(entry.cell)
            classes = sorted(set(alias_classes(compared).values()))
            rows.append({"task": task, "model": model, "compared": sorted(compared), "classes": classes})
    return rows


def scores_of(entry: Entry, metric: str) -> Floats:
    """A metric's scores per window (n,): as a value in [0, 1] where it has one, else raw; empty where it has none."""
    score = entry.scores.get(metric)
    if score is None or len(score.raw) != len(entry.windows):
        return np.empty(0)
    return score.raw if score.value is None else score.value


def _judged(stored: Stored) -> Iterator[tuple[str, str, str]]:
    for task in stored.tasks:
        for model in stored.models(task):
            for metric in JUDGED:
                if any(metric in entry.scores for entry in stored.ranked(task, model)):
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


def _bounds(protocol: str) -> Bounds | None:
    return load_bounds(protocol) if (SHIPPED / f"{protocol}.json").is_file() else None
