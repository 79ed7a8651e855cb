"""MLflow's dataset source `dvc`: a run's dataset input leads back to the DVC-tracked bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

from mlflow.data.dataset_source import DatasetSource

from explainbench.core.errors import BadInput, Corrupt
from mlflow_plugins._checkout import dvc_md5, project_root


class DvcDatasetSource(DatasetSource):
    """Bytes under DVC (entry point `mlflow.dataset_source`).

    url: path of the tracked folder, relative to the project; revision: git commit at publication, if any; md5: DVC's
    hash of the folder; dataset, sha256: which dataset of it a cell used, and its content hash from the manifest.
    """

    def __init__(
        self,
        url: str,
        revision: str | None = None,
        md5: str | None = None,
        dataset: str | None = None,
        sha256: str | None = None,
    ) -> None:
        self.url = url
        self.revision = revision
        self.md5 = md5
        self.dataset = dataset
        self.sha256 = sha256

    def load(self, dst_path: str | None = None) -> str:
        """The local path of the tracked bytes, in the project around `dst_path` or the working directory.

        Raises BadInput when there is no such project or data, Corrupt when they are not the bytes the run used.
        """
        start = Path(dst_path) if dst_path else Path.cwd()
        root = project_root(start.resolve())
        if root is None:
            raise BadInput(f"{start} is in no explainbench project; run inside the checkout whose data you want.")
        path = root / self.url
        if not path.exists():
            raise BadInput(f"{path} is not there; run `dvc pull {self.url}.dvc`.")
        tracked = dvc_md5(root / f"{self.url}.dvc")
        if self.md5 is not None and tracked != self.md5:
            at = f" `git checkout {self.revision[:12]} -- {self.url}.dvc && dvc checkout`" if self.revision else ""
            raise Corrupt(
                f"{path} is tracked as {tracked}, but the run used {self.md5};{at or ' check out its commit'}."
            )
        if self.dataset is None:
            return str(path)
        if self.sha256 is not None:
            from explainbench.data._manifest import dataset_sha256

            found = dataset_sha256(root, self.dataset)
            if found != self.sha256:
                raise Corrupt(f"dataset {self.dataset} has SHA-256 {found}, but the run used {self.sha256}.")
        return str(path / self.dataset)

    def to_dict(self) -> dict[str, Any]:
        """The source as plain JSON."""
        named = {
            "url": self.url,
            "revision": self.revision,
            "md5": self.md5,
            "dataset": self.dataset,
            "sha256": self.sha256,
        }
        return {key: value for key, value in named.items() if value is not None}

    @classmethod
    def from_dict(cls, source_dict: dict[Any, Any]) -> Self:
        """The source that `to_dict` described; unknown keys are left out."""
        known = ("url", "revision", "md5", "dataset", "sha256")
        return cls(**{key: source_dict[key] for key in known if key in source_dict})

    @staticmethod
    def _get_source_type() -> str:
        return "dvc"

    @staticmethod
    def _can_resolve(raw_source: Any) -> bool:
        return isinstance(raw_source, str) and raw_source.endswith(".dvc")

    @classmethod
    def _resolve(cls, raw_source: Any) -> Self:
        return cls(str(raw_source).removesuffix(".dvc"), md5=dvc_md5(Path(raw_source)))
