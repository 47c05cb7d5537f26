"""Ways to choose the states that are kept: the dynamic program, and what it is compared with.

"nothing" keeps no state, so that each change recomputes what it reads (ReBatch in the CrocodileDB thesis).
"everything" keeps all states, whatever the budget (DBT). "recycler" caches states by their benefit, as the
recycler of MonetDB does, and knows nothing of the change that comes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from headrace.thrifty.keep.actions import Op, Request, State
from headrace.thrifty.keep.selection import Key, cost_of_one, select, states_of

Policy = Callable[[Sequence[Op], int], frozenset[Key]]


def by_program(plans: Sequence[Op], budget: int) -> frozenset[Key]:
    """The states with which the next change costs least."""
    return select(plans, budget).kept


def nothing(plans: Sequence[Op], budget: int) -> frozenset[Key]:
    """No state at all."""
    return frozenset()


def everything(plans: Sequence[Op], budget: int) -> frozenset[Key]:
    """All states, whatever the budget."""
    return frozenset(state.key for plan in plans for _, state in states_of(plan))


def by_benefit(plans: Sequence[Op], budget: int) -> frozenset[Key]:
    """The states that a cache admits one by one, in the order in which a batch makes them.

    The benefit of a state is what it costs to make it again from what is cached or from tables, divided by its bytes. A
    state that does not fit takes the place of others, if those have a lower benefit on average.
    """
    cached: dict[Key, tuple[float, int]] = {}
    for plan in plans:
        for op, state in states_of(plan):
            benefit = _again(op, state, frozenset(cached)) / max(1, state.bytes)
            victims = _victims(cached, state.bytes, budget)
            if victims is None or (victims and benefit <= _average(cached, victims)):
                continue
            for key in victims:
                del cached[key]
            cached[state.key] = benefit, state.bytes
    return frozenset(cached)


POLICIES: Mapping[str, Policy] = {
    "program": by_program,
    "recycler": by_benefit,
    "nothing": nothing,
    "everything": everything,
}


def _again(op: Op, state: State, cached: frozenset[Key]) -> float:
    sides = range(len(op.inputs)) if state.side is None else [state.side]
    return sum(cost_of_one(feed, cached, Request.FULL) for side in sides for feed in op.inputs[side].feeds)


def _victims(cached: Mapping[Key, tuple[float, int]], wanted: int, budget: int) -> list[Key] | None:
    """The least beneficial states that must go so that a new one fits; None if it never fits."""
    if wanted > budget:
        return None
    free = budget - sum(size for _, size in cached.values())
    out = []
    for key in sorted(cached, key=lambda key: cached[key][0]):
        if free >= wanted:
            break
        out.append(key)
        free += cached[key][1]
    return out


def _average(cached: Mapping[Key, tuple[float, int]], keys: Sequence[Key]) -> float:
    return sum(cached[key][0] for key in keys) / len(keys)
