"""`explainbench report`: one HTML file that explains a run from top to bottom."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from explainbench.cli._app import app


@app.command("report")
def report_command(
    context: typer.Context,
    file: Annotated[Path | None, typer.Option(help="File to write (default: results/report.html).")] = None,
) -> None:
    """Write the HTML report: boards, pictures, example explanations, checks and the reproducibility checklist."""
    from explainbench.report.page import build_report

    written = build_report(context.obj.workspace, context.obj.params, file)
    typer.echo(f"{written} ({written.stat().st_size / 1e6:.1f} MB)")
