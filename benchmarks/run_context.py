"""What the run-context plugin adds to `mlflow.start_run`: its tags must cost less than 50 ms.

python benchmarks/run_context.py [PROJECT]
"""

from __future__ import annotations

import os
import sys
import time

import numpy as np

from mlflow_plugins.run_context import ExplainBenchRunContext


def main() -> None:
    os.chdir(sys.argv[1] if len(sys.argv) > 1 else ".")
    context = ExplainBenchRunContext()
    if not context.in_context():
        sys.exit("run it inside a project, or give its folder")
    wall, cpu = [], []
    for _ in range(30):
        before, used = time.perf_counter(), os.times()
        tags = context.tags()
        after = os.times()
        wall.append(time.perf_counter() - before)
        cpu.append(sum(after[:4]) - sum(used[:4]))  # ours and that of git, our child
    low, median, high = 1000 * np.quantile(wall, [0.0, 0.5, 0.95])
    print(f"{len(tags)} tags: best {low:.1f} ms, median {median:.1f} ms, 95 % {high:.1f} ms")
    print(f"CPU {1000 * np.mean(cpu):.1f} ms, git's included")


if __name__ == "__main__":
    main()
