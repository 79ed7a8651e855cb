"""A run's dataset input gives its bytes back, also after the checkout has moved on."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from explainbench.core.errors import BadInput, Corrupt, Unavailable
from explainbench.data._manifest import write_manifest
from mlflow_plugins._checkout import read_checkout
from mlflow_plugins._mlflow import library
from mlflow_plugins.publish import _dataset

CACHE = Path(".dvc") / "cache" / "files" / "md5"


@pytest.fixture
def source(project, monkeypatch) -> Any:
    """Of a run in a project whose data lie in DVC's cache, as `dvc add` leaves them, and are committed."""
    root = project.workspace.root
    monkeypatch.chdir(root)
    (root / ".dvc").mkdir()
    (root / ".dvc" / "config").write_text("[core]\n    analytics = false\n")
    with (root / ".gitignore").open("a") as handle:
        handle.write("/data\n/.dvc/cache\n/.dvc/tmp\n")
    keep_in_cache(root)
    project.commit()
    used = _dataset(project.add("shap").record, read_checkout(root))
    library()  # first: MLflow loads the plugin itself
    from mlflow_plugins.dataset_source import DvcDatasetSource

    return DvcDatasetSource.from_dict(dict(used.source))


def keep_in_cache(root: Path) -> None:
    """The objects of data.dvc where DVC looks for them: named by the md5 of their bytes."""
    import hashlib
    import json

    content = (root / "data" / "bqeb_standin" / "series.csv").read_bytes()
    md5 = hashlib.md5(content).hexdigest()
    listing = json.dumps([{"md5": md5, "relpath": "bqeb_standin/series.csv"}]).encode()
    for name, text in ((md5, content), (hashlib.md5(listing).hexdigest() + ".dir", listing)):
        path = root / CACHE / name[:2] / name[2:]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)


def test_the_files_of_the_checkout_where_they_are_the_ones(project, source, tmp_path):
    assert source.load() == str(project.workspace.data / "bqeb_standin")
    copied = Path(source.load(str(tmp_path / "copy")))
    assert (copied / "series.csv").read_bytes().startswith(b"stamp,load_mw")
    assert source.revision == project.git("rev-parse", "HEAD")


def test_bytes_that_left_the_checkout_come_back_from_dvc(project, source, tmp_path):
    root = project.workspace.root
    series = root / "data" / "bqeb_standin" / "series.csv"
    original = series.read_bytes()
    series.write_bytes(b"edited in place\n")  # data.dvc still names the old bytes
    assert (Path(source.load(str(tmp_path / "a"))) / "series.csv").read_bytes() == original
    text = (root / "data.dvc").read_text()
    (root / "data.dvc").write_text(text.replace(source.md5 or "", "0" * 32 + ".dir"))  # and the data moved on
    write_manifest(root)
    project.commit()
    assert (Path(source.load(str(tmp_path / "b"))) / "series.csv").read_bytes() == original


def test_bytes_that_nobody_has_any_more(project, source):
    root = project.workspace.root
    (root / "data" / "bqeb_standin" / "series.csv").write_bytes(b"edited in place\n")
    shutil.rmtree(root / CACHE)
    with pytest.raises(Unavailable, match="DVC cannot give back data/bqeb_standin"):
        source.load()


def test_a_revision_that_never_held_them(project, source):
    source.md5 = "1" * 32 + ".dir"
    with pytest.raises(Corrupt, match=r"data\.dvc at commit .* tracks .*, but the run used 1111"):
        source.load()
    source.revision = "0" * 40
    with pytest.raises(Corrupt, match="is not in this clone"):
        source.load()
    source.revision = None
    with pytest.raises(Corrupt, match=r"data\.dvc at commit HEAD tracks .*, but the run used 1111"):
        source.load()


def test_outside_a_checkout(source, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match="is in no explainbench project"):
        source.load()
