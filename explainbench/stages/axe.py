"""The AXE suite: explanations judged without a ground truth, its rivals, and fairwashing (paper 004).

Four parts share the grid: methods on tables; the rows of Table 2; a fairwashed forecaster; and the regression extension
over the stored cells of the energy suite. Each lists, identifies and scores its cells.
"""

from __future__ import annotations

from explainbench.core.cell import Cell
from explainbench.core.params import Params
from explainbench.data._axe_tables import PUBLIC
from explainbench.models._openxai_networks import SHA256 as NETWORKS
from explainbench.stages._axe_attacks import TABLE2, ForecastAttack, Table2
from explainbench.stages._axe_comparison import Comparison
from explainbench.stages._axe_regression import Regression
from explainbench.stages.suite import Composed, Part, Suite

PARTS: tuple[Part, ...] = (Comparison(), Table2(), ForecastAttack(), Regression())
PUBLIC_FILES = {**PUBLIC, **{f"openxai_models/{name}.npz": digest for name, digest in NETWORKS.items()}}


def _place(params: Params, cell: Cell) -> tuple[bool, str, str]:
    """Attacks first, which grow forests; then grouped by (table, model), so that a model is fitted once."""
    return not cell.task.startswith(TABLE2), cell.task, cell.model


SUITE: Suite = Composed(PARTS, _place)
