"""From SQL text to a view's plan, with Spark's own Catalyst as the front end.

Catalyst parses, resolves and simplifies the query, so a view means exactly what the query means in Spark. Headrace
reads the optimized plan, and refuses here, when the view is created, whatever it could not keep up to date.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from headrace.plan.foreign_tree import ForeignTree
from headrace.plan.join import JoinPlan
from headrace.plan.rows import JoinedRows
from headrace.plan.view import HIDDEN, IN_RING, Order, Output, Shape, TableRows, ViewPlan
from headrace.sql.evaluate import CatalystView, MapSide
from headrace.sql.flatten import Flat
from headrace.sql.joined_rows import RowReader, RowsOfJoin
from headrace.sql.joins import Joiner
from headrace.sql.jvm import identity, items
from headrace.sql.query import Schema, SqlQuery
from headrace.sql.rings import IN_VIEWS, refuse_rings
from headrace.sql.scalars import to_expression
from headrace.sql.session import SqlSession
from headrace.sql.sources import Sources


@dataclass(frozen=True)
class AnalysedView:
    """What a query computes: its plan free of Spark, the schema of its answer, and its Catalyst expressions."""

    plan: ViewPlan
    schema: Schema
    catalyst: CatalystView


def analyse(session: SqlSession, view_name: str, sql: str) -> AnalysedView:
    """Read the SQL of a view over the tables registered in the session (`summed`)."""
    return summed(SqlQuery(session, view_name, sql))


def summed(query: SqlQuery) -> AnalysedView:
    """Read a view of one table, or of a join as sums of products.

    Raises
    ------
    UnsupportedSQLError : the query is not SQL, or has something in it that cannot be maintained.
    SchemaError : the query names a table or a column that does not exist.
    """
    flat = query.flat
    in_rings = any(aggregate.function == IN_RING for aggregate in flat.aggregates)  # kept as of a join of one table
    if len(flat.leaves) == 1 and not in_rings:
        outputs = [*flat.keys, *flat.arguments]
        sides: dict[str, MapSide] = {flat.leaves[0][0]: MapSide(flat.leaf, flat.condition, outputs, [])}
        return _view(query, plan_of(flat, query.schema), sides)
    join = Joiner(query.session.catalyst, query.refusals, flat).join()
    plan = _joined_plan(flat, query.schema, join.sources, join.plan)
    return _view(query, plan, join.sides)


def features(query: SqlQuery) -> AnalysedView:
    """Read the rows of a query as a join, even over one table, for aggregates that SQL cannot express.

    The plan is always over a join. Its `keys[i]` is the variable of the column `plan.outputs[i]`, and has the column's
    name unless another variable has it already.
    """
    flat, refusals = query.flat, query.refusals
    if flat.shape is not Shape.ROWS:
        refusals.refuse(
            "an aggregate (or DISTINCT)",
            "the rows themselves are needed here",
            "give the rows, not an aggregate: SELECT the columns, without GROUP BY and DISTINCT",
        )
    if flat.limit is not None:
        refusals.refuse(
            "LIMIT",
            "all rows are needed here, and a LIMIT is applied only to what a reader gets",
            "leave the LIMIT out, or filter the rows with WHERE",
        )
    if flat.hidden:
        refusals.refuse("ORDER BY", "rows in any order are the same to it", "leave it out")
    names = [column for column, _, _ in query.schema]
    join = Joiner(query.session.catalyst, refusals, flat, names).join()
    plan = _joined_plan(flat, query.schema, join.sources, join.plan)
    return _view(query, plan, join.sides)


@dataclass(frozen=True)
class AnalysedRows:
    """A view over a join whose joined rows are made: the analysed view, and the rows of the join."""

    view: AnalysedView
    rows: RowsOfJoin

    def along(self, made: ForeignTree) -> AnalysedView:
        """The view with the Catalyst expressions of a tree that joins these rows."""
        return replace(self.view, catalyst=self.rows.along(made, self.view.catalyst))


def joined_rows(query: SqlQuery) -> AnalysedRows:
    """Read a view over a join for a strategy that makes joined rows; its plan is over `JoinedRows`.

    Raises
    ------
    UnsupportedSQLError : as for `summed`, or the query reads one table.
    """
    flat = query.flat
    if len(flat.leaves) == 1:
        query.refusals.refuse("a query of one table", "there is no join in it", "leave the strategy out")
    refuse_rings(flat.aggregates, query.refusals, f"{IN_VIEWS}, not by live tuples")
    read = RowReader(query.session.catalyst, query.refusals, flat).read()
    plan = _joined_plan(flat, query.schema, read.sources, read.plan)
    return AnalysedRows(_view(query, plan, read.sides), read)


def _view(query: SqlQuery, plan: ViewPlan, sides: Mapping[str, MapSide]) -> AnalysedView:
    not_null = (*(not nullable for _, _, nullable in query.schema), *[False] * query.flat.hidden)
    catalyst = CatalystView(query.session.catalyst, plan, query.flat, sides, not_null)
    return AnalysedView(plan, query.schema, catalyst)


def plan_of(flat: Flat, schema: Schema) -> ViewPlan:
    """The Spark-free plan of a view, with a map side over the columns of the first leaf."""
    columns = {identity(attribute): attribute.name() for attribute in items(flat.leaf.output())}
    slots = {identity(slot): slot.name() for slot in flat.slots}
    names = [*(name for name, _, _ in schema), *(f"{HIDDEN}{i}" for i in range(flat.hidden))]
    condition = None if flat.condition is None else to_expression(flat.condition, columns)
    return ViewPlan(
        over=TableRows(flat.leaves[0][0], condition),
        shape=flat.shape,
        keys=tuple(to_expression(key, columns) for key in flat.keys),
        arguments=tuple(to_expression(argument, columns) for argument in flat.arguments),
        aggregates=tuple(flat.aggregates),
        having=None if flat.having is None else to_expression(flat.having, slots),
        outputs=tuple(Output(n, to_expression(o, slots)) for n, o in zip(names, flat.outputs, strict=True)),
        order=tuple(Order(names[i], descending, first) for i, descending, first in flat.order),
        limit=flat.limit,
        root_required="" if flat.root_required is None else flat.membership,
    )


def _joined_plan(flat: Flat, schema: Schema, sources: Sources, over: JoinPlan | JoinedRows) -> ViewPlan:
    qualified, names = sources.qualified, sources.qualified_names()
    finish = plan_of(replace(flat, condition=None, keys=[], arguments=[]), schema)
    return replace(
        finish,
        over=over,
        keys=tuple(to_expression(qualified(key), names) for key in flat.keys),
        arguments=tuple(to_expression(qualified(argument), names) for argument in flat.arguments),
    )
