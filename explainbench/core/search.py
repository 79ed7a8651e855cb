"""The counterfactual search: the nearest other windows on which the decision agent acts otherwise (spec section 5).

Distance is group-sparse: the sum over feature groups of the Euclidean norm of their change, in z-units. For a linear
model its minimum is gap / max_g norm(w_g), reached by changing the one group with the largest coefficients as far as
the training box allows, then the next: so few groups change, and those by much.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from explainbench.core.arrays import Bools, Floats, Ints
from explainbench.core.cell import stream
from explainbench.core.decision import Agent
from explainbench.core.forecaster import ExplainedModel, HasTorchModule
from explainbench.core.masking import QUARTERS, Masker
from explainbench.core.windows import Windows

if TYPE_CHECKING:
    import torch

PASS = 256  # rows per gradient pass: bounds memory, a multiple of the model batch
PATIENCE = 3  # steps without a nearer counterfactual after which a search ends
NEARER = 0.99  # what counts as nearer, relative
RELAX = (
    0.8  # of sparsity, per step of a search that has met no other action yet: wider changes where one group is too weak
)
DOUBLINGS, HALVINGS = 12, 24  # of the bracket of a step's multiplier


@dataclass(frozen=True, slots=True)
class Plan:
    """runs: M searches per window; steps: gradient passes of a search at most; reach: how far starts lie out.

    A start lies at a random fraction, at most `reach`, of the way from the window to a uniform point of the training
    box. sparsity: share of the linearised distance that a step's group soft-threshold takes off. Optional limits of the
    gradient search: smooth, steps of a moving average over each channel's change; ramp, its largest step-to-step change
    in z-units.
    """

    runs: int = 10
    steps: int = 24
    reach: float = 0.1
    sparsity: float = 0.5
    smooth: int = 1
    ramp: float | None = None

    @property
    def limited(self) -> bool:
        """Whether changes are limited in time."""
        return self.smooth > 1 or self.ramp is not None


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """What M searches found. change: (n, m, t, c) = x_cf - x in z-units, zero where a search failed;
    valid: (n, m), re-checked by a fresh forward pass; distance: (n, m), group-sparse, infinite where not valid."""

    change: Floats
    valid: Bools
    distance: Floats

    @property
    def nearest(self) -> Ints:
        """(n,) which search came nearest; the first where none is valid."""
        return self.distance.argmin(axis=1)


@dataclass(frozen=True, slots=True, eq=False)
class _Space:
    """The inputs that may change, as rows of p players ordered by group: (t, c) index, scale, box, group bounds."""

    step: Ints
    channel: Ints
    scale: Floats  # (p,) standard deviations: z-units to dataset units
    first: Ints  # (g,) where each group begins
    group: Ints  # (p,)

    @classmethod
    def of(cls, windows: Windows, masker: Masker) -> _Space:
        step, channel = np.nonzero(masker.groups.labels >= 0)
        group = masker.groups.labels[step, channel]
        order = np.argsort(group, kind="stable")
        group = group[order]
        scale = windows.channels.std[channel[order]]
        return cls(step[order], channel[order], scale, np.searchsorted(group, np.arange(len(masker.groups))), group)

    def box(self, windows: Windows) -> tuple[Floats, Floats]:
        """Least and largest change (n, p) in z-units inside the training box; no move is always allowed."""
        here = windows.context[:, self.step, self.channel]
        moves = self.scale > 0
        scale = np.where(moves, self.scale, 1.0)
        low = np.minimum(0.0, (windows.channels.low[self.channel] - here) / scale)
        high = np.maximum(0.0, (windows.channels.high[self.channel] - here) / scale)
        return np.where(moves, low, 0.0), np.where(moves, high, 0.0)

    def moved(self, context: Floats, change: Floats) -> Floats:
        """Contexts (r, t, c) with changes (r, p) in z-units."""
        moved = context.copy()
        moved[:, self.step, self.channel] += change * self.scale
        return moved

    def limited(self, change: Floats, plan: Plan, shape: tuple[int, ...]) -> Floats:
        """Changes (r, p) smoothed over the steps of each channel, then their ramps cut, oldest step first."""
        whole = np.zeros((len(change), *shape))
        whole[:, self.step, self.channel] = change
        if plan.smooth > 1:
            before, after = plan.smooth // 2, (plan.smooth - 1) // 2
            ends = np.pad(whole, ((0, 0), (before, after), (0, 0)), mode="edge")
            whole = np.lib.stride_tricks.sliding_window_view(ends, plan.smooth, axis=1).mean(axis=-1)
        if plan.ramp is not None:
            last = np.zeros_like(whole[:, 0])
            for step in range(shape[0]):
                last = np.clip(whole[:, step], last - plan.ramp, last + plan.ramp)
                whole[:, step] = last
        return whole[:, self.step, self.channel]

    def sums(self, values: Floats) -> Floats:
        """(r, p) summed into groups (r, g)."""
        return np.add.reduceat(values, self.first, axis=1)

    def distance(self, change: Floats) -> Floats:
        """(r, p) -> (r,)."""
        return np.sqrt(self.sums(change**2)).sum(axis=1)


def search(
    model: ExplainedModel, windows: Windows, masker: Masker, agent: Agent, plan: Plan, rng: np.random.Generator
) -> Found:
    """M counterfactuals per window: projected gradient steps, or without gradients from training windows inwards.

    A window's searches depend on the seed and its origin, not on its batch. Never raises: a search that finds no other
    action is not valid.
    """
    seed = int(rng.integers(2**32))
    streams = [stream(seed, str(origin)) for origin in windows.origin]
    space = _Space.of(windows, masker)
    before = np.repeat(agent.action(model(windows.context)), plan.runs)
    differentiable = isinstance(model.forecaster, HasTorchModule)
    descend = _by_gradient if differentiable else _by_reverting
    repeated = windows.take(np.repeat(np.arange(len(windows)), plan.runs))
    change = descend(model, repeated, masker, agent, plan, streams, space, before)
    valid = agent.changed(model(space.moved(repeated.context, change)), before)
    change[~valid] = 0.0
    distance = np.where(valid, space.distance(change), np.inf)
    whole = np.zeros_like(repeated.context)
    whole[:, space.step, space.channel] = change
    shape = (len(windows), plan.runs)
    return Found(whole.reshape(*shape, *whole.shape[1:]), valid.reshape(shape), distance.reshape(shape))


def _by_gradient(
    model: ExplainedModel,
    windows: Windows,
    masker: Masker,
    agent: Agent,
    plan: Plan,
    streams: list[np.random.Generator],
    space: _Space,
    before: Ints,
) -> Floats:
    """The nearest valid changes (r, p) met by proximal projected-gradient steps from seeded starts, zero where none.

    Each step takes the model as linear, solves for the change that just reaches the other action at the least
    group-sparse distance near the present one, and projects it onto the box.
    """
    low, high = space.box(windows)
    change = np.concatenate(
        [_starts(rng, plan, low[i * plan.runs], high[i * plan.runs]) for i, rng in enumerate(streams)]
    )
    best, nearest = np.zeros_like(change), np.full(len(change), np.inf)
    stale = np.zeros(len(change), dtype=int)
    trust, missed = np.ones(len(change)), np.full(len(change), np.inf)
    rows = np.arange(len(change))
    limit = partial(space.limited, plan=plan, shape=windows.context.shape[1:]) if plan.limited else _unlimited
    for k in range(plan.steps):
        if len(rows) == 0:
            break
        f, slope = _slopes(model, space.moved(windows.context[rows], change[rows]), space)
        length = space.distance(change[rows])
        nearer = agent.changed(f, before[rows]) & (length < NEARER * nearest[rows])
        best[rows[nearer]], nearest[rows[nearer]] = change[rows[nearer]], length[nearer]
        stale[rows] = np.where(nearer, 0, stale[rows] + np.isfinite(nearest[rows]))
        aim, sign = agent.aim(f, before[rows])
        gap = sign * (aim - f)
        worse = np.abs(gap) > np.abs(missed[rows])  # the model bends more than this step allowed for
        trust[rows] = np.clip(np.where(worse, 0.5, 1.5) * trust[rows], 0.1, 1.0)
        missed[rows] = gap
        never = np.isinf(nearest[rows])
        sparsity = plan.sparsity * np.where(never, RELAX**k, 1.0)
        slope = sign[:, None] * slope
        change[rows] = _step(change[rows], slope, trust[rows] * gap, low[rows], high[rows], sparsity, space, limit)
        rows = rows[stale[rows] < PATIENCE]
    return best


def _starts(rng: np.random.Generator, plan: Plan, low: Floats, high: Floats) -> Floats:
    """(m, p): at random fractions of the way to uniform points of the box."""
    points = rng.uniform(low, high, (plan.runs, len(low)))
    return plan.reach * rng.random((plan.runs, 1)) * points


def _slopes(model: ExplainedModel, context: Floats, space: _Space) -> tuple[Floats, Floats]:
    """f (r,) and its gradient (r, p) per z-unit, in passes of bounded memory."""
    import torch

    values, slopes = [], []
    for start in range(0, len(context), PASS):
        leaf = torch.from_numpy(context[start : start + PASS].astype(np.float32)).requires_grad_()
        value: torch.Tensor = model.torch(leaf)
        (slope,) = torch.autograd.grad(value.sum(), leaf)
        values.append(value.detach().double().numpy())
        slopes.append(slope.double().numpy()[:, space.step, space.channel] * space.scale)
    return np.concatenate(values), np.concatenate(slopes)


def _unlimited(change: Floats) -> Floats:
    return change


def _step(
    change: Floats,
    slope: Floats,
    gap: Floats,
    low: Floats,
    high: Floats,
    sparsity: Floats,
    space: _Space,
    limit: Callable[[Floats], Floats],
) -> Floats:
    """argmin over u of t sum_g norm(u_g) + norm(u - change)^2 / 2 with slope . u >= slope . change + gap, then the box.

    (r, p) each, gap (r,). The solution is u_g = (1 - t / norm(v_g))+ v_g with v = change + multiplier x slope, clipped;
    the multiplier is found per row from sums over groups alone, and again input by input for rows that the box stops.
    t is `sparsity` of the linearised distance from the window to the other action. limit: what changes become in time.
    """
    along, length, power = space.sums(slope * change), space.sums(change**2), space.sums(slope**2)
    wanted = along.sum(axis=1) + gap
    steepest = np.sqrt(power.max(axis=1))
    distance = np.divide(np.maximum(wanted, 0.0), steepest, out=np.zeros_like(wanted), where=steepest > 0)
    threshold = (sparsity * distance)[:, None]

    def kept(multiplier: Floats) -> Floats:
        """(r, g): the share of v_g that the soft threshold keeps."""
        norm = np.sqrt(np.maximum(length + 2 * multiplier * along + multiplier**2 * power, 0.0))
        return np.maximum(0.0, 1.0 - np.divide(threshold, norm, out=np.ones_like(norm), where=norm > threshold))

    def reached(multiplier: Floats) -> Floats:
        return (kept(multiplier) * (along + multiplier * power)).sum(axis=1)

    def clipped(multiplier: Floats, rows: Ints | slice) -> Floats:
        moved = change[rows] + multiplier[rows] * slope[rows]
        return np.clip(limit(kept(multiplier)[rows][:, space.group] * moved), low[rows], high[rows])

    start = np.divide(distance + 1e-12, steepest, out=np.zeros_like(distance), where=steepest > 0)[:, None]
    multiplier = _least(reached, wanted, start)
    moved = clipped(multiplier, slice(None))
    stopped = np.flatnonzero((moved * slope).sum(axis=1) < wanted - 0.01 * np.abs(gap))
    if len(stopped):

        def reached_inside(multiplier: Floats) -> Floats:
            value = wanted.copy()
            value[stopped] = (clipped(multiplier, stopped) * slope[stopped]).sum(axis=1)
            return value

        moved[stopped] = clipped(_least(reached_inside, wanted, np.maximum(multiplier, start)), stopped)
    return moved


def _least(reached: Callable[[Floats], Floats], wanted: Floats, start: Floats) -> Floats:
    """The least multiplier (r, 1) with `reached` >= wanted (r,), by doubling and halving; a large one where none."""
    lower, upper = np.zeros_like(start), start.copy()
    for _ in range(DOUBLINGS):
        short = reached(upper) < wanted
        if not short.any():
            break
        upper[short] *= 2.0
    for _ in range(HALVINGS):
        middle = (lower + upper) / 2
        short = (reached(middle) < wanted)[:, None]
        lower, upper = np.where(short, middle, lower), np.where(short, upper, middle)
    return np.where((reached(np.zeros_like(start)) >= wanted)[:, None], 0.0, upper)


def _by_reverting(
    model: ExplainedModel,
    windows: Windows,
    masker: Masker,
    agent: Agent,
    plan: Plan,
    streams: list[np.random.Generator],
    space: _Space,
    before: Ints,
) -> Floats:
    """Valid changes (r, p) without gradients, zero where none: from a prototype of another action back to the window.

    Prototypes are training windows after which the target led to another action, for half of the searches of the same
    time of day. Groups are put back one by one in a random order wherever the action stays changed; then the rest
    shrinks towards the window by halving. All rows advance together: g + 8 batched model calls.
    """
    assert masker.climatology is not None
    assert masker.target is not None
    series = masker.climatology.series
    steps, horizon = windows.context.shape[1], windows.target.shape[1]
    stamps = windows.origin.astype("datetime64[m]")
    minute = (stamps - stamps.astype("datetime64[D]")).astype(int)
    starts = np.arange(steps, len(series) - horizon + 1)
    after = np.lib.stride_tricks.sliding_window_view(series[:, masker.target], horizon)[starts]
    led = agent.action(model.functional(after))
    groups = len(space.first)
    low, high = space.box(windows)
    change = np.zeros_like(low)
    order = np.empty((len(windows), groups), dtype=int)
    for row in range(len(windows)):
        rng = streams[row // plan.runs]
        order[row] = rng.permutation(groups)
        other = led != before[row]
        alike = other & (starts % QUARTERS == minute[row] // masker.step_minutes)
        pool = starts[alike if row % plan.runs < (plan.runs + 1) // 2 and alike.any() else other]
        if len(pool):
            origin = int(rng.choice(pool))
            block = series[origin - steps : origin]
            scale = np.where(space.scale > 0, space.scale, 1.0)
            change[row] = (block - windows.context[row])[space.step, space.channel] / scale
    change = np.clip(change, low, high)

    def still(candidate: Floats) -> Bools:
        return agent.changed(model(space.moved(windows.context, candidate)), before)

    found = still(change)
    for place in range(groups):
        back = np.where(space.group == order[:, place, None], 0.0, change)
        change = np.where(still(back)[:, None], back, change)
    shortest, longest = np.zeros(len(change)), np.ones(len(change))
    for _ in range(8):
        middle = (shortest + longest) / 2
        enough = still(change * middle[:, None])
        shortest, longest = np.where(enough, shortest, middle), np.where(enough, middle, longest)
    return np.where(found[:, None], change * longest[:, None], 0.0)
