"""What the fairwashing experiments share: a standardised table with a protected column and foils, and checked files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from explainbench.core.arrays import Bools, Floats, Ints
from explainbench.core.errors import Corrupt, Unavailable
from explainbench.core.provenance import sha256_file


@dataclass(frozen=True, slots=True, eq=False)
class AttackTable:
    """A tabular dataset with the roles of paper 004, section 4.1.

    train: (a, d), test: (b, d), standardised with the training part's mean and (population) standard deviation;
    names: d columns; train_labels, test_labels: 0 (negative outcome) or 1; categorical: (d,) True for flags;
    protected: the column the biased model decides by; protected_is_negative: +1 where values above the mean get the
    negative outcome, -1 where values below it do; foils: innocuous columns, one or two.
    """

    title: str
    names: tuple[str, ...]
    train: Floats
    test: Floats
    train_labels: Ints
    test_labels: Ints
    categorical: Bools
    protected: str
    protected_is_negative: int
    foils: tuple[str, ...]

    def index(self, name: str) -> int:
        """Position of column `name`."""
        return self.names.index(name)

    def biased(self, rows: Floats) -> Ints:
        """m: the discriminatory model, (m, d) standardised rows -> 0 or 1 by the protected column alone."""
        return (self.protected_is_negative * rows[:, self.index(self.protected)] <= 0).astype(np.int64)

    def innocuous(self, rows: Floats, foils: int = 1) -> Ints:
        """psi: what the attack shows off the data: 0 where the foil is above its mean, or where two foils differ."""
        above = [rows[:, self.index(name)] > 0 for name in self.foils[:foils]]
        return (~(above[0] if foils == 1 else above[0] ^ above[1])).astype(np.int64)


def standardised(
    title: str,
    names: tuple[str, ...],
    values: Floats,
    labels: Ints,
    *,
    protected: str,
    protected_is_negative: int,
    foils: tuple[str, ...],
    seed: int = 42,
) -> AttackTable:
    """Split 90/10 as the papers do (scikit-learn, random_state 42) and standardise with the training part."""
    from sklearn.model_selection import train_test_split

    seen, unseen = train_test_split(np.arange(len(values)), test_size=0.1, random_state=seed)
    train, test = values[seen], values[unseen]
    mean, std = train.mean(axis=0), train.std(axis=0)
    std = np.where(std == 0, 1.0, std)
    categorical = np.array([len(np.unique(column)) <= 2 for column in values.T])
    return AttackTable(
        title,
        names,
        (train - mean) / std,
        (test - mean) / std,
        labels[seen].astype(np.int64),
        labels[unseen].astype(np.int64),
        categorical,
        protected,
        protected_is_negative,
        foils,
    )


def unrelated_columns(rows: int) -> Floats:
    """The two foil columns of paper 004's COMPAS and Communities tables: (rows, 2), uniform in [-1, 1].

    They are part of the published data, so they come from its own legacy stream; two draws are thrown away first.
    """
    legacy = np.random.RandomState(123454321)
    for _ in range(2):
        legacy.choice([0, 1], size=rows)
    return np.stack([legacy.uniform(-1, 1, size=rows) for _ in range(2)], axis=1)


def verified(folder: Path, subfolder: str, name: str, sha256: str, title: str) -> Path:
    """`folder`/`name` or `folder`/`subfolder`/`name`, after its SHA-256 was checked.

    Raises Unavailable when it is not there, Corrupt when it is another file.
    """
    for path in (folder / name, folder / subfolder / name):
        if path.is_file():
            found = sha256_file(path)
            if found != sha256:
                raise Corrupt(f"{path} is not the {title} file: its sha256 is {found}, not {sha256}; fetch it again.")
            return path
    raise Unavailable(
        f"the {title} data are not shipped: {name} (sha256 {sha256[:12]}...) is not in {folder}; give the folder that "
        "holds it. Without it these cells stay pending and the suite runs on generated data."
    )
