"""`explainbench drift`: did explainability get worse from one version of a model to the next?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from explainbench.cli._app import AsJson, app
from explainbench.cli._show import console, show

if TYPE_CHECKING:
    from explainbench.stages.drift import Comparison


LISTED = 5  # cells without a counterpart that are named; --json names all


@app.command()
def drift(
    context: typer.Context,
    baseline: Annotated[
        str, typer.Argument(help="The version before: a result folder, a cell's folder, or a name like T1/lstm.")
    ],
    candidate: Annotated[str, typer.Argument(help="The version after, likewise.")],
    margin: Annotated[float, typer.Option(min=0.0, help="A change of a metric this small is none.")] = 0.0,
    max_disagreement: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="0: same rankings, 0.5: unrelated ones. More than this is drift.")
    ] = 0.25,
    bootstrap: Annotated[int, typer.Option(min=100, help="Resamples of the windows.")] = 2000,
    confidence: Annotated[float, typer.Option(help="Of all intervals at once.")] = 0.95,
    as_json: AsJson = False,
) -> None:
    """Compare two versions of a model; exit code 0: no drift, 1: drift, 2: bad input."""
    from explainbench.analysis.drift import Rule
    from explainbench.stages.drift import compare

    rule = Rule(margin, max_disagreement, bootstrap, confidence)
    found = compare(context.obj.workspace, baseline, candidate, rule, context.obj.params.seed)
    if as_json:
        show(found.as_json(), as_json=True)
    else:
        _say(found)
    if not found.passed:
        raise typer.Exit(1)


def _say(found: Comparison) -> None:
    """A table of every change, then what fails."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(caption="gain: candidate less baseline, turned so that positive is better", caption_justify="left")
    for name in ("pair", "metric", "baseline", "candidate", "gain", "interval", "verdict"):
        table.add_column(name, justify="right" if name in ("baseline", "candidate", "gain", "interval") else "left")
    for name, one in found.drifts.items():
        for change in one.changes:
            table.add_row(
                escape(name),
                change.metric,
                f"{change.baseline:.4f}",
                f"{change.candidate:.4f}",
                f"{change.gain:+.4f}",
                f"[{change.low:+.4f}, {change.high:+.4f}]".replace("[", r"\["),
                change.verdict,
                style="red" if change.verdict == "worse" else None,
            )
        table.add_row(
            escape(name),
            "disagreement",
            "",
            "",
            f"{one.disagreement:.4f}",
            rf"\[{one.disagreement_low:.4f}, {one.disagreement_high:.4f}]",
            "too large" if one.disagreement_low > found.rule.most_disagreement else "",
            end_section=True,
        )
    console().print(table)
    for name, reason in found.skipped.items():
        typer.echo(f"not compared: {name}: {reason}")
    for side, cells in (("baseline", found.only_baseline), ("candidate", found.only_candidate)):
        if cells:
            more = f" and {len(cells) - LISTED} more" if len(cells) > LISTED else ""
            typer.echo(f"only in the {side}: {', '.join(cells[:LISTED])}{more}")
    for name, count in found.left_out.items():
        if count:
            typer.echo(f"{name}: {count} windows without an explanation are left out")
    for name, one in found.drifts.items():
        for reason in one.reasons:
            typer.echo(f"drift: {name}: {reason}")
    count = len(found.drifts)
    typer.echo(
        f"{'no drift' if found.passed else 'drift'}: {count} {'pair' if count == 1 else 'pairs'} of cells compared"
    )
