"""`export`: cells with everything behind them as one RO-Crate (Process Run Crate, W3C PROV relations) in a zip file.

The bundle is a project folder in miniature, so that the audit of a project audits it: offline, on its own.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from explainbench import __version__
from explainbench.archive import pack, unpack
from explainbench.core.errors import BadInput
from explainbench.core.files import write_bytes
from explainbench.core.provenance import blob_id, sha256_file
from explainbench.core.workspace import Workspace
from explainbench.stages._energy_cells import energy_folders, energy_name
from explainbench.store import DETERMINISTIC, MEASURED, RECORD, CellStore, StoredCell, first_problem

if TYPE_CHECKING:
    from rocrate.rocrate import ROCrate

METADATA = "ro-crate-metadata.json"
CHECKSUMS = "manifest-sha256.txt"  # of every other file; `sha256sum -c` reads it
CODE = "code"
PACKAGE = Path(__file__).parents[1]
PROFILE = "https://w3id.org/ro/wfrun/process/0.5"
PROV = "http://www.w3.org/ns/prov#"
TERMS = {
    "sha256": "https://w3id.org/ro/terms/workflow-run#sha256",
    "prov": PROV,
    **{term: f"{PROV}{term}" for term in ("used", "wasGeneratedBy", "wasDerivedFrom", "wasAttributedTo")},
}
TYPES = {
    ".json": "application/json", ".npz": "application/x-npz", ".parquet": "application/vnd.apache.parquet",
    ".png": "image/png", ".csv": "text/csv", ".md": "text/markdown", ".yaml": "application/yaml",
    ".py": "text/x-python", ".safetensors": "application/x-safetensors", ".dvc": "application/yaml",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Exported:
    """A written bundle."""

    path: Path
    sha256: str
    files: int
    cells: int


def export_bundle(workspace: Workspace, cells: Sequence[StoredCell], path: Path, title: str) -> Exported:
    """Write the cells, their models, windows, data, code, parameters, lock and boards to the zip `path`.

    With a cell of another suite that is about an energy cell goes that cell, too. The same state gives the same bytes.
    Raises BadInput when a cell does not verify or something behind it is missing.
    """
    cells = _with_those_judged(workspace, cells)
    for stored in cells:
        problem = first_problem(stored)
        if problem is not None:
            raise BadInput(f"{problem}; a bundle of it would not verify. Run `explainbench evaluate` first.")
    with TemporaryDirectory(prefix="explainbench-export-") as temporary:
        folder = Path(temporary)
        for source, name in _members(workspace, cells):
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
        _copy_code(cells, folder)
        _describe(folder, cells, title)
        files = [item for item in _files(folder) if item != CHECKSUMS]
        lines = [f"{sha256_file(folder / name)}  {name}\n" for name in files]
        write_bytes(folder / CHECKSUMS, "".join(lines).encode())
        pack(folder, path)
    return Exported(path, sha256_file(path), len(files) + 1, len(cells))


@contextmanager
def opened(path: Path) -> Iterator[Workspace]:
    """A bundle unpacked to a temporary folder, as a workspace. Raises BadInput, Corrupt."""
    with TemporaryDirectory(prefix="explainbench-bundle-") as temporary:
        unpack(path, Path(temporary))
        if not (Path(temporary) / CHECKSUMS).is_file():
            raise BadInput(f"{path} holds no {CHECKSUMS}; it is no bundle of `explainbench export`.")
        yield Workspace(Path(temporary), Path(temporary))


def checksum_problems(folder: Path) -> list[tuple[str, str, str]]:
    """(file, expected, found) for every file of an unpacked bundle that is not as its list of checksums says."""
    listed: dict[str, str] = {}
    for line in (folder / CHECKSUMS).read_text(encoding="utf-8", errors="replace").splitlines():
        digest, _, name = line.partition("  ")
        listed[name] = digest
    there = {name: sha256_file(folder / name) for name in _files(folder) if name != CHECKSUMS}
    return [
        (name, listed.get(name, "not listed"), there.get(name, "missing"))
        for name in sorted(listed.keys() | there.keys())
        if listed.get(name) != there.get(name)
    ]


def read_crate(folder: Path) -> dict[str, str]:
    """{file: SHA-256} by the crate's metadata, as the rocrate library reads it. Raises BadInput."""
    from rocrate.rocrate import ROCrate

    try:
        crate = ROCrate(folder)
        described = [entity for entity in crate.get_entities() if entity.get("sha256")]
        return {unquote(entity.id): str(entity.get("sha256")) for entity in described}  # ids are URIs
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInput(f"{METADATA} is no RO-Crate: {error}") from error


def _with_those_judged(workspace: Workspace, cells: Sequence[StoredCell]) -> list[StoredCell]:
    """The cells, and the energy cells that some of them judge."""
    there, store = energy_folders(workspace), CellStore(workspace.cells)
    found = {stored.folder: stored for stored in cells}
    for stored in cells:
        folder = None if stored.cell.suite == "energy" else there.get(energy_name(stored.cell))
        if folder is not None and folder not in found:
            found[folder] = store.read(folder)
    return list(found.values())


def _members(workspace: Workspace, cells: Sequence[StoredCell]) -> Iterator[tuple[Path, str]]:
    """(file, its name in the bundle), each once."""
    root, output = workspace.root, workspace.output
    wanted = [root / name for name in ("params.yaml", "data.manifest.json", "data.dvc")]
    wanted += [workspace.lock, *sorted(workspace.data.rglob("*"))]
    wanted += [path for path in sorted(workspace.results.rglob("*")) if path.suffix in (".json", ".csv", ".md")]
    for stored in cells:
        spec = stored.record.spec
        for path in [*(stored.folder / name for name in (RECORD, *DETERMINISTIC, MEASURED)), *stored.figures()]:
            if path.is_file():
                yield path, f"{_place(stored)}/{path.relative_to(stored.folder).as_posix()}"
        wanted += sorted((workspace.models / spec.cell.task / spec.cell.model).glob("*"))
        wanted += sorted(workspace.windows.glob(f"{spec.cell.task}.*"))
    for path in dict.fromkeys(path for path in wanted if path.is_file()):
        yield path, path.relative_to(output if path.is_relative_to(output) else root).as_posix()


def _place(stored: StoredCell) -> str:
    """The cell's folder in the bundle, also of a superseded cell whose files only its run still has."""
    return CellStore(Path("cells")).folder(stored.cell, stored.record.cell_id).as_posix()


def _copy_code(cells: Sequence[StoredCell], folder: Path) -> None:
    """The sources that the records name: as they are, or as git still holds them."""
    blobs = {module: blob for stored in cells for module, blob in stored.record.spec.sources.items()}
    for module, blob in sorted(blobs.items()):
        name = Path(*module.split(".")).with_suffix(".py")
        path = PACKAGE.parent / name
        content = path.read_bytes() if path.is_file() else b""
        if blob_id(content) != blob:
            command = ["git", "-C", str(PACKAGE), "cat-file", "blob", blob]
            found = subprocess.run(command, capture_output=True, check=False)
            if found.returncode or blob_id(found.stdout) != blob:
                raise BadInput(
                    f"the code of {module} (git blob {blob[:12]}) is neither in this checkout nor in its git: the "
                    "cells were computed with code that is lost. Evaluate them again."
                )
            content = found.stdout
        write_bytes(folder / CODE / name, content)


def _files(folder: Path) -> list[str]:
    return sorted(item.relative_to(folder).as_posix() for item in folder.rglob("*") if item.is_file())


def _describe(folder: Path, cells: Sequence[StoredCell], title: str) -> None:
    """Write the crate's metadata: files with their digests, and how each came about."""
    from rocrate.model import ContextEntity
    from rocrate.rocrate import ROCrate

    crate = ROCrate()
    crate.metadata.extra_terms.update(TERMS)
    crate.name = f"ExplainBench: {title}"
    crate.description = (
        f"{len(cells)} benchmark cells (explanation method x forecasting model x task) with everything behind their "
        "numbers. Check it with `explainbench audit FILE`."
    )
    crate.license = "https://spdx.org/licenses/Apache-2.0"
    finished = [measured.finished for stored in cells if (measured := stored.measured()) is not None]
    crate.root_dataset["datePublished"] = max(finished, default="1980-01-01")[:10]
    crate.root_dataset["conformsTo"] = {"@id": PROFILE}
    names = _files(folder)
    files: dict[str, Any] = {
        name: crate.add_file(
            folder / name,
            name,
            properties={
                "name": name,
                "encodingFormat": TYPES.get(Path(name).suffix, "application/octet-stream"),
                "contentSize": str((folder / name).stat().st_size),
                "sha256": sha256_file(folder / name),
            },
        )
        for name in names
    }

    def under(*beginnings: str) -> list[Any]:
        return [files[name] for name in names if name.startswith(beginnings)]

    about = {"@type": "SoftwareApplication", "name": "ExplainBench", "softwareVersion": __version__}
    software: Any = crate.add(ContextEntity(crate, "#explainbench", about))
    software["hasPart"] = under(CODE)
    act = _actions(crate, software)
    inputs = under("data/", "data.", "params.yaml")
    for task in sorted({stored.cell.task for stored in cells}):
        act(f"windows/{task}", "benchmark windows cut", inputs, under(f"build/windows/{task}."))
    for task, model in sorted({(stored.cell.task, stored.cell.model) for stored in cells}):
        act(f"fit/{task}/{model}", "forecaster fitted", inputs, under(f"models/{task}/{model}/"))
    energy = {stored.cell: stored for stored in cells if stored.cell.suite == "energy"}
    for stored in cells:
        cell = stored.cell
        behind = under(f"build/windows/{cell.task}.", f"models/{cell.task}/{cell.model}/", "params.yaml")
        if cell.suite != "energy" and energy_name(cell) in energy:
            behind += under(f"{_place(energy[energy_name(cell)])}/")
        made = under(f"{_place(stored)}/")
        record = files[f"{_place(stored)}/{RECORD}"]
        record["identifier"] = [stored.record.cell_id, stored.record.result_digest]
        record["about"] = str(cell)
        act(f"evaluate/{cell}", "cell explained and scored", behind, made)
    records = [files[f"{_place(stored)}/{RECORD}"] for stored in cells]
    act("leaderboard", "boards built", [*records, *under("cells.lock.json")], under("results/"))
    crate.metadata.write(folder)


def _actions(crate: ROCrate, software: Any) -> Callable[[str, str, list[Any], list[Any]], None]:
    """Adds an action: schema.org's object and result, and the same as PROV relations."""

    def act(name: str, what: str, used: list[Any], made: list[Any]) -> None:
        if not made:
            return
        action: Any = crate.add_action(software, f"#{name}", used, made, {"name": f"{name}: {what}"})
        action["used"] = used
        for entity in made:
            entity["wasGeneratedBy"] = action
            entity["wasDerivedFrom"] = used
            entity["wasAttributedTo"] = software

    return act
