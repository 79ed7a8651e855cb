"""Speed and memory of the AXE suite against the plain way of computing the same numbers; prints ratios of CPU time.

python benchmarks/axe_speed.py            all, about a minute
python benchmarks/axe_speed.py --rows 300 a quick look
"""

import argparse
import resource
import time

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import NearestNeighbors

from explainbench.metrics._top_n import DEFAULT, TIED
from explainbench.metrics.axe import axe
from explainbench.metrics.prediction_gap import Normal, prediction_gap


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
    found = {}
    for name, output in (
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


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1000)
    size = parser.parse_args().rows
    speed_of_axe(size)
    speed_of_gaps(size)
    memory()
