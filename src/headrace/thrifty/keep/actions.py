"""What an operator may do with its states between two changes, and what each choice costs at the next one.

A plan is a tree of operators over leaves. At the next change an operator is asked for the *delta* of its result, for
its *full* result as of before the change, or for both: the first if all above it is kept, the second if a reader has
dropped what it follows from. An *action* keeps some of an operator's states and drops the others; it costs
work of its own and decides what is asked of the operators below. (Chapter 5.2.3 of the CrocodileDB thesis, Actions 1-6
and their mirror images, with two differences: a dropped side is made again only if the change has to look into
it, and "both" is a request of its own, because one choice of states then has to serve both.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import combinations

from headrace.operators.dropping import sides_read
from headrace.plan.tree import JoinKind


class Request(Enum):
    """What is asked of an operator at the next change: (the delta, the full result)."""

    NOTHING = (False, False)
    DELTA = (True, False)  # D of the seed
    FULL = (False, True)  # F of the seed
    BOTH = (True, True)


ASKED = (Request.DELTA, Request.FULL, Request.BOTH)


@dataclass(frozen=True)
class RowCosts:
    """Microseconds per row of each kind of work."""

    scan: float = 0.19  # a stored row of a table is read, evaluated, and split by bucket
    sort: float = 0.05  # a row is brought into the order of a join
    write: float = 0.12  # an entry of a new arrangement is written
    read: float = 0.1  # an entry of a kept arrangement is delivered again
    probe: float = 0.8  # a changed row looks for its partners
    pair: float = 0.05  # a pair is given
    group: float = 0.08  # a row is added to its group
    maintain: float = 0.3  # a changed row is added to a kept arrangement
    next_value: float = 1.0  # a deleted row makes MIN or MAX look for the next value


ROW_COSTS = RowCosts()
"""Fitted to 100 steps of five TPC-H queries with random states kept; only their ratios decide.

So a machine that is faster in all of it chooses the same, and the probes of `calibration` are not needed here. What the
steps hardly showed (pairs, kept arrangements that grow, MIN and MAX) is assumed.
"""


@dataclass(frozen=True)
class Leaf:
    """Rows from outside: of a table, or of an operator whose states are decided elsewhere.

    Parameters
    ----------
    delta, full : microseconds to give the changed rows, and all rows.
    """

    delta: float
    full: float


@dataclass(frozen=True)
class State:
    """Something that an operator may keep.

    Parameters
    ----------
    key : who keeps it, and which of its holdings it is.
    side : the input that it follows from; None if all inputs.
    """

    key: tuple[str, int]
    bytes: int
    rows: float
    side: int | None = None
    stands: bool = True  # its entries are all that has come, so they can be given again


@dataclass(frozen=True)
class Input:
    """What an operator reads at one port: rows in all, and rows that the next change brings."""

    feeds: tuple[Op | Leaf, ...]
    rows: float
    delta: float


@dataclass(frozen=True)
class Op:
    """An operator with its states.

    Parameters
    ----------
    kind : that of a join; None for aggregates and the first rows of an order.
    rows, delta : that it gives in all, and that the next change makes it give.
    deleted : rows whose deletion makes it look for another value.
    recomputable : this is a root whose full result may be computed anew at a change, in place of its delta.
    """

    kind: JoinKind | None
    inputs: tuple[Input, ...]
    states: tuple[State, ...]
    rows: float
    delta: float
    deleted: float = 0.0
    recomputable: bool = False

    @property
    def changed(self) -> tuple[int, ...]:
        """The inputs that the next change reaches."""
        return tuple(side for side, one in enumerate(self.inputs) if one.delta > 0)


@dataclass(frozen=True)
class Work:
    """The cost of one request under one action: the operator's own microseconds, and what it asks of its inputs."""

    own: float
    asked: tuple[Request, ...]


@dataclass(frozen=True)
class Action:
    """Some states of an operator that are kept; the others are dropped."""

    op: Op
    kept: tuple[State, ...]

    @property
    def bytes(self) -> int:
        return sum(state.bytes for state in self.kept)

    def work(self, request: Request, costs: RowCosts = ROW_COSTS) -> Work:
        """What a request takes."""
        delta, full = request.value
        delta = delta and bool(self.op.changed)
        pulled = frozenset(side for side in range(len(self.op.inputs)) if self._pulled(side, delta, full))
        asked = tuple(
            Request((delta and side in self.op.changed, side in pulled)) for side in range(len(self.op.inputs))
        )
        made = self._on_changes(costs) if delta else 0.0
        for side in pulled:
            made += self._taken_in(costs, side, delta) * self.op.inputs[side].rows
        if full:
            again = [state for state in self.kept if state.side not in pulled]
            made += costs.read * sum(state.rows for state in again)
            made += (costs.pair if self.op.kind else 0.0) * self.op.rows
        return Work(made, asked)

    def _of(self, side: int) -> tuple[list[State], list[State]]:
        """The states that follow from an input: all, and those that are kept."""
        every = [state for state in self.op.states if state.side in (side, None)]
        return every, [state for state in every if state in self.kept]

    def _pulled(self, side: int, delta: bool, full: bool) -> bool:
        """Whether all rows of an input have to come."""
        every, kept = self._of(side)
        missing = len(kept) < len(every)
        if full and (missing or not every or not all(state.stands for state in every)):
            return True
        return delta and missing and (self.op.kind is None or side in sides_read(self.op.kind, self.op.changed))

    def _taken_in(self, costs: RowCosts, side: int, delta: bool) -> float:
        """What it takes per row to take in an input: what the change looks into is written first."""
        if self.op.kind is None:
            return costs.group
        return costs.sort + (costs.write if delta and side in sides_read(self.op.kind, self.op.changed) else 0.0)

    def _on_changes(self, costs: RowCosts) -> float:
        op = self.op
        arriving = sum(one.delta for one in op.inputs)
        done = (costs.group if op.kind is None else costs.probe) * arriving + costs.pair * op.delta
        kept = sum(
            sum(one.delta for one in op.inputs) if state.side is None else op.inputs[state.side].delta
            for state in self.kept
        )
        return done + costs.maintain * kept + costs.next_value * op.deleted


def actions(op: Op) -> Iterator[Action]:
    """All choices that an operator has."""
    for count in range(len(op.states) + 1):
        for kept in combinations(op.states, count):
            yield Action(op, kept)
