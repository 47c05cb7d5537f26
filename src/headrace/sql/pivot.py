"""PIVOT: one column for each value that the query lists, as Spark's optimizer writes it.

Spark groups by the pivot column too, and then puts the one row of each of its values into an array, whose elements are
the columns. An element is the largest of one value: MAX over the rows whose pivot column has the value.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.sql.jvm import Catalyst, Jvm, items, kind


def is_pivot(call: Jvm) -> bool:
    """Whether an aggregate gives the array of a PIVOT."""
    return kind(call.aggregateFunction()) == "PivotFirst"


def pivoted(catalyst: Catalyst, function: Jvm, aggregated: Callable[[Jvm], Jvm]) -> Jvm:
    """The array of a PIVOT as an expression over aggregates.

    Parameters
    ----------
    aggregated : gives the column of an aggregate.
    """
    column, value = function.pivotColumn(), function.valueColumn()
    build = catalyst.expressions
    elements = []
    for one in items(function.pivotColumnValues()):
        here = build.EqualNullSafe(column, _literal(catalyst, one, column.dataType()))
        largest = build.aggregate.Max(catalyst.when(here, value))
        elements.append(aggregated(largest.toAggregateExpression()))
    return build.CreateArray(catalyst.seq(elements), False)


def _literal(catalyst: Catalyst, value: object, type: Jvm) -> Jvm:
    # Python has one kind of integer, and on the way to the JVM a small one loses the width that it had there.
    if isinstance(value, int) and type.simpleString() != "int":
        return catalyst.cast(catalyst.text(str(value)), type)
    return catalyst.literal(value, type)
