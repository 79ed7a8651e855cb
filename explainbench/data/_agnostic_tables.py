"""The tables of the agnostic suite by name: two generated ones, and the two of paper 003 where the user has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np

from explainbench.core.arrays import Floats
from explainbench.core.cell import stream
from explainbench.core.errors import BadInput
from explainbench.core.provenance import sha256_json
from explainbench.core.tabular import Kind
from explainbench.data import _adult, _communities
from explainbench.data._public_tables import PublicFile, Split

ROWS = 2000  # of a generated table, a quarter of them for testing
COLUMNS = 12
FLAGS = 2  # the last columns are 0 or 1


@dataclass(frozen=True, slots=True)
class Table:
    """kind: what is learned; files: what the user must have imported, none for a generated table."""

    kind: Kind
    files: tuple[PublicFile, ...] = ()

    def missing(self, folder: Path) -> str | None:
        """What has to be imported first, in a sentence, or None."""
        absent = [file for file in self.files if not any((folder / name).is_file() for name in file.names)]
        if not absent:
            return None
        return (
            f"{' and '.join(file.title for file in absent)}: not imported; get the file from {absent[0].source} and "
            "run `explainbench data public --from FOLDER`"
        )


TABLES: Mapping[str, Table] = MappingProxyType(
    {
        "generated_classes": Table("classification"),
        "generated_values": Table("regression"),
        "adult": Table("classification", (_adult.TRAIN, _adult.TEST)),
        "communities": Table("regression", (_communities.TABLE,)),
    }
)
PUBLIC = {  # path under the folder of public tables: SHA-256
    next(name for name in file.names if "/" in name): file.sha256 for one in TABLES.values() for file in one.files
}


def table(name: str) -> Table:
    """The table called `name`. Raises BadInput with the names there are."""
    if name not in TABLES:
        raise BadInput(f"{name!r} is not a table of the agnostic suite; there are {', '.join(TABLES)}.")
    return TABLES[name]


def load_table(name: str, folder: Path, seed: int) -> Split:
    """The table split for training and testing. folder: of imported files. Raises BadInput."""
    table(name)
    if name == "adult":
        return _adult.load_adult(folder, seed)
    if name == "communities":
        return _communities.load_communities(folder, seed)
    return generated(table(name).kind, stream(seed, "agnostic", name))


def table_digest(name: str, seed: int) -> str:
    """SHA-256 that identifies the table's content; the files themselves are hashed when they are read."""
    files = [file.sha256 for file in table(name).files]
    return sha256_json({"table": name, "files": files, "seed": seed})


def generated(kind: Kind, rng: np.random.Generator, rows: int = ROWS) -> Split:
    """Friedman's function (1991) of five of ten uniform columns, and a flag that lifts it: (rows, 12).

    10 sin(pi x1 x2) + 20 (x3 - 1/2)^2 + 10 x4 + 5 x5 + 6 f1 + noise of deviation 1; f2 and the rest say nothing. Two
    classes: above and below its median.
    """
    numbers = rng.random((rows, COLUMNS - FLAGS))
    flags = (rng.random((rows, FLAGS)) < 0.3).astype(np.float64)
    goal = 10 * np.sin(np.pi * numbers[:, 0] * numbers[:, 1]) + 20 * (numbers[:, 2] - 0.5) ** 2
    goal += 10 * numbers[:, 3] + 5 * numbers[:, 4] + 6 * flags[:, 0] + rng.standard_normal(rows)
    y = (goal > np.median(goal)).astype(np.int64) if kind == "classification" else goal
    x: Floats = np.hstack([numbers, flags])
    names = (*(f"x{j + 1}" for j in range(COLUMNS - FLAGS)), *(f"f{j + 1}" for j in range(FLAGS)))
    cut = rows * 3 // 4
    return Split(x[:cut], x[cut:], y[:cut], y[cut:], names)
