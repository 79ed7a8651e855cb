"""The Typer application, its groups, the options that commands share, and what every command starts from."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from explainbench.core.params import Params
    from explainbench.core.workspace import Workspace

# Nothing we start reports home, whatever the user's environment says.
NO_TELEMETRY = {
    "DO_NOT_TRACK": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DVC_NO_ANALYTICS": "1",
    "GX_ANALYTICS_ENABLED": "false",
    "HF_HUB_DISABLE_TELEMETRY": "1",
}

app = typer.Typer(
    name="explainbench",
    help="ExplainBench: which explanation of which forecaster can be trusted? A reproducible benchmark.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
data_app = typer.Typer(help="The dataset: describe, validate, simulate or import it.", no_args_is_help=True)
list_app = typer.Typer(help="What is registered, and the grid of cells.", no_args_is_help=True)
app.add_typer(data_app, name="data")
app.add_typer(list_app, name="list")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Workers = Annotated[
    int, typer.Option("--workers", "-w", min=1, help="Cells computed at once; results do not depend on it.")
]
SuiteName = Annotated[str, typer.Option("--suite", help="energy, ground_truth, agnostic or axe.")]

ALONE = ("audit", "diff", "schema")  # commands that also work outside a project
CORES = len(os.sched_getaffinity(0))  # those this process may use, not those the machine has


@dataclass(frozen=True, slots=True)
class Project:
    """What every command starts from."""

    workspace: Workspace
    params: Params
    profile: str | None = None


@app.callback()
def project(
    context: typer.Context,
    root: Annotated[
        Path | None, typer.Option(help="Project folder (default: the nearest one with params.yaml).")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Folder for everything that is written (default: the project folder).")
    ] = None,
    profile: Annotated[str | None, typer.Option(help="Profile of params.yaml laid over it: pilot, smoke, …")] = None,
) -> None:
    """Find the project and read its parameters."""
    from explainbench.core.errors import BadInput
    from explainbench.core.params import load_params
    from explainbench.core.workspace import Workspace

    if context.resilient_parsing or "--help" in sys.argv:
        return
    try:
        workspace = Workspace.find(root, output)
    except BadInput:
        if context.invoked_subcommand in ALONE and root is None:
            return  # a bundle needs no project around it
        raise
    context.obj = Project(workspace, load_params(workspace.params, profile), profile)
