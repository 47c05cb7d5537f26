"""What a rule says of one operation, and the rows that the rule is applied to.

A rule is written over whole columns, but Spark evaluates row by row and stops early: the second branch of an IF is
never evaluated for rows that take the first. `Rows` evaluates an expression for all rows, or only for those of a mask.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.plan.expression import Expression

Datum = Any  # pa.Array, or pa.Scalar for a value that is the same in all rows


class NeedsCatalyst(Exception):
    """These rows must be evaluated by Catalyst: an expression would raise, or leave the range vetted here."""


REFUSALS = (NeedsCatalyst, pa.ArrowInvalid, pa.ArrowNotImplementedError)


@dataclass(frozen=True)
class Rule:
    """One operation: which of its uses are vetted, how to compute them, and which arguments are values of rows.

    Arguments that are not `operands` (an interval, say) are settings: literals that `accepts` has looked at.
    """

    accepts: Callable[[Expression], bool]
    compute: Callable[[Expression, Rows], Datum]
    operands: Callable[[Expression], Sequence[Expression]] = lambda node: node.args


@dataclass(frozen=True)
class Rows:
    """Some rows as columns, over which expressions are evaluated."""

    rules: Mapping[str, Rule]
    columns: Mapping[str, pa.Array]
    length: int

    def value(self, node: Expression) -> Datum:
        """The value of an expression in every row."""
        return self.rules[node.op].compute(node, self)

    def values(self, nodes: Sequence[Expression]) -> list[Datum]:
        return [self.value(node) for node in nodes]

    def array(self, node: Expression) -> pa.Array:
        """The value of an expression, one element per row."""
        result = self.value(node)
        return pa.repeat(result, self.length) if isinstance(result, pa.Scalar) else result

    def column(self, node: Expression) -> pa.Array:
        array = self.columns[str(node.value)]
        return array if array.type == node.type.arrow else array.cast(node.type.arrow)

    def value_where(self, mask: Datum, node: Expression) -> Datum:
        """The value of an expression in the rows of a mask without NULLs; elsewhere it is unspecified, and no error."""
        try:
            return self.value(node)
        except REFUSALS:  # perhaps in rows that Spark would not have looked at
            if isinstance(mask, pa.Scalar):
                if mask.as_py():
                    raise
                return pa.scalar(None, node.type.arrow)
            chosen = {name: self.columns[name].filter(mask) for name in node.columns}
            values = Rows(self.rules, chosen, pc.sum(mask).as_py() or 0).array(node)
            return pc.replace_with_mask(pa.nulls(len(mask), values.type), mask, values)


def over_args(function: Callable[..., Datum]) -> Callable[[Expression, Rows], Datum]:
    """Compute a node from the values of its arguments."""
    return lambda node, rows: function(*rows.values(node.args))


def any_use(node: Expression) -> bool:
    return True


def same_types(node: Expression) -> bool:
    return all(arg.type == node.args[0].type for arg in node.args)


def result_of_args(node: Expression) -> bool:
    """Whether all arguments have the type of the result."""
    return all(arg.type == node.type for arg in node.args)


def of_kind(kind: str) -> Callable[[Expression], bool]:
    """Whether all arguments are of a kind."""
    return lambda node: all(arg.type.kind == kind for arg in node.args)


def literal_value(node: Expression) -> object:
    """The value of a literal; None when it is NULL, or no literal."""
    return node.value if node.op == "literal" else None


def literal_int(node: Expression) -> int | None:
    """The value of a literal integer."""
    value = literal_value(node)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def literal_text(node: Expression) -> str | None:
    """The value of a literal string."""
    value = literal_value(node)
    return value if isinstance(value, str) else None
