"""`explainbench contexts`: task T3."""

from __future__ import annotations

import typer

from explainbench.cli._app import AsJson, app
from explainbench.cli._show import show, show_table


@app.command()
def contexts(context: typer.Context, as_json: AsJson = False) -> None:
    """Task T3: Act, DSS, EDTS and EEI of every cell in every deployment context, and what their variance is due to."""
    from explainbench.stages.contexts import FIGURE, FILE
    from explainbench.stages.contexts import contexts as run_stage

    document = run_stage(context.obj.workspace, context.obj.params)
    if as_json:
        show(document, as_json=True)
        return
    rows = [
        [task, index, *(f"{share:.0%}" for share in found.values())] if "reason" not in found
        else [task, index, found["reason"], "", "", ""]
        for task, content in document["tasks"].items()
        for index, found in content["variance_shares"].items()
    ]  # fmt: skip
    show_table(["task", "index", "due to context", "to model", "to method", "to interactions"], rows)
    typer.echo(f"-> {context.obj.workspace.results / FILE}, {FIGURE}")
