"""From Catalyst's resolved expressions to the plan's own, which need no JVM.

Every node becomes a node of the same name, so a reader (and `plan.native`) sees exactly what Spark would evaluate.
What cannot be said without Spark, such as a year beyond Python's calendar, stays a node without a value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

from headrace.errors import SchemaError
from headrace.plan.expression import Expression, column
from headrace.plan.timewindow import window_bound
from headrace.relation.types import SqlType
from headrace.sql.jvm import Jvm, identity, items, kind, option

_WINDOW = "precisetimestampconversion("  # occurs in the SQL text of windows, and in that of no other function
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
# Settings of a node, beyond its children, that `plan.native` has to know.
_SETTINGS: dict[str, Callable[[Jvm], object]] = {
    "Like": lambda node: node.escapeChar(),
    **dict.fromkeys(
        ("DateFormatClass", "Hour", "Minute", "Second", "TruncTimestamp"), lambda node: option(node.timeZoneId())
    ),
    "Cast": lambda node: option(node.timeZoneId()) if node.needsTimeZone() else None,
    # Whether a division by zero, a number that is too large, or a missing element is an error. (Overflow is left to
    # Spark in any case.)
    **dict.fromkeys(
        ("Divide", "IntegralDivide", "Remainder", "Pmod", "Floor", "Ceil", "GetArrayItem"),
        lambda node: bool(node.failOnError()),
    ),
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
    children = items(node.children())
    args = tuple(to_expression(child, names) for child in children)
    setting = _SETTINGS[op](node) if op in _SETTINGS else None
    made = Expression(op, type, node.sql(), args, value=setting, nullable=node.nullable())
    return _readable(made, children) if _WINDOW in made.sql else made


def _readable(made: Expression, children: list[Jvm]) -> Expression:
    """The expression with windows of time in its text as people write them, and not as Spark computes them."""
    bound = window_bound(made)
    if bound is not None:
        return replace(made, sql=bound.sql)
    text = made.sql
    for child, arg in zip(children, made.args, strict=True):
        text = text.replace(child.sql(), arg.sql)
    return replace(made, sql=text)


def _literal(node: Jvm, type: SqlType) -> Expression:
    value = node.value()
    if value is None:
        return Expression("literal", type, node.sql())
    try:
        # An interval is a number of months or of microseconds; the legacy type "interval" is neither.
        name = "bigint" if type.kind.startswith("interval ") else type.kind
        return Expression("literal", type, node.sql(), value=_VALUES[name](value), nullable=False)
    except (KeyError, OverflowError):
        return Expression("Literal", type, node.sql(), nullable=False)
