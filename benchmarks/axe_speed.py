"""Speed and memory of the AXE suite against the plain way of computing the same numbers; prints ratios of CPU time.

python benchmarks/axe_speed.py               all that needs no data, about a minute
python benchmarks/axe_speed.py --rows 300    a quick look
python benchmarks/axe_speed.py --data FOLDER and Table 2 for German Credit, from the folder of public files
"""

import argparse
import resource
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import NearestNeighbors

from explainbench.core.cell import stream
from explainbench.data._german import german
from explainbench.metrics._fairwashing import table2
from explainbench.metrics._top_n import DEFAULT, PRESETS, TIED
from explainbench.metrics.axe import axe
from explainbench.metrics.prediction_gap import Normal, prediction_gap
from explainbench.models._fairwashing import fool_lime, fool_shap


def index_per_subset(rows, predictions, explanations, ks):
    """AXE with one nearest-neighbour index per feature subset, cached, as Algorithm 1 suggests: agreement (N, d, k).

    The same tie rule as the default preset: self left out by index, all rows tied with the k-th vote, a split vote
    counts half.
    """
    count, features = rows.shape
    codes = np.eye(predictions.max() + 1)[predictions]
    result = np.empty((count, features, len(ks)))
    cache = {}
    for i in range(count):
        order = np.argsort(-np.abs(explanations[i]), kind="stable")
        for n in range(1, features + 1):
            chosen = order[:n]
            key = frozenset(chosen.tolist())
            if key not in cache:
                columns = np.sort(chosen)
                cache[key] = (columns, NearestNeighbors(n_neighbors=max(ks) + 2).fit(rows[:, columns]))
            columns, index = cache[key]
            distance, found = index.kneighbors(rows[i : i + 1, columns])
            keep = found[0] != i
            distance, found = distance[0][keep], found[0][keep]
            for j, k in enumerate(ks):
                edge = distance[k - 1] * (1.0 + TIED)
                if len(distance) > k and distance[k] <= edge:
                    radius = index.radius_neighbors(rows[i : i + 1, columns], radius=edge, return_distance=False)[0]
                    near = radius[radius != i]
                else:
                    near = found[:k]
                votes = codes[near].sum(axis=0)
                winners = votes == votes.max()
                result[i, n - 1, j] = winners[predictions[i]] / winners.sum()
    return result


def row_loop(output, rows, explanations, rng, std, draws):
    """PGI_n and PGU_n the plain way: for each row and n, draw, mask, call the model: (q, n) each."""
    q, d = rows.shape
    important, unimportant = np.empty((q, d)), np.empty((q, d))
    for i in range(q):
        order = np.argsort(-np.abs(explanations[i]), kind="stable")
        here = output(rows[i : i + 1])
        for n in range(1, d + 1):
            mask = np.zeros(d, dtype=bool)
            mask[order[:n]] = True
            for store, perturbed in ((important, mask), (unimportant, ~mask)):
                copies = rows[i] + std * rng.standard_normal((draws, d)) * perturbed
                store[i, n - 1] = np.abs(output(copies) - here).mean()
    return important, unimportant


def timed(function):
    began = time.process_time()
    value = function()
    return time.process_time() - began, value


def problem(rows, features, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, features))
    weights = rng.standard_normal(features)
    labels = (x @ weights + 0.5 * rng.standard_normal(rows) > 0).astype(np.int64)
    return x, labels, x * weights + 0.3 * rng.standard_normal(x.shape)


def speed_of_axe(rows):
    x, labels, e = problem(rows, 20)
    ks = (1, 3, 5, 9)
    axe(x[:50], labels[:50], e[:50])
    ours, curves = min((timed(lambda: axe(x, labels, e, k=ks)) for _ in range(3)), key=lambda run: run[0])
    plain, expected = timed(lambda: index_per_subset(x, labels, e, ks))
    same = np.array_equal(curves.agreement, expected)
    print(f"AXE, N={rows}, d=20, all n, k in {ks}: {ours:.2f} s against {plain:.2f} s with an index per subset,")
    print(f"    {plain / ours:.0f} times faster, same bits: {same}")
    return plain / ours, same


def speed_of_gaps(rows):
    x, labels, e = problem(rows, 20)
    model = LogisticRegression().fit(x, labels)
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Linear(20, 100), torch.nn.ReLU(), torch.nn.Linear(100, 2), torch.nn.Softmax(dim=1)
    ).requires_grad_(False)
    found = {}
    for name, output in (
        ("torch network of 100 units", lambda z: network(torch.from_numpy(z).float())[:, 1].numpy()),
        ("scikit-learn logistic regression", lambda z: model.predict_proba(z)[:, 1]),
        ("bare logistic regression", lambda z: 1.0 / (1.0 + np.exp(-(z @ model.coef_[0] + model.intercept_[0])))),
    ):
        prediction_gap(output, x[:20], e[:20], np.random.default_rng(1), perturbation=Normal(0.1, 10))
        for draws in (100, 10):
            few = max(20, rows // 10)
            normal = Normal(0.1, draws)
            ours, gaps = timed(
                lambda o=output, p=normal: prediction_gap(o, x, e, np.random.default_rng(1), perturbation=p)
            )
            plain, (pgi, _) = timed(
                lambda o=output, m=few, r=draws: row_loop(o, x[:m], e[:m], np.random.default_rng(1), 0.1, r)
            )
            ratio = (plain / few) / (ours / rows)
            found[name, draws] = ratio
            close = np.abs(gaps.important[:few].mean(axis=0) - pgi.mean(axis=0)).max()
            print(
                f"PGI and PGU, {name}, {draws} draws, d=20, all n: {1e3 * ours / rows:.2f} ms a row against "
                f"{1e3 * plain / few:.2f} ms in a loop, {ratio:.0f} times faster (means agree to {close:.4f})"
            )
    return found


def memory(rows=50_000, features=100, explained=40):
    """Peak memory of the largest case; a few explained rows stand for all, the blocks are the same."""
    x, labels, e = problem(rows, features)
    seconds, _ = timed(lambda: axe(x, labels, e[:explained], explained=np.arange(explained)))
    prediction_gap(lambda z: z[:, 0], x, e, np.random.default_rng(0), perturbation=Normal(0.1, 2), top=1)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    result = rows * features * len(DEFAULT.k) * 8 / 2**30
    print(
        f"N={rows}, d={features}: {seconds / explained:.2f} s a row for all n and k; peak memory {peak:.2f} GiB, "
        f"and {result:.2f} GiB for the result when every row is explained"
    )
    return peak + result


def german_table2(folder):
    """Both attacks on German Credit trained, and every single-feature explanation scored by AXE, PGI and PGU."""

    def both():
        table = german(folder)
        attacks = (
            fool_lime(table.train, table.categorical, table.biased, table.innocuous, stream(1, "lime")),
            fool_shap(table.train, table.biased, table.innocuous, stream(1, "shap")),
        )
        rule = replace(PRESETS["axe-sec4.1"], draws=100)
        return [
            table2(model.output, table.test, table.names, table.protected, table.foils, stream(2, "gaps"), preset=rule)
            for model in attacks
        ]

    seconds, found = timed(both)
    for fooled, verdicts in zip(("LIME", "SHAP"), found, strict=True):
        said = ", ".join(
            f"{name} {'sees' if verdict.detected else 'misses'} it ({verdict.mean('protected'):.3f} against "
            f"{verdict.mean('foil_1'):.3f})"
            for name, verdict in verdicts.items()
        )
        print(f"Table 2, German Credit, attack on {fooled}: {said}")
    print(f"Table 2, German Credit, both attacks trained and scored: {seconds:.1f} CPU seconds")
    return seconds


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--data", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    speed_of_axe(given.rows)
    speed_of_gaps(given.rows)
    if given.data is not None:
        german_table2(given.data)
    memory()
