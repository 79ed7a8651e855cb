"""The report: one self-contained HTML file, read from top to bottom, every number with a way to its row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from explainbench.analysis.reliability import COMPOSITES
from explainbench.core.files import write_bytes
from explainbench.core.params import Params
from explainbench.core.workspace import Workspace
from explainbench.report.boards import board_groups
from explainbench.report.calibration import diagrams
from explainbench.report.checklist import checklist
from explainbench.report.checks import ablations, sanity
from explainbench.report.contexts import FACTORS, shares, tables
from explainbench.report.curves import examples_of
from explainbench.report.findings import findings, pending
from explainbench.report.radar import radars_by_method, radars_by_model
from explainbench.report.source import SUITE, Source, anchor, read_source
from explainbench.report.svg import number
from explainbench.report.tables import (
    COMPONENTS,
    PILOT_COMPOSITES,
    composite_titles,
    configuration,
    exclusions,
    forecasters,
    matrix_rows,
    table_12,
    table_12a,
    table_13a,
)

NAME = "report.html"
TEMPLATES = Path(__file__).parent / "templates"
SECTIONS = {  # name of the template and of the page's section: its title
    "findings": "What the boards say",
    "run": "What was run",
    "reading": "How to read this",
    "matrix": "Reliability Matrix",
    "boards": "Boards",
    "examples": "Explanations over load curves",
    "calibration": "Uncertainty, calibrated",
    "contexts": "Deployment contexts",
    "ablations": "Ablations",
    "checks": "Checks of the benchmark",
    "tables": "Every cell in full",
    "pilot": "The pilot",
    "checklist": "Reproducibility checklist",
    "limits": "Limits",
    "audit": "Sources and audit",
}


def build_report(workspace: Workspace, params: Params, path: Path | None = None) -> Path:
    """Read the project's results and write the page; returns where it lies. The same files give the same bytes.

    path: the file to write, `results/report.html` by default. Raises BadInput when there are no boards.
    """
    target = path or workspace.results / NAME
    write_bytes(target, render(read_source(workspace, params)).encode())
    return target


def render(source: Source) -> str:
    """The page of one project's results."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["number"] = number
    environment.filters["words"] = lambda name: str(name).replace("_", " ")
    environment.globals["anchor"] = anchor
    page = environment.get_template("page.html.j2").render(_content(source))
    return "\n".join(line.strip() for line in page.splitlines() if line.strip()) + "\n"  # indentation is a tenth of it


def _content(source: Source) -> dict[str, Any]:
    energy, tasks = source.params.suites.energy, source.tasks
    ticks = checklist(source)
    ranked = [item.cell for item in source.grid if not item.baseline and item.obstacle is None]
    matrices = {task: matrix_rows(source, task) for task in tasks}
    return {
        "source": source,
        "params": source.params,
        "energy": energy,
        "tasks": tasks,
        "sections": list(SECTIONS.items()),
        "title": f"{SUITE} suite, protocol {source.params.protocol}",
        "composites": COMPOSITES,
        "titles": composite_titles(),
        "components": COMPONENTS,
        "finished": sum(cell in source.references for cell in ranked),
        "wanted": len(ranked),
        "window_counts": _window_counts(source),
        "findings": {task: findings(source, task) for task in tasks},
        "pending": pending(source),
        "configuration": configuration(source),
        "exclusions": exclusions(source),
        "forecasters": forecasters(source),
        "matrix": list(zip(*matrices.values(), strict=True)),
        "radars": {task: (radars_by_method(source, task), radars_by_model(source, task)) for task in tasks},
        "groups": {task: board_groups(source, task) for task in tasks},
        "examples": {task: [examples_of(source, task, model) for model in energy.models] for task in tasks},
        "diagrams": {task: diagrams(source, task) for task in tasks},
        "table_12": {task: {model: table_12(source, task, model) for model in energy.models} for task in tasks},
        "table_12a": table_12a(source),
        "table_13a": {task: table_13a(source, task) for task in tasks},
        "pilot_composites": PILOT_COMPOSITES,
        "factors": FACTORS,
        "context_shares": shares(source),
        "context_tables": {task: tables(source, task) for task in tasks},
        "ablations": ablations(source),
        "sanity": sanity(source),
        "ticks": ticks,
        "held": sum(tick.finding.verdict == "yes" for tick in ticks),
    }


def _window_counts(source: Source) -> dict[str, int]:
    """Task -> windows that its cells were scored on, as far as they are known."""
    counts = {task: int(card["windows"]) for task, card in source.windows.items() if "windows" in card}
    for board in source.boards["boards"]:
        counts.setdefault(board["task"], board["n"] + board["dropped"])
    return counts
