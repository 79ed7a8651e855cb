"""The beam search for one anchor, as a dialogue: it hands out rows, and is told which of them kept the prediction."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from explainbench.core.arrays import Bools, Floats, Ints
from explainbench.methods._tabular._anchor_space import Predicates, Space, kl_lower, kl_upper

if TYPE_CHECKING:
    from explainbench.methods._tabular.anchor import Anchor

RARE = 4  # a quartile holds one sample in four
Asked = tuple[Bools, Bools]  # of samples: predicates held (k, p), prediction kept (k,)


@dataclass(frozen=True, slots=True)
class Anchored:
    """The anchor of one row. columns: in the order in which the search added them; coverage: share of the background
    that fulfils it; found: whether its precision is known to reach the threshold."""

    columns: tuple[int, ...]
    precision: float
    coverage: float
    found: bool


@dataclass(slots=True, eq=False)
class Rule:
    """A conjunction of predicates; held (k, p) and kept (k,): the samples drawn under it; covered (m,): the background
    rows that fulfil it."""

    predicates: tuple[int, ...]
    held: Bools
    kept: Bools
    covered: Bools

    @property
    def precision(self) -> float:
        """Share of its samples that kept the prediction."""
        return float(self.kept.mean())

    @property
    def coverage(self) -> float:
        """Share of the background that fulfils it."""
        return float(self.covered.mean())

    def learn(self, samples: Asked) -> None:
        """Take in samples drawn under the rule."""
        self.held = np.concatenate([self.held, samples[0]])
        self.kept = np.concatenate([self.kept, samples[1]])


@dataclass(slots=True, eq=False)
class Arms:
    """Extensions of rules by one predicate each. coverage: (a,); size, kept: (a,) samples and how many of them kept the
    prediction; own: the samples drawn under an arm itself."""

    parents: list[Rule]
    items: list[int]
    coverage: Floats
    size: Ints = field(init=False)
    kept: Ints = field(init=False)
    own: dict[int, list[Asked]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.size, self.kept = np.zeros((2, len(self.items)), dtype=int)
        for parent in dict.fromkeys(map(id, self.parents)):
            rule = next(rule for rule in self.parents if id(rule) == parent)
            self._count(rule, (rule.held, rule.kept))

    def _count(self, parent: Rule, samples: Asked) -> None:
        """Samples under a parent are samples under each of its extensions that they fulfil."""
        arms = np.array([number for number, rule in enumerate(self.parents) if rule is parent], dtype=int)
        held = samples[0][:, [self.items[arm] for arm in arms]]
        self.size[arms] += held.sum(axis=0)
        self.kept[arms] += held[samples[1]].sum(axis=0)

    def inherit(self, parent: Rule, samples: Asked) -> None:
        """Take in samples drawn under a parent."""
        parent.learn(samples)
        self._count(parent, samples)

    def learn(self, arm: int, samples: Asked) -> None:
        """Take in samples drawn under an arm."""
        self.own.setdefault(arm, []).append(samples)
        self.size[arm] += len(samples[1])
        self.kept[arm] += samples[1].sum()

    def predicates(self, arm: int) -> tuple[int, ...]:
        """The conjunction of an arm."""
        return (*self.parents[arm].predicates, self.items[arm])

    def ranked(self) -> Ints:
        """Arms by decreasing precision, of equal ones the wider first."""
        return np.lexsort((-self.coverage, -self.kept / np.maximum(self.size, 1)))

    def rule(self, arm: int, covers: Bools) -> Rule:
        """An arm as a rule with all samples drawn under it."""
        parent, item = self.parents[arm], self.items[arm]
        inside = parent.held[:, item]
        rule = Rule(self.predicates(arm), parent.held[inside], parent.kept[inside], parent.covered & covers[:, item])
        for samples in self.own.get(arm, []):
            rule.learn(samples)
        return rule


@dataclass(slots=True, eq=False)
class Search:
    """The search for the anchor of `row`. Samples are drawn from its own stream, so nothing depends on its company."""

    space: Space
    row: Floats
    options: Anchor
    rng: np.random.Generator
    predicates: Predicates = field(init=False)
    covers: Bools = field(init=False)  # (m, p)
    drawn: int = 0

    def __post_init__(self) -> None:
        self.predicates = Predicates.of(self.space, self.row)
        self.covers = self.predicates.held(self.space.bins)

    def run(self) -> Generator[Floats, Bools, Anchored]:
        """Yield rows to ask about; return the anchor of largest coverage, or the most precise rule seen."""
        options = self.options
        root = Rule((), *(yield from self._ask((), options.shared)), np.ones(len(self.covers), dtype=bool))
        if kl_lower(root.precision, np.log(1 / options.delta) / len(root.kept)) > options.threshold:
            return Anchored((), root.precision, 1.0, found=True)
        level, seen = [root], []
        best: Rule | None = None
        for _ in range(options.longest):
            arms = self._extensions(level, 0.0 if best is None else best.coverage)
            if not arms.items or self._spent:
                break
            yield from self._compare(arms)
            level = [arms.rule(pick, self.covers) for pick in arms.ranked()[: options.beam]]
            seen += level
            for rule in level:
                sure = yield from self._reaches_threshold(rule)
                if sure and (best is None or rule.coverage > best.coverage):
                    best = rule
        final = best or max(seen, key=lambda rule: rule.precision)
        columns = dict.fromkeys(int(self.predicates.column[item]) for item in final.predicates)
        return Anchored(tuple(columns), final.precision, final.coverage, best is not None)

    @property
    def _spent(self) -> bool:
        return self.drawn >= self.options.budget

    def _ask(self, rule: tuple[int, ...], count: int) -> Generator[Floats, Bools, Asked]:
        self.drawn += count
        rows = self.space.draw(self.rng, self.row, *self.predicates.intervals(rule), count)
        kept = yield rows
        return self.predicates.held(self.space.binned(rows)), kept

    def _extensions(self, level: Sequence[Rule], wider_than: float) -> Arms:
        """Every rule of the level with one more predicate, each conjunction once."""
        found: dict[frozenset[int], tuple[Rule, int, float]] = {}
        for rule in level:
            coverage = self.covers[rule.covered].sum(axis=0) / len(self.covers)
            for item in self.predicates.adding(rule.predicates):
                if coverage[item] > wider_than:
                    found.setdefault(frozenset((*rule.predicates, int(item))), (rule, int(item), coverage[item]))
        parents, items, coverages = zip(*found.values(), strict=True) if found else ((), (), ())
        return Arms(list(parents), list(items), np.array(coverages))

    def _compare(self, arms: Arms) -> Generator[Floats, Bools, None]:
        """Sample the arms until the best ones, as many as the beam is wide, are known by KL-LUCB.

        Where more arms are in contest than a quartile is times rare, samples under their parent inform more of them per
        model call than samples under the two that the bounds point at.
        """
        options, keep, rounds = self.options, self.options.beam, 1
        while not self._spent:
            unseen = np.flatnonzero(arms.size == 0)
            if len(unseen):
                arms.learn(int(unseen[0]), (yield from self._ask(arms.predicates(int(unseen[0])), options.batch)))
                continue
            if keep >= len(arms.items):
                return
            order, mean = arms.ranked(), arms.kept / arms.size
            level = _exploration(len(order), rounds, options.delta) / arms.size
            top, rest = order[:keep], order[keep:]
            lower, upper = kl_lower(mean[top], level[top]), kl_upper(mean[rest], level[rest])
            contest = rest[upper - lower.min() > options.tolerance]
            if not len(contest):
                return
            if len(contest) > RARE:
                parent = arms.parents[int(rest[upper.argmax()])]
                arms.inherit(parent, (yield from self._ask(parent.predicates, options.shared)))
            else:
                for pick in (int(rest[upper.argmax()]), int(top[lower.argmin()])):
                    arms.learn(pick, (yield from self._ask(arms.predicates(pick), options.batch)))
            rounds += 1

    def _reaches_threshold(self, rule: Rule) -> Generator[Floats, Bools, bool]:
        """Sample the rule until it is clear on which side of the threshold it is."""
        options = self.options
        level = np.log((1 + (options.beam - 1) * self.predicates.columns) / options.delta)
        while True:
            mean, share = rule.precision, level / len(rule.kept)
            above = mean >= options.threshold
            settled = (
                kl_lower(mean, share) > options.threshold - options.margin
                if above
                else kl_upper(mean, share) < options.threshold + options.margin
            )
            if settled or self._spent:
                return bool(above and settled)
            rule.learn((yield from self._ask(rule.predicates, options.batch)))


def _exploration(arms: int, rounds: int, delta: float) -> float:
    """The exploration rate beta(t, delta) of KL-LUCB with alpha = 1.1 and k = 405.5."""
    inner = np.log(405.5 * arms * rounds**1.1 / delta)
    return float(inner + np.log(inner))
