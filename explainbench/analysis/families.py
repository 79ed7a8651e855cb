"""Holm per family: all comparisons of one kind within a task and a score (paper 000, Algorithm 5; spec, section 6).

Kinds of paired comparisons are methods within a model (over all models and bases), all cells of a task, and models;
each test of a board as a whole (Friedman, strata, categories) is a kind of its own. Boards that were made apart, those
of official and of stand-in weights, are families of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from explainbench.analysis.board import Board, Family
from explainbench.analysis.comparisons import Pairwise, holm
from explainbench.analysis.intervals import minimal_detectable_effect
from explainbench.core.arrays import Floats

KINDS = {"methods": "methods within a model", "cells": "all cells", "models": "models"}  # by a board's view
WHOLE = ("friedman", "strata", "categories")  # tests of a board as a whole


def in_families(boards: Sequence[Board]) -> tuple[Board, ...]:
    """The boards with every p corrected over its family: of pairs, of rows, and of the tests of a whole board.

    A board's detectable effect is then that among as many comparisons as its family holds.
    """
    found = list(boards)
    for members in _alike(found, [board.view if board.pairs and board.comparisons else "" for board in found]):
        p = [_upper(found[at].pairs) for at in members]
        first = found[members[0]]
        family = Family(f"{KINDS[first.view]}, {first.score}, {first.task}", sum(map(len, p)), len(members))
        for at, adjusted in zip(members, _together(p), strict=True):
            found[at] = _corrected(found[at], family, adjusted)
    for test in WHOLE:
        for members in _alike(found, [test if getattr(board, test) else "" for board in found]):
            p = [np.array([getattr(found[at], test).p]) for at in members]
            for at, adjusted in zip(members, _together(p), strict=True):
                found[at] = replace(found[at], p_holm={**found[at].p_holm, test: float(adjusted[0])})
    return tuple(found)


def _alike(boards: Sequence[Board], kinds: Sequence[str]) -> list[list[int]]:
    """The places of boards of one suite, task, score and kind of comparison; an empty kind is none."""
    found: dict[tuple[str, ...], list[int]] = {}
    for at, (board, kind) in enumerate(zip(boards, kinds, strict=True)):
        if kind:
            found.setdefault((board.suite, board.task, board.score, kind), []).append(at)
    return list(found.values())


def _together(parts: Sequence[Floats]) -> list[Floats]:
    """Holm over all parts as one family."""
    return np.split(holm(np.concatenate(parts)), np.cumsum([len(part) for part in parts])[:-1])


def _upper(pairs: Pairwise | None) -> Floats:
    return np.empty(0) if pairs is None else pairs.p[np.triu_indices(len(pairs.p), 1)]


def _corrected(board: Board, family: Family, p: Floats) -> Board:
    """The board with the corrected p (m(m-1)/2,) of its pairs in its table and its rows."""
    if board.pairs is None:
        return board
    table = np.full(board.pairs.p.shape, np.nan)
    upper = np.triu_indices(len(table), 1)
    table[upper] = table.T[upper] = p
    above = {entry: float(table[k, k - 1]) for k, entry in enumerate(board.ranked) if k}
    detectable = None
    if board.effective_n:
        detectable = minimal_detectable_effect(board.effective_n, family.size, board.alpha)
    return replace(
        board,
        rows=tuple(replace(row, p_vs_above=above.get(row.entry, row.p_vs_above)) for row in board.rows),
        pairs=replace(board.pairs, p_holm=table),
        family=family,
        detectable=detectable,
    )
