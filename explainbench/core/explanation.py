"""G: explanations e = g(x, f) and what a registered explanation method declares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from explainbench.core.arrays import Bools, Floats
from explainbench.core.forecaster import ExplainedModel
from explainbench.core.masking import Masker
from explainbench.core.windows import Windows


@dataclass(frozen=True, slots=True, eq=False)
class Surrogate:
    """An additive local surrogate s(z) = intercept + sum of the weights of the groups kept in coalition z.

    intercept: (n,); weights: (n, g), both in the target's unit; fitted_on: (k, g) coalitions, shared by all windows.
    """

    intercept: Floats
    weights: Floats
    fitted_on: Bools

    def __call__(self, keep: Bools) -> Floats:
        """s(z) for coalitions (k, g): (n, k)."""
        return self.intercept[:, None] + self.weights @ keep.T.astype(np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class Explanation:
    """One run of a method over a batch of windows.

    attribution: (n, t, c), signed in the target's unit, or in z-units for an example-based method (x_cf - x);
    surrogate: where the method fits one;
    counterfactual: (n, t, c) in dataset units, where the method is example-based;
    notes: per-window diagnostics (n,), such as the convergence delta of integrated gradients.
    """

    attribution: Floats
    surrogate: Surrogate | None = None
    counterfactual: Floats | None = None
    notes: dict[str, Floats] | None = None


class Explainer(Protocol):
    """One file in `methods/`: a frozen dataclass of options with one working method."""

    def explain(self, model: ExplainedModel, windows: Windows, masker: Masker, rng: np.random.Generator) -> Explanation:
        """Explain f at every window. A pure function of its arguments. Raises NotApplicable."""
        ...


@dataclass(frozen=True, slots=True)
class MethodCard:
    """What a registered explanation method declares (paper 000, Table 3; section 3.1)."""

    title: str
    category: Literal["attribution", "surrogate", "example", "attention", "perturbation", "baseline"]
    source: str
    deterministic: bool
    vector: Literal["signed", "nonnegative"] = "signed"
    surrogate: Literal["additive", "linear"] | None = None
    needs: tuple[str, ...] = ()  # names of capability protocols
    cost: Literal["forward", "gradient", "sampling", "search", "free"] = "forward"
    stores: Literal["nothing", "background"] = "nothing"
    libraries: tuple[str, ...] = ()
