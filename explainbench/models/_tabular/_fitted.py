"""What fitted tabular models share: tree ensembles as the library holds them, and affine layers as arrays."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from explainbench.core.arrays import Floats
from explainbench.core.tabular import Kind

if TYPE_CHECKING:
    import torch


def digest_of(parts: Iterable[bytes | NDArray[Any]]) -> str:
    """SHA-256 over bytes and arrays, in order."""
    state = hashlib.sha256()
    for part in parts:
        state.update(part if isinstance(part, bytes) else np.ascontiguousarray(part).tobytes())
    return state.hexdigest()


@dataclass(frozen=True, eq=False)
class TreeEnsemble:
    """A fitted tree ensemble with scikit-learn's interface. learned: SHA-256 over its trees."""

    estimator: Any
    kind: Kind
    learned: str

    def predict(self, rows: Floats) -> Floats:
        """P(class 1), or the regressed value, of rows (n, d): (n,)."""
        found = (
            self.estimator.predict_proba(rows)[:, 1] if self.kind == "classification" else self.estimator.predict(rows)
        )
        return np.asarray(found, dtype=np.float64)

    def digest(self) -> str:
        """SHA-256 over the trees."""
        return self.learned


@dataclass(frozen=True, eq=False)
class Layered:
    """Affine layers (weights (in, out), biases (out,)) on standardised columns, rectifiers between them.

    mean, std: (d,) of the training columns; the last layer has one output, a logit or the regressed value.
    """

    mean: Floats
    std: Floats
    layers: tuple[tuple[Floats, Floats], ...]
    kind: Kind

    def predict(self, rows: Floats) -> Floats:
        """P(class 1), or the regressed value, of rows (n, d): (n,)."""
        from scipy.special import expit

        signal = (rows - self.mean) / self.std
        for number, (weights, biases) in enumerate(self.layers):
            signal = signal @ weights + biases
            if number < len(self.layers) - 1:
                signal = np.maximum(signal, 0.0)
        return expit(signal[:, 0]) if self.kind == "classification" else signal[:, 0]

    def digest(self) -> str:
        """SHA-256 over the standardisation and every layer."""
        return digest_of([self.mean, self.std, *(array for layer in self.layers for array in layer)])

    @cached_property
    def module(self) -> torch.nn.Module:
        """The same function in torch, float32: (n, t = 1, d) -> (n, h = 1), as the gradient methods call it."""
        import torch
        from torch import nn

        def affine(weights: Floats, biases: Floats) -> nn.Linear:
            layer = nn.Linear(*weights.shape)
            layer.load_state_dict({"weight": torch.tensor(weights.T), "bias": torch.tensor(biases)})
            return layer

        first, *rest = self.layers
        scaled = (first[0] / self.std[:, None], first[1] - (self.mean / self.std) @ first[0])
        chain: list[nn.Module] = [nn.Flatten(), affine(*scaled)]
        for layer in rest:
            chain += [nn.ReLU(), affine(*layer)]
        if self.kind == "classification":
            chain.append(nn.Sigmoid())
        return nn.Sequential(*chain).float().eval().requires_grad_(False)


def standardisation(x: Floats) -> tuple[Floats, Floats]:
    """Mean and deviation of the columns; a constant column has deviation 1."""
    std = x.std(axis=0)
    return x.mean(axis=0), np.where(std > 0, std, 1.0)
