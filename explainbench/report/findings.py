"""What the boards say, in sentences: each counted from board rows, each with the board it can be checked on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from explainbench.analysis.composites import TITLES
from explainbench.report.source import Source, anchor
from explainbench.report.svg import interval, number

RULES_OF_THUMB = ("recency", "seasonal_lag")


@dataclass(frozen=True, slots=True)
class Sentence:
    """One finding. headline: the number or word to see first; anchor: the board behind it."""

    headline: str
    text: str
    anchor: str


def findings(source: Source, task: str) -> tuple[Sentence, ...]:
    """The sentences of one task; those whose boards hold no number are left out."""
    boards = [board for board in source.boards["boards"] if board["task"] == task]
    return tuple(_sentences(task, boards))


def pending(source: Source) -> tuple[tuple[str, str], ...]:
    """(composite, reason) of every composite that has no number anywhere."""
    found: dict[str, set[str]] = {}
    for matrix in source.matrices.values():
        for row in matrix.rows:
            for name, entry in zip(TITLES, row.entries, strict=True):
                found.setdefault(name, set()).add("" if entry.value is not None else entry.reason)
    return tuple((name, "; ".join(sorted(reasons))) for name, reasons in found.items() if "" not in reasons)


def _sentences(task: str, boards: list[Mapping[str, Any]]) -> Iterator[Sentence]:
    skill = [board for board in boards if board["score"] == "faithfulness_skill" and board["view"] == "methods"]
    skill = [board for board in skill if board["ranked"]]
    if skill:
        at = anchor("boards", f"{task}-F_skill")
        rows = [(board["model"], row) for board in skill for row in board["rows"] if row["mean"] is not None]
        ranked = [(model, row) for model, row in rows if not row["baseline"]]
        bounded = [(model, row) for model, row in ranked if row["low"] is not None]
        if bounded:
            weak = [f"{model}/{row['entry']}" for model, row in bounded if row["low"] <= 0]
            text = (
                "explanations rank what their model reacts to better than chance: the interval of F_skill is above 0."
            )
            if weak:
                text += f" Not so for {_listed(weak)}."
            yield Sentence(f"{len(bounded) - len(weak)} of {len(bounded)}", text, at)
        leading = Counter(row["entry"] for _, row in ranked if row["rank_ub"] == 1)
        if leading:
            first, count = leading.most_common(1)[0]
            others = ", ".join(f"{name} {times}" for name, times in leading.most_common()[1:4])
            text = f"is in the leading group of {count} of {len(skill)} models (no interval lies wholly above its own)."
            yield Sentence(first.replace("_", " "), text + (f" Then: {others}." if others else ""), at)
        yield from _rules_of_thumb(skill, at)
        separated = sum(_second(board) is False for board in skill)
        text = "models have a first method whose interval is separate from the second's; elsewhere the order is open."
        yield Sentence(f"{separated} of {len(skill)}", text, at)
    models = next((board for board in boards if board["view"] == "models" and board["ranked"]), None)
    if models is not None:
        top = [row for row in models["rows"] if row["rank_ub"] == 1 and not row["baseline"]]
        if top:
            between = interval(top[0]["low"], top[0]["high"])
            text = f"is the model whose explanations find most of what moves it: mean F_skill {number(top[0]['mean'])}"
            text += f" ({between})" if between else ""
            shared = f"; it shares the place with {_listed([row['entry'] for row in top[1:]])}" if top[1:] else ""
            yield Sentence(top[0]["entry"], f"{text}{shared}.", anchor("board", models["name"]))
    stable = [board for board in boards if board["score"] == "stability" and board["view"] == "methods"]
    rows = [row for board in stable for row in board["rows"] if not row["baseline"] and row["mean"] is not None]
    if rows:
        floor = sum(bool(row["extra"].get("on_noise_floor")) for row in rows)
        text = "explanations move no more under a small input change than under a new seed: their Stability is noise."
        yield Sentence(f"{floor} of {len(rows)}", text, anchor("boards", f"{task}-Stability"))


def _rules_of_thumb(skill: list[Mapping[str, Any]], at: str) -> Iterator[Sentence]:
    beaten = total = 0
    for board in skill:
        known = {row["entry"]: row for row in board["rows"] if row["mean"] is not None}
        rules = [known[name]["mean"] for name in RULES_OF_THUMB if name in known]
        methods = [row["mean"] for row in known.values() if not row["baseline"]]
        if rules:
            total += len(methods)
            beaten += sum(mean <= max(rules) for mean in methods)
    if total:
        text = (
            "explanations find no more than a rule of thumb that never looks at the model (latest first, or a day ago)."
        )
        yield Sentence(f"{beaten} of {total}", text, at)


def _second(board: Mapping[str, Any]) -> bool | None:
    """Whether the second ranked entry is co-ranked with the first."""
    ranked = [row for row in board["rows"] if not row["baseline"] and row["mean"] is not None]
    return ranked[1]["co_ranked_with_above"] if len(ranked) > 1 else None


def _listed(names: list[str], most: int = 4) -> str:
    shown = ", ".join(name.replace("_", " ") for name in names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")
