"""One cell, our way and the way a user would write it today, in one process on one thread, at the same budgets.

The user's way: for each window a shap / lime / captum explainer on that window, then metric loops that mask one set of
groups at a time and call the model once per masked window, as metric toolkits do. Same windows, masks, coalitions,
draws, one run; the scores must agree in the mean. Prints seconds, the ratio, and our share of time inside the model.

    explainbench data windows && explainbench fit --task T1
    python benchmarks/cell_vs_loops.py --task T1 --model lstm --windows 6
"""

import argparse
import time
from dataclasses import replace

import numpy as np
import torch

from explainbench.core.cell import Cell, stream
from explainbench.core.forecaster import Meter
from explainbench.core.masking import ranking
from explainbench.core.params import load_params
from explainbench.core.workspace import Workspace
from explainbench.stages.cell import Bench, build_bench, score_cell
from explainbench.stages.data import load_task
from explainbench.stages.fit import load_forecaster

COALITIONS, STEPS, DRAWS, NEIGHBOURS, RADIUS, RANDOM = 512, 128, 500, 5, 0.1, 20


def by_loops(bench: Bench, method: str, seed: int) -> dict[str, float]:
    """The user's notebook: returns mean faithfulness, fidelity, stability."""
    from captum.attr import IntegratedGradients
    from lime.lime_base import LimeBase
    from shap import KernelExplainer
    from sklearn.linear_model import Ridge
    from sklearn.metrics.pairwise import cosine_distances

    windows, masker, forecaster = bench.data.windows, bench.masker, bench.model.forecaster
    groups, fill = len(masker.groups), masker.fill(windows)
    kept = masker.groups.kept

    def f(batch: np.ndarray) -> np.ndarray:
        return forecaster.predict(batch).mean.mean(axis=1)

    def explain(x: np.ndarray, base: np.ndarray) -> tuple[np.ndarray, float]:
        game = lambda z: f(np.where(kept(np.asarray(z) > 0.5), x, base))  # noqa: E731
        if method == "shap":
            np.random.seed(seed)  # noqa: NPY002
            explainer = KernelExplainer(game, np.zeros((1, groups)))
            values = explainer.shap_values(np.ones((1, groups)), nsamples=COALITIONS, l1_reg=False, silent=True)
            return np.asarray(values).reshape(-1), float(explainer.expected_value)
        if method == "lime":
            z = (np.random.default_rng(seed).random((COALITIONS, groups)) < 0.5).astype(float)
            z[0] = 1
            distances = cosine_distances(z, z[:1]).ravel()
            base_explainer = LimeBase(lambda d: np.sqrt(np.exp(-(d**2) / 0.25**2)))
            intercept, pairs, *_ = base_explainer.explain_instance_with_data(
                z, game(z)[:, None], distances, 0, groups, feature_selection="none", model_regressor=Ridge(alpha=1e-3)
            )
            weights = np.zeros(groups)
            for group, weight in pairs:
                weights[group] = weight
            return weights, float(intercept)
        captum = IntegratedGradients(lambda x: forecaster.module(x).mean(1))
        found = captum.attribute(
            torch.from_numpy(x[None].astype(np.float32)), torch.from_numpy(base[None].astype(np.float32)), n_steps=STEPS
        )
        return masker.groups.total(found.double().numpy())[0], 0.0

    rng = np.random.default_rng(seed)
    depth = min(int(np.ceil(0.2 * groups)), 20)
    scores: dict[str, list[float]] = {"faithfulness": [], "fidelity": [], "stability": []}
    observed = windows.channels.observed
    for row in range(len(windows)):
        x, base = windows.context[row], fill[row]
        e, intercept = explain(x, base)
        full = f(x[None])[0]

        def raw(order: np.ndarray) -> float:
            keep, changes = np.ones(groups, dtype=bool), []
            for group in order:
                keep[group] = False
                changes.append(abs(full - f(np.where(kept(keep[None])[0], x, base)[None])[0]))  # noqa: B023
            return float(np.mean(changes))

        scores["faithfulness"].append(raw(ranking(e[None])[0][:depth]))
        for _ in range(RANDOM):
            raw(rng.permutation(groups)[:depth])
        keep = np.ones(groups, dtype=bool)
        for _ in range(depth):  # the greedy reference
            change = []
            for group in range(groups):
                trial = keep.copy()
                trial[group] = False
                change.append(abs(full - f(np.where(kept(trial[None])[0], x, base)[None])[0]) if keep[group] else -1)
            keep[int(np.argmax(change))] = False
        if method != "integrated_gradients":
            gaps = []
            for _ in range(DRAWS):
                z = np.zeros(groups, dtype=bool)
                z[rng.permutation(groups)[: rng.integers(1, groups)]] = True
                gaps.append(abs(f(np.where(kept(z[None])[0], x, base)[None])[0] - intercept - e @ z))
            scores["fidelity"].append(1 - float(np.mean(gaps)) / bench.data.target_std)
        lips = []
        for _ in range(NEIGHBOURS):
            delta = rng.standard_normal((len(x), len(observed)))
            delta *= RADIUS * np.sqrt(delta.size) / np.linalg.norm(delta)
            moved = x.copy()
            moved[:, observed] += delta * windows.channels.std[observed]
            other, _ = explain(moved, np.where(masker.groups.labels >= 0, base, moved))
            difference = other / np.linalg.norm(other) - e / np.linalg.norm(e)
            lips.append(np.linalg.norm(difference) / np.linalg.norm(delta))
        scores["stability"].append(1 - max(lips))
    return {name: float(np.mean(values)) for name, values in scores.items() if values}


def main() -> None:
    """Time both for each method and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="T1")
    parser.add_argument("--model", default="lstm")
    parser.add_argument("--windows", type=int, default=6)
    parser.add_argument("--methods", nargs="+", default=["shap", "lime", "integrated_gradients"])
    options = parser.parse_args()
    torch.set_num_threads(1)
    workspace = Workspace.find()
    params = load_params(workspace.params).model_copy(update={"runs": 1})
    data = load_task(workspace, options.task)
    picked = stream(params.seed, "benchmark").permutation(len(data.windows))[: options.windows]
    data = replace(data, windows=data.windows.take(np.sort(picked)))
    forecaster = load_forecaster(workspace, options.task, options.model, params)
    print(f"{options.task} {options.model}, {len(data.windows)} windows, one thread, CPU seconds (process time)")
    for method in options.methods:
        bench = build_bench(params, options.task, options.model, data, forecaster)
        began, wall = time.process_time(), time.perf_counter()
        ours = score_cell(params, Cell("energy", options.task, options.model, method), bench)
        cpu, wall = time.process_time() - began, time.perf_counter() - wall
        inside = bench.model.meter.seconds / wall
        calls = bench.model.meter.evaluations
        bench = build_bench(params, options.task, options.model, data, forecaster)
        bench = replace(bench, model=replace(bench.model, meter=Meter()))
        began = time.process_time()
        theirs = by_loops(bench, method, params.seed)
        loops = time.process_time() - began
        means = {name: float(ours.result.scores[name].raw.mean()) for name in theirs}
        agree = ", ".join(f"{name} {means[name]:.4g} / {theirs[name]:.4g}" for name in theirs)
        print(
            f"{method:22s} ours {cpu:7.2f} s ({calls} calls, {inside:.0%} of wall inside the model)   loops {loops:7.2f} s   "  # noqa: E501
            f"ratio {loops / cpu:5.1f}x   means ours / loops: {agree}",
            flush=True,
        )


if __name__ == "__main__":
    main()
