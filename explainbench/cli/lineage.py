"""Lineage: audit one row's chain, verify every cell."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from explainbench.cli._app import AsJson, app
from explainbench.cli._show import console, show


@app.command()
def audit(
    context: typer.Context,
    what: Annotated[
        str, typer.Argument(help="A run id, a cell id (or its beginning), or a cell name like T1/lstm/shap.")
    ],
    replay: Annotated[bool, typer.Option(help="Recompute the cell and compare the digests.")] = False,
    as_json: AsJson = False,
) -> None:
    """Rebuild and re-hash the chain row, run, record, files, seeds, weights, data, DVC, git; name the broken link."""
    from explainbench.stages.replay import replay_cell
    from mlflow_plugins.lineage import audit as audit_chain
    from mlflow_plugins.lineage import render

    recompute = (lambda stored: replay_cell(context.obj.workspace, context.obj.params, stored)) if replay else None
    chain = audit_chain(context.obj.workspace, what, recompute, context.obj.params)
    if as_json:
        show(chain.as_json(), as_json=True)
    else:
        console().print(render(chain))
    if not chain.ok:
        raise typer.Exit(1)


@app.command()
def verify(
    context: typer.Context,
    against: Annotated[
        Path | None, typer.Option(help="A reference folder with cells/: compare numbers within tolerance instead.")
    ] = None,
    tolerance: Annotated[float, typer.Option(help="Largest relative difference accepted with --against.")] = 1e-4,
    as_json: AsJson = False,
) -> None:
    """Re-hash every cell against its record and cells.lock.json, or compare with the cells of a reference folder."""
    from explainbench.stages.replay import compare_with
    from explainbench.stages.verify import verify as rehash

    workspace = context.obj.workspace
    problems = rehash(workspace) if against is None else compare_with(workspace, against, tolerance)
    if as_json:
        show({"ok": not problems, "problems": problems}, as_json=True)
    else:
        for problem in problems:
            typer.echo(problem)
        typer.echo("every cell verifies" if not problems else f"{len(problems)} problems")
    if problems:
        raise typer.Exit(1)
