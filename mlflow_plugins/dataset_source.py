"""MLflow's dataset source `dvc`: a run's dataset input leads back to the DVC-tracked bytes."""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path
from typing import Any, Self

from mlflow.data.dataset_source import DatasetSource

from explainbench.core.errors import BadInput, Corrupt, Unavailable
from explainbench.core.provenance import sha256_file, sha256_json
from mlflow_plugins._checkout import DVC_MD5, dvc_md5, git, project_root


class DvcDatasetSource(DatasetSource):
    """Bytes under DVC (entry point `mlflow.dataset_source`).

    url: path of the tracked folder, relative to the project; revision: git commit at publication, if any; md5: DVC's
    hash of the folder; dataset, sha256: which dataset of it a run used, and its content hash from the manifest.
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
        """The very bytes that the run used: a local path, inside a checkout of the project.

        The files in the checkout are returned where they are those bytes; otherwise DVC gives them back, from its cache
        or its remote, as of the run's revision. With `dst_path` they are put there, in any case. Raises BadInput
        outside a checkout, Corrupt when other bytes come back, Unavailable when DVC cannot get them.
        """
        root = project_root(Path.cwd())
        if root is None:
            raise BadInput(f"{Path.cwd()} is in no explainbench project; run inside the checkout whose data you want.")
        here = root / self._path
        if self._tracked_now(root) and self._problem(here) is None:
            return str(here) if dst_path is None else str(shutil.copytree(here, dst_path, dirs_exist_ok=True))
        target = Path(dst_path or tempfile.mkdtemp(prefix="explainbench-data-"))
        self._fetch(root, target)
        problem = self._problem(target)
        if problem is not None:
            raise Corrupt(f"DVC gave back {problem}.")
        return str(target)

    @property
    def _path(self) -> str:
        return self.url if self.dataset is None else f"{self.url}/{self.dataset}"

    def _tracked_now(self, root: Path) -> bool:
        return self.md5 is None or dvc_md5(root / f"{self.url}.dvc") == self.md5

    def _problem(self, folder: Path) -> str | None:
        """Why the files in `folder` are not those the run used, or None; of a tracked folder only md5 is known."""
        if not folder.is_dir():
            return f"{folder} is not there"
        if self.dataset is None or self.sha256 is None:
            return None
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        names = [path.relative_to(folder).as_posix() for path in files]
        kept = {
            f"{self._path}/{name}": sha256_file(path)
            for name, path in zip(names, files, strict=True)
            if not any(part.startswith(".") for part in name.split("/"))
        }
        found = sha256_json(kept)
        if found == self.sha256:
            return None
        return f"dataset {self.dataset} with SHA-256 {found}, but the run used {self.sha256}"

    def _fetch(self, root: Path, target: Path) -> None:
        """Have DVC write the files to `target`, as of a commit that tracks them: the checkout's own may be edited."""
        revision = self._tracked_at(root)
        from dvc.api import DVCFileSystem
        from dvc.exceptions import DvcException
        from dvc_data.index import DataIndexError

        try:
            DVCFileSystem(str(root), rev=revision).get(f"/{self._path}", str(target), recursive=True)
        except (DvcException, DataIndexError, OSError) as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            raise Unavailable(
                f"DVC cannot give back {self._path} as of commit {revision[:12]} ({reason[:200]}); "
                "is the remote of `dvc remote list` reachable?"
            ) from error

    def _tracked_at(self, root: Path) -> str:
        """The run's commit, or HEAD, whichever tracks what the run used. Raises Corrupt."""
        problem = ""
        for revision in filter(None, (self.revision, "HEAD")):
            text = git(root, "show", f"{revision}:./{self.url}.dvc")
            found = re.search(DVC_MD5, text or "", re.MULTILINE)
            if found is not None and self.md5 in (None, found.group(1)):
                return revision
            at = "is not in this clone" if text is None else f"tracks {found.group(1) if found else 'nothing'}"
            problem = problem or f"{self.url}.dvc at commit {revision[:12]} {at}"
        raise Corrupt(
            f"{problem}, but the run used {self.md5}: its working tree was never committed, or you need `git fetch`."
        )

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
