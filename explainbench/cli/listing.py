"""`explainbench list ...`: what is registered, and the grid of cells."""

from __future__ import annotations

import typer

from explainbench.cli._app import AsJson, SuiteName, list_app
from explainbench.cli._show import show, show_entries, show_table


@list_app.command("models")
def list_models(context: typer.Context, as_json: AsJson = False) -> None:
    """The registered forecasting models and what they declare."""
    from explainbench.core.registry import MODELS

    show_entries(
        MODELS,
        ("channels", "input_differentiable", "attention", "native_quantiles", "weights_source", "licence"),
        as_json,
    )


@list_app.command("methods")
def list_methods(context: typer.Context, as_json: AsJson = False) -> None:
    """The registered explanation methods and what they declare."""
    from explainbench.core.registry import METHODS

    show_entries(METHODS, ("category", "deterministic", "surrogate", "vector", "needs", "cost"), as_json)


@list_app.command("metrics")
def list_metrics(context: typer.Context, as_json: AsJson = False) -> None:
    """The component metrics and the equations they implement."""
    from explainbench.core.registry import METRICS

    show_entries(METRICS, ("equation", "level", "unit"), as_json)


@list_app.command("cells")
def list_cells(context: typer.Context, as_json: AsJson = False, suite_name: SuiteName = "energy") -> None:
    """The compatibility matrix: which method is a cell for which model, and the reason for every pair that is not."""
    from explainbench.core.grid import check_blocks, energy_grid

    if suite_name != "energy":
        _list_suite(context, suite_name, as_json)
        return
    suite = context.obj.params.suites.energy
    check_blocks(context.obj.params)
    grid = energy_grid(suite)
    if as_json:
        rows = [{"cell": str(entry.cell), "baseline": entry.baseline, "excluded": entry.obstacle} for entry in grid]
        show(rows, as_json=True)
        return
    pairs = {(entry.cell.model, entry.cell.method): entry for entry in grid}
    cells = [[model, *("-" if pairs[model, m].obstacle else "yes" for m in suite.methods)] for model in suite.models]
    show_table(["model", *suite.methods], cells)
    reasons = [
        [model, method, entry.obstacle] for (model, method), entry in pairs.items() if entry.obstacle is not None
    ]
    if reasons:
        show_table(["model", "method", "excluded because"], reasons)
    ranked = sum(entry.obstacle is None and not entry.baseline for entry in grid)
    shown = sum(entry.obstacle is None and entry.baseline for entry in grid)
    typer.echo(
        f"{suite.compatibility}: {ranked} cells over the tasks {', '.join(suite.tasks)}, and {shown} of the baselines "
        f"{', '.join(suite.baselines) or 'none'}, shown but never ranked"
    )


def _list_suite(context: typer.Context, name: str, as_json: bool) -> None:
    from explainbench.stages.suite import load_suite

    grid = load_suite(name).grid(context.obj.workspace, context.obj.params)
    rows = [
        {
            "cell": str(entry.cell),
            "baseline": entry.baseline,
            "excluded": entry.obstacle,
            "pending": entry.pending,
        }
        for entry in grid
    ]
    if as_json:
        show(rows, as_json=True)
        return
    show_table(["cell", "baseline", "excluded because", "pending"], [list(row.values()) for row in rows])
    typer.echo(f"{sum(entry.runnable for entry in grid)} of {len(grid)} cells can be computed here")
