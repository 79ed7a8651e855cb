"""Where a project stands: git commit, dirty flag, tree of the working code, DVC hashes. Reads only, never raises."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

SECONDS = 10  # longest wait for one git command
DVC_MD5 = r"^-?\s*md5:\s*([0-9a-f]{32}(?:\.dir)?)\s*$"  # of the single output of a .dvc file


@dataclass(frozen=True, slots=True)
class Checkout:
    """Identity of the working tree at `root`; a value is None where there is no such thing.

    commit: HEAD; dirty: whether tracked files differ from it or untracked ones are there; data_md5: of data.dvc;
    dvc_lock_sha256, params_sha256: of those files' bytes; environment_sha256: of the interpreter's version and the
    names and versions of everything installed.
    """

    root: Path
    commit: str | None
    dirty: bool | None
    data_md5: str | None
    dvc_lock_sha256: str | None
    params_sha256: str | None
    environment_sha256: str | None

    def tags(self) -> dict[str, str]:
        """The same as `explainbench.*` tags, without what is unknown."""
        named = {
            "explainbench.git_commit": self.commit,
            "explainbench.git_dirty": None if self.dirty is None else str(self.dirty).lower(),
            "explainbench.dvc_data_md5": self.data_md5,
            "explainbench.dvc_lock_sha256": self.dvc_lock_sha256,
            "explainbench.params_sha256": self.params_sha256,
            "explainbench.environment_sha256": self.environment_sha256,
        }
        return {key: value for key, value in named.items() if value is not None}


def project_root(start: Path) -> Path | None:
    """The nearest folder upwards that holds a params.yaml of ours (other DVC projects have one too), or None."""
    return next((folder for folder in (start, *start.parents) if _names_a_protocol(folder / "params.yaml")), None)


def _names_a_protocol(path: Path) -> bool:
    try:
        return re.search(r"^protocol:\s*\S", path.read_text(encoding="utf-8"), re.MULTILINE) is not None
    except (OSError, UnicodeDecodeError):
        return False


def read_checkout(root: Path) -> Checkout:
    """Look at git and at the DVC files of the project at `root`: one git command, three small files."""
    commit, dirty = _git_state(root)
    return Checkout(
        root=root,
        commit=commit,
        dirty=dirty,
        data_md5=dvc_md5(root / "data.dvc"),
        dvc_lock_sha256=_file_sha256(root / "dvc.lock"),
        params_sha256=_file_sha256(root / "params.yaml"),
        environment_sha256=_environment_sha256(),
    )


def dvc_md5(path: Path) -> str | None:
    """The hash that a .dvc file records for its single output, or None."""
    try:
        found = re.search(DVC_MD5, path.read_text(encoding="utf-8"), re.MULTILINE)
    except (OSError, UnicodeDecodeError):
        return None
    return found.group(1) if found else None


def working_tree(folder: Path) -> str | None:
    """The git tree id of `folder` as it lies on disk: equals `git rev-parse HEAD:<folder>` once it is committed.

    Built with an index and an object store of its own, so the repository is not touched. None outside a repository.
    """
    top = git(folder, "rev-parse", "--show-toplevel")
    objects = git(folder, "rev-parse", "--path-format=absolute", "--git-path", "objects")
    if top is None or objects is None:
        return None
    prefix = folder.resolve().relative_to(Path(top).resolve()).as_posix()
    with TemporaryDirectory() as temporary:
        environment = {
            "GIT_INDEX_FILE": f"{temporary}/index",
            "GIT_OBJECT_DIRECTORY": temporary,
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": objects,
        }
        if git(Path(top), "add", "-A", "--", prefix, environment=environment) is None:
            return None
        part = [] if prefix == "." else [f"--prefix={prefix}/"]
        return git(Path(top), "write-tree", *part, environment=environment)


def git(folder: Path, *arguments: str, environment: dict[str, str] | None = None) -> str | None:
    """The output of a git command in `folder`, or None when it fails, is absent or takes too long."""
    found = git_bytes(folder, *arguments, environment=environment)
    return None if found is None else found.decode(errors="replace").strip()


def git_bytes(folder: Path, *arguments: str, environment: dict[str, str] | None = None) -> bytes | None:
    """The same, byte for byte: for the content of files."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            env=clean | {"GIT_OPTIONAL_LOCKS": "0"} | (environment or {}),
            capture_output=True,
            timeout=SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _git_state(root: Path) -> tuple[str | None, bool | None]:
    status = git(root, "status", "--porcelain=v2", "--branch")
    if status is None:
        return None, None
    lines = status.splitlines()
    commit = next((line.split()[-1] for line in lines if line.startswith("# branch.oid ")), None)
    dirty = any(not line.startswith("#") for line in lines)
    return (None if commit == "(initial)" else commit), dirty


def _environment_sha256() -> str | None:
    """From the names of the installed distributions' folders, which carry their versions: reading them takes 100 ms."""
    found = {sys.version}
    try:
        for folder in sys.path:
            if folder and os.path.isdir(folder):  # noqa: PTH112 - ten times faster than Path on a long sys.path
                found.update(
                    entry.name for entry in os.scandir(folder) if entry.name.endswith((".dist-info", ".egg-info"))
                )
    except OSError:
        return None
    return hashlib.sha256("\n".join(sorted(found)).encode()).hexdigest()


def _file_sha256(path: Path) -> str | None:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None
