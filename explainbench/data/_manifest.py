"""The committed SHA-256 manifest of every data file: the data identity that no pipeline tool can silently absorb."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from explainbench.core.errors import BadInput, Corrupt
from explainbench.core.files import read_json, write_json
from explainbench.core.provenance import sha256_file, sha256_json

NAME = "data.manifest.json"


def data_files(root: Path) -> dict[str, Path]:
    """{path relative to `root`, with slashes: path} of every file under data/, hidden ones left out, sorted."""
    folder = root / "data"
    found = {
        path.relative_to(root).as_posix(): path
        for path in folder.rglob("*")
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    }
    return dict(sorted(found.items()))


def write_manifest(root: Path) -> dict[str, Any]:
    """Hash every file under data/ and write the manifest beside params.yaml. Returns what was written."""
    files = {
        name: {"bytes": path.stat().st_size, "sha256": sha256_file(path)} for name, path in data_files(root).items()
    }
    manifest = {"schema_version": 1, "files": files}
    write_json(root / NAME, manifest)
    return manifest


def read_manifest(root: Path) -> dict[str, dict[str, Any]]:
    """{file: {bytes, sha256}}. Raises BadInput when there is no manifest, Corrupt when it is not one."""
    path = root / NAME
    if not path.is_file():
        raise BadInput(f"{path} does not exist; run `explainbench data simulate` or restore it with git.")
    manifest = read_json(path)
    files = manifest.get("files") if isinstance(manifest, dict) else None
    whole = isinstance(files, dict) and all(
        isinstance(entry, dict) and isinstance(entry.get("sha256"), str) for entry in files.values()
    )
    if not whole or manifest.get("schema_version") != 1:
        raise Corrupt(f"{path} is not a data manifest; restore it with git.")
    return manifest["files"]


def verify_manifest(root: Path) -> dict[str, dict[str, Any]]:
    """Re-hash data/ and compare it with the manifest. Returns the manifest's files.

    Raises Corrupt naming the first file that is missing, changed or not listed, with the digest expected and found.
    """
    expected = read_manifest(root)
    there = data_files(root)
    for name, entry in sorted(expected.items()):
        if name not in there:
            raise Corrupt(
                f"{name} is listed in {NAME} (sha256 {entry['sha256']}) but is not there; "
                "run `dvc pull` or `explainbench data simulate`."
            )
        found = sha256_file(there[name])
        if found != entry["sha256"]:
            raise Corrupt(
                f"{name} has changed: {NAME} expects sha256 {entry['sha256']}, found {found}; "
                "run `dvc checkout --force data.dvc` or `explainbench data simulate` to restore it."
            )
    for name in there:
        if name not in expected:
            raise Corrupt(
                f"{name} is not listed in {NAME} (found sha256 {sha256_file(there[name])}); "
                "remove it, or import it with `explainbench data import`."
            )
    return expected


def dataset_sha256(root: Path, dataset: str) -> str:
    """Content hash of one dataset: SHA-256 of the canonical JSON of its part of the manifest. Raises BadInput."""
    prefix = f"data/{dataset}/"
    part = {name: entry["sha256"] for name, entry in read_manifest(root).items() if name.startswith(prefix)}
    if not part:
        raise BadInput(
            f"{NAME} lists no file of dataset {dataset!r}; "
            "run `explainbench data simulate` or `explainbench data import`."
        )
    return sha256_json(part)
