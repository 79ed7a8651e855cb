"""EAMEX on Adult, our batched path beside that of the authors' library (holisticai), in CPU seconds on one thread.

Timed: permutation importance (overall and per class), partial dependence of the top 8 features on all test rows, and
the four metrics that need them. The library runs in a virtual environment of its own, which this script makes in a
temporary folder with the versions of the published notebook, and fits the same models on the same arrays. Training is
not timed. Prints seconds, the ratio, and the metrics of both sides, which must agree.

    python benchmarks/eamex_vs_holisticai.py --from FOLDER [--models LR XGB MLP RF] [--keep ENVIRONMENT]

FOLDER holds Adult (adult.data and adult.test). RF takes several minutes on the library's side, MLP a minute to fit.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

import numpy as np

PACKAGES = ("holisticai==1.0.14", "scikit-learn==1.5.2", "xgboost==2.1.4")
MODELS = ("LR", "XGB", "MLP", "RF")
TOP = 8


def fitted(name, x, y):
    if name == "XGB":
        from xgboost import XGBClassifier

        return XGBClassifier(random_state=42, n_jobs=1).fit(x, y)
    if name == "LR":
        from sklearn.linear_model import LogisticRegression

        return LogisticRegression(random_state=64).fit(x, y)
    if name == "MLP":
        from sklearn.neural_network import MLPClassifier

        return MLPClassifier(random_state=42).fit(x, y)
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(random_state=42).fit(x, y)


def ours(name, data):
    from explainbench.metrics import eamex

    model = fitted(name, data["train_x"], data["train_y"])
    x, y = data["test_x"], data["test_y"]
    start = time.process_time()
    importance = eamex.permutation_importance(
        model.predict, x, y, "classification", groups=eamex.groups_of(y, "classification"), preset="holisticai"
    )
    permuted = time.process_time()
    top = [int(column) for column in importance.top(TOP)]
    curves = eamex.partial_dependence(lambda rows: model.predict_proba(rows)[:, 0], x, top)
    depended = time.process_time()
    scores = {
        "Spread Divergence": eamex.spread_divergence(importance.overall, "holisticai"),
        "Alpha Score": eamex.alpha_importance(importance.overall, preset="holisticai"),
        "Fluctuation Ratio": eamex.fluctuation_ratio(curves, "holisticai"),
        "Rank Alignment": eamex.rank_alignment(importance.overall, importance.by_group, preset="holisticai"),
    }
    return {"seconds": [permuted - start, depended - permuted, time.process_time() - depended], "scores": scores}


def library(name, data):
    import pandas as pd
    from holisticai.explainability.metrics.global_feature_importance import (
        classification_global_feature_importance_explainability_metrics as global_metrics,
    )
    from holisticai.inspection import compute_partial_dependence, compute_permutation_importance
    from holisticai.utils import BinaryClassificationProxy

    columns = [str(column) for column in range(data["train_x"].shape[1])]
    frame, y = pd.DataFrame(data["test_x"], columns=columns), pd.Series(data["test_y"])
    model = fitted(name, pd.DataFrame(data["train_x"], columns=columns), data["train_y"])
    proxy = BinaryClassificationProxy(
        predict=model.predict, predict_proba=model.predict_proba, classes=list(model.classes_)
    )
    start = time.process_time()
    importance = compute_permutation_importance(X=frame, y=y, proxy=proxy, n_jobs=1)
    by_class = compute_permutation_importance(X=frame, y=y, proxy=proxy, n_jobs=1, importance_type="conditional")
    permuted = time.process_time()
    top = list(importance.as_dataframe().sort_values("Importance", ascending=False).head(TOP).Variable)
    curves = compute_partial_dependence(frame, features=top, proxy=proxy)
    depended = time.process_time()
    scores = global_metrics(curves, importance, by_class, top_n=TOP).Value.to_dict()
    return {"seconds": [permuted - start, depended - permuted, time.process_time() - depended], "scores": scores}


def library_python(folder):
    """The interpreter of an environment with the library in it, made where it does not exist."""
    python = folder / "bin" / "python"
    if not python.exists():
        print(f"installing {', '.join(PACKAGES)} into its own environment ...", flush=True)
        venv.create(folder, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
    return python


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="folder", type=Path)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--keep", type=Path, help="make the library's environment here and leave it")
    parser.add_argument("--side", nargs=2, help=argparse.SUPPRESS)  # MODEL ARRAYS: the library's own process
    options = parser.parse_args()
    if options.side:
        with np.load(options.side[1]) as data:
            print(json.dumps(library(options.side[0], dict(data))))
        return
    from explainbench.data._adult import load_adult

    split = load_adult(options.folder)
    data = {name: getattr(split, name) for name in ("train_x", "train_y", "test_x", "test_y")}
    total = np.zeros(2)
    with tempfile.TemporaryDirectory() as scratch:
        arrays = Path(scratch) / "adult.npz"
        np.savez(arrays, **data)
        python = library_python(options.keep or Path(scratch) / "environment")
        for name in options.models:
            mine = ours(name, data)
            ran = subprocess.run(
                [python, "-W", "ignore", __file__, "--side", name, str(arrays)],
                check=True,
                capture_output=True,
                text=True,
            )
            theirs = json.loads(ran.stdout.strip().splitlines()[-1])
            print(f"\n{name:24}{'ours':>10}{'library':>10}{'ratio':>8}")
            steps = ("permutation importance", "partial dependence", "metrics")
            for step, one, two in zip(steps, mine["seconds"], theirs["seconds"]):
                print(f"  {step:22}{one:>9.2f}s{two:>9.2f}s{two / one:>8.1f}")
            sums = np.array([sum(mine["seconds"]), sum(theirs["seconds"])])
            total += sums
            print(f"  {'all':22}{sums[0]:>9.2f}s{sums[1]:>9.2f}s{sums[1] / sums[0]:>8.1f}")
            for score, value in mine["scores"].items():
                print(f"  {score:22}{value:>10.6f}{theirs['scores'][score]:>10.6f}", flush=True)
    print(
        f"\nall models: {total[0]:.1f} s against {total[1]:.1f} s of CPU time, {total[1] / total[0]:.1f} times faster"
    )


if __name__ == "__main__":
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    if not threads.items() <= os.environ.items():  # one thread on both sides: start again with the variables set
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | threads)
    main()
