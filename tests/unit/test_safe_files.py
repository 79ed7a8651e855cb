"""Files are read by loaders that execute nothing: no pickle anywhere, archives and arrays bounded."""

import ast

import numpy as np
import pytest

from explainbench.core import files
from explainbench.core.errors import BadInput, Corrupt
from explainbench.core.files import read_npz, write_npz

FORBIDDEN_MODULES = {"pickle", "cloudpickle", "dill", "shelve", "marshal", "joblib.numpy_pickle"}
FORBIDDEN_CALLS = {"torch.load", "torch.save", "joblib.load", "joblib.dump", "numpy.load", "np.save", "pd.read_pickle"}
UNPACKERS = {"extractall", "extract", "unpack_archive"}


def calls(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def test_nothing_unpickles(root):
    found = []
    for path in [*(root / "explainbench").rglob("*.py"), *(root / "mlflow_plugins").rglob("*.py")]:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            found += [f"{path.name} imports {name}" for name in names if name in FORBIDDEN_MODULES]
        for name, node in calls(tree):
            if name in FORBIDDEN_CALLS or name.rsplit(".", 1)[-1] in ("to_pickle", "read_pickle"):
                found.append(f"{path.name} calls {name}")
            if name == "np.load":
                options = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
                if options.get("allow_pickle") != "False":
                    found.append(f"{path.name} loads arrays without allow_pickle=False")
            if name.rsplit(".", 1)[-1] in UNPACKERS and path.name != "archive.py":
                found.append(f"{path.name} unpacks with {name}")
            if name in ("yaml.load", "yaml.unsafe_load", "eval", "exec"):
                found.append(f"{path.name} calls {name}")
    assert found == []


def test_an_array_of_objects_is_neither_written_nor_read(tmp_path):
    with pytest.raises(TypeError, match="Python objects"):
        write_npz(tmp_path / "a.npz", {"a": np.array([object()])})
    np.savez(tmp_path / "b.npz", a=np.array([{"run": "me"}], dtype=object))
    with pytest.raises(Corrupt):
        read_npz(tmp_path / "b.npz")


def test_an_npz_that_unpacks_to_too_much_is_refused(tmp_path, monkeypatch):
    write_npz(tmp_path / "zeros.npz", {"a": np.zeros(100_000)})
    monkeypatch.setattr(files, "MAX_NPZ_BYTES", 1000)
    with pytest.raises(BadInput, match="unpacks to more than"):
        read_npz(tmp_path / "zeros.npz")
