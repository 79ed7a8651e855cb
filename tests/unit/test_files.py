"""Files: whole or not at all, the same bytes for the same content, nothing that can execute."""

import re
import zipfile

import numpy as np
import pytest

from explainbench.core.errors import BadInput, Corrupt, Unavailable
from explainbench.core.files import atomic_path, read_json, read_npz, write_json, write_npz


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path):
    path = tmp_path / "a.json"
    write_json(path, {"one": 1})

    def interrupted():
        with atomic_path(path) as temporary:
            temporary.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        interrupted()
    assert read_json(path) == {"one": 1}
    assert [item.name for item in tmp_path.iterdir()] == ["a.json"]


def test_a_full_disk_is_one_sentence(tmp_path, monkeypatch):
    def full(self, content):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    with pytest.raises(Unavailable, match=r"could not be written .No space left on device.; nothing was changed"):
        write_json(tmp_path / "a.json", {})
    assert list(tmp_path.iterdir()) == []


def test_npz_bytes_depend_on_content_alone(tmp_path):
    arrays = {"b": np.arange(6.0).reshape(2, 3), "a": np.array(["x", "yy"]), "t": np.array(["2025-01-01"], "M8[m]")}
    write_npz(tmp_path / "one.npz", arrays)
    write_npz(tmp_path / "two.npz", dict(reversed(arrays.items())))
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()
    back = read_npz(tmp_path / "one.npz")
    assert all(np.array_equal(back[name], value) for name, value in arrays.items())


def test_pickles_are_neither_written_nor_read(tmp_path):
    with pytest.raises(TypeError, match="plain numbers"):
        write_npz(tmp_path / "o.npz", {"o": np.array([{}], dtype=object)})
    np.savez(tmp_path / "evil.npz", o=np.array([{}], dtype=object))
    with pytest.raises(Corrupt, match="cannot be read as an npz"):
        read_npz(tmp_path / "evil.npz")


def test_a_bomb_a_stub_and_an_absent_file_are_refused(tmp_path, monkeypatch):
    with zipfile.ZipFile(tmp_path / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", bytes(10**6))
    monkeypatch.setattr("explainbench.core.files.MAX_NPZ_BYTES", 10**5)
    with pytest.raises(BadInput, match="unpacks to more than"):
        read_npz(tmp_path / "bomb.npz")
    (tmp_path / "stub.npz").write_bytes(b"PK")
    with pytest.raises(Corrupt):
        read_npz(tmp_path / "stub.npz")
    with pytest.raises(BadInput, match="does not exist; run the stage"):
        read_npz(tmp_path / "absent.npz")
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(Corrupt, match="not valid JSON"):
        read_json(tmp_path / "bad.json")


def test_no_module_loads_pickles(root):
    unsafe = re.compile(
        r"pickle\.load|allow_pickle=True|(?<!safetensors\.)torch\.load\(|joblib\.load|yaml\.load\(|(?<![.\w])eval\("
    )
    for folder in ("explainbench", "mlflow_plugins", "benchmarks"):
        for path in (root / folder).rglob("*.py"):
            assert not unsafe.search(path.read_text(encoding="utf-8")), path
