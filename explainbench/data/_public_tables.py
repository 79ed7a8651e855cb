"""Public tables that are not shipped: found in a folder the user names, checked by SHA-256, split as the papers did."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from explainbench.core.arrays import Floats
from explainbench.core.errors import BadInput

MAX_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """A table cut into a training and a test part, numbers only.

    train_x: (n, d), test_x: (m, d), standardised or 0/1; train_y: (n,), test_y: (m,); names: of the d columns.
    """

    train_x: Floats
    test_x: Floats
    train_y: NDArray[Any]
    test_y: NDArray[Any]
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PublicFile:
    """A file as published. names: what it may be called in the user's folder; sha256: of its bytes.

    preamble: where the published file starts with a comment line that is no part of the checked bytes.
    """

    title: str
    names: tuple[str, ...]
    sha256: str
    source: str
    preamble: bytes | None = None

    def read(self, folder: Path) -> bytes:
        """The checked bytes. Raises BadInput where the file is missing or is another one."""
        path = next((folder / name for name in self.names if (folder / name).is_file()), None)
        if path is None:
            raise BadInput(
                f"{folder} holds no {' or '.join(self.names)} ({self.title}); explainbench downloads nothing: get the "
                f"file from {self.source} and name its folder with --from."
            )
        if path.stat().st_size > MAX_BYTES:
            raise BadInput(f"{path} is larger than {MAX_BYTES} bytes; it is not {self.title}.")
        content = path.read_bytes()
        if self.preamble is not None and content.startswith(self.preamble):
            content = content[content.index(b"\n") + 1 :]
        found = hashlib.sha256(content).hexdigest()
        if found != self.sha256:
            raise BadInput(
                f"{path} has SHA-256 {found[:12]}..., but {self.title} has {self.sha256[:12]}...; published numbers "
                f"hold for that file only: get it from {self.source}."
            )
        return content
