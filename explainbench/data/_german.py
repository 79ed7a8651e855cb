"""German Credit as paper 004, Table 2 uses it: the biased model denies credit by gender, the foil is the loan rate."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from explainbench.data._attack_table import AttackTable, standardised, verified

SHA256 = "d9b5f77d02823dea64aacf8edd3698e307d6ff11981edf63273c33d9dfe4d25c"


def german(folder: Path) -> AttackTable:
    """28 columns, 900 / 100 rows, from german_processed.csv (1000 x 30). Raises Unavailable, Corrupt."""
    import pandas as pd

    path = verified(folder, "german", "german_processed.csv", SHA256, "German Credit")
    frame = pd.read_csv(path)
    labels = (frame["GoodCustomer"].to_numpy() == 1).astype(np.int64)
    frame = frame.drop(columns=["GoodCustomer", "PurposeOfLoan"])
    frame["Gender"] = (frame["Gender"] == "Male").astype(np.int64)
    return standardised(
        "German Credit",
        tuple(frame.columns),
        frame.to_numpy(dtype=np.float64),
        labels,
        protected="Gender",
        protected_is_negative=-1,
        foils=("LoanRateAsPercentOfIncome",),
    )
