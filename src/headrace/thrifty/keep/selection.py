"""Which states to keep within a budget: the dynamic program of the CrocodileDB thesis (Algorithm 4).

Per operator and request, the lowest cost by bytes follows from the actions of the operator and from the functions of
what it reads. What is found at the roots of all plans together is the best choice: no exchange of one state for
another, within a view or between views, makes the next change cheaper.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

from headrace.thrifty.keep.actions import ASKED, ROW_COSTS, Leaf, Op, Request, RowCosts, State, actions
from headrace.thrifty.keep.frontier import Frontier, best_of

Key = tuple[str, int]


@dataclass(frozen=True)
class Selection:
    """What to keep, and what the next change is then expected to cost, in microseconds."""

    kept: frozenset[Key]
    cost: float
    bytes: int


@dataclass
class _Program:
    budget: int
    costs: RowCosts
    bits: dict[Key, int] = field(default_factory=dict)

    def solved(self, node: Op | Leaf) -> Mapping[Request, Frontier]:
        """The cost of each request by bytes."""
        if isinstance(node, Leaf):
            return {request: _leaf(node, request) for request in ASKED}
        # Each input is solved once per request that some action has for it.
        inputs: list[dict[Request, Frontier]] = []
        for one in node.inputs:
            feeds = [self.solved(feed) for feed in one.feeds]
            nothing = Frontier.of([(0, 0.0, 0)], self.budget)
            inputs.append(
                {Request.NOTHING: nothing}
                | {r: reduce(lambda a, b: a.plus(b, self.budget), (f[r] for f in feeds), nothing) for r in ASKED}
            )
        found: dict[Request, list[Frontier]] = {request: [] for request in ASKED}
        together: dict[tuple[Request, ...], Frontier] = {}
        for action in actions(node):
            size, states = action.bytes, sum(self._bit(state.key) for state in action.kept)
            if size > self.budget:
                continue
            for request in ASKED:
                work = action.work(request, self.costs)
                if work.asked not in together:
                    parts = [inputs[side][asked] for side, asked in enumerate(work.asked)]
                    together[work.asked] = reduce(lambda a, b: a.plus(b, self.budget), parts)
                found[request].append(together[work.asked].moved(size, work.own, states))
        return {request: best_of(functions, self.budget) for request, functions in found.items()}

    def _bit(self, key: Key) -> int:
        return self.bits.setdefault(key, 1 << len(self.bits))


def _leaf(leaf: Leaf, request: Request) -> Frontier:
    delta, full = request.value
    return Frontier.of([(0, leaf.delta * delta + leaf.full * full, 0)], 0)


def curve(plans: Sequence[Op], budget: int, costs: RowCosts = ROW_COSTS) -> list[Selection]:
    """The best choices for all budgets up to this one, from none to all: one per breakpoint."""
    program = _Program(budget, costs)
    whole = Frontier.of([(0, 0.0, 0)], budget)
    for plan in plans:
        found = program.solved(plan)[Request.DELTA]
        if plan.recomputable:
            found = best_of([found, Frontier.of([(0, anew(plan, costs), 0)], budget)], budget)
        whole = whole.plus(found, budget)
    return [
        Selection(frozenset(key for key, bit in program.bits.items() if states & bit), cost, size)
        for size, cost, states in whole.points()
    ]


def select(plans: Sequence[Op], budget: int, costs: RowCosts = ROW_COSTS) -> Selection:
    """The states to keep within a budget, so that the next change costs least; of equals, the smallest."""
    return curve(plans, budget, costs)[-1]


def cost_of(plans: Sequence[Op], kept: frozenset[Key], costs: RowCosts = ROW_COSTS) -> float:
    """What the next change costs if just these states are kept."""
    return sum(best_cost(plan, kept, costs) for plan in plans)


def best_cost(plan: Op, kept: frozenset[Key], costs: RowCosts = ROW_COSTS) -> float:
    """What the next change costs one plan: its delta, or its full result, where that may be computed anew."""
    delta = cost_of_one(plan, kept, Request.DELTA, costs)
    own = any(state.key in kept for _, state in states_of(plan))
    return delta if own or not plan.recomputable else min(delta, anew(plan, costs))


def anew(plan: Op, costs: RowCosts = ROW_COSTS) -> float:
    """What it costs to compute a plan anew and to compare the answer with the one that is there (F at the root)."""
    return cost_of_one(plan, frozenset(), Request.FULL, costs) + costs.group * plan.rows


def states_of(node: Op | Leaf) -> Iterator[tuple[Op, State]]:
    """All states of a plan with their operators, those further down first."""
    if isinstance(node, Op):
        for one in node.inputs:
            for feed in one.feeds:
                yield from states_of(feed)
        for state in node.states:
            yield node, state


def cost_of_one(node: Op | Leaf, kept: frozenset[Key], request: Request, costs: RowCosts = ROW_COSTS) -> float:
    """What a request of one operator costs if just these states are kept."""
    delta, full = request.value
    if isinstance(node, Leaf):
        return node.delta * delta + node.full * full
    chosen = tuple(state for state in node.states if state.key in kept)
    (action,) = (action for action in actions(node) if action.kept == chosen)
    work = action.work(request, costs)
    return work.own + sum(
        cost_of_one(feed, kept, asked, costs)
        for one, asked in zip(node.inputs, work.asked, strict=True)
        for feed in one.feeds
        if asked is not Request.NOTHING
    )
