"""`explainbench radar`: the agnostic suite in pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from explainbench.cli._app import app


@app.command()
def radar(
    context: typer.Context,
    output: Annotated[Path | None, typer.Option(help="Folder for the pictures (default: results/radar).")] = None,
) -> None:
    """Draw the radar of every task of the agnostic suite from its boards, as SVG and PNG."""
    from explainbench.core.files import read_json
    from explainbench.figures_radar import draw_radars

    results = context.obj.workspace.results
    for path in draw_radars(read_json(results / "agnostic.json"), output or results / "radar"):
        typer.echo(str(path))
