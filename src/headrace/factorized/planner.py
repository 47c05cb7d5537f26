"""From a join and what is asked of it to a view that the runtime can maintain.

The choices are made here, each with a reason that EXPLAIN repeats: the variable order (given, canonical or searched),
the views to keep, and the variable to partition by.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from headrace.errors import SchemaError
from headrace.factorized.answers import GroupsAnswer, MomentsAnswer
from headrace.factorized.baselines import first_order, recursive
from headrace.factorized.distribution import choose_partition, distributed
from headrace.factorized.factorize import factorized
from headrace.factorized.maintenance import MaintenancePlan
from headrace.factorized.moments import MomentsAlgebra
from headrace.factorized.order import VariableOrder, completed, validate
from headrace.factorized.order_search import choose
from headrace.factorized.order_text import parse
from headrace.factorized.sums import SumsAlgebra
from headrace.factorized.tree import view_tree
from headrace.factorized.variables import Variable, Variables
from headrace.factorized.view import JoinView
from headrace.operators.layout import ViewLayout
from headrace.plan.hypergraph import Hypergraph, Relation
from headrace.plan.join import JoinPlan
from headrace.relation.keys import KeyLayout

STRATEGIES = ("factorized", "recursive", "first-order")


@dataclass(frozen=True)
class Options:
    """What a user may ask of a plan, and what is known of the tables."""

    strategy: str = "factorized"
    order: str | Mapping[str, object] | None = None  # a variable order, in one of its written forms
    partition: str | None = None
    rows: Mapping[str, int] = field(default_factory=dict)  # by source
    distinct: Mapping[str, int] = field(default_factory=dict)  # by variable
    static: frozenset[str] = frozenset()  # sources that never change


@dataclass(frozen=True)
class Planned:
    """A plan with what led to it."""

    plan: MaintenancePlan
    query: Hypergraph
    order: VariableOrder | None
    order_why: str


def plan_join(query: Hypergraph, features: Collection[str], options: Options) -> Planned:
    """Choose the views, triggers and distribution for a join."""
    updatable = [r.name for r in query.relations if r.name not in options.static]
    order: VariableOrder | None = None
    why = ""
    if options.strategy == "factorized":
        order, why = _order(query, options)
        plan = factorized(view_tree(order, query), features, updatable)
    else:
        if options.order is not None:
            raise SchemaError(
                f'strategy="{options.strategy}" has no variable order', way_out='leave it out, or use "factorized"'
            )
        build = first_order if options.strategy == "first-order" else recursive
        plan = build(_without_names(query, features), features, updatable)
    if options.partition is not None and options.partition not in query.variables:
        raise SchemaError(
            f"partition={options.partition!r} is no variable of the join",
            way_out=f"use one of {', '.join(query.join_variables)}",
        )
    chosen = choose_partition(query, options.rows, options.partition)
    return Planned(distributed(plan, chosen), query, order, why)


def _order(query: Hypergraph, options: Options) -> tuple[VariableOrder, str]:
    if options.order is None:
        chosen = choose(query, options.rows, options.distinct)
        return chosen.order, chosen.why
    given = parse(options.order)
    validate(given, query)
    return completed(given, query), "it was given"


def _without_names(query: Hypergraph, features: Collection[str]) -> Hypergraph:
    """The query without local variables that no payload lifts: aggregates evaluate those before anything is keyed."""
    gone = [variable for variable in query.local_variables if variable not in features]
    relations = [Relation(r.name, tuple(v for v in r.variables if v not in gone)) for r in query.relations]
    return Hypergraph(tuple(relations), query.free)


def sums_view(layout: ViewLayout, options: Options, buckets: int) -> tuple[JoinView, Planned]:
    """Plan a SQL view over a join."""
    join = layout.plan.join
    assert join is not None
    local = _local_names(join)
    relations = [Relation(s.name, (*s.variable_names, *local[s.name])) for s in join.sources]
    query = Hypergraph(tuple(relations), tuple(dict.fromkeys(join.keys)))
    planned = plan_join(query, (), options)
    variables = _variables(join, layout.seed, query.free)
    algebra = SumsAlgebra(planned.plan, join, layout)
    answer = GroupsAnswer(layout, algebra, variables)
    return JoinView(join, planned.plan, variables, algebra, answer, buckets), planned


def moments_view(
    join: JoinPlan,
    groups: Sequence[str],
    features: Sequence[str],
    options: Options,
    buckets: int,
    seed: int,
    shifts: Mapping[str, float],
) -> tuple[JoinView, Planned]:
    """Plan the moments of some features of a join, by group."""
    shared = _shared(join)
    wanted = shared | {*groups, *features}
    relations = [Relation(s.name, tuple(v for v in s.variable_names if v in wanted)) for s in join.sources]
    query = Hypergraph(tuple(relations), tuple(groups))
    planned = plan_join(query, features, options)
    variables = _variables(join, seed, groups)
    algebra = MomentsAlgebra(planned.plan, {s.name: s.variable_names for s in join.sources}, dict(shifts))
    kinds = [variables.kinds[name] for name in groups]
    keys = KeyLayout(tuple(k.type for k in kinds), tuple(k.nullable for k in kinds), seed)
    root = planned.plan.views[planned.plan.root]
    answer = MomentsAnswer(keys, tuple(groups), root.orders[0], len(features), variables)
    return JoinView(join, planned.plan, variables, algebra, answer, buckets), planned


def _shared(join: JoinPlan) -> set[str]:
    seen: set[str] = set()
    shared: set[str] = set()
    for source in join.sources:
        shared |= seen & set(source.variable_names)
        seen |= set(source.variable_names)
    return shared


def _variables(join: JoinPlan, seed: int, free: Collection[str]) -> Variables:
    shared = _shared(join)
    kinds: dict[str, Variable] = {}
    for source in join.sources:
        for name, expression in source.variables:
            # Rows with NULL in what is joined on, or in a feature, never get here.
            nullable = expression.nullable and name not in shared and name in free
            kinds.setdefault(name, Variable(expression.type, nullable))
    return Variables(kinds, seed)


def _local_names(join: JoinPlan) -> dict[str, tuple[str, ...]]:
    """Names for the columns that only aggregates read, so that the variable order can show where they are summed."""
    columns = {s.name: sorted({c for f in s.factors for c in f.columns}) for s in join.sources}
    every = [name for names in columns.values() for name in names]
    taken = {v for s in join.sources for v in s.variable_names}
    out = {}
    for source in join.sources:
        names = []
        for column in columns[source.name]:
            if column in {str(e.value) for _, e in source.variables if e.op == "column"}:
                continue  # it is a variable already
            plain = every.count(column) == 1 and column not in taken
            names.append(column if plain else f"{source.name}.{column}")
        out[source.name] = tuple(names)
    return out
