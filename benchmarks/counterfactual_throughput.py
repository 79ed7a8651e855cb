"""Counterfactual searches: all windows and starts in one batch beside one (window, start) at a time, same model.

python benchmarks/counterfactual_throughput.py [--model lstm] [--task T1] [--windows 6] [--runs 10]

Prints windows x runs per CPU second of both and the ratio. The loop calls the same search with one start per call, so
the steps of a search are the same; only batching differs.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch

from explainbench.core.cell import stream
from explainbench.core.decision import Agent
from explainbench.core.params import load_params
from explainbench.core.search import Plan, search
from explainbench.core.workspace import Workspace
from explainbench.stages.cell import build_bench
from explainbench.stages.data import load_task
from explainbench.stages.fit import load_forecaster


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--model", default="lstm")
    asked.add_argument("--task", default="T1")
    asked.add_argument("--windows", type=int, default=6)
    asked.add_argument("--runs", type=int, default=10)
    given = asked.parse_args()
    torch.set_num_threads(1)
    workspace = Workspace.find(Path(__file__).parent, None)
    params = load_params(workspace.params)
    forecaster = load_forecaster(workspace, given.task, given.model, params)
    bench = build_bench(params, given.task, given.model, load_task(workspace, given.task), forecaster)
    windows = bench.data.windows.take(np.arange(given.windows))
    agent = Agent.of(bench.model, windows, bench.masker)
    searches = given.windows * given.runs

    began = time.process_time()
    found = search(bench.model, windows, bench.masker, agent, Plan(given.runs), stream(0, "batch"))
    batched = time.process_time() - began

    began = time.process_time()
    valid = 0
    for row in range(given.windows):
        for run in range(given.runs):
            one = windows.take(np.array([row]))
            alone = search(bench.model, one, bench.masker, agent, Plan(1), stream(0, "loop", run))
            valid += int(alone.valid.sum())
    looped = time.process_time() - began

    print(f"{given.task} {given.model}: {searches} searches ({given.windows} windows x {given.runs} starts)")
    print(f"batched: {searches / batched:.1f} per CPU second, {found.valid.mean():.0%} valid")
    print(f"one at a time: {searches / looped:.1f} per CPU second, {valid / searches:.0%} valid")
    print(f"ratio: {looped / batched:.1f}")


if __name__ == "__main__":
    main()
