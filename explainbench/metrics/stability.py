"""Stability."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from explainbench.core.arrays import Floats
from explainbench.core.cell import Score
from explainbench.core.evidence import Evidence, MetricCard
from explainbench.core.registry import METRICS
from explainbench.core.windows import Windows


@METRICS.register(MetricCard(title="Stability", equation="paper 000, eq. 3"))
@dataclass(frozen=True, slots=True)
class Stability:
    """One minus the local Lipschitz estimate of the explanation over an epsilon-ball.

    draws: perturbed windows x' = x + delta; radius: norm(delta) <= radius x sqrt(d), in z-units over the d observed
    inputs. The same x' serve every cell of a task. e is L2-normalised. Stochastic methods explain x and x' with the
    seed of their first run (common random numbers); their sampling noise is shown apart as the noise floor.
    """

    draws: Annotated[int, Field(ge=1)] = 5
    radius: Annotated[float, Field(gt=0.0)] = 0.1

    def score(self, evidence: Evidence) -> Mapping[str, Score]:
        """Per window (n,): `stability` = clip(1 - Lip), `lipschitz` = Lip, `stability_bounded` = 1/(1 + Lip).

        `noise_floor` = Lip at radius 0 with other seeds, over the same norm(delta); 0 for deterministic methods.
        NaN where the explanation of x is all zero.
        """
        windows = evidence.windows
        moved, distance = self._neighbours(evidence)
        here = _unit(evidence.grouped(evidence.runs[0]))
        there = _unit(evidence.grouped(evidence.explain_again(moved, 0))).reshape(self.draws, len(windows), -1)
        lipschitz = (np.linalg.norm(there - here, axis=2) / distance).max(axis=0)
        lipschitz[~here.any(axis=1)] = np.nan  # nothing was explained, so nothing is stable or unstable
        noise = [np.linalg.norm(_unit(evidence.grouped(run)) - here, axis=1) for run in evidence.runs[1:]]
        floor = np.max(noise, axis=0) / distance.mean(axis=0) if noise else np.zeros(len(windows))
        raw = 1.0 - lipschitz
        bounded = 1.0 / (1.0 + lipschitz)
        return {
            "stability": Score(raw, np.clip(raw, 0.0, 1.0)),
            "lipschitz": Score(lipschitz),
            "stability_bounded": Score(bounded, bounded),
            "noise_floor": Score(floor),
        }

    def _neighbours(self, evidence: Evidence) -> tuple[Windows, Floats]:
        """x' for all draws, stacked draw by draw (draws x n windows), and norm(x - x') in z-units (draws, n)."""
        windows = evidence.windows
        n, steps, _ = windows.context.shape
        observed = windows.channels.observed
        inputs = steps * len(observed)
        directions = np.empty((n, self.draws, inputs))
        shrink = np.empty((n, self.draws))
        for row, origin in enumerate(windows.origin):  # keyed by window, so a window's x' do not depend on the others
            rng = evidence.task_rng(f"stability {origin}")
            directions[row] = rng.standard_normal((self.draws, inputs))
            shrink[row] = rng.random(self.draws) ** (1.0 / inputs)  # uniform in the ball
        directions /= np.linalg.norm(directions, axis=2, keepdims=True)
        distance = self.radius * np.sqrt(inputs) * shrink
        delta = (directions * distance[..., None]).reshape(n, self.draws, steps, len(observed))
        context = np.repeat(windows.context[None], self.draws, axis=0)
        context[..., observed] += np.moveaxis(delta, 1, 0) * windows.channels.std[observed]
        rows = np.tile(np.arange(n), self.draws)
        return windows.take(rows).moved_to(context.reshape(-1, *windows.context.shape[1:])), distance.T


def _unit(vectors: Floats) -> Floats:
    """L2-normalise rows; an all-zero explanation stays zero."""
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms > 0)
