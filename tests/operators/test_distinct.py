"""COUNT(DISTINCT): by hand, where a random stream seldom goes. Random streams are in test_aggregate."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from headrace.operators.aggregate import maintain, read, read_changes
from headrace.operators.delta import deltas, group_words
from headrace.operators.kernel import Evaluated, Reduced
from headrace.operators.layout import GROUPS, ViewLayout
from headrace.plan.expression import column
from headrace.plan.view import Aggregate, Shape, ViewPlan
from headrace.relation.run import Run
from headrace.relation.types import SqlType

BIGINT = SqlType("bigint")
Rows = list[tuple[str, object, int]]  # group, value, multiplicity


def layout_of(kind: str, functions: tuple[str, ...] = ("count_distinct",)) -> ViewLayout:
    value = SqlType.parse(kind)
    aggregates = tuple(
        Aggregate(f, 0, BIGINT if f in ("count_distinct", "sum") else value, f"{f}(x)") for f in functions
    )
    keys, arguments = (column("g", SqlType("string"), True),), (column("x", value, True),)
    return ViewLayout(ViewPlan("t", Shape.GROUPS, None, keys, arguments, aggregates, None, ()), seed=5)


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
