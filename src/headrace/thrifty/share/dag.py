"""What paces cost in a plan that views share: each part is simulated once for what it is given (Algorithm 3 of iShare).

A shared plan has parts: subplans that several views read, and what each view does by itself. A part takes its input at
its own pace. So what it costs depends on its own paces and on how many rows the subplans below give it, and on nothing
else. These private costs are remembered. The total work is the sum of all parts; the final work of a view is that of
its own part and of all subplans that it reads (Tang, "Thrifty Query Processing", 4.2.2).

Until the trigger, rows of a subplan come to its readers evenly, whatever its pace is; readers are never faster than it.
Rows that wait before a join cancel out where they come and go: the groups of a subplan that runs ten times give ten new
rows each, of which a reader that runs once takes the last. So a join takes what the subplan would give at the pace of
the join. Before an aggregate, rows are counted as they come, at the pace of the subplan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from headrace.thrifty.cardinalities import GROUP
from headrace.thrifty.simulate import FlatPlan, Work, simulated
from headrace.thrifty.unit_costs import UnitCosts

Place = tuple[int, int]
"""An operator and one of its sides."""
Paces = tuple[int, ...]
"""A pace per place of a shared plan (`SharedPlan.places`)."""
Flow = tuple[float, float, float]


@dataclass(frozen=True)
class Part:
    """A part of a shared plan: a subplan, or what a view does by itself.

    Parameters
    ----------
    reads : per operator and side at which rows of a subplan enter, the name of that subplan.
    ends : per operator and side of `reads`, the operator of the subplan that gives these rows; the last by default.
    held : microseconds that it takes to hold the rows of a trigger when they come.
    fed : per operator and side of `reads`, what the subplan gave when the rows in `plan.arriving` were counted; what it
        gives in one batch by default.
    """

    plan: FlatPlan
    units: UnitCosts
    reads: Mapping[Place, str] = field(default_factory=dict)
    held: float = 0.0
    ends: Mapping[Place, int] = field(default_factory=dict)
    fed: Mapping[Place, Flow] = field(default_factory=dict)

    @property
    def below(self) -> tuple[str, ...]:
        """The subplans that it reads."""
        return tuple(dict.fromkeys(self.reads.values()))


@dataclass(frozen=True)
class Private:
    """What one part costs: its work until the trigger and at the trigger, and the rows that its operators give."""

    total: float
    final: float
    given: tuple[Flow, ...]


@dataclass(frozen=True)
class SharedPlan:
    """Views, and the subplans that they share.

    Parameters
    ----------
    wanted : per view with a goal, the most final work that it may have, in microseconds.
    fixed : subplans whose pace is not free, because a view without a goal reads them.
    most : the highest pace; the data of a trigger comes in so many parts.
    """

    subplans: Mapping[str, Part]
    views: Mapping[str, Part]
    wanted: Mapping[str, float]
    fixed: Mapping[str, int] = field(default_factory=dict)
    most: int = 100

    @cached_property
    def places(self) -> tuple[tuple[str, int], ...]:
        """All places that have a pace: one per subplan, and one per path of each view."""
        own = [(name, 0) for name in self.subplans]
        return (*own, *((name, i) for name, view in self.views.items() for i in range(len(view.plan.paths))))

    @cached_property
    def span(self) -> dict[str, slice]:
        """Where the paces of each part stand."""
        out, at = {}, 0
        for name, part in (*self.subplans.items(), *self.views.items()):
            size = 1 if name in self.subplans else len(part.plan.paths)
            out[name] = slice(at, at + size)
            at += size
        return out

    @cached_property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """(child, parent) places; the pace of a parent is at most that of its child."""
        out = []
        for name, view in self.views.items():
            start, plan = self.span[name].start, view.plan
            out += [(start + child, start + parent) for child, parent in plan.children]
            for (number, side), subplan in view.reads.items():
                path = int(plan.path_of[number, side])
                out.append((self.span[subplan].start, start + path))
        return tuple(out)

    @cached_property
    def readers(self) -> dict[str, tuple[str, ...]]:
        """The views that read each subplan."""
        return {s: tuple(name for name, view in self.views.items() if s in view.below) for s in self.subplans}

    def components(self) -> list[SharedPlan]:
        """Plans that have nothing to do with each other: their paces can be chosen one by one."""
        left, out = dict.fromkeys(self.views), list[SharedPlan]()
        while left:
            views, todo = dict[str, None](), [next(iter(left))]
            while todo:
                name = todo.pop()
                if name not in views:
                    views[name] = None
                    left.pop(name, None)
                    todo += [other for s in self.views[name].below for other in self.readers[s]]
            subplans = {s: part for s, part in self.subplans.items() if views.keys() & {*self.readers[s]}}
            fixed = {s: pace for s, pace in self.fixed.items() if s in subplans}
            wanted = {name: work for name, work in self.wanted.items() if name in views}
            out.append(
                replace(self, subplans=subplans, views={n: self.views[n] for n in views}, wanted=wanted, fixed=fixed)
            )
        return out


class Costs:
    """Estimates what paces of a shared plan cost, and remembers what each part costs.

    It counts how often it is `asked` for the cost of a part, and how many `simulations` that took.
    """

    def __init__(self, plan: SharedPlan) -> None:
        self.plan = plan
        self.asked = self.simulations = 0
        self._known: dict[tuple[str, Paces, tuple[Flow, ...]], Private] = {}
        self._inputs = {name: self._inputs_of(part) for name, part in plan.views.items()}

    def subplan(self, name: str, pace: int) -> Private:
        """What a subplan costs; all of its inlets are flushed together."""
        self.asked += 1
        key = name, (pace,), ()
        if key not in self._known:
            part = self.plan.subplans[name]
            self._known[key] = self._simulated(part, (pace,) * len(part.plan.paths))
        return self._known[key]

    def view(self, name: str, paces: Paces) -> Private:
        """What a view costs by itself, as part of paces for the whole plan."""
        self.asked += 1
        own = paces[self.plan.span[name]]
        given = []
        for _, subplan, at, path, end in self._inputs[name]:
            pace = paces[at] if path is None else min(paces[at], own[path])
            given.append(self.subplan(subplan, pace).given[end])
        key = name, own, tuple(given)
        if key not in self._known:
            places = [place for place, *_ in self._inputs[name]]
            batch = {place: self.subplan(subplan, 1).given[end] for place, subplan, _, _, end in self._inputs[name]}
            part = fed(self.plan.views[name], dict(zip(places, given, strict=True)), batch)
            self._known[key] = self._simulated(part, own)
        return self._known[key]

    def _inputs_of(self, part: Part) -> list[tuple[Place, str, int, int | None, int]]:
        """Where rows of subplans enter: the place, the subplan, where its pace stands, the path whose pace counts too
        because the rows wait before a join, and the operator of the subplan that gives them."""
        out = []
        for place, subplan in part.reads.items():
            waits = bool(part.plan.kinds[place[0]] < GROUP)
            path = int(part.plan.path_of[place]) if waits else None
            out.append((place, subplan, self.plan.span[subplan].start, path, part.ends.get(place, -1)))
        return out

    def part(self, name: str, paces: Paces) -> Private:
        """What a part costs by itself."""
        if name in self.plan.subplans:
            return self.subplan(name, paces[self.plan.span[name].start])
        return self.view(name, paces)

    def final(self, view: str, paces: Paces) -> float:
        """The final work of a view."""
        below = sum(self.subplan(s, paces[self.plan.span[s].start]).final for s in self.plan.views[view].below)
        return below + self.view(view, paces).final

    def total(self, paces: Paces) -> float:
        """The total work of all parts."""
        return sum(self.part(name, paces).total for name in (*self.plan.subplans, *self.plan.views))

    def _simulated(self, part: Part, paces: Paces) -> Private:
        self.simulations += 1
        work = simulated(part.plan, paces, part.units, self.plan.most)
        return Private(part.held + work.total, work.final, work.given)


def fed(part: Part, given: Mapping[Place, Flow], batch: Mapping[Place, Flow]) -> Part:
    """A part as it is when subplans give these rows: what enters it changes in the same ratio, flow by flow.

    Parameters
    ----------
    batch : what the subplans give in one batch; it counts where nothing is known of the moment of counting.
    """
    arriving = part.plan.arriving.copy()
    for place, flow in given.items():
        seen = part.fed.get(place, batch[place])
        if part.plan.kinds[place[0]] < GROUP:
            share = _ratio(float(np.abs(arriving[place]).sum()), sum(seen))
            now = [share * flow[i] if not seen[i] else arriving[place][i] * flow[i] / seen[i] for i in range(3)]
            arriving[place] = now
        else:
            arriving[place] *= _ratio(_gross(flow), _gross(seen))
    return replace(part, plan=replace(part.plan, arriving=arriving))


def _gross(flow: Flow) -> float:
    return flow[0] + 2 * flow[1] + flow[2]


def _ratio(one: float, other: float) -> float:
    return one / other if other else 1.0


def alone(view: Part, subplans: Mapping[str, Part], shares: Mapping[str, float], parts: int = 1) -> tuple[float, float]:
    """The work of a view that shares nothing, if all is done at the trigger: of its own part, and of all of it.

    Parameters
    ----------
    shares : per subplan, the share of its rows that the view wants: alone, it would take only these.
    parts : in which the data comes until then. What waits before an aggregate is added up per part, so more parts leave
        more for the trigger; goals are shares of what paces are compared with, so both have to have the same parts.
    """
    own = _batch(fed_in_one_batch(view, subplans), parts).final + view.held
    whole = own
    for name in view.below:
        work = _batch(subplans[name], parts)
        whole += float(np.clip(shares.get(name, 1.0), 0.0, 1.0)) * (work.final + subplans[name].held)
    return own, whole


def fed_in_one_batch(view: Part, subplans: Mapping[str, Part]) -> Part:
    """A view as if its rows had been counted when subplans gave all of theirs in one batch."""
    below = {name: _batch(subplans[name]) for name in view.below}
    batch = {at: below[name].given[view.ends.get(at, -1)] for at, name in view.reads.items()}
    return replace(fed(view, batch, batch), fed={})


def _batch(part: Part, parts: int = 1) -> Work:
    return simulated(part.plan, (1,) * len(part.plan.paths), part.units, parts)
