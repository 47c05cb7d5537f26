"""From payloads to SQL values: rounding and overflow against Python's decimal module."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Context, Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import ArithmeticOverflowError
from headrace.operators.finish import finish
from headrace.operators.layout import ViewLayout
from headrace.plan.expression import column
from headrace.plan.view import Aggregate, Shape, TableRows, ViewPlan
from headrace.relation.types import SqlType
from headrace.rings import Compensated, Integer

WIDE = Context(prec=200, rounding=ROUND_HALF_UP)


def layout_of(argument: str, function: str, result: str, *, nullable: bool = True) -> ViewLayout:
    x = column("x", SqlType.parse(argument), nullable)
    aggregate = Aggregate(function, 0, SqlType.parse(result), f"{function}(x)")
    return ViewLayout(ViewPlan(TableRows("t"), Shape.GROUPS, (), (x,), (aggregate,), None, ()), seed=1)


def finished(layout: ViewLayout, sums: list[int], counts: list[int]) -> list[object]:
    """Finish groups with these exact (unscaled) sums and counts."""
    ring = layout.components[-1].ring
    assert isinstance(ring, Integer)
    limbs = [[(value >> (64 * limb)) % 2**64 for value in sums] for limb in range(ring.limbs)]
    payload = tuple(np.array(limb, np.uint64).view(dtype) for limb, dtype in zip(limbs, ring.dtypes, strict=True))
    count = np.array(counts, np.int64)
    table = finish(layout, [], (count, count, *payload) if len(layout.components) == 3 else (count, *payload), {})
    array = table.column("a0").combine_chunks()
    array.validate(full=True)
    assert array.type == layout.plan.aggregates[0].type.arrow
    assert table.column("__rows").to_pylist() == counts
    return array.to_pylist()


def result_types(precision: int, scale: int) -> tuple[str, str]:
    """Spark's types of SUM and AVG of a decimal."""
    return f"decimal({min(precision + 10, 38)},{scale})", f"decimal({min(precision + 4, 38)},{min(scale + 4, 38)})"


PRECISIONS = st.integers(1, 38).flatmap(lambda p: st.tuples(st.just(p), st.integers(0, p)))


@settings(max_examples=60, deadline=None)
@given(PRECISIONS, st.lists(st.tuples(st.integers(-(10**40), 10**40), st.integers(1, 10**6)), min_size=1, max_size=8))
def test_averages_of_decimals_round_half_up_as_python_does(kind, groups):
    precision, scale = kind
    result = SqlType.parse(result_types(precision, scale)[1])
    bound = 10 ** (result.precision - result.scale + scale)
    sums = [total % bound - bound // 2 for total, _ in groups]
    step = Decimal(1).scaleb(-result.scale)
    expected = [
        WIDE.quantize(WIDE.divide(Decimal(total).scaleb(-scale, WIDE), Decimal(n)), step)
        for total, (_, n) in zip(sums, groups, strict=True)
    ]
    layout = layout_of(f"decimal({precision},{scale})", "avg", str(result))
    assert finished(layout, sums, [n for _, n in groups]) == expected


@pytest.mark.parametrize(
    ("total", "count", "expected"),
    [
        (1, 32, "0.03125"),
        (-1, 32, "-0.03125"),
        (5, 100_000 * 2, "0.00003"),
        (-5, 200_000, "-0.00003"),
        (1, 3, "0.33333"),
    ],
)
def test_halves_round_away_from_zero(total, count, expected):
    layout = layout_of("decimal(10,1)", "avg", "decimal(14,5)")
    assert finished(layout, [total * 10], [count]) == [Decimal(expected)]


@pytest.mark.parametrize("precision", range(1, 39))
def test_a_sum_of_decimals_fits_up_to_the_last_value_and_not_beyond(precision):
    result = SqlType.parse(result_types(precision, 0)[0])
    layout = layout_of(f"decimal({precision},0)", "sum", str(result))
    top = 10**result.precision
    edges = [top - 1, 1 - top, 0, top // 2, -(top // 2), 1, -1]
    assert finished(layout, edges, [1] * 7) == [Decimal(edge) for edge in edges]
    spill = [value for value in (top, -top, top + 1, 2 * top, 2**127, -(2**127)) if abs(value) >= top]
    for value in spill + ([2**128, -(2**130), 2**190] if precision > 28 else []):
        with pytest.raises(
            ArithmeticOverflowError, match=r"sum\(x\) no longer fits DECIMAL\(.*\n  -> cast its argument"
        ):
            finished(layout, [0, value], [1, 1])


@settings(max_examples=60, deadline=None)
@given(PRECISIONS, st.lists(st.integers(-(10**38) + 1, 10**38 - 1), min_size=1, max_size=8))
def test_sums_of_decimals_are_exact(kind, totals):
    precision, scale = kind
    result = SqlType.parse(result_types(precision, scale)[0])
    totals = [abs(total) % 10**result.precision * (1 if total > 0 else -1) for total in totals]
    layout = layout_of(f"decimal({precision},{scale})", "sum", str(result))
    assert finished(layout, totals, [1] * len(totals)) == [Decimal(t).scaleb(-scale, WIDE) for t in totals]


def test_an_average_that_does_not_fit_is_an_error():
    layout = layout_of("decimal(38,0)", "avg", "decimal(38,4)")
    assert finished(layout, [10**34 - 1], [1]) == [Decimal(10**34 - 1)]
    with pytest.raises(ArithmeticOverflowError, match=r"avg\(x\) no longer fits DECIMAL\(38,4\)"):
        finished(layout, [10**34], [1])


@pytest.mark.parametrize("value", [2**63 - 1, -(2**63), 0])
def test_a_sum_of_integers_fits_64_bits(value):
    assert finished(layout_of("bigint", "sum", "bigint"), [value], [1]) == [value]


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 2**64, 2**127 - 1])
def test_a_sum_of_integers_beyond_64_bits_is_an_error_not_a_wrapped_number(value):
    with pytest.raises(ArithmeticOverflowError, match=r"sum\(x\) no longer fits BIGINT"):
        finished(layout_of("bigint", "sum", "bigint"), [value], [1])


def test_the_average_of_integers_is_a_double_even_beyond_64_bits():
    layout = layout_of("bigint", "avg", "double")
    assert finished(layout, [2**70, -3, 7], [2**10, 2, 0]) == [2.0**60, -1.5, None]


@pytest.mark.parametrize(
    ("argument", "function", "result"),
    [
        ("int", "sum", "bigint"),
        ("bigint", "sum", "bigint"),
        ("bigint", "avg", "double"),
        ("decimal(9,2)", "sum", "decimal(19,2)"),
        ("decimal(38,2)", "sum", "decimal(38,2)"),
        ("decimal(9,2)", "avg", "decimal(13,6)"),
    ],
)
def test_without_a_value_the_result_is_null(argument, function, result):
    assert finished(layout_of(argument, function, result), [0, 0], [0, 0]) == [None, None]
    assert finished(layout_of(argument, function, result), [], []) == []
    assert finished(layout_of(argument, function, result, nullable=False), [0], [0]) == [None]


@pytest.mark.parametrize(("function", "expected"), [("sum", [0.75, None]), ("avg", [0.25, None]), ("count", [3, 0])])
def test_doubles_are_summed_averaged_and_counted(function, expected):
    layout = layout_of("double", function, "bigint" if function == "count" else "double")
    present, payload = np.array([3, 0]), Compensated().lift(np.array([0.75, 0.0]))
    parts = (present + 1, present) if function == "count" else (present + 1, present, *payload)
    assert finish(layout, [], parts, {}).column("a0").to_pylist() == expected


def test_extremes_pass_through():
    layout = layout_of("string", "min", "string")
    names = pa.array(["a", None], pa.large_string())
    assert finish(layout, [], (np.array([1, 2]),), {"min0": names}).column("a0").to_pylist() == ["a", None]
