"""`explainbench checks`: ablations and the checks of the benchmark itself."""

from __future__ import annotations

from typing import Annotated

import typer

from explainbench.cli._app import CORES, AsJson, Workers, app
from explainbench.cli._show import progress_bars, show


@app.command()
def checks(
    context: typer.Context,
    model: Annotated[list[str] | None, typer.Option(help="Only this model; repeatable. Default: all.")] = None,
    workers: Workers = CORES,
    as_json: AsJson = False,
) -> None:
    """Which conclusions survive other weights, masks, K and segments; can the metrics tell right from random?"""
    from explainbench.core.cell import Cell
    from explainbench.stages.checks import FILE, summary
    from explainbench.stages.checks import checks as run_stage

    workspace, params = context.obj.workspace, context.obj.params
    with progress_bars() as progress:
        bar = progress.add_task("checks", total=None)

        def finished(job: Cell, seconds: float) -> None:
            progress.advance(bar)
            progress.console.print(f"{job}  {seconds:.1f} s", markup=False)

        found = run_stage(workspace, params, workers, finished, only=model or ())
    show(found if as_json else summary(found), as_json)
    typer.echo(f"-> {workspace.results / FILE}", err=True)
