"""Communities and Crime as paper 004, Table 2 uses it: the biased model decides by the share of white inhabitants."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from explainbench.data._attack_table import AttackTable, standardised, unrelated_columns, verified

SHA256 = "7eebf2442bf0cd253db696e740eb5b7654a2bbded66fd8bf2d65b56e435141ce"
GOAL = "ViolentCrimesPerPop"
DROPPED = ("communityname", "fold", "county", "community", "state")


def communities_table2(folder: Path) -> AttackTable:
    """The columns without gaps and two unrelated ones, from communities_and_crime_new_version.csv (2215 x 129).

    Label 1 where violent crime is at or below its median. Raises Unavailable, Corrupt.
    """
    import pandas as pd

    name = "communities_and_crime_new_version.csv"
    path = verified(folder, "communities_crime", name, SHA256, "Communities and Crime")
    frame = pd.read_csv(path, index_col=0, na_values="?", skipinitialspace=True)
    frame.columns = [column.rsplit(" ", 1)[0] for column in frame.columns]
    frame = frame[frame[GOAL].notna()]
    frame = frame.loc[:, frame.notna().all()]
    crime = frame[GOAL].to_numpy()
    frame = frame.drop(columns=[column for column in (*DROPPED, GOAL) if column in frame.columns])
    values = frame.to_numpy(dtype=np.float64)
    return standardised(
        "Communities and Crime",
        (*frame.columns, "unrelated_column_one", "unrelated_column_two"),
        np.column_stack([values, unrelated_columns(len(values))]),
        (crime <= np.median(crime)).astype(np.int64),
        protected="racePctWhite",
        protected_is_negative=-1,
        foils=("unrelated_column_one", "unrelated_column_two"),
    )
