"""The command line: parses, calls, prints; nothing else."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from explainbench.core.errors import BadInput, ExplainBenchError

if TYPE_CHECKING:
    from explainbench.core.params import Params
    from explainbench.core.workspace import Workspace

# Nothing we start reports home, whatever the user's environment says.
NO_TELEMETRY = {
    "DO_NOT_TRACK": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DVC_NO_ANALYTICS": "1",
    "GX_ANALYTICS_ENABLED": "false",
    "HF_HUB_DISABLE_TELEMETRY": "1",
}

app = typer.Typer(
    name="explainbench",
    help="ExplainBench: which explanation of which forecaster can be trusted? A reproducible benchmark.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
data_app = typer.Typer(help="The dataset: describe, validate, simulate or import it.", no_args_is_help=True)
list_app = typer.Typer(help="What is registered, and the grid of cells.", no_args_is_help=True)
app.add_typer(data_app, name="data")
app.add_typer(list_app, name="list")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Workers = Annotated[
    int, typer.Option("--workers", "-w", min=1, help="Cells computed at once; results do not depend on it.")
]


CORES = len(os.sched_getaffinity(0))  # those this process may use, not those the machine has


@dataclass(frozen=True, slots=True)
class Project:
    """What every command starts from."""

    workspace: Workspace
    params: Params
    profile: str | None = None


@app.callback()
def project(
    context: typer.Context,
    root: Annotated[
        Path | None, typer.Option(help="Project folder (default: the nearest one with params.yaml).")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Folder for everything that is written (default: the project folder).")
    ] = None,
    profile: Annotated[str | None, typer.Option(help="Profile of params.yaml laid over it: pilot, smoke, …")] = None,
) -> None:
    """Find the project and read its parameters."""
    from explainbench.core.params import load_params
    from explainbench.core.workspace import Workspace

    if context.resilient_parsing or "--help" in sys.argv:
        return
    workspace = Workspace.find(root, output)
    context.obj = Project(workspace, load_params(workspace.params, profile), profile)


# ---------------------------------------------------------------------------------------------------------- data


@data_app.command("simulate")
def data_simulate(context: typer.Context) -> None:
    """Write the simulated dataset again, from its seeds: the same bytes as those under DVC."""
    from explainbench.stages.data import simulate

    _print(simulate(context.obj.workspace, context.obj.params), as_json=False)


@data_app.command("validate")
def data_validate(context: typer.Context, as_json: AsJson = False) -> None:
    """Check the data against its SHA-256 manifest and its expectations; stop with the column, rows and rule broken."""
    from explainbench.stages.data import verify_data

    _print(verify_data(context.obj.workspace, context.obj.params), as_json)


@data_app.command("windows")
def data_windows(context: typer.Context, as_json: AsJson = False) -> None:
    """Cut the stratified, disjoint benchmark windows of every task."""
    from explainbench.stages.data import cut_windows

    _print(cut_windows(context.obj.workspace, context.obj.params), as_json)


@data_app.command("describe")
def data_describe(context: typer.Context, as_json: AsJson = False) -> None:
    """Say what the dataset is: channels, units, span, windows per task and regime."""
    from explainbench.stages.data import describe

    _print(describe(context.obj.workspace, context.obj.params), as_json)


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
    _print(import_table(context.obj.workspace, file, name, mapping), as_json=False)


# ------------------------------------------------------------------------------------------------------ pipeline


@app.command()
def fit(
    context: typer.Context,
    task: Annotated[str | None, typer.Option(help="Only this task.")] = None,
    model: Annotated[str | None, typer.Option(help="Only this model.")] = None,
    workers: Workers = 1,
) -> None:
    """Fit the forecasters on the training series and freeze them; a model that loses to seasonal-naive fails."""
    from functools import partial

    from explainbench.core.cell import Cell
    from explainbench.runner import Failed, run
    from explainbench.stages.fit import fit_cell

    suite = context.obj.params.suites.energy
    jobs = [
        Cell("energy", task_name, model_name, "fit")
        for task_name in ([task] if task else suite.tasks)
        for model_name in ([model] if model else suite.models)
    ]
    failures: list[Failed] = []
    for outcome in run(jobs, partial(fit_cell, context.obj.workspace, context.obj.params), workers):
        if isinstance(outcome, Failed):
            failures.append(outcome)
            typer.echo(f"explainbench: {outcome.reason}", err=True)
            continue
        simple = outcome.quality["seasonal_naive"]
        ours = next(iter(outcome.quality.values()))
        typer.echo(
            f"{outcome.folder.parent.name} {outcome.folder.name}: MASE {ours['mase']:g} (seasonal-naive "
            f"{simple['mase']:g}), {outcome.seconds:.0f} CPU s -> {outcome.folder}"
        )
    if failures:
        raise typer.Exit(2)


@app.command()
def pretrain(
    context: typer.Context,
    model: Annotated[str | None, typer.Option(help="Only this foundation model.")] = None,
) -> None:
    """Pre-train the small stand-ins of the foundation models on a synthetic corpus."""
    from explainbench.stages.pretrain import pretrain_model, zero_shot_models

    for name in [model] if model else zero_shot_models(context.obj.params):
        done = pretrain_model(context.obj.workspace, context.obj.params, name)
        typer.echo(f"{name}: {done.seconds:.0f} CPU s -> {done.folder}")


@app.command()
def evaluate(
    context: typer.Context,
    workers: Workers = CORES,
    publish: Annotated[bool, typer.Option(help="Log each cell to MLflow as it finishes.")] = True,
) -> None:
    """Score every cell that the store does not hold yet. Interrupt it at will: finished cells are kept."""
    from explainbench.runner import Failed
    from explainbench.stages.evaluate import Finished, Plan
    from explainbench.stages.evaluate import evaluate as run_stage

    workspace, params = context.obj.workspace, context.obj.params
    with ExitStack() as stack:
        progress = stack.enter_context(_progress())
        published: Callable[[Path], None] = lambda folder: None  # noqa: E731
        if publish:
            from mlflow_plugins.publish import live

            published = stack.enter_context(live(workspace, params.statistics, _not_logged))
        bar = progress.add_task("cells", total=None)

        def started(todo: Plan) -> None:
            for reason in todo.recomputed:
                progress.console.print(f"recomputed because stored bytes changed: {reason}", markup=False)
            progress.update(bar, total=len(todo.todo))

        def finished(outcome: Finished | Failed) -> None:
            progress.advance(bar)
            if isinstance(outcome, Failed):
                progress.console.print(f"failed: {outcome.cell}: {outcome.reason}", markup=False)
            else:
                published(outcome.folder)
                progress.console.print(f"{outcome.cell}  {outcome.seconds:.1f} s", markup=False)

        summary = run_stage(workspace, params, workers, started, finished)
    share = "" if summary.model_share is None else f", {summary.model_share:.0%} of it inside model calls"
    typer.echo(
        f"{summary.computed} cells computed, {summary.cached} already there, {len(summary.failed)} failed, "
        f"{summary.removed} removed, in {summary.seconds:.1f} s{share} -> {workspace.lock}"
    )
    if summary.failed:
        raise typer.Exit(1)


@app.command("run")
def run_all(context: typer.Context, workers: Workers = CORES) -> None:
    """All stages in order, without DVC: windows, fit (what is missing), evaluate, profile, publish, leaderboard."""
    from explainbench.stages.data import verify_data

    workspace, params = context.obj.workspace, context.obj.params
    verify_data(workspace, params)
    data_windows(context, as_json=False)
    suite = params.suites.energy
    if not all((workspace.models / t / m / "card.json").is_file() for t in suite.tasks for m in suite.models):
        pretrain(context)
        fit(context, workers=workers)
    evaluate(context, workers=workers)
    profile_command(context)
    publish(context)
    leaderboard(context)
    publish(context)  # the boards too


@app.command("profile")
def profile_command(context: typer.Context) -> None:
    """Time one explanation of every cell, on one thread. Archived with the hardware; never part of a digest."""
    from explainbench.stages.profile import FILE, profile

    measured = profile(context.obj.workspace, context.obj.params, lambda cell: typer.echo(str(cell)))
    typer.echo(f"{len(measured['cells'])} cells timed -> {context.obj.workspace.results / FILE}")


@app.command()
def publish(context: typer.Context, as_json: AsJson = False) -> None:
    """Bring MLflow to the state of the cell store and the boards; running it twice changes nothing."""
    from mlflow_plugins.publish import publish_workspace

    _print(publish_workspace(context.obj.workspace, context.obj.params.statistics), as_json)


@app.command()
def leaderboard(
    context: typer.Context,
    task: Annotated[str | None, typer.Option(help="Only boards of this task.")] = None,
    composite: Annotated[str | None, typer.Option(help="Only boards of this composite or metric.")] = None,
    as_json: AsJson = False,
) -> None:
    """Query the tracking store, cross-check every row, write results/leaderboard.* and print the boards."""
    from mlflow_plugins.leaderboard import build_leaderboard, render_boards, selected

    boards = build_leaderboard(context.obj.workspace, context.obj.params)
    chosen = selected(boards, task, composite)
    if as_json:
        _print(chosen, as_json=True)
    else:
        for table in render_boards(chosen):
            _console().print(table)


@app.command()
def freeze(
    context: typer.Context,
    replace: Annotated[bool, typer.Option(help="Overwrite bounds that are frozen already.")] = False,
) -> None:
    """After a full run: fix the bounds that map raw Faithfulness to [0, 1], so that new entries move no old score."""
    from explainbench.stages.freeze import freeze_bounds

    if context.obj.profile is not None:
        raise BadInput(f"bounds are frozen from the full grid; run freeze without --profile {context.obj.profile}.")
    typer.echo(freeze_bounds(context.obj.workspace, context.obj.params, replace))


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
    chain = audit_chain(context.obj.workspace, what, recompute)
    if as_json:
        _print(chain.as_json(), as_json=True)
    else:
        _console().print(render(chain))
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
    from explainbench.stages.evaluate import verify as rehash
    from explainbench.stages.replay import compare_with

    workspace = context.obj.workspace
    problems = rehash(workspace) if against is None else compare_with(workspace, against, tolerance)
    if as_json:
        _print({"ok": not problems, "problems": problems}, as_json=True)
    else:
        for problem in problems:
            typer.echo(problem)
        typer.echo("every cell verifies" if not problems else f"{len(problems)} problems")
    if problems:
        raise typer.Exit(1)


# ---------------------------------------------------------------------------------------------------------- list


@list_app.command("models")
def list_models(context: typer.Context, as_json: AsJson = False) -> None:
    """The registered forecasting models and what they declare."""
    from explainbench.core.registry import MODELS

    _entries(
        MODELS,
        ("channels", "input_differentiable", "attention", "native_quantiles", "weights_source", "licence"),
        as_json,
    )


@list_app.command("methods")
def list_methods(context: typer.Context, as_json: AsJson = False) -> None:
    """The registered explanation methods and what they declare."""
    from explainbench.core.registry import METHODS

    _entries(METHODS, ("category", "deterministic", "surrogate", "vector", "needs", "cost"), as_json)


@list_app.command("metrics")
def list_metrics(context: typer.Context, as_json: AsJson = False) -> None:
    """The component metrics and the equations they implement."""
    from explainbench.core.registry import METRICS

    _entries(METRICS, ("equation", "level", "unit"), as_json)


@list_app.command("cells")
def list_cells(context: typer.Context, as_json: AsJson = False) -> None:
    """The compatibility matrix: which method is a cell for which model, and the reason for every pair that is not."""
    from explainbench.core.grid import energy_grid

    suite = context.obj.params.suites.energy
    grid = energy_grid(suite)
    if as_json:
        rows = [{"cell": str(entry.cell), "baseline": entry.baseline, "excluded": entry.obstacle} for entry in grid]
        _print(rows, as_json=True)
        return
    pairs = {(entry.cell.model, entry.cell.method): entry for entry in grid}
    cells = [[model, *("-" if pairs[model, m].obstacle else "yes" for m in suite.methods)] for model in suite.models]
    _table(["model", *suite.methods], cells)
    reasons = [
        [model, method, entry.obstacle] for (model, method), entry in pairs.items() if entry.obstacle is not None
    ]
    if reasons:
        _table(["model", "method", "excluded because"], reasons)
    ranked = sum(entry.obstacle is None and not entry.baseline for entry in grid)
    shown = sum(entry.obstacle is None and entry.baseline for entry in grid)
    typer.echo(
        f"{suite.compatibility}: {ranked} cells over the tasks {', '.join(suite.tasks)}, and {shown} of the baselines "
        f"{', '.join(suite.baselines) or 'none'}, shown but never ranked"
    )


# ------------------------------------------------------------------------------------------------------ printing


def _entries(registry: Any, columns: tuple[str, ...], as_json: bool) -> None:
    from dataclasses import asdict

    from explainbench.core.registry import first_line

    rows = [
        {"name": name, "what": first_line(registry.entry(name))} | asdict(registry.card(name))
        for name in registry.names()
    ]
    if as_json:
        _print(rows, as_json=True)
    else:
        _table(["name", *columns, ""], [[row["name"], *(row[c] for c in columns), row["what"]] for row in rows])


def _table(headers: list[str], rows: list[list[Any]]) -> None:
    from rich.table import Table

    table = Table(*headers)
    for row in rows:
        table.add_row(*(_cell_text(value) for value in row))
    _console().print(table)


def _cell_text(value: Any) -> str:
    from rich.markup import escape

    if value is None or value == () or value == []:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return escape(", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value))


def _print(value: Any, as_json: bool) -> None:
    if as_json or not isinstance(value, dict):
        typer.echo(json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False, default=str))
        return
    _print_block(value, 0)


def _print_block(value: dict[str, Any], depth: int) -> None:
    for key, item in value.items():
        if isinstance(item, dict):
            typer.echo(f"{'  ' * depth}{key}:")
            _print_block(item, depth + 1)
        else:
            text = ", ".join(map(str, item)) if isinstance(item, (list, tuple)) else item
            typer.echo(f"{'  ' * depth}{key}: {text}")


def _not_logged(problem: str) -> None:
    typer.echo(f"not logged to MLflow: {problem} Cells are kept; run `explainbench publish` later.", err=True)


def _console() -> Any:
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 160)


@contextmanager
def _progress() -> Iterator[Any]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        yield progress


def main() -> NoReturn:
    """Run the command line; a user's mistake is one sentence and exit code 2."""
    os.environ.update(NO_TELEMETRY)
    try:
        app(standalone_mode=True)
    except ExplainBenchError as error:
        typer.echo(f"explainbench: {error}", err=True)
        sys.exit(2)
    except KeyboardInterrupt:
        typer.echo("explainbench: interrupted; finished cells are kept", err=True)
        sys.exit(130)
    sys.exit(0)


if __name__ == "__main__":
    main()
