"""Comparison and logic. Spark orders doubles totally: NaN equals NaN and is above all else, and 0.0 equals -0.0."""

from __future__ import annotations

from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from headrace.plan.expression import Expression
from headrace.plan.native.rule import Datum, Rows, Rule, any_use, over_args, same_types


def equal(a: Datum, b: Datum) -> Datum:
    plain = pc.equal(a, b)
    return pc.or_(plain, pc.and_(pc.is_nan(a), pc.is_nan(b))) if pa.types.is_floating(a.type) else plain


def less(a: Datum, b: Datum) -> Datum:
    plain = pc.less(a, b)
    return pc.or_(plain, pc.and_(pc.is_nan(b), pc.invert(pc.is_nan(a)))) if pa.types.is_floating(a.type) else plain


def _less_equal(a: Datum, b: Datum) -> Datum:
    plain = pc.less_equal(a, b)
    return pc.or_(plain, pc.is_nan(b)) if pa.types.is_floating(a.type) else plain


def _null_safe_equal(a: Datum, b: Datum) -> Datum:
    return pc.or_(pc.fill_null(equal(a, b), False), pc.and_(pc.is_null(a), pc.is_null(b)))


def _in(node: Expression, rows: Rows) -> Datum:
    value, options = rows.value(node.args[0]), node.args[1:]
    if pa.types.is_floating(value.type) or any(option.op != "literal" for option in options):
        return reduce(pc.or_kleene, (equal(value, rows.value(option)) for option in options))
    known = [option.value for option in options if option.value is not None]
    found = pc.is_in(value, value_set=pa.array(known, node.args[0].type.arrow))
    # No match among options of which one is NULL is unknown, not false.
    certain = found if len(known) < len(options) else True
    return pc.if_else(pc.and_(pc.is_valid(value), certain), found, pa.scalar(None, pa.bool_()))


# The right side is looked at only where the left does not decide.


def _and(node: Expression, rows: Rows) -> Datum:
    left = rows.value(node.args[0])
    return pc.and_kleene(left, rows.value_where(pc.fill_null(left, True), node.args[1]))


def _or(node: Expression, rows: Rows) -> Datum:
    left = rows.value(node.args[0])
    return pc.or_kleene(left, rows.value_where(pc.invert(pc.fill_null(left, False)), node.args[1]))


RULES = {
    "IsNull": Rule(any_use, over_args(lambda a: pc.is_null(a))),
    "IsNotNull": Rule(any_use, over_args(pc.is_valid)),
    "IsNaN": Rule(any_use, over_args(lambda a: pc.fill_null(pc.is_nan(a), False))),
    "And": Rule(any_use, _and),
    "Or": Rule(any_use, _or),
    "Not": Rule(any_use, over_args(pc.invert)),
    "EqualTo": Rule(same_types, over_args(equal)),
    "EqualNullSafe": Rule(same_types, over_args(_null_safe_equal)),
    "LessThan": Rule(same_types, over_args(less)),
    "LessThanOrEqual": Rule(same_types, over_args(_less_equal)),
    "GreaterThan": Rule(same_types, over_args(lambda a, b: less(b, a))),
    "GreaterThanOrEqual": Rule(same_types, over_args(lambda a, b: _less_equal(b, a))),
    "In": Rule(same_types, _in),
}
