"""Recompute a stored cell, and compare cells with those of another machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from explainbench.core.errors import BadInput, NotApplicable
from explainbench.core.params import Params
from explainbench.core.provenance import sha256_json
from explainbench.core.workspace import Workspace
from explainbench.stages.evaluate import evaluate_cell
from explainbench.stages.hardware import hardware
from explainbench.stages.suite import load_suite
from explainbench.store import CellStore, StoredCell


@dataclass(frozen=True, slots=True)
class Replay:
    """Digest expected and found, and the worst relative difference of a score where they differ.

    tolerance: what `worst` may be on another platform than the record's; None on the same one, where bits must agree.
    """

    expected: str
    found: str
    worst: float
    metric: str
    detail: str
    tolerance: float | None = None

    @property
    def same_bits(self) -> bool:
        """Whether the cell came out bit for bit."""
        return self.expected == self.found

    @property
    def holds(self) -> bool:
        """Whether the cell came out again: bit for bit, or on another platform within the tolerance."""
        return self.same_bits or (self.tolerance is not None and self.worst <= self.tolerance)


def replay_cell(workspace: Workspace, params: Params, stored: StoredCell, tolerance: float = 1e-4) -> Replay:
    """Compute the cell again in a temporary store and compare result digests, then scores.

    On the processor capability and library versions of the record the bits must be the same; elsewhere scores may
    differ by `tolerance`, relative. Raises NotApplicable when code, parameters, weights or data are no longer those of
    the record: then a replay would compare two different things.
    """
    cell = stored.cell
    now = load_suite(cell.suite).spec(workspace, params, cell).model_dump(mode="json")
    if sha256_json(now) != stored.record.cell_id:
        then = stored.record.spec.model_dump(mode="json")
        changed = sorted(key for key in now if now[key] != then.get(key))
        if changed != ["libraries"]:
            raise NotApplicable(f"not replayed: {', '.join(changed)} differ now from what the record was computed with")
    elsewhere = _elsewhere(stored, now["libraries"])
    with TemporaryDirectory(prefix="explainbench-replay-") as folder:
        again = CellStore(Path(folder)).read(evaluate_cell(workspace, params, cell, Path(folder)).folder)
        worst, metric = _worst(stored, again)
        same = again.record.result_digest == stored.record.result_digest
        detail = "same bits" if same else f"scores differ by at most {worst:.3g} relative, in {metric or 'no score'}"
        if elsewhere:
            detail += f"; {elsewhere}, where {tolerance:g} is tolerated"
        allowed = tolerance if elsewhere else None
        return Replay(stored.record.result_digest, again.record.result_digest, worst, metric, detail, allowed)


def _elsewhere(stored: StoredCell, libraries: Mapping[str, str]) -> str:
    """In what this platform is another than the record's, or empty when bits must agree."""
    then = stored.record.spec.libraries
    other = [
        f"{name} {libraries.get(name)} here, {there} there"
        for name, there in then.items()
        if libraries.get(name) != there
    ]
    measured = stored.measured()
    here = str(hardware()["cpu_capability"])
    if measured is not None and measured.cpu_capability != here:
        other.append(f"{here} here, {measured.cpu_capability} there")
    return ", ".join(other)


def compare_with(workspace: Workspace, reference: Path, tolerance: float) -> list[str]:
    """Compare every cell with the cell of the same name under `reference`/cells: problems, each in a sentence.

    For another processor type or torch build, where ids or bits differ but numbers must agree within a relative
    tolerance.
    """
    ours = {stored.cell: stored for stored in CellStore(workspace.cells)}
    theirs = {stored.cell: stored for stored in CellStore(reference / "cells")}
    if not theirs:
        raise BadInput(f"{reference / 'cells'} holds no cells; give the folder that holds cells/.")
    problems = [f"{cell} is only in the reference" for cell in theirs.keys() - ours.keys()]
    problems += [f"{cell} is not in the reference" for cell in ours.keys() - theirs.keys()]
    for cell in ours.keys() & theirs.keys():
        if ours[cell].record.result_digest == theirs[cell].record.result_digest:
            continue
        worst, metric = _worst(theirs[cell], ours[cell])
        if worst > tolerance:
            problems.append(f"{cell}: {metric} differs by {worst:.3g} relative, more than {tolerance:g}")
    return sorted(problems)


def _worst(one: StoredCell, two: StoredCell) -> tuple[float, str]:
    """Largest difference of a raw score, relative to the metric's largest absolute score, and the metric."""
    worst, where = 0.0, ""
    a, b = one.scores().to_pandas(), two.scores().to_pandas()
    for metric, rows in a.groupby("metric"):
        other = b[b["metric"] == metric]
        if len(rows) != len(other) or list(rows["status"]) != list(other["status"]):
            return np.inf, str(metric)
        left, right = rows["raw"].to_numpy(dtype=float), other["raw"].to_numpy(dtype=float)
        known = np.isfinite(left)
        if known.any():
            scale = max(float(np.abs(left[known]).max()), 1e-12)
            difference = float(np.abs(left[known] - right[known]).max()) / scale
            if difference > worst:
                worst, where = difference, str(metric)
    return worst, where
