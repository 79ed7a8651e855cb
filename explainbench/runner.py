"""Cells in parallel: same bits for any number of workers, any order and any interruption."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from explainbench.core.cell import Cell
from explainbench.core.errors import ExplainBenchError, NotApplicable

Result = TypeVar("Result")

# One thread everywhere: parallelism is by cells, and the number of threads changes the last bits of a forecast.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


@dataclass(frozen=True, slots=True)
class Failed:
    """A cell that could not be scored, and why. Other cells go on."""

    cell: Cell
    reason: str


def run(cells: Sequence[Cell], work: Callable[[Cell], Result], workers: int) -> Iterator[Result | Failed]:
    """Yield each cell's result as it finishes, on joblib: in this process for one worker, else on loky.

    Inside `joblib.parallel_config("dask")` the same cells run on that cluster: seeds come from cell names, so digests
    do not depend on where a cell runs.
    """
    from joblib import Parallel, delayed, parallel_config
    from joblib.parallel import get_active_backend
    from threadpoolctl import threadpool_limits

    if workers == 1:
        with threadpool_limits(1):
            for cell in cells:
                yield _guarded(work, cell)
        return
    for variable in THREAD_VARIABLES:
        os.environ.setdefault(variable, "1")
    chosen = get_active_backend()[0].__class__.__name__
    backend = {} if "Dask" in chosen else {"backend": "loky", "inner_max_num_threads": 1}
    with parallel_config(**backend):
        one: Any = 1  # a cell at a time; the library's stub allows only "auto"
        parallel = Parallel(n_jobs=workers, return_as="generator_unordered", batch_size=one, pre_dispatch="2*n_jobs")
        yield from cast(Iterator[Result | Failed], parallel(delayed(_guarded)(work, cell) for cell in cells))


def _guarded(work: Callable[[Cell], Result], cell: Cell) -> Result | Failed:
    try:
        return work(cell)
    except (ExplainBenchError, NotApplicable) as error:
        return Failed(cell, str(error))
