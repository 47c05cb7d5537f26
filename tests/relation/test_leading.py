"""The first live entries of groups, from either end of runs that hold dead ones, and how many entries that looks at."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from tests.seeds import seeds

from headrace.relation import runfile
from headrace.relation.leading import leading, one_group
from headrace.relation.run import Run, consolidate, merge
from headrace.relation.runset import AnyRun, RunSet
from headrace.relation.storedrun import StoredRun
from headrace.rings import COUNT

Entry = tuple[int, int, int]  # group, value, count


def run_of(entries: list[Entry]) -> Run:
    keys = np.array([entry[:2] for entry in entries], np.uint64).reshape(-1, 2).T
    counts = np.array([entry[2] for entry in entries], np.int64)
    texts = pa.array([f"{group} {value}" for group, value, _ in entries], pa.large_string())
    return consolidate(COUNT, keys, (counts,), {"text": texts})


def on_disk(run: Run) -> StoredRun:
    return runfile.decode(np.frombuffer(bytes(runfile.encode(run)), np.uint8), "in memory")


def random_runs(choose: random.Random) -> tuple[list[AnyRun], Counter[tuple[int, int]]]:
    """Runs of inserted and deleted entries, and what is left; some is deleted before it is inserted."""
    runs: list[AnyRun] = []
    left: Counter[tuple[int, int]] = Counter()
    for _ in range(choose.randint(1, 6)):
        entries = [(choose.randrange(4), choose.randrange(60), choose.choice([1, 1, 2, -1])) for _ in range(80)]
        there = [key for key, n in left.items() if n > 0]
        entries += [(*key, -left[key]) for key in choose.sample(there, len(there) * 3 // 4)]
        for group, value, n in entries:
            left[group, value] += n
        run = run_of(entries)
        runs.append(on_disk(run) if choose.random() < 0.5 else run)
        if len(runs) > 2 and choose.random() < 0.3:
            runs = [merge(COUNT, runs[:2]), *runs[2:]]  # type: ignore[arg-type]
    return runs, left


@seeds("leading", 30)
def test_the_first_rows_of_each_group_are_those_that_are_left(seed: int) -> None:
    choose = random.Random(seed)
    runs, left = random_runs(choose)
    wanted, end = choose.choice([1, 2, 5, 40, 1000]), choose.random() < 0.5
    groups = sorted(choose.sample(range(5), choose.randint(0, 5)))
    some = RunSet(runs)
    found = leading(some, some.find(np.array([groups], np.uint64)), wanted, depth=1, texts=True, end=end)
    for number, group in enumerate(groups):
        at = np.flatnonzero(found.groups == number)
        words = found.entries.words[0, at]
        got = list(zip((~words if end else words).tolist(), found.entries.payload[0][at].tolist(), strict=True))
        alive = sorted(((value, n) for (g, value), n in left.items() if g == group and n), reverse=end)
        assert got == alive[: len(got)], "nothing is left out, nothing is dead"
        enough = sum(max(n, 0) for _, n in got) >= wanted
        assert enough or got == alive
        assert [found.entries.values["text"][int(i)].as_py() for i in at] == [f"{group} {value}" for value, _ in got]


@seeds("bounds", 20)
def test_bounds_are_where_keys_would_stand(seed: int) -> None:
    choose = random.Random(seed)
    runs, _ = random_runs(choose)
    runs.append(on_disk(run_of([(2, value, 1) for value in range(0, 6000, 3)])))
    some = RunSet(runs)
    for _ in range(20):
        key = (choose.randrange(5), choose.choice([choose.randrange(62), choose.randrange(6002)]))
        probe = key[: choose.randint(1, 2)]
        words = np.array([[word] for word in probe], np.uint64)
        below, above = some.bounds(words, above=False)[:, 0], some.bounds(words, above=True)[:, 0]
        for i, run in enumerate(runs):
            beginnings = list(zip(*run.words[: len(probe)].tolist(), strict=True))
            assert below[i] == sum(one < probe for one in beginnings)
            assert above[i] == sum(one <= probe for one in beginnings)


def test_without_runs_there_are_no_entries() -> None:
    none = RunSet([])
    assert none.bounds(np.zeros((1, 1), np.uint64), above=True)[:, 0].tolist() == []
    assert leading(none, one_group(np.zeros(0, np.int64), np.zeros(0, np.int64)), 5).entries.rows == 0


@pytest.mark.parametrize("wanted", [1, 10, 300])
@pytest.mark.parametrize("dead", [0, 50, 5000])
def test_what_is_read_follows_what_is_wanted_and_what_is_dead(wanted: int, dead: int) -> None:
    read = []
    for rows in (20_000, 400_000):
        large = on_disk(run_of([(0, value, 1) for value in range(rows)]))
        some = RunSet([large, on_disk(run_of([(0, value, -1) for value in range(dead)]))])
        found = leading(some, one_group(np.zeros(2, np.int64), np.array([run.rows for run in some])), wanted)
        assert found.entries.words[1, 0] == dead
        assert int(found.entries.payload[0].sum()) >= wanted
        assert found.read <= 2 * 4 * 2 * (wanted + dead) + 100, "windows grow four times each, in both runs"
        read.append(found.read)
        verified = sum(int(ready.sum()) for ready in large._ready.values())
        assert verified <= 3 * (4 * 2 * (wanted + dead) // 512 + 2), "no block is read that is not wanted"
    assert read[0] == read[1]
