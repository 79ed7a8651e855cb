"""COMPAS as paper 004, Table 2 uses it: the biased model decides by race, the foils are two unrelated columns."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from explainbench.data._attack_table import AttackTable, standardised, unrelated_columns, verified

SHA256 = "cd91490045a76654462f85a93b1d926defbc132056d7473f1c46a7a20160c948"
NAMES = (
    "age", "two_year_recid", "priors_count", "length_of_stay", "c_charge_degree_F", "c_charge_degree_M",
    "sex_Female", "sex_Male", "race", "unrelated_column_one", "unrelated_column_two",
)  # fmt: skip


def compas(folder: Path) -> AttackTable:
    """11 columns, 5,554 / 618 rows, from the de-identified two-year file (7214 x 15). Raises Unavailable, Corrupt.

    Real people stand behind the rows: names, dates and case numbers are not in the file, and single rows are shown
    nowhere.
    """
    import pandas as pd

    path = verified(folder, "compas", "compas_two_years_deidentified.csv", SHA256, "COMPAS (de-identified)")
    frame = pd.read_csv(path, keep_default_na=False, na_values={"days_b_screening_arrest": "", "length_of_stay": ""})
    arrest = frame["days_b_screening_arrest"]
    frame = frame[
        arrest.between(-30, 30)
        & (frame["is_recid"] != -1)
        & (frame["c_charge_degree"] != "O")
        & (frame["score_text"] != "NA")
    ]
    columns = {name: np.asarray(frame[name], dtype=np.float64) for name in NAMES[:4]}
    columns |= {f"c_charge_degree_{kind}": frame["c_charge_degree"] == kind for kind in "FM"}
    columns |= {f"sex_{kind}": frame["sex"] == kind for kind in ("Female", "Male")}
    columns["race"] = frame["race"] == "African-American"
    values = np.column_stack([np.asarray(column, dtype=np.float64) for column in columns.values()])
    return standardised(
        "COMPAS",
        NAMES,
        np.column_stack([values, unrelated_columns(len(values))]),
        np.asarray(frame["score_text"] != "High").astype(np.int64),
        protected="race",
        protected_is_negative=1,
        foils=NAMES[-2:],
    )
