"""The seal of a run: one digest per tag, param, metric and file as they were logged, so that a later change is
detected and located even where the value follows from nothing else (a commit, a note, a timing, a picture)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from explainbench.core.provenance import sha256_file

FILE = "seal.json"  # artifact of the run
TAG = "explainbench.seal"  # SHA-256 of that file
MUTABLE = ("explainbench.superseded", "explainbench.superseded_because", TAG)  # set again after a run was logged


def leaves(
    name: str,
    tags: Mapping[str, str],
    params: Mapping[str, str],
    metrics: Mapping[str, float],
) -> dict[str, str]:
    """{what: SHA-256} of everything of a run but its files and its datasets, which it shares with other runs."""
    found = {"name": _text(name)}
    found |= {f"tag {key}": _text(value) for key, value in tags.items() if key not in MUTABLE}
    found |= {f"param {key}": _text(value) for key, value in params.items()}
    found |= {f"metric {key}": _text(repr(float(value))) for key, value in metrics.items()}
    return found


def artifact_leaves(folder: Path) -> dict[str, str]:
    """{`artifact name`: SHA-256} of every file under a folder that is to be logged, or was."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {f"artifact {path.relative_to(folder).as_posix()}": sha256_file(path) for path in files}


def document(found: Mapping[str, str]) -> str:
    """The text of `seal.json`."""
    return json.dumps(dict(found), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def digest(text: str) -> str:
    """What the tag holds."""
    return _text(text)


def _text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
