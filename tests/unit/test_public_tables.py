"""Public tables: found, checked, and prepared to the shape the papers report."""

import hashlib

import numpy as np
import pytest

from explainbench.core.errors import BadInput
from explainbench.data._adult import load_adult
from explainbench.data._communities import load_communities
from explainbench.data._public_tables import PublicFile


def test_a_missing_file_says_where_to_get_it(tmp_path):
    with pytest.raises(BadInput, match=r"adult_test_raw.csv or .*explainbench downloads nothing.*--from"):
        load_adult(tmp_path)
    with pytest.raises(BadInput, match="UCI"):
        load_communities(tmp_path)


def test_an_altered_file_is_refused(tmp_path):
    (tmp_path / "adult.test").write_text("39, State-gov\n")
    with pytest.raises(BadInput, match=r"has SHA-256 .* but Adult, test part has 72567b94f5c1"):
        load_adult(tmp_path)


def test_the_published_comment_line_is_no_part_of_the_table(tmp_path):
    (tmp_path / "t.data").write_bytes(b"|1x3 Cross validator\n1, 2\n")
    table = PublicFile("T", ("t.data",), hashlib.sha256(b"1, 2\n").hexdigest(), "somewhere", preamble=b"|")
    assert table.read(tmp_path) == b"1, 2\n"


def test_adult_as_in_the_paper(shared):
    split = load_adult(shared / "data")
    assert split.train_x.shape == (36177, 96)
    assert split.test_x.shape == (9045, 96)
    assert len(split.names) == 96
    assert split.names[:6] == (
        "age", "fnlwgt", "capital-gain", "capital-loss", "hours-per-week", "workclass_Federal-gov",
    )  # fmt: skip
    assert set(np.unique(split.train_x[:, 5:])) == {0.0, 1.0}
    np.testing.assert_allclose(split.train_x[:, :5].mean(axis=0), 0.0, atol=1e-12)
    assert split.train_y.mean() == pytest.approx(0.248, abs=5e-3)
    assert not any(name.startswith(("race", "sex")) for name in split.names)


def test_communities_as_in_the_paper(shared):
    split = load_communities(shared / "data")
    assert split.train_x.shape == (1594, 101)
    assert split.test_x.shape == (399, 101)
    assert "racePctWhite" not in split.names
    assert split.train_y.min() >= 0.0
    assert split.train_y.max() <= 1.0
