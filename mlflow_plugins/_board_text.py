"""A board in words: its title, its caption, its rows as text; the same in a terminal, a page and a run's note."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from explainbench.analysis.board_words import knowledge, whole_tests


def board_markdown(board: Mapping[str, Any]) -> list[str]:
    """One board as lines of markdown."""
    lines = [
        f"## {title(board)}",
        "",
        "| " + " | ".join(headers(board)) + " |",
        "| ---: | --- | ---: | --- | ---: | --- | --- | ---: | --- |",
    ]
    lines += ["| " + " | ".join(texts(row)) + " |" for row in board["rows"]]
    tests = whole_tests(board)
    return [*lines, "", caption(board), *(["", f"Whole board: {'; '.join(tests)}"] if tests else [])]


def headers(board: Mapping[str, Any]) -> list[str]:
    """The columns of a board; `plain` is the verdict of plain interval overlap, kept beside that on centred scores."""
    interval = f"{board['confidence']:.0%} interval"
    return ["order", "entry", "mean", interval, "rank_ub", "co-ranked with above", "plain", "p vs above", "beside it"]


def title(board: Mapping[str, Any]) -> str:
    """What a board ranks, in one line."""
    where = f", {board['view']} of {board['model']}" if board["model"] else f", {board['view']}"
    basis = f" ({board['basis']})" if board["basis"] else ""
    return f"{board['task']}: {board['score']}{basis}{where}: {board['title']}"


def caption(board: Mapping[str, Any]) -> str:
    """How much a board knows: windows, effective windows, comparisons, detectable difference, notes."""
    return "; ".join([*knowledge(board), *board["notes"]])


def texts(row: Mapping[str, Any]) -> list[str]:
    """A row as the columns of `board_markdown`."""
    entry = row["entry"] + (f" = {', '.join(row['aliases'])}" if row["aliases"] else "")
    entry += " (baseline)" if row["baseline"] else ""
    entry += "" if row["verified"] else " (NOT VERIFIED)"
    interval = "" if row["low"] is None else f"[{row['low']:.4g}, {row['high']:.4g}]"
    mean = row["status"].replace("_", " ") if row["mean"] is None else f"{row['mean']:.4g}"
    overlap = {None: "", True: "yes", False: "no"}
    with_above, without_centring = overlap[row["co_ranked_with_above"]], overlap[row["co_ranked_plain"]]
    p = "" if row["p_vs_above"] is None else f"{row['p_vs_above']:.2g}"
    ranks = [plain(row["rank_ub"]), with_above, without_centring, p]
    return [plain(row["order"]), entry, mean, interval, *ranks, beside(row)]


def beside(row: Mapping[str, Any]) -> str:
    """What must be read with a row's number: whose weights, and the companions of the score."""
    parts = [] if row["weights_source"] in ("", "trained") else [f"{row['weights_source']} weights"]
    for name, value in row["extra"].items():
        if isinstance(value, bool):
            parts += [name.replace("_", " ")] if value else []
        elif not (name == "clipped" and value == 0):
            parts.append(f"{name.replace('_', ' ')} {value:.3g}")
    return ", ".join(parts)


def plain(value: Any) -> str:
    """A value of a row as text: nothing for None, lists joined by semicolons."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return ";".join(map(str, value)) if isinstance(value, list) else str(value)
