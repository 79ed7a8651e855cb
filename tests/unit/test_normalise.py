import json

import numpy as np
import pytest

from explainbench.analysis.normalise import SHIPPED, Bound, Bounds, freeze, load_bounds, normalise
from explainbench.core.errors import BadInput, Pending
from explainbench.core.files import write_json


def test_worked_number_clip_share_and_nan():
    scaled = normalise(np.array([0.0, 50.0, 100.0, 400.0, np.nan]), Bound(hi=200.0))
    np.testing.assert_array_equal(scaled.values, [0.0, 0.25, 0.5, 1.0, np.nan])
    assert scaled.clipped == 0.25


def test_frozen_bounds_are_the_99th_percentile_and_survive_the_file(tmp_path):
    cells = [np.arange(0.0, 51.0), np.append(np.arange(51.0, 101.0), np.nan)]
    frozen = freeze({"T1": {"faithfulness": cells}}, "reconstructed-v1", "pilot")
    assert frozen.bound("T1", "faithfulness") == Bound(lo=0.0, hi=99.0)
    write_json(tmp_path / "reconstructed-v1.json", frozen.as_json())
    assert load_bounds("reconstructed-v1", tmp_path) == frozen


def test_a_new_entry_never_changes_an_old_score():
    old = np.array([1.0, 2.0, 3.0])
    frozen = freeze({"T1": {"faithfulness": [old]}}, "v1")
    before = normalise(old, frozen.bound("T1", "faithfulness")).values
    stronger = normalise(old * 10, frozen.bound("T1", "faithfulness"))
    assert stronger.clipped == 1.0
    np.testing.assert_array_equal(normalise(old, frozen.bound("T1", "faithfulness")).values, before)


def test_what_is_not_frozen_is_pending():
    with pytest.raises(Pending, match="bounds v1 hold no faithfulness on T2"):
        Bounds(version="v1", tasks={"T1": {}}).bound("T2", "faithfulness")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"version": "v1", "tasks": {"T1": {"faithfulness": {"lo": 0, "hi": 0}}}}, "must be above lo"),
        ({"version": "v1", "tasks": {"T1": {"faithfulness": {"lo": 0}}}}, "tasks.T1.faithfulness.hi"),
        ({"version": "v2", "tasks": {}}, "named by its version"),
        ({"version": "v1", "tasks": {}, "extra": 1}, "extra"),
    ],
)
def test_bad_bounds_file(tmp_path, content, message):
    (tmp_path / "v1.json").write_text(json.dumps(content))
    with pytest.raises(BadInput, match=message):
        load_bounds("v1", tmp_path)


def test_unknown_version_names_those_there_are(tmp_path):
    (tmp_path / "v1.json").write_text("{}")
    with pytest.raises(BadInput, match=r"no normalisation bounds 'v9'.*v1"):
        load_bounds("v9", tmp_path)


@pytest.mark.parametrize("cells", [[], [np.array([np.nan])], [np.zeros(3)], [np.array([np.inf, np.inf])]])
def test_freezing_nothing_is_refused(cells):
    with pytest.raises(BadInput, match="cannot freeze faithfulness on T1"):
        freeze({"T1": {"faithfulness": cells}}, "v1")


def test_every_shipped_bounds_file_loads():
    for path in SHIPPED.glob("*.json"):
        assert load_bounds(path.stem).version == path.stem
