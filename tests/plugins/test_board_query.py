"""Boards by query: the numbers of the runs, cached until the store changes, honest about what they leave out."""

import sqlite3

import pytest

from explainbench.core.errors import BadInput, Unavailable
from explainbench.core.params import StatisticsParams
from mlflow_plugins import board_query
from mlflow_plugins._mlflow import Store, open_store
from mlflow_plugins.board_query import query_board
from mlflow_plugins.publish import publish_cells

FEW = StatisticsParams(bootstrap=200)
METRIC = "faithfulness/raw"


@pytest.fixture(autouse=True)
def empty_cache():
    board_query._cache.clear()


def opened(project) -> Store:
    store = open_store(project.workspace.tracking_uri, "explainbench-energy")
    assert store is not None
    return store


@pytest.fixture
def store(project, tracking, cells) -> Store:
    made = [*cells(), project.add("random", shift=100.0)]
    project.lock(*made)
    publish_cells(project.workspace, made, FEW)
    return opened(project)


@pytest.fixture
def counted(monkeypatch) -> list[str]:
    """The filters of the queries that really went to the store."""
    asked: list[str] = []
    whole = Store.rows

    def rows(self, filter_string, tags, metrics=()):
        asked.append(filter_string)
        return whole(self, filter_string, tags, metrics)

    monkeypatch.setattr(Store, "rows", rows)
    return asked


def test_order_intervals_and_ranks_are_those_of_the_runs(project, store):
    board = query_board(store, "T1", METRIC, lock={})
    runs = {run.data.tags["explainbench.method"]: run for run in store.runs("tags.explainbench.kind = 'cell'")}
    best_first = sorted((name for name in runs if name != "random"), key=lambda name: -runs[name].data.metrics[METRIC])
    places = board.places()
    assert [place.method for place in places] == [*best_first, "random"]  # a baseline is shown last, whatever its mean
    assert [place.order for place in places] == [1, 2, 3, None]
    for place in places:
        numbers = runs[place.method].data.metrics
        assert (place.mean, place.low, place.high) == tuple(numbers[f"{METRIC}{end}"] for end in ("", ".lo", ".hi"))
        assert place.run_id == runs[place.method].info.run_id
        assert place.vouched is False  # an empty lock vouches for nothing
    for place in places[:3]:
        above = sum(1 for other in places[:3] if other.low > place.high)
        assert place.rank_ub == 1 + above
    assert places[0].overlaps_above is None
    assert places[1].overlaps_above == (places[1].high >= places[0].low)
    worst_first = query_board(store, "T1", METRIC, lower_is_better=True).places()
    assert [place.method for place in worst_first[:3]] == best_first[::-1]
    assert query_board(store, "T1", METRIC).places(1, 2) == [
        place for place in query_board(store, "T1", METRIC).places() if place.order in (2, 3)
    ]


def test_only_what_is_needed_is_read_and_kept_until_something_changes(project, store, counted, tracking):
    first = query_board(store, "T1", METRIC)
    assert query_board(store, "T1", METRIC) is first
    assert len(counted) == 1
    query_board(store, "T1", METRIC, model="lstm")  # another filter is another question
    assert len(counted) == 2
    with sqlite3.connect(tracking) as connection:  # another process changes a tag: no run's times change
        connection.execute(
            "UPDATE tags SET value = 'true' WHERE key = 'explainbench.superseded' AND run_uuid = ?",
            (first.rows[0].run_id,),
        )
    connection.close()
    assert len(query_board(store, "T1", METRIC)) == len(first) - 1
    assert len(counted) == 3
    store.set_tag(first.rows[0].run_id, "explainbench.superseded", "false")
    assert len(query_board(store, "T1", METRIC)) == len(first)


def test_a_store_that_was_rebuilt_is_another_version(store, tracking):
    before = store.version()
    assert store.version() == before
    content = tracking.read_bytes()
    tracking.rename(tracking.with_suffix(".old"))
    tracking.write_bytes(content)
    assert store.version() != before


def test_pages_join_up(project, store, monkeypatch):
    whole = query_board(store, "T1", METRIC).places()
    board_query._cache.clear()
    monkeypatch.setattr("mlflow_plugins._tables.PAGE", 2)
    assert query_board(store, "T1", METRIC).places() == whole


def test_two_protocol_versions_are_refused_until_one_is_named(project, tracking):
    one, two = project.add("shap"), project.add("lime", protocol="test-2")
    publish_cells(project.workspace, [one, two], FEW)
    with pytest.raises(BadInput, match=r"2 protocol versions: test-1, test-2; name one"):
        query_board(opened(project), "T1", METRIC)
    assert [place.method for place in query_board(opened(project), "T1", METRIC, protocol="test-2").places()] == [
        "lime"
    ]


def test_of_two_runs_of_a_cell_the_one_in_the_lock_counts(project, tracking):
    old, new = project.add("shap"), project.add("shap", seed=43)
    publish_cells(project.workspace, [old, new], FEW)
    store = opened(project)
    for run in store.runs("tags.explainbench.kind = 'cell'"):
        store.set_tag(run.info.run_id, "explainbench.superseded", "false")  # as from two projects
    board = query_board(store, "T1", METRIC, lock={old.record.cell_id: old.digest})
    assert [(place.vouched, place.mean) for place in board.places()] == [
        (True, pytest.approx(old.record.scores["faithfulness"].raw))
    ]
    assert board.left_out == 1


def test_what_cannot_be_shown_is_said_in_a_sentence(project, store):
    with pytest.raises(BadInput, match=r"none of 4 finished cells of task 'T1' that match has the metric 'no/such'"):
        query_board(store, "T1", "no/such")
    with pytest.raises(BadInput, match="none of 0 finished cells of task 'T9'"):
        query_board(store, "T9", METRIC)
    with pytest.raises(BadInput, match="quotation mark"):
        query_board(store, "T1' or tags.x = '", METRIC)
    with pytest.raises(BadInput, match="cannot be filtered by dataset"):
        list(store.rows("datasets.name = 'x'", ()))
    with pytest.raises(Unavailable, match="cannot be used"):
        list(store.rows("this is no filter", ()))


def test_runs_that_are_none_of_ours_are_left_out(project, store):
    client, experiment = store.client, store.experiment_id
    client.set_terminated(client.create_run(experiment, tags={"mlflow.runName": "somebody else's"}).info.run_id)
    half = client.create_run(experiment, tags={"explainbench.kind": "cell", "explainbench.task": "T1"})
    deleted = next(iter(store.runs("tags.explainbench.method = 'lime'")))
    client.delete_run(deleted.info.run_id)
    methods = {place.method for place in query_board(store, "T1", METRIC).places()}
    assert methods == {"shap", "integrated_gradients", "random"}
    assert half.info.run_id not in {row.run_id for row in query_board(store, "T1", METRIC).rows}
