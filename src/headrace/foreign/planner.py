"""From joined rows and the keys of their tables to a view that the runtime can maintain."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.errors import UnsupportedSQLError
from headrace.foreign.chain import plan_chains
from headrace.foreign.view import ForeignView
from headrace.operators.layout import ViewLayout
from headrace.plan.foreign import ForeignGraph, NotForeign, foreign_graph
from headrace.plan.rows import JoinedRows
from headrace.relation.schema import TableSchema
from headrace.relation.variables import Variable, Variables

FOREIGN = "foreign-key"


def graph_of(rows: JoinedRows, tables: Mapping[str, TableSchema]) -> ForeignGraph | NotForeign:
    """The foreign-key graph of a join over these tables, or why it has none."""
    keys = {name: tables[name].key for name in rows.tables}
    references = {name: [table for _, table in tables[name].references] for name in rows.tables}
    return foreign_graph(rows.sources, keys, references)


def foreign_view(
    name: str, layout: ViewLayout, tables: Mapping[str, TableSchema], sizes: Mapping[str, int], buckets: int
) -> ForeignView:
    """Make a view of a layout whose plan has joined rows.

    Parameters
    ----------
    sizes : the rows of each source, as far as they are known.

    Raises
    ------
    UnsupportedSQLError : the join does not follow foreign keys to one root.
    """
    rows = layout.plan.rows
    assert rows is not None
    graph = graph_of(rows, tables)
    if isinstance(graph, NotForeign):
        raise UnsupportedSQLError(
            f"view {name!r} is no foreign-key join: {graph.why}", way_out=f"{graph.way_out}; or leave the strategy out"
        )
    kinds: dict[str, Variable] = {}
    for source in rows.sources:
        for variable, expression in source.variables:
            # Rows with NULL in what is joined on never get here.
            nullable = expression.nullable and sum(variable in s.variable_names for s in rows.sources) == 1
            kinds.setdefault(variable, Variable(expression.type, nullable))
    variables = Variables(kinds, layout.seed)
    return ForeignView(rows, plan_chains(rows, graph, sizes, buckets), variables, layout, buckets)
