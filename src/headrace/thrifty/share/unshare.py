"""Unsharing: shared subplans are taken apart where goals differ so much that sharing costs more than it saves.

A subplan runs as often as the strictest of its readers needs it, for the rows of all of them. After paces are known,
each subplan is looked at: are its readers better off in several parts (`split`), each at a pace of its own? The plan
that follows has other parts; its paces are found by a search downwards from those of the old plan, and it is taken if
its total work is clearly less (Tang, "Thrifty Query Processing", 4.3). Past that, it is also taken if views that miss
their goals reach them by it: at the trigger, a view waits for the rows of all who share the subplan. A goal that is out
of reach either way is no reason to do much more work: views that only come nearer to theirs have to save as much final
work, as far as they miss it, as the plan adds to the total (the incrementability of Eq. 4.2 is 1 at least).

The last operators of a subplan may be split alone (4.3.3): candidates begin with the root and grow to its inputs, the
nearest first. Readers that leave run these operators themselves, and go on to read what lies below from the subplan.

Subplans read tables only, never each other. So no reader of a subplan is itself shared, the sets of readers nest
whatever is split, and no other subplan has to be split along (Figure 4.7). What remains of that step is that a part
with one reader is merged into its reader. Parents come before children (4.3.4) in this sense: subplans have no parents
but views, so they may be looked at in any order; within one, its last operators come first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from headrace.thrifty.share.dag import Costs, Paces, SharedPlan, fed_in_one_batch
from headrace.thrifty.share.divide import Readers, piece, taken_over
from headrace.thrifty.share.paces import Chosen, Search
from headrace.thrifty.share.split import LocalPart, LocalProblem, local_constraints

_CLEARLY = 0.9  # of the total work before: a new plan has to be filled, and estimates are not exact
_NEARER = 0.1  # of its goal: a view that comes so much nearer may be worth a new plan
_REACHED = 0.1  # of its goal: an estimate that is not further beyond it stands for a goal that is met


@dataclass(frozen=True)
class Division:
    """A subplan that is taken apart.

    Parameters
    ----------
    groups : readers that go on to share, in one subplan per group.
    own : per reader, the operators of the subplan that it runs by itself from now on.
    local : the parts of the local problem that led to it, with their paces.
    """

    subplan: str
    groups: tuple[tuple[str, ...], ...]
    own: Mapping[str, frozenset[int]]
    local: tuple[LocalPart, ...] = ()


@dataclass(frozen=True)
class Unshared:
    """A plan with a subplan taken apart.

    Parameters
    ----------
    before : the total work before; microseconds.
    reached : views that come clearly nearer to their goals, or reach them.
    """

    division: Division
    plan: SharedPlan
    paces: Chosen
    before: float
    reached: tuple[str, ...] = ()


def unshared(
    plan: SharedPlan, now: Chosen, readers: Mapping[str, Readers], alone: Mapping[str, float]
) -> list[Unshared]:
    """Take apart what is better apart; each result has the plan after it, and the next one goes on from there.

    Parameters
    ----------
    now : the paces of the plan.
    readers : of the subplans that may be taken apart.
    alone : per view, the work in one batch of all that it needs, if it shares nothing.
    """
    found: list[Unshared] = []
    for component in plan.components():
        paces = _within(now, component)
        for name in [name for name in component.subplans if name in readers and name not in component.fixed]:
            better = _best(component, paces, name, readers[name], alone)
            if better is not None:
                found.append(better)
                component, paces = better.plan, better.paces
    return found


def _within(now: Chosen, component: SharedPlan) -> Chosen:
    """The paces of a part of the plan that has nothing to do with the rest."""
    subplans = {name: now.subplans[name] for name in component.subplans}
    views = {name: now.views[name] for name in component.views}
    paces = (*subplans.values(), *(pace for own in views.values() for pace in own.values()))
    return replace(
        now,
        subplans=subplans,
        views=views,
        total=Costs(component).total(paces),
        finals={name: now.finals[name] for name in views},
        below={name: now.below[name] for name in views},
        missed=tuple(name for name in now.missed if name in views),
    )


def _best(plan: SharedPlan, now: Chosen, name: str, readers: Readers, alone: Mapping[str, float]) -> Unshared | None:
    found: list[tuple[float, Unshared]] = []
    missed = _beyond(plan, now)
    late = [view for view in readers.views if missed.get(view)]
    for division in (*divisions(plan, name, readers, alone), *_without(name, readers, late)):
        after = divided(plan, division, readers)
        paces = lowered(after, inherited(after, division, now))
        if not _meets(plan, now, paces):
            continue
        left = _beyond(plan, paces)
        nearer = tuple(view for view, more in missed.items() if more - left[view] > _NEARER)
        worth = any(left[view] <= _REACHED for view in nearer) or _pays(plan, now, paces)
        reached = nearer if worth else ()
        if reached or paces.total < _CLEARLY * now.total:
            found.append((sum(left.values()), Unshared(division, after, paces, now.total, reached)))
    if not found:
        return None
    # Goals come before work: what brings views nearer to their goals by a little more is not worth more work, though.
    return min(found, key=lambda one: (round(one[0] / _NEARER), one[1].paces.total))[1]


def _beyond(plan: SharedPlan, paces: Chosen) -> dict[str, float]:
    """How far the final work of each view is beyond its goal, as a share of the goal."""
    return {view: max(0.0, paces.finals[view] / most - 1.0) if most else 0.0 for view, most in plan.wanted.items()}


def _pays(plan: SharedPlan, now: Chosen, paces: Chosen) -> bool:
    """Whether views save as much final work, as far as they miss their goals (Eq. 4.1), as is added to the total."""
    saved = (now.finals[view] - max(most, paces.finals[view]) for view, most in plan.wanted.items())
    return sum(max(0.0, one) for one in saved) >= paces.total - now.total


def _meets(plan: SharedPlan, now: Chosen, paces: Chosen) -> bool:
    """Whether every view gets what it wants, or at least what it has now."""
    return all(paces.finals[view] <= max(most, now.finals[view]) * (1 + 1e-9) for view, most in plan.wanted.items())


def divisions(plan: SharedPlan, name: str, readers: Readers, alone: Mapping[str, float]) -> Iterator[Division]:
    """The splits of a subplan that are worth a closer look: of its last operators, of all of them, and no sharing."""
    part = plan.subplans[name]
    wanted = {view: plan.wanted.get(view, float("inf")) for view in readers.views}
    for operators in _from_the_root(readers):
        local = local_constraints(part, readers, operators, wanted, alone, plan.most)
        split = LocalProblem(part, readers, operators, local, plan.most).clustered()
        if len(split) < 2:
            continue
        if len(operators) == len(part.plan.kinds):
            groups = tuple(one.views for one in split if len(one.views) > 1)
            own = {view: readers.needed[view] for one in split if len(one.views) == 1 for view in one.views}
        else:
            # The subplan has one pace, so one part keeps its last operators there; all others run these themselves.
            stay = max(split, key=lambda one: len(one.views))
            stay_views = stay.views if len(stay.views) > 1 else ()
            groups = (readers.views,)
            own = {view: readers.needed[view] & operators for view in readers.views if view not in stay_views}
            if any(own[view] == readers.needed[view] for view in own):
                continue  # nothing would be left that it reads
        yield Division(name, groups, own, tuple(split))
    # Parts are clustered by local goals. A view may miss its goal for the rows of just one other, in any such part.
    yield Division(name, (), readers.needed)


def _without(name: str, readers: Readers, late: Sequence[str]) -> Iterator[Division]:
    """Splits by which only views that miss their goals leave, one of them or all: the others go on as they are."""
    leaving = dict.fromkeys([*((view,) for view in late), tuple(late)])
    for gone in leaving:
        stay = tuple(view for view in readers.views if view not in gone)
        if gone and len(stay) > 1:
            yield Division(name, (stay,), {view: readers.needed[view] for view in gone})


def _from_the_root(readers: Readers) -> Iterator[frozenset[int]]:
    """The operators of a subplan in growing sets: its last ones, then the nearest to these, and so on to all."""
    feeds = readers.plan.feeds.tolist()
    read = {producer for producer, _, _ in feeds}
    order = [n for n in reversed(range(len(readers.plan.kinds))) if n not in read]
    for n in order:  # it grows while it is gone through
        order += [producer for producer, at, _ in feeds if at == n and producer not in order]
    return (frozenset(order[: i + 1]) for i in range(len(order)))


def divided(plan: SharedPlan, division: Division, readers: Readers) -> SharedPlan:
    """The plan after a subplan has been taken apart; a reader that is alone with a part has it merged into its own."""
    name, part = division.subplan, plan.subplans[division.subplan]
    subplans = {other: one for other, one in plan.subplans.items() if other != name}
    views = dict(plan.views)
    home: dict[str, tuple[str, Mapping[int, int]]] = {}
    for i, group in enumerate(division.groups):
        stays = {view: readers.needed[view] - division.own.get(view, frozenset()) for view in group}
        made = piece(part, readers, stays)
        new = name if i == 0 else f"{name} {i + 1}"
        subplans[new] = made.part
        home |= dict.fromkeys(group, (new, made.numbers))
    for view in readers.views:
        before = fed_in_one_batch(views[view], plan.subplans)  # the new subplans give other rows in each flush
        ends = {at: before.ends.get(at, len(part.plan.kinds) - 1) for at, by in before.reads.items() if by == name}
        by, numbers = home.get(view, (None, {}))
        own = division.own.get(view, frozenset())
        if own:
            views[view] = taken_over(before, name, piece(part, readers, {view: own}), ends, by, numbers)
        elif by is not None:
            moved = {at: by if old == name else old for at, old in before.reads.items()}
            views[view] = replace(
                before, reads=moved, ends={**before.ends, **{at: numbers[e] for at, e in ends.items()}}
            )
    return replace(plan, subplans=subplans, views=views)


def is_from(place: str, subplan: str) -> bool:
    """Whether a new subplan, or a path of a view, stands for a part of a subplan that was taken apart."""
    return place == subplan or place.startswith(f"{subplan} ")


def inherited(plan: SharedPlan, division: Division, now: Chosen) -> Paces:
    """The paces to begin with: a new part has that of the subplan that it comes from."""
    old = now.subplans[division.subplan]
    out = []
    for name, i in plan.places:
        if name in plan.subplans:
            out.append(now.subplans.get(name, old))
            continue
        path = plan.views[name].plan.paths[i]
        # Where a part is merged into its reader, the larger pace of the two counts, and that is the subplan's.
        out.append(now.views[name].get(path, old))
    return tuple(out)


def lowered(plan: SharedPlan, start: Paces) -> Chosen:
    """Paces found by search downwards: as long as all goals are met as they are, the least useful flush is given up."""
    return Search(plan).downwards(start)
