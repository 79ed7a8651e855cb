"""The pages, their addresses and parameters: the table from which routes, JSON twins and OpenAPI follow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from werkzeug.datastructures import MultiDict

from explainbench.core.errors import BadInput
from mlflow_plugins.app import views
from mlflow_plugins.app.boards import CHOICES, SORTS
from mlflow_plugins.app.source import Source

LONGEST = 2000  # characters of one parameter


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of an address."""

    name: str
    about: str
    kind: Literal["string", "integer", "boolean", "array"] = "string"
    needed: bool = False
    values: tuple[str, ...] = ()
    default: bool = False

    def read(self, given: MultiDict[str, str]) -> Any:
        """Its value, or what stands for its absence. Raises BadInput."""
        values = [value for value in given.getlist(self.name) if value]
        if any(len(value) > LONGEST for value in values):
            raise BadInput(f"parameter {self.name!r} is longer than {LONGEST} characters.")
        if self.kind == "array":
            return values
        if not values:
            if self.needed:
                raise BadInput(f"parameter {self.name!r} is missing: {self.about}")
            return {"string": "", "integer": 0, "boolean": self.default}[self.kind]
        if self.kind == "boolean":
            return values[-1].lower() in ("1", "true", "on", "yes")
        if self.kind == "integer":
            if not values[0].isascii() or not values[0].isdigit():
                raise BadInput(f"parameter {self.name!r} is a whole number from 0, not {values[0][:40]!r}.")
            return int(values[0])
        return values[0]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A page `/explainbench/<path>` and its JSON twin `/api/explainbench/<name>`, which say the same facts."""

    name: str
    path: str
    facts: Callable[[Source, Any], dict[str, Any]]
    summary: str
    parameters: tuple[Parameter, ...]

    def read(self, given: MultiDict[str, str]) -> dict[str, Any]:
        """All parameters. Raises BadInput."""
        return {parameter.name: parameter.read(given) for parameter in self.parameters}


_SUITE = Parameter("suite", "suite of the benchmark; the first that has boards when left out")
_CELL = Parameter("id", "a cell: its name (T1/lstm/shap), its id or the beginning of it, or the id of its run")
_WINDOW = Parameter("window", "which window's explanation is shown, from 0", "integer")
_A = Parameter("a", "the first of the two")
_B = Parameter("b", "the second of the two")

_FIRST = Parameter("first", "the first row of the page, from 0; the JSON and CSV of a board hold all", "integer")

ENDPOINTS = (
    Endpoint(
        "boards",
        "",
        views.boards,
        "The boards of a suite by task and score, with the choices that narrow them down",
        (_SUITE, *(Parameter(key, f"only boards of this {key}") for key in CHOICES)),
    ),
    Endpoint(
        "board",
        "board",
        views.board,
        "One board: rows with intervals and co-ranked groups, filtered and sorted",
        (
            _SUITE,
            Parameter("name", "the board's name, such as T1.EQI.F.cells", needed=True),
            Parameter("protocol", "protocol version, where the store holds boards of several"),
            Parameter("q", "words that a row's names must contain"),
            Parameter("source", "only rows with weights of this source: trained, standin, official"),
            Parameter("baselines", "whether baselines are shown", "boolean", default=True),
            Parameter("sort", "column to sort by", values=SORTS),
            Parameter("down", "largest first", "boolean"),
            _FIRST,
        ),
    ),
    Endpoint(
        "live",
        "live",
        views.live,
        "Any metric of a task straight from the tracking store, as the runs have it",
        (
            _SUITE,
            Parameter("task", "the task, such as T1", needed=True),
            Parameter("metric", "a metric as MLflow names it, such as stability/value", needed=True),
            Parameter("model", "only cells of this model"),
            Parameter("protocol", "protocol version, where the store holds cells of several"),
            Parameter("lower", "whether lower is better", "boolean"),
            _FIRST,
        ),
    ),
    Endpoint(
        "cell", "cell", views.cell, "One cell: scores by regime, explanation, seeds, provenance", (_CELL, _WINDOW)
    ),
    Endpoint("lineage", "lineage", views.lineage, "The audit of a cell, made at this moment", (_CELL,)),
    Endpoint(
        "compare",
        "compare",
        views.comparison,
        "Two cells side by side with the paired test of every score they share",
        (_A, _B, Parameter("cell", "the two cells, in place of a and b", "array"), _WINDOW),
    ),
    Endpoint(
        "runs",
        "runs",
        views.runs,
        "The runs of a suite's experiment, newest first",
        (
            _SUITE,
            Parameter("filter", "a search filter in MLflow's own language"),
            Parameter("token", "where the next page begins, from the answer before"),
        ),
    ),
    Endpoint(
        "diff",
        "diff",
        views.diff,
        "Two runs field by field",
        (
            _A,
            _B,
            Parameter("run", "the two runs, in place of a and b", "array"),
            Parameter("all", "also fields on which both agree", "boolean"),
        ),
    ),
)
