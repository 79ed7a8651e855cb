"""Archives: the same bytes every time, and nothing that leaves its folder or its bounds."""

import random
import stat
import zipfile

import pytest

from explainbench import archive
from explainbench.archive import pack, unpack
from explainbench.core.errors import BadInput, Corrupt


def written(path, entries):
    with zipfile.ZipFile(path, "w") as made:
        for name, content in entries:
            made.writestr(name, content)
    return path


def test_packed_and_unpacked_with_the_same_bytes_every_time(tmp_path):
    source = tmp_path / "source"
    (source / "b").mkdir(parents=True)
    (source / "b" / "two.txt").write_text("two")
    (source / "one.txt").write_text("one" * 1000)
    pack(source, tmp_path / "one.zip")
    (source / "one.txt").touch()
    pack(source, tmp_path / "two.zip")
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()
    assert unpack(tmp_path / "one.zip", tmp_path / "out") == ["b/two.txt", "one.txt"]
    assert (tmp_path / "out" / "b" / "two.txt").read_text() == "two"


@pytest.mark.parametrize("name", ["../out.txt", "/etc/out.txt", "a/../../out.txt", "c:\\out.txt", "a\\..\\out.txt"])
def test_a_path_that_leaves_the_folder_is_refused(tmp_path, name):
    path = written(tmp_path / "bad.zip", [("fine.txt", b"x"), (name, b"x")])
    with pytest.raises(BadInput, match="no plain file inside the archive"):
        unpack(path, tmp_path / "out")
    assert not (tmp_path / "out.txt").exists()
    assert not (tmp_path / "out").exists()  # refused before anything is written


def test_a_link_is_refused(tmp_path):
    entry = zipfile.ZipInfo("link")
    entry.external_attr = (stat.S_IFLNK | 0o777) << 16
    path = written(tmp_path / "link.zip", [(entry, "/etc/passwd")])
    with pytest.raises(BadInput, match="no plain file"):
        unpack(path, tmp_path / "out")


def test_two_files_of_one_name_are_refused(tmp_path):
    with pytest.warns(UserWarning, match="Duplicate"):
        path = written(tmp_path / "twice.zip", [("a.txt", b"1"), ("a.txt", b"2")])
    with pytest.raises(BadInput, match="two files of the same name"):
        unpack(path, tmp_path / "out")


def test_sizes_are_bounded_whatever_the_headers_say(tmp_path, monkeypatch):
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("zeros", b"\0" * 100_000)
    monkeypatch.setattr(archive, "MAX_BYTES", 50_000)
    with pytest.raises(BadInput, match="unpacks to more than"):
        unpack(path, tmp_path / "out")
    monkeypatch.setattr(archive, "MAX_ENTRIES", 0)
    with pytest.raises(BadInput, match="more than 0"):
        unpack(path, tmp_path / "other")
    with pytest.raises(BadInput, match="more than a bundle may hold"):
        pack(tmp_path, tmp_path / "large.zip")


def test_what_is_no_archive_is_said_so(tmp_path):
    (tmp_path / "text.zip").write_text("no")
    with pytest.raises(Corrupt, match="cannot be unpacked"):
        unpack(tmp_path / "text.zip", tmp_path / "out")
    with pytest.raises(BadInput, match="does not exist"):
        unpack(tmp_path / "none.zip", tmp_path / "out")


def test_a_flipped_bit_is_said_in_a_sentence_or_changes_nothing(tmp_path):
    source, rng = tmp_path / "source", random.Random(0)
    source.mkdir()
    (source / "a.txt").write_text("".join(str(rng.random()) for _ in range(400)))
    pack(source, tmp_path / "whole.zip")
    content = (tmp_path / "whole.zip").read_bytes()
    refused = 0
    for number in range(300):
        changed = bytearray(content)
        changed[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        (tmp_path / "one.zip").write_bytes(changed)
        out = tmp_path / str(number)
        try:
            names = unpack(tmp_path / "one.zip", out)
        except (BadInput, Corrupt):
            refused += 1
        else:  # a date, a mode or a name
            assert all((out / name).read_bytes() == (source / "a.txt").read_bytes() for name in names)
    assert refused > 250
