"""What the report is made from: one project's files, read once; a part that is not there is a reason, never a blank."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from explainbench.analysis.board import SCHEMA
from explainbench.analysis.reliability import Matrix, reliability_matrix
from explainbench.core.cell import Cell
from explainbench.core.errors import BadInput, Corrupt
from explainbench.core.files import read_json
from explainbench.core.grid import GridCell, energy_grid
from explainbench.core.params import Params
from explainbench.core.provenance import sha256_file, sha256_json
from explainbench.core.workspace import Workspace
from explainbench.stages.suite import locked_cells
from explainbench.store import CellStore, StoredCell

SUITE = "energy"
BY_HAND = ("params.yaml", "data.manifest.json", "requirements.lock")  # beside params.yaml, not in the output folder
WRITERS = {  # file below the project folder: the command that writes it
    "params.yaml": "(edited by hand)",
    "data.manifest.json": "explainbench data simulate",
    "requirements.lock": "make lock",
    "cells.lock.json": "explainbench evaluate",
    "results/grid.json": "explainbench evaluate",
    "results/profile.json": "explainbench profile",
    "results/leaderboard.json": "explainbench leaderboard",
    "results/checks.json": "explainbench checks",
    "results/contexts.json": "explainbench contexts",
}


@dataclass(frozen=True, slots=True)
class Reference:
    """A cell as the report points at it: everything needed to audit a number."""

    cell: Cell
    cell_id: str
    record_digest: str
    verified: bool = True
    problem: str = ""

    @property
    def anchor(self) -> str:
        """Its id in the page."""
        return anchor("cell", str(self.cell))

    @property
    def audit(self) -> str:
        """The command that walks from the row to the data."""
        return f"explainbench audit {self.cell.task}/{self.cell.model}/{self.cell.method} --replay"

    @property
    def run_filter(self) -> str:
        """The filter that finds its run in MLflow, whatever id the store gave it."""
        return f"tags.explainbench.cell_id = '{self.cell_id}'"


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file that numbers were read from."""

    name: str
    sha256: str
    written_by: str

    @property
    def anchor(self) -> str:
        """Its id in the page."""
        return anchor("file", self.name)


@dataclass(frozen=True, eq=False)
class Source:
    """One project's results.

    boards: content of leaderboard.json; cells: finished cells whose record has the digest that cells.lock.json holds;
    lock: the suite's part of it;
    cards: (task, model) -> model card; windows: task -> window card; outcomes: rows of grid.json by cell;
    profile, validation, checks, contexts: content of their files, None where a stage has not run; refused: one
    sentence per cell that is not read.
    """

    workspace: Workspace
    params: Params
    boards: Mapping[str, Any]
    cells: Mapping[Cell, StoredCell]
    lock: Mapping[str, str]
    cards: Mapping[tuple[str, str], Mapping[str, Any]]
    windows: Mapping[str, Mapping[str, Any]]
    outcomes: Mapping[str, Mapping[str, Any]]
    profile: Mapping[str, Any] | None = None
    validation: Mapping[str, Any] | None = None
    checks: Mapping[str, Any] | None = None
    contexts: Mapping[str, Any] | None = None
    refused: tuple[str, ...] = ()
    files: tuple[SourceFile, ...] = ()

    @property
    def tasks(self) -> tuple[str, ...]:
        """Tasks of the suite, in the order of params.yaml."""
        return tuple(self.params.suites.energy.tasks)

    @cached_property
    def grid(self) -> tuple[GridCell, ...]:
        """All cells as they were evaluated, with the obstacle of those that are none; as declared where none were."""
        evaluated = tuple(
            GridCell(cell, row["baseline"], row["reason"] if row["status"] == "excluded" else None)
            for name, row in self.outcomes.items()
            if (cell := Cell.parse(name)).suite == SUITE
        )
        return evaluated or energy_grid(self.params.suites.energy)

    @cached_property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """The registered (model, method) pairs that are cells: 58 for the shipped registry."""
        first = self.tasks[0] if self.tasks else ""
        return tuple(
            (item.cell.model, item.cell.method)
            for item in self.grid
            if item.cell.task == first and not item.baseline and item.obstacle is None
        )

    @cached_property
    def matrices(self) -> dict[str, Matrix]:
        """Task -> Reliability Matrix."""
        return {task: reliability_matrix(self.boards["boards"], SUITE, task, self.pairs) for task in self.tasks}

    @cached_property
    def references(self) -> dict[Cell, Reference]:
        """Every cell that a board or the store knows, sorted."""
        found: dict[Cell, Reference] = {}
        flagged = self.boards["flagged"]
        for board in self.boards["boards"]:
            for ref in (ref for row in board["rows"] for ref in row["cells"]):
                problem = flagged.get(ref["cell"], "")
                cell = Cell.parse(ref["cell"])
                found[cell] = Reference(cell, ref["cell_id"], ref["record_digest"], not problem, problem)
        for cell, stored in self.cells.items():
            unseen = Reference(cell, stored.record.cell_id, stored.digest, False, "not on any board yet")
            found.setdefault(cell, unseen)
        return dict(sorted(found.items()))

    def file(self, name: str) -> SourceFile | None:
        """A file that was read, by its name below the project folder."""
        return next((item for item in self.files if item.name == name), None)


def read_source(workspace: Workspace, params: Params) -> Source:
    """Read a project's results. Raises BadInput when there are no boards, Corrupt when a file is not what it was."""
    boards = _boards(workspace)
    lock = locked_cells(workspace)[SUITE]
    cells, refused = _cells(workspace, lock)
    cards = dict(_cards(workspace, params))
    results = workspace.results
    return Source(
        workspace=workspace,
        params=params,
        boards=boards,
        cells=cells,
        lock=lock,
        cards=cards,
        windows={
            task: card for task in params.suites.energy.tasks if (card := _json(workspace.windows / f"{task}.json"))
        },
        outcomes={row["cell"]: row for row in _json(results / "grid.json") or ()},
        profile=_json(results / "profile.json"),
        validation=_json(results / "validation" / f"{params.suites.energy.dataset}.json"),
        checks=_document(results / "checks.json", "masks", "explainbench checks"),
        contexts=_document(results / "contexts.json", "tasks", "explainbench contexts"),
        refused=refused,
        files=tuple(_files(workspace, params, cards)),
    )


def anchor(kind: str, name: str) -> str:
    """A page id: letters, digits, dots and hyphens only, whatever the name holds; different names stay different."""
    plain = re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-")
    odd = "" if re.fullmatch(r"[A-Za-z0-9._/()+ -]+", name) else f"-{sha256_json(name)[:8]}"
    return f"{kind}-{plain}{odd}"


def _boards(workspace: Workspace) -> Mapping[str, Any]:
    path = workspace.results / "leaderboard.json"
    if not path.is_file():
        raise BadInput(f"there are no boards to report ({path}); run `explainbench leaderboard` first.")
    content = read_json(path)
    if not isinstance(content, dict) or not isinstance(content.get("boards"), list):
        raise Corrupt(f"{path} is not a leaderboard; run `explainbench leaderboard` again.")
    if content.get("schema") != SCHEMA:
        raise Corrupt(f"{path} was written by another version of explainbench; run `explainbench leaderboard` again.")
    return {"flagged": {}, "failed": {}, "missing": [], "verified": False, "banner": "", "protocol": ""} | content


def _cells(workspace: Workspace, lock: Mapping[str, str]) -> tuple[dict[Cell, StoredCell], tuple[str, ...]]:
    store = CellStore(workspace.cells)
    found: dict[Cell, StoredCell] = {}
    refused: list[str] = []
    for folder in store.folders():
        if not folder.name.startswith(f"{SUITE}."):
            continue
        try:
            stored = store.read(folder)
        except (BadInput, Corrupt) as error:
            refused.append(str(error))
            continue
        if lock.get(stored.record.cell_id) == stored.digest:
            found[stored.cell] = stored
        else:
            refused.append(f"{folder.name} does not have the digest that cells.lock.json holds for it.")
    return dict(sorted(found.items())), tuple(refused)


def _files(workspace: Workspace, params: Params, cards: Iterable[tuple[str, str]]) -> Iterator[SourceFile]:
    dataset = params.suites.energy.dataset
    written_by = WRITERS | {f"results/validation/{dataset}.json": "explainbench data validate"}
    written_by |= {f"models/{task}/{model}/card.json": f"explainbench fit --model {model}" for task, model in cards}
    for name, command in written_by.items():
        path = (workspace.root if name in BY_HAND else workspace.output) / name
        if path.is_file():
            yield SourceFile(name, sha256_file(path), command)


def _cards(workspace: Workspace, params: Params) -> Iterator[tuple[tuple[str, str], Mapping[str, Any]]]:
    for task in params.suites.energy.tasks:
        for model in params.suites.energy.models:
            card = _json(workspace.models / task / model / "card.json")
            if card:
                yield (task, model), card


def _json(path: Path) -> Any:
    return read_json(path) if path.is_file() else None


def _document(path: Path, part: str, command: str) -> Any:
    """A stage's file, None where it has not run. Raises Corrupt where it lacks a part that it always holds."""
    content = _json(path)
    if path.is_file() and not (isinstance(content, dict) and part in content):
        raise Corrupt(f"{path} is not what `{command}` writes; run it again.")
    return content
