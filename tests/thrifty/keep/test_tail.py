"""The arrival curve of late data: the next batch follows from the last one, and from the tails before it."""

from __future__ import annotations

import random

import pytest
from tests.seeds import seeds

from headrace.thrifty.keep.change import Change
from headrace.thrifty.keep.prediction import Prediction
from headrace.thrifty.keep.tail import REMEMBERED, next_of, tails_of

DAY = (90_000.0, 9_000.0, 900.0, 100.0)


def misses(batches: list[float]) -> list[float]:
    """How far off each expectation was, as a share of the rows that came."""
    late, found = Prediction(), []
    for rows in batches:
        expected = late.next().get("orders", Change()).rows
        found.append(abs(expected - rows) / rows)
        late = late.after({"orders": Change(rows)})
    return found


def test_after_the_first_tail_each_batch_is_expected() -> None:
    days = [misses(list(DAY * 8))[4 * day : 4 * day + 4] for day in range(8)]
    assert days[0][2] < 0.2, "the second ratio of the first day follows from the first"
    assert all(miss < 0.2 for miss in days[1][1:]), "only the end of the first tail could not be known"
    assert all(miss < 0.2 for day in days[2:] for miss in day)


@seeds("late tails", 10, check=3)
def test_noise_does_not_bend_the_curve(seed: int) -> None:
    rng = random.Random(seed)
    batches = [rows * rng.uniform(0.95, 1.05) for _ in range(8) for rows in DAY]
    assert all(miss < 0.3 for miss in misses(batches)[8:])


def test_one_odd_batch_counts_once() -> None:
    batches = list(DAY * 6)
    batches[13] = 20_000.0  # the second batch of the fourth day
    found = misses(batches)
    assert {number for number, miss in enumerate(found) if number >= 8 and miss > 0.2} == {13, 14}


def test_a_steady_stream_stays_as_it_is() -> None:
    assert max(misses([100.0, 110.0, 95.0, 105.0, 100.0, 98.0, 103.0] * 6)[3:]) < 0.2
    spike = [100.0] * 6 + [1_000.0, 100.0]
    assert next_of([Change(rows) for rows in spike]) == Change(100.0)


def test_tails_of_different_length_have_no_known_end() -> None:
    ragged = [Change(rows) for rows in (900.0, 90.0, 9.0, 900.0, 90.0, 900.0, 90.0, 9.0)]
    assert [len(tail) for tail in tails_of(ragged)] == [3, 2, 3]
    assert next_of(ragged).rows == pytest.approx(0.9)


def test_inserted_and_deleted_rows_shrink_together() -> None:
    assert next_of([Change(100.0, 50.0), Change(10.0, 5.0)]).deleted == pytest.approx(0.5)


def test_a_table_that_grows_is_followed_up_to_twice() -> None:
    assert next_of([Change(10.0), Change(15.0)]).rows == pytest.approx(22.5)
    assert next_of([Change(10.0), Change(100.0)]).rows == 200.0
    assert next_of([Change(1.0)] * REMEMBERED) == Change(1.0)
