"""Arrangements: sums over runs against a dictionary, and what merging costs over long lives."""

from __future__ import annotations

import math
import random
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.relation import runfile
from headrace.relation.arrangement import alive, lookup, pieces, runs_to_merge, scan
from headrace.relation.run import Run, consolidate, merge
from headrace.relation.runset import RunSet
from headrace.relation.storedrun import StoredRun
from headrace.rings import COUNT, Integer, Product

RING = Product((Integer(1), Integer(2)))
SLACK = 4096

ENTRIES = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.integers(-2, 2), st.integers(-(2**62), 2**62)))


def run_of(entries) -> Run:
    words = np.array([(a, b) for a, b, *_ in entries], np.uint64).reshape(len(entries), 2).T.copy()
    counts = np.array([n for _, _, n, _ in entries], np.int64)
    sums = Integer(2).lift(np.array([x for *_, x in entries], np.int64))
    return consolidate(RING, words, (counts, *sums), {})


def total(parts) -> dict[tuple[int, int], tuple[int, int]]:
    sums: dict[tuple[int, int], tuple[int, int]] = defaultdict(lambda: (0, 0))
    for a, b, n, x in (entry for part in parts for entry in part):
        sums[a, b] = (sums[a, b][0] + n, sums[a, b][1] + x)
    return sums


def on_disk(run: Run) -> StoredRun:
    return runfile.decode(np.frombuffer(bytes(runfile.encode(run)), np.uint8), "in memory")


@settings(max_examples=60, deadline=None)
@given(st.lists(ENTRIES, max_size=5), st.lists(st.tuples(st.integers(0, 6), st.integers(0, 4))), st.booleans())
def test_lookup_sums_what_the_runs_hold_for_each_key(parts, probes, stored):
    runs = [on_disk(run_of(part)) if stored else run_of(part) for part in parts]
    words = np.array(sorted(probes), np.uint64).reshape(len(probes), 2).T.copy()
    counts, low, high = lookup(RING, runs, words)
    sums = total(parts)
    assert list(zip(counts, Integer(2).values((low, high)), strict=True)) == [sums[p] for p in sorted(probes)]


@settings(max_examples=40, deadline=None)
@given(st.lists(ENTRIES, max_size=5))
def test_a_scan_is_the_sum_of_all_runs(parts):
    run = scan(RING, [run_of(part) for part in parts])
    expected = {key: value for key, value in total(parts).items() if value != (0, 0)}
    if run is None:
        assert not parts
    else:
        keys = [tuple(key) for key in run.words.T.tolist()]
        values = zip(run.payload[0].tolist(), Integer(2).values(run.payload[1:]), strict=True)
        assert dict(zip(keys, values, strict=True)) == expected


@settings(max_examples=40, deadline=None)
@given(ENTRIES, st.lists(st.integers(0, 6), unique=True))
def test_entries_list_every_key_that_begins_with_a_probe(entries, probes):
    run, probes = run_of(entries), sorted(probes)
    found = RunSet([run]).entries(np.array([probes], np.uint64).reshape(1, len(probes)))
    expected = [(i, j) for j, p in enumerate(probes) for i in range(run.rows) if run.words[0, i] == p]
    assert list(zip(found.positions, found.owners, strict=True)) == expected


def test_an_entry_exists_while_its_count_is_not_zero():
    assert alive((np.array([0, 1, -1]), np.array([5, 0, 0]))).tolist() == [False, True, True]


class Arrangement:
    """Real keys, real merges: an arrangement as the runtime keeps it, and what keeping it has cost."""

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.rewritten = self.received = 0

    def add(self, delta: Run, live: int) -> None:
        self.received += delta.rows
        due = runs_to_merge([run.rows for run in self.runs], delta.rows, live)
        if due:
            merged = merge(Integer(1), [*(self.runs[i] for i in due), delta])
            self.rewritten += sum(self.runs[i].rows for i in due)
            delta = merged
        self.runs = [run for i, run in enumerate(self.runs) if i not in due]
        if delta.rows:
            self.runs.append(delta)

    @property
    def entries(self) -> int:
        return sum(run.rows for run in self.runs)


def step_sizes(kind: str, choose: random.Random) -> int:
    return {
        "ones": 1,
        "hundreds": choose.randint(50, 300),
        "thousands": choose.randint(1000, 1100),
        "mixed": choose.choice([1, 1, 1, 10, 100, 1025, 5000]),
    }[kind]


@pytest.mark.parametrize("deleting", [0.0, 0.5, 0.98])
@pytest.mark.parametrize("sizes", ["ones", "hundreds", "thousands", "mixed"])
def test_state_stays_within_twice_the_live_entries_and_few_runs(sizes, deleting):
    choose, rng = random.Random(5), np.random.default_rng(5)
    arrangement, live, next_key = Arrangement(), np.zeros(0, np.uint64), 0
    steps = 600
    for step in range(steps):
        size = step_sizes(sizes, choose)
        gone = (
            rng.choice(len(live), min(len(live), int(size * deleting)), replace=False)
            if step > 50
            else np.zeros(0, int)
        )
        fresh = np.arange(next_key, next_key + max(0, size - len(gone)), dtype=np.uint64)
        next_key += len(fresh)
        keys = np.concatenate([live[gone], fresh])
        counts = np.concatenate([np.full(len(gone), -1), np.ones(len(fresh), np.int64)])
        live = np.concatenate([np.delete(live, gone), fresh])
        arrangement.add(consolidate(Integer(1), keys[None, :], (counts,), {}), len(live))
        assert arrangement.entries <= 2 * len(live) + SLACK
        assert len(arrangement.runs) <= 3 * 4 + 7 * max(1, math.log(1 + arrangement.entries / 2**18, 8)) + 1
    whole = scan(Integer(1), arrangement.runs)
    assert whole.words[0].tolist() == sorted(live.tolist())
    tiers = 2 + math.log(1 + arrangement.received / 1024, 4)
    assert arrangement.rewritten <= 8 * tiers * arrangement.received + 1024 * steps / 3


def test_updating_the_same_few_keys_for_ever_keeps_the_state_small():
    arrangement = Arrangement()
    for step in range(2000):
        keys, counts = np.array([[2 * step, 2 * step + 2]], np.uint64), np.array([-1, 1])
        arrangement.add(consolidate(Integer(1), keys, (counts,), {}), live=1)
    assert arrangement.entries <= 10


def test_deleting_everything_leaves_next_to_nothing():
    keys = np.arange(50_000, dtype=np.uint64)[None, :]
    arrangement = Arrangement()
    arrangement.add(Run(keys, (np.ones(50_000, np.int64),)), live=50_000)
    arrangement.add(Run(keys, (-np.ones(50_000, np.int64),)), live=0)
    assert arrangement.runs == []


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 10**7), max_size=60), st.integers(0, 10**6), st.integers(0, 10**8))
def test_any_choice_of_runs_is_in_order_and_exists(sizes, incoming, live):
    due = runs_to_merge(sizes, incoming, live)
    assert due == sorted(set(due))
    assert all(0 <= i < len(sizes) for i in due)
    if sum(sizes) + incoming > 2 * live + SLACK:
        assert due == list(range(len(sizes)))


@pytest.mark.parametrize("rows", [1, 5, 40, 1000])
@pytest.mark.parametrize("ranges", ["mixed", "one after the other", "last first", "long and short"])
def test_pieces_are_the_sum_and_none_is_long(rows: int, ranges: str) -> None:
    rng = np.random.default_rng(rows)
    counts = [300, 2, 40] if ranges == "long and short" else [120, 120, 120, 120]
    starts = {"mixed": [0] * 4, "long and short": [0] * 4, "one after the other": [0, 1000, 2000, 3000]}
    runs = []
    for count, start in zip(counts, starts.get(ranges, [3000, 2000, 1000, 0]), strict=False):
        keys = start + np.sort(rng.choice(500, count, replace=False)).astype(np.uint64)
        runs.append(Run(keys[None, :], (rng.choice([-1, 1], count).astype(np.int64),)))
    found = list(pieces(COUNT, runs, rows))
    whole = merge(COUNT, runs)
    assert np.concatenate([piece.words for piece in found], axis=1).tolist() == whole.words.tolist()
    assert np.concatenate([piece.payload[0] for piece in found]).tolist() == whole.payload[0].tolist()
    assert max(piece.rows for piece in found) <= 2 * max(rows, len(runs))
    assert len(found) <= 4 * sum(counts) // rows + len(runs)
