"""Run sets against dictionaries: whatever the runs are and wherever they lie, a search finds what is there."""

from __future__ import annotations

from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from numpy.typing import NDArray

from headrace.errors import CorruptFileError
from headrace.relation import kernels, probing, runfile
from headrace.relation.kernels import Words
from headrace.relation.residence import Residence, first_word
from headrace.relation.run import Run, consolidate
from headrace.relation.runset import AnyRun, RunSet, as_set
from headrace.relation.storedrun import StoredRun
from headrace.rings import COUNT, Covariance, Integer, Product

RING = Product((COUNT, Integer(2)))
Key = tuple[int, int]
KEYS = st.tuples(st.integers(0, 40), st.integers(0, 3))
ENTRIES = st.dictionaries(KEYS, st.integers(-3, 3).filter(bool), max_size=60)


def words_of(keys: list[Key]) -> Words:
    return np.array(keys, np.uint64).reshape(len(keys), 2).T.copy()


def run_of(entries: dict[Key, int]) -> Run:
    counts = np.array(list(entries.values()), np.int64)
    texts = {"text": pa.array([f"{a}/{b}" for a, b in entries], pa.large_string())}
    return consolidate(RING, words_of(list(entries)), (counts, *Integer(2).lift(counts * 10)), texts)


def stored(run: Run, buckets: NDArray[np.int32] | None = None) -> StoredRun:
    return runfile.decode(np.frombuffer(runfile.encode(run, buckets), np.uint8), "a test")


def in_buckets(parts: list[dict[Key, int]], recent: list[dict[Key, int]], buckets: int, by_key: bool) -> RunSet:
    """The parts, each split by bucket, after the recent ones, which are not split."""
    residence = Residence(buckets, first_word, by_key=by_key)
    runs, homes = list[AnyRun](), list[int]()
    for run in map(run_of, parts):
        codes = residence.of(run.words)
        for bucket in range(buckets):
            runs.append(stored(run.take(np.flatnonzero(codes == bucket))))
            homes.append(bucket)
    first = [stored(run, residence.of(run.words)) for run in map(run_of, recent)]
    return RunSet(runs, homes, buckets).after(first, residence.router)


def total(parts: list[dict[Key, int]], key: Key) -> int:
    return sum(part.get(key, 0) for part in parts)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(ENTRIES, max_size=3),
    st.lists(ENTRIES, max_size=3),
    st.lists(KEYS, max_size=30, unique=True),
    st.integers(2, 5),
    st.booleans(),
    st.booleans(),
)
def test_a_lookup_sums_over_all_runs(parts, recent, probes, buckets, by_key, in_order):  # type: ignore[no-untyped-def]
    probes = sorted(probes) if in_order else probes
    runs = in_buckets(parts, recent, buckets, by_key)
    found = runs.lookup(RING, words_of(probes))
    expected = [total(parts + recent, key) for key in probes]
    assert found[0].tolist() == expected
    assert Integer(2).values(found[1:]) == [10 * n for n in expected]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(ENTRIES, max_size=3),
    st.lists(ENTRIES, max_size=3),
    ENTRIES,
    st.lists(st.integers(0, 45), max_size=20, unique=True),
)
def test_entries_are_all_that_begin_with_a_probe(parts, recent, more, probes):  # type: ignore[no-untyped-def]
    runs = in_buckets(parts, recent, 3, True)
    probe_words = np.array([sorted(probes)], np.uint64)
    runs.find(probe_words)
    for found, everything in ((runs, parts + recent), (runs.with_run(run_of(more)), [*parts, *recent, more])):
        entries = found.entries(probe_words)
        taken = found.take(entries)
        keys, counts = taken.words.T.tolist(), taken.payload[0].tolist() if taken.payload else []
        texts = taken.values["text"].to_pylist() if taken.values else []
        owners = [sorted(probes)[owner] for owner in entries.owners]
        got = sorted(
            (tuple(key), n, text, owner) for key, n, text, owner in zip(keys, counts, texts, owners, strict=True)
        )
        assert got == sorted(
            (key, n, f"{key[0]}/{key[1]}", key[0]) for part in everything for key, n in part.items() if key[0] in probes
        )


@settings(max_examples=40, deadline=None)
@given(st.lists(ENTRIES, min_size=1, max_size=3), st.lists(st.integers(0, 45), max_size=20, unique=True))
def test_matching_adds_up(parts, probes):  # type: ignore[no-untyped-def]
    found = as_set(list(map(run_of, parts))).matching(RING, np.array([sorted(probes)], np.uint64))
    sums = {key: total(parts, key) for part in parts for key in part if key[0] in probes}
    expected = {key: n for key, n in sums.items() if n}
    keys = [] if found is None else [tuple(key) for key in found.words.T.tolist()]
    assert dict(zip(keys, [] if found is None else found.payload[0].tolist(), strict=True)) == expected


@pytest.mark.parametrize("rows", [1, 511, 512, 513, 5000])
@pytest.mark.parametrize("asked", [3, 700])
def test_long_runs_are_searched_by_fences_and_by_walking(rows: int, asked: int) -> None:
    rng = np.random.default_rng(rows + asked)
    keys = np.sort(rng.choice(3 * rows + 10, rows, replace=False)).astype(np.uint64)
    run = Run(keys[None], (np.arange(rows),))
    probes = np.sort(rng.choice(4 * rows + 10, min(asked, 4 * rows), replace=False)).astype(np.uint64)
    for some in (run, stored(run)):
        (found,) = RunSet([some]).lookup(COUNT, probes[None])
        at = {key: i for i, key in enumerate(keys.tolist())}
        assert found.tolist() == [at.get(key, 0) for key in probes.tolist()]


def test_a_long_stretch_of_one_prefix_is_found_whole() -> None:
    words = np.stack([np.repeat(np.array([1, 7, 9], np.uint64), [10, 4000, 3]), np.arange(4013, dtype=np.uint64)])
    found = RunSet([stored(Run(words, (np.ones(4013, np.int64),)))]).find(np.array([[7]], np.uint64))
    assert found.tolist() == [[0], [10], [4010], [0]]


def test_payloads_too_wide_to_copy_are_added_in_place() -> None:
    ring = Covariance(2)
    rng = np.random.default_rng(1)
    parts = [Run(np.arange(4, dtype=np.uint64)[None], ring.sample(rng, 4)) for _ in range(3)]
    found = RunSet([stored(part) for part in parts]).lookup(ring, np.array([[1, 3, 8]], np.uint64))
    for got, *columns in zip(found, *(part.payload for part in parts), strict=True):
        assert np.allclose(got[:2], sum(column[[1, 3]] for column in columns))
        assert not got[2].any()


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=2000, unique=True))
def test_a_filter_passes_every_key_of_its_run(keys: list[int]) -> None:
    run = Run(np.array([sorted(keys)], np.uint64), (np.ones(len(keys), np.int64),))
    assert RunSet([run]).find(run.words).shape[1] == len(keys)


def test_a_filter_keeps_nearly_all_other_keys_out() -> None:
    rng = np.random.default_rng(3)
    keys, others = (rng.integers(0, 2**63, 50_000).astype(np.uint64) for _ in range(2))
    bits = probing.filter_of(np.sort(keys))
    assert 8 * 50_000 <= 64 * len(bits) <= 16 * 50_000
    passing = sum(probing.passes(bits, np.uint64(kernels.mix(key))) for key in others[:20_000])
    assert passing < 0.06 * 20_000


def test_a_share_of_a_run_is_the_entries_of_its_bucket() -> None:
    run = run_of({(a, 0): 1 for a in range(40)})
    codes = Residence(4, first_word).of(run.words)
    whole = stored(run, codes)
    shares = whole.by_bucket(4)
    assert sum(share.rows for share in shares.values()) == 40
    for bucket, share in shares.items():
        assert (Residence(4, first_word).of(share.words) == bucket).all()
        assert whole.in_bucket(bucket).words.tolist() == share.words.tolist()


def test_damage_is_found_before_it_is_believed(tmp_path: Path) -> None:
    run = Run(np.arange(3000, dtype=np.uint64)[None], (np.arange(3000),))
    path = tmp_path / "a.run"
    runfile.write(run, path)
    data = bytearray(path.read_bytes())
    meta = runfile.read(path).meta
    start = len(data) - (len(runfile.read(path).data) - meta["spans"][1][0])
    data[start + 8 * 2000] ^= 1  # the payload of row 2000
    path.write_bytes(data)
    near = np.array([[10]], np.uint64)
    assert RunSet([runfile.read(path)]).lookup(COUNT, near)[0].tolist() == [10]
    with pytest.raises(CorruptFileError, match="do not match their checksums"):
        RunSet([runfile.read(path)]).lookup(COUNT, np.array([[2000]], np.uint64))


def test_what_was_found_is_not_continued_in_a_run_of_narrower_keys() -> None:
    """A search for keys of three words would read beyond those of a run that has two."""
    wide, narrow = (Run(np.ones((width, 1), np.uint64), (np.ones(1, np.int64),)) for width in (3, 2))
    runs, probes = RunSet([wide]), np.ones((3, 1), np.uint64)
    assert runs.find(probes).shape[1] == 1
    assert runs.with_run(wide)._last is not None
    assert runs.with_run(narrow)._last is None
