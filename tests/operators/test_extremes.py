"""MIN and MAX under deletions, against the smallest and largest of what is left."""

from __future__ import annotations

import math
import random
from collections import Counter
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.operators.extremes import extreme_values
from headrace.relation import runfile
from headrace.relation.keys import ordered_string_words, ordered_words
from headrace.relation.run import Run, consolidate, merge
from headrace.relation.storedrun import StoredRun
from headrace.relation.types import SqlType
from headrace.rings import Integer

COUNT = Integer(1)
VALUES = {
    "bigint": st.one_of(st.integers(-5, 5), st.sampled_from([-(2**63), 2**63 - 1])),
    "double": st.sampled_from([math.nan, math.inf, -math.inf, 0.0, 1.5, -1.5, 5e-324]),
    "decimal(38,2)": st.sampled_from([Decimal(x).scaleb(-2) for x in (0, -1, 1, 2**64, -(2**64), 10**27, 10**27 + 1)]),
    "decimal(9,2)": st.sampled_from([Decimal("0.00"), Decimal("-1.25"), Decimal("7.00")]),
    "string": st.one_of(st.text("ab\0", max_size=20), st.sampled_from(["", "日本", "\U0001f600", "\uffff"])),
    "boolean": st.booleans(),
}


def ordered_run(entries: list[tuple[int, object, int]], kind: SqlType) -> Run:
    """One run of (group, value) -> count."""
    column = pa.array([value for _, value, _ in entries], kind.arrow)
    values = ordered_string_words(column) if kind.kind == "string" else ordered_words(column, kind)
    words = np.concatenate([np.array([[group for group, *_ in entries]], np.uint64).reshape(1, len(entries)), values])
    return consolidate(COUNT, words, (np.array([n for *_, n in entries], np.int64),), {})


def rank(value: object) -> object:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value)
    return value


def check(runs, live: Counter, groups: list[int], kind: SqlType) -> None:
    probes = np.array([groups], np.uint64).reshape(1, len(groups))
    for smallest, choose in ((True, min), (False, max)):
        expected = []
        for group in groups:
            ranks = [rank(value) for (owner, value), n in live.items() if owner == group and n]
            expected.append(choose(ranks) if ranks else None)
        found = extreme_values(runs, probes, kind, smallest=smallest)
        assert found.type == kind.arrow
        found.validate(full=True)
        assert [None if value is None else rank(value) for value in found.to_pylist()] == expected


def on_disk(run: Run) -> StoredRun:
    return runfile.decode(np.frombuffer(bytes(runfile.encode(run)), np.uint8), "in memory")


@pytest.mark.parametrize("text", VALUES)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_extremes_are_those_of_the_values_alive(text, data):
    kind, live, runs = SqlType.parse(text), Counter(), []
    for _ in range(data.draw(st.integers(0, 6))):
        entries = [(group, value, n) for group, value, n in data.draw(
            st.lists(st.tuples(st.integers(0, 3), VALUES[text], st.integers(1, 2)), max_size=10))]  # fmt: skip
        there = [key for key, n in live.items() if n]
        for group, value in data.draw(st.lists(st.sampled_from(there), unique=True)) if there else []:
            entries.append((group, value, -live[group, value]))
        run = ordered_run(entries, kind)
        for group, value, n in entries:
            live[group, math.nan if value != value else value] += n
        runs.append(on_disk(run) if data.draw(st.booleans()) else run)
        if len(runs) > 2 and data.draw(st.booleans()):
            runs = [merge(COUNT, runs[:2]), *runs[2:]]
        check(runs, live, [0, 1, 2, 3, 4], kind)
    check(runs, live, [], kind)


@pytest.mark.parametrize("dead", [1, 7, 8, 9, 63, 64, 65, 1000, 5000])
@pytest.mark.parametrize("stored", [False, True])
def test_a_long_dead_prefix_is_looked_past(dead, stored):
    kind = SqlType("bigint")
    runs = [ordered_run([(g, value, 1) for g in range(3) for value in range(dead + 2)], kind)]
    runs.append(ordered_run([(1, value, -1) for value in range(dead)], kind))
    runs.append(ordered_run([(2, value, -1) for value in range(dead + 2)], kind))
    live = Counter({(0, v): 1 for v in range(dead + 2)} | {(1, dead): 1, (1, dead + 1): 1})
    check([on_disk(run) if stored else run for run in runs], live, [0, 1, 2], kind)


def test_deletions_spread_over_many_runs_are_all_seen():
    kind, choose = SqlType("int"), random.Random(0)
    values = list(range(300))
    runs = [ordered_run([(0, value, 1) for value in values], kind)]
    for start in range(0, 299, 13):  # all but the last are deleted, in any order of runs
        runs.append(ordered_run([(0, value, -1) for value in values[start : min(start + 13, 299)]], kind))
    choose.shuffle(runs)
    check(runs, Counter({(0, 299): 1}), [0], kind)


def test_deleting_the_minimum_brings_back_the_next_value():
    kind = SqlType("string")
    runs = [ordered_run([(5, "apple", 1), (5, "a much longer string than apple", 1)], kind)]
    check(runs, Counter({(5, "apple"): 1, (5, "a much longer string than apple"): 1}), [5], kind)
    runs.append(ordered_run([(5, "a much longer string than apple", -1)], kind))
    check(runs, Counter({(5, "apple"): 1}), [5], kind)


def test_a_value_there_twice_survives_one_deletion():
    kind = SqlType("bigint")
    runs = [ordered_run([(0, 1, 2), (0, 2, 1)], kind), ordered_run([(0, 1, -1)], kind)]
    check(runs, Counter({(0, 1): 1, (0, 2): 1}), [0], kind)


@pytest.mark.parametrize("text", VALUES)
def test_no_runs_give_null_for_every_group(text):
    for groups in (0, 2):
        found = extreme_values([], np.zeros((3, groups), np.uint64), SqlType.parse(text), smallest=True)
        assert found.to_pylist() == [None] * groups
        assert found.type == SqlType.parse(text).arrow


def test_random_lives_of_many_groups():
    kind, choose = SqlType("bigint"), random.Random(1)
    live, runs = Counter(), []
    for _ in range(12):
        entries = [(choose.randrange(50), choose.randrange(40), 1) for _ in range(300)]
        there = [key for key, n in live.items() if n]
        entries += [(*key, -live[key]) for key in choose.sample(there, len(there) * 2 // 3)]
        for group, value, n in entries:
            live[group, value] += n
        runs.append(ordered_run(entries, kind))
        check(runs, live, list(range(51)), kind)
