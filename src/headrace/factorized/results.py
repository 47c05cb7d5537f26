"""Plans of factorized results: from the join of a SELECT to the views that are its rows, and to reading them.

The order of the variables decides how large the views are. Columns of one relation that nothing is joined on go
together, so the order is searched with one of them in place of all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from headrace.errors import SchemaError, VariableOrderError
from headrace.factorized.counts import CountAlgebra
from headrace.factorized.distribution import distributed
from headrace.factorized.enumeration import Block, Enumeration
from headrace.factorized.join_view import JoinView
from headrace.factorized.order import Node, VariableOrder, chain, chained, rebuilt, validate
from headrace.factorized.order_search import Sizes, canonical, choose
from headrace.factorized.order_text import parse
from headrace.factorized.planner import Options, Planned, variables_of
from headrace.factorized.result_tree import result_plan, result_tree
from headrace.operators.delta import split
from headrace.operators.kernel import Incoming, Lifted, Reduced, State, ViewChange
from headrace.operators.layout import ViewLayout
from headrace.plan.classes import is_q_hierarchical
from headrace.plan.dependencies import Dependency, closure, reduct
from headrace.plan.hypergraph import Hypergraph, Relation
from headrace.plan.join import JoinPlan
from headrace.plan.promise import changing, promise
from headrace.relation.arrangement import counts, lookup
from headrace.relation.keys import values_of_words
from headrace.relation.run import Run, merge
from headrace.relation.runset import AnyRun
from headrace.rings import COUNT, Group

TOTAL = "count"


@dataclass(frozen=True)
class CountAnswer:
    """The number of rows of a factorized result; the rows are in the other views."""

    @property
    def arrangements(self) -> Mapping[str, Group]:
        return {TOTAL: COUNT}

    def split(self, changes: Sequence[Run], buckets: int) -> Lifted:
        return {bucket: {TOTAL: piece} for bucket, piece in split(merge(COUNT, changes), buckets).items()}

    def reduce(self, state: State, incoming: Incoming) -> Reduced:
        change = merge(COUNT, list(incoming[TOTAL]))
        if not change.rows:
            return Reduced()
        before = counts(lookup(COUNT, state[TOTAL], change.words))
        more = int(counts(change.payload).sum())
        now = before + counts(change.payload)
        summary = ViewChange(max(more, 0), max(-more, 0), 0)
        return Reduced({TOTAL: change}, {TOTAL: int((now != 0).sum() - (before != 0).sum())}, summary=summary)


def result_view(layout: ViewLayout, options: Options, buckets: int) -> tuple[JoinView, Planned]:
    """Plan the rows of a SELECT over a join as a factorized result."""
    join = layout.plan.over
    assert isinstance(join, JoinPlan)
    asked = Hypergraph(tuple(Relation(s.name, s.variable_names) for s in join.sources), tuple(dict.fromkeys(join.keys)))
    # What the shown columns determine may be listed beside them: no row becomes two.
    shown = closure(asked.free, options.dependencies)
    query = Hypergraph(asked.relations, (*asked.free, *(v for v in asked.variables if v in shown - {*asked.free})))
    order, why = _order(query, options)
    updatable = [r.name for r in query.relations if r.name not in options.static]
    plan = result_plan(result_tree(order, query), updatable)
    if options.partition is not None and options.partition not in query.free:
        raise SchemaError(
            f"partition={options.partition!r} is no column that the query shows, so a row could be in two buckets",
            way_out=f"use one of {', '.join(query.free)}",
        )
    sizes = Sizes(query, options.rows, options.distinct)
    plan = distributed(plan, sizes, buckets, options.partition, options.stages, query.free)
    variables = variables_of(join, layout.seed, query.free)
    view = JoinView(join, plan, variables, CountAlgebra(), CountAnswer(), buckets)
    return view, Planned(plan, asked, order, why, options.dependencies)


def _order(query: Hypergraph, options: Options) -> tuple[VariableOrder, str]:
    if options.order is None:
        return result_order(query, options.dependencies, options.rows, options.distinct, options.static)
    given = parse(options.order)
    # Columns of a single relation may be left out of a written order, whether the query shows them or not.
    shared = tuple(v for v in query.free if v in query.join_variables or v in given.variables)
    validate(given, Hypergraph(query.relations, shared))
    return chained(given, query), "it was given"


def result_order(
    query: Hypergraph,
    dependencies: Sequence[Dependency],
    rows: Mapping[str, int],
    distinct: Mapping[str, int],
    static: frozenset[str] = frozenset(),
) -> tuple[VariableOrder, str]:
    """Choose a free-top order for the rows of a query, and say why.

    Only the variables that relations share are ordered by the reduct. A column of one relation stands below them, or,
    if some of them are not shown, where the search puts the first column of its relation: above what is not shown.
    """
    together: dict[str, list[str]] = {}  # the first of the columns of one relation that are shown -> the others
    if any(variable not in query.free for variable in query.join_variables):
        for relation in query.relations:
            own = [v for v in relation.variables if len(query.rels(v)) == 1 and v in query.free]
            if own:
                together[own[0]] = own[1:]
    searched = [*query.join_variables, *together]
    alone, under = query.restricted(searched), reduct(query, dependencies).restricted(searched)
    is_better = promise(under).is_better_than(promise(alone))
    found = _order_without_static((under if is_better else alone, under), static)
    if found is None:
        chosen = choose(under if is_better else alone, rows, distinct, free_top=True, listed=True)
        found = chosen.order, f"under the dependencies of its tables, {chosen.why}" if is_better else chosen.why

    def with_others(node: Node) -> Node:
        others = together.get(node.variable)
        return Node(node.variable, (chain(others, node.children),)) if others else node

    order, why = found
    return chained(rebuilt(order, with_others), query), why


def _order_without_static(queries: Sequence[Hypergraph], static: frozenset[str]) -> tuple[VariableOrder, str] | None:
    """The canonical order of the relations that change, if these are q-hierarchical and the others fit into it."""
    for query in queries:
        moving = changing(query, static)
        if is_q_hierarchical(query) or not is_q_hierarchical(moving) or {*moving.variables} != {*query.variables}:
            continue
        order = canonical(moving)
        with suppress(VariableOrderError):
            validate(rebuilt(order, lambda node: replace(node, relations=())), query)
            names = ", ".join(sorted(static & {relation.name for relation in query.relations}))
            return (
                order,
                f"without {names}, which never change, the query is q-hierarchical: this is the canonical order",
            )
    return None


@dataclass(frozen=True)
class ResultReader:
    """Reads a factorized result from the state of one bucket."""

    view: JoinView
    layout: ViewLayout

    def enumeration(self, state: Mapping[str, Sequence[AnyRun]], most: int) -> Enumeration:
        """The rows of a bucket, as they are listed."""
        return Enumeration(self.view.plan, self.view.variables, state, most)

    def pieces(self, state: Mapping[str, Sequence[AnyRun]], most: int) -> Iterator[pa.Table]:
        """The distinct rows of a bucket as columns k0.. and `__rows`, how often each occurs."""
        return map(self.table, self.enumeration(state, most).blocks())

    def table(self, block: Block) -> pa.Table:
        """A block as columns."""
        join = self.layout.plan.over
        assert isinstance(join, JoinPlan)
        columns = {f"k{i}": self._column(i, name, block) for i, name in enumerate(join.keys)}
        return pa.table({**columns, "__rows": pa.array(block.times)})

    def _column(self, number: int, name: str, block: Block) -> pa.Array:
        kind = self.layout.keys.types[number]
        if kind.kind == "string":
            return block.text(name)
        words = block.words(name)
        missing = words[-1].astype(bool) if self.view.variables.kinds[name].nullable else None
        return values_of_words(words, kind, missing)


def empty_table(layout: ViewLayout) -> pa.Table:
    """No rows, in the columns of `ResultReader.table`."""
    columns = {f"k{i}": pa.array([], kind.arrow) for i, kind in enumerate(layout.keys.types)}
    return pa.table({**columns, "__rows": pa.array(np.zeros(0, np.int64))})
