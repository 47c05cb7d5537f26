"""Paces for all parts of a shared plan at once, so that every view reaches its goal at the least total work.

A subplan that several views read helps all of them, and costs once. So a step of the search is valued by what it saves
all views, but no view counts for more than it misses (Eq. 4.1), for each unit of work that the step adds (Eq. 4.2). The
search begins with one flush for everything and takes the best step until all goals are met. Then it goes down again:
what another step has made superfluous is given up (Tang, "Thrifty Query Processing", 4.2.2 and 4.3.2).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from headrace.thrifty.share.dag import Costs, Paces, SharedPlan

_NEAR = 1.1  # a goal out of reach is approached up to this factor of the least final work
_TRIED = (1, 2, 3, 5, 8, 13, 21, 34, 55, 100)  # paces at which the least final work of a view is looked for
_INFINITE = float("inf")


@dataclass(frozen=True)
class Chosen:
    """Paces of a shared plan.

    Parameters
    ----------
    subplans : the pace of each subplan.
    views : the pace of each path of each view.
    finals : the final work of each view, its subplans included; microseconds, as `total`.
    below : the part of that which the subplans of a view do.
    missed : views whose goals no paces reach.
    """

    subplans: dict[str, int]
    views: dict[str, dict[str, int]]
    total: float
    finals: dict[str, float]
    below: dict[str, float]
    missed: tuple[str, ...] = ()


def chosen(plan: SharedPlan) -> Chosen:
    """The paces that reach all goals that can be reached, at the least work that the search finds."""
    return together([Search(component).best() for component in plan.components()])


def uniform(plan: SharedPlan) -> Chosen:
    """One pace for all that has to do with each other: the lowest with which every view reaches its goal."""
    return together([Search(component).uniform() for component in plan.components()])


def exhaustive(plan: SharedPlan) -> Chosen:
    """The best of all paces there are; for small plans only."""
    return together([Search(component).exhaustive() for component in plan.components()])


def together(found: Sequence[Chosen]) -> Chosen:
    """The paces of plans that have nothing to do with each other, as those of one plan."""
    return Chosen(
        {name: pace for one in found for name, pace in one.subplans.items()},
        {name: paces for one in found for name, paces in one.views.items()},
        sum(one.total for one in found),
        {name: final for one in found for name, final in one.finals.items()},
        {name: final for one in found for name, final in one.below.items()},
        tuple(name for one in found for name in one.missed),
    )


class Search:
    """Looks for the paces of one shared plan."""

    def __init__(self, plan: SharedPlan) -> None:
        self.plan = plan
        self.costs = Costs(plan)
        fixed = {plan.span[name].start: pace for name, pace in plan.fixed.items()}
        self._fixed = fixed
        self.batch: Paces = tuple(fixed.get(i, 1) for i in range(len(plan.places)))
        least = {name: self._least(name) for name in plan.wanted}
        self.missed = tuple(name for name, work in least.items() if work > plan.wanted[name])
        self.wanted = {
            name: max(most, _NEAR * least[name] * (name in self.missed)) for name, most in plan.wanted.items()
        }

    def best(self) -> Chosen:
        """The cheaper of what the search upwards and the search from one pace for all lead to."""
        found = [self._lowered(self._upwards(self.batch)), self._lowered(self._uniform())]
        return self._chosen(min(found, key=lambda paces: (not self._meets(paces), self.costs.total(paces))))

    def downwards(self, start: Paces) -> Chosen:
        """What giving up flushes leads to, from paces with which goals are met as far as they can be.

        The flushes that save most work for the final work that they add go first: those of the lowest incrementability.
        """
        return self._chosen(self._lowered(start, by_incrementability=True))

    def uniform(self) -> Chosen:
        """The lowest pace for all places with which the goals are met."""
        return self._chosen(self._uniform())

    def exhaustive(self) -> Chosen:
        """The best of all paces there are."""
        ranges = [
            (self._fixed[i],) if i in self._fixed else range(1, self.plan.most + 1) for i in range(len(self.batch))
        ]
        valid = (paces for paces in product(*ranges) if all(paces[p] <= paces[c] for c, p in self.plan.pairs))
        return self._chosen(min(valid, key=lambda paces: (not self._meets(paces), self.costs.total(paces))))

    # -- goals ----------------------------------------------------------------------------------------------------

    def _meets(self, paces: Paces) -> bool:
        return all(self.costs.final(name, paces) <= most for name, most in self.wanted.items())

    def _least(self, view: str) -> float:
        """The least final work that a view has with any one pace for itself and its subplans."""
        finals = (self.costs.final(view, self._same(pace)) for pace in _TRIED if pace <= self.plan.most)
        return min(finals)

    def _same(self, pace: int) -> Paces:
        return tuple(self._fixed.get(i, pace) for i in range(len(self.batch)))

    def _uniform(self) -> Paces:
        every = [self._same(pace) for pace in range(1, self.plan.most + 1)]
        missing = [
            sum(max(0.0, self.costs.final(name, paces) - most) for name, most in self.wanted.items()) for paces in every
        ]
        return every[missing.index(min(missing))]

    # -- the search -----------------------------------------------------------------------------------------------

    def _upwards(self, now: Paces) -> Paces:
        values: dict[int, tuple[float, float, Paces] | None] = {}
        while any(self.costs.final(name, now) > most for name, most in self.wanted.items()):
            for i in range(len(now)):
                if i not in values:
                    values[i] = self._best_raise(now, i)
            able = [(value, i) for i, value in values.items() if value is not None]
            if not able:
                break
            (_, _, after), _ = max(able, key=lambda one: one[0][:2])
            values = self._still_valid(values, now, after)
            now = after
        return now

    def _best_raise(self, now: Paces, i: int) -> tuple[float, float, Paces] | None:
        """The value of raising a pace, its benefit, and where it leads; None if it helps no view."""
        if i in self._fixed:
            return None
        step = 1
        while now[i] + step <= self.plan.most:
            after = self.valid(now, i, now[i] + step)
            benefit, price = self._step(now, after)
            if benefit > 0:  # one flush more may change nothing, where several do
                return (_INFINITE if price <= 0 else benefit / price), benefit, after
            step *= 2
        return None

    def _step(self, before: Paces, after: Paces) -> tuple[float, float]:
        """The benefit of a step for all views (Eq. 4.1), and the total work that it adds."""
        touched = self._touched(before, after)
        price = sum(self.costs.part(n, after).total - self.costs.part(n, before).total for n in touched)
        benefit = 0.0
        for name in touched:
            if name in self.wanted:
                bounded = max(self.wanted[name], self.costs.final(name, after))
                benefit += max(0.0, self.costs.final(name, before) - bounded)
        return benefit, price

    def _touched(self, before: Paces, after: Paces) -> list[str]:
        """The parts whose costs two choices of paces may differ in: those with other paces, and their readers."""
        out = dict.fromkeys(self.plan.places[i][0] for i in range(len(before)) if before[i] != after[i])
        return list(out | dict.fromkeys(view for name in out for view in self.plan.readers.get(name, ())))

    def _still_valid(
        self, values: dict[int, tuple[float, float, Paces] | None], before: Paces, after: Paces
    ) -> dict[int, tuple[float, float, Paces] | None]:
        """The values of steps that do not meet any part which has changed; the paces that they lead to are moved on."""
        near = set(self._touched(before, after))
        near |= {s for name in near if name in self.plan.views for s in self.plan.views[name].below}
        near |= {view for name in near for view in self.plan.readers.get(name, ())}
        out: dict[int, tuple[float, float, Paces] | None] = {}
        for i, value in values.items():
            if self.plan.places[i][0] in near:
                continue
            if value is None:
                out[i] = None
                continue
            moved = tuple(new if new != old else a for old, new, a in zip(before, value[2], after, strict=True))
            out[i] = value[0], value[1], moved
        return out

    def _lowered(self, now: Paces, *, by_incrementability: bool = False) -> Paces:
        """Give up flushes as long as that saves work and all goals are met as they are."""
        moved = True
        while moved:
            moved = False
            best: tuple[float, Paces] | None = None
            for i in range(len(now)):
                for after in self._lower(now, i):
                    touched = self._touched(now, after)
                    saved = sum(self.costs.part(n, now).total - self.costs.part(n, after).total for n in touched)
                    value = saved / (1.0 + self._added(now, after, touched)) if by_incrementability else saved
                    if saved > 1e-9 and (best is None or value > best[0]) and self._no_worse(now, after, touched):
                        best = value, after
            if best is not None:
                now, moved = best[1], True
        return now

    def _added(self, now: Paces, after: Paces, touched: Sequence[str]) -> float:
        """The final work that a step downwards adds to all views, in microseconds."""
        views = [name for name in touched if name in self.plan.views]
        return sum(max(0.0, self.costs.final(name, after) - self.costs.final(name, now)) for name in views)

    def _no_worse(self, now: Paces, after: Paces, touched: Sequence[str]) -> bool:
        for name in touched:
            if name in self.wanted:
                final = self.costs.final(name, after)
                if final > self.wanted[name] and final > self.costs.final(name, now):
                    return False
        return True

    def _lower(self, now: Paces, i: int) -> Iterator[Paces]:
        if i in self._fixed:
            return
        step = 1
        while now[i] - step >= 1:
            yield self.valid(now, i, now[i] - step)
            step *= 2
        if now[i] > 1:
            yield self.valid(now, i, 1)

    def valid(self, paces: Paces, i: int, pace: int) -> Paces:
        """The paces with another one at a place: its children are raised and its parents lowered as they have to be."""
        out = list(paces)
        out[i] = pace
        for _ in range(len(self.plan.pairs)):
            again = False
            for child, parent in self.plan.pairs:
                if out[parent] > out[child]:
                    if pace > paces[i] and child not in self._fixed:
                        out[child] = out[parent]
                    else:
                        out[parent] = out[child]
                    again = True
            if not again:
                break
        return tuple(out)

    def _chosen(self, paces: Paces) -> Chosen:
        plan, span = self.plan, self.plan.span
        return Chosen(
            {name: paces[span[name].start] for name in plan.subplans},
            {name: dict(zip(v.plan.paths, paces[span[name]], strict=True)) for name, v in plan.views.items()},
            self.costs.total(paces),
            {name: self.costs.final(name, paces) for name in plan.views},
            {name: self.costs.final(name, paces) - self.costs.view(name, paces).final for name in plan.views},
            self.missed,
        )
