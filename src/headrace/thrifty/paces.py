"""Which paces reach a goal at the least total work: the greedy search of InQP, and its baselines.

InQP is part of CrocodileDB ("Thrifty Query Processing", University of Chicago, 2020).

A pace says how often a path is flushed until the trigger, the trigger included. More flushes mean less final work and
more total work; how much of the one for how much of the other is the *incrementability* of a step (Eq. 3.1). The search
upwards starts with one flush for every path and takes the best step again and again; the search downwards starts with
the highest paces and gives up what buys least. The cheaper of the two is kept.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

from headrace.thrifty.simulate import FlatPlan, Work, simulated
from headrace.thrifty.unit_costs import UnitCosts

MOST = 100  # flushes of a path until the trigger
Paces = tuple[int, ...]
_INFINITE = float("inf")
MARGIN = 0.3  # measured final work may be so much more than estimated
_NEAR = 1.1  # a goal out of reach is approached up to this factor of the least final work


@dataclass(frozen=True)
class Chosen:
    """Paces, what they cost, and whether they reach the goal."""

    paces: Paces
    work: Work
    feasible: bool


@dataclass
class Search:
    """Looks for paces of one plan.

    Parameters
    ----------
    most : the highest pace.
    held : microseconds that it takes to hold the rows of a trigger when they come. Doing everything at the trigger
        would include that work; with any paces it is done before.
    """

    plan: FlatPlan
    units: UnitCosts
    most: int = MOST
    held: float = 0.0

    def __post_init__(self) -> None:
        self._known: dict[Paces, Work] = {}

    def cost(self, paces: Paces) -> Work:
        """What paces cost; the same paces are simulated once."""
        if paces not in self._known:
            self._known[paces] = simulated(self.plan, paces, self.units, self.most)
        return self._known[paces]

    @cached_property
    def batch(self) -> Paces:
        """One flush for every path: all work is done at the trigger."""
        return (1,) * len(self.plan.paths)

    @cached_property
    def eager(self) -> Paces:
        """As many flushes as there may be."""
        return (self.most,) * len(self.plan.paths)

    def final_work(self, share: float) -> float:
        """The estimate of final work that reaches a share of doing everything at the trigger.

        An estimate is not exact, so it has to be below what the share allows: the more, the less work is to be left.
        """
        return share * self.everything / (1 + MARGIN * (1 - share))

    @property
    def everything(self) -> float:
        """The work of doing everything at the trigger."""
        return self.held + self.cost(self.batch).final

    # -- searches -------------------------------------------------------------------------------------------------

    def best(self, share: float) -> Chosen:
        """Paces whose final work is at most a share of doing everything at the trigger, at the least total work."""
        wanted = self.final_work(share)
        found = self._reaching(wanted)
        feasible = [one for one in found if one.feasible]
        if feasible:
            return self._improved(min(feasible, key=lambda one: one.work.total), wanted)
        # The last bit of final work is the dearest, and the goal is missed with it or without it.
        near = _NEAR * min(one.work.final for one in found)
        close = [one for one in self._reaching(near) if one.feasible]
        return replace(min(close or found, key=lambda one: one.work.total), feasible=False)

    def _reaching(self, wanted: float) -> list[Chosen]:
        return [self._upwards(wanted), self._downwards(wanted), self._uniform(wanted)]

    def uniform(self, share: float) -> Chosen:
        """The lowest pace for all paths that reaches the goal; that with the least final work if none does."""
        return self._uniform(self.final_work(share))

    def _uniform(self, wanted: float) -> Chosen:
        costs = [(pace, self.cost((pace,) * len(self.plan.paths))) for pace in range(1, self.most + 1)]
        for pace, work in costs:
            if work.final <= wanted:
                return Chosen((pace,) * len(self.plan.paths), work, True)
        pace, work = min(costs, key=lambda one: one[1].final)
        return Chosen((pace,) * len(self.plan.paths), work, False)

    def hand_tuned(self, share: float) -> Chosen:
        """The inverse of the share as the pace of all paths."""
        paces = (min(self.most, max(1, round(1 / share))),) * len(self.plan.paths)
        work = self.cost(paces)
        return Chosen(paces, work, work.final <= self.final_work(share))

    def sampled(self, share: float, times: int, rng: random.Random) -> Chosen:
        """The best of some paces drawn at random."""
        drawn = [self.valid([rng.randint(1, self.most) for _ in self.plan.paths]) for _ in range(times)]
        return self._cheapest(share, drawn)

    def exhaustive(self, share: float) -> Chosen:
        """The best of all paces there are; for small plans only."""
        every = product(range(1, self.most + 1), repeat=len(self.plan.paths))
        return self._cheapest(share, (paces for paces in every if self._is_valid(paces)))

    def by_source(self, share: float, sources: Sequence[bool]) -> Chosen:
        """Paces for paths that begin at tables only: all others are flushed with the fastest of these."""
        members = [i for i, is_source in enumerate(sources) if is_source]
        if not members:
            return self.uniform(share)
        wanted = self.final_work(share)

        def whole(paces: Paces) -> Paces:
            fastest = max(paces[i] for i in members)
            return tuple(pace if i in members else fastest for i, pace in enumerate(paces))

        return self._upwards(wanted, members, whole)

    def _cheapest(self, share: float, candidates: Iterator[Paces] | Sequence[Paces]) -> Chosen:
        wanted = self.final_work(share)
        best: Chosen | None = None
        for paces in candidates:
            work = self.cost(paces)
            one = Chosen(paces, work, work.final <= wanted)
            if best is None or _rank(one) < _rank(best):
                best = one
        assert best is not None
        return best

    def _upwards(
        self, wanted: float, members: Sequence[int] | None = None, whole: Callable[[Paces], Paces] = lambda paces: paces
    ) -> Chosen:
        now = whole(self.batch)
        members = range(len(now)) if members is None else members
        while self.cost(now).final > wanted:
            best: tuple[float, float, Paces] | None = None
            for i in members:
                for raised in self._raised(now, i):
                    after = whole(raised)
                    gain, price = self._step(now, after)
                    if gain <= 0:
                        continue  # one flush more may change nothing, where several do
                    value = _INFINITE if price <= 0 else gain / price
                    if best is None or (value, gain) > best[:2]:
                        best = value, gain, after
                    break
            if best is None:
                break
            now = best[2]
        work = self.cost(now)
        return Chosen(now, work, work.final <= wanted)

    def _downwards(self, wanted: float) -> Chosen:
        now = self._uniform(wanted).paces
        if self.cost(now).final > wanted:
            now = self.eager
        if self.cost(now).final > wanted:
            return Chosen(now, self.cost(now), False)
        moved = True
        while moved:
            moved = False
            best: tuple[float, Paces] | None = None
            for i in range(len(now)):
                for lowered in self._lowered(now, i):
                    work = self.cost(lowered)
                    saved = self.cost(now).total - work.total
                    if work.final <= wanted and saved > 0 and (best is None or saved > best[0]):
                        best = saved, lowered
            if best is not None:
                now, moved = best[1], True
        return Chosen(now, self.cost(now), True)

    def _improved(self, found: Chosen, wanted: float) -> Chosen:
        """Take steps that save work and keep the goal, as long as there are any: work need not grow with every pace."""
        now, least = found.paces, found.work.total
        moved = True
        while moved:
            moved = False
            for i in range(len(now)):
                for other in (*self._raised(now, i), *self._lowered(now, i)):
                    work = self.cost(other)
                    if work.final <= wanted and work.total < least:
                        now, least, moved = other, work.total, True
        return Chosen(now, self.cost(now), True)

    def _step(self, before: Paces, after: Paces) -> tuple[float, float]:
        """The final work that a step saves, and the total work that it costs."""
        one, other = self.cost(before), self.cost(after)
        return one.final - other.final, other.total - one.total

    def _raised(self, paces: Paces, i: int) -> Iterator[Paces]:
        """Higher paces of a path, by one and then by more; its children are raised where they have to be."""
        step = 1
        while paces[i] + step <= self.most:
            yield self.valid([pace + step if j == i else pace for j, pace in enumerate(paces)], raising=True)
            step *= 2

    def _lowered(self, paces: Paces, i: int) -> Iterator[Paces]:
        """Lower paces of a path; its parents are lowered where they have to be."""
        step = 1
        while paces[i] - step >= 1:
            yield self.valid([pace - step if j == i else pace for j, pace in enumerate(paces)])
            step *= 2
        if paces[i] > 1:
            yield self.valid([1 if j == i else pace for j, pace in enumerate(paces)])

    def valid(self, paces: list[int], *, raising: bool = False) -> Paces:
        """Paces of which no parent is faster than its child: children are raised, or parents lowered."""
        pairs = self.plan.children
        for _ in range(len(pairs)):
            for child, parent in reversed(pairs) if raising else pairs:
                if paces[parent] > paces[child]:
                    if raising:
                        paces[child] = paces[parent]
                    else:
                        paces[parent] = paces[child]
        return tuple(paces)

    def _is_valid(self, paces: Sequence[int]) -> bool:
        return all(paces[parent] <= paces[child] for child, parent in self.plan.children)


def _rank(one: Chosen) -> tuple[bool, float]:
    return (not one.feasible, one.work.total if one.feasible else one.work.final)
