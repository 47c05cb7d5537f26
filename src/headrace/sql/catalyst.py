"""From SQL text to a view's plan, with Spark's own Catalyst as the front end.

Catalyst parses, resolves and simplifies the query, so a view means exactly what the query means in Spark. Headrace
reads the optimized plan, and refuses here, when the view is created, whatever it could not keep up to date.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.logger import PySparkLogger

from headrace.errors import HeadraceError, SchemaError, UnsupportedSQLError
from headrace.plan.view import Order, Output, Shape, ViewPlan
from headrace.relation.types import SqlType
from headrace.sql.evaluate import CatalystView, MapSide
from headrace.sql.flatten import Flat, Flattener
from headrace.sql.joined_rows import RowReader
from headrace.sql.joins import Joiner
from headrace.sql.jvm import Jvm, identity, items
from headrace.sql.refusals import Refusals
from headrace.sql.scalars import to_expression, to_type
from headrace.sql.session import Query, SqlSession
from headrace.sql.sources import Sources
from headrace.sql.windows import WAY_OUT, is_window

Schema = tuple[tuple[str, SqlType, bool], ...]

_RESERVED = {"__diff"}


@dataclass(frozen=True)
class AnalysedView:
    """What a query computes: the plan without Spark, the schema of its answer, and Catalyst's side of it."""

    plan: ViewPlan
    schema: Schema
    catalyst: CatalystView


def analyse(session: SqlSession, view_name: str, sql: str) -> AnalysedView:
    """Read the SQL of a view over the tables registered in the session.

    Raises
    ------
    UnsupportedSQLError : the query is not SQL, or has something in it that cannot be maintained.
    SchemaError : the query names a table or a column that does not exist.
    """
    refusals = Refusals(view_name, sql)
    analysed, optimized = planned(session, view_name, sql, refusals, refusals.check)
    schema = schema_of(analysed, session, refusals)
    flat = Flattener(session.catalyst, refusals).flatten(optimized)
    if len(flat.leaves) == 1:
        sides: dict[str | None, MapSide] = {None: MapSide(flat.leaf, flat.condition, flat.keys, flat.arguments)}
        return _view(session, flat, schema, plan_of(flat, schema), sides)
    join = Joiner(session.catalyst, refusals, flat).join()
    plan = replace(_joined_plan(flat, schema, join.sources), join=join.plan)
    return _view(session, flat, schema, plan, join.sides)


def analyse_join_rows(session: SqlSession, name: str, sql: str) -> AnalysedView:
    """Read a query whose rows are wanted as a join, even those of one table, for what is not an aggregate in SQL.

    The plan always has a join, and `plan.join.keys[i]` is the variable of the column `plan.outputs[i]`, with the
    column's name where no other variable has it.
    """
    refusals = Refusals(name, sql)
    analysed, optimized = planned(session, name, sql, refusals, refusals.check)
    schema = schema_of(analysed, session, refusals)
    flat = Flattener(session.catalyst, refusals).flatten(optimized)
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
    names = [column for column, _, _ in schema]
    join = Joiner(session.catalyst, refusals, flat, names).join()
    plan = replace(_joined_plan(flat, schema, join.sources), join=join.plan)
    return _view(session, flat, schema, plan, join.sides)


def analyse_joined_rows(session: SqlSession, view_name: str, sql: str) -> AnalysedView:
    """Read the SQL of a view over a join for a strategy that makes joined rows; the plan has `rows` in place of `join`.

    Raises
    ------
    UnsupportedSQLError : as for `analyse`, or the query reads one table, or Spark would have to see joined rows.
    """
    refusals = Refusals(view_name, sql)
    analysed, optimized = planned(session, view_name, sql, refusals, refusals.check)
    schema = schema_of(analysed, session, refusals)
    flat = Flattener(session.catalyst, refusals).flatten(optimized)
    if len(flat.leaves) == 1:
        refusals.refuse("a query of one table", "there is no join in it", "leave the strategy out")
    read = RowReader(session.catalyst, refusals, flat).read()
    plan = replace(_joined_plan(flat, schema, read.sources), rows=read.plan)
    return _view(session, flat, schema, plan, read.sides)


def planned(
    session: SqlSession,
    view_name: str,
    sql: str,
    refusals: Refusals,
    check: Callable[[Jvm], None],
    optimized: Callable[[Query], Jvm] = Query.optimizedPlan,
) -> tuple[Jvm, Jvm]:
    """The query as Catalyst understands it, checked, and as it would run it."""
    with _quiet():
        try:
            execution = session.query(sql)
            if session.is_command(execution.analyzed()):
                refusals.refuse("a command", "only a query has an answer to keep", "write the view as one SELECT")
            check(execution.analyzed())
            return execution.analyzed(), optimized(execution)
        except PySparkException as error:
            raise _explained(view_name, error) from None
        except Py4JJavaError as error:  # a statement that Spark itself stumbles over, such as an INSERT
            said = str(error.java_exception.getMessage()).splitlines()[0]
            raise UnsupportedSQLError(f"view {view_name!r}: {said}", way_out="write the view as one SELECT") from None


def _view(
    session: SqlSession, flat: Flat, schema: Schema, plan: ViewPlan, sides: Mapping[str | None, MapSide]
) -> AnalysedView:
    not_null = tuple(not nullable for _, _, nullable in schema)
    return AnalysedView(plan, schema, CatalystView(session.catalyst, plan, flat, sides, not_null))


def plan_of(flat: Flat, schema: Schema) -> ViewPlan:
    """A view's plan without Spark, for what is read from one leaf."""
    columns = {identity(attribute): attribute.name() for attribute in items(flat.leaf.output())}
    slots = {identity(slot): slot.name() for slot in flat.slots}
    names = [name for name, _, _ in schema]
    return ViewPlan(
        table=flat.leaves[0][0],
        shape=flat.shape,
        condition=None if flat.condition is None else to_expression(flat.condition, columns),
        keys=tuple(to_expression(key, columns) for key in flat.keys),
        arguments=tuple(to_expression(argument, columns) for argument in flat.arguments),
        aggregates=tuple(flat.aggregates),
        having=None if flat.having is None else to_expression(flat.having, slots),
        outputs=tuple(Output(n, to_expression(o, slots)) for n, o in zip(names, flat.outputs, strict=True)),
        order=tuple(Order(names[i], descending, first) for i, descending, first in flat.order),
        limit=flat.limit,
        root_required="" if flat.root_required is None else flat.membership,
    )


def _joined_plan(flat: Flat, schema: Schema, sources: Sources) -> ViewPlan:
    qualified, names = sources.qualified, sources.qualified_names()
    finish = plan_of(replace(flat, condition=None, keys=[], arguments=[]), schema)
    return replace(
        finish,
        table="",
        keys=tuple(to_expression(qualified(key), names) for key in flat.keys),
        arguments=tuple(to_expression(qualified(argument), names) for argument in flat.arguments),
    )


def schema_of(analysed: Jvm, session: SqlSession, refusals: Refusals) -> Schema:
    """The columns of a query's answer, if Headrace can keep them."""
    schema = []
    seen: set[str] = set()
    for field in items(analysed.schema()):
        name, type = field.name(), to_type(field.dataType())
        if type is None:
            refusals.refuse(
                f"column {name!r} of type {field.dataType().simpleString()}",
                "Headrace keeps no columns of that type",
                WAY_OUT if is_window(field) else "cast it to a number, a string, a date or a timestamp",
            )
        spelling = name if session.case_sensitive else name.lower()
        if spelling in seen or name in _RESERVED:
            why = "two columns have it" if spelling in seen else "Headrace uses it for multiplicities"
            refusals.refuse(f"the column name {name!r}", why, "give the column another name with AS")
        seen.add(spelling)
        schema.append((name, type, field.nullable()))
    return tuple(schema)


def _explained(view_name: str, error: PySparkException) -> HeadraceError:
    """Spark's error as Headrace's, with Spark's message and its pointer into the SQL."""
    condition = error.getCondition() or ""
    message = (error.getMessage() or str(error)).strip()
    pointers = [c.summary().strip() for c in error.getQueryContext() or [] if c.summary().strip() not in message]
    what = "\n".join([f"view {view_name!r}: {message}", *pointers])
    if condition.startswith("TABLE_OR_VIEW_NOT_FOUND"):
        return SchemaError(what, way_out="register the table first with engine.table(...)")
    if condition.startswith("UNRESOLVED_COLUMN"):
        return SchemaError(what, way_out="name a column that the table has")
    if condition.startswith("UNRESOLVED_ROUTINE"):
        return UnsupportedSQLError(
            what, way_out="use Spark's built-in functions; those of your session are unknown here"
        )
    if isinstance(error, ParseException):
        return UnsupportedSQLError(what, way_out="write the view as one SELECT in Spark SQL")
    if isinstance(error, AnalysisException):
        return UnsupportedSQLError(what, way_out="correct the query; it must also run in spark.sql(...)")
    return UnsupportedSQLError(what, way_out="the query fails in Spark before it reads a row; correct it there first")


@contextmanager
def _quiet() -> Iterator[None]:
    # PySpark logs every failed query to stderr by itself; here the error says it all.
    logger = PySparkLogger.getLogger("SQLQueryContextLogger")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before
