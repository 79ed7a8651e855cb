"""`explainbench data public`: public tables that are not shipped."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from explainbench.cli._app import data_app


@data_app.command("public")
def data_public(
    context: typer.Context,
    source: Annotated[
        Path | None, typer.Option("--from", help="Folder with the public files: see docs/axe.md, docs/agnostic.md.")
    ] = None,
) -> None:
    """Copy the public tables and published weights from a folder, or fetch what can be fetched; SHA-256 checked."""
    from explainbench.data._agnostic_tables import PUBLIC
    from explainbench.data._axe_tables import SOURCES, fetch_public, import_public, missing
    from explainbench.stages._axe_params import axe_params
    from explainbench.stages.axe import PUBLIC_FILES

    files = {**PUBLIC_FILES, **PUBLIC}  # of the suites axe and agnostic
    folder = context.obj.workspace.root / axe_params(context.obj.params).folder
    if source is None:
        added = fetch_public(folder, SOURCES, files)
    else:
        added = import_public(source, folder, files)
    for path in added:
        typer.echo(path)
    gone = missing(folder, files)
    typer.echo(f"{len(added)} files added, {len(files) - len(gone)} of {len(files)} in {folder}")
    if gone and source is None:
        typer.echo(f"derived or converted, so only --from FOLDER can bring them: {', '.join(gone)}")
