"""The entry point: gathers the commands and turns mistakes into one sentence."""

from __future__ import annotations

import os
import sys
import zipfile
import zlib
from typing import NoReturn

import typer

from explainbench.cli import (  # noqa: F401, importing a file adds its commands
    agnostic,
    checks,
    contexts,
    data,
    drift,
    ground_truth,
    lineage,
    listing,
    pipeline,
    public,
    report,
)
from explainbench.cli._app import NO_TELEMETRY, app
from explainbench.core.errors import ExplainBenchError

DAMAGED = (zlib.error, zipfile.BadZipFile)  # of compressed files that no digest is compared with before they are read


def main() -> NoReturn:
    """Run the command line; a user's mistake is one sentence and exit code 2."""
    os.environ.update(NO_TELEMETRY)
    try:
        app(standalone_mode=True)
    except ExplainBenchError as error:
        typer.echo(f"explainbench: {error}", err=True)
        sys.exit(2)
    except DAMAGED as error:
        typer.echo(f"explainbench: a file is damaged ({error}); `explainbench audit --all` names it", err=True)
        sys.exit(2)
    except OSError as error:
        typer.echo(f"explainbench: {f'{error.filename}: {error.strerror}' if error.filename else error}", err=True)
        sys.exit(2)
    except KeyboardInterrupt:
        typer.echo("explainbench: interrupted; finished cells are kept", err=True)
        sys.exit(130)
    sys.exit(0)


if __name__ == "__main__":
    main()
