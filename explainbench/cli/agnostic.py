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
    from explainbench.core.errors import BadInput
    from explainbench.core.files import read_json
    from explainbench.figures_radar import draw_radars

    results = context.obj.workspace.results
    document = read_json(results / "agnostic.json")
    if not (isinstance(document, dict) and isinstance(document.get("boards"), list)):
        raise BadInput(f"{results / 'agnostic.json'} holds no boards; run `explainbench leaderboard --suite agnostic`.")
    for path in draw_radars(document, output or results / "radar"):
        typer.echo(str(path))
