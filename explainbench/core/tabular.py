"""Tables instead of series: fitted models of rows, methods that explain rows, and the registries of such entries.

A row is a window with t = 1, so that the stores, figures and statistics of the windowed suites hold for tables too.
Axis letters: n rows, m background rows, d columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

import numpy as np

from explainbench.core.arrays import Bools, Floats
from explainbench.core.errors import BadInput
from explainbench.core.explanation import MethodCard
from explainbench.core.registry import Registry

if TYPE_CHECKING:
    import torch

Kind = Literal["classification", "regression"]


@dataclass(frozen=True, slots=True)
class TabularCard:
    """What a registered tabular model declares."""

    architecture: str
    source: str
    libraries: tuple[str, ...]
    trees: bool = False
    input_differentiable: bool = False


class TabularModel(Protocol):
    """A fitted model of a table: `predict` is a pure function of (weights, rows)."""

    def predict(self, rows: Floats) -> Floats:
        """P(class 1), or the regressed value, of rows (n, d): (n,)."""
        ...

    def digest(self) -> str:
        """SHA-256 over everything the model learned."""
        ...


@runtime_checkable
class HasTrees(Protocol):
    """`estimator` is a tree ensemble as shap's TreeExplainer reads it."""

    @property
    def estimator(self) -> Any: ...


@runtime_checkable
class HasLayers(Protocol):
    """Affine layers with rectifiers between them, on columns divided by `std`; `module` is the same in torch."""

    @property
    def std(self) -> Floats: ...

    @property
    def layers(self) -> tuple[tuple[Floats, Floats], ...]: ...

    @property
    def module(self) -> torch.nn.Module: ...


class TabularModelEntry(Protocol):
    """One file in `models/_tabular/`: a frozen dataclass of hyper-parameters that fits its model."""

    def fit(self, x: Floats, y: Floats, kind: Kind, seed: int) -> TabularModel:
        """Fit on rows (n, d) with labels 0 and 1, or values, (n,). The same bits for the same arguments."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class RowExplanation:
    """One run of a method over rows. attribution: (n, d); named: (n, d) which columns the explanation names, where the
    method itself decides (a rule's columns); notes: per-row diagnostics (n,), such as the precision of an anchor.
    """

    attribution: Floats
    named: Bools | None = None
    notes: dict[str, Floats] | None = None


class TabularExplainer(Protocol):
    """One file in `methods/_tabular/`: a frozen dataclass of options with one working method."""

    def explain(
        self, model: TabularModel, rows: Floats, background: Floats, rng: np.random.Generator
    ) -> RowExplanation:
        """Explain P(class 1) at rows (n, d), against the training rows (m, d). Raises NotApplicable."""
        ...


TABULAR_MODELS: Registry[TabularCard, TabularModelEntry] = Registry("tabular model", "explainbench.models._tabular")
TABULAR_METHODS: Registry[MethodCard, TabularExplainer] = Registry("tabular method", "explainbench.methods._tabular")


def checked_table(x: Floats, y: Floats, kind: Kind) -> None:
    """Raise BadInput unless x (n, d) and y (n,) are a table that a model can be fitted on."""
    if x.ndim != 2 or y.shape != (len(x),) or not x.size:
        raise BadInput(f"a table needs rows (n, d) and n labels, but they are {x.shape} and {y.shape}.")
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise BadInput("a table must hold no NaN and no infinity; leave those rows out or mend their source.")
    if kind == "classification" and set(np.unique(y)) != {0, 1}:
        raise BadInput("binary classification needs labels 0 and 1, both of them present.")
