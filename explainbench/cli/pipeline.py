"""The pipeline's verbs: fit, pretrain, evaluate, run, profile, publish, leaderboard, freeze."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from explainbench.cli._app import CORES, AsJson, SuiteName, Workers, app
from explainbench.cli._show import console, not_logged, progress_bars, show
from explainbench.cli.checks import checks
from explainbench.cli.contexts import contexts
from explainbench.cli.data import data_windows
from explainbench.cli.report import report_command
from explainbench.core.errors import BadInput


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
    from explainbench.core.errors import BadInput
    from explainbench.core.grid import check_blocks
    from explainbench.runner import Failed, run
    from explainbench.stages.fit import fit_cell

    suite = context.obj.params.suites.energy
    check_blocks(context.obj.params)
    if task is not None and task not in suite.tasks:
        raise BadInput(f"{task!r} is no task of the energy suite; there are {', '.join(suite.tasks)}.")
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
    suite: SuiteName = "energy",
) -> None:
    """Score every cell that the store does not hold yet. Interrupt it at will: finished cells are kept."""
    from explainbench.runner import Failed
    from explainbench.stages.evaluate import Finished, Plan
    from explainbench.stages.evaluate import evaluate as run_stage
    from explainbench.stages.suite import load_suite

    load_suite(suite)  # an unknown name is said before anything is opened
    workspace, params = context.obj.workspace, context.obj.params
    with ExitStack() as stack:
        progress = stack.enter_context(progress_bars())
        published: Callable[[Path], None] = lambda folder: None  # noqa: E731
        if publish:
            from mlflow_plugins.publish import live

            published = stack.enter_context(live(workspace, params.statistics, not_logged, suite))
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

        summary = run_stage(workspace, params, workers, started, finished, suite)
    share = "" if summary.model_share is None else f", {summary.model_share:.0%} of it inside model calls"
    typer.echo(
        f"{summary.computed} cells computed, {summary.cached} already there, {len(summary.failed)} failed, "
        f"{summary.removed} removed, in {summary.seconds:.1f} s{share} -> {workspace.lock}"
    )
    if summary.failed:
        raise typer.Exit(1)


@app.command("run")
def run_all(
    context: typer.Context,
    workers: Workers = CORES,
    with_checks: Annotated[
        bool,
        typer.Option("--checks", help="Also the ablations and checks of the benchmark, which take minutes a model."),
    ] = False,
) -> None:
    """All stages in order, without DVC: windows, fit (what is missing), evaluate, profile, contexts, boards, report.

    Cells, boards and report are published to MLflow. Only --checks adds what `explainbench checks` finds.
    """
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
    if with_checks:
        checks(context, workers=workers)
    contexts(context)
    leaderboard(context)
    report_command(context)
    publish(context)  # boards and report too


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

    show(publish_workspace(context.obj.workspace, context.obj.params.statistics), as_json)


@app.command()
def leaderboard(
    context: typer.Context,
    task: Annotated[str | None, typer.Option(help="Only boards of this task.")] = None,
    composite: Annotated[str | None, typer.Option(help="Only boards of this composite or metric.")] = None,
    as_json: AsJson = False,
    suite: SuiteName = "energy",
) -> None:
    """Query the tracking store, cross-check every row, write the boards' files under results/ and print the boards."""
    from mlflow_plugins.leaderboard import build_leaderboard, render_boards, selected

    boards = build_leaderboard(context.obj.workspace, context.obj.params, suite)
    chosen = selected(boards, task, composite)
    if as_json:
        show(chosen, as_json=True)
    else:
        for table in render_boards(chosen):
            console().print(table)


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
