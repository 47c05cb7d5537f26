"""How a plan is spread over buckets: by the values of one variable.

Relations that have the variable are partitioned by it. The others are *replicated*: their state is stored once and read
by every bucket, and their changes go to every bucket. A join distributes over the sum of the buckets' parts, so each
bucket computes its share of the answer alone, whatever the variable: one exchange a step, and none in between.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from headrace.factorized.maintenance import MaintenancePlan
from headrace.plan.hypergraph import Hypergraph

UNKNOWN_ROWS = 1000


@dataclass(frozen=True)
class Partitioning:
    """A variable to partition by, and what it costs: rows that have to be in every bucket."""

    variable: str | None
    replicated: tuple[str, ...]
    replicated_rows: int
    why: str


def choose_partition(query: Hypergraph, rows: Mapping[str, int], wanted: str | None = None) -> Partitioning:
    """Choose the variable that leaves the fewest rows to replicate; ties go to the one that most relations have."""
    if wanted is None and len(query.relations) == 1 and not _candidates(query):
        return Partitioning(None, (), 0, "one relation and one total: any share of the rows will do")
    options = [_partitioning(query, rows, variable) for variable in _candidates(query)]
    if wanted is not None:
        return replace(_partitioning(query, rows, wanted), why="it was asked for")
    if not options:
        return Partitioning(None, tuple(r.name for r in query.relations), 0, "the relations share no variable")
    return min(options, key=lambda option: option.replicated_rows)


def _candidates(query: Hypergraph) -> list[str]:
    shared = query.join_variables or tuple(v for v in query.variables if v not in query.local_variables)
    return sorted(shared, key=lambda variable: -len(query.rels(variable)))


def _partitioning(query: Hypergraph, rows: Mapping[str, int], variable: str) -> Partitioning:
    having = query.rels(variable)
    without = tuple(relation.name for relation in query.relations if relation.name not in having)
    cost = sum(rows.get(name, UNKNOWN_ROWS) for name in without)
    if not without:
        why = "every relation has it"
    else:
        why = (
            f"{', '.join(sorted(having))} {'has' if len(having) == 1 else 'have'} it; fewest rows are left to replicate"
        )
    return Partitioning(variable, without, cost, why)


def distributed(plan: MaintenancePlan, chosen: Partitioning) -> MaintenancePlan:
    """Say of each view whether it is partitioned or replicated."""
    without = frozenset(chosen.replicated)
    views = tuple(replace(view, replicated=view.relations <= without) for view in plan.views)
    return replace(plan, views=views, partition=chosen.variable, partition_why=chosen.why)
