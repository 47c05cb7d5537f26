"""Replacing the rows of an arrangement: what is stored, what is said to have changed, and the order of rows."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.operators.kernel import ViewChange
from headrace.relation.schema import DIFF, Column
from headrace.relation.types import SqlType
from headrace.runtime.location import Location
from headrace.runtime.openruns import OPEN
from headrace.runtime.program import BucketResult
from headrace.runtime.replacing import NUMBER, Replacing, changed_rows, numbered_rows

BUCKETS = 3
COLUMNS = (Column("o0", SqlType("double")), Column("o1", SqlType("string")))
NAN = float("nan")
Row = tuple[Any, ...]


def bucket_of(row: Row) -> int:
    """Any function that gives equal rows the same bucket."""
    return sum(map(ord, f"{row[0]}{row[1]}")) % BUCKETS


def given(rows: Sequence[tuple[int, Row]]) -> pa.Table:
    """Rows with their numbers, as Spark gives them: its strings have 32-bit offsets."""
    columns = {
        "o0": pa.array([row[0] for _, row in rows], pa.float64()),
        "o1": pa.array([row[1] for _, row in rows], pa.string()),
        NUMBER: pa.array([number for number, _ in rows], pa.int64()),
    }
    return pa.table(columns)


def shown(rows: pa.Table) -> list[str]:
    return [repr((row["o0"], row["o1"])) for row in rows.to_pylist()]


class Somewhere:
    """A location with one arrangement, whose rows are replaced again and again."""

    def __init__(self, folder: Path) -> None:
        Location(folder).runs.mkdir(parents=True)
        self.replacing = Replacing("v", "answer", COLUMNS, {}, BUCKETS, str(folder), 1, False)
        self.rows: list[Row] = []

    def put(self, rows: Sequence[Row], numbers: Sequence[int] | None = None) -> BucketResult:
        """Replace the rows, and check all that is said and stored."""
        at = list(zip(numbers or range(len(rows)), rows, strict=True))
        result = self._by_bucket(at)
        changes = changed_rows(COLUMNS, [OPEN.one(self.replacing.root, ref) for ref in result.changes.get("v", [])])
        said = Counter[str]()
        for text, diff in zip(shown(changes), changes.column(DIFF).to_pylist(), strict=True):
            assert diff
            said[text] += diff
        expected = Counter(map(repr, rows))
        expected.subtract(map(repr, self.rows))
        expected = Counter({row: times for row, times in expected.items() if times})
        assert said == expected
        inserted, deleted = (sum(max(0, sign * times) for times in expected.values()) for sign in (1, -1))
        assert result.summaries.get("v", ViewChange()) == ViewChange(inserted, deleted)
        states = {**self.replacing.states, **result.buckets.get(self.replacing.arrangement, {})}
        self.replacing = replace(self.replacing, states=states, version=self.replacing.version + 1)
        self.rows = list(rows)
        assert sum(state.live for state in states.values()) == len(rows)
        return result

    def _by_bucket(self, at: list[tuple[int, Row]]) -> BucketResult:
        result = BucketResult()
        with self.replacing.writer() as writer:
            for bucket in range(BUCKETS):
                own = given([(number, row) for number, row in at if bucket_of(row) == bucket])
                result.add(self.replacing.one_bucket(bucket, own, writer))
        return result

    def read(self) -> list[str]:
        return shown(numbered_rows(COLUMNS, OPEN.everything(self.replacing.root, self.replacing.states)))


ODD: list[Row] = [(NAN, "x"), (None, "x"), (NAN, "x"), (0.0, None), (-0.0, None), (None, None), (1.5, "ü"), (1.5, "ü")]


def test_changes_are_the_difference_of_two_bags(tmp_path: Path) -> None:
    place = Somewhere(tmp_path)
    place.put(ODD)
    assert not place.put(ODD[::-1]).changes  # another order is no change
    assert place.read() == [repr(row) for row in ODD[::-1]]
    result = place.put([ODD[0], *ODD[3:], (2.0, "new")])
    assert result.summaries["v"] == ViewChange(1, 2)
    result = place.put([])
    assert (result.summaries["v"], place.read()) == (ViewChange(0, 7), [])
    assert not any(state.runs for state in place.replacing.states.values())


def test_buckets_without_rows_before_and_after_are_left_alone(tmp_path: Path) -> None:
    place = Somewhere(tmp_path)
    result = place.put([(1.0, "a")])
    assert set(result.buckets[place.replacing.arrangement]) == {bucket_of((1.0, "a"))}


@pytest.mark.parametrize("seed", range(6))
def test_random_rows_replaced_again_and_again(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    place = Somewhere(tmp_path)
    values = [None, NAN, -0.0, 0.0, 1.0, 2.0]
    for _ in range(12):
        rows = [(rng.choice(values), rng.choice(["a", "b", None])) for _ in range(rng.choice([0, 1, 5, 40]))]
        numbers = sorted(rng.sample(range(1 << 40), len(rows)))  # with gaps, as Spark's numbers have
        place.put(rows, numbers=numbers)
        assert place.read() == [repr(row) for row in rows]


def test_rows_of_two_buckets_with_one_number_are_all_there(tmp_path: Path) -> None:
    place = Somewhere(tmp_path)
    first, second = (1.0, "a"), (1.0, "b")
    assert bucket_of(first) != bucket_of(second)
    place.put([first, second], numbers=[7, 7])
    assert sorted(place.read()) == [repr(first), repr(second)]
