"""What a query reads, for queries that Spark runs as they are.

A view that is recomputed may be any query at all, as long as its answer follows from the registered tables alone: the
same rows must give the same answer tomorrow. So its plan is searched for tables and for anything that would make the
answer change by itself, and is otherwise left as it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from headrace.errors import HeadraceError, UnsupportedSQLError
from headrace.sql.jvm import Jvm, identity, items, kind
from headrace.sql.lexer import Kind, tokens
from headrace.sql.query import Schema, SqlQuery
from headrace.sql.refusals import Refusals
from headrace.sql.rings import check_for_spark
from headrace.sql.session import TABLE_MARK, SqlSession

# Leaves that are no tables: constants, and references to what is elsewhere in the plan.
_CONSTANT = {"OneRowRelation", "LocalRelation", "Range", "ResolvedInlineTable", "CTERelationRef", "UnionLoopRef"}
# Operators that need no column of their input but those that they name.
_BY_NAME = {"Project", "Filter", "Aggregate", "Join", "Sort", "Window", "GlobalLimit", "LocalLimit", "Expand"}


@dataclass(frozen=True)
class Reads:
    """The tables that a query reads, each with the columns that its answer depends on; and the answer's schema."""

    tables: Mapping[str, tuple[str, ...]]
    schema: Schema


def read_query(query: SqlQuery) -> Reads:
    """Find out what a query reads.

    Raises
    ------
    UnsupportedSQLError : the query is not SQL, or its answer does not follow from the rows of its tables.
    SchemaError : the query names a table or a column that does not exist.
    """
    analysed, refusals = query.analysed, query.refusals
    check_query(analysed, refusals)
    for plan in _plans(analysed):
        for node in _nodes(plan):
            check_for_spark(node, refusals)
    optimized = query.optimized
    tables = dict.fromkeys(table for plan in _plans(analysed) for table, _ in _leaves(plan))
    if not tables:
        refusals.refuse("a query without a table", "nothing it reads can change", "read one made with engine.table()")
    needed = _needed(optimized)
    columns: dict[str, dict[str, None]] = {table: {} for table in tables}
    for plan in _plans(optimized):
        for table, attributes in _leaves(plan):
            columns[table].update((a.name(), None) for a in attributes if identity(a) in needed)
    return Reads({table: tuple(names) for table, names in columns.items()}, query.schema)


def views_read(query: SqlQuery) -> tuple[str, ...]:
    """The views that a query names, where views are leaves."""
    leaves = (leaf for plan in _plans(query.analysed) for leaf, _ in _leaves(plan))
    return tuple(dict.fromkeys(leaf for leaf in leaves if leaf in query.session.views))


def check_readable(session: SqlSession, view: str, generated: str) -> None:
    """Check that Spark reads a query that was put together from Catalyst's own rendering of expressions.

    Raises
    ------
    UnsupportedSQLError : some expression has no SQL, as Spark has replaced a function by an internal one.
    """
    query = SqlQuery(session, view, generated)
    try:
        _ = query.optimized
    except HeadraceError as error:
        reason = error.what.splitlines()[0]
        raise UnsupportedSQLError(
            f"view {view!r}: the part {generated} cannot be written as SQL: {reason}",
            way_out="use refresh='full', which runs the query as you wrote it, or write the expression otherwise",
        ) from None


def without_semicolon(sql: str) -> str:
    """Cut off a semicolon at the end, so that the query can stand in another one.

    >>> without_semicolon("SELECT 1; -- done")
    'SELECT 1'
    """
    found = [token for token in tokens(sql, "query") if token.kind is not Kind.END]
    while found and found[-1].is_symbol(";"):
        sql = sql[: found.pop().start].rstrip()
    return sql


def check_query(analysed: Jvm, refusals: Refusals) -> None:
    """Raise unless the answer of a query follows from the rows of its tables."""
    refusals.check_literals()
    for plan in _plans(analysed):
        for node in _nodes(plan):
            foreign = not items(node.children()) and kind(node) not in _CONSTANT and _table(node) is None
            if foreign or kind(node) == "Sample":
                refusals.refuse_operator(node)
            for expression in items(node.expressions()):
                refusals.check_repeatable(expression)


def _plans(plan: Jvm) -> list[Jvm]:
    """A plan and those of all its subqueries."""
    return [plan, *items(plan.subqueriesAll())]


def _nodes(plan: Jvm) -> Iterator[Jvm]:
    yield plan
    for child in items(plan.children()):
        yield from _nodes(child)


def _leaves(plan: Jvm) -> Iterator[tuple[str, list[Jvm]]]:
    """The tables that a plan reads, with the attributes of each."""
    for node in _nodes(plan):
        table = None if items(node.children()) else _table(node)
        if table is not None:
            yield table, items(node.output())


def _table(leaf: Jvm) -> str | None:
    """The registered table that a leaf stands for, if it is one."""
    if kind(leaf) != "LogicalRDD":
        return None
    marks = [json.loads(attribute.metadata().json()).get(TABLE_MARK) for attribute in items(leaf.output())]
    return marks[0] if marks else None


def _needed(optimized: Jvm) -> set[int]:
    """The attributes that the answer depends on."""
    needed: set[int] = set()
    for plan in _plans(optimized):
        needed.update(map(identity, items(plan.output())))
        for node in _nodes(plan):
            needed.update(map(identity, items(node.references().toSeq())))
            if kind(node) not in _BY_NAME:
                needed.update(identity(a) for child in items(node.children()) for a in items(child.output()))
    return needed
