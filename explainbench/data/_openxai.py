"""The OpenXAI splits of Adult, COMPAS and German Credit as paper 004, section 4.2 uses them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from explainbench.core.arrays import Bools, Floats, Ints
from explainbench.core.errors import BadInput
from explainbench.data._attack_table import verified

SHA256 = {
    "adult-train": "15ffa1eaa8a075ace38f5ec5adcbe93220c7995cf4fe756e1079d80389c76f5a",
    "adult-test": "f01af26113ac6f696697911c29a75375dc3541214646103d694581d05e3e31cc",
    "compas-train": "fd4666753c588b36cc083792749ef3777a6ffe2a84d3f2e089b1af9ef1cef161",
    "compas-test": "cf60ba6c12694d42a6950ae56306235cbeb525150a12cb015a28c8a31c268cb5",
    "german-train": "c56f98bacc9e33c2d63cb7fde982ef4c38a3554b2ad7308357df15544b1c9852",
    "german-test": "22ac371d06fcc19cc6146d713c1b1a87e15e24aea9f2825873b8b96284316e42",
}


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """rows: (m, d) scaled to [0, 1] by this part's own range; labels: (m,); names: d; discrete: (d,) 0/1 columns."""

    rows: Floats
    labels: Ints
    names: tuple[str, ...]
    discrete: Bools


def openxai(folder: Path, dataset: str, part: str = "test") -> Split:
    """One part of a split. Raises Unavailable, Corrupt, BadInput.

    Scaling each part by its own range leaks the test set's range; the published numbers rest on it.
    """
    name = f"{dataset}-{part}"
    if name not in SHA256:
        raise BadInput(f"{name} is not an OpenXAI split; there are {', '.join(SHA256)}.")
    path = verified(folder, "openxai_splits", f"{name}.csv", SHA256[name], f"OpenXAI {dataset}")
    with path.open(encoding="utf-8") as text:
        names = tuple(text.readline().strip().split(","))
    values = np.loadtxt(path, delimiter=",", skiprows=1)
    rows, low = values[:, :-1], values[:, :-1].min(axis=0)
    span = rows.max(axis=0) - low
    scaled = (rows - low) / np.where(span == 0, 1.0, span)
    discrete = np.array([len(np.unique(column)) <= 2 for column in scaled.T])
    return Split(scaled, values[:, -1].astype(np.int64), names[:-1], discrete)
