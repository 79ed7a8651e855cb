"""Tables 11, 12, 12a and 13a of paper 000, filled from files; the paper's are lost, the columns are ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from explainbench.analysis.board import Entry
from explainbench.analysis.composites import TITLES, Name
from explainbench.analysis.reliability import COMPOSITES, MatrixRow
from explainbench.analysis.reliability import Entry as MatrixEntry
from explainbench.analysis.suitability import with_measurements
from explainbench.core.cell import Cell
from explainbench.core.record import CellRecord
from explainbench.report.source import SUITE, Reference, Source
from explainbench.report.svg import interval, number

# The nine components (section 5.1), with F_skill beside raw F: heading -> metric.
COMPONENTS = {
    "F": "faithfulness",
    "F_skill": "faithfulness_skill",
    "Fid": "fidelity",
    "S": "stability",
    "CC": "counterfactual_consistency",
    "Act": "actionability",
    "UA": "uncertainty_awareness",
    "h": "human_interpretability",
    "Eff": "efficiency",
    "DSS": "deployment_suitability",
}
PILOT_MODELS, PILOT_METHODS = ("lstm", "transformer"), ("shap", "integrated_gradients", "lime")
PILOT_COMPOSITES: tuple[Name, ...] = ("EQI", "ESS", "CCS", "HIR", "EEI")


@dataclass(frozen=True, slots=True)
class Figure:
    """A number as text, or the word for its absence; detail: its interval, or the reason why there is none."""

    text: str
    detail: str = ""
    known: bool = True
    value: float | None = None
    basis: str = ""


@dataclass(frozen=True, slots=True)
class ScoredRow:
    """A cell's row of Tables 12 and 13a, and of the matrix R."""

    model: str
    method: str
    reference: Reference | None
    composites: tuple[Figure, ...]
    components: tuple[Figure, ...] = ()
    runs: int | None = None
    deterministic: bool | None = None
    seeds: bool = False
    alias_of: str = ""


@dataclass(frozen=True, slots=True)
class ConfigurationCell:
    """One pair of Table 11. marks: (task, finished, anchor of the cell) each; reason: why the pair is excluded."""

    marks: tuple[tuple[str, bool, str], ...]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Accuracy:
    """How well a model forecasts a task: its MASE, that of seasonal-naive, over how many origins, by which card."""

    own: str
    simple: str
    origins: str
    anchor: str


@dataclass(frozen=True, slots=True)
class Forecaster:
    """What a reader must know of a model: whose weights it has, and its accuracy on each task."""

    model: str
    weights_source: str
    licence: str
    errors: tuple[Accuracy, ...]


def configuration(source: Source) -> dict[str, tuple[ConfigurationCell, ...]]:
    """Table 11: model -> one cell per method, in the order of params.yaml."""
    energy = source.params.suites.energy
    obstacles = {item.cell: item.obstacle for item in source.grid}

    def pair(model: str, method: str) -> ConfigurationCell:
        cells = [Cell(SUITE, task, model, method) for task in source.tasks]
        reason = next((why for cell in cells if (why := obstacles.get(cell))), "")
        if reason:
            return ConfigurationCell((), reason)
        anchors = [source.references[cell].anchor if cell in source.references else "" for cell in cells]
        return ConfigurationCell(tuple((cell.task, bool(at), at) for cell, at in zip(cells, anchors, strict=True)))

    return {model: tuple(pair(model, method) for method in energy.methods) for model in energy.models}


def exclusions(source: Source) -> dict[str, dict[str, str]]:
    """Model -> method -> why the pair is no cell."""
    found: dict[str, dict[str, str]] = {}
    for item in source.grid:
        if item.obstacle is not None:
            found.setdefault(item.cell.model, {})[item.cell.method] = item.obstacle
    return found


def matrix_rows(source: Source, task: str) -> tuple[ScoredRow, ...]:
    """R of a task, a row per pair."""
    return tuple(_scored(source, task, row) for row in source.matrices[task].rows)


def table_12(source: Source, task: str, model: str) -> tuple[ScoredRow, ...]:
    """Table 12 of one model: its methods, nine components and six composites each."""
    return tuple(_scored(source, task, row, whole=True) for row in source.matrices[task].of_model(model))


def table_13a(source: Source, task: str) -> tuple[ScoredRow, ...]:
    """Table 13a, the pilot's reporting template: two models, three methods, five composites."""
    rows = {(row.model, row.method): row for row in source.matrices[task].rows}
    pairs = [(model, method) for model in PILOT_MODELS for method in PILOT_METHODS if (model, method) in rows]
    return tuple(_scored(source, task, rows[pair], PILOT_COMPOSITES, whole=True) for pair in pairs)


def table_12a(source: Source) -> tuple[tuple[str, str, str], ...]:
    """Table 12a, the pilot's scope: (item, what section 12.1 asks for, what is here)."""
    energy = source.params.suites.energy
    rows = [row for task in source.tasks for row in table_13a(source, task)]
    finished = sum(row.reference is not None for row in rows)
    with_number = {
        name: sum(row.composites[position].known for row in rows) for position, name in enumerate(PILOT_COMPOSITES)
    }
    return (
        ("Models", "LSTM, Transformer", ", ".join(name for name in PILOT_MODELS if name in energy.models)),
        ("Methods", "SHAP, Integrated Gradients, LIME", ", ".join(n for n in PILOT_METHODS if n in energy.methods)),
        ("Data set", "BQEB-Data v1", energy.dataset),
        ("Tasks", "next-hour load, day-ahead price", ", ".join(source.tasks)),
        ("Cells", f"{2 * 3} pairs on each task", f"{finished} finished"),
        (
            "Composites",
            ", ".join(PILOT_COMPOSITES),
            ", ".join(f"{name} in {count} of {len(rows)}" for name, count in with_number.items()),
        ),
        ("EDTS and contexts", "reserved for expanded validation", "outside the pilot; see Table 12 and the contexts"),
        ("Runs of stochastic methods", "recorded, with seeds", f"R = {source.params.runs}, seeds in every cell"),
    )


def forecasters(source: Source) -> tuple[Forecaster, ...]:
    """The models as fitted: one row per model whose card is here on any task."""
    found = []
    for model in dict.fromkeys(model for _, model in source.cards):
        cards = [source.cards.get((task, model), {}) for task in source.tasks]
        known = next(card for card in cards if card)
        errors = tuple(_accuracy(source, task, model, card) for task, card in zip(source.tasks, cards, strict=True))
        weights, licence = str(known.get("weights_source", "")), str(known.get("licence", ""))
        found.append(Forecaster(model, weights, licence, errors))
    return tuple(found)


def _accuracy(source: Source, task: str, model: str, card: Mapping[str, Any]) -> Accuracy:
    quality = card.get("quality", {})
    scores = quality.get("forecasts", {})
    own, simple = scores.get(model, {}).get("mase"), scores.get("seasonal_naive", {}).get("mase")
    file = source.file(f"models/{task}/{model}/card.json")
    return Accuracy(number(own), number(simple), str(quality.get("windows", "no")), file.anchor if file else "")


def _scored(
    source: Source, task: str, row: MatrixRow, names: tuple[Name, ...] = COMPOSITES, whole: bool = False
) -> ScoredRow:
    cell = Cell(SUITE, task, row.model, row.method)
    stored = source.cells.get(cell)
    return ScoredRow(
        row.model,
        row.method,
        source.references.get(cell),
        tuple(_figure(row[name]) for name in names),
        _components(source, cell) if whole else (),
        stored.record.spec.runs if stored else None,
        bool(stored.record.spec.method_card.get("deterministic")) if stored else None,
        bool(stored and "seeds.json" in stored.record.artifacts),
        next((entry.alias_of for entry in row.entries if entry.alias_of), ""),
    )


def _figure(entry: MatrixEntry) -> Figure:
    if entry.value is None:
        return Figure(_gap(entry.status), entry.reason, known=False)
    return Figure(number(entry.value), interval(entry.low, entry.high), value=entry.value, basis=entry.basis)


def _components(source: Source, cell: Cell) -> tuple[Figure, ...]:
    """The nine components of a cell: measured ones from the profile, the others from its record."""
    stored = source.cells.get(cell)
    if stored is None:
        return tuple(Figure("\N{EN DASH}", "the cell is not in the cell store", known=False) for _ in COMPONENTS)
    params = source.params
    bare = Entry(cell, "", "", "", (), {}, {})
    measured = with_measurements(bare, source.profile, params.profile.reference_seconds, params.contexts)
    return tuple(_component(stored.record, measured, metric) for metric in COMPONENTS.values())


def _component(record: CellRecord, measured: Entry, metric: str) -> Figure:
    score = measured.scores.get(metric)
    if score is not None and score.value is not None:
        value, raw = float(score.value[0]), float(score.raw[0])
        return Figure(number(value), f"{1000 * raw:.3g} ms" if metric == "efficiency" else "", value=value)
    found = record.scores.get(metric)
    if found is not None and found.n:
        value = found.raw if found.value is None else found.value
        return Figure(number(value), value=value)
    skip = measured.skipped.get(metric) or record.skipped.get(metric)
    if skip is None:
        return Figure("\N{EN DASH}", "undefined on every window", known=False)
    return Figure(_gap(skip.status), skip.reason, known=False)


def _gap(status: str) -> str:
    return "n/a" if status == "not_applicable" else status


def composite_titles() -> dict[str, str]:
    """Composite -> what it is about."""
    return {str(name): title for name, title in TITLES.items()}
