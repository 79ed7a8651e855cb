"""Synthetic ground-truth datasets: it is known, row by row, which few of 48 columns made the label (paper 002).

A dataset is a combination of relationship rules. Its rows are cut into one stratum per rule; in a stratum the rule
makes the label from its own columns, and every other column is noise. Rows carry no mark of their stratum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from explainbench.core.arrays import Bools, Floats, Ints
from explainbench.core.cell import stream
from explainbench.core.errors import BadInput, Corrupt
from explainbench.data._tables import read_parquet, write_parquet

VERSION = "ground-truth-v1"
ORDER = "reconstructed-v1"  # the paper's orders of importance are lost, these are ours
COLUMNS = 48
ROWS = 10_000
DECIMALS = 6  # what 32-bit floats hold of [0, 1]; the last bits of a processor's sine do not show
SIZES = range(2, 12)  # rules of a member of the pool; the paper says 2-12, but its 4,082 are the sizes 2-11

Draw = Callable[[int, int], tuple[Floats, Ints]]  # (rows, seed) -> the rule's columns (n, k), labels (n,)


@dataclass(frozen=True, slots=True)
class Relationship:
    """A relationship rule (paper 002, Table 2). first: its first column, from 1; tiers: importance of its columns, 1
    for the most important, equal where none is more important than the other.
    """

    number: int
    first: int
    tiers: tuple[int, ...]
    text: str
    draw: Draw

    @property
    def columns(self) -> range:
        """Its columns, from 0."""
        return range(self.first - 1, self.first - 1 + len(self.tiers))

    @property
    def ordered(self) -> bool:
        """Whether one of its columns is more important than another."""
        return len(set(self.tiers)) > 1


def _above_median(value: Floats) -> Ints:
    return (value >= np.median(value)).astype(np.int64)


def _scaled(values: Floats) -> Floats:
    """Columns brought to [0, 1]."""
    low, high = values.min(axis=0), values.max(axis=0)
    return (values - low) / (high - low)


def _linear(columns: int) -> Draw:
    """1[sum of 20 x >= median]; with three columns (20 x4)^2 + 2 (20 x5) + 20 x6."""

    def draw(rows: int, seed: int) -> tuple[Floats, Ints]:
        x = _scaled(np.random.default_rng(seed).standard_normal((rows, columns)))
        terms = 20 * x if columns < 3 else np.stack([(20 * x[:, 0]) ** 2, 40 * x[:, 1], 20 * x[:, 2]], axis=1)
        return x, _above_median(terms.sum(axis=1))

    return draw


def _generated(name: str, target: Callable[[Floats], Any], **options: Any) -> Draw:
    """A generator of scikit-learn. target: its y as a label 0 or 1."""

    def draw(rows: int, seed: int) -> tuple[Floats, Ints]:
        from sklearn import datasets

        x, y = getattr(datasets, name)(n_samples=rows, random_state=seed, **options)
        return x, np.asarray(target(y)).astype(np.int64)

    return draw


def _label(y: Floats) -> Floats:
    return y


def _positive(y: Floats) -> Bools:
    return y > 0


def _over_median(y: Floats) -> Bools:
    return y > np.median(y)


def _moons(rows: int, seed: int) -> tuple[Floats, Ints]:
    return _generated("make_moons", _label, noise=0.1)(rows, seed)


# Tiers of rules 3 and 7-9: coefficients, and variance-based total effects on the value before the median cut
# (0.273, 0.273, 0.093, 0.350, 0.087; 0.001, 0.507, 0.624, 0.000; 0.223, 0.237, 0.679, 0.000). Rules 8 and 9 hardly use
# their fourth column. The other rules treat their columns alike, or know no order.
RULES: tuple[Relationship, ...] = (
    Relationship(1, 1, (1,), "1[20 x1 >= median]", _linear(1)),
    Relationship(2, 2, (1, 1), "1[20 x2 + 20 x3 >= median]", _linear(2)),
    Relationship(3, 4, (1, 2, 3), "1[(20 x4)^2 + 2 (20 x5) + 20 x6 >= median]", _linear(3)),
    Relationship(
        4, 7, (1,) * 2, "Gaussian quantiles", _generated("make_gaussian_quantiles", _label, n_features=2, n_classes=2)
    ),
    Relationship(
        5, 9, (1,) * 5, "Gaussian quantiles", _generated("make_gaussian_quantiles", _label, n_features=5, n_classes=2)
    ),
    Relationship(6, 14, (1,) * 10, "Hastie et al. 10.2", _generated("make_hastie_10_2", _positive)),
    Relationship(
        7, 24, (2, 2, 3, 1, 4), "Friedman 1, y > median", _generated("make_friedman1", _over_median, n_features=5)
    ),
    Relationship(8, 29, (3, 2, 1, 4), "Friedman 2, y > median", _generated("make_friedman2", _over_median)),
    Relationship(9, 33, (3, 2, 1, 4), "Friedman 3, y > median", _generated("make_friedman3", _over_median)),
    Relationship(
        10,
        37,
        (1,) * 4,
        "4 informative clusters, class separation 5",
        _generated(
            "make_classification", _label, n_features=4, n_informative=4, n_redundant=0, n_repeated=0, class_sep=5.0
        ),
    ),
    Relationship(
        11,
        41,
        (1,) * 6,
        "two blobs, standard deviation 8",
        _generated("make_blobs", _label, n_features=6, centers=2, cluster_std=8.0),
    ),
    Relationship(12, 47, (1, 1), "two moons, noise 0.1", _moons),
)

# The 11 datasets of the paper's suite, in its order of complexity (1 = easiest).
PUBLISHED: tuple[tuple[int, ...], ...] = (
    (1, 3),
    (3, 9, 10),
    (1, 5, 6, 11, 12),
    (1, 3, 7, 9),
    (2, 3, 4, 5, 6, 8, 10, 12),
    (2, 3, 5, 6, 8, 9, 10, 11),
    (1, 2, 3, 5, 6, 8, 9, 10, 11, 12),
    (1, 4, 5, 6, 7, 8, 10, 11, 12),
    (2, 3, 4, 5, 7, 8, 10),
    (4, 5, 6, 7, 8, 10, 11, 12),
    (5, 6, 7, 9, 10),
)


@dataclass(frozen=True, slots=True, eq=False)
class GroundTruth:
    """A generated dataset. x: (n, 48) in [0, 1]; y: (n,) 0 or 1; rule: (n,) the rule that made the label;
    truth: (n, 48) share of the label that each column carries: zero outside the rule's columns, 1 in sum, larger for a
    more important column, equal where the rule knows no order.
    """

    name: str
    x: Floats
    y: Ints
    rule: Ints
    truth: Floats


def name_of(rules: Sequence[int]) -> str:
    """The name of a combination, such as `rr-1-3`."""
    return "rr-" + "-".join(map(str, rules))


def rules_of(name: str) -> tuple[int, ...]:
    """The rules of a member of the pool. Raises BadInput for any other name."""
    try:
        prefix, *numbers = name.split("-")
        rules = tuple(int(number) for number in numbers)
    except ValueError:
        prefix, rules = "", ()
    if (
        prefix != "rr"
        or name_of(sorted(set(rules))) != name
        or len(rules) not in SIZES
        or not set(rules) <= set(range(1, len(RULES) + 1))
    ):
        raise BadInput(
            f"{name!r} is no combination of relationship rules; write rr- and {SIZES.start} to {SIZES.stop - 1} "
            f"different rules from 1 to {len(RULES)} in ascending order, such as rr-1-3."
        )
    return rules


def pool() -> Iterator[str]:
    """The names of the 4,082 combinations of 2 to 11 rules."""
    for size in SIZES:
        for rules in combinations(range(1, len(RULES) + 1), size):
            yield name_of(rules)


def generate(name: str, seed: int, rows: int = ROWS) -> GroundTruth:
    """Build the dataset: strata of equal size up to rounding, columns scaled to [0, 1] in each. Raises BadInput.

    Every stratum draws from streams named by seed, dataset and rule.
    """
    rules = rules_of(name)
    if rows < 8 * len(rules):
        raise BadInput(f"{name} needs at least {8 * len(rules)} rows, 8 per rule, not {rows}.")
    edges = np.linspace(0, rows, len(rules) + 1).round().astype(int)
    x, y = np.empty((rows, COLUMNS)), np.empty(rows, dtype=np.int64)
    truth = np.zeros((rows, COLUMNS))
    for number, start, stop in zip(rules, edges[:-1], edges[1:], strict=True):
        relation = RULES[number - 1]
        rng = stream(seed, VERSION, name, number)
        stratum = rng.standard_normal((stop - start, COLUMNS))
        own, y[start:stop] = relation.draw(stop - start, int(rng.integers(2**32)))
        stratum[:, relation.columns] = own
        x[start:stop] = _scaled(stratum)
        truth[start:stop, relation.columns] = _shares(relation.tiers)
    return GroundTruth(name, x.round(DECIMALS), y, np.repeat(rules, np.diff(edges)), truth)


def _shares(tiers: Sequence[int]) -> Floats:
    """Positive shares that sum to 1 and fall by tier."""
    weight = 1.0 + max(tiers) - np.asarray(tiers, dtype=np.float64)
    return weight / weight.sum()


def write_ground_truth(path: Path, data: GroundTruth) -> None:
    """Write a dataset as Parquet, always the same bytes: x1..x48, y, rule, and per row `features`, the columns that
    made the label, most important first, and their `tiers`."""
    listed = {number: _listed(RULES[number - 1]) for number in np.unique(data.rule).tolist()}
    columns: dict[str, Any] = {f"x{c + 1}": data.x[:, c].astype(np.float32) for c in range(COLUMNS)}
    columns |= {"y": data.y.astype(np.int8), "rule": data.rule.astype(np.int8)}
    for name, part in (("features", 0), ("tiers", 1)):
        cells = np.empty(len(data.y), dtype=object)
        cells[:] = [listed[number][part] for number in data.rule.tolist()]
        columns[name] = cells
    write_parquet(path, columns)


def _listed(relation: Relationship) -> tuple[list[str], list[int]]:
    order = np.argsort(relation.tiers, kind="stable")
    return [f"x{relation.first + i}" for i in order], [relation.tiers[i] for i in order]


def read_ground_truth(path: Path) -> GroundTruth:
    """Read what `write_ground_truth` wrote; the truth of a row is what the row says. Raises BadInput, Corrupt."""
    columns = read_parquet(path)
    names = [f"x{c + 1}" for c in range(COLUMNS)]
    missing = [name for name in (*names, "y", "rule", "features", "tiers") if name not in columns]
    if missing:
        raise Corrupt(f"{path} has no column {missing[0]!r}; generate the dataset again.")
    truth = np.zeros((len(columns["y"]), COLUMNS))
    known: dict[tuple[Any, ...], tuple[list[int], Floats]] = {}
    for row, (features, tiers) in enumerate(zip(columns["features"], columns["tiers"], strict=True)):
        key = (*features, *tiers)
        if key not in known:
            if len(features) == 0 or not set(features) <= set(names) or len(features) != len(tiers):
                raise Corrupt(
                    f"{path}, row {row + 1}: {list(features)} is no ground truth; generate the dataset again."
                )
            known[key] = [names.index(name) for name in features], _shares(tiers)
        at, shares = known[key]
        truth[row, at] = shares
    x = np.stack([columns[name] for name in names], axis=1).astype(np.float64).round(DECIMALS)
    return GroundTruth(path.stem, x, columns["y"].astype(np.int64), columns["rule"].astype(np.int64), truth)


def select(auc: Mapping[str, float], count: int = 11) -> tuple[str, ...]:
    """The datasets at the 0th to 100th percentiles of model performance, easiest first (paper 002, dataset selection).

    auc: of the pool's members. Each percentile takes the nearest member not taken yet, ties by name. Raises BadInput.
    """
    if len(auc) < count:
        raise BadInput(f"{count} datasets cannot be selected from {len(auc)}; score more members of the pool.")
    left = sorted(auc, key=lambda name: (-auc[name], name))
    chosen = []
    for level in np.percentile([auc[name] for name in left], np.linspace(100, 0, count)):
        nearest = min(left, key=lambda name: (abs(auc[name] - level), name))
        left.remove(nearest)
        chosen.append(nearest)
    return tuple(chosen)
