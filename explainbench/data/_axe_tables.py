"""The tables of the AXE suite by name: generated ones, and public ones where the user has imported them."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from explainbench.core.arrays import Bools, Floats, Ints
from explainbench.core.cell import stream
from explainbench.core.errors import BadInput, Corrupt, Unavailable
from explainbench.core.files import atomic_path, write_bytes
from explainbench.core.provenance import sha256_file
from explainbench.data import _communities_table2, _compas, _german, _openxai, _pima
from explainbench.data._attack_table import AttackTable
from explainbench.data._axe_generated import four_gaussians, planted_bias

GENERATED = ("four_gaussians", "planted_bias")
OPENXAI = ("german", "compas", "adult")  # tables of section 4.2, with published models
_SPLITS = {f"openxai_splits/{name}.csv": digest for name, digest in _openxai.SHA256.items()}
PUBLIC = {  # path under the folder of public tables: SHA-256
    "german/german_processed.csv": _german.SHA256,
    "compas/compas_two_years_deidentified.csv": _compas.SHA256,
    "communities_crime/communities_and_crime_new_version.csv": _communities_table2.SHA256,
    "pima/pima_indians_diabetes_raw.csv": _pima.SHA256,
    **_SPLITS,
}
_ATTACK = "https://raw.githubusercontent.com/dylan-slack/Fooling-LIME-SHAP/master/data"
_OPENXAI = "https://raw.githubusercontent.com/AI4LIFE-GROUP/OpenXAI/0afe4af97fcc52edc636655df5832db1f0d709f8/data"
SOURCES = {  # where a file can be fetched as it is; the de-identified COMPAS table and the converted weights cannot
    "german/german_processed.csv": f"{_ATTACK}/german_processed.csv",
    "communities_crime/communities_and_crime_new_version.csv": f"{_ATTACK}/communities_and_crime_new_version.csv",
    "pima/pima_indians_diabetes_raw.csv": (
        "https://raw.githubusercontent.com/jbrownlee/Datasets/master/pima-indians-diabetes.csv"
    ),
    **{
        f"openxai_splits/{name}-{part}.csv": f"{_OPENXAI}/{folder}/{name}-{part}.csv"
        for name, folder in (("adult", "Adult"), ("compas", "COMPAS"), ("german", "German_Credit_Data"))
        for part in ("train", "test")
    },
}
MAX_BYTES, SECONDS = 64 * 2**20, 30.0


@dataclass(frozen=True, slots=True, eq=False)
class AxeTable:
    """A classified table whose explanations are judged.

    train: (a, d), test: (b, d); train_labels: (a,), test_labels: (b,) 0 or 1; names: of the d columns; discrete: (d,)
    columns of 0 and 1; truth: (d,) what generated the labels, where that is known; digest: SHA-256 over it all.
    """

    names: tuple[str, ...]
    train: Floats
    test: Floats
    train_labels: Ints
    test_labels: Ints
    discrete: Bools
    truth: Floats | None = None

    @property
    def digest(self) -> str:
        """SHA-256 over the rows, their labels and the columns' names."""
        return sha256_arrays(*(self.train, self.test, self.train_labels, self.test_labels), names=self.names)


def sha256_arrays(*arrays: NDArray[Any], names: tuple[str, ...] = ()) -> str:
    """SHA-256 over names, and over the shape and the bytes of arrays."""
    state = hashlib.sha256("\x1f".join(names).encode())
    for array in arrays:
        state.update(str(array.shape).encode())
        state.update(np.ascontiguousarray(array).tobytes())
    return state.hexdigest()


def files_of(table: str) -> dict[str, str]:
    """{path under the folder of public tables: SHA-256} of a table of section 4.2 or figure 1; none of a generated one.

    Raises BadInput for an unknown name.
    """
    if table in GENERATED:
        return {}
    if table in OPENXAI:
        return {path: PUBLIC[path] for path in _SPLITS if f"/{table}-" in path}
    if table == "pima":
        return {path: PUBLIC[path] for path in PUBLIC if path.startswith("pima/")}
    raise BadInput(
        f"params: suites.axe.tables: {table!r} is not a table; there are {', '.join((*GENERATED, *OPENXAI, 'pima'))}."
    )


def attack_files_of(table: str) -> dict[str, str]:
    """The same of a table of Table 2."""
    folders = {"german": "german/", "compas": "compas/", "communities": "communities_crime/"}
    if table == "planted_bias":
        return {}
    if table not in folders:
        known = ", ".join(("planted_bias", *folders))
        raise BadInput(
            f"params: suites.axe.fairwashing.tables: {table!r} is not a table of Table 2; there are {known}."
        )
    return {path: digest for path, digest in PUBLIC.items() if path.startswith(folders[table])}


def load_table(table: str, folder: Path, rows: int, seed: int) -> AxeTable:
    """A table by its name. rows: of a generated one. Raises BadInput, Unavailable, Corrupt."""
    if table == "four_gaussians":
        rng = stream(seed, "axe", table)
        x, labels = four_gaussians(rng, max(2, rows // 4))
        order = rng.permutation(len(x))
        seen, unseen = order[len(x) // 5 :], order[: len(x) // 5]
        flags = np.zeros(2, dtype=bool)
        return AxeTable(("x1", "x2"), x[seen], x[unseen], labels[seen], labels[unseen], flags, np.array([1.0, 0.0]))
    if table == "planted_bias":
        found = load_attack_table(table, folder, rows, seed)
        flags = np.zeros(len(found.names), dtype=bool)  # standardised like the rest
        return AxeTable(found.names, found.train, found.test, found.train_labels, found.test_labels, flags)
    files_of(table)  # an unknown name is refused
    if table == "pima":
        train, test, seen, unseen = _pima.pima(folder)
        mean, std = train.mean(axis=0), train.std(axis=0)
        return AxeTable(_pima.NAMES, (train - mean) / std, (test - mean) / std, seen, unseen, np.zeros(8, dtype=bool))
    train, test = (_openxai.openxai(folder, table, part) for part in ("train", "test"))
    return AxeTable(train.names, train.rows, test.rows, train.labels, test.labels, test.discrete)


def load_attack_table(table: str, folder: Path, rows: int, seed: int) -> AttackTable:
    """A table of Table 2, or the planted one, by its name. Raises BadInput, Unavailable, Corrupt."""
    if table == "planted_bias":
        return planted_bias(stream(seed, "axe", table), rows)
    attack_files_of(table)  # an unknown name is refused
    loaders = {
        "german": _german.german,
        "compas": _compas.compas,
        "communities": _communities_table2.communities_table2,
    }
    return loaders[table](folder)


def missing(folder: Path, files: dict[str, str]) -> list[str]:
    """Which of the files are not in the folder, whatever their content."""
    return [path for path in files if not (folder / path).is_file()]


def import_public(source: Path, folder: Path, files: Mapping[str, str]) -> list[str]:
    """Copy those of the public files that are found in `source` into `folder`, checked by their SHA-256: the paths.

    files: {path: SHA-256}. Raises BadInput when none is there, or when one is another file; then nothing is copied.
    """
    found = {path: source / path for path in files if (source / path).is_file()}
    if not found:
        raise BadInput(
            f"{source} holds none of the {len(files)} public files that are known, such as {next(iter(files))}; "
            "docs/axe.md lists them with their sources."
        )
    for path, there in found.items():
        digest = sha256_file(there)
        if digest != files[path]:
            raise BadInput(
                f"{there} has SHA-256 {digest[:12]}..., but the published file has {files[path][:12]}...; published "
                "numbers hold for that file only."
            )
    for path, there in found.items():
        with atomic_path(folder / path) as temporary:
            shutil.copyfile(there, temporary)
    return sorted(found)


def fetch_public(folder: Path, sources: Mapping[str, str], files: Mapping[str, str]) -> list[str]:
    """Download the public files that are not in `folder`, each checked by its SHA-256 before it is written: the paths.

    sources: {path: URL}; files: {path: SHA-256}. Raises Unavailable when a source cannot be reached, Corrupt when it no
    longer serves the published file.
    """
    from urllib.request import urlopen

    fetched: list[str] = []
    for path in missing(folder, dict(sources)):
        try:
            with urlopen(sources[path], timeout=SECONDS) as answer:
                content = answer.read(MAX_BYTES)
        except OSError as error:
            raise Unavailable(
                f"{sources[path]} cannot be reached ({error}); offline, name a folder that holds the file with --from."
            ) from error
        digest = hashlib.sha256(content).hexdigest()
        if digest != files[path]:
            raise Corrupt(
                f"{sources[path]} serves a file with SHA-256 {digest[:12]}..., but the published one has "
                f"{files[path][:12]}...; it was not kept."
            )
        write_bytes(folder / path, content)
        fetched.append(path)
    return fetched
