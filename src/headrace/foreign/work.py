"""What a step costs live tuples: a changed row is looked up in its children, and in all rows that wait for it."""

from __future__ import annotations

from headrace.foreign.chain import ChainPlan
from headrace.plan.work import Statistics, Work, fan_out

MICROSECONDS = 0.8


def chain_work(strategy: str, chain: ChainPlan, statistics: Statistics) -> Work:
    """Estimate a step."""
    root = chain.graph.root
    touched = {}
    for source in chain.entry:
        changed = statistics.changed[source]
        if not changed:
            continue
        own = sum(join.parent == source for join in chain.joins)
        reached = changed * fan_out(statistics.rows[source], statistics.rows[root])
        above = 1 + sum(join.parent == root for join in chain.joins) if source != root else 1
        touched[source] = changed * (1 + own) + reached * above
    return Work(strategy, touched, MICROSECONDS)
