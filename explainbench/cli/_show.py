"""How commands print: JSON, indented blocks, tables, progress."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer


def show_entries(registry: Any, columns: tuple[str, ...], as_json: bool) -> None:
    """The entries of a registry with what their cards declare."""
    from dataclasses import asdict

    from explainbench.core.registry import first_line

    rows = [
        {"name": name, "what": first_line(registry.entry(name))} | asdict(registry.card(name))
        for name in registry.names()
    ]
    if as_json:
        show(rows, as_json=True)
    else:
        show_table(["name", *columns, ""], [[row["name"], *(row[c] for c in columns), row["what"]] for row in rows])


def show_table(headers: list[str], rows: list[list[Any]]) -> None:
    """A table on the console; every cell is plain text."""
    from rich.table import Table

    table = Table(*headers)
    for row in rows:
        table.add_row(*(_cell_text(value) for value in row))
    console().print(table)


def _cell_text(value: Any) -> str:
    from rich.markup import escape

    if value is None or value == () or value == []:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return escape(", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value))


def show(value: Any, as_json: bool) -> None:
    """JSON, or a mapping as indented lines."""
    if as_json or not isinstance(value, dict):
        typer.echo(json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False, default=str))
        return
    _block(value, 0)


def _block(value: dict[str, Any], depth: int) -> None:
    for key, item in value.items():
        if isinstance(item, dict):
            typer.echo(f"{'  ' * depth}{key}:")
            _block(item, depth + 1)
        else:
            text = ", ".join(map(str, item)) if isinstance(item, (list, tuple)) else item
            typer.echo(f"{'  ' * depth}{key}: {text}")


def not_logged(problem: str) -> None:
    typer.echo(f"not logged to MLflow: {problem} Cells are kept; run `explainbench publish` later.", err=True)


def console() -> Any:
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 160)


@contextmanager
def progress_bars() -> Iterator[Any]:
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
