"""What a board's JSON says beside its rows, in words: how much it knows, its Holm family, its tests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def knowledge(board: Mapping[str, Any]) -> list[str]:
    """Windows, effective windows, comparisons with their family, smallest difference that can be seen."""
    return list(_knowledge(board))


def whole_tests(board: Mapping[str, Any]) -> list[str]:
    """The tests of the board as a whole, each p under Holm over the boards of its task and score."""
    return list(_whole_tests(board))


def _knowledge(board: Mapping[str, Any]) -> Iterator[str]:
    if board["n"]:
        yield f"n = {board['n']} {board.get('counted', 'windows')}"
    if board["effective_n"] is not None:
        yield f"effective n = {board['effective_n']:.3g}"
    if board["comparisons"]:
        family = board.get("family")
        over = f" ({family['name']}; {family['size']} on {_counted(family['boards'], 'board')})" if family else ""
        yield f"{_counted(board['comparisons'], 'comparison')}, Holm over the family{over}"
    if board["detectable"] is not None:
        yield f"smallest difference seen with 80 % power: d = {board['detectable']:.2g}"


def _whole_tests(board: Mapping[str, Any]) -> Iterator[str]:
    if found := board.get("friedman"):
        yield f"Friedman over windows: {_p(found)}, concordance of windows W = {found['w']:.2g}"
    if found := board.get("strata"):
        one, other = found["n"]
        yield (
            f"{one} deterministic against {other} stochastic entries (Mann-Whitney): Cliff's delta = "
            f"{found['delta']:.2g} [{found['low']:.2g}, {found['high']:.2g}], {_p(found)}"
        )
    if found := board.get("categories"):
        apart = [f"{pair['one']} and {pair['other']}" for pair in found["pairs"] if pair["p"] < board["alpha"]]
        yield (
            f"categories of methods ({found['branch']}, because {found['why']}): {_p(found)}, "
            + (f"apart: {', '.join(apart)}" if apart else "no two apart")
        )


def _p(found: Mapping[str, Any]) -> str:
    p = found["p_holm"]
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'s' if number > 1 else ''}"
