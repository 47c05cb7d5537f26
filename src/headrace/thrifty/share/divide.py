"""What a subplan would cost if only some of its readers shared it.

A shared subplan has been learnt as a whole. If readers leave it, the rest takes fewer rows: those that any remaining
reader wants. A sample of each table says which rows that are (`Readers.marks`). The operators that none of the
remaining readers needs are left out. A reader that is alone with its operators runs them itself: then the rows of
tables wait before its joins, and the pairs of joins do not wait any more.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from headrace.thrifty import cardinalities as c
from headrace.thrifty.share.dag import Part, Place
from headrace.thrifty.simulate import FlatPlan, simulated
from headrace.thrifty.unit_costs import UnitCosts


@dataclass(frozen=True)
class Readers:
    """Who reads which rows of a subplan.

    Parameters
    ----------
    plan : the operators of the subplan.
    ends : per view, the operators whose rows it reads.
    marks : per place at which rows of a table enter, and per view: which rows of a sample the view wants. At places
        that are not there, all views want all rows.
    """

    plan: FlatPlan
    ends: Mapping[str, Collection[int]]
    marks: Mapping[Place, Mapping[str, NDArray[np.bool_]]] = field(default_factory=dict)

    @property
    def views(self) -> tuple[str, ...]:
        return tuple(self.ends)

    @cached_property
    def below(self) -> list[frozenset[int]]:
        """Per operator, those that it takes rows of, directly or not, and itself."""
        out: list[frozenset[int]] = []
        for n in range(len(self.plan.kinds)):
            own = [out[p] for p, at, _ in self.plan.feeds.tolist() if at == n]
            out.append(frozenset({n}).union(*own))
        return out

    @cached_property
    def needed(self) -> dict[str, frozenset[int]]:
        """The operators that each view needs."""
        return {view: frozenset[int]().union(*(self.below[end] for end in own)) for view, own in self.ends.items()}

    def share(self, views: Collection[str], number: int) -> float:
        """The share of all possible rows of an operator that some views want, together.

        A view wants the rows whose parts all pass its conditions, which are taken to be independent. Several views want
        no more than each of them for itself, and no more than any table has for them.
        """
        key = frozenset(views), number
        if key not in self._shares:
            places = [at for at in self.marks if at[0] in self.below[number]]
            least = min([1.0, *(self.entering(views, at) for at in places)])
            alone = dict(self._alone(view, number) for view in views)  # with equal conditions, they want the same rows
            self._shares[key] = min(least, sum(alone.values()))
        return self._shares[key]

    def _alone(self, view: str, number: int) -> tuple[bytes, float]:
        """Which rows of an operator a view wants, as something that can be compared, and their share of all."""
        if (view, number) not in self._wants:
            own = [marks[view] for at, marks in self.marks.items() if at[0] in self.below[number]]
            share = float(np.prod([mark.mean() for mark in own]))
            self._wants[view, number] = b"".join(mark.tobytes() for mark in own), share
        return self._wants[view, number]

    @cached_property
    def _shares(self) -> dict[tuple[frozenset[str], int], float]:
        """What `share` has found so far: a search for splits asks for the same again and again."""
        return {}

    @cached_property
    def _wants(self) -> dict[tuple[str, int], tuple[bytes, float]]:
        return {}

    def entering(self, views: Collection[str], place: Place) -> float:
        """The share of a table's rows that any of some views wants at a place."""
        if place not in self.marks:
            return 1.0
        found = [self.marks[place][view] for view in views]
        return float(np.logical_or.reduce(found).mean()) if found and len(found[0]) else float(bool(found))


@dataclass(frozen=True)
class Piece:
    """Some operators of a subplan, for some of its readers.

    Parameters
    ----------
    numbers : of each operator in the whole subplan, its number here.
    inputs : places, by their numbers here, at which rows of operators enter that are not part of this; each with the
        operator in the whole subplan.
    """

    part: Part
    numbers: Mapping[int, int]
    inputs: Mapping[Place, int]


def piece(part: Part, readers: Readers, operators: Mapping[str, Collection[int]]) -> Piece:
    """Some operators of a subplan, as they are if no other views use it.

    Parameters
    ----------
    operators : per view that stays, the operators that it needs here.
    """
    plan = part.plan
    kept = sorted({n for own in operators.values() for n in own})
    numbers = {n: i for i, n in enumerate(kept)}
    arriving, parameters = plan.arriving[kept].copy(), plan.parameters[kept].copy()
    path_of, paths = np.full((len(kept), 2), -1, np.int64), list[str]()
    feeds, passing, inputs = list[tuple[int, int, int]](), list[NDArray[np.float64]](), dict[Place, int]()
    given = simulated(plan, (1,) * len(plan.paths), part.units, 1).given
    came, left = float(np.abs(plan.arriving).sum()), 0.0

    def ratio(number: int, at: int) -> float:
        """Of the rows of an operator that the readers of another one take, the share that is still taken."""
        now = [view for view in operators if at in operators[view]]
        return _ratio(readers.share(now, number), readers.share(_users(readers, at), number))

    for n, i in numbers.items():
        users = [view for view in operators if n in operators[view]]
        rows = [1.0, 1.0]
        for side in range(2):
            if plan.arriving[n, side].any():
                everyone = readers.entering(_users(readers, n), (n, side))
                rows[side] = _ratio(readers.entering(users, (n, side)), everyone)
                arriving[i, side] *= rows[side]
                left += float(np.abs(arriving[i, side]).sum())
        for f, (producer, at, side) in enumerate(plan.feeds.tolist()):
            if at != n:
                continue
            rows[side] = ratio(producer, n)
            if producer in numbers:
                fewer = _ratio(rows[side], ratio(producer, producer))
                feeds.append((numbers[producer], i, side))
                passing.append(np.minimum(1.0, plan.passing[f] * fewer))
            else:
                inputs[i, side] = producer
                arriving[i, side] = rows[side] * (plan.passing[f] @ np.array(given[producer]))
        for side in range(2):
            old = int(plan.path_of[n, side])
            if old >= 0 or ((i, side) in inputs and plan.kinds[n] < c.GROUP):
                path_of[i, side] = len(paths)
                paths.append(plan.paths[old] if old >= 0 else f"{n}.{('left', 'right')[side]}")
        _scale(parameters[i], int(plan.kinds[n]), rows, ratio(n, n))
    made = FlatPlan(
        plan.kinds[kept],
        parameters,
        path_of,
        arriving,
        np.array(feeds, np.int64).reshape(-1, 3),
        np.array(passing).reshape(-1, 3, 3),
        tuple(paths),
        (),
    )
    units = UnitCosts(part.units.table[:, [*kept, len(plan.kinds)]], part.units.limit)
    held = part.held * left / came if came else 0.0  # all operators of the subplan hold rows, not only those kept here
    return Piece(Part(made, units, held=held), numbers, inputs)


def _users(readers: Readers, number: int) -> list[str]:
    return [view for view, own in readers.needed.items() if number in own]


def _scale(p: c.Numbers, kind: int, rows: list[float], given: float) -> None:
    """The parameters of an operator that takes such shares of its rows, and gives such a share."""
    if kind == c.GROUP:
        for at in (c.ROWS, c.GROUPS, c.NEW):
            p[at] *= rows[0]
    elif kind != c.TOP:
        for at, share in zip((c.LEFT_BASE, c.RIGHT_BASE, c.LEFT_ROWS, c.RIGHT_ROWS), (*rows, *rows), strict=True):
            p[at] *= share
        p[c.PAIRS] *= given


def taken_over(
    view: Part, name: str, piece_: Piece, ends: Mapping[Place, int], shared: str | None, numbers: Mapping[int, int]
) -> Part:
    """A view that runs operators itself which a subplan has run for it.

    Parameters
    ----------
    view : as `fed_in_one_batch` gives it.
    name : of the subplan.
    piece_ : the operators, as they are for this view alone.
    ends : per place of the view at which rows of the subplan enter, the operator in the whole subplan.
    shared : the name of the subplan that gives what is not part of the piece; None if nothing is.
    numbers : of each operator in the whole subplan, its number in that subplan.
    """
    own, before = view.plan, piece_.part.plan
    size = len(before.kinds)
    given = simulated(before, (1,) * len(before.paths), piece_.part.units, 1).given
    arriving = np.concatenate([before.arriving, own.arriving])
    path_of = np.concatenate([before.path_of, np.where(own.path_of >= 0, own.path_of + len(before.paths), -1)])
    feeds = [tuple(one) for one in before.feeds.tolist()]
    feeds += [(a + size, b + size, side) for a, b, side in own.feeds.tolist()]
    passing = [*before.passing, *own.passing]
    reads = {(n + size, side): by for (n, side), by in view.reads.items() if by != name}
    at_ends = {(n + size, side): end for (n, side), end in view.ends.items() if (n + size, side) in reads}
    if shared is not None:
        for place, producer in piece_.inputs.items():
            reads[place], at_ends[place] = shared, numbers[producer]
    for place, end in ends.items():
        n, side = place[0] + size, place[1]
        if end not in piece_.numbers:
            if shared is not None:
                reads[n, side], at_ends[n, side] = shared, numbers[end]
            continue
        producer = piece_.numbers[end]
        rows, wanted = sum(given[producer]), float(np.abs(arriving[n, side]).sum())
        feeds.append((producer, n, side))
        passing.append(np.eye(3) * (min(1.0, wanted / rows) if rows else 1.0))
        arriving[n, side] = 0.0
        if own.kinds[place[0]] < c.GROUP:
            path_of[n, side] = -1
    made = FlatPlan(
        np.concatenate([before.kinds, own.kinds]),
        np.concatenate([before.parameters, own.parameters]),
        path_of,
        arriving,
        np.array(feeds, np.int64).reshape(-1, 3),
        np.array(passing).reshape(-1, 3, 3),
        (*(f"{name} {path}" for path in before.paths), *own.paths),
        tuple((a + len(before.paths), b + len(before.paths)) for a, b in own.children),
    )
    made = _without_empty_paths(made)
    tables = piece_.part.units.table, view.units.table
    table = np.concatenate([tables[0][:, :-1], tables[1]], axis=1)  # it is one flush, and that of the view
    units = UnitCosts(table, view.units.limit)
    return replace(view, plan=made, units=units, reads=reads, ends=at_ends, held=view.held + piece_.part.held)


def _without_empty_paths(plan: FlatPlan) -> FlatPlan:
    """The plan without paths at which nothing waits any more, and with the pairs of paths that follow from feeds."""
    used = sorted({int(path) for path in plan.path_of.ravel() if path >= 0})
    renamed = {old: new for new, old in enumerate(used)}
    path_of = np.array([[renamed.get(int(path), -1) for path in row] for row in plan.path_of], np.int64)
    begins: list[set[int]] = []  # per operator, the paths whose rows come through it
    children = {(renamed[a], renamed[b]) for a, b in plan.children if a in renamed and b in renamed}
    for n, kind in enumerate(plan.kinds):
        through = {int(path) for path in path_of[n] if path >= 0}
        fed = set[int]().union(*(begins[p] for p, at, _ in plan.feeds.tolist() if at == n))
        if kind >= c.GROUP:
            children |= {(path, int(path_of[n, 0])) for path in fed}
            begins.append(through)
        else:
            begins.append(through | fed)
    return replace(
        plan, path_of=path_of, paths=tuple(plan.paths[old] for old in used), children=tuple(sorted(children))
    )


def _ratio(one: float, other: float) -> float:
    return one / other if other > 0 else 1.0
