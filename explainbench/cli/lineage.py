"""Lineage: audit chains, verify and sign results, export bundles, compare two states."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from explainbench.cli._app import AsJson, app
from explainbench.cli._show import console, show
from explainbench.core.errors import BadInput

if TYPE_CHECKING:
    from explainbench.core.workspace import Workspace
    from mlflow_plugins.lineage import Chain


@app.command()
def audit(
    context: typer.Context,
    what: Annotated[
        str | None,
        typer.Argument(
            help="A cell like T1/lstm/shap, a cell id or its beginning, a run id, a board like T1.ESS.S.cells, a "
            "bundle (.zip), or a folder with cells/."
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="The whole project: every board and every cell.")] = False,
    replay: Annotated[
        bool, typer.Option(help="Recompute each cell: same bits, or on another platform same scores.")
    ] = False,
    html: Annotated[Path | None, typer.Option(help="Write the chains as a page with a graph, too.")] = None,
    as_json: AsJson = False,
) -> None:
    """Rebuild and re-hash the chain from board and run to data, DVC and git; name every link that does not hold."""
    chains = list(_chains(context, what, everything, replay))
    if html is not None:
        from mlflow_plugins._page import write_page

        write_page(html, chains)
        typer.echo(f"{len(chains)} chains -> {html}", err=True)
    if as_json:
        show(chains[0].as_json() if len(chains) == 1 else _summary(chains), as_json=True)
    else:
        _print(chains)
    if not all(chain.ok for chain in chains):
        raise typer.Exit(1)


def _chains(context: typer.Context, what: str | None, everything: bool, replay: bool) -> Iterable[Chain]:
    from mlflow_plugins import lineage

    if (what is None) != everything:
        raise BadInput("give what to audit, or --all for the whole project.")
    if what == "":
        raise BadInput("the name to audit is empty; give a cell, a run id, a board, a bundle or a folder.")
    path = None if what is None else Path(what)
    if path is not None and path.is_file():
        return lineage.audit_bundle(path, _replays(None) if replay else None)
    if path is not None and path.is_dir():
        workspace = _folder(path, None if context.obj is None else context.obj.workspace)
        recompute = _replays(context.obj.params if context.obj else None)(workspace) if replay else None
        return lineage.audit_all(workspace, recompute, context.obj and context.obj.params)
    if context.obj is None:
        raise BadInput(f"{what} is neither a bundle nor a folder, and there is no params.yaml here or above.")
    workspace, params = context.obj.workspace, context.obj.params
    recompute = _replays(params)(workspace) if replay else None
    if what is None:
        return lineage.audit_all(workspace, recompute, params)
    if lineage.is_board(workspace, what):
        return lineage.audit_board(workspace, what, recompute, params)
    return [lineage.audit(workspace, what, recompute, params)]


def _folder(path: Path, around: Workspace | None) -> Workspace:
    from explainbench.core.workspace import Workspace

    if not (path / "cells").is_dir():
        raise BadInput(f"{path} holds no cells/; give the folder that does.")
    root = path if around is None or (path / "params.yaml").is_file() else around.root
    return Workspace(root.resolve(), path.resolve())


def _replays(params: Any) -> Callable[[Workspace], Any]:
    """For a workspace, a function that recomputes one of its cells; params: None for those of the workspace."""
    from explainbench.core.params import load_params
    from explainbench.stages.replay import replay_cell

    def of(workspace: Workspace) -> Any:
        chosen = load_params(workspace.params) if params is None else params
        return lambda stored: replay_cell(workspace, chosen, stored)

    return of


def _print(chains: list[Chain]) -> None:
    from mlflow_plugins.lineage import render

    for chain in chains:
        if chain is chains[0] or chain.disagreements:
            console().print(render(chain))
    if len(chains) > 1:
        bad = sum(not chain.ok for chain in chains)
        links = sum(len(chain.links) for chain in chains)
        typer.echo(f"{len(chains)} chains, {links} links: {f'{bad} chains broken' if bad else 'everything verifies'}")


def _summary(chains: list[Chain]) -> dict[str, Any]:
    return {"ok": all(chain.ok for chain in chains), "chains": [chain.as_json() for chain in chains]}


@app.command()
def verify(
    context: typer.Context,
    against: Annotated[
        Path | None, typer.Option(help="A reference folder with cells/: compare numbers within tolerance instead.")
    ] = None,
    tolerance: Annotated[float, typer.Option(help="Largest relative difference accepted with --against.")] = 1e-4,
    key: Annotated[Path | None, typer.Option(help="A public key (PEM): check the boards' signature, too.")] = None,
    as_json: AsJson = False,
) -> None:
    """Re-hash every cell against its record and cells.lock.json, or compare with the cells of a reference folder."""
    from explainbench.stages.replay import compare_with
    from explainbench.stages.sign import signature_problems
    from explainbench.stages.verify import not_here
    from explainbench.stages.verify import verify as rehash

    workspace = context.obj.workspace
    problems = rehash(workspace) if against is None else compare_with(workspace, against, tolerance)
    if key is not None:
        problems += signature_problems(workspace, key)
    if as_json:
        show({"ok": not problems, "problems": problems, "not_here": not_here(workspace)}, as_json=True)
    else:
        for suite, cells in not_here(workspace).items():
            typer.echo(f"not here, so not checked: {cells} cells of {suite}; `evaluate --suite {suite}` computes them")
        for problem in problems:
            typer.echo(problem)
        signed = "" if key is None else f", and the boards are signed with {key.name}"
        typer.echo(f"every cell verifies{signed}" if not problems else f"{len(problems)} problems")
    if problems:
        raise typer.Exit(1)


@app.command()
def sign(
    context: typer.Context,
    key: Annotated[
        Path, typer.Option(help="An Ed25519 private key (PEM); `openssl genpkey -algorithm ed25519` makes one.")
    ],
) -> None:
    """Sign the boards, cells.lock.json and the data manifest; `verify --key PUBLIC` checks it anywhere."""
    from explainbench.stages.sign import sign as sign_boards

    typer.echo(f"signed -> {sign_boards(context.obj.workspace, key)}")


@app.command()
def export(
    context: typer.Context,
    what: Annotated[str, typer.Argument(help="A cell, a cell id, a run id, or a board.")],
    ro_crate: Annotated[Path, typer.Option(help="The zip file to write.")],
) -> None:
    """Everything behind a cell or a board as one RO-Crate; `audit FILE` checks it offline, on its own."""
    from explainbench.stages.bundle import export_bundle
    from mlflow_plugins.lineage import cells_of

    done = export_bundle(context.obj.workspace, cells_of(context.obj.workspace, what), ro_crate, what)
    size = done.path.stat().st_size / 2**20
    typer.echo(f"{done.cells} cells, {done.files} files, {size:.1f} MB, SHA-256 {done.sha256} -> {done.path}")


@app.command()
def diff(
    first: Annotated[Path, typer.Argument(help="A bundle, or a folder with cells/.")],
    second: Annotated[Path, typer.Argument(help="Another one.")],
    as_json: AsJson = False,
) -> None:
    """What changed between two bundles or result folders, and which link of the chain explains it."""
    from dataclasses import asdict

    from explainbench.stages.diff import diff as compare

    found = compare(first, second)
    if as_json:
        show(asdict(found) | {"equal": found.equal}, as_json=True)
    else:
        for line in found.lines():
            typer.echo(line)
    if not found.equal:
        raise typer.Exit(1)


@app.command()
def schema() -> None:
    """The JSON Schema of a cell's record, record.json."""
    from explainbench.core.record import CellRecord

    show(CellRecord.model_json_schema(), as_json=True)
