"""Score explanations of your own tabular model with `mlflow.models.evaluate`.

    python examples/evaluate_tabular.py

Which explanation of a small network can be trusted? Any MLflow model with numeric columns takes its place.
Everything lands in the MLflow run: numbers with intervals, two tables, a figure.
"""

import mlflow
import pandas as pd
from sklearn.datasets import load_breast_cancer
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

data = load_breast_cancer(as_frame=True)
table = data.data.iloc[:, :8].copy()
table.columns = [name.replace(" ", "_") for name in table.columns]
network = make_pipeline(
    StandardScaler(), MLPClassifier((16,), alpha=1.0, solver="lbfgs", max_iter=2000, random_state=0)
)
network.fit(table, data.target)


def main() -> dict[str, float]:
    """Evaluate the network's explanations; the metrics are returned."""
    with mlflow.start_run(run_name="explanations of a network"):
        model = mlflow.sklearn.log_model(network, name="network", pip_requirements=["scikit-learn"])
        result = mlflow.models.evaluate(
            model.model_uri,
            table.assign(diagnosis=data.target),
            targets="diagnosis",
            model_type="classifier",
            evaluators="explainbench",
            evaluator_config={"methods": ["shap", "lime", "perturbation"], "rows": 20, "runs": 2, "label": "1"},
        )
    scores = pd.DataFrame(result.artifacts["explainbench/scores.json"].content)
    shown = scores[scores.score.isin(["faithfulness_skill", "stability", "fidelity", "axe", "eamex"])]
    print(shown.pivot_table(index="method", columns="score", values="mean").round(3).to_string())
    return result.metrics


if __name__ == "__main__":
    main()
