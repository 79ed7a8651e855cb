"""Anchor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from explainbench.core.arrays import Bools, Floats
from explainbench.core.cell import stream
from explainbench.core.explanation import MethodCard
from explainbench.core.tabular import TABULAR_METHODS, RowExplanation, TabularModel
from explainbench.methods._tabular._anchor_search import Anchored, Search
from explainbench.methods._tabular._anchor_space import Space

LIVE = 50  # searches that run side by side: bounds memory, has no influence on a result
Share = Annotated[float, Field(gt=0.0, lt=1.0)]
Count = Annotated[int, Field(ge=1)]


@TABULAR_METHODS.register(
    MethodCard(
        title="Anchor",
        category="surrogate",
        source="Ribeiro, Singh and Guestrin 2018",
        deterministic=False,
        vector="nonnegative",
        cost="search",
        stores="background",
    )
)
@dataclass(frozen=True, slots=True)
class Anchor:
    """A rule on the quartiles of a row's columns under which the model keeps its prediction nearly always.

    Beam search from the empty rule, the best extensions of every length by KL-LUCB. threshold: precision wanted; delta:
    confidence of the bounds; tolerance: of the best-arm identification (tau); margin: by which the lower bound may miss
    the threshold; batch: samples at a time; shared: samples drawn under a rule for all its extensions together; beam:
    rules kept of every length; longest: predicates of a rule; budget: samples per row.
    """

    threshold: Share = 0.95
    delta: Share = 0.1
    tolerance: Share = 0.15
    margin: Share = 0.05
    batch: Count = 100
    shared: Count = 500
    beam: Count = 1
    longest: Count = 6
    budget: Count = 10_000

    def explain(
        self, model: TabularModel, rows: Floats, background: Floats, rng: np.random.Generator
    ) -> RowExplanation:
        """Attributions (n, d): 1 for the column added first, less for each later one; named: the rule's columns.

        Many searches run side by side, so that the model is asked in large batches; a row's rule depends on the seed
        and the row, not on its company. Notes: precision, coverage, and found = 0 where no rule reached the threshold
        and the most precise one seen is given.
        """
        space, seed = Space.of(background), int(rng.integers(2**32))
        anchors: list[Anchored] = []
        for start in range(0, len(rows), LIVE):
            part = rows[start : start + LIVE]
            searches = [Search(space, row, self, stream(seed, row.tobytes().hex())) for row in part]
            anchors += _side_by_side(model, searches, model.predict(part) >= 0.5)
        attribution = np.zeros(rows.shape)
        for number, anchor in enumerate(anchors):
            length = len(anchor.columns)
            attribution[number, list(anchor.columns)] = 1 - np.arange(length) / max(length, 1)
        notes = {
            "precision": np.array([anchor.precision for anchor in anchors]),
            "coverage": np.array([anchor.coverage for anchor in anchors]),
            "found": np.array([float(anchor.found) for anchor in anchors]),
        }
        return RowExplanation(attribution, attribution > 0, notes)


def _side_by_side(model: TabularModel, searches: Sequence[Search], label: Bools) -> list[Anchored]:
    """Run the searches in step: one model call answers the questions of all of them."""
    done: dict[int, Anchored] = {}
    dialogues = {number: search.run() for number, search in enumerate(searches)}
    asked = {number: next(dialogue) for number, dialogue in dialogues.items()}
    while asked:
        answers = model.predict(np.concatenate(list(asked.values()))) >= 0.5
        waiting, asked, start = asked, {}, 0
        for number, rows in waiting.items():
            kept = answers[start : start + len(rows)] == label[number]
            start += len(rows)
            try:
                asked[number] = dialogues[number].send(kept)
            except StopIteration as finished:
                done[number] = finished.value
    return [done[number] for number in range(len(searches))]
