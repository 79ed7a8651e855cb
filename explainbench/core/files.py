"""Files in and out: written under a temporary name and renamed, parsed by loaders that execute nothing."""

import json
import os
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from explainbench.core.errors import BadInput, Corrupt, Unavailable

MAX_JSON_BYTES = 64 * 2**20
MAX_NPZ_BYTES = 2 * 2**30


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary sibling of `path`; on success it is synced and renamed to `path`, on failure removed.

    Raises Unavailable when the disk is full or the folder cannot be written.
    """
    temporary: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp", delete=False) as handle:
            temporary = Path(handle.name)
        yield temporary
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    except OSError as error:
        raise Unavailable(
            f"{path} could not be written ({error.strerror or error}); nothing was changed. "
            "Free space or fix the permissions and run the command again."
        ) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes) -> None:
    """Write `content` to `path` atomically."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)


def write_json(path: Path, value: Any) -> None:
    """Write `value` as indented JSON with sorted keys, atomically; NaN is refused."""
    text = json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False)
    write_bytes(path, (text + "\n").encode())


def read_json(path: Path) -> Any:
    """Parse the JSON file at `path`. Raises BadInput when it is missing, too large or not JSON."""
    try:
        if path.stat().st_size > MAX_JSON_BYTES:
            raise BadInput(f"{path} is larger than {MAX_JSON_BYTES} bytes; it is not a file this project wrote.")
        return json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise BadInput(f"{path} does not exist; run the stage that writes it first.") from error
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise Corrupt(
            f"{path} is not valid JSON ({error}); restore it or run the stage that writes it again."
        ) from error


def write_npz(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays as an npz whose bytes depend on nothing but their names and values (no clock, no pickle)."""
    with atomic_path(path) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(arrays):
            array = np.ascontiguousarray(arrays[name])
            if array.dtype.hasobject:
                raise TypeError(f"array {name!r} holds Python objects; only plain numbers, text and stamps are stored")
            entry = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            with archive.open(entry, "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def read_npz(path: Path) -> dict[str, NDArray[Any]]:
    """Read an npz without pickle and with its size bounded. Raises BadInput or Corrupt."""
    try:
        with zipfile.ZipFile(path) as archive:
            if sum(item.file_size for item in archive.infolist()) > MAX_NPZ_BYTES:
                raise BadInput(
                    f"{path} unpacks to more than {MAX_NPZ_BYTES} bytes; it is not a file this project wrote."
                )
        with np.load(path, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    except FileNotFoundError as error:
        raise BadInput(f"{path} does not exist; run the stage that writes it first.") from error
    except (zipfile.BadZipFile, ValueError, EOFError, KeyError, OSError) as error:
        raise Corrupt(
            f"{path} cannot be read as an npz ({error}); restore it or run the stage that writes it again."
        ) from error
