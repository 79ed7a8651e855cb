"""A board in words: its title, its caption, its rows as text; the same in a terminal, a page and a run's note."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def board_markdown(board: Mapping[str, Any]) -> list[str]:
    """One board as lines of markdown."""
    lines = [
        f"## {title(board)}",
        "",
        f"| order | entry | mean | {board['confidence']:.0%} interval | rank_ub | co-ranked with above | p vs above |",
        "| ---: | --- | ---: | --- | ---: | --- | ---: |",
    ]
    lines += ["| " + " | ".join(texts(row)) + " |" for row in board["rows"]]
    return [*lines, "", caption(board)]


def title(board: Mapping[str, Any]) -> str:
    """What a board ranks, in one line."""
    where = f", {board['view']} of {board['model']}" if board["model"] else f", {board['view']}"
    basis = f" ({board['basis']})" if board["basis"] else ""
    return f"{board['task']}: {board['score']}{basis}{where}: {board['title']}"


def caption(board: Mapping[str, Any]) -> str:
    """How much a board knows: windows, effective windows, detectable difference, notes."""
    parts = [f"n = {board['n']} windows"]
    if board["effective_n"] is not None:
        parts.append(f"effective n = {board['effective_n']:.3g}")
    if board["detectable"] is not None:
        parts.append(f"smallest difference seen with 80 % power: d = {board['detectable']:.2g}")
    if board["comparisons"]:
        parts.append(f"{board['comparisons']} comparisons (Holm)")
    return "; ".join([*parts, *board["notes"]])


def texts(row: Mapping[str, Any]) -> list[str]:
    """A row as the columns of `board_markdown`."""
    entry = row["entry"] + (f" = {', '.join(row['aliases'])}" if row["aliases"] else "")
    entry += " (baseline)" if row["baseline"] else ""
    entry += "" if row["verified"] else " (NOT VERIFIED)"
    interval = "" if row["low"] is None else f"[{row['low']:.4g}, {row['high']:.4g}]"
    mean = row["status"].replace("_", " ") if row["mean"] is None else f"{row['mean']:.4g}"
    with_above = {None: "", True: "yes", False: "no"}[row["co_ranked_with_above"]]
    p = "" if row["p_vs_above"] is None else f"{row['p_vs_above']:.2g}"
    return [plain(row["order"]), entry, mean, interval, plain(row["rank_ub"]), with_above, p]


def plain(value: Any) -> str:
    """A value of a row as text: nothing for None, lists joined by semicolons."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return ";".join(map(str, value)) if isinstance(value, list) else str(value)
