"""Prediction gaps: PGI and PGU, the change of the output when important or unimportant inputs are perturbed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike
from pydantic import Field

from explainbench.core.arrays import Bools, Floats, Ints
from explainbench.core.cell import Score
from explainbench.core.errors import BadInput
from explainbench.core.evidence import Evidence, MetricCard
from explainbench.core.masking import ranking
from explainbench.core.registry import METRICS
from explainbench.metrics._top_n import DEFAULT, Preset, area, checked, top_order

BLOCK = 2**19  # numbers per block of perturbed rows: bounds the memory, has no influence on the draws

Output = Callable[[Floats], Floats]  # (m, d) -> (m,), a pure function row by row


@dataclass(frozen=True, slots=True)
class Normal:
    """x + N(0, std) on continuous columns; `discrete` ones (d,), 0 or 1, flip with probability `flip`."""

    std: float = 0.1
    draws: int = 100
    discrete: Bools | None = None
    flip: float = DEFAULT.flip

    def __call__(self, rows: Floats, rng: np.random.Generator) -> Floats:
        """Perturbed copies of rows (b, d), every feature perturbed: (b, draws, d)."""
        b, d = rows.shape
        copies = rows[:, None, :] + self.std * rng.standard_normal((b, self.draws, d))
        if self.discrete is not None and self.discrete.any():
            flipped = rng.random((b, self.draws, int(self.discrete.sum()))) < self.flip
            flags = rows[:, None, self.discrete]
            copies[:, :, self.discrete] = np.where(flipped, 1.0 - flags, flags)
        return copies


@dataclass(frozen=True, slots=True, eq=False)
class Gaps:
    """PGI_n and PGU_n per row, (q, n) each: mean absolute change of the output; low PGU is good."""

    important: Floats
    unimportant: Floats
    features: int
    preset: Preset

    def auc(self) -> tuple[Floats, Floats]:
        """The areas over n, (q,) each."""
        return area(self.important, self.preset, self.features), area(self.unimportant, self.preset, self.features)


def prediction_gap(
    output: Output,
    rows: ArrayLike,
    explanations: ArrayLike,
    perturbed: ArrayLike | np.random.Generator,
    *,
    preset: Preset = DEFAULT,
    perturbation: Normal | None = None,
    top: int | None = None,
) -> Gaps:
    """PGI_n and PGU_n for n = 1..top from one set of perturbed copies (paper 004, Table 1).

    output: f, (m, d) -> (m,), called on blocks of rows that it must not change; rows, explanations: (q, d);
    perturbed: (q, draws, d) copies with every feature perturbed, or a generator to draw them from `perturbation`
    (default N(0, preset.std)), block by block in row order, so that the block size has no influence on the draws.
    PGI_n keeps all but the top n columns of a row, PGU_n keeps the top n. Growing n by one changes one column, so no
    copy is built twice.

    Memory: a few blocks beside the inputs. Raises BadInput (NaN, wrong shape, an output that is not one number a row).
    """
    x = checked(rows, "rows", (None, None))
    e = checked(explanations, "explanations", x.shape)
    q, d = x.shape
    deepest = d if top is None else min(top, d)
    if perturbation is None:
        perturbation = Normal(preset.std, preset.draws, flip=preset.flip)
    given = None
    if not isinstance(perturbed, np.random.Generator):
        given = checked(perturbed, "perturbed", (q, None, d))
    draws = perturbation.draws if given is None else given.shape[1]
    order = top_order(e if preset.gap_top == "signed" else np.abs(e), preset)
    here = _outputs(output, x)
    important, unimportant = np.empty((q, deepest)), np.empty((q, deepest))
    block = max(1, BLOCK // (draws * d))
    for start in range(0, q, block):
        some = slice(start, min(start + block, q))
        copies = perturbation(x[some], perturbed) if given is None else given[some]  # type: ignore[arg-type]
        both = _grown(copies, x[some], order[some], deepest)
        for n, (inside, outside) in enumerate(both):
            important[some, n] = _gap(output, inside, here[some])
            unimportant[some, n] = _gap(output, outside, here[some])
    if preset.mask == "true_is_kept":  # the bug of section 4.2: the mask of features to perturb was kept instead
        important, unimportant = unimportant, important
    return Gaps(important, unimportant, d, preset)


def _grown(copies: Floats, rows: Floats, order: Ints, top: int) -> Iterator[tuple[Floats, Floats]]:
    """Yield, for n = 1..top, copies (b * draws, d) with only, and with all but, the top n perturbed; changed in place.

    Held column by column, so that exchanging one column of every row moves whole runs of draws.
    """
    b, draws, d = copies.shape
    source = np.ascontiguousarray(np.moveaxis(copies, 2, 0))
    inside = np.repeat(rows.T[:, :, None], draws, axis=2)
    outside = source.copy()
    each = np.arange(b)
    for n in range(top):
        column = order[:, n]
        outside[column, each] = inside[column, each]
        inside[column, each] = source[column, each]
        yield inside.reshape(d, -1).T, outside.reshape(d, -1).T


def _gap(output: Output, copies: Floats, here: Floats) -> Floats:
    """Mean |f(x') - f(x)| over each row's copies: (b,)."""
    moved = _outputs(output, copies).reshape(len(here), -1)
    moved -= here[:, None]
    return np.abs(moved, out=moved).mean(axis=1)


def _outputs(output: Output, rows: Floats) -> Floats:
    values = np.array(output(rows), dtype=np.float64)
    if values.shape != (len(rows),):
        raise BadInput(
            f"the model function must return one number a row, but {values.shape} came back for {rows.shape}."
        )
    if not np.isfinite(values.sum()):
        raise BadInput(f"the model function returned NaN or infinity for row {int(np.argmin(np.isfinite(values)))}.")
    return values


@METRICS.register(MetricCard(title="Prediction gap (PGI)", equation="paper 004, Table 1", unit="sigma of the target"))
@dataclass(frozen=True, slots=True)
class PredictionGap:
    """Mean absolute change of the forecast when the most (PGI) or least (PGU) important groups are perturbed.

    share: the top n is ceil(share x groups); std: of the normal perturbation, in z-units; draws: perturbed windows a
    window, the same for every cell of a task. Gaps are in units of the target's standard deviation.
    """

    share: Annotated[float, Field(gt=0.0, le=1.0)] = 0.25
    std: Annotated[float, Field(gt=0.0)] = 0.1
    draws: Annotated[int, Field(ge=1)] = 20

    def score(self, evidence: Evidence) -> Mapping[str, Score]:
        """Per window (n,): `prediction_gap` = PGI, `prediction_gap_unimportant` = PGU (low is good).

        `prediction_gap_contrast` = PGI - PGU. Model evaluations: (2 draws + 1) a window.
        """
        windows, groups = evidence.windows, evidence.masker.groups
        n, t, c = windows.context.shape
        top = np.zeros((n, len(groups)), dtype=bool)
        importance = evidence.importance
        chosen = ranking(importance)[:, : ceil(self.share * len(groups))]
        np.put_along_axis(top, chosen, True, axis=1)
        here, noise = evidence.shared(f"prediction gap {self}", lambda: self._references(evidence))
        player = groups.labels >= 0
        inside = ~groups.kept(~top)  # (n, t, c) inputs of the top groups; kept() never drops inputs that are no players
        gaps = []
        for perturbed in (inside, player & ~inside):
            moved = windows.context[:, None] + noise * perturbed[:, None]
            outputs = evidence.model(moved.reshape(n * self.draws, t, c)).reshape(n, self.draws)
            gaps.append(np.abs(outputs - here[:, None]).mean(axis=1) / evidence.target_std)
        pgi, pgu = (np.where(importance.any(axis=1), gap, np.nan) for gap in gaps)  # all zeros rank nothing
        return {
            "prediction_gap": Score(pgi),
            "prediction_gap_unimportant": Score(pgu),
            "prediction_gap_contrast": Score(pgi - pgu),
        }

    def _references(self, evidence: Evidence) -> tuple[Floats, Floats]:
        """f(x) (n,) and the perturbations (n, draws, t, c) in dataset units: the same for every method."""
        windows = evidence.windows
        _, t, c = windows.context.shape
        scale = self.std * windows.channels.std
        noise = [  # keyed by window, so a window's draws do not depend on the others
            evidence.task_rng(f"prediction gap {origin}").standard_normal((self.draws, t, c)) * scale
            for origin in windows.origin
        ]
        return evidence.model(windows.context), np.stack(noise)
