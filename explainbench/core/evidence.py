"""C: the single argument of every metric, and what a registered metric declares."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

import numpy as np

from explainbench.core.arrays import Floats
from explainbench.core.cell import Score
from explainbench.core.context import Context
from explainbench.core.explanation import Explanation, MethodCard
from explainbench.core.forecaster import ExplainedModel
from explainbench.core.masking import Masker
from explainbench.core.windows import Windows

T = TypeVar("T")


class Shared(Protocol):
    """Results that all methods of one (task, model) reuse: computed once, from streams named by (task, model)."""

    def __call__(self, name: str, compute: Callable[[], T]) -> T: ...


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """Everything a metric may look at.

    runs: one explanation per run (R for stochastic methods, 1 for deterministic ones);
    explain_again(windows, run): the method on other windows with the seeds of that run;
    rng(purpose): streams of this cell; task_rng(purpose): streams shared by every cell of the task;
    shared(name, compute): memo shared by every method of the (task, model);
    contexts: deployment contexts, the first of which is the reference.
    """

    windows: Windows
    model: ExplainedModel
    masker: Masker
    method: MethodCard
    runs: tuple[Explanation, ...]
    target_std: float
    explain_again: Callable[[Windows, int], Explanation]
    rng: Callable[[str], np.random.Generator]
    task_rng: Callable[[str], np.random.Generator]
    shared: Shared
    contexts: tuple[Context, ...] = ()

    def grouped(self, explanation: Explanation) -> Floats:
        """e over groups (n, g): summed for signed methods, averaged for non-negative ones."""
        groups = self.masker.groups
        reduce = groups.total if self.method.vector == "signed" else groups.average
        return reduce(explanation.attribution)

    @property
    def importance(self) -> Floats:
        """e (n, g): the mean over runs."""
        return np.mean([self.grouped(run) for run in self.runs], axis=0)


class Metric(Protocol):
    """One file in `metrics/`: a frozen dataclass of options with one working method."""

    def score(self, evidence: Evidence) -> Mapping[str, Score]:
        """Named scores; the one called like the file is the metric itself. Raises NotApplicable or Pending."""
        ...


@dataclass(frozen=True, slots=True)
class MetricCard:
    """What a registered metric declares (paper 000, Table 4)."""

    title: str
    equation: str
    higher_is_better: bool = True
    level: Literal["cell", "model", "method"] = "cell"
    unit: str = "1"
