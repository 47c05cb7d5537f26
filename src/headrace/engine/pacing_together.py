"""Paces of views that share subplans: those whose triggers fire together are planned together.

A view with a goal learns what its own operators do, and what the subplans do that wait with it, both over its own
triggers. From that follows a shared plan (`thrifty.share.dag`), whose search chooses a pace for every subplan and for
every path of every view at once. The pace of a subplan stands among the paces of each view that reads it, because it
counts flushes until the trigger of that view. If another view has brought the subplan up to date, nothing is left.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.operators.tree_view import TreeView
from headrace.thrifty.goal import FinalWork, Freshness, TargetLag
from headrace.thrifty.measured import Measured
from headrace.thrifty.observed import learnt, next_trigger
from headrace.thrifty.paces import MARGIN
from headrace.thrifty.share.dag import Part, SharedPlan, alone
from headrace.thrifty.share.paces import Chosen, chosen
from headrace.thrifty.simulate import FlatPlan, simulated
from headrace.thrifty.unit_costs import Passes, UnitCosts

if TYPE_CHECKING:
    from headrace.engine.definition import PlannedView
    from headrace.engine.pacing import Learnt
    from headrace.engine.seen_trigger import Trigger

_LAG = 0.5  # of a target lag; the rest is for what no estimate knows


@dataclass(frozen=True)
class Planned:
    """A view whose paces are to be chosen, its goal, and what is known of its triggers."""

    view: PlannedView
    fresh: Freshness
    known: Learnt


def learnt_below(
    kernel: TreeView, passes: Passes, trigger: Trigger, before: Mapping[str, Any] | None
) -> dict[str, Any]:
    """What a trigger has shown of a shared subplan, as plain values.

    Parameters
    ----------
    before : what was known of it.
    """
    known = None if before is None else FlatPlan.from_json(before["plan"])
    seen = learnt(kernel.tree, trigger.flushes, trigger.base, known)
    assumed = UnitCosts.assumed(seen.kinds.tolist(), passes)
    measured = (Measured() if before is None else Measured(**before["measured"])).after(trigger.flushes, assumed)
    plan = next_trigger(seen)
    return {"plan": plan.to_json(), "measured": asdict(measured), "passes": asdict(passes), "held": trigger.held}


def together(views: Mapping[str, Planned]) -> dict[str, tuple[dict[str, int], Learnt]]:
    """New paces per view, its subplans included, and what is known then, if its goal leaves a choice."""
    able = {name: one for name, one in views.items() if one.known.below and _is_planned(one.fresh)}
    if not able:
        return {}
    start = time.perf_counter()
    subplans: dict[str, Part] = {}
    for one in able.values():
        for name, said in one.known.below.items():
            subplans.setdefault(name, _subplan(said))
    own = {name: _own(one, subplans) for name, one in able.items()}
    whole = {name: alone(part, subplans, _shares(part, subplans))[1] for name, part in own.items()}
    wanted = {name: _wanted(one.fresh, whole[name]) for name, one in able.items()}
    found = chosen(SharedPlan(subplans, own, wanted))
    took = (time.perf_counter() - start) / len(able)
    return {name: _result(name, able[name], own[name], whole[name], found, took) for name in able}


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


def _wanted(fresh: Freshness, whole: float) -> float:
    goal = fresh.goal
    if isinstance(goal, FinalWork):
        return goal.share * whole / (1 + MARGIN * (1 - goal.share))
    assert isinstance(goal, TargetLag)
    return _LAG * 1e6 * goal.seconds


def _subplan(said: Mapping[str, Any]) -> Part:
    plan, measured = FlatPlan.from_json(said["plan"]), Measured(**said["measured"])
    units = measured.units(UnitCosts.assumed(plan.kinds.tolist(), Passes(**said["passes"])))
    return Part(plan, units, held=1e6 * said["held"])


def _own(one: Planned, subplans: Mapping[str, Part]) -> Part:
    kernel, known = one.view.kernel, one.known
    assert isinstance(kernel, TreeView)
    given = {(n, side): feed.table for n, side, _, feed in kernel.reading.feeds() if feed.producer is None}
    reads = {at: name for at, name in given.items() if name in subplans and at[0] in kernel.own}
    units = known.measured.units(UnitCosts.assumed(known.plan.kinds.tolist(), known.passes))
    return Part(known.plan, units, reads, held=1e6 * known.held)


def _shares(part: Part, subplans: Mapping[str, Part]) -> dict[str, float]:
    """The share of the rows of each subplan that a view takes."""
    out: dict[str, float] = {}
    for (number, side), name in part.reads.items():
        pairs = float(_given(subplans[name]))
        taken = float(np.abs(part.plan.arriving[number, side]).sum())
        out[name] = max(out.get(name, 0.0), taken / pairs if pairs else 1.0)
    return out


def _given(part: Part) -> float:
    work = simulated(part.plan, (1,) * len(part.plan.paths), part.units, 1)
    return sum(work.given)
