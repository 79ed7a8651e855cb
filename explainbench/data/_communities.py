"""Communities and Crime (UCI, scaled to 0..1), prepared as the code of paper 003 does for its regression study."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

from explainbench.data._public_tables import PublicFile, Split

TABLE = PublicFile(
    "Communities and Crime with a header",
    ("communities_uci_normalized.csv", "communities_crime/communities_uci_normalized.csv"),
    "45d750185d12b51d229cf0756a27ac8b608ec8e90ef24e80e97d531d62923986",
    "the UCI Machine Learning Repository (Communities and Crime)",
)
GOAL = "ViolentCrimesPerPop"
LEFT_OUT = ("racePctWhite", GOAL)  # the library's protected attribute, and the goal
MOST_MISSING = 1000  # a column with as many missing values is dropped


def load_communities(folder: Path, seed: int = 42) -> Split:
    """Communities and Crime as in paper 003: 1,594 training and 399 test rows, 101 columns, crimes scaled to 0..1.

    folder: where the table lies. Columns with 1,000 missing values or more are dropped, then rows with any; columns of
    text and racePctWhite are no features (state and fold are: the paper's library keeps them); standardised with the
    training part's mean and deviation. Raises BadInput for a missing or altered file.
    """
    import pandas as pd
    from sklearn.model_selection import train_test_split
    from sklearn.preprocessing import StandardScaler

    table = pd.read_csv(io.BytesIO(TABLE.read(folder)), na_values="?")
    table = table.loc[:, table.isna().sum() < MOST_MISSING].dropna()
    features = table.drop(columns=list(LEFT_OUT)).select_dtypes("number")
    goal = table[GOAL].to_numpy(dtype=np.float64)
    raw = features.to_numpy(dtype=np.float64)
    train, test = train_test_split(np.arange(len(raw)), test_size=0.2, random_state=seed)
    values = np.asarray(StandardScaler().fit(raw[train]).transform(raw))
    return Split(values[train], values[test], goal[train], goal[test], tuple(map(str, features.columns)))
