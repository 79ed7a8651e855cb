"""What the parts of the AXE suite share: how a cell is identified, and how its scores are handed to the store."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from explainbench.core.cell import Cell, CellResult
from explainbench.core.params import Params
from explainbench.core.provenance import canonical_json, sha256_json, source_identity, versions
from explainbench.core.record import CellName, CellSpec
from explainbench.core.workspace import Workspace
from explainbench.data._axe_tables import missing
from explainbench.stages._axe_params import AxeParams
from explainbench.stages._axe_scores import Judged
from explainbench.stages.suite import Outcome
from explainbench.store import StoredRows

NUMERICAL = ("numpy", "scipy", "scikit-learn")
SCORES = "explainbench.stages._axe_scores"  # the module whose imports are the code on a cell's path


def spec_of(
    params: Params,
    cell: Cell,
    *,
    runs: int,
    parameters: dict[str, Any],
    dataset: str,
    dataset_sha256: str,
    windows_sha256: str,
    model_card: dict[str, Any],
    weights_sha256: str,
    weights_source: str,
    method_card: Mapping[str, Any],
    modules: list[str],
    libraries: set[str],
) -> CellSpec:
    return CellSpec(
        protocol=params.protocol,
        cell=CellName(**asdict(cell)),
        seed=params.seed,
        runs=runs,
        parameters=plain(parameters),
        dataset=dataset,
        dataset_sha256=dataset_sha256,
        windows_sha256=windows_sha256,
        model_card_sha256=sha256_json(plain(model_card)),
        weights_sha256=weights_sha256,
        weights_source=weights_source,
        method_card=plain(method_card),
        sources=source_identity(modules),
        libraries=versions({*NUMERICAL, *libraries}),
    )


def outcome_of(
    cell: Cell, seed: int, judged: Judged, rows: StoredRows, names: tuple[str, ...], streams: Mapping[str, list[int]]
) -> Outcome:
    return Outcome(
        CellResult(cell, judged.scores, judged.skipped),
        rows,
        judged.arrays,
        {"seed": seed, "streams": dict(streams), "rule": "numpy SeedSequence(seed, spawn_key = SHA-256 of the names)"},
        names,
        counters=judged.counters,
        notes=judged.notes,
        model_seconds=judged.model_seconds,
    )


def plain(value: Any) -> Any:
    """Tuples as lists, as a record holds them."""
    return json.loads(canonical_json(value))


def awaits(workspace: Workspace, block: AxeParams, files: dict[str, str]) -> str | None:
    gone = missing(workspace.root / block.folder, files)
    if not gone:
        return None
    return f"needs {', '.join(gone)}, which is not shipped; run `explainbench data public --from FOLDER`"


def dataset_sha256(name: str, files: dict[str, str], digest: str) -> str:
    """Of a public table the digests of its files, of a generated one its content."""
    return sha256_json({"table": name, "files": files} if files else {"table": name, "content": digest})
