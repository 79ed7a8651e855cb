"""Pima Indians Diabetes as paper 004, figure 1 uses it: unscaled, 80/20, row 141 of the test part is explained."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from explainbench.core.arrays import Floats, Ints
from explainbench.data._attack_table import verified

SHA256 = "6bfe5d0f379d17a0e0819b996407e3c09bf80febd4287f2ed212190dfff154af"
NAMES = (
    "Pregnancies", "Glucose", "BloodPressure", "SkinThickness", "Insulin", "BMI", "DiabetesPedigreeFunction", "Age",
)  # fmt: skip
ROW = 141  # of the test part


def pima(folder: Path) -> tuple[Floats, Floats, Ints, Ints]:
    """Training and test rows (614, 8), (154, 8) and their outcomes. Raises Unavailable, Corrupt.

    Health data of a native community: a check of figure 1, not a headline example.
    """
    from sklearn.model_selection import train_test_split

    path = verified(folder, "pima", "pima_indians_diabetes_raw.csv", SHA256, "Pima Indians Diabetes")
    values = np.loadtxt(path, delimiter=",")
    seen, unseen = train_test_split(np.arange(len(values)), test_size=0.2, random_state=0)
    rows, labels = values[:, :-1], values[:, -1].astype(np.int64)
    return rows[seen], rows[unseen], labels[seen], labels[unseen]
