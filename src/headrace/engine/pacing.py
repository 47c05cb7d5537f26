"""Choosing paces for views with goals: what their flushes show, and what follows from it for the next trigger.

Before its trigger, the first data of a view is flushed in portions of many sizes, if the trigger counts rows: nothing
is known, and such flushes tell most. After that the cost model is fitted to what was counted, and the search decides.
Paces are chosen again when a trigger brought other rows than expected, or its final work was not what was estimated;
planning is kept below a small share of the work that it plans.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from headrace.engine.definition import PlannedView
from headrace.engine.pacing_together import fed_by, learnt_below
from headrace.engine.seen_trigger import Trigger
from headrace.operators.kernel import Traffic
from headrace.operators.tree_view import TreeView
from headrace.plan.tree import Join
from headrace.relation.from_log import from_log
from headrace.runtime.inline import WORTH_THREADS
from headrace.runtime.one_pass import most_rows
from headrace.runtime.record import Arrangements
from headrace.thrifty import cardinalities as c
from headrace.thrifty.goal import Budget, Every, FinalWork, Freshness, TargetLag
from headrace.thrifty.incrementability import SHARES
from headrace.thrifty.measured import Measured
from headrace.thrifty.observed import learnt, next_trigger
from headrace.thrifty.paces import Chosen, Search
from headrace.thrifty.schedule import LEARNING, Progress
from headrace.thrifty.simulate import FlatPlan, simulated
from headrace.thrifty.unit_costs import Passes, UnitCosts

_NEWS = 0.2  # rows, or final work, that differ by less than this are no reason to plan again
_PLANNING = 0.01  # planning may take this share of the work that it plans, after the first few triggers
_FREE_PLANNINGS = 3
_MOST_FLUSHES = 1_000  # a subplan that others flush more often in a trigger of a view is not learnt from
_FLUSH = "-1"  # stands for the flush itself, where numbers stand for operators
_NOTHING = FlatPlan(
    np.full(1, c.GROUP),
    np.zeros((1, c.PARAMETERS)),
    np.zeros((1, 2), np.int64),
    np.zeros((1, 2, 3)),
    np.zeros((0, 3), np.int64),
    np.zeros((0, 3, 3)),
    ("0",),
    (),
)


@dataclass(frozen=True)
class Learnt:
    """What is known of the triggers of a view.

    Parameters
    ----------
    rows : changed rows of the trigger from which it was learnt.
    share : the final work that the paces were chosen for; None if they were not chosen by final work.
    feasible : whether the paces are estimated to reach the goal.
    estimated, batch : the estimated final work with these paces, and if all work is done at the trigger; seconds.
    planning : seconds that choosing paces has taken so far.
    held : CPU seconds of holding the rows of a trigger when they come.
    last : what the last trigger took: its final and its additional work as shares of `batch`, and the seconds of the
        first.
    forecast : for the next trigger, by operator: rows that it takes, and CPU seconds (those of flushes under -1).
    below : the shared subplans that waited with the view, as `engine.pacing_together` knows them.
    below_final : the part of `estimated` that these do.
    fed : per path, what these gave when the rows of the path were counted.
    operators : of the last trigger, by operator: rows that were forecast, rows that it took, CPU seconds that were
        forecast, CPU seconds that it took; the forecasts are None for the first trigger.
    """

    plan: FlatPlan
    measured: Measured
    passes: Passes
    rows: float
    share: float | None = None
    feasible: bool = True
    estimated: float = 0.0
    batch: float = 0.0
    planning: float = 0.0
    held: float = 0.0
    last: Mapping[str, float] = field(default_factory=dict)
    forecast: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    operators: Mapping[str, tuple[float | None, float, float | None, float]] = field(default_factory=dict)
    below: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    below_final: float = 0.0
    fed: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The values that the log keeps."""
        own = {name: value for name, value in self.__dict__.items() if name not in _PARTS}
        return {**own, "plan": self.plan.to_json(), "measured": asdict(self.measured), "passes": asdict(self.passes)}

    @classmethod
    @from_log("what triggers have shown")
    def from_json(cls, data: Mapping[str, Any]) -> Learnt:
        rest = {name: value for name, value in data.items() if name not in _PARTS}
        return cls(FlatPlan.from_json(data["plan"]), Measured(**data["measured"]), Passes(**data["passes"]), **rest)

    @property
    def search(self) -> Search:
        """A search for paces, by all that is known."""
        units = self.measured.units(UnitCosts.assumed(self.plan.kinds.tolist(), self.passes))
        return Search(self.plan, units, held=1e6 * self.held)


_PARTS = ("plan", "measured", "passes")  # the fields of what was learnt that are not plain values


class Pacing:
    """The paces of one engine's views.

    Parameters
    ----------
    threads : how many buckets the driver does at the same time.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._triggers: dict[str, Trigger] = {}
        self.last: dict[str, Trigger] = {}  # the last whole trigger of each view, as this engine has seen it

    def came(self, name: str, view: PlannedView, rows: Mapping[str, int], *, is_first: bool) -> None:
        """Note rows of sources that came; only a trigger whose first rows were seen is learnt from."""
        if not isinstance(view.kernel, TreeView):
            return
        if is_first:
            self._triggers[name] = Trigger()
        if name in self._triggers:
            waiting = self._triggers[name].rows
            for number, _, _, feed in view.kernel.reading.feeds():
                if feed.producer is None and not isinstance(view.kernel.tree.nodes[number], Join):
                    waiting[number] = waiting.get(number, 0.0) + rows.get(feed.source, 0)

    def saw(
        self,
        name: str,
        view: PlannedView,
        before: Arrangements,
        traffic: Mapping[str, Traffic],
        cpu: float,
        *,
        is_last: bool,
    ) -> None:
        """Note what a flush did; `before` is the state that it found."""
        if not isinstance(view.kernel, TreeView):
            return
        trigger = self._triggers.get(name)
        if trigger is None:
            return
        trigger.saw(name, view.kernel, before, traffic, cpu, is_last=is_last)
        if is_last:
            self.last[name] = self._triggers.pop(name)

    def given(self, traffic: Mapping[str, Mapping[str, Traffic]]) -> None:
        """Note the rows that shared subplans gave to views, before whose operators they wait."""
        for name in traffic.keys() & self._triggers.keys():
            waiting = self._triggers[name].rows
            for number, one in traffic[name].items():
                waiting[int(number)] = waiting.get(int(number), 0.0) + one.fed

    def held_below(self, name: str, subplan: str, seconds: float) -> None:
        """Note that rows came for a shared subplan that waits with a view, and what it took to hold them."""
        if name in self._triggers:
            self._triggers[name].below.setdefault(subplan, Trigger()).held += seconds

    def saw_below(
        self, subplan: str, kernel: TreeView, before: Arrangements, traffic: Mapping[str, Traffic], cpu: float
    ) -> None:
        """Note a flush of a shared subplan, in the triggers of all views that it waits with."""
        for trigger in self._triggers.values():
            seen = trigger.below.get(subplan)
            if seen is not None and len(seen.flushes) < _MOST_FLUSHES:
                seen.saw(subplan, kernel, before, traffic, cpu, is_last=False)

    def forget(self, name: str) -> None:
        """Forget a trigger of which not all was seen, or that was planned otherwise, as after a failure."""
        self._triggers.pop(name, None)
        self.last.pop(name, None)

    def first(self, view: PlannedView, fresh: Freshness) -> dict[str, int]:
        """The paces of a view of which nothing is known."""
        if not isinstance(view.kernel, TreeView) or not _is_paced(fresh):
            return {}
        return dict.fromkeys(view.kernel.holds, LEARNING)

    def chosen(
        self, name: str, view: PlannedView, fresh: Freshness, progress: Progress, known: Learnt | None
    ) -> tuple[Mapping[str, int], Learnt] | None:
        """The paces for the next trigger, after one that is over, and what is known then; None if nothing was learnt.

        Parameters
        ----------
        progress : before the trigger, with the rows that it had.
        """
        trigger = self.last.get(name)
        if trigger is None or not isinstance(view.kernel, TreeView) or not progress.rows:
            return None
        if not (_is_paced(fresh) or trigger.below):  # what others share with the view is planned with it
            return None
        if known is not None and not self._is_news(trigger, progress, known):
            last = _last(trigger, progress, known.batch)
            return progress.paces, replace(known, last=last, operators=_by_operator(trigger, known.forecast))
        simulated(_NOTHING, (1,), UnitCosts.alike(1, 1.0, 1.0, 1.0), 1)  # compiled, or loaded, before time is taken
        start = time.perf_counter()
        kernel, before = view.kernel, None if known is None else known.plan
        before_below = {} if known is None else known.below
        seen = learnt(kernel.reading, trigger.flushes, trigger.base, before, kernel.paths)
        passes = passes_of(view.kernel, self.threads)
        assumed = UnitCosts.assumed(seen.kinds.tolist(), passes)
        measured = (Measured() if known is None else known.measured).after(trigger.flushes, assumed)
        below = {
            subplan: learnt_below(one.kernel, passes_of(one.kernel, self.threads), one, before_below.get(subplan))
            for subplan, one in trigger.below.items()
            if one.kernel is not None and len(one.flushes) < _MOST_FLUSHES
        }
        after = Learnt(
            next_trigger(seen),
            measured,
            passes,
            progress.rows,
            held=progress.held,
            below={subplan: said for subplan, (_, said) in below.items()},
            fed=fed_by(kernel, trigger, {subplan: plan for subplan, (plan, _) in below.items()}, progress.paces),
        )
        search = after.search
        share, found = _searched(search, fresh, progress) if _is_paced(fresh) else (None, _batch(search))
        took = time.perf_counter() - start + (0.0 if known is None else known.planning)
        whole = search.everything / 1e6
        after = replace(
            after,
            share=share,
            feasible=found.feasible,
            estimated=found.work.final / 1e6,
            batch=whole,
            planning=took,
            last=_last(trigger, progress, whole),
            forecast=_forecast(found),
            operators=_by_operator(trigger, {} if known is None else known.forecast),
        )
        return dict(zip(after.plan.paths, found.paces, strict=True)) if _is_paced(fresh) else progress.paces, after

    def under(self, known: Learnt, fresh: Freshness, progress: Progress) -> Chosen:
        """The paces for a goal, given what is known."""
        search = known.search
        if not _is_paced(fresh):
            return _batch(search)
        return _searched(search, fresh, progress)[1]

    def _is_news(self, trigger: Trigger, progress: Progress, known: Learnt) -> bool:
        if progress.triggers > _FREE_PLANNINGS and known.planning > _PLANNING * progress.cpu:
            return False
        final = sum(flush.cpu for flush in trigger.flushes if flush.is_last)
        return _differ(progress.rows, known.rows) or _differ(final, known.estimated - known.below_final)


def passes_of(kernel: TreeView, threads: int) -> Passes:
    """How the flushes of a view go through its buckets."""
    if kernel.in_one_pass is None:
        return Passes(kernel.buckets, kernel.buckets, float(WORTH_THREADS))
    return Passes(1, kernel.buckets, float(most_rows(kernel.buckets, threads)))


def _last(trigger: Trigger, progress: Progress, whole: float) -> dict[str, float]:
    """What a trigger took, beside the estimate of doing everything at the trigger."""
    final = sum(flush.cpu for flush in trigger.flushes if flush.is_last)
    total = progress.held + sum(flush.cpu for flush in trigger.flushes)
    return {"final": final / whole, "additional": total / whole - 1, "seconds": final} if whole else {}


def _forecast(found: Chosen) -> dict[str, tuple[float, float]]:
    """What paces are estimated to cost, by operator."""
    work = found.work
    return {str(n): (work.rows.get(n, 0.0), seconds / 1e6) for n, seconds in work.cpu.items()}


def _by_operator(
    trigger: Trigger, forecast: Mapping[str, tuple[float, float]]
) -> dict[str, tuple[float | None, float, float | None, float]]:
    """What the flushes of a trigger took, by operator, beside what was forecast."""
    rows: dict[str, float] = {_FLUSH: 0.0}
    cpu: dict[str, float] = {_FLUSH: 0.0}
    for flush in trigger.flushes:
        cpu[_FLUSH] += flush.cpu
        for number, flow in flush.operators.items():
            n = str(number)
            rows[n], cpu[n] = rows.get(n, 0.0) + flow.rows, cpu.get(n, 0.0) + flow.cpu
            cpu[_FLUSH] -= flow.cpu
    expected = {n: forecast.get(n, (None, None)) for n in rows}
    return {n: (expected[n][0], rows[n], expected[n][1], cpu[n]) for n in rows}


def _is_paced(fresh: Freshness) -> bool:
    """Whether the goal leaves the engine a choice between work before the trigger and work at it."""
    goal = fresh.goal
    return (
        (isinstance(goal, FinalWork) and goal.share < 1.0)
        or isinstance(goal, TargetLag)
        or (isinstance(goal, Budget) and fresh.trigger is not None)
    )


def _batch(search: Search) -> Chosen:
    """Everything at the trigger."""
    return Chosen(search.batch, search.cost(search.batch), True)


def _searched(search: Search, fresh: Freshness, progress: Progress) -> tuple[float | None, Chosen]:
    goal = fresh.goal
    if isinstance(goal, FinalWork):
        return goal.share, search.best(goal.share)
    whole = search.everything / 1e6
    if isinstance(goal, TargetLag):
        # Half of the lag is for what no estimate knows: other views, the commit, a busy machine.
        share = min(1.0, 0.5 * goal.seconds / whole) if whole else 1.0
        return share, search.best(max(0.001, share))
    assert isinstance(goal, Budget)
    period = fresh.trigger.period.microseconds / 1e6 if isinstance(fresh.trigger, Every) else None
    seconds = period or (progress.last or 0) / 1e6 - progress.fired / 1e6
    allowed = 1e6 * goal.share * max(0.0, seconds)
    found = [search.best(share) for share in SHARES]
    within = [one for one in found if one.work.total <= allowed]
    return None, min(within, key=lambda one: one.work.final) if within else found[0]


def _differ(one: float, other: float) -> bool:
    return abs(one - other) > _NEWS * max(one, other)
