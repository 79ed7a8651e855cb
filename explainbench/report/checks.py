"""Ablations and checks of the benchmark itself, as tables of estimates and as grids, from results/checks.json."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from explainbench.core.cell import Cell
from explainbench.report.source import SUITE, Source, anchor
from explainbench.report.svg import Scale, interval, mean_and_interval, number, probability, scale_of

FILE = anchor("file", "results/checks.json")
IGNORES = "ignores the weights"


@dataclass(frozen=True, slots=True)
class Box:
    """One number of a grid. heat: its colour from 0 to 1; tone: yes, no, open or empty; at: a page id of its own."""

    text: str
    detail: str = ""
    heat: float | None = None
    tone: str = ""
    at: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a grid. at: the page id where its numbers can be checked."""

    labels: tuple[str, ...]
    boxes: tuple[Box, ...]
    at: str = FILE


@dataclass(frozen=True, slots=True)
class Estimate:
    """One estimate with its interval drawn."""

    labels: tuple[str, ...]
    value: str
    interval: str
    plot: Markup
    note: str = ""
    tone: str = ""
    at: str = FILE


@dataclass(frozen=True, slots=True)
class Table:
    """One question and its answers: either estimates on one axis, or a grid. gaps: why entries have no number."""

    title: str
    question: str
    columns: tuple[str, ...]
    estimates: tuple[Estimate, ...] = ()
    grid: tuple[Row, ...] = ()
    axis: Markup | None = None
    gaps: tuple[str, ...] = ()
    folded: bool = False


def ablations(source: Source) -> tuple[Table, ...]:
    """Section 8.8 of the paper, and the three choices that matter as much: mask, depth, segment length."""
    return _tables(source, (_weights, _masks, _panel, _depths, _segments))


def sanity(source: Source) -> tuple[Table, ...]:
    """Whether metrics and methods can tell a right explanation from a wrong one."""
    return _tables(
        source,
        (
            _diagnosticity, _baselines, _randomisation, _planted_methods, _planted_metrics, _disagreement, _regimes,
            _aliases, _determinism,
        ),
    )  # fmt: skip


def ignoring(checks: Mapping[str, Any] | None) -> frozenset[tuple[str, str, str]]:
    """The (task, model, method) whose explanations stay the same when the weights are re-drawn."""
    rows = [] if checks is None else checks.get("randomisation", [])
    return frozenset((row["task"], row["model"], row["method"]) for row in rows if row.get("verdict") == IGNORES)


def _tables(source: Source, makers: Iterable[Callable[[Source, Mapping[str, Any]], Table]]) -> tuple[Table, ...]:
    checks = source.checks
    return () if checks is None else tuple(make(source, checks) for make in makers)


def _weights(source: Source, checks: Mapping[str, Any]) -> Table:
    rows = []
    for row in checks.get("weights", ()):
        if row.get("lowest_tau") is None:
            continue
        shares = ", ".join(f"{part['component'].replace('_', ' ')} {_share(part['share'])}" for part in row["shares"])
        without = ", ".join(f"{part['component'].replace('_', ' ')} {number(part['tau'], 2)}" for part in row["shares"])
        default = " + ".join(
            f"{weight:g} {name.replace('_', ' ')}"
            for weight, name in zip(row["default"], row["components"], strict=True)
        )
        boxes = (
            Box(default),
            Box(str(row["entries"])),
            _tau(row["lowest_tau"], f"lowest of {len(row['points'])} weight vectors"),
            Box(shares),
            Box(without),
        )
        rows.append(Row((row["task"], row["composite"]), boxes))
    return Table(
        "Composite weights",
        "Do the ranks survive other weights (lowest Kendall's tau over the simplex), and does one component carry the "
        "variance?",
        ("task", "composite", "default", "entries", "lowest tau", "share of the variance", "tau when left out"),
        grid=tuple(rows),
        gaps=_reasons(checks.get("weights", ()), "lowest_tau", ("task", "composite")),
    )


def _masks(source: Source, checks: Mapping[str, Any]) -> Table:
    rows = list(checks.get("masks", ()))
    operators = ", ".join(rows[0]["operators"]) if rows else ""
    return _estimates(
        source,
        "Masking operator",
        f"Do masks ({operators}) agree on the ranking of the methods? Kendall's W; below 0.5 no single faithfulness "
        "ranking is supported. Control: tau with masking by raw zeros.",
        ("task", "model"),
        rows,
        "w",
        lambda row: (
            ("supported" if row["supported"] else "no single ranking")
            + f", control {number(row.get('control_tau'), 2)}",
            "yes" if row["supported"] else "no",
        ),
        Scale(0, 1, 2, 98),
    )


def _panel(source: Source, checks: Mapping[str, Any]) -> Table:
    rows = [
        {"task": row["task"], "model": row["model"], **method, **(method["self_preference"] or {})}
        for row in checks.get("panel", ())
        for method in row["methods"]
    ]
    return _estimates(
        source,
        "Explainer baseline x metric mask",
        "Does an explainer win under the mask it was made with? Diagonal minus off-diagonal score, relative to each "
        "mask's mean; above 0 it favours itself. The note holds the fair score, off the diagonal.",
        ("task", "model", "method"),
        rows,
        "value",
        lambda row: (f"off-diagonal {mean_and_interval(row['off_diagonal'])}", ""),
        folded=True,
    )


def _depths(_: Source, checks: Mapping[str, Any]) -> Table:
    asked = "Does the ranking depend on how many groups are masked?"
    return _taus("Depth K", asked, checks.get("depths", ()), lambda point: f"{point['share']:.0%} of the groups")


def _segments(_: Source, checks: Mapping[str, Any]) -> Table:
    asked = "Does the ranking depend on the length of a feature group?"
    return _taus("Segment length", asked, checks.get("segments", ()), lambda point: f"{point['segment']} steps")


def _diagnosticity(source: Source, checks: Mapping[str, Any]) -> Table:
    asked = "How often does an explanation beat a random ranking of the same window? 0.5 is chance."
    rows = checks.get("diagnosticity", ())
    return _preferences(source, "Diagnosticity of each metric", asked, ("task", "metric"), rows, "{cells} cells")


def _baselines(source: Source, checks: Mapping[str, Any]) -> Table:
    def told(row: Mapping[str, Any]) -> tuple[str, str]:
        above = ", ".join(row["above"]).replace("_", " ") or "none"
        return f"place {row['place']} among {row['methods']} methods; significantly above it: {above}", ""

    return _estimates(
        source,
        "Rankings that never look at the model",
        "Where do random, latest-first, day-ago and true-driver rankings stand among a model's methods?",
        ("task", "model", "metric", "baseline"),
        checks.get("baselines", ()),
        "value",
        told,
        folded=True,
    )


def _randomisation(source: Source, checks: Mapping[str, Any]) -> Table:
    known = {(row["task"], row["model"], row["method"]): row for row in checks.get("randomisation", ())}
    methods = [m for m in source.params.suites.energy.methods if any(m == key[2] for key in known)]
    rows = []
    for task, model in dict.fromkeys((task, model) for task, model, _ in known):
        boxes = []
        for method in methods:
            row = known.get((task, model, method))
            if row is None or row["value"] is None:
                boxes.append(Box("n/a" if row is None else "none", "" if row is None else row["reason"]))
                continue
            tone = {IGNORES: "no", "changes": "yes"}.get(row["verdict"], "open")
            at = _cell_anchor(source, row)
            text = number(row["value"], 2) + (" ignores" if row["verdict"] == IGNORES else "")
            boxes.append(Box(text, interval(row["low"], row["high"], 2), tone=tone, at=at))
        rows.append(Row((task, model), tuple(boxes)))
    return Table(
        "Weights re-drawn",
        "Do explanations change when the model's weights are shuffled? Rank correlation of importance with the "
        "original; above 0.5 the explanation ignores the weights. Changing is necessary, never a proof of being right.",
        ("task", "model", *methods),
        grid=tuple(rows),
    )


def _planted_methods(source: Source, checks: Mapping[str, Any]) -> Table:
    rows = checks.get("planted_methods", ())
    planted = list(dict.fromkeys(row["planted"] for row in rows))
    methods = list(dict.fromkeys(row["method"] for row in rows if row.get("method")))
    known = {(row.get("method"), row["planted"]): row for row in rows}
    grid = []
    for method in methods:
        boxes = []
        for name in planted:
            row = known.get((method, name))
            if row is None or not row.get("correlation"):
                boxes.append(Box("n/a", "" if row is None else row.get("reason", "")))
                continue
            value = row["correlation"]["value"]
            recall = row["recall"]["value"] if row.get("recall") else None
            exact = f", error {row['error']:.0e}" if row.get("exact") else ""
            boxes.append(Box(number(value, 2), f"finds {_share(recall)}{exact}", _unit(value)))
        baseline = any((known.get((method, name)) or {}).get("baseline") for name in planted)
        grid.append(Row((method + (" (baseline)" if baseline else ""),), tuple(boxes)))
    return Table(
        "Planted forecasters: do methods find the truth?",
        "Five forecasters whose exact Shapley values are known in closed form. Correlation with them; the share of the "
        "true groups found; and, where a method should be exact, its largest relative error.",
        ("method", *planted),
        grid=tuple(grid),
        gaps=_reasons([row for row in rows if not row.get("method")], "method", ("planted",)),
    )


def _planted_metrics(source: Source, checks: Mapping[str, Any]) -> Table:
    asked = (
        "The true values against the same values dealt to other groups. A metric at 0.5 cannot see whether an "
        "explanation is right; Stability is one by design."
    )
    rows = checks.get("planted_metrics", ())
    return _preferences(
        source, "Planted forecasters: do metrics prefer the truth?", asked, ("metric",), rows, "n = {n}"
    )


def _disagreement(source: Source, checks: Mapping[str, Any]) -> Table:
    rows: list[Row] = []
    columns: list[str] = []
    notes = []
    for block in checks.get("disagreement", ()):
        columns += [name for name in block["metrics"] if name not in columns]
        if block.get("effective") is not None:
            notes.append(
                f"{block['task']}: {number(block['effective'], 1)} independent metrics of {len(block['metrics'])}"
            )
    for block in checks.get("disagreement", ()):
        rho = {frozenset(pair["metrics"]): pair for pair in block["pairs"]}
        for name in block["metrics"]:
            boxes = tuple(_rho(rho.get(frozenset((name, other))), name == other) for other in columns)
            rows.append(Row((block["task"], name), boxes))
    return Table(
        "Do metrics agree with each other?",
        f"Spearman's rank correlation over cells, with its interval. {'; '.join(notes)}.",
        ("task", "metric", *columns),
        grid=tuple(rows),
    )


def _regimes(source: Source, checks: Mapping[str, Any]) -> Table:
    tested = [row for row in checks.get("regimes", ()) if row.get("p_holm") is not None]
    tested.sort(key=lambda row: row["p_holm"])
    alpha = source.params.statistics.alpha
    rows = []
    for row in tested:
        level = row["level"] or {}
        means = "; ".join(
            f"{method.replace('_', ' ')} "
            + ", ".join(f"{at.replace('_', ' ')} {number(mean, 2)}" for at, mean in by.items())
            for method, by in row["methods"].items()
        )
        boxes = (
            Box(number(row["statistic"])),
            Box(probability(row["p"])),
            Box(probability(row["p_holm"]), tone="no" if row["p_holm"] < alpha else ""),
            Box(level.get("branch", ""), f"p {probability(level.get('p_holm', level.get('p')))}"),
            Box("; ".join(_regime_pair(pair, alpha) for pair in level.get("pairs", ()))),
            Box(means),
        )
        rows.append(Row((row["task"], row["model"], row["metric"]), boxes))
    significant = sum(row["p_holm"] < alpha for row in tested)
    return Table(
        "Does the order of methods depend on the regime?",
        f"Permutation test of the interaction on window-centred scores: {significant} of {len(tested)} below {alpha:g} "
        "after Holm. Level: whether a regime is harder as a whole (p under Holm); delta: Cliff's, of the scores of two "
        "regimes, with its interval, * where they differ after Holm.",
        ("task", "model", "metric", "statistic", "p", "p (Holm)", "level", "delta between regimes", "means per regime"),
        grid=tuple(rows),
        gaps=_reasons(checks.get("regimes", ()), "p_holm", ("task", "model", "metric")),
        folded=True,
    )


def _regime_pair(pair: Mapping[str, Any], alpha: float) -> str:
    names = f"{pair['one']} over {pair['other']}".replace("_", " ")
    sure = "*" if pair["p_holm"] < alpha else ""
    return f"{names} {number(pair['delta'], 2)}{sure} ({interval(pair['low'], pair['high'], 2)})"


def _aliases(source: Source, checks: Mapping[str, Any]) -> Table:
    every = checks.get("aliases", ())
    rows = []
    for row in every:
        if row["classes"]:
            boxes = (Box(", ".join(row["classes"]).replace("_", " ")), Box(str(len(row["compared"]))))
            rows.append(Row((row["task"], row["model"]), boxes))
    return Table(
        "Methods that are one and the same",
        f"Stored explanations equal to 1e-6: {len(rows)} of {len(every)} models have such a class, one row on boards.",
        ("task", "model", "equal", "methods compared"),
        grid=tuple(rows),
    )


def _determinism(source: Source, checks: Mapping[str, Any]) -> Table:
    rows = []
    for row in checks.get("determinism", ()):
        bad = [method["method"] for method in row["methods"] if not method["ok"]]
        told = f"{len(row['methods']) - len(bad)} of {len(row['methods'])}" + (f", not {', '.join(bad)}" if bad else "")
        boxes = [_truth(row.get(key)) for key in ("twice", "alone", "reordered", "reloaded")]
        told = told.replace("_", " ")
        rows.append(Row((row["task"], row["model"]), (*boxes, Box(told, tone="no" if bad else "yes"))))
    return Table(
        "Declared determinism, tested",
        "Is a model the same function when run twice, alone instead of in a batch, in another order, and from reloaded "
        "weights? And how many methods are as deterministic as they say?",
        ("task", "model", "twice", "alone", "reordered", "reloaded", "methods as declared"),
        grid=tuple(rows),
    )


def _estimates(
    source: Source,
    title: str,
    question: str,
    labels: tuple[str, ...],
    rows: Iterable[Mapping[str, Any]],
    value: str,
    told: Callable[[Mapping[str, Any]], tuple[str, str]],
    scale: Scale | None = None,
    mark: float | None = None,
    folded: bool = False,
) -> Table:
    rows = list(rows)
    known = [row for row in rows if row.get(value) is not None]
    scale = scale or scale_of([row.get(key) for row in known for key in (value, "low", "high")], 2, 98)
    estimates = []
    for row in known:
        note, tone = told(row)
        low, high = row.get("low"), row.get("high")
        estimates.append(
            Estimate(
                tuple(str(row[label]) for label in labels),
                number(row[value]),
                interval(low, high),
                scale.drawn(row[value], low, high, mark),
                note,
                tone,
                _cell_anchor(source, row),
            )
        )
    return Table(title, question, labels, tuple(estimates), (), scale.axis(), _reasons(rows, value, labels), folded)


def _preferences(
    source: Source, title: str, question: str, labels: tuple[str, ...], rows: Iterable[Mapping[str, Any]], note: str
) -> Table:
    """Shares of wins, drawn against chance."""
    told: Callable[[Mapping[str, Any]], tuple[str, str]] = lambda row: (note.format_map(row), "")  # noqa: E731
    return _estimates(source, title, question, labels, rows, "value", told, Scale(0, 1, 2, 98), 0.5)


def _taus(
    title: str, question: str, rows: Sequence[Mapping[str, Any]], column: Callable[[Mapping[str, Any]], str]
) -> Table:
    """Kendall's tau between the default ranking and that of each other choice, which `column` names."""
    question += " Kendall's tau with the default."
    names = list(dict.fromkeys(column(point) for row in rows for point in row["points"]))
    grid = []
    for row in rows:
        taus = {column(point): point["tau"] for point in row["points"]}
        boxes = [_tau(taus[name]) if name in taus else Box("") for name in names]
        grid.append(Row((row["task"], row["model"]), (*boxes, Box(str(row["n"])))))
    return Table(title, question, ("task", "model", *names, "n"), grid=tuple(grid), folded=len(grid) > 8)


def _cell_anchor(source: Source, row: Mapping[str, Any]) -> str:
    """The cell behind a row where it names one, else the file of the checks."""
    method = row.get("method") or row.get("baseline")
    if not isinstance(method, str) or "task" not in row or "model" not in row:
        return FILE
    reference = source.references.get(Cell(SUITE, row["task"], row["model"], method))
    return FILE if reference is None else reference.anchor


def _reasons(rows: Iterable[Mapping[str, Any]], value: str, labels: Sequence[str]) -> tuple[str, ...]:
    """One sentence per reason why rows have no number, naming them."""

    def found() -> Iterator[str]:
        reasons: dict[str, list[str]] = {}
        for row in rows:
            if row.get(value) is None:
                why = row.get("reason") or "no number"
                reasons.setdefault(why, []).append(" ".join(str(row.get(label, "")) for label in labels))
        for why, named in reasons.items():
            listed = ", ".join(named[:4]) + (f" and {len(named) - 4} more" if len(named) > 4 else "")
            yield f"{listed}: {why}"

    return tuple(found())


def _tau(value: float | None, detail: str = "") -> Box:
    return Box("none", detail) if value is None else Box(number(value, 2), detail, _unit(value))


def _rho(pair: Mapping[str, Any] | None, same: bool) -> Box:
    if same:
        return Box("\N{MIDDLE DOT}")
    if pair is None or pair["rho"] is None:
        return Box("")
    return Box(number(pair["rho"], 2), interval(pair["low"], pair["high"], 2), _unit(abs(pair["rho"])))


def _truth(value: Any) -> Box:
    if isinstance(value, bool):
        return Box("yes" if value else "no", tone="yes" if value else "no")
    return Box("none" if value is None else f"{value:.1g}")


def _share(value: float | None) -> str:
    return "no share" if value is None else f"{value:.0%}"


def _unit(value: float) -> float:
    return min(1.0, max(0.0, value))
