"""EAMEX on a model: partial dependence and permutation importance of any `predict`, in few large calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from explainbench.core.arrays import Floats, Ints
from explainbench.core.errors import BadInput
from explainbench.metrics._eamex_definitions import Preset, Task, known, numbers

Predict = Callable[[Any], ArrayLike]
BLOCK = 65_536  # rows of one model call
LIST = 8 * BLOCK  # permuted rows listed, and sorted, before the model is asked
INTERPOLATED = 100  # points that a curve is interpolated to
FLAT = 1e-12  # of a curve's largest value: neighbours that differ by less are equal (preset `paper`)
HOLISTICAI_SEED = 0  # of the library's permutations, whatever random_state it is given


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """The rows a model is asked about. values: (n, d) numbers; names: of the columns; frame: the class of a data frame.

    `predict` is called with what the rows were given as: a data frame with the same columns, or an array.
    """

    values: Floats
    names: tuple[str, ...]
    frame: Any = None

    @classmethod
    def of(cls, X: Any) -> Rows:
        """Read a data frame or a matrix. Raises BadInput naming a column of text: encode it first."""
        if isinstance(X, cls):
            return X
        columns = getattr(X, "columns", None)
        names = tuple(map(str, columns if columns is not None else range(np.shape(X)[-1] if np.ndim(X) else 0)))
        table = np.asarray(X)
        if table.dtype.kind not in "fiub":
            _refuse_text(table, names)
        return cls(numbers(table, "X", 2), names, type(X) if columns is not None else None)

    def ask(self, predict: Predict, values: Floats, what: str = "predict") -> NDArray[Any]:
        """One model call on `values` (m, d): (m,) outputs. Raises BadInput for another shape or for non-finite ones."""
        asked = values if self.frame is None else self.frame(values, columns=list(self.names))
        output = np.asarray(predict(asked))
        if output.shape == (len(values), 1):
            output = output[:, 0]
        if output.shape != (len(values),):
            raise BadInput(
                f"{what} returned shape {output.shape} for {len(values)} rows; it must return one number or label per "
                "row (for class probabilities, one column of them)."
            )
        if output.dtype.kind == "f" and not np.isfinite(output).all():
            raise BadInput(f"{what} returned {int((~np.isfinite(output)).sum())} values that are not finite.")
        return output


@dataclass(frozen=True, slots=True, eq=False)
class Curves:
    """How the output moves with one feature. grid: (k,) its values; ice: (n, k) outputs, one curve per row."""

    name: str
    grid: Floats
    ice: Floats

    @property
    def average(self) -> Floats:
        """PD(x), the mean curve (k,)."""
        return self.ice.mean(axis=0)


@dataclass(frozen=True, slots=True, eq=False)
class PermutationImportance:
    """overall: (d,) non-negative loss in score when a feature is permuted; by_group: the same within groups of rows.

    Not normalised: the metrics divide by the sum themselves. score: accuracy or mean squared error, unpermuted;
    rises, rises_within: (n, d) what each row adds to the loss, permuted among all rows and within its group, with
    their sign; group: (n,) of each row, or empty.
    """

    names: tuple[str, ...]
    overall: Floats
    by_group: Mapping[str, Floats]
    score: float
    rises: Floats
    rises_within: Floats
    group: NDArray[np.str_]

    def top(self, count: int) -> tuple[str, ...]:
        """Names of the most important features; equal ones in alphabetical order, whatever the column order."""
        order = sorted(range(len(self.names)), key=lambda j: (-self.overall[j], self.names[j]))
        return tuple(self.names[j] for j in order[:count])


def partial_dependence(
    predict: Predict,
    X: Any,
    features: Sequence[str] | Sequence[int],
    points: int = 50,
    percentiles: tuple[float, float] = (0.0, 1.0),
) -> list[Curves]:
    """PD and its individual curves, for each of `features` (names, or column numbers of a matrix).

    predict: rows (m, d) -> (m,) numbers, such as the probability of a class; X: (n, d). The grid is every value of a
    feature with fewer than `points` values, else `points` equidistant ones between the percentiles. One model call
    asks about up to 65,536 rows; rows that differ in one feature stand together, which tree models traverse faster.
    Raises BadInput.
    """
    rows = Rows.of(X)
    if points < 2 or not 0 <= percentiles[0] < percentiles[1] <= 1:
        raise BadInput(f"a grid needs 2 points or more and rising percentiles in [0, 1], not {points}, {percentiles}.")
    return [_curves(predict, rows, _column(rows, feature), points, percentiles) for feature in features]


def fluctuation_ratio(curves: Curves | Sequence[Curves], preset: Preset = "paper") -> float:
    """Fluctuation ratio: how often the curve interpolated to 100 points turns, mean over features (def. 3.3).

    curves: of one feature or of several, grid (k,) and ice (n, k). In [0, 1], lower is better; a constant curve scores
    0. A level stretch is a direction of its own (sign 0), so the stairs of a tree model count twice per step. `paper`:
    of the partial dependence, over n - 2, values that differ by no more than rounding being equal. `holisticai`: mean
    over the individual curves, over 100, rounding included (its published numbers are those of P(class 0), which
    rounds differently from P(class 1)). Raises BadInput.
    """
    several = [curves] if isinstance(curves, Curves) else list(curves)
    if not several:
        raise BadInput("there are no curves; give the partial dependence of at least one feature.")
    return float(np.sort([fluctuations(one.grid, _chosen(one, preset), preset).mean() for one in several]).mean())


def fluctuations(grid: ArrayLike, curves: ArrayLike, preset: Preset = "paper") -> Floats:
    """Share of direction changes of each curve (m, k) over its grid (k,), rising: (m,). Raises BadInput."""
    known(preset, get_args(Preset), "preset")
    x, y = numbers(grid, "grid", 1), numbers(curves, "curves", 2)
    if y.shape[1] != len(x) or (np.diff(x) <= 0).any():
        raise BadInput(f"the grid must rise and have one point per curve value ({y.shape[1]}), not {len(x)} points.")
    if len(x) == 1:
        return np.zeros(len(y))
    if preset == "paper":
        y = _without_rounding(y)
    changes = (np.diff(np.sign(np.diff(_interpolated(x, y), axis=1)), axis=1) != 0).sum(axis=1)
    return changes / (INTERPOLATED if preset == "holisticai" else INTERPOLATED - 2)


def permutation_importance(
    predict: Predict,
    X: Any,
    y: ArrayLike,
    task: Task,
    groups: ArrayLike | None = None,
    repeats: int = 5,
    preset: Preset = "paper",
    rng: np.random.Generator | None = None,
) -> PermutationImportance:
    """Importance of each feature: mean loss of accuracy, or gain of mean squared error, when it is permuted.

    predict: rows (m, d) -> (m,) labels or values; X: (n, d); y: (n,); groups: (n,) a name per row, see `groups_of`.
    All features share the permutations, so the column order does not matter; within a group its own rows are permuted.
    A permuted row is asked about once, however often it comes up, and not at all where its value stays the same.
    `paper`: a negative mean (no better than noise) counts 0; `holisticai`: its absolute value, fixed permutations (rng
    unused). Without rng, a fixed stream. Raises BadInput.
    """
    known(preset, get_args(Preset), "preset")
    known(task, get_args(Task), "task")
    rows = Rows.of(X)
    truth = _targets(y, len(rows.values), "y", task)
    if repeats < 1:
        raise BadInput(f"repeats must be 1 or more, not {repeats}.")
    blocks = {"": np.arange(len(rows.values))} | _members(groups, len(rows.values))
    generator = rng or np.random.default_rng(0)
    sources = {name: _permutations(block, repeats, preset, generator) for name, block in blocks.items()}
    base = _labelled_like(rows.ask(predict, rows.values), truth, task)
    loss = _loss(base, truth, task)
    means = {name: np.zeros(len(rows.names)) for name in blocks}
    overall_rises, within = np.zeros(rows.values.shape), np.zeros(rows.values.shape)
    for batch in _batches(rows, blocks, sources):
        answers = _answers(predict, rows, batch)
        for asked, answer in zip(batch, answers):
            change = _loss(answer, truth[asked.row], task) - loss[asked.row]
            for name, times in asked.times.items():
                means[name][asked.feature] = float(times @ change) / (repeats * len(blocks[name]))
                each = np.bincount(asked.row, times * change, minlength=len(truth)) / repeats
                (within if name else overall_rises)[blocks[name], asked.feature] = each[blocks[name]]
    turned = {name: magnitude(mean, preset) for name, mean in means.items()}
    score = float(loss.mean()) if task == "regression" else 1.0 - float(loss.mean())
    group = np.asarray([] if groups is None else groups).astype(str)
    return PermutationImportance(rows.names, turned.pop(""), turned, score, overall_rises, within, group)


def magnitude(rise: Floats, preset: Preset) -> Floats:
    """A rise of the loss as an importance: below zero it is noise, 0 in `paper`, its size in `holisticai`."""
    return np.abs(rise) if preset == "holisticai" else np.maximum(rise, 0.0)


def groups_of(output: ArrayLike, task: Task) -> NDArray[np.str_]:
    """The groups of rank alignment: the class of each row, or its quartile Q0-Q1 .. Q3-Q4 in a regression: (n,).

    output: (n,) predictions (the paper) or true values (the library). Raises BadInput.
    """
    known(task, get_args(Task), "task")
    if task == "classification":
        return np.asarray(output).astype(str)
    values = numbers(output, "output", 1)
    quartile = np.searchsorted(np.quantile(values, [0.25, 0.5, 0.75]), values, side="left")
    return np.array(["Q0-Q1", "Q1-Q2", "Q2-Q3", "Q3-Q4"])[quartile]


def _curves(predict: Predict, rows: Rows, column: int, points: int, percentiles: tuple[float, float]) -> Curves:
    from scipy.stats.mstats import mquantiles

    grid = np.unique(rows.values[:, column])
    if len(grid) >= points:
        low, high = np.asarray(mquantiles(rows.values[:, column], prob=percentiles))
        if high <= low:
            raise BadInput(f"feature {rows.names[column]} is constant between its percentiles; widen the percentiles.")
        grid = np.linspace(low, high, points)
    n, k = len(rows.values), len(grid)
    ice = np.empty((n, k))
    step = max(1, BLOCK // k)
    for start in range(0, n, step):
        block = np.repeat(rows.values[start : start + step], k, axis=0)
        block[:, column] = np.tile(grid, len(block) // k)
        ice[start : start + step] = numbers(rows.ask(predict, block), "the output of predict", 1).reshape(-1, k)
    return Curves(rows.names[column], grid, ice)


def _chosen(curves: Curves, preset: Preset) -> Floats:
    return curves.ice if preset == "holisticai" else curves.average[None]


def _without_rounding(y: Floats) -> Floats:
    """Curves (m, k) in which neighbours that differ by no more than rounding are equal, so a level stretch is level."""
    band = FLAT * np.abs(y).max(axis=1, keepdims=True)
    same = np.abs(np.diff(y, axis=1)) <= band
    level = y.copy()
    for point in np.flatnonzero(same.any(axis=0)):
        level[:, point + 1] = np.where(same[:, point], level[:, point], level[:, point + 1])
    return level


def _interpolated(x: Floats, y: Floats) -> Floats:
    """Straight lines between the grid points, at 100 equidistant points, for all curves (m, k) at once: (m, 100).

    The arithmetic is that of numpy.interp, to the last bit, since signs of rounding errors count in one preset.
    """
    at = np.linspace(x[0], x[-1], INTERPOLATED)
    left = np.clip(np.searchsorted(x, at, side="right") - 1, 0, len(x) - 2)
    slope = (np.diff(y, axis=1) / np.diff(x))[:, left]
    lines = slope * (at - x[left]) + y[:, left]
    lines[:, -1] = y[:, -1]
    return lines


def _permutations(block: Ints, repeats: int, preset: Preset, rng: np.random.Generator) -> Ints:
    """Where each row of `block` takes its value from, in each repeat: (repeats, len(block)) row numbers."""
    if preset == "paper":
        return np.stack([rng.permutation(block) for _ in range(repeats)])
    legacy = np.random.RandomState(np.random.RandomState(HOLISTICAI_SEED).randint(np.iinfo(np.int32).max + 1))
    order, source = np.arange(len(block)), block
    sources = []
    for _ in range(repeats):  # the library's repeats shuffle the shuffled column again
        legacy.shuffle(order)
        source = source[order]
        sources.append(source)
    return np.stack(sources)


@dataclass(frozen=True, slots=True, eq=False)
class _Asked:
    """What the model is asked about one feature: distinct rows and values (m,), and how often each group meets them."""

    feature: int
    row: Ints
    value: Floats
    times: Mapping[str, Floats]


def _batches(rows: Rows, blocks: Mapping[str, Ints], sources: Mapping[str, Ints]) -> Iterator[list[_Asked]]:
    """The changed rows of every feature, in lists of at least `LIST` rows (but the last)."""
    batch: list[_Asked] = []
    for feature in range(len(rows.names)):
        batch.append(_changed(rows.values[:, feature], feature, blocks, sources))
        if sum(len(asked.row) for asked in batch) >= LIST:
            yield batch
            batch = []
    if batch:
        yield batch


def _changed(column: Floats, feature: int, blocks: Mapping[str, Ints], sources: Mapping[str, Ints]) -> _Asked:
    levels, code = np.unique(column, return_inverse=True)
    met = {}
    for name, block in blocks.items():
        there = code[sources[name]]
        pairs = (block * len(levels) + there)[there != code[block]]  # a (row, value) pair as one number
        met[name] = np.unique(pairs, return_counts=True)
    wanted = np.unique(np.concatenate([pairs for pairs, _ in met.values()]))
    times = {}
    for name, (pairs, counts) in met.items():
        times[name] = np.zeros(len(wanted))
        times[name][np.searchsorted(wanted, pairs)] = counts
    row, level = np.divmod(wanted, len(levels))
    return _Asked(feature, row, levels[level], times)


def _answers(predict: Predict, rows: Rows, batch: Sequence[_Asked]) -> list[NDArray[Any]]:
    """The outputs for every feature of a batch, in calls of at most `BLOCK` rows, all changes of a row together."""
    row = np.concatenate([asked.row for asked in batch])
    value = np.concatenate([asked.value for asked in batch])
    feature = np.repeat([asked.feature for asked in batch], [len(asked.row) for asked in batch])
    order = np.argsort(row, kind="stable")
    outputs = []
    for start in range(0, len(row), BLOCK):
        now = order[start : start + BLOCK]
        block = rows.values[row[now]]
        block[np.arange(len(now)), feature[now]] = value[now]
        outputs.append(rows.ask(predict, block))
    together = np.concatenate(outputs)[np.argsort(order)] if outputs else np.empty(0)
    return np.split(together, np.cumsum([len(asked.row) for asked in batch])[:-1])


def _loss(output: NDArray[Any], truth: NDArray[Any], task: Task) -> Floats:
    """Per row (n,): whether the label is wrong, or the squared error."""
    if task == "classification":
        return (output != truth).astype(np.float64)
    return (output.astype(np.float64) - truth) ** 2


def _targets(y: ArrayLike, n: int, what: str, task: Task) -> NDArray[Any]:
    values = numbers(y, what, 1) if task == "regression" else np.asarray(y)
    if values.shape != (n,):
        raise BadInput(f"{what} must hold one value per row, {n} of them, not shape {values.shape}.")
    return values


def _labelled_like(output: NDArray[Any], truth: NDArray[Any], task: Task) -> NDArray[Any]:
    """`output`, refused where a classifier returns nothing that is a label of y."""
    alike = (output.dtype.kind in "fiub") == (truth.dtype.kind in "fiub")
    if task == "classification" and not (alike and np.isin(output, truth).any()):
        raise BadInput(
            f"predict returned {output[0]!r} for the first row, and no output is a label of y (such as {truth[0]!r}); "
            "it must return labels, not probabilities."
        )
    return output


def _members(groups: ArrayLike | None, n: int) -> dict[str, Ints]:
    if groups is None:
        return {}
    names = np.asarray(groups).astype(str)
    if names.shape != (n,):
        raise BadInput(f"groups must give one name per row, {n} of them, not shape {names.shape}.")
    return {str(name): np.flatnonzero(names == name) for name in np.unique(names)}


def _column(rows: Rows, feature: str | int) -> int:
    if isinstance(feature, str) and feature in rows.names:
        return rows.names.index(feature)
    if not isinstance(feature, str) and 0 <= feature < len(rows.names):
        return int(feature)
    raise BadInput(f"{feature!r} is not a column of X; its columns are {', '.join(rows.names[:12])} ...")


def _refuse_text(table: NDArray[Any], names: tuple[str, ...]) -> None:
    """Raise BadInput for the first column that holds anything but numbers."""
    if table.ndim != 2:
        return
    for column, name in enumerate(names):
        for row, value in enumerate(table[:, column]):
            if isinstance(value, str) or not np.isscalar(value):
                raise BadInput(
                    f"column {name} of X holds {value!r} in row {row}, which is not a number; encode categorical "
                    "columns first (for example one column of 0 and 1 per category)."
                )
