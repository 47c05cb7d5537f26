"""Functions over windows of rows, beside their definitions in plain Python, and what steps read to keep them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.operators.test_top import POOLS, Row, _By, on_disk
from tests.seeds import seeds

from headrace.operators.changes import Changes
from headrace.operators.over import OverLayout
from headrace.plan.over import First, Frame, OverFunction
from headrace.plan.tree import Feed, Field, Over, Port
from headrace.relation.coded import values
from headrace.relation.run import Run
from headrace.relation.runset import AnyRun, Entries, RunSet
from headrace.relation.types import SqlType

BIGINT, DOUBLE = SqlType("bigint"), SqlType("double")
NUMBERS = ("row_number", "rank", "dense_rank")
Order = tuple[tuple[int, bool, bool], ...]


def over(
    types: Sequence[str], keys: int, order: Order, functions: Sequence[OverFunction], first: First | None = None
) -> OverLayout:
    fields = tuple(Field(f"c{i}", SqlType.parse(kind), True) for i, kind in enumerate(types))
    return OverLayout(
        Over(Port(fields, (Feed(None, None, (), "t", "t"),)), keys, order, tuple(functions), first), "0", 7
    )


@dataclass
class Kept:
    """An operator with its state: one run per step, in files, which are never merged."""

    layout: OverLayout
    runs: list[AnyRun] = field(default_factory=list)
    given: Counter[Row] = field(default_factory=Counter)

    def step(self, rows: Iterable[tuple[Row, int]]) -> int:
        """Apply changed rows; returns how many rows are given."""
        listed = list(rows)
        fields = self.layout.node.port.fields
        arrays = {f.name: pa.array([row[i] for row, _ in listed], f.type.arrow) for i, f in enumerate(fields)}
        changes = Changes(arrays, np.array([diff for _, diff in listed], np.int64))
        operator = self.layout.operator({self.layout.rows_part: RunSet(self.runs)})
        operator.push(self.layout.rows_part, self.layout.rows.run(changes))
        given = operator.flush()
        self.runs += [on_disk(run) for run in operator.runs.values()]
        if given is None:
            return 0
        columns = [values(given.columns[f.name]).to_pylist() for f in self.layout.node.fields]
        for *row, diff in zip(*columns, given.diff.tolist(), strict=True):
            self.given[tuple(_told(value) for value in row)] += diff
        self.given = Counter({row: n for row, n in self.given.items() if n})
        assert min(self.given.values(), default=1) > 0, "a row is taken back that was not given"
        return given.rows


def _told(value: Any) -> Any:
    return repr(value + 0.0) if isinstance(value, float) else value


def answer(layout: OverLayout, there: Counter[Row]) -> Counter[Row]:
    """The rows with the values of all functions, by definition."""
    node, out = layout.node, Counter[Row]()
    items = [*node.order, *((i, False, True) for i in range(node.keys, len(node.port.fields)))]
    for partition in {tuple(map(_told, row[: node.keys])) for row in there}:
        own = [row for row in there.elements() if tuple(map(_told, row[: node.keys])) == partition]
        own.sort(key=lambda row: [_By(row[i], descending, nulls) for i, descending, nulls in items])
        places = [[_By(row[i], descending, nulls) for i, descending, nulls in node.order] for row in own]
        numbers = {name: [_number(name, places, at) for at in range(len(own))] for name in NUMBERS}
        for at, row in enumerate(own):
            if node.first is not None and numbers[node.first.function][at] > node.first.count:
                continue
            found = [
                numbers[f.function][at] if f.function in NUMBERS else _value(node, f, own, places, at)
                for f in node.functions
            ]
            out[tuple(_told(value) for value in (*row, *found))] += 1
    return out


def _number(name: str, places: list[list[_By]], at: int) -> int:
    if name == "row_number":
        return at + 1
    before = [place for place in places[:at] if place != places[at]]
    return (
        len(before) + 1 if name == "rank" else len([1 for i, p in enumerate(before) if not i or p != before[i - 1]]) + 1
    )


def _value(node: Over, function: OverFunction, own: list[Row], places: list[list[_By]], at: int) -> Any:
    if function.function in ("lag", "lead"):
        source = at + function.number
        return own[source][function.argument or 0] if 0 <= source < len(own) else None
    frame = function.frame
    assert frame is not None
    assert function.argument is not None
    seen = [row for i, row in enumerate(own) if _in_frame(node, frame, own, places, at, i)]
    if function.function == "count":
        return sum(row[function.argument] is not None for row in seen)
    if function.function == "last":
        return seen[-1][function.argument] if seen else None
    found = [row[function.argument] for row in seen if row[function.argument] is not None]
    if not found:
        return None
    if function.function in ("min", "max"):
        pick = min if function.function == "min" else max
        return pick(_By(value, False, True) for value in found).value
    return int(sum(map(Fraction, found)))


def _in_frame(node: Over, frame: Frame, own: list[Row], places: list[list[_By]], at: int, i: int) -> bool:
    if not frame.by_value:
        return (frame.low is None or i >= at + frame.low) and (frame.high is None or i <= at + frame.high)
    place, descending, _ = node.order[0]
    here, there = own[at][place], own[i][place]
    ties, sides = places[i] == places[at], []
    for bound, beyond, sign in ((frame.low, i > at, 1), (frame.high, i < at, -1)):
        if bound is None:
            sides.append(True)
        elif bound == 0:
            sides.append(ties or beyond)
        elif here is None or there is None:  # no distance leads from a NULL to other rows, or to one
            sides.append(ties if here is None else beyond)
        else:
            distance = (here - there) if descending else (there - here)
            sides.append(sign * distance >= sign * bound)
    return all(sides)


def random_layout(choose: random.Random) -> OverLayout:
    kind = choose.choice(["bigint", "bigint", "string", "double", "decimal(38,2)"])
    types = ["bigint", kind, "bigint", choose.choice(list(POOLS))]
    keys = choose.choice([0, 1])
    order: Order = ((1, choose.random() < 0.5, choose.random() < 0.5),)
    if choose.random() < 0.4:
        first = First(choose.choice(NUMBERS), choose.choice([1, 2, 3, 7]))
        return over(types, keys, order, [OverFunction(name, BIGINT, name) for name in NUMBERS], first)
    if choose.random() < 0.3:
        frame = Frame(choose.random() < 0.5, None, 0)
        names = ["row_number", "rank", "dense_rank"]
        functions = [OverFunction(name, BIGINT, name) for name in names]
        return over(types, keys, order, [*functions, OverFunction("sum", BIGINT, "sum", 2, frame)])
    by_value = kind == "bigint" and choose.random() < 0.5
    low, high = sorted([choose.randint(-4, 3), choose.randint(-3, 4)])
    frame = Frame(by_value, low, high)
    functions = [OverFunction("sum", BIGINT, "sum", 2, frame), OverFunction("count", BIGINT, "count", 3, frame)]
    if not by_value:
        functions += [OverFunction("lag", BIGINT, "lag", 2, number=-choose.randint(1, 3))]
        functions += [OverFunction("last", BIGINT, "last", 2, frame), OverFunction("min", BIGINT, "min", 2, frame)]
    return over(types, keys, order, functions)


@seeds("over", 40)
def test_what_is_given_is_each_row_with_its_values_by_definition(seed: int) -> None:
    choose = random.Random(seed)
    layout = random_layout(choose)
    kept, there = Kept(layout), Counter[Row]()
    types = [f.type for f in layout.node.port.fields]
    pools = [[0, 1], *(list(range(-9, 10)) if str(t) == "bigint" else list(POOLS[str(t)]) for t in types[1:])]
    for _ in range(25):
        changes: Counter[Row] = Counter()
        for _ in range(choose.choice([0, 1, 1, 3, 25])):
            row = tuple(None if choose.random() < 0.1 else choose.choice(pool) for pool in pools)
            changes[row] += choose.choice([1, 1, 2])
        alive = [row for row in there if there[row]]
        leaving = choose.choice([[], [], alive[:1], choose.sample(alive, len(alive) // 3), alive])
        for row in leaving if len(there) > 60 or len(leaving) < 5 else []:
            changes[row] -= choose.randint(1, there[row])
        there.update(changes)
        there = +there
        kept.step([(row, n) for row, n in changes.items() if n])
        assert kept.given == answer(layout, there), layout.node


def test_a_distance_in_a_column_of_the_partition_is_none() -> None:
    frame = Frame(True, -2, 0)
    layout = over(["bigint", "bigint"], 1, ((0, False, True),), [OverFunction("count", BIGINT, "count", 1, frame)])
    kept, there = Kept(layout), Counter[Row]()
    for row in ((1, 5), (1, 2), (2, 9), (1, 7), (1, 1)):
        there[row] += 1
        kept.step([(row, 1)])
        assert kept.given == answer(layout, there)


@dataclass
class Reading:
    """Counts the entries that are copied out of runs."""

    entries: int = 0


@pytest.fixture
def reading(monkeypatch: pytest.MonkeyPatch) -> Reading:
    counted, take, words = Reading(), RunSet.take, RunSet.words

    def counting_take(self: RunSet, entries: Entries) -> Run:
        counted.entries += len(entries)
        return take(self, entries)

    def counting_words(self: RunSet, runs: Any, *given: Any) -> Any:
        counted.entries += len(runs)
        return words(self, runs, *given)

    monkeypatch.setattr(RunSet, "take", counting_take)
    monkeypatch.setattr(RunSet, "words", counting_words)
    return counted


@pytest.mark.parametrize(
    ("functions", "first", "most"),
    [
        ([OverFunction("row_number", BIGINT, "n")], First("row_number", 1), 30),
        ([OverFunction("rank", BIGINT, "n")], First("rank", 3), 80),
        ([OverFunction("sum", BIGINT, "s", 2, Frame(False, -6, 0))], None, 120),
        ([OverFunction("sum", BIGINT, "s", 2, Frame(True, -6, 0))], None, 120),
        ([OverFunction("lead", BIGINT, "l", 2, number=1)], None, 120),
    ],
)
def test_a_step_reads_what_is_near_its_changes_however_large_the_partition_is(
    reading: Reading, functions: list[OverFunction], first: First | None, most: int
) -> None:
    found = []
    for rows in (1_000, 50_000):
        kept = Kept(over(["bigint", "bigint", "bigint"], 1, ((1, False, True),), functions, first))
        kept.step(((number % 2, number, number), 1) for number in range(rows))
        reading.entries = 0
        at = 0 if first is not None else rows // 2
        given = kept.step([((0, at, at), -1), ((0, at + 2, -5), 1)])
        assert 0 < given < 40
        found.append(reading.entries)
    assert found[0] == found[1]
    assert 0 < found[0] <= most
