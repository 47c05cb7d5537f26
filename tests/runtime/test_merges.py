"""Merges that steps owe: what is owed, what a merge replaces, and that no answer depends on when it is done."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from headrace.errors import CorruptFileError
from headrace.relation.residence import Residence, first_word
from headrace.relation.run import Run
from headrace.rings import COUNT, Compensated, Integer, Product
from headrace.runtime import merges, runwriter
from headrace.runtime.location import Location
from headrace.runtime.merges import Kind, Merge, Merging, Replacement, merge_owed
from headrace.runtime.openruns import OPEN
from headrace.runtime.record import RECENT, BucketState, RunRef
from headrace.runtime.runwriter import RunWriter

BUCKETS = 3
VIEW, TABLE = "view/v/groups", "table/t"
RESIDENCE = Residence(BUCKETS, first_word)


def ref(rows: int, name: str = "a.run") -> RunRef:
    return RunRef(name, rows, 100 * rows)


def some_run(rng: np.random.Generator, rows: int, keys: int = 500) -> Run:
    words = np.sort(rng.choice(keys, rows, replace=False)).astype(np.uint64)[None, :]
    counts = rng.integers(1, 3, rows) * rng.choice([-1, 1], rows)
    return Run(words, (counts.astype(np.int64),))


class Somewhere:
    """A location with one arrangement."""

    def __init__(self, folder: Path) -> None:
        self.location = Location(folder)
        self.location.runs.mkdir(parents=True)
        self.states: dict[int, BucketState] = {}

    def writer(self) -> RunWriter:
        return RunWriter(self.location, 1, fsync=False)

    def add(self, bucket: int, run: Run, live: int = 0) -> None:
        with self.writer() as writer:
            new = writer.add(run, RESIDENCE.of(run.words) if bucket == RECENT else None)
        before = self.states.get(bucket, BucketState())
        self.states[bucket] = BucketState((*before.runs, new), before.live + live)

    def merge(self, merge: Merge, ring: object = COUNT) -> Replacement:
        merging = Merging(self.location, BUCKETS, self.writer)
        return merging.run(merge, Kind(ring, RESIDENCE), self.states)  # type: ignore[arg-type]

    def sums(self, states: dict[int, BucketState]) -> dict[int, int]:
        """The count of every key, in all buckets."""
        out: dict[int, int] = {}
        for state in states.values():
            for run in OPEN.opened(str(self.location.root), state):
                run.check()
                for key, count in zip(run.words[0].tolist(), run.payload[0].tolist(), strict=True):
                    out[key] = out.get(key, 0) + count
        return {key: count for key, count in out.items() if count}


@pytest.fixture
def somewhere(tmp_path: Path) -> Somewhere:
    return Somewhere(tmp_path / "state")


def test_nothing_is_owed_while_runs_are_few() -> None:
    states = {0: BucketState((ref(1_000_000), ref(900), ref(800)), 1_001_000)}
    assert merge_owed(VIEW, states, 0, BUCKETS) is None
    assert merge_owed(VIEW, states, 1, BUCKETS) is None
    assert merge_owed(VIEW, {}, RECENT, BUCKETS) is None


def test_runs_of_a_size_are_owed_a_merge_and_larger_ones_stay() -> None:
    small = tuple(ref(900 + i) for i in range(8))
    merge = merge_owed(VIEW, {0: BucketState((ref(1_000_000), *small), 1_007_000)}, 0, BUCKETS)
    assert merge == Merge(VIEW, 0, small)


def test_a_state_that_is_mostly_dead_is_owed_a_merge_of_everything() -> None:
    runs = (ref(1_000_000), ref(900_000))
    assert merge_owed(VIEW, {0: BucketState(runs, 500_000)}, 0, BUCKETS) == Merge(VIEW, 0, runs)
    assert merge_owed(VIEW, {0: BucketState(runs[:1], 5)}, 0, BUCKETS) is None, "one run has nothing to be merged with"


def test_recent_runs_move_when_they_are_many_beside_the_others() -> None:
    many = merges.RECENT_ENTRIES + 1
    others = {0: BucketState((ref(4 * many),), 4 * many)}
    move = merge_owed(VIEW, {**others, RECENT: BucketState((ref(many),), 0)}, RECENT, BUCKETS)
    assert move == Merge(VIEW, RECENT, (ref(many),), moves=True)
    far_more = {0: BucketState((ref(100 * many),), 100 * many)}
    assert merge_owed(VIEW, {**far_more, RECENT: BucketState((ref(many),), 0)}, RECENT, BUCKETS) is None
    dead = {0: BucketState((ref(10_000),), 9_000), RECENT: BucketState((ref(9_000),), -6_000)}
    assert merge_owed(VIEW, dead, RECENT, BUCKETS) == Merge(VIEW, RECENT, (ref(9_000),), moves=True)
    dead_elsewhere = {0: BucketState((ref(100_000),) * 3, 100_000), RECENT: BucketState((ref(5_000),), 0)}
    assert merge_owed(VIEW, dead_elsewhere, RECENT, BUCKETS) is None, "the bucket's own runs are to be merged"
    large = RunRef("a.run", many, merges.RECENT_BYTES + 1)
    move = merge_owed(VIEW, {**far_more, RECENT: BucketState((large,), 0)}, RECENT, BUCKETS)
    assert move == Merge(VIEW, RECENT, (large,), moves=True)


def test_a_replacement_fits_a_later_state() -> None:
    a, b, c, new = (ref(10, name) for name in "abcn")
    replacement = Replacement(VIEW, {0: (a, b)}, {0: (new,)}, {0: -3})
    assert replacement.applied({0: BucketState((a, b), 20)}) == {0: BucketState((new,), 17)}
    assert replacement.applied({0: BucketState((a, b, c), 28)}) == {0: BucketState((c, new), 25)}
    assert replacement.applied({0: BucketState((a, c), 20)}) is None
    assert replacement.applied({}) is None
    assert replacement.files() == {"n"}


@pytest.mark.parametrize("piece", [1 << 23, 1])
def test_merged_runs_have_the_sums_of_those_before(
    somewhere: Somewhere, monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    monkeypatch.setattr(runwriter, "_PIECE_BYTES", piece)
    monkeypatch.setattr(runwriter, "_LEAST_ROWS", 7)
    rng = np.random.default_rng(3)
    for rows in (300, 5, 120, 1):
        somewhere.add(0, some_run(rng, rows))
    before = somewhere.sums(somewhere.states)
    replacement = somewhere.merge(Merge(VIEW, 0, somewhere.states[0].runs))
    after = replacement.applied(somewhere.states)
    assert after is not None
    assert somewhere.sums(after) == before
    assert after[0].live == len(before), "the whole sum tells how many entries are alive"
    assert len(after[0].runs) == 1


def test_a_merge_of_some_runs_leaves_entries_that_others_need(somewhere: Somewhere) -> None:
    one = Run(np.array([[5]], np.uint64), (np.array([1]),))
    for run in (one, one, Run(one.words, (np.array([-2]),))):
        somewhere.add(0, run)
    replacement = somewhere.merge(Merge(VIEW, 0, somewhere.states[0].runs[1:]))
    after = replacement.applied(somewhere.states)
    assert after is not None
    assert somewhere.sums(after) == {}
    assert replacement.growth == {0: 0}, "some of the runs do not tell how many entries are alive"


def test_entries_that_are_gone_take_their_rounding_with_them(somewhere: Somewhere) -> None:
    ring = Product((Integer(1), Compensated()))
    words = np.array([[5]], np.uint64)
    sums = [(np.array([n]), np.array([x]), np.array([0.0])) for n, x in ((1, 0.1), (1, 0.2), (-2, -0.3))]
    for payload in sums:
        somewhere.add(0, Run(words, payload))
    after = somewhere.merge(Merge(VIEW, 0, somewhere.states[0].runs), ring).applied(somewhere.states)
    assert after == {0: BucketState((), 0)}


def test_recent_runs_move_into_their_buckets(somewhere: Somewhere) -> None:
    rng = np.random.default_rng(4)
    for bucket in range(BUCKETS):
        run = some_run(rng, 200)
        somewhere.add(bucket, run.take(np.flatnonzero(RESIDENCE.of(run.words) == bucket)), live=7)
    for rows in (100, 30):
        somewhere.add(RECENT, some_run(rng, rows), live=11)
    before = somewhere.sums(somewhere.states)
    moving = Merge(VIEW, RECENT, somewhere.states[RECENT].runs, moves=True)
    change = somewhere.merge(moving).applied(somewhere.states)
    assert change is not None
    after = somewhere.states | change
    assert somewhere.sums(after) == before
    assert after[RECENT] == BucketState((), 0)
    for bucket in range(BUCKETS):
        for run in OPEN.opened(str(somewhere.location.root), after[bucket]):
            assert (RESIDENCE.of(run.words) == bucket).all()


def test_merged_recent_runs_still_say_their_buckets(somewhere: Somewhere, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runwriter, "_PIECE_BYTES", 1)
    monkeypatch.setattr(runwriter, "_LEAST_ROWS", 7)
    rng = np.random.default_rng(5)
    for rows in (100, 30, 60):
        somewhere.add(RECENT, some_run(rng, rows))
    change = somewhere.merge(Merge(VIEW, RECENT, somewhere.states[RECENT].runs)).applied(somewhere.states)
    assert change is not None
    (run,) = OPEN.opened(str(somewhere.location.root), change[RECENT])
    parts = run.by_bucket(BUCKETS)
    assert sum(part.rows for part in parts.values()) == run.rows
    assert all((RESIDENCE.of(part.words) == bucket).all() for bucket, part in parts.items())


def test_a_table_counts_its_rows_and_not_its_entries(somewhere: Somewhere) -> None:
    twice = Run(np.array([[5]], np.uint64), (np.array([2]),))
    somewhere.add(0, twice, live=2)
    somewhere.add(0, Run(np.array([[6]], np.uint64), (np.array([1]),)), live=1)
    after = somewhere.merge(Merge(TABLE, 0, somewhere.states[0].runs)).applied(somewhere.states)
    assert after is not None
    assert after[0].live == 3


def test_a_merge_that_is_stopped_leaves_no_file(somewhere: Somewhere, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runwriter, "_PIECE_BYTES", 1)
    monkeypatch.setattr(runwriter, "_LEAST_ROWS", 7)
    rng = np.random.default_rng(6)
    for _ in range(2):
        somewhere.add(0, some_run(rng, 100))
    there = set(somewhere.location.runs.iterdir())
    left = 3

    def check() -> None:
        nonlocal left
        left -= 1
        if not left:
            raise KeyboardInterrupt

    merging = Merging(somewhere.location, BUCKETS, somewhere.writer, check)
    with pytest.raises(KeyboardInterrupt):
        merging.run(Merge(VIEW, 0, somewhere.states[0].runs), Kind(COUNT), somewhere.states)
    assert set(somewhere.location.runs.iterdir()) == there


def test_a_damaged_run_is_not_merged(somewhere: Somewhere) -> None:
    rng = np.random.default_rng(7)
    for _ in range(2):
        somewhere.add(0, some_run(rng, 400))
    path = somewhere.location.runs / somewhere.states[0].runs[0].name
    data = bytearray(path.read_bytes())
    data[-100] ^= 1
    path.write_bytes(data)
    OPEN.forget(str(somewhere.location.root), {path.name})
    with pytest.raises(CorruptFileError, match="checksum"):
        somewhere.merge(Merge(VIEW, 0, somewhere.states[0].runs))
