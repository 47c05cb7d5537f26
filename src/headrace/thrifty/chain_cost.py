"""What a step costs live tuples: a changed row is looked up in its children, and in all rows that wait for it."""

from __future__ import annotations

from headrace.foreign.chain import ChainPlan
from headrace.plan.join import Source
from headrace.thrifty.cost import Cost, fan_out
from headrace.thrifty.statistics import Statistics


def chain_cost(chain: ChainPlan, sources: tuple[Source, ...], statistics: Statistics) -> Cost:
    """Estimate a step."""
    known, root = statistics.of_joined(sources), chain.graph.root
    touched = {}
    for source in chain.entry:
        changed = known.changed[source]
        if not changed:
            continue
        own = sum(join.parent == source for join in chain.joins)
        reached = changed * fan_out(known.rows[source], known.rows[root])
        above = 1 + sum(join.parent == root for join in chain.joins) if source != root else 1
        touched[source] = changed * (1 + own) + reached * above
    return Cost(touched, statistics.units.live)
