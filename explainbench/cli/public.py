"""`explainbench data public`: public tables that are not shipped."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from explainbench.cli._app import data_app


@data_app.command("public")
def data_public(
    context: typer.Context,
    source: Annotated[Path, typer.Option("--from", help="Folder that holds the public files; docs/axe.md lists them.")],
) -> None:
    """Copy the public tables and published weights found in a folder, each checked by its SHA-256."""
    from explainbench.data._agnostic_tables import PUBLIC
    from explainbench.data._axe_tables import import_public
    from explainbench.stages._axe_params import axe_params
    from explainbench.stages.axe import PUBLIC_FILES

    workspace = context.obj.workspace
    folder = workspace.root / axe_params(context.obj.params).folder
    files = PUBLIC_FILES | PUBLIC
    copied = import_public(source, folder, files)
    for path in copied:
        typer.echo(path)
    typer.echo(f"{len(copied)} of {len(files)} public files -> {folder}")
