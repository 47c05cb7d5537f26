"""From a join and the aggregates or features wanted over it to a view that the runtime can maintain.

The choices are made here, each with a reason that EXPLAIN repeats: the variable order (given, canonical or searched),
the views to keep, and the variable to partition by.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from headrace.errors import SchemaError
from headrace.factorized.answers import GroupsAnswer, MomentsAnswer
from headrace.factorized.baselines import first_order, recursive
from headrace.factorized.categories import joined_higher, with_categories
from headrace.factorized.distribution import distributed
from headrace.factorized.factorize import factorized
from headrace.factorized.indicators import joined_at_once, with_indicators
from headrace.factorized.join_view import JoinView
from headrace.factorized.maintenance import MaintenancePlan
from headrace.factorized.mixed_answer import MixedAnswer
from headrace.factorized.moments import MomentsAlgebra
from headrace.factorized.order import Node, VariableOrder, completed, rebuilt, validate, without
from headrace.factorized.order_search import Sizes, canonical, choose, worth_pushing
from headrace.factorized.order_text import parse
from headrace.factorized.sums import SumsAlgebra
from headrace.factorized.tree import view_tree
from headrace.operators.layout import ViewLayout
from headrace.plan.classes import is_q_hierarchical
from headrace.plan.dependencies import Dependency, reduct
from headrace.plan.hypergraph import Hypergraph, Relation
from headrace.plan.join import JoinPlan
from headrace.relation.keys import KeyLayout
from headrace.relation.variables import Variable, Variables
from headrace.rings.covariance import width

WORTH_SAYING = 1 << 26
"""Bytes of state that a proposal must save to be made."""
BASELINES = {"recursive": recursive, "first-order": first_order}
"""Strategies to compare with, and what plans a join by each of them."""
STRATEGIES = ("factorized", *BASELINES)


@dataclass(frozen=True)
class Options:
    """What a user may ask of a plan, and what is known of the tables."""

    strategy: str = "factorized"
    order: str | Mapping[str, object] | None = None  # a variable order, in one of its written forms
    partition: str | None = None
    stages: Mapping[str, str | None] | None = None  # an earlier choice: view -> variable of the stage computing it
    rows: Mapping[str, int] = field(default_factory=dict)  # by source
    distinct: Mapping[str, int] = field(default_factory=dict)  # by variable
    static: frozenset[str] = frozenset()  # sources that never change
    # Keep views of cyclic joins small by indicator projections, and join changes by the smaller side of each row.
    indicators: bool = True
    dependencies: tuple[Dependency, ...] = ()  # between variables, by what is declared of the tables


@dataclass(frozen=True)
class Planned:
    """A plan, with the choices that led to it."""

    plan: MaintenancePlan
    query: Hypergraph
    order: VariableOrder | None
    order_why: str
    dependencies: tuple[Dependency, ...] = ()

    @property
    def reduct(self) -> Hypergraph:
        """The query, extended by what its dependencies determine."""
        return reduct(self.query, self.dependencies)


def plan_join(
    query: Hypergraph, features: Collection[str], options: Options, buckets: int, categorical: Collection[str] = ()
) -> Planned:
    """Choose the views, triggers and distribution for a join; the categorical ones are among the features."""
    updatable = [r.name for r in query.relations if r.name not in options.static]
    order: VariableOrder | None = None
    why = ""
    if options.strategy == "factorized":
        if categorical:  # the last join of a plan with categories knows of no indicators
            options = replace(options, indicators=False)
        order, why = _order(query, features, options, updatable)
        order = joined_higher(order, query, categorical)
        tree = view_tree(order, query)
        shaped = with_indicators(tree, query) if options.indicators else tree
        plan = factorized(shaped, features, updatable, intersect=options.indicators)
    else:
        if options.order is not None:
            raise SchemaError(
                f'strategy="{options.strategy}" has no variable order', way_out='leave it out, or use "factorized"'
            )
        plan = BASELINES[options.strategy](_without_names(query, features), features, updatable)
    plan = with_categories(plan, categorical)
    partitionable = [v for v in query.variables if v not in query.local_variables]
    if options.partition is not None and options.partition not in partitionable:
        raise SchemaError(
            f"partition={options.partition!r} is no variable that is joined on or grouped by",
            way_out=f"use one of {', '.join(partitionable)}",
        )
    sizes = Sizes(query, options.rows, options.distinct)
    spread = distributed(plan, sizes, buckets, options.partition, options.stages)
    return Planned(spread, query, order, why, options.dependencies)


def stop_proposal(plan: MaintenancePlan, groups: Mapping[int, int], rows: Mapping[str, int]) -> str:
    """Propose `stop_pushdown` where, at current sizes, summing before the first join makes the state larger.

    Parameters
    ----------
    groups : entries of each leaf view that is kept.
    rows : rows of each relation.
    """
    marked: list[str] = []
    for i, view in enumerate(plan.views):
        known = view.relation is not None and groups.get(i, 0) > 0 and rows.get(view.relation, 0) > 0
        if known and not worth_pushing(groups[i], len(view.lifted), len(view.keys), rows[str(view.relation)]):
            saved = 8 * (groups[i] * width(len(view.lifted)) - rows[str(view.relation)] * len(view.lifted))
            marked += view.lifted if saved > WORTH_SAYING else ()
    if not marked or plan.strategy != "factorized":
        return ""
    return (
        f"summing {', '.join(marked)} before the first join makes more state than it saves, because their keys hardly "
        "repeat; `!stop` behind them in the variable order keeps them unsummed: less state, slower steps"
    )


def _order(
    query: Hypergraph, features: Collection[str], options: Options, updatable: Collection[str]
) -> tuple[VariableOrder, str]:
    if options.order is None:
        found = _order_under_dependencies(query, options.dependencies)
        if found is not None:
            return found
        chosen = choose(query, options.rows, options.distinct)
        order = joined_at_once(chosen.order, query, updatable) if options.indicators else chosen.order
        if order is chosen.order:
            return order, chosen.why
        stopped = ", ".join(node.variable for node in order.nodes() if node.stop_pushdown)
        return order, (
            f"{chosen.why}; {stopped} is not summed before the last join of its cycle, because the view would have the "
            "keys of a relation that changes like all others: intersecting them takes as long, and keeps less"
        )
    given = parse(options.order)
    validate(given, query)
    unkeyed, local = _unkeyed(query, features), query.local_variables
    # These variables cannot be keys: they move to the bottom, without a mark, unless they are there already. An order
    # that was chosen, written down and read again must not change, since the numbers of the state follow from it.
    nodes = [node for node in given.nodes() if node.variable in unkeyed]
    above = [node.variable for node in nodes if any(below.variable not in local for below in node.subtree())]
    order = completed(without(given, above) if above else given, query)

    def unmarked(node: Node) -> Node:
        return replace(node, stop_pushdown=node.stop_pushdown and node.variable not in unkeyed)

    return rebuilt(order, unmarked), "it was given"


def _order_under_dependencies(
    query: Hypergraph, dependencies: Sequence[Dependency]
) -> tuple[VariableOrder, str] | None:
    """The canonical order of the query's reduct, if only that is q-hierarchical (F-IVM, Section 7.3); else None."""
    # Variables of one relation are summed where they are, and need no place.
    joined = query.restricted(v for v in query.variables if v not in query.local_variables)
    extended = reduct(joined, dependencies)
    if is_q_hierarchical(joined) or not is_q_hierarchical(extended):
        return None
    order = completed(canonical(extended), query)
    why = "under the dependencies of its tables the query is q-hierarchical: this is the canonical order of its reduct"
    return order, why


def _unkeyed(query: Hypergraph, features: Collection[str]) -> list[str]:
    """Local variables that no payload lifts: aggregates are evaluated on them before anything has a key."""
    return [variable for variable in query.local_variables if variable not in features]


def _without_names(query: Hypergraph, features: Collection[str]) -> Hypergraph:
    """The query without the variables that it lists only for their names."""
    gone = _unkeyed(query, features)
    relations = [Relation(r.name, tuple(v for v in r.variables if v not in gone)) for r in query.relations]
    return Hypergraph(tuple(relations), query.free)


def sums_view(layout: ViewLayout, options: Options, buckets: int) -> tuple[JoinView, Planned]:
    """Plan a SQL view over a join."""
    join = layout.plan.over
    assert isinstance(join, JoinPlan)
    local = _local_names(join)
    relations = [Relation(s.name, (*s.variable_names, *local[s.name])) for s in join.sources]
    query = Hypergraph(tuple(relations), tuple(dict.fromkeys(join.keys)))
    planned = plan_join(query, (), options, buckets)
    variables = variables_of(join, layout.seed, query.free)
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
    categorical: Sequence[str] = (),
) -> tuple[JoinView, Planned]:
    """Plan the moments of some features of a join, by group; categorical features are given apart from the others."""
    shared = _shared(join)
    wanted = shared | {*groups, *features, *categorical}
    relations = [Relation(s.name, tuple(v for v in s.variable_names if v in wanted)) for s in join.sources]
    query = Hypergraph(tuple(relations), tuple(groups))
    planned = plan_join(query, (*features, *categorical), options, buckets, categorical)
    variables = variables_of(join, seed, groups, [name for name in categorical if name not in shared])
    names = {s.name: s.variable_names for s in join.sources}
    algebra = MomentsAlgebra(planned.plan, names, dict(shifts), tuple(categorical))
    kinds = [variables.kinds[name] for name in groups]
    keys = KeyLayout(tuple(k.type for k in kinds), tuple(k.nullable for k in kinds), seed)
    root = planned.plan.views[planned.plan.root]
    moments = MomentsAnswer(keys, tuple(groups), root.orders[0], len(features), variables)
    answer = MixedAnswer(moments, algebra.categories(planned.plan.root)) if categorical else moments
    return JoinView(join, planned.plan, variables, algebra, answer, buckets), planned


def _shared(join: JoinPlan) -> set[str]:
    seen: set[str] = set()
    shared: set[str] = set()
    for source in join.sources:
        shared |= seen & set(source.variable_names)
        seen |= set(source.variable_names)
    return shared


def variables_of(join: JoinPlan, seed: int, free: Collection[str], coded: Collection[str] = ()) -> Variables:
    """The types of all variables of a join; those in `free` may be NULL, those in `coded` are categories."""
    shared = _shared(join)
    kinds: dict[str, Variable] = {}
    for source in join.sources:
        for name, expression in source.variables:
            # Rows with NULL in a join variable or in a feature never get here.
            nullable = expression.nullable and name not in shared and name in free
            kinds.setdefault(name, Variable(expression.type, nullable, coded=name in coded))
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
