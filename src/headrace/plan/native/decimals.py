"""Decimals as Spark computes with them: exact, or rounded half up to the digits that the result's type has.

Arrow's decimals are integers with a declared precision and scale. Declaring them anew is free, and decides how many
digits Arrow keeps of a quotient and when it refuses a result; most of this module is the choice of declarations.
"""

from __future__ import annotations

from decimal import Context, Decimal
from itertools import repeat

import pyarrow as pa
import pyarrow.compute as pc

from headrace.plan.native.rule import Datum
from headrace.plan.native.vectors import over_array

HALF_UP = "half_towards_infinity"
_EXACT = Context(prec=160)
_LARGEST_EXACT_POWER = 22  # the largest power of ten that is a double


def retyped(values: Datum, type: pa.DataType) -> Datum:
    """The same integers, declared as decimals of another precision or scale."""
    return over_array(lambda a: pa.Array.from_buffers(type, len(a), a.buffers(), offset=a.offset), values)


def digits(values: Datum) -> int:
    """How many digits the longest of the values has, without leading zeros."""
    extremes = [extreme.as_py() for extreme in pc.min_max(values).values()]
    return max([len(extreme.as_tuple().digits) for extreme in extremes if extreme is not None], default=1)


def narrowed(values: Datum) -> Datum:
    """The same decimals, declared with no more digits than they have."""
    return retyped(values, pa.decimal128(max(digits(values), values.type.scale), values.type.scale))


def rounded(values: Datum, type: pa.DataType, mode: str = HALF_UP, places: int | None = None) -> Datum:
    """Round to some places after the point (by default those of the type) and convert to a type of decimals.

    Arrow refuses what does not fit.
    """
    if places is None and type.scale >= values.type.scale:
        return pc.cast(values, type)
    # With room for a carry: 9.99 becomes 10.0.
    scale = values.type.scale
    has_room = values.type.precision < 38
    roomy = retyped(values, pa.decimal128(38, scale)) if has_room else pc.cast(values, pa.decimal256(76, scale))
    return pc.cast(pc.round(roomy, type.scale if places is None else places, round_mode=mode), type)


def to_floating(values: Datum, type: pa.DataType) -> Datum:
    """The nearest double or float, as Java's BigDecimal gives it."""
    scale = values.type.scale
    if pa.types.is_float64(type) and scale <= _LARGEST_EXACT_POWER and digits(values) <= 15:
        # The integer and the power of ten are exact doubles, so their quotient is rounded only once.
        whole = pc.cast(pc.cast(retyped(values, pa.decimal128(38, 0)), pa.int64()), type)
        return pc.divide(whole, pa.scalar(10.0**scale))
    return pc.cast(pc.cast(values, pa.large_string()), type)  # reading a number rounds correctly; converting does not


def quotient(a: Datum, b: Datum, type: pa.DataType) -> Datum:
    """Divide, with no zero in `b`, and round the exact quotient half up."""
    scale_a, scale_b = a.type.scale, b.type.scale
    digits_a, digits_b = digits(a), digits(b)
    places = type.scale + scale_b - scale_a  # decimal places wanted of the quotient of the two integers
    # Arrow keeps one place more than it believes the divisor to have digits (but at least 4), and drops the others.
    believed = max(places, digits_b, 3)
    kept = believed + 1
    if not (0 <= places < 38 and digits_a + kept <= 76):
        return _long_quotient(a, b, type)
    wide = digits_a + kept > 38
    integers = [retyped(values, pa.decimal128(n, 0)) for values, n in ((a, digits_a), (b, min(believed, 38)))]
    if wide:
        kinds = pa.decimal256(digits_a, 0), pa.decimal256(believed, 0)
        integers = [pc.cast(values, kind) for values, kind in zip(integers, kinds, strict=True)]
    result = pc.round(pc.divide(*integers), places, round_mode=HALF_UP)
    return retyped(pc.cast(result, pa.decimal128(type.precision, places)), type)


def _long_quotient(a: Datum, b: Datum, type: pa.DataType) -> Datum:
    """As `quotient`, one row at a time, for numbers of more digits than Arrow has."""
    if isinstance(a, pa.Scalar) and isinstance(b, pa.Scalar):
        return pa.scalar(_exactly(a.as_py(), b.as_py(), type), type)
    rows = [repeat(values.as_py()) if isinstance(values, pa.Scalar) else values.to_pylist() for values in (a, b)]
    return pa.array([_exactly(x, y, type) for x, y in zip(*rows, strict=False)], type)


def _exactly(a: Decimal | None, b: Decimal | None, type: pa.DataType) -> Decimal | None:
    if a is None or b is None:
        return None
    (over, over_scale), (under, under_scale) = _integer(a), _integer(b)
    shift = type.scale + under_scale - over_scale
    over, under = over * 10 ** max(shift, 0), under * 10 ** max(-shift, 0)
    whole = (2 * abs(over) + abs(under)) // (2 * abs(under))
    return Decimal(whole if (over < 0) == (under < 0) else -whole).scaleb(-type.scale, _EXACT)


def _integer(value: Decimal) -> tuple[int, int]:
    scale = -int(value.as_tuple().exponent)
    return int(value.scaleb(scale, _EXACT)), scale
