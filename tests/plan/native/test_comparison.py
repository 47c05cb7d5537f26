"""Comparison, logic and choice against Spark, over every type."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from headrace.plan.native import choice, comparison

NAMES = ["ti", "si", "i", "l", "f", "d", "p", "q", "w", "h", "m", "s", "dt", "ts", "tn", "o"]


def of_every_type() -> Iterator[str]:
    for name in NAMES:
        a, b = f"{name}1", f"{name}2"
        yield from (a, f"{a} IS NULL", f"{a} IS NOT NULL", f"coalesce({a}, {b})", f"if(o1, {a}, {b})")
        yield from (f"{a} {op} {b}" for op in ("=", "<=>", "<", "<=", ">", ">=", "<>"))
        yield f"CASE WHEN o1 THEN {a} WHEN o2 THEN {b} END"
        yield f"CASE WHEN {a} = {b} THEN 1 WHEN o2 THEN 2 ELSE 3 END"
        yield from (f"{a} IN ({b}, NULL)", f"nvl2({a}, 1, 2)", f"decode({a}, {b}, 1, 2)", f"{a} BETWEEN {b} AND {a}")
        yield from (f"greatest({a}, {b})", f"least({a}, {b}, {a})")
        yield f"nullif({a}, {b})"
        if name not in ("s", "o"):
            yield f"{a} IN ({b})"


CONDITIONS = [
    "o1 AND o2",
    "o1 OR o2",
    "NOT o1",
    "o1 AND NULL",
    "o1 OR (d1 < 0 AND s1 = 'a')",
    "isnan(d1)",
    "isnan(f1)",
    "nanvl(d1, d2)",
    "nanvl(f1, f2)",
    "p1 > q1",
    "f1 = d1",
    "i1 > p1",
    "d1 < 1.5D",
    "d1 > 1.5D",
    "d1 >= double('NaN')",
    "d1 = double('NaN')",
    "d1 < double('NaN')",
    "d1 = -0.0D",
    "d1 IN (0.0D, double('NaN'))",
    "d1 IN (1.5D, NULL)",
    "i1 IN (1, 7)",
    "i1 IN (1, NULL)",
    "i1 NOT IN (1, 7)",
    "p1 IN (0, 0.01)",
    "s1 IN ('a', 'é')",
    "s1 NOT IN ('a', NULL)",
    "dt1 IN (DATE '1970-01-01')",
    "i1 IN (1,2,3,4,5,6,7,8,9,10,11,12,13,14,15)",
    "dt1 <= DATE '1998-09-02'",
    "ts1 < TIMESTAMP '2000-01-01'",
    "tn1 < TIMESTAMP_NTZ '2000-01-01'",
    "o1 = true",
    "dt1 BETWEEN DATE '1970-01-01' AND DATE '2000-02-29'",
    "s1 >= 'b'",
    "s1 < 'é'",
]
LITERALS = ["1", "'x'", "CAST(NULL AS INT)", "1.5", "true", "2Y", "3S", "DATE '2020-01-01'", "TIMESTAMP '2020-01-01'"]
# What is not chosen is not evaluated, so it does not raise.
GUARDED = [
    "CASE WHEN i2 <> 0 THEN i1 / i2 END",
    "CASE WHEN i2 = 0 THEN 0 WHEN i1 / i2 > 1 THEN 1 ELSE 10 / i2 END",
    "if(q1 = 0, CAST(0 AS DECIMAL(20,7)), p1 / q1)",
    "if(abs(l1) < 10, CAST(l1 AS TINYINT), 0Y)",
    "i2 <> 0 AND i1 / i2 > 1",
    "i2 = 0 OR i1 % i2 = 1",
    "i2 IS NULL OR i2 = 0 OR i1 div i2 > 1",
    "coalesce(nullif(i1 / nullif(i2, 0), 7) / 2, 1 / (i2 + 1.5D))",
    "coalesce(i2 * 0 + 1, 1 / i2)",
    "CASE WHEN xi1 < 100 AND xi1 > -100 THEN xi1 * xi1 ELSE -1 END",
    "CASE WHEN i2 <> 0 THEN CASE WHEN i1 <> 0 THEN 1 / i1 + 1 / i2 END END",
    "if(xi1 > 100, 'many', if(xi1 + 2147483547 > 0, 'some', 'none'))",
]


def test_comparison_and_choice_give_sparks_values(agrees: Callable[..., None]) -> None:
    agrees([*of_every_type(), *CONDITIONS, *LITERALS], comparison.RULES | choice.RULES)


@pytest.mark.parametrize("ansi", [True, False])
def test_what_is_not_chosen_does_not_raise(agrees: Callable[..., None], ansi: bool) -> None:
    agrees(GUARDED, ansi=ansi)


def test_a_branch_that_raises_in_a_chosen_row_is_left_to_catalyst(refuses: Callable[..., None]) -> None:
    refuses("CASE WHEN i2 <> 1 THEN i1 / i2 END")
    refuses("i2 <> 1 AND i1 / i2 > 1")
    refuses("if(true, i1 / i2, 1.0D)")


def test_collations_are_left_to_catalyst(leaves: Callable[..., None]) -> None:
    leaves("s1 COLLATE UTF8_LCASE = 'a'", "Collate")
