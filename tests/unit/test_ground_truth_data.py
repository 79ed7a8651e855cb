"""The generator of paper 002: pool, strata, labels by their rules, per-row truth, bytes, selection, bad input."""

import time

import numpy as np
import pytest

from explainbench.core.errors import BadInput, Corrupt
from explainbench.core.provenance import sha256_file
from explainbench.data import _ground_truth as ground_truth
from explainbench.data._ground_truth import COLUMNS, PUBLISHED, RULES, generate, name_of


def test_the_rules_tile_the_columns():
    assert [c for relation in RULES for c in relation.columns] == list(range(COLUMNS))
    assert [relation.number for relation in RULES] == list(range(1, 13))


def test_the_pool_has_the_papers_size_and_holds_the_published_suite():
    names = list(ground_truth.pool())
    assert len(names) == len(set(names)) == 4082
    assert {name_of(rules) for rules in PUBLISHED} <= set(names)
    assert all(ground_truth.rules_of(name) for name in names[::97])


@pytest.mark.parametrize(
    "name", ["rr-3-1", "rr-1", "rr-1-1", "rr-1-13", "1-3", "rr-1-x", "", "rr-1-2-3-4-5-6-7-8-9-10-11-12"]
)
def test_an_unknown_combination_is_refused(name):
    with pytest.raises(BadInput, match="no combination of relationship rules; write rr- and 2 to 11"):
        generate(name, 0)


def test_strata_are_equal_labels_balanced_and_rows_scaled():
    data = generate("rr-1-2-3-4-5-6-7-8-9-10-11", 0, 2000)
    counts = np.bincount(data.rule)[1:]
    assert counts.max() - counts.min() <= 1
    assert (data.x.min(), data.x.max()) == (0.0, 1.0)
    for number in np.unique(data.rule):
        rows = data.rule == number
        assert data.x[rows].min(axis=0).max() == 0.0
        assert 0.35 < data.y[rows].mean() < 0.65, number
        used = np.flatnonzero(data.truth[rows].any(axis=0)).tolist()
        assert used == list(RULES[number - 1].columns)
    assert data.truth.sum(axis=1) == pytest.approx(np.ones(2000))


def test_linear_rules_are_reproduced_from_the_columns():
    data = generate("rr-1-2-3", 0, 900)
    x = 20 * data.x
    for number, value in ((1, x[:, 0]), (2, x[:, 1] + x[:, 2]), (3, x[:, 3] ** 2 + 2 * x[:, 4] + x[:, 5])):
        rows = data.rule == number
        agreed = (value[rows] >= np.median(value[rows])) == data.y[rows]
        assert agreed.mean() > 0.99  # rounding to six digits may move a row that lies on the median


def test_a_rules_columns_alone_tell_the_label_and_the_others_tell_nothing():
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.metrics import roc_auc_score

    data = generate("rr-1-2-3-4-5-6-7-8-9-10-11", 1, 11 * 300)
    twelve = generate("rr-1-12", 1, 600)
    for number in range(1, 13):
        source = twelve if number == 12 else data
        rows = np.flatnonzero(source.rule == number)
        own = np.isin(np.arange(COLUMNS), list(RULES[number - 1].columns))
        for columns, low, high in ((own, 0.75, 1.01), (~own, 0.3, 0.7)):
            x, y = source.x[np.ix_(rows, columns)], source.y[rows]
            forest = RandomForestClassifier(10, min_samples_leaf=5, random_state=0).fit(x[:200], y[:200])
            assert low < roc_auc_score(y[200:], forest.predict_proba(x[200:])[:, 1]) < high, (number, low)


def test_same_seed_same_bytes_and_truth_is_read_from_the_rows(tmp_path):
    data = generate("rr-3-9-10", 5, 500)
    ground_truth.write_ground_truth(tmp_path / "rr-3-9-10.parquet", data)
    ground_truth.write_ground_truth(tmp_path / "again.parquet", generate("rr-3-9-10", 5, 500))
    assert sha256_file(tmp_path / "rr-3-9-10.parquet") == sha256_file(tmp_path / "again.parquet")
    back = ground_truth.read_ground_truth(tmp_path / "rr-3-9-10.parquet")
    assert back.name == "rr-3-9-10"
    for part in ("x", "y", "rule", "truth"):
        assert np.array_equal(getattr(back, part), getattr(data, part)), part
    assert not np.array_equal(generate("rr-3-9-10", 6, 500).x, data.x)


def test_a_row_without_truth_is_corrupt(tmp_path):
    from explainbench.data._tables import read_parquet, write_parquet

    path = tmp_path / "rr-1-3.parquet"
    ground_truth.write_ground_truth(path, generate("rr-1-3", 0, 20))
    columns = read_parquet(path)
    columns["features"][4] = np.array(["x99"], dtype=object)
    write_parquet(path, columns)
    with pytest.raises(Corrupt, match=r"row 5: .* is no ground truth"):
        ground_truth.read_ground_truth(path)
    del columns["rule"]
    write_parquet(path, columns)
    with pytest.raises(Corrupt, match="no column 'rule'"):
        ground_truth.read_ground_truth(path)


def test_too_few_rows():
    with pytest.raises(BadInput, match="at least 16 rows"):
        generate("rr-1-3", 0, 10)


def test_a_whole_dataset_takes_less_than_two_seconds(tmp_path):
    began = time.process_time()
    data = generate("rr-1-2-3-5-6-8-9-10-11-12", 42)
    ground_truth.write_ground_truth(tmp_path / "data.parquet", data)
    assert time.process_time() - began < 2.0
    assert data.x.shape == (10_000, 48)


def test_selection_takes_the_percentiles_of_model_performance():
    auc = {f"d{i:03d}": i / 100 for i in range(101)}
    assert ground_truth.select(auc) == tuple(f"d{i:03d}" for i in range(100, -1, -10))
    tied = dict.fromkeys("abc", 0.5)
    assert ground_truth.select(tied, 3) == ("a", "b", "c")
    with pytest.raises(BadInput, match="11 datasets cannot be selected from 3"):
        ground_truth.select(tied)
