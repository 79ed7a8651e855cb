"""What a suite is to the engine: a grid, the identity of each of its cells, and how one is scored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Protocol, cast

from numpy.typing import NDArray

from explainbench.core.cell import Cell, CellResult
from explainbench.core.errors import BadInput, Corrupt
from explainbench.core.files import read_json
from explainbench.core.grid import GridCell
from explainbench.core.params import Params
from explainbench.core.record import CellSpec
from explainbench.core.workspace import Workspace
from explainbench.store import CellStore, StoredCell, StoredRows, read_lock

NAMES = ("energy", "ground_truth", "agnostic", "axe")  # in the order of results/grid.json
GRID = "grid.json"  # what became of every cell of every suite, in results/


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """A scored cell before it is stored.

    rows: what the scores are about, in their order; arrays: explanations.npz, with `importance` (n, g) where a method
    gives one vector per row; seeds: seeds.json; groups: names of the g features; counters: model evaluations and
    gradient passes per explanation; notes: diagnostics; model_seconds: a measurement, part of no digest.
    """

    result: CellResult
    rows: StoredRows
    arrays: Mapping[str, NDArray[Any]]
    seeds: Mapping[str, Any]
    groups: tuple[str, ...]
    counters: tuple[float, float] = (0.0, 0.0)
    notes: Mapping[str, float] = field(default_factory=dict)
    model_seconds: float = 0.0


class Suite(Protocol):
    """One module `stages/<name>.py` that offers an instance of this as `SUITE`; see docs/suites.md."""

    def grid(self, workspace: Workspace, params: Params) -> tuple[GridCell, ...]:
        """Every cell, with the obstacle or what it is pending for where it cannot be run. Raises BadInput."""
        ...

    def spec(self, workspace: Workspace, params: Params, cell: Cell) -> CellSpec:
        """Everything that determines the cell's numbers. Raises BadInput when a stage before this one has not run."""
        ...

    def score(self, workspace: Workspace, params: Params, cell: Cell) -> Outcome:
        """Compute the cell: a pure function of its specification. Raises ExplainBenchError, NotApplicable."""
        ...

    def order(self, params: Params, cells: Sequence[Cell]) -> list[Cell]:
        """The cells in the order in which they are best computed: shared work together, heavy cells first."""
        ...

    def draw(self, stored: StoredCell) -> None:
        """Draw the cell's pictures into its folder `figures`, if the suite has any."""
        ...


class Part(Protocol):
    """Cells of one kind, of a suite that has several: see `Composed`."""

    def owns(self, params: Params, cell: Cell) -> bool:
        """Whether the cell is of this kind."""
        ...

    def grid(self, workspace: Workspace, params: Params) -> Iterable[GridCell]:
        """Its cells, as `Suite.grid` lists them."""
        ...

    def spec(self, workspace: Workspace, params: Params, cell: Cell) -> CellSpec:
        """As `Suite.spec`."""
        ...

    def score(self, workspace: Workspace, params: Params, cell: Cell) -> Outcome:
        """As `Suite.score`."""
        ...


@dataclass(frozen=True, slots=True)
class Composed:
    """A suite whose cells are of several kinds: each part lists, identifies and scores its own; it draws nothing.

    place: what the cells are sorted by, so that they are best computed in that order.
    """

    parts: tuple[Part, ...]
    place: Callable[[Params, Cell], Any]

    def grid(self, workspace: Workspace, params: Params) -> tuple[GridCell, ...]:
        """Every part's cells."""
        return tuple(entry for part in self.parts for entry in part.grid(workspace, params))

    def spec(self, workspace: Workspace, params: Params, cell: Cell) -> CellSpec:
        """As the cell's part says. Raises BadInput."""
        return self._part(params, cell).spec(workspace, params, cell)

    def score(self, workspace: Workspace, params: Params, cell: Cell) -> Outcome:
        """As the cell's part says."""
        return self._part(params, cell).score(workspace, params, cell)

    def order(self, params: Params, cells: Sequence[Cell]) -> list[Cell]:
        """By place."""
        return sorted(cells, key=lambda cell: self.place(params, cell))

    def draw(self, stored: StoredCell) -> None:
        """No pictures of a cell."""

    def _part(self, params: Params, cell: Cell) -> Part:
        for part in self.parts:
            if part.owns(params, cell):
                return part
        raise BadInput(f"{cell} is no cell of the suite {cell.suite} of params.yaml.")


def load_suite(name: str) -> Suite:
    """The suite called `name`, imported on use. Raises BadInput for an unknown name or a missing module."""
    if name not in NAMES:
        raise BadInput(f"{name!r} is not a suite; there are {', '.join(NAMES)}.")
    module = f"explainbench.stages.{name}"
    try:
        return cast(Suite, import_module(module).SUITE)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise BadInput(f"suite {name!r} is not part of this installation.") from error


def grid_status(workspace: Workspace) -> list[dict[str, Any]]:
    """The rows of results/grid.json: cell, baseline, status, cell_id, reason; none before the first evaluation."""
    path = workspace.results / GRID
    rows = read_json(path) if path.is_file() else []
    if not (
        isinstance(rows, list) and all(isinstance(row, dict) and {"cell", "cell_id"} <= row.keys() for row in rows)
    ):
        raise Corrupt(f"{path} is no list of cells; restore it from git or run `explainbench evaluate`.")
    return rows


def locked_cells(workspace: Workspace) -> dict[str, dict[str, str]]:
    """cells.lock.json by suite: {suite: {cell id: record digest}}.

    The lock names ids only. Whose an id is, say the cell's folder or results/grid.json; an id that neither knows is
    energy's.
    """
    owner = {row["cell_id"][:16]: row["cell"].split("/")[0] for row in grid_status(workspace) if row["cell_id"]}
    owner |= {
        name.rsplit(".", 1)[-1]: name.split(".")[0] for name in (f.name for f in CellStore(workspace.cells).folders())
    }
    found: dict[str, dict[str, str]] = {name: {} for name in NAMES}
    for cell_id, digest in read_lock(workspace.lock).items():
        found[owner.get(cell_id[:16], NAMES[0])][cell_id] = digest
    return found
