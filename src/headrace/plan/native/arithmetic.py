"""Arithmetic. What overflows is left to Catalyst; decimals are exact, or rounded as `decimals` says.

Whether a division by zero raises is a setting of the node: `value` is False where it gives NULL instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.plan.expression import Expression
from headrace.plan.native import decimals
from headrace.plan.native.rule import Datum, NeedsCatalyst, Rows, Rule, over_args, result_of_args
from headrace.plan.native.vectors import elementwise
from headrace.relation.types import SqlType

# Addition, subtraction, multiplication, sign.


def _arithmetic_types(node: Expression) -> bool:
    if not node.type.is_decimal:
        return node.type.is_numeric and result_of_args(node)
    left, right = (arg.type for arg in node.args)
    if not (left.is_decimal and right.is_decimal):
        return False
    precision, scale = _exact_decimal(node.op, left, right)
    # Spark rounds where the declared types leave no room and it gives up digits of the scale.
    return (node.type.precision, node.type.scale) == (min(precision, 38), scale)


def _exact_decimal(op: str, left: SqlType, right: SqlType) -> tuple[int, int]:
    """Precision and scale that hold every result; the rule of Spark and of Arrow alike, up to 38 digits."""
    if op == "Multiply":
        return left.precision + right.precision + 1, left.scale + right.scale
    scale = max(left.scale, right.scale)
    return max(left.precision - left.scale, right.precision - right.scale) + scale + 1, scale


def _arithmetic(checked: Callable[..., Datum]) -> Rule:
    def compute(node: Expression, rows: Rows) -> Datum:
        left, right = rows.values(node.args)
        if not node.type.is_decimal or _exact_decimal(node.op, node.args[0].type, node.args[1].type)[0] <= 38:
            return checked(left, right)
        # The declared types leave no room, but the values at hand mostly do; if not, Arrow refuses the precision.
        return decimals.retyped(checked(decimals.narrowed(left), decimals.narrowed(right)), node.type.arrow)

    return Rule(_arithmetic_types, compute)


def _sign_types(node: Expression) -> bool:
    # Beyond 34 digits Spark rounds even here (Scala's BigDecimal applies its default context to a negation).
    return node.type.is_numeric and node.type.precision <= 34 and result_of_args(node)


# Division.


def _dividend_and_divisor(node: Expression, rows: Rows) -> tuple[Datum, Datum]:
    """The two operands, with NULL in place of zero divisors; raises NeedsCatalyst where Spark would raise."""
    dividend, divisor = rows.values(node.args)
    is_zero = pc.equal(divisor, pa.scalar(0, divisor.type))
    if not pc.any(is_zero).as_py():
        return dividend, divisor
    if node.value is not False and pc.any(pc.and_(is_zero, pc.is_valid(dividend))).as_py():
        raise NeedsCatalyst("division by zero")
    return dividend, pc.if_else(is_zero, pa.scalar(None, divisor.type), divisor)


def _divide_types(node: Expression) -> bool:
    if node.type.is_decimal:
        return all(arg.type.is_decimal for arg in node.args)
    return node.type.kind == "double" and result_of_args(node)


def _divide(node: Expression, rows: Rows) -> Datum:
    dividend, divisor = _dividend_and_divisor(node, rows)
    if node.type.is_decimal:
        return decimals.quotient(dividend, divisor, node.type.arrow)
    return pc.divide(dividend, divisor)


def _integral_divide(node: Expression, rows: Rows) -> Datum:
    return pc.divide_checked(*_dividend_and_divisor(node, rows))


def _remainder_types(node: Expression) -> bool:
    return (node.type.is_integer or node.type.is_floating) and result_of_args(node)


def _remainder(node: Expression, rows: Rows) -> Datum:
    # As in Java, and not as in Python: the sign is the dividend's.
    return elementwise(np.fmod, node.type.arrow, *_dividend_and_divisor(node, rows))


def _positive_remainder(node: Expression, rows: Rows) -> Datum:
    return elementwise(_pmod, node.type.arrow, *_dividend_and_divisor(node, rows))


def _pmod(a: NDArray[Any], n: NDArray[Any]) -> NDArray[Any]:
    remainder: NDArray[Any] = np.fmod(a, n)
    negative: NDArray[np.bool_] = remainder < 0
    if remainder.dtype.kind == "f":
        return np.where(negative, np.fmod(remainder + n, n), remainder)
    if remainder.dtype.itemsize >= 4 and bool(np.any(negative & (n < np.iinfo(n.dtype).min // 2))):
        raise NeedsCatalyst("the sum of a remainder and its divisor may overflow, which Java would not notice")
    # Spark's (remainder + n) % n; for a negative n that is the remainder again.
    return np.where(negative & (n > 0), remainder + n, remainder)


# Floating point and bits.


def _one_zero_one_nan(a: Datum) -> Datum:
    return pc.if_else(pc.is_nan(a), pa.scalar(float("nan"), a.type), pc.add(a, pa.scalar(0.0, a.type)))


def _integer_types(node: Expression) -> bool:
    return node.type.is_integer and result_of_args(node)


RULES = {
    "Add": _arithmetic(pc.add_checked),
    "Subtract": _arithmetic(pc.subtract_checked),
    "Multiply": _arithmetic(pc.multiply_checked),
    "UnaryMinus": Rule(_sign_types, over_args(pc.negate_checked)),
    "Abs": Rule(_sign_types, over_args(pc.abs_checked)),
    "Divide": Rule(_divide_types, _divide),
    "IntegralDivide": Rule(_integer_types, _integral_divide),
    "Remainder": Rule(_remainder_types, _remainder),
    "Pmod": Rule(_remainder_types, _positive_remainder),
    # The only function of doubles here: IEEE 754 defines its last bit, and leaves that of exp, log and sin open.
    "Sqrt": Rule(lambda node: node.type.kind == "double" and result_of_args(node), over_args(pc.sqrt)),
    "NormalizeNaNAndZero": Rule(lambda node: node.type.is_floating, over_args(_one_zero_one_nan)),
    "KnownFloatingPointNormalized": Rule(result_of_args, over_args(lambda a: a)),
    "BitwiseAnd": Rule(_integer_types, over_args(pc.bit_wise_and)),
    "BitwiseOr": Rule(_integer_types, over_args(pc.bit_wise_or)),
    "BitwiseXor": Rule(_integer_types, over_args(pc.bit_wise_xor)),
    "BitwiseNot": Rule(_integer_types, over_args(pc.bit_wise_not)),
}
