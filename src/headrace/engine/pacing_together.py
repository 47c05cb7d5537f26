"""Paces of views that share subplans: those whose triggers fire together are planned together.

A view with a goal learns what its own operators do, and what the subplans do that wait with it, both over its own
triggers. From that follows a shared plan (`thrifty.share.dag`), whose search chooses a pace for every subplan and for
every path of every view at once. The pace of a subplan stands among the paces of each view that reads it, because it
counts flushes until the trigger of that view. If another view has brought the subplan up to date, nothing is left.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.operators.tree_view import TreeView
from headrace.plan.tree import Join
from headrace.thrifty.goal import Budget, FinalWork, Freshness, TargetLag
from headrace.thrifty.measured import Measured
from headrace.thrifty.observed import learnt, next_trigger
from headrace.thrifty.paces import MARGIN
from headrace.thrifty.share.dag import Flow, Part, SharedPlan, alone
from headrace.thrifty.share.fingerprint import fingerprints
from headrace.thrifty.share.paces import Chosen, chosen
from headrace.thrifty.simulate import FlatPlan, simulated
from headrace.thrifty.unit_costs import Passes, UnitCosts

if TYPE_CHECKING:
    from headrace.engine.definition import PlannedView
    from headrace.engine.pacing import Learnt
    from headrace.engine.seen_trigger import Trigger

_LAG = 0.5  # of a target lag; the rest is for what no estimate knows
_PARTS = 100  # in which the rows of a trigger come, where it is simulated


@dataclass(frozen=True)
class Planned:
    """A view whose paces are to be chosen, its goal, and what is known of its triggers."""

    view: PlannedView
    fresh: Freshness
    known: Learnt


def learnt_below(
    kernel: TreeView, passes: Passes, trigger: Trigger, before: Mapping[str, Any] | None
) -> tuple[FlatPlan, dict[str, Any]]:
    """What a trigger has shown of a shared subplan: its rows, and what follows for the next trigger as plain values.

    Parameters
    ----------
    before : what was known of the subplan of that name. If views share other operators by now, it is another subplan,
        and nothing is known.
    """
    of = sorted(fingerprints(kernel).items())
    if before is not None and [tuple(one) for one in before["of"]] != of:
        before = None
    known = None if before is None else FlatPlan.from_json(before["plan"])
    seen = learnt(kernel.tree, trigger.flushes, trigger.base, known)
    assumed = UnitCosts.assumed(seen.kinds.tolist(), passes)
    measured = (Measured() if before is None else Measured(**before["measured"])).after(trigger.flushes, assumed)
    plan = next_trigger(seen)
    said = {"plan": plan.to_json(), "measured": asdict(measured), "passes": asdict(passes), "held": trigger.held}
    return seen, said | {"of": of}


def fed_by(
    kernel: TreeView, trigger: Trigger, subplans: Mapping[str, FlatPlan], paces: Mapping[str, int]
) -> dict[str, Flow]:
    """What shared subplans gave to each path of a view in a trigger, in the way in which the path counts it.

    Before an aggregate, all rows count that came. Before a join, those count that were left at its flushes, and these
    are not seen where the subplan ran more often: so it is what the subplan would give at the pace of the path.

    Parameters
    ----------
    subplans : as the trigger has shown them.
    paces : of the paths of the view in the trigger.
    """
    out, ends = {}, ends_of(kernel)
    for path in kernel.paths:
        place = path.number, path.side
        for name in path.tables:
            if name not in subplans or place not in ends:
                continue
            plan = subplans[name]
            if isinstance(kernel.reading.nodes[path.number], Join):
                pace = paces.get(path.name, 1)
                units = UnitCosts.alike(len(plan.kinds), 1.0, 1.0, 1.0)
                out[path.name] = simulated(plan, (pace,) * len(plan.paths), units, _PARTS).given[ends[place]]
            else:
                flushes = trigger.below[name].flushes
                given = [f.operators[ends[place]].given for f in flushes if ends[place] in f.operators]
                out[path.name] = sum(g[0] for g in given), sum(g[1] for g in given), sum(g[2] for g in given)
    return out


@dataclass(frozen=True)
class Together:
    """What views that were planned together are known to cost.

    Parameters
    ----------
    plan, found : the views with their subplans, and the paces that were chosen.
    whole : per view, the work in one batch of all that it needs, if it shares nothing; microseconds.
    results : per view whose goal leaves a choice, its new paces (those of its subplans too), and what is known then.
    """

    plan: SharedPlan
    found: Chosen
    whole: Mapping[str, float]
    results: Mapping[str, tuple[dict[str, int], Learnt]]


def together(views: Mapping[str, Planned]) -> Together | None:
    """New paces for views whose goals leave a choice, and for their subplans; None if there are none of these.

    Views that read the same subplans, and whose goals leave no choice, take part with what they cost.
    """
    able = {name: one for name, one in views.items() if one.known.below and not isinstance(one.fresh.goal, Budget)}
    if not any(_is_planned(one.fresh) for one in able.values()):
        return None
    start = time.perf_counter()
    subplans: dict[str, Part] = {}
    for one in able.values():
        for name, said in one.known.below.items():
            subplans.setdefault(name, _subplan(said))
    own = {name: _own(one, subplans) for name, one in able.items()}
    whole = {name: alone(part, subplans, _shares(part, subplans), _PARTS)[1] for name, part in own.items()}
    wanted = {name: most for name, one in able.items() if (most := _wanted(one.fresh, whole[name])) is not None}
    plan = SharedPlan(subplans, own, wanted, most=_PARTS)
    found = chosen(plan)
    took = (time.perf_counter() - start) / len(able)
    planned = [name for name, one in able.items() if _is_planned(one.fresh)]
    results = {name: _result(name, able[name], own[name], whole[name], found, took) for name in planned}
    return Together(plan, found, whole, results)


def _result(
    name: str, one: Planned, part: Part, whole: float, found: Chosen, took: float
) -> tuple[dict[str, int], Learnt]:
    paces = found.views[name] | {subplan: found.subplans[subplan] for subplan in part.below}
    goal = one.fresh.goal
    after = replace(
        one.known,
        share=goal.share if isinstance(goal, FinalWork) else None,
        feasible=name not in found.missed,
        estimated=found.finals[name] / 1e6,
        batch=whole / 1e6,
        planning=one.known.planning + took,
        below_final=found.below[name] / 1e6,
    )
    return paces, after


def _is_planned(fresh: Freshness) -> bool:
    goal = fresh.goal
    return isinstance(goal, TargetLag) or (isinstance(goal, FinalWork) and goal.share < 1.0)


def _wanted(fresh: Freshness, whole: float) -> float | None:
    """The most final work that a view may have; None if its goal says nothing about it."""
    goal = fresh.goal
    if isinstance(goal, FinalWork):
        return goal.share * whole / (1 + MARGIN * (1 - goal.share))
    return _LAG * 1e6 * goal.seconds if isinstance(goal, TargetLag) else None


def _subplan(said: Mapping[str, Any]) -> Part:
    plan, measured = FlatPlan.from_json(said["plan"]), Measured(**said["measured"])
    units = measured.units(UnitCosts.assumed(plan.kinds.tolist(), Passes(**said["passes"])))
    return Part(plan, units, held=1e6 * said["held"])


def _own(one: Planned, subplans: Mapping[str, Part]) -> Part:
    kernel, known = one.view.kernel, one.known
    assert isinstance(kernel, TreeView)
    given = {(n, side): feed.table for n, side, _, feed in kernel.reading.feeds() if feed.producer is None}
    reads = {at: name for at, name in given.items() if name in subplans and at[0] in kernel.own}
    ends = ends_of(kernel)
    units = known.measured.units(UnitCosts.assumed(known.plan.kinds.tolist(), known.passes))
    fed = {(path.number, path.side): known.fed[path.name] for path in kernel.paths if path.name in known.fed}
    return Part(known.plan, units, reads, 1e6 * known.held, {at: ends[at] for at in reads}, fed)


def ends_of(kernel: TreeView) -> dict[tuple[int, int], int]:
    """Per place of a view at which rows of a shared subplan enter, the operator of the subplan that gives them."""
    given = {number: one.feed.producer for number, one in kernel.given.items()}
    found = (
        (n, side, given.get(feed.producer)) for n, side, _, feed in kernel.tree.feeds() if feed.producer is not None
    )
    return {(n, side): end for n, side, end in found if end is not None}


def _shares(part: Part, subplans: Mapping[str, Part]) -> dict[str, float]:
    """The share of the rows of each subplan that a view takes."""
    out: dict[str, float] = {}
    for place, name in part.reads.items():
        given = part.fed.get(place) or _given(subplans[name])[part.ends.get(place, -1)]
        taken = float(np.abs(part.plan.arriving[place]).sum())
        out[name] = max(out.get(name, 0.0), taken / sum(given) if sum(given) else 1.0)
    return out


def _given(part: Part) -> Sequence[Flow]:
    """The rows that each operator of a subplan gives in one batch."""
    return simulated(part.plan, (1,) * len(part.plan.paths), part.units, 1).given
