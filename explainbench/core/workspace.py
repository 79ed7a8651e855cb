"""Where things lie in a project folder."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from explainbench.core.errors import BadInput


@dataclass(frozen=True, slots=True)
class Workspace:
    """Paths of one project: `root` holds params.yaml and the data; `output` everything that stages write."""

    root: Path
    output: Path

    @classmethod
    def find(cls, root: Path | None = None, output: Path | None = None) -> Workspace:
        """The project at `root`, or the nearest folder upwards that holds params.yaml. Raises BadInput."""
        if root is None:
            here = Path.cwd()
            root = next((folder for folder in (here, *here.parents) if (folder / "params.yaml").is_file()), None)
            if root is None:
                raise BadInput(
                    f"no params.yaml in {here} or above it; run inside an explainbench project or give --root."
                )
        root = root.resolve()
        return cls(root, (root if output is None else output).resolve())

    @property
    def params(self) -> Path:
        return self.root / "params.yaml"

    @property
    def data(self) -> Path:
        return self.root / "data"

    @property
    def windows(self) -> Path:
        """Benchmark and training windows, one npz per task."""
        return self.output / "build" / "windows"

    @property
    def models(self) -> Path:
        """Fitted models: <task>/<model>/."""
        return self.output / "models"

    @property
    def pretrained(self) -> Path:
        """Stand-ins of the foundation models, one set of weights for all tasks: pretrained/<model>/."""
        return self.models / "pretrained"

    @property
    def cells(self) -> Path:
        return self.output / "cells"

    @property
    def lock(self) -> Path:
        """The trust root: {cell id: record digest}."""
        return self.output / "cells.lock.json"

    @property
    def results(self) -> Path:
        """Small files for git: boards, validation, profile, tables."""
        return self.output / "results"

    @property
    def tracking_uri(self) -> str:
        """MLflow's store: MLFLOW_TRACKING_URI, else an absolute SQLite file in the output folder."""
        return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{self.output / 'mlflow.db'}"
