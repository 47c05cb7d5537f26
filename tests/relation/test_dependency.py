"""Guards of functional dependencies against a dictionary that holds all rows."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from headrace.errors import SchemaError
from headrace.relation.change import ChangeBatch
from headrace.relation.dependency import Guard, judge_dependency
from headrace.relation.layout import TableLayout
from headrace.relation.run import Run
from headrace.relation.schema import Column, TableSchema
from headrace.relation.types import SqlType

COLUMNS = [Column("zip", SqlType("string")), Column("city", SqlType("string")), Column("n", SqlType("bigint"))]
Row = tuple[str | None, str | None, int]


def guard() -> Guard:
    return Guard(TableLayout(TableSchema.of("t", COLUMNS, fds={"zip": ["city"]}), 7), 0)


def batch(changes: list[tuple[Row, int]]) -> ChangeBatch:
    columns = [[row[i] for row, _ in changes] for i in range(3)]
    kinds = [pa.large_string(), pa.large_string(), pa.int64()]
    arrays = [pa.array(c, k) for c, k in zip(columns, kinds, strict=True)]
    return ChangeBatch(pa.table(arrays, names=["zip", "city", "n"]), np.array([d for _, d in changes], np.int64))


def judged(runs: list[Run], changes: list[tuple[Row, int]]) -> list[tuple[Row, str]]:
    """The bad rows; the run of a good batch is added."""
    about = guard().about(batch(changes))
    if not len(about):
        return []
    done = judge_dependency(guard(), runs, about)
    if done.bad is None:
        runs.append(done.run)
        return []
    rows = [(row["zip"], row["city"], row["n"]) for row in done.bad.rows.to_pylist()]
    return list(zip(rows, done.bad.reasons, strict=True))


def test_rows_that_contradict_what_is_there() -> None:
    runs: list[Run] = []
    assert judged(runs, [(("8001", "Zurich", 1), 1), (("8001", "Zurich", 2), 1), (("3000", "Bern", 1), 1)]) == []
    ((row, why),) = judged(runs, [(("8001", "Bern", 3), 1), (("3000", "Bern", 3), 1)])
    assert row == ("8001", "Bern", 3)
    assert why == "breaks zip -> city: rows that are there have another city with this zip"


def test_rows_that_contradict_each_other() -> None:
    found = judged([], [(("8001", "Zurich", 1), 1), (("8001", "Bern", 1), 1), (("3000", "Bern", 1), 1)])
    assert {row for row, _ in found} == {("8001", "Zurich", 1), ("8001", "Bern", 1)}
    assert all("the batch has rows with this zip and different city" in why for _, why in found)


def test_a_row_may_replace_those_that_the_batch_deletes() -> None:
    runs: list[Run] = []
    assert judged(runs, [(("8001", "Zurich", 1), 1), (("8001", "Zurich", 2), 1)]) == []
    assert judged(runs, [(("8001", "Zurich", 1), -1), (("8001", "Bern", 1), 1)]) != []  # one of two is left
    assert judged(runs, [(("8001", "Zurich", 1), -1), (("8001", "Zurich", 2), -1), (("8001", "Bern", 1), 1)]) == []
    assert judged(runs, [(("8001", "Zurich", 1), 1)]) != []


def test_nulls() -> None:
    runs: list[Run] = []
    assert judged(runs, [((None, "Bern", 1), 1), ((None, "Chur", 1), 1)]) == []  # on the left: nothing is determined
    assert judged(runs, [(("7000", None, 1), 1)]) == []
    assert judged(runs, [(("7000", "Chur", 1), 1)]) != []  # on the right: a value like any other
    assert judged(runs, [(("7000", None, 2), 1)]) == []


@pytest.mark.parametrize("seed", range(60))
def test_random_batches(seed: int) -> None:
    rng = random.Random(seed)
    runs: list[Run] = []
    now: Counter[Row] = Counter()
    for _ in range(12):
        changes = []
        there = sorted(now.elements(), key=repr)
        for row in rng.sample(there, rng.randint(0, len(there))):
            changes.append((row, -1))
        for _ in range(rng.randint(0, 4)):
            changes.append(((rng.choice("ab"), rng.choice("xyz"), rng.randrange(2)), 1))
        rng.shuffle(changes)
        after = now.copy()
        for row, times in changes:
            after[row] += times
        after = +after
        cities: dict[str | None, set[str | None]] = {}
        for zip_, city, _ in after:
            cities.setdefault(zip_, set()).add(city)
        broken = {zip_ for zip_, found in cities.items() if len(found) > 1}
        before = {(zip_, city) for zip_, city, _ in now}
        kept = Counter((zip_, city) for zip_, city, _ in after.elements())
        net = Counter({pair: kept[pair] for pair in kept})
        net.subtract(Counter((zip_, city) for zip_, city, _ in now.elements()))
        wanted = [
            row
            for row, times in changes
            if times > 0 and row[0] in broken and row[:2] not in before and net[row[:2]] > 0
        ]
        assert sorted(row for row, _ in judged(runs, changes)) == sorted(wanted)
        if not broken:
            now = after


@pytest.mark.parametrize(
    ("fds", "said"),
    [
        ({"zap": ["city"]}, "not one of its columns"),
        ({"zip": ["town"]}, "not one of its columns"),
        ({"zip": []}, "lacks a side"),
        ({"zip": ["zip"]}, "repeats a column"),
    ],
)
def test_what_is_no_dependency(fds: dict[str, list[str]], said: str) -> None:
    with pytest.raises(SchemaError, match=said):
        TableSchema.of("t", COLUMNS, fds=fds)


def test_a_table_without_rows_has_no_dependencies() -> None:
    with pytest.raises(SchemaError, match="rows are not to be kept"):
        TableSchema.of("t", COLUMNS, fds={"zip": "city"}, kept=False)


def test_a_schema_is_written_and_read() -> None:
    schema = TableSchema.of("t", COLUMNS, fds={("zip", "n"): ["city"], "city": "n"})
    assert schema.fds == ((("city",), ("n",)), (("zip", "n"), ("city",)))
    assert TableSchema.from_json(schema.to_json()) == schema
