"""Score explanations of your own torch forecaster with `mlflow.models.evaluate`.

    python examples/evaluate_forecaster.py

The model is any module that maps windows (n, steps, channels) to forecasts (n, horizon); logged with
`mlflow.pytorch`, it is explained with its gradients too. The data are one regular series with a column per channel.
"""

import mlflow
import numpy as np
import pandas as pd
import torch

STEPS, HORIZON = 48, 4
rng = np.random.default_rng(0)
time = pd.date_range("2024-01-01", periods=3000, freq="15min")
hour = np.asarray(time.hour + time.minute / 60)
temperature = 10 + 6 * np.sin((hour - 9) / 24 * 2 * np.pi) + rng.normal(0, 0.5, len(time))
load = 900 - 9 * temperature + 120 * np.sin((hour - 6) / 24 * 2 * np.pi) + rng.normal(0, 5, len(time))
series = pd.DataFrame({"load_mw": load, "temperature_c": temperature}, index=time)


class Forecaster(torch.nn.Module):
    """A linear forecast from all steps of both channels."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(STEPS * 2, HORIZON)

    def forward(self, window: torch.Tensor) -> torch.Tensor:
        """(n, steps, 2) -> (n, horizon)."""
        return self.linear(window.flatten(1))


def fitted() -> Forecaster:
    """Least squares on the first two thousand steps."""
    values = series.to_numpy()
    starts = np.arange(0, 2000 - STEPS - HORIZON, 4)
    windows = np.stack([values[at : at + STEPS].ravel() for at in starts])
    future = np.stack([values[at + STEPS : at + STEPS + HORIZON, 0] for at in starts])
    design = np.hstack([windows, np.ones((len(windows), 1))])
    weights = np.linalg.solve(design.T @ design + 10.0 * np.eye(design.shape[1]), design.T @ future)
    model = Forecaster()
    with torch.no_grad():
        model.linear.weight.copy_(torch.from_numpy(weights[:-1].T))
        model.linear.bias.copy_(torch.from_numpy(weights[-1]))
    return model


def main() -> dict[str, float]:
    """Evaluate the forecaster's explanations; the metrics are returned."""
    with mlflow.start_run(run_name="explanations of a linear forecaster"):
        example = np.stack([series.to_numpy(np.float32)[at : at + STEPS] for at in (0, 1)])
        model = mlflow.pytorch.log_model(fitted(), name="forecaster", input_example=example, pip_requirements=["torch"])
        result = mlflow.models.evaluate(
            model.model_uri,
            series,
            model_type="forecaster",
            evaluators="explainbench",
            evaluator_config={
                "forecast": {"target": "load_mw", "context": STEPS, "horizon": HORIZON, "segment": 8},
                "methods": ["shap", "integrated_gradients", "perturbation"],
                "rows": 20,
                "runs": 2,
            },
        )
    scores = pd.DataFrame(result.artifacts["explainbench/scores.json"].content)
    shown = scores[scores.score.isin(["faithfulness_skill", "stability", "fidelity", "axe", "eamex"])]
    print(shown.pivot_table(index="method", columns="score", values="mean").round(3).to_string())
    return result.metrics


if __name__ == "__main__":
    main()
