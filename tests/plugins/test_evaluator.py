"""The evaluator: explanations of a user's own model, scored by our methods and metrics."""

import runpy
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from explainbench.core.errors import BadInput

EXAMPLES = Path(__file__).parents[2] / "examples"
pytestmark = pytest.mark.filterwarnings("ignore")  # mlflow's own, on logging a model


@pytest.fixture
def tracked(empty_store, tmp_path, monkeypatch):
    """A tracking store of the user's own, and an open run."""
    import shutil

    from mlflow_plugins._mlflow import library

    mlflow = library()
    uri = f"sqlite:///{shutil.copy(empty_store, tmp_path / 'user.db')}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.chdir(tmp_path)
    return mlflow


def table() -> pd.DataFrame:
    rng = np.random.default_rng(3)
    return pd.DataFrame(rng.standard_normal((40, 5)), columns=list("abcde"))


def linear(frame: pd.DataFrame) -> np.ndarray:
    """Depends on `a` most, on `e` not at all."""
    return frame.to_numpy() @ np.array([8.0, 4.0, 2.0, 1.0, 0.0])


def evaluate(mlflow, model, data, **options):
    with mlflow.start_run():
        return mlflow.models.evaluate(model, data, evaluators="explainbench", **options)


def test_a_function_of_a_table(tracked):
    config = {"methods": ["perturbation"], "rows": 12, "metrics": ["faithfulness", "stability", "axe", "eamex"]}
    result = evaluate(
        tracked, linear, table().assign(y=1.0), targets="y", model_type="regressor", evaluator_config=config
    )
    numbers = result.metrics
    # leave-one-out changes of a linear model rank its columns as the greedy ranking does
    assert numbers["explainbench/perturbation/faithfulness_skill"] == pytest.approx(1.0, abs=1e-6)
    assert numbers["explainbench/random/faithfulness_skill"] < 0.6
    assert numbers["explainbench/perturbation/axe"] > numbers["explainbench/random/axe"]
    assert 0 < numbers["explainbench/perturbation/stability"] <= 1
    importance = pd.DataFrame(result.artifacts["explainbench/importance.json"].content)
    mine = importance[importance.method == "perturbation"].set_index("group").mean_absolute_importance
    assert list(mine.sort_values(ascending=False).index) == list("abcde")
    run = tracked.get_run(result.run_id)
    assert run.data.metrics["explainbench/perturbation/faithfulness_skill"] == pytest.approx(1.0, abs=1e-6)
    logged = {one.path for one in tracked.MlflowClient().list_artifacts(result.run_id, "explainbench")}
    assert {f"explainbench/{name}" for name in ("scores.json", "importance.json", "explanations.png")} <= logged
    assert (
        evaluate(
            tracked, linear, table().assign(y=1.0), targets="y", model_type="regressor", evaluator_config=config
        ).metrics
        == numbers
    )  # the same bits again


def test_gradients_of_a_torch_forecaster(tracked):
    import torch
    from mlflow.models import Model
    from mlflow.pyfunc import PyFuncModel
    from mlflow.pytorch import _PyTorchWrapper

    class Last(torch.nn.Module):
        def forward(self, window):
            return window[:, -2:, 0] * 2.0

    time = pd.date_range("2024-01-01", periods=400, freq="h", tz="Europe/Berlin")
    series = pd.DataFrame(np.random.default_rng(0).standard_normal((400, 2)), columns=["load", "wind"], index=time)
    flavour = {"loader_module": "mlflow.pytorch"}
    model = PyFuncModel(Model(flavors={"python_function": flavour}), _PyTorchWrapper(Last(), "cpu"))
    config = {
        "forecast": {"target": "load", "context": 12, "horizon": 2, "segment": 4},
        "methods": ["integrated_gradients"], "metrics": ["faithfulness", "fidelity"], "rows": 8,
        "options": {"integrated_gradients": {"steps": 8}},
    }  # fmt: skip
    result = evaluate(tracked, model, series, model_type="forecaster", evaluator_config=config)
    importance = pd.DataFrame(result.artifacts["explainbench/importance.json"].content)
    mine = importance[importance.method == "integrated_gradients"].set_index("group").mean_absolute_importance
    assert mine.idxmax() == "load[-4:0]"
    assert mine.drop("load[-4:0]").max() == 0
    scores = pd.DataFrame(result.artifacts["explainbench/scores.json"].content)
    gap = scores[(scores.score == "fidelity") & (scores.method == "integrated_gradients")].iloc[0]
    assert gap.status == "not_applicable"
    assert "surrogate" in gap.reason


@pytest.mark.parametrize(
    ("data", "options", "says"),
    [
        (table().assign(y=1.0), {"rows": 1}, "evaluator_config: rows: Input should be greater than or equal to 2"),
        (table().assign(y=1.0), {"method": ["shap"]}, "evaluator_config: method: Extra inputs are not permitted"),
        (table().assign(y=1.0), {"methods": ["magic"]}, "'magic' is not a registered method"),
        (table().assign(y=1.0), {"masker": "climatology"}, "needs time; a table is masked by mean or raw_zero"),
        (table().assign(y=1.0), {"methods": ["integrated_gradients"]}, "does not offer HasTorchModule"),
        (table().assign(y=1.0, a="text"), {}, "column 'a' holds .*, not numbers"),
        (table().assign(y=1.0, a=np.nan), {}, "column 'a' holds NaN or infinity, the first in row 0"),
        (
            table().assign(y=1.0),
            {"forecast": {"target": "a", "context": 2, "horizon": 1, "segment": 1}},
            "no time stamps",
        ),
    ],
)
def test_what_cannot_be_explained_is_said_in_a_sentence(tracked, data, options, says):
    with pytest.raises(BadInput, match=says):
        evaluate(tracked, linear, data, targets="y", model_type="regressor", evaluator_config=options)


def test_a_classifier_without_probabilities_is_refused(tracked):
    labels = lambda frame: np.where(linear(frame) > 0, "yes", "no")  # noqa: E731
    data = table().assign(y="no")
    with pytest.raises(BadInput, match="a classifier must give probabilities"):
        evaluate(tracked, labels, data, targets="y", model_type="classifier")


@pytest.mark.parametrize("name", ["evaluate_tabular", "evaluate_forecaster"])
@pytest.mark.slow
def test_the_examples_run(tracked, name):
    numbers = runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"]()
    assert (
        numbers["explainbench/shap/faithfulness_skill"] > 0.5 > abs(numbers["explainbench/random/faithfulness_skill"])
    )
