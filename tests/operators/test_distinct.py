"""DISTINCT values: by hand, where a random stream seldom goes. Random streams are in test_aggregate."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from tests.operators.group_words import group_words

from headrace.errors import ArithmeticOverflowError
from headrace.operators.aggregate import maintain, read, read_changes
from headrace.operators.delta import deltas, not_summable
from headrace.operators.kernel import Evaluated, Reduced
from headrace.operators.layout import GROUPS, ViewLayout
from headrace.plan.expression import column
from headrace.plan.view import Aggregate, Shape, TableRows, ViewPlan
from headrace.relation.run import Run
from headrace.relation.types import SqlType

BIGINT = SqlType("bigint")
Rows = list[tuple[str, object, int]]  # group, value, multiplicity


def layout_of(kind: str, functions: tuple[str, ...] = ("count_distinct",)) -> ViewLayout:
    value = SqlType.parse(kind)
    results = {"count_distinct": BIGINT, "sum": BIGINT, "sum_distinct": summed(value), "avg_distinct": averaged(value)}
    aggregates = tuple(Aggregate(f, 0, results.get(f, value), f"{f}(x)") for f in functions)
    keys, arguments = (column("g", SqlType("string"), True),), (column("x", value, True),)
    return ViewLayout(ViewPlan(TableRows("t"), Shape.GROUPS, keys, arguments, aggregates, None, ()), seed=5)


def summed(kind: SqlType) -> SqlType:
    if kind.is_decimal:
        return SqlType("decimal", min(kind.precision + 10, 38), kind.scale)
    return SqlType("double") if kind.is_floating else BIGINT


def averaged(kind: SqlType) -> SqlType:
    if kind.is_decimal:
        return SqlType("decimal", min(kind.precision + 4, 38), min(kind.scale + 4, 38))
    return SqlType("double")


class Bucket:
    """One bucket of a view, with a run more for every step."""

    def __init__(self, layout: ViewLayout) -> None:
        self.layout = layout
        self.state: dict[str, list[Run]] = {name: [] for name in layout.arrangements}

    def step(self, rows: Rows) -> Reduced:
        groups, values, diff = (list(part) for part in zip(*rows, strict=True))
        arrays = [pa.array(groups, pa.large_string())], [pa.array(values, self.layout.plan.arguments[0].type.arrow)]
        batch = Evaluated(*arrays, np.array(diff, np.int64), np.arange(len(rows)))
        arrived = deltas(self.layout, batch, group_words(self.layout, batch))
        done = maintain(self.layout, self.state, {name: [run] for name, run in arrived.items()})
        for name, run in done.runs.items():
            self.state[name].append(run)
        return done

    def shown(self) -> dict[str, tuple[object, ...]]:
        return by_group(read(self.layout, self.state))


def by_group(table: pa.Table) -> dict[str, tuple[object, ...]]:
    aggregates = [name for name in table.column_names if name.startswith("a")]
    return {row["k0"]: tuple(row[name] for name in aggregates) for row in table.to_pylist()}


def test_a_value_counts_once_until_its_last_copy_leaves() -> None:
    bucket = Bucket(layout_of("int"))
    bucket.step([("g", 7, 1), ("g", 7, 2), ("g", 8, 1), ("h", 7, 1)])
    assert bucket.shown() == {"g": (2,), "h": (1,)}
    assert bucket.step([("g", 7, -2)]).changes is None, "a copy is still there"
    done = bucket.step([("g", 7, -1)])
    assert done.changes is not None
    old, new = read_changes(bucket.layout, done.changes)
    assert (by_group(old), by_group(new)) == ({"g": (2,)}, {"g": (1,)})
    bucket.step([("g", 8, -1)])
    assert bucket.shown() == {"h": (1,)}, "a group without rows is no group"
    bucket.step([("g", 8, 1)])
    assert bucket.shown() == {"g": (1,), "h": (1,)}


def test_nulls_make_a_group_and_no_value() -> None:
    bucket = Bucket(layout_of("string"))
    bucket.step([("g", None, 2)])
    assert bucket.shown() == {"g": (0,)}
    bucket.step([("g", "", 1)])
    assert bucket.shown() == {"g": (1,)}


def test_a_value_that_is_exchanged_for_another_is_no_change_of_their_number() -> None:
    bucket = Bucket(layout_of("int"))
    bucket.step([("g", 1, 1)])
    done = bucket.step([("g", 1, -1), ("g", 2, 1)])
    assert done.changes is None
    assert not done.summary
    assert done.runs["ordered0"].rows == 2
    assert bucket.shown() == {"g": (1,)}


def test_strings_longer_and_shorter_than_those_of_other_runs() -> None:
    bucket = Bucket(layout_of("string"))
    words = ["a", "a\0", "a" * 8, "a" * 9, "a" * 40, "a" * 39 + "b"]
    for word in (*words, *reversed(words)):
        bucket.step([("g", word, 1)])
    assert bucket.shown() == {"g": (len(words),)}
    bucket.step([("g", word, -2) for word in words[1:]])
    assert bucket.shown() == {"g": (1,)}
    bucket.step([("g", "a" * 40, 1), ("g", "a", -2)])
    assert bucket.shown() == {"g": (1,)}


def test_one_arrangement_serves_the_extremes_too() -> None:
    layout = layout_of("int", ("count_distinct", "min", "max", "sum"))
    assert list(layout.arrangements) == [GROUPS, "ordered0"]
    bucket = Bucket(layout)
    bucket.step([("g", 3, 1), ("g", 5, 2), ("g", None, 1)])
    bucket.step([("g", 5, -2), ("g", 4, 1)])
    assert bucket.shown() == {"g": (2, 3, 4, 7)}


@pytest.mark.parametrize("seed", range(8))
def test_one_batch_is_its_rows_one_by_one(seed: int) -> None:
    pick = random.Random(seed)
    layout = layout_of("string")
    rows: Rows = [(pick.choice("gh"), pick.choice([None, "", "x", "y" * 20]), pick.choice([1, 2])) for _ in range(40)]
    rows += [(group, value, -n) for group, value, n in pick.sample(rows, 20)]
    whole, single = Bucket(layout), Bucket(layout)
    whole.step(rows)
    for row in rows:
        single.step([row])
    left = {(g, v) for g, v, _ in rows if v is not None and sum(n for h, w, n in rows if (h, w) == (g, v)) > 0}
    expected = {g: (sum(h == g for h, _ in left),) for g in "gh" if sum(n for h, _, n in rows if h == g)}
    assert whole.shown() == single.shown() == expected


def test_a_value_is_summed_once_until_its_last_copy_leaves() -> None:
    bucket = Bucket(layout_of("int", ("sum_distinct", "avg_distinct")))
    bucket.step([("g", 7, 1), ("g", 7, 2), ("g", 8, 1), ("h", None, 1)])
    assert bucket.shown() == {"g": (15, 7.5), "h": (None, None)}
    assert bucket.step([("g", 7, -2)]).changes is None, "a copy is still there"
    bucket.step([("g", 7, -1), ("h", -3, 4)])
    assert bucket.shown() == {"g": (8, 8.0), "h": (-3, -3.0)}
    bucket.step([("h", -3, -4)])
    assert bucket.shown() == {"g": (8, 8.0), "h": (None, None)}


def test_values_exchanged_for_others_of_the_same_sum_are_no_change_of_it() -> None:
    bucket = Bucket(layout_of("int", ("sum_distinct",)))
    bucket.step([("g", 1, 1), ("g", 2, 1)])
    done = bucket.step([("g", 1, -1), ("g", 2, -1), ("g", 3, 1)])
    assert done.changes is None, "three is what one and two were, and how many they are is not shown"
    bucket.step([("g", 0, 1), ("g", 3, -1)])
    assert bucket.shown() == {"g": (0,)}
    done = bucket.step([("g", 0, -1), ("g", None, 1)])
    assert done.changes is not None, "no value at all is NULL, and not 0"
    assert bucket.shown() == {"g": (None,)}


@pytest.mark.parametrize(
    ("kind", "values", "total", "average"),
    [
        ("tinyint", [-128, 127, 127], -1, -0.5),
        ("bigint", [2**62, 2**62, -(2**62), 5], 5, 5 / 3),
        ("float", [0.1, 0.1, 0.25], float(np.float32(0.1)) + 0.25, (float(np.float32(0.1)) + 0.25) / 2),
        ("double", [0.1, 0.2, 0.2, 1e100, -1e100], math.fsum([0.1, 0.2]), math.fsum([0.1, 0.2]) / 4),
        ("double", [0.0, -0.0, 3.0], 3.0, 1.5),
        ("decimal(9,2)", [Decimal("0.01"), Decimal("-5.00"), Decimal("0.01")], Decimal("-4.99"), Decimal("-2.495000")),
        ("decimal(38,6)", [Decimal(10) ** 31, Decimal("0.000001")], Decimal("1" + "0" * 31 + ".000001"), None),
    ],
)
def test_values_of_every_type_are_read_back_from_the_arrangement(
    kind: str, values: list[object], total: object, average: object
) -> None:
    functions = ("sum_distinct", "avg_distinct") if average is not None else ("sum_distinct",)
    bucket = Bucket(layout_of(kind, functions))
    for value in values:
        bucket.step([("g", value, 2)])
    assert bucket.shown() == {"g": (total, average)[: len(functions)]}
    for value in values:
        bucket.step([("g", value, -2), ("g", None, 1)])
    assert bucket.shown() == {"g": (None, None)[: len(functions)]}


def test_a_sum_of_different_values_that_does_not_fit_is_an_error_until_it_does() -> None:
    bucket = Bucket(layout_of("bigint", ("sum_distinct",)))
    bucket.step([("g", 2**62, 3), ("g", 2**62 + 1, 1)])
    with pytest.raises(ArithmeticOverflowError, match=r"sum_distinct\(x\) no longer fits BIGINT"):
        bucket.shown()
    bucket.step([("g", 2**62, -3)])
    assert bucket.shown() == {"g": (2**62 + 1,)}


def test_different_doubles_that_cannot_be_summed_are_refused() -> None:
    layout = layout_of("double", ("sum_distinct",))
    rows = Evaluated(
        [pa.array(["g", "g"], pa.large_string())], [pa.array([1.0, math.nan])], np.array([1, 1]), np.arange(2)
    )
    assert not_summable(layout, rows) == {1: "NaN or infinity (or more than 1e288) in x, which the view sums"}
    with pytest.raises(ArithmeticOverflowError, match="NaN or infinity"):
        deltas(layout, rows, group_words(layout, rows))


def combining(*kinds: str) -> ViewLayout:
    """COUNT(DISTINCT x0, x1, ...) of a table without groups."""
    arguments = tuple(column(f"x{i}", SqlType.parse(kind), True) for i, kind in enumerate(kinds))
    count = Aggregate("count_distinct", 0, BIGINT, "COUNT(DISTINCT ...)", tuple(range(1, len(kinds))))
    return ViewLayout(ViewPlan(TableRows("t"), Shape.TOTAL, (), arguments, (count,), None, ()), seed=5)


def counted(layout: ViewLayout, steps: list[list[tuple[object, ...]]], diffs: list[list[int]]) -> list[int]:
    state: dict[str, list[Run]] = {name: [] for name in layout.arrangements}
    answers = []
    for rows, diff in zip(steps, diffs, strict=True):
        arrays = [
            pa.array([row[i] for row in rows], argument.type.arrow) for i, argument in enumerate(layout.plan.arguments)
        ]
        batch = Evaluated([], arrays, np.array(diff, np.int64), np.arange(len(rows)))
        arrived = deltas(layout, batch, group_words(layout, batch))
        for name, run in maintain(layout, state, {name: [run] for name, run in arrived.items()}).runs.items():
            state[name].append(run)
        answers += read(layout, state).column("a0").to_pylist()
    return answers


def test_combinations_count_once_and_not_where_a_part_is_null() -> None:
    layout = combining("string", "double", "decimal(38,0)")
    assert list(layout.arrangements) == [GROUPS, "combined0_1_2"]
    nine = Decimal(9)
    first = [("a", 0.0, nine), ("a", -0.0, nine), ("a", 1.0, nine), (None, 1.0, nine), ("a", None, nine)]
    second = [
        ("a", math.nan, nine),
        ("a", -math.nan, nine),
        ("a\0", 0.0, nine),
        ("b" * 40, 0.0, nine),
        ("a", 1.0, None),
    ]
    third = [first[0], first[1], first[2], second[0], second[2]]
    assert counted(layout, [first, second, third], [[1] * 5, [1] * 5, [-1] * 5]) == [2, 5, 2]


def test_combinations_and_their_parts_are_kept_apart() -> None:
    both = combining("int", "int")
    plan = replace(both.plan, aggregates=(*both.plan.aggregates, Aggregate("count_distinct", 0, BIGINT, "one")))
    layout = ViewLayout(plan, seed=5)
    assert list(layout.arrangements) == [GROUPS, "ordered0", "combined0_1"]
    state: dict[str, list[Run]] = {name: [] for name in layout.arrangements}
    arrays = [pa.array([1, 1, 2, None, 2], pa.int32()), pa.array([1, 2, 1, 5, None], pa.int32())]
    batch = Evaluated([], arrays, np.ones(5, np.int64), np.arange(5))
    arrived = deltas(layout, batch, group_words(layout, batch))
    done = maintain(layout, state, {name: [run] for name, run in arrived.items()})
    assert done.live == {GROUPS: 1, "ordered0": 2, "combined0_1": 3}
    for name, run in done.runs.items():
        state[name].append(run)
    assert read(layout, state).select(["a0", "a1"]).to_pylist() == [{"a0": 3, "a1": 2}]
