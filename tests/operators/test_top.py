"""The first rows of an order under random changes, beside Python's own sort, and what a step reads to find them."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.seeds import seeds

from headrace.operators import top as top_module
from headrace.operators.changes import Changes
from headrace.operators.top import TopLayout
from headrace.plan.tree import Feed, Field, Port, Top
from headrace.relation import runfile
from headrace.relation.arrangement import owed, runs_to_merge
from headrace.relation.coded import values
from headrace.relation.leading import Leading, leading
from headrace.relation.run import Run, merge
from headrace.relation.runset import AnyRun
from headrace.relation.storedrun import StoredRun
from headrace.relation.types import SqlType
from headrace.rings import COUNT

Row = tuple[Any, ...]
Order = tuple[tuple[int, bool, bool], ...]
LONG = "a string that begins like many others"
POOLS: dict[str, Sequence[object]] = {
    "bigint": range(-3, 4),
    "double": [0.0, 1.5, -1.5, math.nan, math.inf, -math.inf],
    "string": ["", "a", "a\0", "ab", *(LONG + tail for tail in ("", "!", "!!", "?", "\U0001f600"))],
    "decimal(38,2)": [Decimal("0.01"), Decimal("-0.01"), Decimal(f"{10**30}.00"), Decimal(f"-{10**30}.00")],
    "boolean": [False, True],
}


def layout_of(types: Sequence[str], order: Order, count: int, offset: int = 0) -> TopLayout:
    fields = tuple(Field(f"c{i}", SqlType.parse(kind), True) for i, kind in enumerate(types))
    return TopLayout(Top(Port(fields, (Feed(None, None, (), "t", "t"),)), order, count, offset), "0", 7)


def on_disk(run: Run) -> StoredRun:
    return runfile.decode(np.frombuffer(bytes(runfile.encode(run)), np.uint8), "in memory")


@dataclass
class Kept:
    """A top whose arrangements are merged as those of a location are; runs that are not short lie in files."""

    layout: TopLayout
    merges: bool = True
    runs: dict[str, list[AnyRun]] = field(default_factory=dict)
    live: dict[str, int] = field(default_factory=dict)

    def step(self, rows: Iterable[tuple[Row, int]]) -> Counter[str]:
        """Apply changed rows; gives the rows that come to those given, and below zero those that leave them."""
        listed = list(rows)
        fields = self.layout.node.port.fields
        arrays = {f.name: pa.array([row[i] for row, _ in listed], f.type.arrow) for i, f in enumerate(fields)}
        changes = Changes(arrays, np.array([diff for _, diff in listed], np.int64))
        operator = self.layout.operator({part: tuple(self.runs.get(part, ())) for part in self.layout.arrangements})
        operator.push(self.layout.rows_part, self.layout.rows.run(changes))
        given = operator.flush()
        for part, run in operator.runs.items():
            self._add(part, run, operator.live[part])
        out: Counter[str] = Counter()
        if given is not None:
            columns = [values(given.columns[f.name]).to_pylist() for f in fields]
            for *row, diff in zip(*columns, given.diff.tolist(), strict=True):
                out[repr(tuple(row))] += diff
        assert 0 not in out.values()
        return out

    def _add(self, part: str, run: Run, growth: int) -> None:
        live = self.live[part] = self.live.get(part, 0) + growth
        runs = self.runs.setdefault(part, [])
        sizes = [one.rows for one in runs]
        if not self.merges:
            runs.append(on_disk(run))
            return
        self._merge(part, runs_to_merge([size if size <= 1024 else 10**9 for size in sizes], run.rows, live), run)
        while due := owed([one.rows for one in self.runs[part]], live):
            self._merge(part, due)

    def _merge(self, part: str, chosen: Sequence[int], *more: Run) -> None:
        runs = self.runs[part]
        merged = merge(COUNT, [*(runs[i] for i in chosen), *more])  # type: ignore[misc]
        if len(chosen) == len(runs):
            self.live[part] = merged.rows
        kept = [run for i, run in enumerate(runs) if i not in set(chosen)]
        self.runs[part] = [*kept, on_disk(merged) if merged.rows > 3_000 else merged] if merged.rows else kept


class _By:
    def __init__(self, value: object, descending: bool, nulls_first: bool) -> None:
        if isinstance(value, float):
            value = (math.isnan(value), 0.0 if math.isnan(value) else value)
        self.value: Any = value.encode() if isinstance(value, str) else value
        self.descending, self.nulls_first = descending, nulls_first

    def __eq__(self, other: object) -> bool:
        assert isinstance(other, _By)
        return bool(self.value == other.value)

    def __lt__(self, other: _By) -> bool:
        if self.value is None or other.value is None:
            return self.value is not other.value and (self.value is None) == self.nulls_first
        return bool(other.value < self.value if self.descending else self.value < other.value)


def first(there: Counter[Row], layout: TopLayout) -> Counter[str]:
    """The rows that are given, by definition."""
    items = [*layout.node.order, *((i, False, True) for i in range(len(layout.node.port.fields)))]
    ordered = sorted(there, key=lambda row: [_By(row[i], descending, nulls) for i, descending, nulls in items])
    rows = [repr(row) for row in ordered for _ in range(min(there[row], 10_000))]
    start = layout.node.offset
    return Counter(rows[start : start + layout.node.count])


@pytest.mark.parametrize("behind", [1, 4, 256])
@seeds("top", 12)
def test_what_is_given_is_the_first_rows_by_definition(monkeypatch: pytest.MonkeyPatch, behind: int, seed: int) -> None:
    monkeypatch.setattr(top_module, "_BEHIND", behind)  # so that fronts are filled up and cut in few steps
    choose = random.Random(seed)
    types = [choose.choice(["string", *POOLS]) for _ in range(choose.randint(1, 3))]
    items = choose.sample(range(len(types)), choose.randint(0, len(types)))
    order = tuple((i, choose.random() < 0.5, choose.random() < 0.5) for i in items)
    count, offset = choose.choice([0, 1, 2, 5, 20, 1 << 63]), choose.choice([0, 0, 1, 3, 10])
    kept, there, given = Kept(layout_of(types, order, count, offset)), Counter[Row](), Counter[str]()
    for _ in range(40):
        changes: Counter[Row] = Counter()
        for _ in range(choose.choice([0, 1, 1, 3, 30])):
            row = tuple(None if choose.random() < 0.1 else choose.choice(list(POOLS[kind])) for kind in types)
            changes[row] += choose.choice([1, 1, 2])
        alive = [row for row in there if there[row]]
        leaving = choose.choice([[], alive, choose.sample(alive, len(alive) // 2), alive[:1], alive[-1:]])
        for row in leaving:
            changes[row] -= choose.randint(1, there[row])
        there.update(changes)
        there = +there
        given.update(kept.step([(row, n) for row, n in changes.items() if n]))
        assert {row: n for row, n in given.items() if n} == first(there, kept.layout)


def test_what_is_deleted_before_it_is_inserted_is_no_row() -> None:
    kept = Kept(layout_of(["bigint"], (), 2))
    assert kept.step([((1,), -1), ((2,), 1), ((3,), 1)]) == {"(2,)": 1, "(3,)": 1}
    assert kept.step([((4,), 1)]) == {}
    assert kept.step([((1,), 1)]) == {}
    assert kept.step([((1,), 1)]) == {"(1,)": 1, "(3,)": -1}


@dataclass
class Reading:
    """Counts what tops read of runs: entries of the order that are read on, and those of fronts and changes."""

    on: int = 0
    times: int = 0
    merged: int = 0


@pytest.fixture
def reading(monkeypatch: pytest.MonkeyPatch) -> Reading:
    counted = Reading()

    def counting_leading(*given: Any, **named: Any) -> Leading:
        found = leading(*given, **named)
        counted.on += found.read
        counted.times += 1
        return found

    def counting_merge(group: Any, runs: Sequence[Run]) -> Run:
        counted.merged += sum(run.rows for run in runs)
        return merge(group, runs)

    def counting_scan(group: Any, runs: Sequence[Any]) -> Run | None:
        return counting_merge(group, list(runs)) if runs else None

    monkeypatch.setattr(top_module, "leading", counting_leading)
    monkeypatch.setattr(top_module, "merge", counting_merge)
    monkeypatch.setattr(top_module, "scan", counting_scan)
    return counted


def filled(rows: int, count: int, offset: int = 0, *, merges: bool = True) -> Kept:
    """The rows 0, 1, 2, ... in their order."""
    kept = Kept(layout_of(["bigint"], ((0, False, True),), count, offset), merges)
    kept.step(((number,), 1) for number in range(rows))
    return kept


@pytest.mark.parametrize(("count", "offset"), [(10, 0), (1, 0), (5, 100), (1000, 0)])
def test_steps_in_which_top_rows_leave_read_the_same_of_a_small_and_of_a_large_table(
    reading: Reading, count: int, offset: int
) -> None:
    leaving, steps, found = 40, 50, []
    for rows in (10_000, 1_000_000):
        kept = filled(rows, count, offset, merges=False)  # they are the same of both
        reading.on = reading.times = reading.merged = 0
        for step in range(steps):
            gone = range(step * leaving, (step + 1) * leaving)
            given = kept.step(((number,), -1) for number in gone)
            assert given[str((gone.stop + offset + count - 1,))] == 1
        found.append((reading.on, reading.times, reading.merged))
        large = kept.runs[kept.layout.rows_part][0]
        assert isinstance(large, StoredRun)
        assert int(large._ready["payload"].sum()) < 40, "of some thousand blocks at most"
    assert found[0] == found[1]
    on, times, merged = found[0]
    assert 0 < times < steps
    assert on < 12 * steps * leaving + times * 4 * 256
    front = kept.layout.most + leaving
    assert merged <= 8 * steps * front


def test_a_queue_reads_each_row_a_few_times_however_many_have_left(reading: Reading) -> None:
    kept, rows, steps = filled(20_000, 1), 20_000, 2_000
    reading.on = reading.times = 0
    for step in range(steps):
        assert kept.step([((step,), -1), ((rows + step,), 1)]) == {f"({step},)": -1, f"({step + 1},)": 1}
    assert reading.times <= steps // 256 + 1
    assert reading.on <= 24 * steps, "dead entries lie before the front, and nothing reads them"


def test_rows_that_come_first_and_leave_at_once_do_not_read_what_is_dead(reading: Reading) -> None:
    kept, dead = filled(40_000, 3), 15_000
    kept.step(((number,), -1) for number in range(dead))
    assert reading.on >= dead, "those that have left are passed over once"
    reading.on = reading.times = 0
    for step in range(300):
        assert kept.step([((-step,), 1)])[f"({-step},)"] == 1
        assert kept.step([((-step,), -1)])[f"({dead + 2},)"] == 1
    assert (reading.on, reading.times) == (0, 0)


def test_a_long_stretch_that_ties_is_ordered_by_its_texts() -> None:
    kept = Kept(layout_of(["string", "bigint"], ((0, True, False), (1, False, True)), 2))
    rows = [(f"{LONG}{number:05}", number % 3) for number in range(2_000)]
    random.Random(1).shuffle(rows)
    there = Counter(rows)
    given = kept.step((row, 1) for row in rows)
    for start in range(0, 1_500, 300):
        leaving = sorted(there, reverse=True)[: 300 + start % 7]
        there.subtract(leaving)
        there = +there
        given.update(kept.step((row, -1) for row in leaving))
        assert {row: n for row, n in given.items() if n} == first(there, kept.layout)
