"""Aggregates over the values of a group in their order, against Python's own sorting, under random changes."""

from __future__ import annotations

import math
import random
from collections import Counter
from functools import reduce
from operator import and_, or_, xor

import numpy as np
import pyarrow as pa
import pytest
from tests.operators.group_words import group_words
from tests.seeds import SEED

from headrace.operators import place
from headrace.operators.aggregate import maintain, read, read_changes
from headrace.operators.delta import deltas
from headrace.operators.kernel import Evaluated, Reduced
from headrace.operators.layout import ViewLayout
from headrace.plan.expression import column
from headrace.plan.view import Aggregate, Shape, TableRows, ViewPlan
from headrace.relation.run import Run, merge
from headrace.relation.types import SqlType

BIGINT, DOUBLE, STRING = SqlType("bigint"), SqlType("double"), SqlType("string")
ARGUMENTS = (BIGINT, DOUBLE, STRING)  # a number with ties, another one, a text
Row = tuple[str, int | None, float | None, str | None]
RANKS = (0.0, 0.1, 0.25, 0.5, 0.77, 0.99, 1.0)


def layout_of(*aggregates: Aggregate) -> ViewLayout:
    keys = (column("g", STRING, True),)
    arguments = tuple(column(f"x{i}", kind, True) for i, kind in enumerate(ARGUMENTS))
    return ViewLayout(ViewPlan(TableRows("t"), Shape.GROUPS, keys, arguments, aggregates, None, ()), seed=5)


class Bucket:
    """One bucket of a view, with a run more for every step, of which some are merged now and then."""

    def __init__(self, layout: ViewLayout, choose: random.Random) -> None:
        self.layout, self.choose = layout, choose
        self.state: dict[str, list[Run]] = {name: [] for name in layout.arrangements}

    def step(self, rows: list[tuple[Row, int]]) -> Reduced:
        groups, *values = zip(*(row for row, _ in rows), strict=True)
        arrays = [pa.array(list(c), kind.arrow) for c, kind in zip(values, ARGUMENTS, strict=True)]
        diff = np.array([times for _, times in rows], np.int64)
        batch = Evaluated([pa.array(groups, pa.large_string())], arrays, diff, np.arange(len(rows)))
        arrived = deltas(self.layout, batch, group_words(self.layout, batch))
        done = maintain(self.layout, self.state, {name: [run] for name, run in arrived.items()})
        for name, run in done.runs.items():
            runs = [*self.state[name], run]
            if self.choose.random() < 0.2:
                runs = [merge(self.layout.arrangements[name], runs)]
            self.state[name] = runs
        return done

    def shown(self) -> dict[str, tuple[object, ...]]:
        return by_group(read(self.layout, self.state))


def by_group(table: pa.Table) -> dict[str, tuple[object, ...]]:
    names = [name for name in table.column_names if name.startswith("a")]
    return {row["k0"]: tuple(row[name] for name in names) for row in table.to_pylist()}


def percentile(values: list[float], rank: float, descending: bool, discrete: bool) -> float | None:
    if not values:
        return None
    values = sorted(values, reverse=descending)
    if discrete:
        return values[max(math.ceil(len(values) * rank), 1) - 1]
    position = (len(values) - 1) * rank
    low, high = math.floor(position), math.ceil(position)
    if values[low] == values[high]:
        return float(values[low])
    return (high - position) * values[low] + (position - low) * values[high]


def least_key(pair: tuple[object, ...]) -> tuple[object, ...]:
    """NULL is less than any other value, and texts are in the order of their bytes."""
    return tuple(
        (part is not None, part.encode() if isinstance(part, str) else (0 if part is None else part)) for part in pair
    )


def expected(one: Aggregate, rows: list[Row]) -> object:
    """What the function gives for the rows of a group."""
    assert one.argument is not None
    own = [row[1 + one.argument] for row in rows if row[1 + one.argument] is not None]
    name, distinct = one.function.removesuffix("_distinct"), one.function.endswith("_distinct")
    own = sorted(set(own)) if distinct else own
    if name in ("percentile", "percentile_disc", "percentile_approx"):
        found = percentile(own, one.options[0], one.options[1], name != "percentile")
        return found if found is None or name == "percentile_approx" else float(found)
    if name in ("max_by", "min_by"):
        pairs = [(row[1 + one.argument], row[1 + one.others[0]]) for row in rows if row[1 + one.argument] is not None]
        return (max if name == "max_by" else min)(pairs, key=least_key)[1] if pairs else None
    if name == "listagg":
        delimiter, descending, *order = one.options
        if not own:
            return None
        if not one.others:
            return delimiter.join(sorted(own, key=str.encode, reverse=descending))
        pairs = [(row[1 + one.others[0]], row[1 + one.argument]) for row in rows if row[1 + one.argument] is not None]
        pairs.sort(key=lambda pair: pair[1].encode(), reverse=descending)
        pairs.sort(key=lambda pair: pair[0] or 0, reverse=order[0])
        pairs.sort(key=lambda pair: (pair[0] is None) != order[1])
        return delimiter.join(text for _, text in pairs)
    if not own:
        return None
    if name == "mode":
        counts = Counter(own)
        top = [value for value, n in counts.items() if n == max(counts.values())]
        return (max if one.options[0] else min)(top, key=lambda value: least_key((value,)))
    return reduce({"bit_and": and_, "bit_or": or_, "bit_xor": xor}[name], own)


def call(function: str, argument: int, *options: object, others: tuple[int, ...] = (), kind: SqlType = DOUBLE):
    return Aggregate(function, argument, kind, f"{function}({argument}, {options})", others, options=options)


AGGREGATES = {
    "percentiles": [
        call(name, i, rank, descending)
        for name in ("percentile", "percentile_disc", "percentile_distinct")
        for i in (0, 1)
        for rank, descending in [(rank, rank in (0.1, 0.77)) for rank in RANKS]
    ]
    + [call("percentile_approx", 0, rank, False, kind=BIGINT) for rank in RANKS],
    "by another": [
        *(call(f, y, others=(x,), kind=ARGUMENTS[x]) for f in ("max_by", "min_by") for y in range(3) for x in range(3)),
    ],
    "modes": [call("mode", i, descending, kind=ARGUMENTS[i]) for i in range(3) for descending in (False, True)],
    "bits": [call(f, 0, kind=BIGINT) for f in ("bit_and", "bit_or", "bit_xor", "bit_xor_distinct")],
    "lists": [
        *(call(f, 2, ", ", down, kind=STRING) for f in ("listagg", "listagg_distinct") for down in (False, True)),
        *(
            call("listagg", 2, "", down, descending, first, others=(i,), kind=STRING)
            for i in (0, 1)
            for down, descending, first in [(False, False, True), (True, True, False), (False, True, True)]
        ),
    ],
}


def some_row(choose: random.Random) -> Row:
    number = choose.choice([None, choose.randint(-3, 6), choose.randint(-3, 6), choose.choice([-(2**63), 2**63 - 1])])
    real = choose.choice([None, choose.randint(-4, 4) / 4, choose.uniform(-1e6, 1e6)])
    text = choose.choice([None, "", "b", "ab" * choose.randint(0, 12), "\U0001f600", "日本語のテキスト"])
    return choose.choice("ghi"), number, real, text


@pytest.mark.parametrize("kind", AGGREGATES)
@pytest.mark.parametrize("seed", range(4))
def test_after_every_step_the_answer_is_that_of_sorting(kind: str, seed: int) -> None:
    choose = random.Random(f"{SEED} {kind} {seed}")
    aggregates = AGGREGATES[kind]
    bucket, rows = Bucket(layout_of(*aggregates), choose), Counter[Row]()
    before: dict[str, tuple[object, ...]] = {}
    for _ in range(25):
        changes: list[tuple[Row, int]] = [
            (some_row(choose), choose.choice([1, 1, 2])) for _ in range(choose.choice([1, 2, 9]))
        ]
        there = sorted(rows.elements(), key=repr)
        leaving = choose.sample(there, min(len(there), choose.choice([0, 1, 3, 15])))
        changes += [(row, -1) for row in leaving]
        for row, times in changes:
            rows[row] += times
        done = bucket.step(changes)
        groups: dict[str, list[Row]] = {}
        for row in rows.elements():
            groups.setdefault(row[0], []).append(row)
        after = {group: tuple(expected(one, own) for one in aggregates) for group, own in groups.items()}
        assert bucket.shown() == after
        old, new = ({}, {}) if done.changes is None else map(by_group, read_changes(bucket.layout, done.changes))
        assert old == {group: row for group, row in before.items() if after.get(group) != row}
        assert new == {group: row for group, row in after.items() if before.get(group) != row}
        before = after


def test_what_was_deleted_first_is_no_value_yet() -> None:
    """As when changes of two tables come in an order of their own."""
    median = call("percentile", 0, 0.5, False)
    bucket = Bucket(layout_of(median, call("mode", 0, False, kind=BIGINT)), random.Random(1))
    bucket.step([(("g", 5, None, None), -2), (("g", 7, None, None), 1), (("g", 9, None, None), 2)])
    assert bucket.shown() == {"g": (9.0, 9)}
    bucket.step([(("g", 5, None, None), 3)])
    assert bucket.shown() == {"g": (8.0, 9)}


def test_a_place_passes_as_many_values_as_a_step_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    read_entries: list[int] = []
    plain = place.leading

    def counted(*args: object, **options: object) -> object:
        found = plain(*args, **options)
        read_entries.append(found.read)
        return found

    monkeypatch.setattr(place, "leading", counted)
    choose = random.Random(f"{SEED} places")
    largest = {}
    for size in (1_000, 30_000):
        bucket = Bucket(layout_of(call("percentile", 1, 0.5, False)), random.Random(3))
        values = [choose.random() for _ in range(size)]
        bucket.step([(("g", 0, value, None), 1) for value in values])
        read_entries.clear()
        for step in range(20):
            bucket.step([(("g", 0, choose.random(), None), 1), (("g", 0, values[step], None), -1)])
        largest[size] = max(read_entries)
    assert largest[30_000] <= 200, "a step of two rows reads some entries per run, whatever the size of the group"
    assert largest[30_000] <= 4 * largest[1_000]
