"""Detecting explanation fairwashing: the cells of paper 004, Table 2, with the intervals it lacks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from explainbench.core.arrays import Floats
from explainbench.core.errors import BadInput
from explainbench.metrics._top_n import DEFAULT, Preset, checked
from explainbench.metrics.axe import axe
from explainbench.metrics.prediction_gap import Output, prediction_gap

ROLES = ("protected", "foil_1", "foil_2", "other")


@dataclass(frozen=True, slots=True, eq=False)
class Verdict:
    """One row of Table 2: a metric's mean score per role of the single important feature, and whether it is fooled.

    scores: {role: (m,) per explained row}; higher is better, so PGU enters negated; detected: is the protected
    feature's mean above every foil's mean, decided from the inequality; beats: {foil: is it above this one}.
    """

    metric: str
    scores: dict[str, Floats]

    def mean(self, role: str) -> float:
        """The score printed in Table 2."""
        return float(self.scores[role].mean())

    @property
    def beats(self) -> dict[str, bool]:
        return {role: self.mean("protected") > self.mean(role) for role in self.scores if role.startswith("foil")}

    @property
    def detected(self) -> bool:
        return all(self.beats.values())


def single_feature_scores(
    rows: ArrayLike, predictions: ArrayLike, *, preset: Preset = DEFAULT, k: int | None = None
) -> Floats:
    """AXE_1^k of the explanations "feature j is the only important one", for all j: (m, d) per row."""
    x = checked(rows, "rows", (None, None))
    ks = (k or preset.k[0],)
    columns = []
    for j in range(x.shape[1]):
        only = np.zeros(x.shape)
        only[:, j] = 1.0
        columns.append(axe(x, predictions, only, preset=preset, k=ks, top=1).agreement[:, 0, 0])
    return np.stack(columns, axis=1)


def single_feature_gaps(
    output: Output, rows: ArrayLike, rng: np.random.Generator, *, preset: Preset = DEFAULT
) -> tuple[Floats, Floats]:
    """PGI_1 and PGU_1 of the same explanations, (m, d) each, from one set of perturbed copies."""
    x = checked(rows, "rows", (None, None))
    state = rng.bit_generator.state
    important, unimportant = np.empty(x.shape), np.empty(x.shape)
    for j in range(x.shape[1]):
        rng.bit_generator.state = state  # common random numbers: features are compared on the same draws
        only = np.zeros(x.shape)
        only[:, j] = 1.0
        gaps = prediction_gap(output, x, only, rng, preset=replace(preset, gap_top="absolute"), top=1)
        important[:, j], unimportant[:, j] = gaps.important[:, 0], gaps.unimportant[:, 0]
    return important, unimportant


def verdict(metric: str, scores: Floats, names: Sequence[str], protected: str, foils: Sequence[str]) -> Verdict:
    """Average per-feature scores (m, d), higher better, into the roles of Table 2.

    With one foil the second unrelated column counts as neither: name all foil columns of the data in `foils` and the
    ones attacked with come first; see `table2`. Raises BadInput for a column that is not there.
    """
    for name in (protected, *foils):
        if name not in names:
            raise BadInput(f"column {name!r} is not in the table; its columns are {', '.join(names)}.")
    special = [names.index(name) for name in (protected, *foils)]
    other = np.setdiff1d(np.arange(len(names)), special)
    by_role = {"protected": scores[:, special[0]]}
    by_role |= {f"foil_{i}": scores[:, j] for i, j in enumerate(special[1:], start=1)}
    if len(other):
        by_role["other"] = scores[:, other].mean(axis=1)
    return Verdict(metric, by_role)


def table2(
    output: Output,
    rows: ArrayLike,
    names: Sequence[str],
    protected: str,
    foils: Sequence[str],
    rng: np.random.Generator,
    *,
    attacked: int = 1,
    preset: Preset = DEFAULT,
) -> dict[str, Verdict]:
    """PGI, -PGU and AXE at n = 1 for one adversarial model: the three rows of a block of Table 2.

    output: the model's hard outcome; rows: (m, d) standardised test rows; foils: all foil columns of the data, of
    which the first `attacked` are the model's. The others are left out of `other`, as the paper's numbers do.
    """
    x = checked(rows, "rows", (None, None))
    predictions = np.asarray(output(x)).round().astype(np.int64)
    important, unimportant = single_feature_gaps(output, x, rng, preset=preset)
    scores = {
        "PGI": important,
        "-PGU": -unimportant,
        "AXE": single_feature_scores(x, predictions, preset=preset),
    }
    found = {}
    for metric, values in scores.items():
        full = verdict(metric, values, names, protected, foils)
        kept = {role: s for role, s in full.scores.items() if not role.startswith("foil") or int(role[5:]) <= attacked}
        found[metric] = Verdict(metric, kept)
    return found


def row_order_sensitivity(
    rows: ArrayLike, predictions: ArrayLike, feature: int, rng: np.random.Generator, *, preset: Preset, orders: int = 20
) -> tuple[float, float]:
    """Smallest and largest AXE_1^k of one feature over random orders of the rows; equal under the default preset."""
    x, labels = checked(rows, "rows", (None, None)), np.asarray(predictions)
    only = np.zeros(x.shape)
    only[:, feature] = 1.0
    values = []
    for _ in range(orders):
        order = rng.permutation(len(x))
        values.append(axe(x[order], labels[order], only, preset=preset, k=preset.k[:1], top=1).mean()[0, 0])
    return float(min(values)), float(max(values))
