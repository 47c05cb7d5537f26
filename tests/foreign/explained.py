"""Explanations of foreign-key joins, made without Spark: what tests of the text and the drawing share."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from headrace.explain.report import Report, Size, Subject
from headrace.operators.alive import alive
from headrace.operators.layout import GROUPS
from headrace.operators.report import report
from headrace.operators.tree_view import TreeView
from headrace.plan.expression import Expression, column
from headrace.plan.foreign_graph import ForeignGraph
from headrace.plan.foreign_tree import foreign_tree, graph_of
from headrace.plan.join import Source
from headrace.plan.rows import JoinedRows
from headrace.plan.view import Aggregate, Shape, ViewPlan
from headrace.relation.schema import Column, TableSchema
from headrace.relation.types import SqlType

BIGINT, BOOLEAN = SqlType("bigint"), SqlType("boolean")
EVALUATED = ("the kernels on columns", "every expression is one whose result is known to equal Spark's")
LAST_STEP = {"text": "step 3: 2 rows of sale in 1.5 ms (driver)", "ran": "driver", "why": "2 changed rows"}

Schemas = Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]
"""For each table its columns, all of them variables, and its key."""

# Two ways lead from a sale to a town, and on to its country.
DIAMOND: Schemas = {
    "sale": (("sale_id", "shop", "buyer", "price"), ("sale_id",)),
    "shop": (("shop", "town"), ("shop",)),
    "buyer": (("buyer", "town"), ("buyer",)),
    "town": (("town", "country", "people"), ("town",)),
    "country": (("country",), ("country",)),
}
TPCH_Q5: Schemas = {
    "customer": (("c_custkey", "nationkey"), ("c_custkey",)),
    "orders": (("o_orderkey", "c_custkey"), ("o_orderkey",)),
    "lineitem": (("o_orderkey", "linenumber", "suppkey", "revenue"), ("o_orderkey", "linenumber")),
    "supplier": (("suppkey", "nationkey"), ("suppkey",)),
    "nation": (("nationkey", "regionkey", "n_name"), ("nationkey",)),
    "region": (("regionkey",), ("regionkey",)),
}


def star(points: int) -> Schemas:
    """A table that refers to many others."""
    fact = ("id", *(f"k{i}" for i in range(points)))
    return {"fact": (fact, ("id",))} | {f"d{i}": ((f"k{i}", f"v{i}"), (f"k{i}",)) for i in range(points)}


def path(length: int) -> Schemas:
    """Each table refers to the next."""
    return {f"t{i}": ((f"x{i}", f"x{i + 1}"), (f"x{i}",)) for i in range(length)}


def ladder(rungs: int) -> Schemas:
    """Every two neighbouring tables of one side meet again in the other: most tables are reached in many ways."""
    sides = {f"a{i}": ((f"a{i}", f"a{i + 1}", f"b{i}"), (f"a{i}",)) for i in range(rungs)}
    return sides | {f"b{i}": ((f"b{i}", f"b{i + 1}"), (f"b{i}",)) for i in range(rungs)}


def explained(
    schemas: Schemas,
    group_by: tuple[str, ...] = (),
    sizes: Mapping[str, int] | None = None,
    conditions: Mapping[str, Expression] | None = None,
    condition: Expression | None = None,
    name: str = "v",
    last_step: Mapping[str, Any] | None = None,
    empty: Collection[str] = (),
) -> Report:
    """Explain COUNT(*) of a natural join, with made-up numbers: half of the rows that wait somewhere get on."""
    sources = tuple(
        Source(table, table, (conditions or {}).get(table), tuple((c, column(c, BIGINT, False)) for c in columns))
        for table, (columns, _) in schemas.items()
    )
    tables = {
        table: TableSchema(
            table, tuple(Column(c, BIGINT, False) for c in columns), key
        )  # of names that are not checked
        for table, (columns, key) in schemas.items()
    }
    keys = tuple(column(key, BIGINT, False) for key in group_by)
    rows = JoinedRows(sources, condition, keys, ())
    shape = Shape.GROUPS if group_by else Shape.TOTAL
    count = (Aggregate("count", None, BIGINT, "count(1)"),)
    plan = ViewPlan(rows, shape, keys, (), count, None, ())
    graph = graph_of(rows, tables)
    assert isinstance(graph, ForeignGraph)
    made = foreign_tree(plan, graph, sizes or {}, 4)
    counts = {own: (sizes or {}).get(source, 0) for own, (source, _) in made.reads.items()}
    kernel = TreeView(made.tree, 0, 4, counts)
    there = dict.fromkeys(kernel.arrangements, 1024)
    for number, reference in enumerate(made.joins):
        position = sum(other.parent == reference.parent for other in made.joins[:number])
        there[f"{number}.left"] = 0 if reference.parent in empty else 1_024 >> position
        there[f"{number}.right"] = 0 if reference.child in empty else 512
    there[GROUPS] = there[f"{len(made.joins) - 1}.left"] // 2
    held = {part: Size(4, 40 + 4 * i, 4000 + 400 * i) for i, part in enumerate(kernel.arrangements)}
    held[GROUPS] = replace(held[GROUPS], live=7)
    subject = Subject(
        name,
        "SELECT ...",
        "foreign-key",
        "it was asked for",
        4,
        evaluated=EVALUATED,
        sizes=held,
        last_step=last_step or {},
    )
    extra = {number: {"alive": found} for number, found in alive(kernel, there).items()}
    return report(kernel, subject, extra=extra)


def more_than(left: str, right: str) -> Expression:
    """A condition on joined rows, with the text that Catalyst gives one over stand-ins."""
    args = (column(left, BIGINT, False), column(right, BIGINT, False))
    return Expression("GreaterThan", BOOLEAN, "(variable > variable)", args, nullable=False)


def positive(name: str) -> Expression:
    """A condition on the rows of one table."""
    zero = Expression("literal", BIGINT, "0L", value=0, nullable=False)
    return Expression("GreaterThan", BOOLEAN, f"({name} > 0L)", (column(name, BIGINT, False), zero), nullable=False)
