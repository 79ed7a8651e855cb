"""Anchor against the authors' package: the same rules where the classifier is a rule, the same statistics elsewhere."""

import json
from pathlib import Path

import numpy as np
import pytest

from explainbench.core.cell import stream
from explainbench.core.tabular import TABULAR_METHODS
from explainbench.methods._tabular._anchor_space import kl_lower, kl_upper

HERE = Path(__file__).parent / "anchor_exp"


class Rule:
    """Two half-lines at quartiles."""

    def predict(self, x):
        return ((x[:, 0] > 0.5) & (x[:, 1] <= 0.75)).astype(float)


class Smooth:
    """A linear score and an interaction."""

    def predict(self, x):
        return (4 * x[:, 0] - 3 * x[:, 1] + 3 * x[:, 2] * x[:, 3] > 1.0).astype(float)


@pytest.fixture(scope="module")
def golden():
    with np.load(HERE / "inputs.npz") as arrays:
        return dict(arrays), json.loads((HERE / "expected.json").read_text())


def ours(model, arrays, seed=0):
    return TABULAR_METHODS.build("anchor").explain(model, arrays["rows"], arrays["background"], stream(seed, "anchor"))


def test_a_rule_is_found_by_both(golden):
    arrays, expected = golden
    found = ours(Rule(), arrays)
    for row, mine, theirs in zip(arrays["rows"], found.named, expected["rule"][0], strict=True):
        columns = set(np.flatnonzero(mine).tolist())
        either = row[0] <= 0.5 and row[1] > 0.75  # each condition that fails explains class 0 on its own
        assert columns == set(theirs["columns"]) or (either and columns <= {0, 1})
    assert found.notes["precision"] == pytest.approx(np.ones(24))
    mean = np.mean([[row["coverage"] for row in run] for run in expected["rule"]])
    assert found.notes["coverage"].mean() > mean - 0.01


def test_a_smooth_classifier_gets_anchors_alike_in_length_precision_and_coverage(golden):
    arrays, expected = golden
    runs = [ours(Smooth(), arrays, seed) for seed in range(2)]
    theirs = expected["smooth"]
    assert np.mean([run.named.sum(axis=1).mean() for run in runs]) == pytest.approx(
        np.mean([[len(row["columns"]) for row in run] for run in theirs]), abs=0.35
    )
    for note, tolerance in (("precision", 0.02), ("coverage", 0.03)):
        expected_mean = np.mean([[row[note] for row in run] for run in theirs])
        assert np.mean([run.notes[note].mean() for run in runs]) == pytest.approx(expected_mean, abs=tolerance), note
    assert np.mean([run.notes["found"].mean() for run in runs]) > 0.95
    alike = []
    for number in range(24):  # as alike as the package is to itself
        mine = [set(np.flatnonzero(run.named[number]).tolist()) for run in runs]
        alike += [len(a & b) / len(a | b) for a in mine for run in theirs for b in [set(run[number]["columns"])]]
    assert np.mean(alike) > 0.75


def test_bounds_by_the_divergence_itself():
    def divergence(p, q):
        return p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))

    mean, level = np.array([0.2, 0.5, 0.9]), np.array([0.05, 0.01, 0.02])
    upper, lower = kl_upper(mean, level), kl_lower(mean, level)
    assert divergence(mean, upper) == pytest.approx(level, rel=1e-2)
    assert divergence(mean, lower) == pytest.approx(level, rel=1e-2)
    assert (lower < mean).all()
    assert (mean < upper).all()
    assert float(kl_upper(1.0, 0.1)) == 1.0
