"""Zip archives: written with the same bytes every time, unpacked only where every entry stays inside and in bounds."""

from __future__ import annotations

import shutil
import stat
import struct
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from explainbench.core.errors import BadInput, Corrupt
from explainbench.core.files import atomic_path

MAX_ENTRIES = 20_000
MAX_BYTES = 4 * 2**30  # of all entries, unpacked
_DATE = (1980, 1, 1, 0, 0, 0)
_CHUNK = 2**20
DAMAGED = (  # what zipfile raises over altered bytes
    zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, struct.error, EOFError, NotImplementedError, RuntimeError,
    UnicodeDecodeError, OSError,
)  # fmt: skip


def pack(folder: Path, path: Path) -> None:
    """Write every file under `folder` to the zip `path`, sorted, without clock or owner. Raises BadInput."""
    files = sorted(item for item in folder.rglob("*") if item.is_file())
    total = sum(item.stat().st_size for item in files)
    if total > MAX_BYTES or len(files) > MAX_ENTRIES:
        raise BadInput(
            f"{len(files)} files of {total} bytes are more than a bundle may hold ({MAX_ENTRIES} files, {MAX_BYTES} "
            "bytes); export single cells instead of a board."
        )
    with atomic_path(path) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
        for item in files:
            entry = zipfile.ZipInfo(item.relative_to(folder).as_posix(), date_time=_DATE)
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            with item.open("rb") as source, archive.open(entry, "w", force_zip64=True) as target:
                shutil.copyfileobj(source, target, _CHUNK)


def unpack(path: Path, folder: Path) -> list[str]:
    """Unpack a zip into an empty folder; the names of its files. Nothing is written outside `folder`.

    Raises BadInput for a path that leaves the folder, a link, a duplicate or too many bytes, counted while unpacking
    because headers can lie; Corrupt for an archive that cannot be read or fails its own checksums.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            entries = [entry for entry in archive.infolist() if not entry.is_dir()]
            if len(entries) > MAX_ENTRIES:
                raise BadInput(f"{path} holds {len(entries)} files, more than {MAX_ENTRIES}; it is no bundle of ours.")
            names = [_safe_name(path, entry) for entry in entries]
            if len({name.lower() for name in names}) != len(names):
                raise BadInput(f"{path} holds two files of the same name; it is no bundle of ours.")
            left = MAX_BYTES
            for entry, name in zip(entries, names, strict=True):
                left -= _copy(archive, entry, folder / name, left)
            return names
    except FileNotFoundError as error:
        raise BadInput(f"{path} does not exist.") from error
    except DAMAGED as error:
        raise Corrupt(f"{path} cannot be unpacked ({error}); fetch it again.") from error


def _safe_name(path: Path, entry: zipfile.ZipInfo) -> str:
    name = entry.filename
    parts = PurePosixPath(name).parts
    mode = entry.external_attr >> 16
    outside = name.startswith("/") or ".." in parts or not parts
    if outside or any(char in name for char in "\\:\0") or (mode and not stat.S_ISREG(mode) and stat.S_IFMT(mode)):
        raise BadInput(f"{path} holds {name!r}, which is no plain file inside the archive; nothing was unpacked of it.")
    return "/".join(parts)


def _copy(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, target: Path, allowed: int) -> int:
    target.parent.mkdir(parents=True, exist_ok=True)
    written = 0
    with archive.open(entry) as source, target.open("xb") as file:
        while chunk := source.read(_CHUNK):
            written += len(chunk)
            if written > allowed:
                raise BadInput(f"{archive.filename} unpacks to more than {MAX_BYTES} bytes; it is no bundle of ours.")
            file.write(chunk)
    return written
