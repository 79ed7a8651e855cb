"""The decision agent: which action a forecast leads to, and so when a counterfactual is valid (spec section 5)."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml
from numpy.lib.stride_tricks import sliding_window_view

from explainbench.core.arrays import Bools, Floats, Ints
from explainbench.core.errors import Corrupt, NotApplicable
from explainbench.core.forecaster import ExplainedModel
from explainbench.core.masking import Masker
from explainbench.core.windows import Windows

RULES = Path(__file__).parent / "rules" / "decision-reconstructed-v1.yaml"
# In the code, so that the rule is part of a cell's identity: the file cannot change without this module changing.
RULES_SHA256 = "44e414089a1fc38d821072c4b57a56ab54f1bffb902f199bf69b82f39142edbb"

LOW, OTHERWISE, HIGH = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Agent:
    """A fixed rule: f(x) >= high is one action, f(x) <= low another, all between a third. Never scored itself.

    low, high: thresholds in the target's unit; margin: the step beyond a threshold that a search aims at, a thousandth
    of the standard deviation of what the thresholds are percentiles of; actions: names in the order LOW, OTHERWISE,
    HIGH.
    """

    low: float
    high: float
    margin: float
    actions: tuple[str, str, str]

    @classmethod
    def of(cls, model: ExplainedModel, windows: Windows, masker: Masker) -> Agent:
        """The agent of a task, its thresholds fitted on the training series of the target.

        The percentiles are those of the explained scalar's own functional over all blocks of one horizon's length: a
        day's mean price is compared with other days' means, not with single quarter-hours. Raises NotApplicable where
        no rule is known for the target or there is no training series.
        """
        if masker.target is None or masker.climatology is None:
            raise NotApplicable("the decision rule needs a forecast target with a training series")
        name = windows.channels.names[masker.target]
        rule = _rules().get(name)
        if rule is None:
            raise NotApplicable(f"there is no decision rule for the target {name}; there are: {', '.join(_rules())}")
        series = masker.climatology.series[:, masker.target]
        reached = model.functional(sliding_window_view(series, windows.target.shape[1]))
        low, high = np.percentile(reached, [rule["low"]["at_most"], rule["high"]["at_least"]])
        if not low < high:
            raise NotApplicable(f"the training series of {name} is too flat: its thresholds leave a single action")
        actions = (rule["low"]["action"], rule["otherwise"], rule["high"]["action"])
        return cls(float(low), float(high), 1e-3 * float(reached.std()), actions)

    def action(self, f: Floats) -> Ints:
        """The action at f (n,): LOW, OTHERWISE or HIGH."""
        return np.where(f >= self.high, HIGH, np.where(f <= self.low, LOW, OTHERWISE))

    def changed(self, f: Floats, before: Ints) -> Bools:
        """Whether f (n,) leads to another action than `before` (n,): the validity of a counterfactual."""
        return self.action(f) != before

    def aim(self, f: Floats, before: Ints) -> tuple[Floats, Floats]:
        """Where the nearest other action begins, seen from f, with the margin; whether f must rise (1) or fall (-1).

        Both (n,). From OTHERWISE the nearer threshold is taken.
        """
        rises = np.where(before == OTHERWISE, self.high - f <= f - self.low, before == LOW)
        threshold = np.where(
            before == OTHERWISE,
            np.where(rises, self.high, self.low),
            np.where(before == LOW, self.low, self.high),
        )
        sign = np.where(rises, 1.0, -1.0)
        return threshold + sign * self.margin, sign


def _rules() -> dict:
    content = RULES.read_bytes()
    if hashlib.sha256(content).hexdigest() != RULES_SHA256:
        raise Corrupt(f"{RULES} is not the published file; a changed rule needs a new version name.")
    return yaml.safe_load(content)["targets"]
