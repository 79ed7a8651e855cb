"""Documents of results/ in the tracking store."""

from mlflow_plugins.documents import context_means


def test_context_metrics_are_means_over_the_cells_that_have_a_number():
    rows = [
        {"context": "home", "values": {"act": 0.2, "dss": None}},
        {"context": "home", "values": {"act": 0.4, "dss": None}},
        {"context": "ev_v2g", "values": {"act": 1.0, "dss": 0.5}},
    ]
    found = context_means({"tasks": {"T1": {"rows": rows}}})
    assert found.keys() == {"T1/act.home", "T1/act.ev_v2g", "T1/dss.ev_v2g"}
    assert abs(found["T1/act.home"] - 0.3) < 1e-12
