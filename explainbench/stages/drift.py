"""`drift`: two versions of a model, each given by stored cells, compared on how explainable they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from explainbench.analysis.drift import Drift, Rule, Version, drifts
from explainbench.core.arrays import Bools, Floats
from explainbench.core.cell import Cell, stream
from explainbench.core.errors import BadInput, Corrupt, NotApplicable
from explainbench.core.workspace import Workspace
from explainbench.store import RECORD, CellStore, StoredCell, first_problem

SCHEMA = 1
SCORES = ("stability",)  # per-window scores in [0, 1], higher is better, compared beside the metrics
PARTS = ("suite", "task", "model", "method")
SHORTEST_ID = 8  # digits of a cell id that are taken for one


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two sets of cells compared. pairs: (baseline cell, candidate cell) by what they share, such as `T1/shap`;
    skipped: pairs without a verdict and why; only_baseline, only_candidate: cells without a counterpart.
    """

    drifts: Mapping[str, Drift]
    pairs: Mapping[str, tuple[StoredCell, StoredCell]]
    left_out: Mapping[str, int]  # windows without an explanation in either version
    skipped: Mapping[str, str]
    only_baseline: tuple[str, ...]
    only_candidate: tuple[str, ...]
    rule: Rule
    seed: int

    @property
    def passed(self) -> bool:
        """No pair drifted."""
        return all(one.passed for one in self.drifts.values())

    def as_json(self) -> dict[str, Any]:
        """Everything, as plain JSON."""
        return {
            "schema": SCHEMA,
            "passed": self.passed,
            "reasons": [f"{name}: {reason}" for name, one in self.drifts.items() for reason in one.reasons],
            "rule": asdict(self.rule),
            "seed": self.seed,
            "pairs": [
                {
                    "name": name,
                    "baseline": _reference(self.pairs[name][0]),
                    "candidate": _reference(self.pairs[name][1]),
                    "windows_left_out": self.left_out[name],
                    **asdict(one),
                }
                for name, one in self.drifts.items()
            ],
            "skipped": dict(self.skipped),
            "only_baseline": list(self.only_baseline),
            "only_candidate": list(self.only_candidate),
        }


def compare(workspace: Workspace, baseline: str, candidate: str, rule: Rule, seed: int) -> Comparison:
    """Compare two versions, each a result folder, the folder of a cell, or a name in the store (see `select`).

    Cells are paired by the parts of their names in which either side's cells differ: two result folders by task, model
    and method, `T1/lstm` and `T1/transformer` by method. Raises BadInput (nothing to compare, other windows, another
    protocol) and Corrupt (files without their digests).
    """
    before, after = select(workspace, baseline), select(workspace, candidate)
    varying = [part for part in PARTS if any(len({getattr(c, part) for c in side}) > 1 for side in (before, after))]
    one, two = (_by_key(side, varying) for side in (before, after))
    shared = [key for key in one if key in two]
    if not shared:
        raise BadInput(
            f"no cell of {baseline} has a counterpart in {candidate} (cells are paired by {', '.join(varying)}): "
            f"{next(iter(one))} is only in the first, {next(iter(two))} only in the second."
        )
    versions: dict[str, tuple[Version, Version]] = {}
    pairs: dict[str, tuple[StoredCell, StoredCell]] = {}
    left_out: dict[str, int] = {}
    skipped: dict[str, str] = {}
    for key in shared:
        pair = (one[key], two[key])
        try:
            versions[key], left_out[key] = _versions(*pair)
        except NotApplicable as reason:
            skipped[key] = reason.reason
        else:
            pairs[key] = pair
    if not versions:
        raise BadInput(f"no pair of cells can be compared: {next(iter(skipped))}: {next(iter(skipped.values()))}.")
    return Comparison(
        drifts(versions, stream(seed, "drift"), rule),
        pairs,
        left_out,
        skipped,
        tuple(str(one[key].cell) for key in one if key not in two),
        tuple(str(two[key].cell) for key in two if key not in one),
        rule,
        seed,
    )


def select(workspace: Workspace, text: str) -> dict[Cell, StoredCell]:
    """The cells that `text` names, by cell.

    A folder: of one cell, of cells, or a result folder that holds `cells/`. Else a name in the project's store: a
    model (`lstm`), `T1/lstm`, `T1/lstm/shap`, each also with the suite before it, or the beginning of a cell id.
    Baselines count only where they are named, further suites' views of energy cells only by their full name.
    Raises BadInput, Corrupt.
    """
    path = Path(text)
    if (path / RECORD).is_file():
        found = [CellStore(path.resolve().parent).read(path)]
    elif path.is_dir():
        store = CellStore(path / "cells" if (path / "cells").is_dir() else path)
        cells = [store.read(folder) for folder in store.folders() if (folder / RECORD).is_file()]
        found = [cell for cell in cells if not _is_baseline(cell) and not _is_copy(cell)]
        if not found:
            raise BadInput(f"{path} holds no cells; give a result folder, a cell's folder or a name like T1/lstm.")
    else:
        found = _named(list(CellStore(workspace.cells)), text)
        if not found:
            raise BadInput(
                f"{text!r} is no folder, and {workspace.cells} holds no cell of that name; give a model (lstm), "
                "task/model, task/model/method, or the beginning of a cell id."
            )
    for stored in found:
        problem = first_problem(stored)
        if problem is not None:
            raise Corrupt(f"{problem}; restore the cell or evaluate it again.")
    explained = {stored.cell: stored for stored in found if {"importance", "regime"} <= stored.explanations().keys()}
    if not explained:
        raise BadInput(f"the cells of {text!r} hold no importances of single windows, so there is nothing to compare.")
    return explained


def _named(cells: Sequence[StoredCell], text: str) -> list[StoredCell]:
    by_id = [cell for cell in cells if len(text) >= SHORTEST_ID and cell.record.cell_id.startswith(text)]
    if by_id:
        return by_id
    parts = text.split("/")
    return [
        cell
        for cell in cells
        if parts in _names(cell.cell)
        and (len(parts) == len(PARTS) or not _is_copy(cell))
        and (parts[-1] == cell.cell.method or not _is_baseline(cell))
    ]


def _names(cell: Cell) -> list[list[str]]:
    """Every way to name the cell: with or without its suite, and the model or the method at the end."""
    full = [cell.suite, cell.task, cell.model, cell.method]
    return [full, full[1:], full[:3], full[1:3], [cell.model]]


def _is_baseline(stored: StoredCell) -> bool:
    return stored.record.spec.method_card.get("category") == "baseline"


def _is_copy(stored: StoredCell) -> bool:
    """A further suite's view of the explanations of an energy cell, which would count twice."""
    parameters = stored.record.spec.parameters
    return "explanations" in parameters or "energy_cell" in parameters.get("task", {})


def _by_key(side: Mapping[Cell, StoredCell], parts: Sequence[str]) -> dict[str, StoredCell]:
    """The cells by the parts of their names that tell them apart, sorted."""
    return {"/".join(getattr(cell, part) for part in parts) or "cell": side[cell] for cell in sorted(side)}


def _versions(before: StoredCell, after: StoredCell) -> tuple[tuple[Version, Version], int]:
    """Both cells on the windows that both explain, and how many others there are. Raises BadInput, NotApplicable."""
    specs = before.record.spec, after.record.spec
    for what, one, two in (
        ("protocol versions", specs[0].protocol, specs[1].protocol),
        ("windows", specs[0].windows_sha256, specs[1].windows_sha256),
    ):
        if one != two:
            raise BadInput(
                f"{before.cell} and {after.cell} have different {what} ({one[:16]} and {two[:16]}); score both "
                "versions under one protocol on the same windows."
            )
    groups = list(dict.fromkeys([*before.record.groups, *after.record.groups]))
    importance = [_on_groups(stored, groups) for stored in (before, after)]
    regime = before.explanations()["regime"].astype(str)
    explained: Bools = np.logical_and.reduce([np.isfinite(e).all(axis=1) & (e.sum(axis=1) > 0) for e in importance])
    if explained.sum() < 2:
        raise NotApplicable(f"{int(explained.sum())} windows are explained by both versions, and 2 are needed")
    scores = [_scores(stored, explained) for stored in (before, after)]
    both = scores[0].keys() & scores[1].keys()
    one, two = (
        Version(e[explained], regime[explained], {name: found[name] for name in sorted(both)})
        for e, found in zip(importance, scores, strict=True)
    )
    return (one, two), int((~explained).sum())


def _on_groups(stored: StoredCell, groups: Sequence[str]) -> Floats:
    """|e| over `groups` (n, g); a group that the model does not see has importance 0."""
    found = np.abs(stored.explanations()["importance"])
    spread = np.zeros((len(found), len(groups)))
    spread[:, [groups.index(name) for name in stored.record.groups]] = found
    return spread


def _scores(stored: StoredCell, rows: Bools) -> dict[str, Floats]:
    """Per-window scores that are known on all of `rows`."""
    table = stored.scores()
    columns = [table.column(name).to_pylist() for name in ("window", "metric", "value")]
    found: dict[str, Floats] = {name: np.full(len(rows), np.nan) for name in SCORES}
    for window, metric, value in zip(*columns, strict=True):
        if metric in found and window >= 0 and value is not None:
            found[metric][window] = value
    return {name: values[rows] for name, values in found.items() if np.isfinite(values[rows]).all()}


def _reference(stored: StoredCell) -> dict[str, str]:
    return {"cell": str(stored.cell), "cell_id": stored.record.cell_id, "record_digest": stored.digest}
