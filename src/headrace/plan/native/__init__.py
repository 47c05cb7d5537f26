"""Expressions evaluated over Arrow columns, where Arrow can be trusted to give Spark's very result.

A row that reaches a kernel through the JVM costs more than the kernel. So the plain part of SQL (comparisons, logic,
exact arithmetic, functions of strings and dates) is evaluated here, vectorised; whatever might differ from Spark is
left to Catalyst, and so is any batch in which an expression would raise, since the error must be Spark's too.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from headrace.plan.expression import Expression
from headrace.plan.native import (
    arithmetic,
    casts,
    choice,
    comparison,
    dates,
    datetext,
    delimited,
    digests,
    letters,
    regex,
    rounding,
    strings,
    timewindows,
)
from headrace.plan.native.casts import widens
from headrace.plan.native.rule import REFUSALS, NeedsCatalyst, Rows, Rule, any_use
from headrace.relation.types import INTEGERS

__all__ = ["NeedsCatalyst", "evaluate", "supported", "why_not", "widens"]

_KINDS = frozenset([*INTEGERS, "float", "double", "decimal", "string", "date", "timestamp", "timestamp_ntz", "boolean"])

RULES: Mapping[str, Rule] = {
    "column": Rule(any_use, lambda node, rows: rows.column(node)),
    "literal": Rule(any_use, lambda node, rows: pa.scalar(node.value, node.type.arrow)),
    **comparison.RULES,
    **choice.RULES,
    **arithmetic.RULES,
    **rounding.RULES,
    **casts.RULES,
    **strings.RULES,
    **letters.RULES,
    **regex.RULES,
    **delimited.RULES,
    **digests.RULES,
    **dates.RULES,
    **datetext.RULES,
    **timewindows.RULES,
}


def supported(expression: Expression) -> bool:
    """Whether `evaluate` gives exactly Spark's result for this expression."""
    return why_not(expression) is None


def why_not(expression: Expression) -> str | None:
    """The part of the expression that only Catalyst evaluates, or None when there is none."""
    rule = RULES.get(expression.op)
    if rule is None or expression.type.kind not in _KINDS or not rule.accepts(expression):
        return f"{expression.op} in {expression.sql}"
    return next((reason for reason in map(why_not, rule.operands(expression)) if reason), None)


def evaluate(expression: Expression, columns: Mapping[str, pa.Array], length: int) -> pa.Array:
    """The value of a supported expression for each of `length` rows, as an array of exactly its type.

    Raises
    ------
    NeedsCatalyst : some row overflows or is out of range; Catalyst then gives Spark's result or Spark's error.
    """
    try:
        result = Rows(RULES, columns, length).array(expression)
    except REFUSALS as error:
        raise NeedsCatalyst(f"{expression.sql}: {error}") from error
    assert result.type == expression.type.arrow, (expression.sql, result.type)
    return result
