"""`explainbench ground-truth ...`: the datasets of paper 002, the suite's table, and its figures."""

from __future__ import annotations

from typing import Annotated

import typer

from explainbench.cli._app import AsJson, app
from explainbench.cli._show import show, show_table

ground_truth_app = typer.Typer(help="The ground-truth suite: datasets, table, figures.", no_args_is_help=True)
app.add_typer(ground_truth_app, name="ground-truth")


@ground_truth_app.command("generate")
def generate(context: typer.Context, as_json: AsJson = False) -> None:
    """Generate the suite's datasets into build/ground_truth, each with its card, and validate them."""
    from explainbench.stages.ground_truth_data import generate_all

    cards = generate_all(context.obj.workspace, context.obj.params)
    if as_json:
        show(cards, as_json=True)
        return
    rows = [[name, card["published_rank"], card["rows"], ", ".join(card["rules"])] for name, card in cards.items()]
    show_table(["dataset", "published rank", "rows", "rules"], rows)


@ground_truth_app.command("pool")
def pool(as_json: AsJson = False) -> None:
    """The names of the 4,082 combinations of relationship rules that can be generated."""
    from explainbench.data._ground_truth import pool as names

    found = list(names())
    show(found, as_json=True) if as_json else typer.echo("\n".join(found))


@ground_truth_app.command("select")
def select(
    context: typer.Context,
    every: Annotated[int, typer.Option(min=1, help="Score every n-th member of the pool; 1 takes hours.")] = 1,
) -> None:
    """Score members of the pool with a random forest and select 11 at the percentiles of AUC. Interrupt it at will."""
    from explainbench.data._ground_truth import pool as names
    from explainbench.stages.ground_truth_data import select_datasets

    chosen = select_datasets(
        context.obj.workspace,
        context.obj.params,
        list(names())[::every],
        lambda name, auc: typer.echo(f"{name}  AUC {auc:.4f}", err=True),
    )
    typer.echo("\n".join(chosen))


@ground_truth_app.command("table")
def table(context: typer.Context, as_json: AsJson = False) -> None:
    """The suite over all its datasets, weighted by complexity, and XFA on the stored energy cells."""
    from explainbench.report.ground_truth import FOLDER, write_table

    document = write_table(context.obj.workspace, context.obj.params)
    if as_json:
        show(document, as_json=True)
    else:
        typer.echo((context.obj.workspace.results / FOLDER / "suite.md").read_text(encoding="utf-8"))


@ground_truth_app.command("validation")
def validation(context: typer.Context) -> None:
    """Draw what controlled errors do to XFA, and how OPS ranks simulated sets (paper 002, validation)."""
    from explainbench.report.ground_truth import FOLDER, draw_validation

    typer.echo(str(draw_validation(context.obj.workspace.results / FOLDER / "validation.png")))
