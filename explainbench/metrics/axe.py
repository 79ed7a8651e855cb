"""AXE: ground-truth agnostic evaluation of explanations, and its regression extension over forecasts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field

from explainbench.core.arrays import Floats, Ints
from explainbench.core.cell import Score
from explainbench.core.errors import BadInput, NotApplicable
from explainbench.core.evidence import Evidence, MetricCard
from explainbench.core.masking import ranking
from explainbench.core.registry import METRICS
from explainbench.metrics._top_n import DEFAULT, TIED, Preset, area, checked, inside_ties, interpolated, top_order

BLOCK = 2**17  # distances held at a time: fits the cache, bounds the memory, has no influence on bits


@dataclass(frozen=True, slots=True, eq=False)
class AxeCurves:
    """AXE_n^k of each explained row, and what an explanation that knows nothing would get.

    agreement: (q, n, k) in [0, 1], does the k-NN over the row's top n features recover its prediction;
    n: (n,); k: (k,); features: d; base_rate: share of the majority prediction, what a guess without features gets;
    random: (n, k) mean AXE of random explanations, one per row, or None where no generator was given.
    """

    agreement: Floats
    n: Ints
    k: Ints
    features: int
    base_rate: float
    random: Floats | None
    preset: Preset

    def mean(self) -> Floats:
        """AXE_n^k: the accuracy over rows, (n, k)."""
        return self.agreement.mean(axis=0)

    def auc(self) -> Floats:
        """The area over n per row, (q, k); its mean over rows is the area under the mean curve."""
        return area(np.swapaxes(self.agreement, 1, 2), self.preset, self.features)

    def random_auc(self) -> Floats | None:
        """The area over n of the random explanations, (k,)."""
        return None if self.random is None else area(self.random.T, self.preset, self.features)


def axe(
    rows: ArrayLike,
    predictions: ArrayLike,
    explanations: ArrayLike,
    *,
    preset: Preset = DEFAULT,
    k: tuple[int, ...] | None = None,
    top: int | None = None,
    explained: NDArray[np.integer] | None = None,
    rng: np.random.Generator | None = None,
) -> AxeCurves:
    """AXE_n^k for all n = 1..top and all k in one pass (paper 004, Algorithm 1).

    rows: (N, d) inputs, distances are taken as they are scaled; predictions: (N,) labels m(x), not data labels;
    explanations: (q, d), one per explained row; explained: (q,) indices of those rows, default all N;
    top: largest n, default d; k: default the preset's; rng: for the random baseline, which doubles the work.

    Per row the columns are ordered by |e|; the squared distance to all rows grows column by column, and one partial
    sort per n serves every k. Memory: a few blocks of `BLOCK` distances beside the inputs and the result.

    Raises BadInput (NaN, wrong shape, fewer rows than k) and NotApplicable (constant predictions).
    """
    x = checked(rows, "rows", (None, None))
    count, features = x.shape
    where = np.arange(count) if explained is None else np.asarray(explained, dtype=np.int64)
    if where.ndim != 1 or (len(where) and (where.min() < 0 or where.max() >= count)):
        raise BadInput(f"explained must be row indices from 0 to {count - 1}.")
    labels, codes = _labels(predictions, count)
    e = checked(explanations, "explanations", (len(where), features))
    ks = _neighbours(k or preset.k, count if preset.include_self == "yes" else count - 1, count)
    deepest = features if top is None else min(top, features)
    share = np.bincount(codes, minlength=len(labels)) / count
    majority = np.isclose(share, share.max()) / np.isclose(share, share.max()).sum()
    random = None
    if rng is not None:
        noise = rng.standard_normal(e.shape)
        random = _curves(x, codes, len(labels), x[where], codes[where], where, noise, preset, ks, deepest).mean(axis=0)
    agreement = _curves(x, codes, len(labels), x[where], codes[where], where, e, preset, ks, deepest, majority)
    return AxeCurves(agreement, np.arange(1, deepest + 1), ks, features, float(share.max()), random, preset)


def axe_at(
    points: ArrayLike,
    point_predictions: ArrayLike,
    explanations: ArrayLike,
    rows: ArrayLike,
    predictions: ArrayLike,
    *,
    preset: Preset = DEFAULT,
    k: tuple[int, ...] | None = None,
    top: int | None = None,
) -> Floats:
    """AXE_n^k of points (q, d) that are not rows of the data set, from its rows (N, d): (q, n, k).

    Such a point is nobody's own neighbour, so `include_self` does not matter; a preset that drops the first hit is
    refused. Raises BadInput and NotApplicable as `axe` does.
    """
    if preset.include_self == "drop_first_hit":
        raise BadInput(f"preset {preset.name} drops the nearest row, which is right only for rows of the data set.")
    x = checked(rows, "rows", (None, None))
    count, features = x.shape
    at = checked(points, "points", (None, features))
    labels, codes = _labels(predictions, count)
    asked = np.asarray(point_predictions)
    if asked.shape != (len(at),) or not np.isin(asked, labels).all():
        raise BadInput(f"point_predictions must be {len(at)} labels that occur among the predictions.")
    e = checked(explanations, "explanations", (len(at), features))
    ks = _neighbours(k or preset.k, count, count)
    deepest = features if top is None else min(top, features)
    share = np.bincount(codes, minlength=len(labels)) / count
    majority = np.isclose(share, share.max()) / np.isclose(share, share.max()).sum()
    own = np.searchsorted(labels, asked)
    return _curves(x, codes, len(labels), at, own, None, e, preset, ks, deepest, majority)


def _labels(predictions: ArrayLike, count: int) -> tuple[NDArray, Ints]:
    """Sorted distinct labels, and the code of each row. Raises BadInput, NotApplicable."""
    given = np.asarray(predictions)
    if given.shape != (count,):
        raise BadInput(f"predictions must be {count} labels, one per row, but their shape is {given.shape}.")
    if given.dtype.kind == "f" and not np.isfinite(given).all():
        raise BadInput(f"predictions hold NaN or infinity, the first at row {int(np.argmin(np.isfinite(given)))}.")
    labels, codes = np.unique(given, return_inverse=True)
    if len(labels) > max(20, count // 2):
        raise BadInput(
            f"predictions hold {len(labels)} distinct values in {count} rows; AXE needs labels, "
            "its regression extension takes numbers."
        )
    if len(labels) == 1:
        raise NotApplicable(
            f"every prediction is {labels[0]}, so any explanation recovers it: AXE is undefined for a constant model"
        )
    return labels, codes.astype(np.int64)


def _neighbours(k: tuple[int, ...], available: int, count: int) -> Ints:
    ks = np.array(k, dtype=np.int64)
    if ks.size == 0 or ks.min() < 1:
        raise BadInput(f"k must be positive numbers of neighbours, not {k}.")
    if ks.max() > available:
        raise BadInput(f"k = {ks.max()} neighbours cannot be found among {count} rows ({available} may be neighbours).")
    return ks


def _curves(
    x: Floats,
    codes: Ints,
    classes: int,
    points: Floats,
    own: Ints,
    where: Ints | None,
    e: Floats,
    rule: Preset,
    ks: Ints,
    top: int,
    majority: Floats | None = None,
) -> Floats:
    """Agreement (q, n, k) of points (q, d) with code `own` (q,), at row `where` (q,) of x or outside it (None).

    majority: (classes,) score at n = 0 of a point of each class; None where no feature is tied.
    """
    importance = np.abs(e)
    space: tuple[NDArray, NDArray] = (x, points)
    if rule.distance == "float32_8_lanes":
        space = x.astype(np.float32), points.astype(np.float32)
    order = top_order(importance, rule)
    inside = inside_ties(importance, order, rule)
    reach = top + int(np.argmin(inside[:, top - 1 :].any(axis=0)))  # a tie cut by `top` is followed to its end
    result = np.empty((len(points), reach, len(ks)))
    if rule.ties == "sklearn":
        _by_library(x, codes, points, own, order, rule, ks, result)
    else:
        columns = np.ascontiguousarray(space[0].T)
        onehot = np.eye(classes, dtype=np.float32)[codes]  # counts stay exact below 2**24 rows
        block = max(1, BLOCK // len(x))
        for start in range(0, len(points), block):
            some = slice(start, min(start + block, len(points)))
            at = None if where is None else where[some]
            for n, distance in enumerate(_distances(columns, space[1][some], order[some], rule, at, reach)):
                result[some, n] = _agreement(distance, onehot, codes, own[some], rule, ks)
    if majority is not None:
        result = interpolated(result, inside[:, :reach], majority[own])
    return result[:, :top]


def _distances(columns: NDArray, points: NDArray, order: Ints, rule: Preset, where: Ints | None, top: int):
    """Yield, for n = 1..top, the squared distances (b, N) over each point's top n columns; changed in place."""
    b = len(points)
    total = np.zeros((b, columns.shape[1]), dtype=columns.dtype)
    if where is not None and rule.include_self == "no":
        total[np.arange(b), where] = np.inf  # left out by index; infinity survives every addition
    each = np.arange(b)
    for n in range(top):
        if rule.distance == "float64":
            step = columns[order[:, n]]
            step -= points[each, order[:, n]][:, None]
            step *= step
            total += step
            yield total
        else:
            yield _eight_lanes(columns, points, np.sort(order[:, : n + 1], axis=1))


def _eight_lanes(columns: NDArray, points: NDArray, chosen: Ints) -> NDArray:
    """Squared distances (b, N) in float32, summed in index order over eight lanes, then lane by lane, then the tail.

    Float32 sums of many columns depend on their order, and among tied neighbours the last bit decides: this order
    gives the numbers published with paper 004 exactly.
    """
    each = np.arange(len(points))

    def square(n: int) -> NDArray:
        step = columns[chosen[:, n]] - points[each, chosen[:, n]][:, None]
        return step * step

    whole = chosen.shape[1] // 8 * 8
    total = np.zeros((len(points), columns.shape[1]), dtype=np.float32)
    if whole:
        lanes = [square(lane) for lane in range(8)]
        for n in range(8, whole):
            lanes[n % 8] += square(n)
        four = [lanes[lane] + lanes[lane + 4] for lane in range(4)]
        total = (four[0] + four[2]) + (four[1] + four[3])
    for n in range(whole, chosen.shape[1]):
        total += square(n)
    return total


def _agreement(distance: NDArray, onehot: NDArray, codes: Ints, own: Ints, rule: Preset, ks: Ints) -> Floats:
    """Scores (b, k) of points with code `own` (b,) from distances (b, N) to rows with labels `onehot` (N, classes)."""
    count = distance.shape[1]
    skip = int(rule.include_self == "drop_first_hit")
    wanted = min(int(ks.max()) + skip + 1, count)  # one more than needed: is the boundary tied?
    nearest = _nearest(distance, wanted)
    sorted_distance = np.take_along_axis(distance, nearest, axis=1)
    if rule.ties == "lower_index":
        nearest = _nearest_by_index(distance, nearest, sorted_distance, int(ks.max()) + skip)[:, skip:]
        counts = onehot[nearest].cumsum(axis=1, dtype=np.float64)
        chosen = counts[:, ks - 1]
    else:
        counts = onehot[nearest].cumsum(axis=1, dtype=np.float64)
        chosen = counts[:, ks - 1]
        for j, k in enumerate(ks):
            if k == count:
                continue
            edge = sorted_distance[:, k - 1] * (1.0 + TIED)
            tied = np.flatnonzero(sorted_distance[:, k] <= edge)
            if len(tied):
                chosen[tied, j] = (distance[tied] <= edge[tied, None]).astype(np.float32) @ onehot
    return _scores(chosen, own, rule)


def _scores(counts: Floats, own: Ints, rule: Preset) -> Floats:
    """Scores (b, k) from the neighbours' label counts (b, k, classes)."""
    mine = np.take_along_axis(counts, own[:, None, None], axis=2)[:, :, 0]
    if rule.aggregate == "mean":
        return mine / counts.sum(axis=2)
    most = counts.max(axis=2)
    if rule.vote_tie == "lower_label":
        return (counts.argmax(axis=2) == own[:, None]).astype(np.float64)
    return np.where(mine == most, 1.0 / (counts == most[:, :, None]).sum(axis=2), 0.0)


def _nearest(distance: NDArray, wanted: int) -> Ints:
    """Indices (b, wanted) of the nearest rows by increasing distance; equal distances in no defined order."""
    if wanted * 4 >= distance.shape[1]:
        return np.argsort(distance, axis=1)[:, :wanted]
    found = np.argpartition(distance, wanted - 1, axis=1)[:, :wanted]
    return np.take_along_axis(found, np.argsort(np.take_along_axis(distance, found, axis=1), axis=1), axis=1)


def _nearest_by_index(distance: NDArray, nearest: Ints, sorted_distance: NDArray, wanted: int) -> Ints:
    """Indices (b, wanted) of the nearest rows by (distance, index)."""
    picked = np.empty((len(distance), wanted), dtype=np.int64)
    if wanted < nearest.shape[1]:
        tied = sorted_distance[:, wanted - 1] == sorted_distance[:, wanted]
    else:
        tied = np.zeros(len(distance), dtype=bool)
    picked[~tied] = nearest[~tied, :wanted]
    if tied.any():
        edge = sorted_distance[tied, wanted - 1][:, None]
        close, level = distance[tied] < edge, distance[tied] == edge
        room = wanted - close.sum(axis=1, keepdims=True)
        level &= np.cumsum(level, axis=1) <= room
        picked[tied] = np.nonzero(close | level)[1].reshape(-1, wanted)
    picked.sort(axis=1)  # by index, then stably by distance
    by_distance = np.argsort(np.take_along_axis(distance, picked, axis=1), axis=1, kind="stable")
    return np.take_along_axis(picked, by_distance, axis=1)


def _by_library(
    x: Floats, codes: Ints, points: Floats, own: Ints, order: Ints, rule: Preset, ks: Ints, result: Floats
) -> None:
    """Fill `result` (q, n, k) through scikit-learn's index, one per set of columns, in whatever tie order it has."""
    from sklearn.neighbors import NearestNeighbors

    for n in range(result.shape[1]):
        chosen = np.sort(order[:, : n + 1], axis=1)
        for columns in np.unique(chosen, axis=0):
            some = np.flatnonzero((chosen == columns).all(axis=1))
            for j, k in enumerate(ks):
                index = NearestNeighbors(n_neighbors=int(k)).fit(x[:, columns])
                found = index.kneighbors(points[some][:, columns], return_distance=False)
                counts = np.eye(codes.max() + 1)[codes[found]].sum(axis=1)
                result[some, n, j] = _scores(counts[:, None], own[some], rule)[:, 0]


# The extension to forecasts: no labels, so the neighbours' mean output predicts f(x).


def regression_errors(gaps: Floats, outputs: Floats, order: Ints, k: int) -> Floats:
    """Squared errors (n, g) of k-NN regression of f(x) on the top 1..g groups, each window left out by index.

    gaps: (n, n, g) squared distances between windows per group; outputs: (n,) f(x); order: (n, g) groups of each
    window, most important first. Windows tied with the k-th neighbour all enter the mean.
    """
    n, g = order.shape
    errors = np.empty((n, g))
    for row in range(n):
        distance = np.cumsum(gaps[row][:, order[row]], axis=1)
        distance[row] = np.inf
        edge = np.partition(distance, k - 1, axis=0)[k - 1] * (1.0 + TIED)
        near = distance <= edge
        errors[row] = ((outputs @ near) / near.sum(axis=0) - outputs[row]) ** 2
    return errors


@METRICS.register(
    MetricCard(title="AXE (k-NN regression extension)", equation="paper 004, Algorithm 1, extended to forecasts")
)
@dataclass(frozen=True, slots=True)
class Axe:
    """How well the forecasts of windows alike in the top-n groups predict this window's: an extension of AXE_n^k.

    k: neighbours. k-NN regression of f(x) over the real windows, on-manifold by construction; distances in z-units
    over the inputs of the top n groups; a window is never its own neighbour. Scored as R2 skill against the mean of
    the other windows, and averaged over n = 1..g by the area under the curve: 1 is perfect, 0 no better than the mean.
    """

    k: Annotated[int, Field(ge=1)] = 5

    def score(self, evidence: Evidence) -> Mapping[str, Score]:
        """Per window (n,), whose mean is the R2 skill of the set: `axe`; `axe_random`, of one random ranking a window;
        `axe_gain`, the difference of the two.

        Raises NotApplicable for fewer than k + 1 windows and for a model that answers every window alike.
        """
        outputs, gaps, chance = evidence.shared(f"axe {self}", lambda: self._references(evidence))
        importance = evidence.importance
        raw = self._skill(outputs, gaps, ranking(importance))
        raw[~importance.any(axis=1)] = np.nan  # an all-zero explanation ranks nothing: undefined, not 0
        return {"axe": Score(raw), "axe_random": Score(chance), "axe_gain": Score(raw - chance)}

    def _references(self, evidence: Evidence) -> tuple[Floats, Floats, Floats]:
        """f(x) (n,), squared distances (n, n, g), and the skill of random rankings (n,): the same for every method."""
        windows, groups = evidence.windows, evidence.masker.groups
        if len(windows) <= self.k:
            raise NotApplicable(f"{len(windows)} windows are too few for {self.k} neighbours besides the window itself")
        outputs = evidence.model(windows.context)
        if np.ptp(outputs) <= TIED * max(np.abs(outputs).max(), 1e-300):
            raise NotApplicable(
                "the model answers every window alike, so any explanation recovers it: AXE is undefined"
            )
        scaled = windows.context / windows.channels.std
        gaps = np.stack([groups.total((scaled - window) ** 2) for window in scaled])
        order = [
            evidence.task_rng(f"axe random ranking {origin}").permutation(len(groups)) for origin in windows.origin
        ]
        return outputs, gaps, self._skill(outputs, gaps, np.stack(order))

    def _skill(self, outputs: Floats, gaps: Floats, order: Ints) -> Floats:
        """1 - error / mean squared error of the leave-one-out mean, averaged over n: (n,)."""
        n = len(outputs)
        reference = np.mean(((outputs - outputs.mean()) * n / (n - 1)) ** 2)
        return area(1.0 - regression_errors(gaps, outputs, order, self.k) / reference, DEFAULT, order.shape[1])
