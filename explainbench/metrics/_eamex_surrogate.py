"""EAMEX on surrogates: how well, and how steadily, a shallow tree stands in for a model."""

from __future__ import annotations

import copy
import hashlib
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from explainbench.core.arrays import Bools, Floats, Ints
from explainbench.core.errors import BadInput, NotApplicable
from explainbench.metrics._eamex_definitions import Preset, Task, known, numbers
from explainbench.metrics._eamex_importance import jaccard
from explainbench.metrics._eamex_model import Rows

DEPTH = 3  # levels of a surrogate tree (paper 003, def. 3.8)
FOREST = 100  # trees of which `holisticai` keeps the best
FOREST_SEED = 42


@dataclass(frozen=True, slots=True, eq=False)
class Surrogate:
    """A tree of depth 3 fitted on a model's outputs. features: (d,) the columns it splits on.

    order: (d,) the columns in the order in which the tree got them; classes: labels of a classifier, else None;
    state: the random state after fitting, which preset `holisticai` goes on from.
    """

    tree: Any
    order: Ints
    features: Bools
    classes: NDArray[Any] | None
    state: Any = None

    def predict(self, X: Any) -> NDArray[Any]:
        """The tree's outputs for rows (m, d): (m,)."""
        output = self.tree.predict(Rows.of(X).values[:, self.order])
        return output if self.classes is None else self.classes[output.astype(np.int64)]


def fit_surrogate(X: Any, output: ArrayLike, task: Task, preset: Preset = "paper") -> Surrogate:
    """Fit the surrogate of a model on rows X (n, d) and the model's outputs there (n,): labels or values.

    `paper`: one decision tree of depth 3, which gets the columns in an order that depends on nothing but their values,
    so that shuffling them changes nothing. `holisticai`: the tree of a random forest (100 trees, depth 3, seed 42) that
    fits best. Raises BadInput, NotApplicable where a classifier puts all rows into one class.
    """
    known(preset, get_args(Preset), "preset")
    known(task, get_args(Task), "task")
    rows, answers = Rows.of(X), _outputs(output, task, "the model's output")
    if len(answers) != len(rows.values):
        raise BadInput(f"the model's output must hold one value per row, {len(rows.values)}, not {len(answers)}.")
    if task == "classification" and len(np.unique(answers)) == 1:
        raise NotApplicable(
            f"the model puts all {len(answers)} rows into class {answers[0]}, so a surrogate is a constant"
        )
    state = np.random.RandomState(FOREST_SEED) if preset == "holisticai" else None
    return _fit(rows, answers, task, state)


def performance_degradation(y: ArrayLike, output: ArrayLike, surrogate: ArrayLike, task: Task) -> float:
    """Performance degradation: the relative loss of accuracy, or gain of mean squared error (eqs. 9, 10).

    y, output, surrogate: (n,) true values, the model's and the surrogate's outputs. Lower is better; in [-2, 2] for
    classification (negative where the surrogate is better), [0, 2] for regression; 0 where both are equal, zero
    included. The presets agree. Raises BadInput.
    """
    known(task, get_args(Task), "task")
    truth, model, tree = _same_length(task, y=y, output=output, surrogate=surrogate)
    return float(degradation(performance(truth, model, task).mean(), performance(truth, tree, task).mean(), task))


def performance(truth: NDArray[Any], output: NDArray[Any], task: Task) -> Floats:
    """What each row (n,) adds to P: whether the label is right, or the squared error."""
    return (truth == output).astype(np.float64) if task == "classification" else (truth - output) ** 2


def degradation(p_b: ArrayLike, p_s: ArrayLike, task: Task) -> Floats:
    """Eqs. 9 and 10 of performances of the model and of its surrogate, of any shape; 0 where both are equal."""
    model, tree = np.asarray(p_b, dtype=np.float64), np.asarray(p_s, dtype=np.float64)
    worse = model - tree if task == "classification" else np.maximum(tree - model, 0.0)
    return np.divide(2 * worse, model + tree, out=np.zeros_like(worse), where=worse != 0)


def surrogate_fidelity(output: ArrayLike, surrogate: ArrayLike, task: Task, preset: Preset = "paper") -> float:
    """Surrogate fidelity: the share of equal labels, or one minus the mean relative error (eqs. 11, 12).

    output, surrogate: (n,). Higher is better; in [0, 1] for classification, [-1, 1] for regression (a row whose two
    values differ in sign has a relative error up to 2); two zeros agree. `holisticai` adds 1e-10 to the denominator.
    Raises BadInput.
    """
    known(preset, get_args(Preset), "preset")
    known(task, get_args(Task), "task")
    model, tree = _same_length(task, output=output, surrogate=surrogate)
    return float(1.0 - infidelity(model, tree, task, preset).mean())


def infidelity(model: NDArray[Any], tree: NDArray[Any], task: Task, preset: Preset) -> Floats:
    """Per row (n,): whether the labels differ, or the relative error."""
    if task == "classification":
        return (model != tree).astype(np.float64)
    error = np.abs(model - tree)
    largest = np.maximum(np.abs(model), np.abs(tree)) + (1e-10 if preset == "holisticai" else 0.0)
    return np.divide(error, largest, out=np.zeros_like(error), where=largest > 0)


def surrogate_feature_stability(
    X: Any,
    output: ArrayLike,
    task: Task,
    bootstraps: int = 10,
    preset: Preset = "paper",
    original: Surrogate | None = None,
    rng: np.random.Generator | None = None,
) -> float:
    """Surrogate feature stability: mean Jaccard similarity of the tree's features and those on resamples (eq. 13).

    X: (n, d); output: (n,) the model's; bootstraps: k; original: the tree to compare with, else one fitted on X.
    In [0, 1], higher is better. `paper`: rows drawn with replacement by rng (without it, a fixed stream). `holisticai`:
    its seeds, strata of equal predictions; trees without a split are left out, and without any other tree the score
    is 0. Raises BadInput for fewer rows than bootstraps, NotApplicable for a single class.
    """
    overlaps = surrogate_overlaps(X, output, task, bootstraps, preset, original, rng)
    return float(np.mean(overlaps)) if len(overlaps) else 0.0


def surrogate_overlaps(
    X: Any,
    output: ArrayLike,
    task: Task,
    bootstraps: int = 10,
    preset: Preset = "paper",
    original: Surrogate | None = None,
    rng: np.random.Generator | None = None,
) -> Floats:
    """The Jaccard similarities whose mean is `surrogate_feature_stability`: (k,), in `holisticai` possibly fewer."""
    rows, answers = Rows.of(X), _outputs(output, task, "the model's output")
    n = len(rows.values)
    if bootstraps < 1 or n < bootstraps:
        raise BadInput(f"X has {n} rows, fewer than the {bootstraps} bootstraps asked; give more rows.")
    first = original or fit_surrogate(rows, answers, task, preset)
    if len(first.features) != len(rows.names):
        raise BadInput(f"the original surrogate has {len(first.features)} columns, and X has {len(rows.names)}.")
    generator = rng or np.random.default_rng(0)
    similarities = []
    for draw in range(bootstraps):
        if preset == "holisticai":
            from sklearn.utils import resample

            drawn = resample(np.arange(n), random_state=draw, stratify=answers)
        else:
            drawn = generator.integers(0, n, n)
        resampled = Rows(rows.values[drawn], rows.names)
        # a copy each time: in the library every resample starts from the same random state
        order = None if preset == "holisticai" else first.order
        again = _fit(resampled, answers[drawn], task, copy.deepcopy(first.state), order)
        if preset == "paper" or (first.features.any() and again.features.any()):
            similarities.append(float(jaccard(first.features, again.features)))
    return np.array(similarities)


def _fit(rows: Rows, answers: NDArray[Any], task: Task, state: Any, order: Ints | None = None) -> Surrogate:
    """One tree on the columns in `order` (None: canonical order), or with a `state` the best tree of its forest."""
    classes, target = np.unique(answers, return_inverse=True) if task == "classification" else (None, answers)
    if state is not None:
        tree = _best_of_forest(rows, target, task, state)
        order = np.arange(len(rows.names))
    else:
        from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

        order = _canonical(rows) if order is None else order
        kind = DecisionTreeClassifier if task == "classification" else DecisionTreeRegressor
        tree = kind(max_depth=DEPTH, random_state=0).fit(rows.values[:, order], target)
    features = np.zeros(len(order), dtype=bool)
    features[order[tree.tree_.feature[tree.tree_.feature >= 0]]] = True
    return Surrogate(tree, order, features, classes, state)


def _best_of_forest(rows: Rows, target: NDArray[Any], task: Task, state: Any) -> Any:
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

    kind = RandomForestClassifier if task == "classification" else RandomForestRegressor
    forest = kind(n_estimators=FOREST, random_state=state, max_depth=DEPTH).fit(rows.values, target)
    loss = (
        (lambda output: (output != target).mean())
        if task == "classification"
        else (lambda output: ((output - target) ** 2).mean())
    )
    return min(forest.estimators_, key=lambda tree: loss(tree.predict(rows.values)))


def _canonical(rows: Rows) -> Ints:
    """The columns by a digest of their values: an order that does not depend on how they were given."""
    digests = [hashlib.blake2b((column + 0.0).tobytes()).digest() for column in np.ascontiguousarray(rows.values.T)]
    return np.array(sorted(range(len(digests)), key=lambda j: digests[j]))


def _outputs(values: ArrayLike, task: Task, what: str) -> NDArray[Any]:
    array = numbers(values, what, 1) if task == "regression" else np.asarray(values)
    if array.ndim != 1 or not len(array):
        raise BadInput(f"{what} must be a vector with one value per row, not an array of shape {array.shape}.")
    return array


def _same_length(task: Task, **vectors: ArrayLike) -> list[NDArray[Any]]:
    arrays = [_outputs(values, task, name) for name, values in vectors.items()]
    if len({len(array) for array in arrays}) > 1:
        lengths = ", ".join(f"{name} {len(array)}" for name, array in zip(vectors, arrays))
        raise BadInput(f"the vectors differ in length ({lengths}); give one value per row in each.")
    return arrays
