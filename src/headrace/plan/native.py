"""Expressions evaluated over Arrow columns, where Arrow can be trusted to give Spark's very result.

A row that reaches a kernel through the JVM costs more than the kernel. So the plain part of SQL (comparisons, logic,
exact arithmetic, a few functions) is evaluated here, vectorised; whatever might differ from Spark is left to
Catalyst, and so is any batch in which an expression would raise, since the error must be Spark's too.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.plan.expression import Expression
from headrace.relation.types import INTEGERS, SqlType

Datum = Any  # pa.Array, or pa.Scalar for a value that is the same in all rows
Evaluate = Callable[[Expression], Datum]

_KINDS = frozenset([*INTEGERS, "float", "double", "decimal", "string", "date", "timestamp", "timestamp_ntz", "boolean"])
_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}  # that an integer may need as a decimal
# Beyond these, Arrow's years, which are 16 bits wide, may be wrong.
_FIRST_DAY, _LAST_DAY = pa.scalar(datetime.date(1, 1, 1)), pa.scalar(datetime.date(9999, 12, 31))


class NeedsCatalyst(Exception):
    """These rows must be evaluated by Catalyst: an expression would raise, or leave the range vetted here."""


def supported(expression: Expression) -> bool:
    """Whether `evaluate` gives exactly Spark's result for this expression."""
    return why_not(expression) is None


def why_not(expression: Expression) -> str | None:
    """The part of the expression that only Catalyst evaluates, or None when there is none."""
    rule = _RULES.get(expression.op)
    if rule is None or expression.type.kind not in _KINDS or not rule.accepts(expression):
        return f"{expression.op} in {expression.sql}"
    return next((reason for reason in map(why_not, expression.args) if reason), None)


def evaluate(expression: Expression, columns: Mapping[str, pa.Array], length: int) -> pa.Array:
    """The value of a supported expression for each of `length` rows, as an array of exactly its type.

    Raises
    ------
    NeedsCatalyst : some row overflows or is out of range; Catalyst then gives Spark's result or Spark's error.
    """

    def value_of(node: Expression) -> Datum:
        if node.op == "column":
            array = columns[str(node.value)]
            return array if array.type == node.type.arrow else array.cast(node.type.arrow)
        return _RULES[node.op].compute(node, value_of)

    try:
        result = value_of(expression)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise NeedsCatalyst(f"{expression.sql}: {error}") from error
    if isinstance(result, pa.Scalar):
        result = pa.repeat(result, length)
    assert result.type == expression.type.arrow, (expression.sql, result.type)
    return result


@dataclass(frozen=True)
class Rule:
    """One operation: which of its uses are vetted, and how to compute them."""

    accepts: Callable[[Expression], bool]
    compute: Callable[[Expression, Evaluate], Datum]


def _over_args(function: Callable[..., Datum]) -> Callable[[Expression, Evaluate], Datum]:
    return lambda node, value_of: function(*map(value_of, node.args))


def _any_use(node: Expression) -> bool:
    return True


def _same_types(node: Expression) -> bool:
    return all(arg.type == node.args[0].type for arg in node.args)


def _result_of_args(node: Expression) -> bool:
    return all(arg.type == node.type for arg in node.args)


def _literal_text(node: Expression) -> bool:
    return node.args[0].type.kind == "string" and isinstance(_literal_value(node.args[1]), str)


def _literal_value(node: Expression) -> object:
    return node.value if node.op == "literal" else None


def _literal(node: Expression, value_of: Evaluate) -> Datum:
    return pa.scalar(node.value, node.type.arrow)


# Comparison. Spark orders doubles totally: NaN equals NaN and is above all else, and 0.0 equals -0.0.


def _equal(a: Datum, b: Datum) -> Datum:
    plain = pc.equal(a, b)
    return pc.or_(plain, pc.and_(pc.is_nan(a), pc.is_nan(b))) if pa.types.is_floating(a.type) else plain


def _less(a: Datum, b: Datum) -> Datum:
    plain = pc.less(a, b)
    return pc.or_(plain, pc.and_(pc.is_nan(b), pc.invert(pc.is_nan(a)))) if pa.types.is_floating(a.type) else plain


def _less_equal(a: Datum, b: Datum) -> Datum:
    plain = pc.less_equal(a, b)
    return pc.or_(plain, pc.is_nan(b)) if pa.types.is_floating(a.type) else plain


def _null_safe_equal(a: Datum, b: Datum) -> Datum:
    return pc.or_(pc.fill_null(_equal(a, b), False), pc.and_(pc.is_null(a), pc.is_null(b)))


def _in(node: Expression, value_of: Evaluate) -> Datum:
    value, options = value_of(node.args[0]), node.args[1:]
    if pa.types.is_floating(value.type) or any(option.op != "literal" for option in options):
        return reduce(pc.or_kleene, (_equal(value, value_of(option)) for option in options))
    known = [option.value for option in options if option.value is not None]
    found = pc.is_in(value, value_set=pa.array(known, node.args[0].type.arrow))
    # No match among options of which one is NULL is unknown, not false.
    certain = found if len(known) < len(options) else True
    return pc.if_else(pc.and_(pc.is_valid(value), certain), found, pa.scalar(None, pa.bool_()))


# Choice.


def _if(condition: Datum, then: Datum, otherwise: Datum) -> Datum:
    return pc.if_else(pc.fill_null(condition, False), then, otherwise)


def _case_when(node: Expression, value_of: Evaluate) -> Datum:
    branches = list(zip(node.args[0::2], node.args[1::2], strict=False))
    result = value_of(node.args[-1]) if len(node.args) % 2 else pa.scalar(None, node.type.arrow)
    for condition, then in reversed(branches):
        result = _if(value_of(condition), value_of(then), result)
    return result


def _case_when_types(node: Expression) -> bool:
    values = [*node.args[1::2], *(node.args[-1:] if len(node.args) % 2 else [])]
    return all(value.type == node.type for value in values)


# Arithmetic. Overflow of integers raises. Decimals are exact: Spark rounds only where it gives up digits of the scale.


def _arithmetic_types(node: Expression) -> bool:
    if not node.type.is_decimal:
        return node.type.is_numeric and _result_of_args(node)
    left, right = (arg.type for arg in node.args)
    if not (left.is_decimal and right.is_decimal):
        return False
    precision, scale = _exact_decimal(node.op, left, right)
    return (node.type.precision, node.type.scale) == (min(precision, 38), scale)


def _exact_decimal(op: str, left: SqlType, right: SqlType) -> tuple[int, int]:
    """Precision and scale that hold every result; the rule of Spark and of Arrow alike, up to 38 digits."""
    if op == "Multiply":
        return left.precision + right.precision + 1, left.scale + right.scale
    scale = max(left.scale, right.scale)
    return max(left.precision - left.scale, right.precision - right.scale) + scale + 1, scale


def _arithmetic(checked: Callable[..., Datum]) -> Rule:
    def compute(node: Expression, value_of: Evaluate) -> Datum:
        left, right = map(value_of, node.args)
        if not node.type.is_decimal or _exact_decimal(node.op, node.args[0].type, node.args[1].type)[0] <= 38:
            return checked(left, right)
        # The declared types leave no room, but the values at hand mostly do; if not, Arrow refuses the precision.
        return _retyped(checked(_narrowed(left), _narrowed(right)), node.type.arrow)

    return Rule(_arithmetic_types, compute)


def _narrowed(values: Datum) -> Datum:
    """The same decimals, declared with no more digits than they have."""
    digits = [len(extreme.as_py().as_tuple().digits) for extreme in pc.min_max(values).values() if extreme.is_valid]
    return _retyped(values, pa.decimal128(max([*digits, values.type.scale, 1]), values.type.scale))


def _retyped(values: Datum, type: pa.DataType) -> Datum:
    if isinstance(values, pa.Scalar):
        return pa.scalar(values.as_py(), type)
    return pa.Array.from_buffers(type, len(values), values.buffers(), offset=values.offset)


def _sign_types(node: Expression) -> bool:
    # Beyond 34 digits Spark rounds even here (Scala's BigDecimal applies its default context to a negation).
    return node.type.is_numeric and node.type.precision <= 34 and _result_of_args(node)


def _one_zero_one_nan(a: Datum) -> Datum:
    return pc.if_else(pc.is_nan(a), pa.scalar(float("nan"), a.type), pc.add(a, pa.scalar(0.0, a.type)))


# Casts that no value can fail.


def widens(source: SqlType, target: SqlType) -> bool:
    """Whether every value of one type has its like in the other; a large integer is near enough to its double."""
    if source.is_integer and target.is_integer:
        return INTEGERS[source.kind] <= INTEGERS[target.kind]
    if source.is_integer and target.is_decimal:
        return target.precision - target.scale >= _DIGITS[source.kind]
    if source.is_decimal and target.is_decimal:
        return target.scale >= source.scale and target.precision - target.scale >= source.precision - source.scale
    return target.kind == "double" and (source.is_integer or source.kind == "float")


def _cast(node: Expression, value_of: Evaluate) -> Datum:
    # Not "safe": a large integer becomes the nearest double, as in Spark, and Arrow would call that an error.
    return pc.cast(value_of(node.args[0]), node.type.arrow, safe=not node.type.is_floating)


# Functions of strings and dates.


def _with_text(function: Callable[..., Datum]) -> Callable[[Expression, Evaluate], Datum]:
    return lambda node, value_of: function(value_of(node.args[0]), node.args[1].value)


def _of_kind(kind: str) -> Callable[[Expression], bool]:
    return lambda node: all(arg.type.kind == kind for arg in node.args)


def _has_positive_bounds(node: Expression) -> bool:
    position, length = (_literal_value(arg) for arg in node.args[1:])
    plain = node.args[0].type.kind == "string" and isinstance(position, int) and isinstance(length, int)
    return plain and position >= 1 and length >= 0  # type: ignore[operator]  # `plain` says they are integers


def _substring(node: Expression, value_of: Evaluate) -> Datum:
    start, length = int(str(node.args[1].value)) - 1, int(str(node.args[2].value))
    return pc.utf8_slice_codeunits(value_of(node.args[0]), start, start + length)


def _concat(*texts: Datum) -> Datum:
    return pc.binary_join_element_wise(*texts, pa.scalar("", pa.large_string()), null_handling="emit_null")


def _ordered_types(node: Expression) -> bool:
    # Spark counts NaN as the largest of all, Arrow as none; and Arrow knows no largest of instants and booleans.
    kind = node.type
    return _result_of_args(node) and (kind.is_integer or kind.is_decimal or kind.kind in ("string", "date"))


def _days_between(end: Datum, start: Datum) -> Datum:
    return pc.subtract_checked(pc.cast(end, pa.int32()), pc.cast(start, pa.int32()))


def _date_part(part: Callable[..., Datum]) -> Callable[[Expression, Evaluate], Datum]:
    def compute(node: Expression, value_of: Evaluate) -> Datum:
        dates = value_of(node.args[0])
        if pc.any(pc.or_(pc.less(dates, _FIRST_DAY), pc.greater(dates, _LAST_DAY))).as_py():
            raise NeedsCatalyst(f"{node.sql}: a date is outside of the years 1 to 9999")
        return pc.cast(part(dates), pa.int32())

    return compute


_RULES: dict[str, Rule] = {
    "column": Rule(_any_use, _literal),  # evaluate() looks columns up itself
    "literal": Rule(_any_use, _literal),
    "IsNull": Rule(_any_use, _over_args(lambda a: pc.is_null(a))),
    "IsNotNull": Rule(_any_use, _over_args(pc.is_valid)),
    "IsNaN": Rule(_any_use, _over_args(lambda a: pc.fill_null(pc.is_nan(a), False))),
    "And": Rule(_any_use, _over_args(pc.and_kleene)),
    "Or": Rule(_any_use, _over_args(pc.or_kleene)),
    "Not": Rule(_any_use, _over_args(pc.invert)),
    "EqualTo": Rule(_same_types, _over_args(_equal)),
    "EqualNullSafe": Rule(_same_types, _over_args(_null_safe_equal)),
    "LessThan": Rule(_same_types, _over_args(_less)),
    "LessThanOrEqual": Rule(_same_types, _over_args(_less_equal)),
    "GreaterThan": Rule(_same_types, _over_args(lambda a, b: _less(b, a))),
    "GreaterThanOrEqual": Rule(_same_types, _over_args(lambda a, b: _less_equal(b, a))),
    "In": Rule(_same_types, _in),
    "If": Rule(lambda node: node.args[1].type == node.args[2].type == node.type, _over_args(_if)),
    "CaseWhen": Rule(_case_when_types, _case_when),
    "Coalesce": Rule(_result_of_args, _over_args(pc.coalesce)),
    "Add": _arithmetic(pc.add_checked),
    "Subtract": _arithmetic(pc.subtract_checked),
    "Multiply": _arithmetic(pc.multiply_checked),
    "UnaryMinus": Rule(_sign_types, _over_args(pc.negate_checked)),
    "Abs": Rule(_sign_types, _over_args(pc.abs_checked)),
    "NormalizeNaNAndZero": Rule(lambda node: node.type.is_floating, _over_args(_one_zero_one_nan)),
    "KnownFloatingPointNormalized": Rule(_result_of_args, _over_args(lambda a: a)),
    "Cast": Rule(lambda node: widens(node.args[0].type, node.type), _cast),
    "StartsWith": Rule(_literal_text, _with_text(pc.starts_with)),
    "EndsWith": Rule(_literal_text, _with_text(pc.ends_with)),
    "Contains": Rule(_literal_text, _with_text(pc.match_substring)),
    "Length": Rule(_of_kind("string"), _over_args(lambda a: pc.cast(pc.utf8_length(a), pa.int32()))),
    "Concat": Rule(lambda node: len(node.args) > 0 and _of_kind("string")(node), _over_args(_concat)),
    "Greatest": Rule(_ordered_types, _over_args(pc.max_element_wise)),
    "Least": Rule(_ordered_types, _over_args(pc.min_element_wise)),
    "DateDiff": Rule(_of_kind("date"), _over_args(_days_between)),
    "Substring": Rule(_has_positive_bounds, _substring),
    "Year": Rule(_of_kind("date"), _date_part(pc.year)),
    "Month": Rule(_of_kind("date"), _date_part(pc.month)),
    "DayOfMonth": Rule(_of_kind("date"), _date_part(pc.day)),
}
