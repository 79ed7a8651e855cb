"""The command line: parses, calls, prints; nothing else. One file per group of commands."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

import typer

from explainbench.cli import agnostic, checks, contexts, data, drift, ground_truth, lineage, listing, pipeline, public, report  # noqa: F401, importing a file adds its commands
from explainbench.cli._app import NO_TELEMETRY, app
from explainbench.core.errors import ExplainBenchError


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
