"""The two published OpenXAI classifiers: logistic regression and a network of 100 ReLU units, both with softmax."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from explainbench.core.arrays import Floats, Ints
from explainbench.core.errors import Corrupt, Unavailable
from explainbench.core.files import read_npz
from explainbench.core.provenance import sha256_file

SHA256 = {
    "adult_ann": "22cb948215140fbf05298ac1f35119eab88026122316e4c9b900cfc12bfbc62b",
    "adult_lr": "cd3624d00e39133ee6df554e92b0c5c98ee81bcf947535c9c9682762973330b3",
    "compas_ann": "a20381946b18b518079e803e868bad816a8e53e064779067d9561037bcd362f1",
    "compas_lr": "c8520743706eedaae963b71cc9cc1f16e29869519e4eb875fa5f1aa053621495",
    "german_ann": "10b7a1ae8d0f4d9f91687673b73a83bab49912cab72f75ef00040e070d4e1285",
    "german_lr": "c7171c945b8159cd289e4de96e8169940a7b6e59e4bbebeed573b1dd31163a02",
}


@dataclass(frozen=True, slots=True, eq=False)
class SoftmaxClassifier:
    """softmax(relu(x W1^T + b1) W2^T + b2), or softmax(x W^T + b) where `hidden` is None.

    hidden: (W1 (u, d), b1 (u,)) or None; weight: (2, u) or (2, d); bias: (2,).
    """

    hidden: tuple[Floats, Floats] | None
    weight: Floats
    bias: Floats

    def probability(self, rows: Floats) -> Floats:
        """P(class 1), (m, d) -> (m,)."""
        logits = self._units(rows) @ (self.weight[1] - self.weight[0]) + (self.bias[1] - self.bias[0])
        return 1.0 / (1.0 + np.exp(-np.clip(logits, -700.0, 700.0)))

    def predict(self, rows: Floats) -> Ints:
        """The more probable class, (m, d) -> (m,)."""
        return (self.probability(rows) > 0.5).astype(np.int64)

    def gradient(self, rows: Floats, classes: Ints | None = None) -> Floats:
        """d P(class) / dx of each row's class (default 1), (m, d) -> (m, d)."""
        p = self.probability(rows)
        contrast = self.weight[1] - self.weight[0]
        if self.hidden is None:
            slope = np.broadcast_to(contrast, rows.shape)
        else:
            slope = ((self._units(rows) > 0) * contrast) @ self.hidden[0]
        sign = np.ones(len(rows)) if classes is None else 2.0 * np.asarray(classes) - 1.0
        return (sign * p * (1.0 - p))[:, None] * slope

    @property
    def layers(self) -> tuple[tuple[Floats, Floats], ...]:
        """The same function with one logit: affine layers (weights (in, out), biases (out,)), rectifiers between."""
        last = (self.weight[1:] - self.weight[:1]).T, self.bias[1:] - self.bias[:1]
        return (last,) if self.hidden is None else ((self.hidden[0].T, self.hidden[1]), last)

    def _units(self, rows: Floats) -> Floats:
        return rows if self.hidden is None else np.maximum(rows @ self.hidden[0].T + self.hidden[1], 0.0)


def openxai_network(folder: Path, name: str) -> SoftmaxClassifier:
    """The published weights `name`, such as german_lr. Raises Unavailable, Corrupt."""
    for path in (folder / f"{name}.npz", folder / "openxai_models" / f"{name}.npz"):
        if path.is_file():
            break
    else:
        raise Unavailable(f"the published weights {name}.npz are not in {folder}; give the folder that holds them.")
    if sha256_file(path) != SHA256.get(name):
        raise Corrupt(f"{path} is not the published file {name}.npz; fetch it again.")
    stored = {key: as_float(value) for key, value in read_npz(path).items()}
    if "linear_weight" in stored:
        return SoftmaxClassifier(None, stored["linear_weight"], stored["linear_bias"])
    hidden = (stored["input1_weight"], stored["input1_bias"])
    return SoftmaxClassifier(hidden, stored["input2_weight"], stored["input2_bias"])


def as_float(array: NDArray) -> Floats:
    """Float64, C order."""
    return np.ascontiguousarray(array, dtype=np.float64)
