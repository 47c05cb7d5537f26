"""From Catalyst's resolved expressions to the plan's own, which need no JVM.

Every node becomes a node of the same name, so a reader (and `plan.native`) sees exactly what Spark would evaluate.
What cannot be said without Spark, an interval or a year beyond Python's calendar, stays a node without a value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

from headrace.errors import SchemaError
from headrace.plan.expression import Expression, column
from headrace.relation.types import SqlType
from headrace.sql.jvm import Jvm, identity, items, kind

_EPOCH = datetime(1970, 1, 1)
_AS_IS = ("tinyint", "smallint", "int", "bigint", "float", "double", "boolean")
_VALUES: dict[str, Callable[[Jvm], object]] = {
    **dict.fromkeys(_AS_IS, lambda value: value),
    "string": lambda value: value.toString(),
    "decimal": lambda value: Decimal(value.toString()),
    "date": lambda days: date(1970, 1, 1) + timedelta(days=days),
    "timestamp": lambda micros: (_EPOCH + timedelta(microseconds=micros)).replace(tzinfo=UTC),
    "timestamp_ntz": lambda micros: _EPOCH + timedelta(microseconds=micros),
}


def to_type(type: Jvm) -> SqlType | None:
    """The SQL type of a Catalyst type; None when Headrace has no such type."""
    try:
        return SqlType.parse(type.simpleString())
    except SchemaError:
        return None


def to_expression(node: Jvm, names: Mapping[int, str]) -> Expression:
    """Mirror a Catalyst expression; `names` tells the column each attribute stands for."""
    # A type inside an expression may be one no column can have (an array, an interval); it keeps Spark's name.
    type = to_type(node.dataType()) or SqlType(node.dataType().simpleString())
    op = kind(node)
    if op == "AttributeReference":
        return column(names[identity(node)], type, node.nullable())
    if op == "Literal":
        return _literal(node, type)
    args = tuple(to_expression(child, names) for child in items(node.children()))
    return Expression(op, type, node.sql(), args, nullable=node.nullable())


def _literal(node: Jvm, type: SqlType) -> Expression:
    value = node.value()
    if value is None:
        return Expression("literal", type, node.sql())
    try:
        return Expression("literal", type, node.sql(), value=_VALUES[type.kind](value), nullable=False)
    except (KeyError, OverflowError):
        return Expression("Literal", type, node.sql(), nullable=False)
