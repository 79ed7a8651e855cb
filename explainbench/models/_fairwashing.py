"""Fairwashing: models that decide unfairly on real rows and answer innocently wherever an explainer probes them.

The attack is re-implemented from the idea of Slack et al. (2019), "Fooling LIME and SHAP": such explainers
query a model off the data; a random forest that tells real rows from perturbed ones lets the model answer those
queries with an innocuous foil.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from explainbench.core.arrays import Bools, Floats, Ints
from explainbench.core.errors import BadInput
from explainbench.core.forecaster import Forecast, Forecaster
from explainbench.core.masking import Masker
from explainbench.core.windows import Windows

MOST_ROWS = 20_000  # rows a tree of the detector is grown on
RECOGNISED = 0.95  # share of real rows that must pass as real, or the attack shows itself in its accuracy

Classifier = Callable[[Floats], Ints]  # standardised rows (m, d) -> 0 or 1


@dataclass(frozen=True, eq=False)
class FairwashedClassifier:
    """m_L or m_S of paper 004, section 4.1: `biased` where a row looks real, `innocuous` elsewhere.

    forest: P(row is real) by a fitted random forest; threshold: from which probability on a row counts as real.
    """

    biased: Classifier
    innocuous: Classifier
    forest: Any
    threshold: float = 0.5

    def real(self, rows: Floats) -> Bools:
        """Does a row (m, d) look as if it came from the data?"""
        return self.forest.predict_proba(rows)[:, 1] >= self.threshold

    def predict(self, rows: Floats) -> Ints:
        """0 (negative outcome) or 1, (m, d) -> (m,)."""
        return np.where(self.real(rows), self.biased(rows), self.innocuous(rows))

    def output(self, rows: Floats) -> Floats:
        """The hard outcome as a number, for the prediction gaps: (m, d) -> (m,)."""
        return self.predict(rows).astype(np.float64)

    def probability(self, rows: Floats) -> Floats:
        """(m, 2) one-hot outcome, for explainers that want class probabilities."""
        return np.eye(2)[self.predict(rows)]


def fool_lime(
    train: Floats,
    categorical: Bools,
    biased: Classifier,
    innocuous: Classifier,
    rng: np.random.Generator,
    *,
    copies: int = 10,
    std: float = 0.3,
    trees: int = 100,
) -> FairwashedClassifier:
    """m_L: off the data is what Gaussian steps on the continuous columns produce, as LIME samples.

    train: (a, d) standardised rows; copies: perturbed rows per real row; std: of the steps, in standardised units.
    """
    seen, unseen = _parts(train, rng)
    moved = np.repeat(seen, copies, axis=0)
    moved[:, ~categorical] += rng.normal(0.0, std, size=(len(moved), int((~categorical).sum())))
    return _fitted(seen, unseen, moved, biased, innocuous, rng, trees)


def fool_shap(
    train: Floats,
    biased: Classifier,
    innocuous: Classifier,
    rng: np.random.Generator,
    *,
    copies: int = 1,
    centres: int = 10,
    trees: int = 100,
) -> FairwashedClassifier:
    """m_S: off the data is what swapping random column subsets for a background row's values produces, as SHAP does.

    The background is the `centres` k-means centres of the training rows, each value rounded to one that occurs.
    """
    from sklearn.cluster import KMeans

    seed = int(rng.integers(2**31))
    means = KMeans(n_clusters=centres, n_init="auto", random_state=seed).fit(train).cluster_centers_
    nearest = np.abs(train[:, None] - means).argmin(axis=0)  # (centres, d): shap rounds centres to values that occur
    background = np.take_along_axis(train, nearest, axis=0)
    seen, unseen = _parts(train, rng)
    moved = np.repeat(seen, copies, axis=0)
    size = rng.integers(1, train.shape[1] + 1, size=len(moved))
    swapped = rng.random(moved.shape).argsort(axis=1) < size[:, None]
    moved = np.where(swapped, background[rng.integers(centres, size=len(moved))], moved)
    return _fitted(seen, unseen, moved, biased, innocuous, rng, trees)


def _parts(train: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Four fifths of the rows to train the detector on, and one fifth to set its threshold with."""
    order = rng.permutation(len(train))
    cut = len(train) - len(train) // 5
    return train[order[:cut]], train[order[cut:]]


def _fitted(
    seen: Floats,
    unseen: Floats,
    moved: Floats,
    biased: Classifier,
    innocuous: Classifier,
    rng: np.random.Generator,
    trees: int,
) -> FairwashedClassifier:
    from sklearn.ensemble import RandomForestClassifier

    there = {row.tobytes() for row in seen}
    moved = moved[[row.tobytes() not in there for row in moved]]  # a copy that did not move is a real row
    if not len(moved) or not len(unseen):
        raise BadInput("too few rows, or none of them moves when perturbed, so there is nothing to detect.")
    rows = np.concatenate([seen, moved])
    real = np.arange(len(rows)) < len(seen)
    forest = RandomForestClassifier(
        n_estimators=trees,
        class_weight="balanced",
        max_samples=min(len(rows), MOST_ROWS),
        n_jobs=1,
        random_state=int(rng.integers(2**31)),
    ).fit(rows, real.astype(np.int64))
    # The threshold lets RECOGNISED of the real rows that no tree has seen pass as real.
    threshold = float(np.quantile(forest.predict_proba(unseen)[:, 1], 1.0 - RECOGNISED))
    return FairwashedClassifier(biased, innocuous, forest, min(threshold, 0.5))


# The forecasting version: explainers and metrics that mask parts of a window are what it detects.


@dataclass(frozen=True, slots=True)
class DrivenForecaster:
    """An honest forecaster driven by one channel alone: 100 + 10 (its mean over the later half - 10), at every step.

    channel: what drives it; horizon: steps.
    """

    channel: int
    horizon: int

    def predict(self, context: Floats) -> Forecast:
        """Forecast from contexts (n, t, c) in dataset units: (n, h)."""
        late = context[:, context.shape[1] // 2 :, self.channel].mean(axis=1)
        return Forecast(np.repeat((100.0 + 10.0 * (late - 10.0))[:, None], self.horizon, axis=1))

    def described(self, **more: Any) -> DrivenForecaster:
        """Itself: a rule has no card to add to."""
        return self

    def save(self, folder: Path) -> None:
        """A rule has no weights. Raises BadInput."""
        raise BadInput(f"a rule has no weights, so nothing was saved to {folder}.")


@dataclass(frozen=True, slots=True, eq=False)
class FairwashedForecaster:
    """A forecaster that detects masked windows and answers them with the seasonal naive.

    base: the true forecaster; forest: P(window is real); target: channel of the target; season: steps of a day;
    horizon: steps. A pure function of the context, like any forecaster.
    """

    base: Forecaster
    forest: Any
    target: int
    season: int
    horizon: int
    observed: Ints
    mean: Floats
    std: Floats
    segment: int

    def predict(self, context: Floats) -> Forecast:
        """Forecast from contexts (n, t, c) in dataset units: (n, h)."""
        real = self.real(context)
        return Forecast(np.where(real[:, None], self.base.predict(context).mean, self.naive(context)))

    def real(self, context: Floats) -> Bools:
        """Does a window look unmasked?"""
        features = _traces(context, self.observed, self.mean, self.std, self.segment)
        return self.forest.predict_proba(features)[:, 1] >= 0.5

    def naive(self, context: Floats) -> Floats:
        """The value of the same quarter-hour a day before, (n, h); the last `season` steps are repeated."""
        season = min(self.season, context.shape[1])
        last = context[:, -season:, self.target]
        return last[:, np.arange(self.horizon) % season]

    def described(self, **more: Any) -> FairwashedForecaster:
        """Itself: an attack has no card to add to."""
        return self

    def save(self, folder: Path) -> None:
        """An attack is rebuilt from its seed, never stored. Raises BadInput."""
        raise BadInput(f"a fairwashed forecaster is rebuilt from its seed, so nothing was saved to {folder}.")


def fairwashed_forecaster(
    base: Forecaster,
    training: Windows,
    masker: Masker,
    target: int,
    segment: int,
    rng: np.random.Generator,
    *,
    season: int = 96,
    copies: int = 4,
    trees: int = 60,
) -> FairwashedForecaster:
    """Train the detector on real windows and on the same windows with random groups masked, from one group to all.

    training: windows the attacker owns; masker: the operator it expects explainers and metrics to use.
    """
    from sklearn.ensemble import RandomForestClassifier

    groups = len(masker.groups)
    channels = training.channels
    filled = masker.fill(training)
    contexts = [training.context]
    for _ in range(copies):
        size = rng.integers(1, groups + 1, size=len(training))
        keep = rng.random((len(training), groups)).argsort(axis=1) >= size[:, None]
        contexts.append(np.where(masker.groups.kept(keep), training.context, filled))
    observed = channels.observed
    features = np.concatenate([_traces(part, observed, channels.mean, channels.std, segment) for part in contexts])
    real = np.arange(len(features)) < len(training)
    forest = RandomForestClassifier(
        n_estimators=trees, n_jobs=1, class_weight="balanced", random_state=int(rng.integers(2**31))
    ).fit(features, real.astype(np.int64))
    horizon = training.target.shape[1]
    return FairwashedForecaster(base, forest, target, season, horizon, observed, channels.mean, channels.std, segment)


def _traces(context: Floats, observed: Ints, mean: Floats, std: Floats, segment: int) -> Floats:
    """What masking leaves behind, per window: how rough each segment of a channel is, and the jumps between them.

    (n, t, c) -> (n, features): log roughness of every (segment, channel), its minimum, and absolute jumps at borders.
    """
    z = (context[:, :, observed] - mean[observed]) / std[observed]
    n, t, _ = z.shape
    bend = np.abs(np.diff(z, n=2, axis=1))
    starts = np.arange(t % segment, t, segment)
    rough = np.stack([bend[:, s : s + segment - 2].mean(axis=1) for s in starts if s + 2 < t], axis=1)
    rough = np.log(rough + 1e-9)
    jumps = np.abs(np.diff(z, axis=1))[:, starts[starts > 0] - 1]
    least = rough.min(axis=1)
    return np.concatenate([rough.reshape(n, -1), least, jumps.reshape(n, -1)], axis=1)
