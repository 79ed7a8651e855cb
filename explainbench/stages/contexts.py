"""The stage `contexts`, task T3: model and method fixed, the deployment context varied."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from explainbench.analysis.board import DIGITS
from explainbench.analysis.contexts import INDICES, in_contexts, variance_shares
from explainbench.core.errors import BadInput, NotApplicable
from explainbench.core.files import write_json
from explainbench.core.params import Params
from explainbench.core.workspace import Workspace
from explainbench.figures import draw_contexts
from explainbench.stages._finished import read_cells

FILE = "contexts.json"
FIGURE = "contexts.png"
SCHEMA = 1


def contexts(workspace: Workspace, params: Params) -> dict[str, Any]:
    """Act, DSS, EDTS and EEI of every finished cell in every context, with what their variance is due to.

    Writes results/contexts.json and the figure results/contexts.png. EDTS does not depend on the method and EEI hardly
    on the model: their shares say so. Raises BadInput without contexts or finished cells.
    """
    if not params.contexts:
        raise BadInput("params.yaml names no deployment context; list some under `contexts`.")
    grid = read_cells(workspace, params)
    names = [context.name for context in params.contexts]
    tasks: dict[str, Any] = {}
    for task in grid.tasks():
        entries = [each.entry for cell, each in grid.cells.items() if cell.task == task and not each.entry.baseline]
        rows = in_contexts(entries, names, params.statistics.weights)
        shares: dict[str, Any] = {}
        for index in INDICES:
            try:
                shares[index] = {name: _published(share) for name, share in variance_shares(rows, index).items()}
            except NotApplicable as gap:
                shares[index] = {"reason": gap.reason}
        published = [asdict(row) for row in rows]
        for row in published:
            row["values"] = {name: _published(value) for name, value in row["values"].items()}
        tasks[task] = {"rows": published, "variance_shares": shares}
    document = {
        "schema": SCHEMA,
        "protocol": params.protocol,
        "contexts": [context.model_dump(mode="json") for context in params.contexts],
        "note": "context values are illustrative unless their source says otherwise; DSS and EEI hold archived timings",
        "tasks": tasks,
    }
    write_json(workspace.results / FILE, document)
    draw_contexts(document, workspace.results / FIGURE)
    return document


def _published(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.{DIGITS}g}")
