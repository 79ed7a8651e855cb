"""`explainbench data ...`: the dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from explainbench.cli._app import AsJson, data_app
from explainbench.cli._show import show
from explainbench.core.errors import BadInput


@data_app.command("simulate")
def data_simulate(context: typer.Context) -> None:
    """Write the simulated dataset again, from its seeds: the same bytes as those under DVC."""
    from explainbench.stages.data import simulate

    show(simulate(context.obj.workspace, context.obj.params), as_json=False)


@data_app.command("validate")
def data_validate(context: typer.Context, as_json: AsJson = False) -> None:
    """Check the data against its SHA-256 manifest and its expectations; stop with the column, rows and rule broken."""
    from explainbench.stages.data import verify_data

    show(verify_data(context.obj.workspace, context.obj.params), as_json)


@data_app.command("windows")
def data_windows(context: typer.Context, as_json: AsJson = False) -> None:
    """Cut the stratified, disjoint benchmark windows of every task."""
    from explainbench.stages.data import cut_windows

    show(cut_windows(context.obj.workspace, context.obj.params), as_json)


@data_app.command("describe")
def data_describe(context: typer.Context, as_json: AsJson = False) -> None:
    """Say what the dataset is: channels, units, span, windows per task and regime."""
    from explainbench.stages.data import describe

    show(describe(context.obj.workspace, context.obj.params), as_json)


@data_app.command("import")
def data_import(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="CSV or Parquet file with your series.")],
    name: Annotated[
        str, typer.Option(help="Dataset entry that will read it: bqeb (the real file) or custom.")
    ] = "custom",
    column: Annotated[
        list[str] | None, typer.Option(help="Column mapping OURS=THEIRS, e.g. --column load_mw=Load. Repeatable.")
    ] = None,
) -> None:
    """Check your own series strictly and copy it under data/, whole or not at all."""
    from explainbench.stages.data import import_table

    mapping: dict[str, str] = {}
    for item in column or []:
        ours, separator, theirs = item.partition("=")
        if not separator or not ours or not theirs:
            raise BadInput(f"--column {item!r} must have the form OURS=THEIRS, for example load_mw=Load.")
        mapping[ours] = theirs
    imported = import_table(context.obj.workspace, file, name, mapping)
    show(imported, as_json=False)
    for task, spec in context.obj.params.suites.energy.tasks.items():
        if spec.target not in imported["channels"]:
            typer.echo(
                f"explainbench: task {task} forecasts {spec.target}, which is not among the columns; map one with "
                f"--column {spec.target}=THEIRS, or leave the task out of suites.energy.tasks.",
                err=True,
            )
