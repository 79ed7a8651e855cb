"""Run anchor-exp 0.0.2.0 in an environment of its own: `pip install anchor-exp` and `python make.py`."""

import json
from pathlib import Path

import numpy as np
from anchor.anchor_tabular import AnchorTabularExplainer

HERE = Path(__file__).parent


def rule(x):
    """Two half-lines at quartiles."""
    return ((x[:, 0] > 0.5) & (x[:, 1] <= 0.75)).astype(int)


def smooth(x):
    """A linear score and an interaction."""
    return (4 * x[:, 0] - 3 * x[:, 1] + 3 * x[:, 2] * x[:, 3] > 1.0).astype(int)


rng = np.random.default_rng(0)
background = ((np.arange(4000)[:, None] + 0.5) / 4000) * np.ones((1, 6))  # exact quartiles
background = rng.permuted(background, axis=0)
rows = rng.random((24, 6))
explainer = AnchorTabularExplainer(["0", "1"], [f"x{i}" for i in range(6)], background, {})
expected = {}
for name, model in (("rule", rule), ("smooth", smooth)):
    runs = []
    for seed in range(3):
        found = []
        for row in rows:
            np.random.seed(seed)  # noqa: NPY002, what the package draws from
            anchor = explainer.explain_instance(
                row, model, threshold=0.95, delta=0.1, tau=0.15, batch_size=100, max_anchor_size=6
            )
            found.append(
                {
                    "columns": sorted(set(map(int, anchor.exp_map["feature"]))),
                    "precision": float(anchor.precision()),
                    "coverage": float(anchor.coverage()),
                }
            )
        runs.append(found)
    expected[name] = runs
np.savez_compressed(HERE / "inputs.npz", background=background, rows=rows)
(HERE / "expected.json").write_text(json.dumps(expected, indent=1))
