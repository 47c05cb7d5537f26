"""Run files: what is written comes back, and a file with any byte wrong never gives a wrong answer."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import CorruptFileError, StorageError
from headrace.relation import disk, runfile
from headrace.relation.run import Run, merge
from headrace.relation.storedrun import StoredRun
from headrace.relation.types import SqlType
from headrace.rings import Compensated, Integer, Product

SAMPLES: dict[str, list[object]] = {
    "tinyint": [1, -128, 127],
    "smallint": [1, -(2**15)],
    "int": [5, -(2**31)],
    "bigint": [2**63 - 1, -(2**63)],
    "float": [1.5, -0.0],
    "double": [0.1, float("inf")],
    "decimal(9,2)": [Decimal("1.25"), Decimal("-9999999.99")],
    "decimal(38,0)": [Decimal(10**38 - 1), Decimal(-1)],
    "string": ["", "a\0b", "日本", "x" * 300],
    "date": [date(1, 1, 1), date(9999, 12, 31)],
    "timestamp": [datetime(2020, 1, 1, tzinfo=UTC)],
    "timestamp_ntz": [datetime(1969, 12, 31)],
    "boolean": [True, False],
}
RING = Product((Integer(1), Integer(2), Compensated()))


def a_run(rows: int, *, width: int = 2, nulls: str = "some", seed: int = 0, texts: bool = True) -> Run:
    """A run with several entries to each lead word, and a column of every type."""
    rng, choose = np.random.default_rng(seed), random.Random(seed)
    keys = np.arange(rows, dtype=np.uint64) * np.uint64(3)
    words = np.stack([keys // np.uint64(7)] * (width - 1) + [keys]) if width > 1 else keys[None, :]
    values = {}
    for name, samples in SAMPLES.items():
        picks = [choose.choice(samples) for _ in range(rows)]
        if nulls != "none":
            picks = [None if nulls == "all" or choose.random() < 0.3 else pick for pick in picks]
        values[name] = pa.array(picks, SqlType.parse(name).arrow)
    values["empty"] = pa.array([""] * rows, pa.large_string())
    return Run(words, RING.sample(rng, rows), values if texts else {})


def assert_same(one: Run | StoredRun, other: Run | StoredRun) -> None:
    assert one.rows == other.rows
    assert (one.words == other.words).all()
    assert [c.dtype for c in one.payload] == [c.dtype for c in other.payload]
    assert all(a.tobytes() == b.tobytes() for a, b in zip(one.payload, other.payload, strict=True))
    assert list(one.values) == list(other.values)
    for name in one.values:
        a, b = one.values[name], other.values[name]
        a.validate(full=True)
        assert a.type == b.type
        assert a.equals(b), name


def stored(run: Run, path: Path) -> StoredRun:
    size = runfile.write(run, path)
    assert path.stat().st_size == size
    return runfile.read(path)


@pytest.mark.parametrize("rows", [0, 1, 2, 7, 8, 9, 63, 1023, 1024, 1025, 6000])
@pytest.mark.parametrize("nulls", ["none", "some", "all"])
def test_a_run_comes_back_from_its_file(tmp_path, rows, nulls):
    run = a_run(rows, nulls=nulls)
    back = stored(run, tmp_path / "a.run")
    back.check()
    assert_same(back, run)
    assert_same(back.take(np.arange(rows)), run)


def test_a_mapped_run_of_many_blocks_comes_back_from_its_file(tmp_path):
    run = a_run(40_000, width=3, texts=False)
    back = stored(run, tmp_path / "a.run")
    assert len(back.verified) > 50
    assert_same(back, run)
    assert not back.verified.any()
    back.check()
    assert back.verified.all()


def test_sliced_values_are_written_as_their_copies_are(tmp_path):
    whole = a_run(50)
    values = {name: column.slice(3, 40) for name, column in whole.values.items()}
    run = Run(np.ascontiguousarray(whole.words[:, 3:43]), tuple(c[3:43] for c in whole.payload), values)
    back = stored(run, tmp_path / "a.run")
    back.check()
    assert_same(back, run)


def test_a_stored_run_merges_like_one_in_memory(tmp_path):
    one, other = a_run(3000, texts=False), a_run(2500, seed=1, texts=False)
    files = [stored(run, tmp_path / f"{i}.run") for i, run in enumerate((one, other))]
    assert_same(merge(RING, files), merge(RING, [one, other]))


def find_both(run: Run, file: StoredRun, probes: np.ndarray) -> None:
    first, last = run.find(probes)
    file_first, file_last = file.find(probes)
    assert (file_last - file_first == last - first).all()
    hits = last > first
    assert (file_first[hits] == first[hits]).all()


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 3), st.integers(0, 2), st.booleans(), st.integers(0, 2**32), st.sampled_from([0, 1, 1024, 5000]))
def test_finding_in_a_file_is_finding_in_memory(width, fewer, ordered, seed, rows):
    run = a_run(rows, width=width, texts=False)
    file = runfile.decode(np.frombuffer(bytes(runfile.encode(run)), np.uint8), "in memory")
    rng = np.random.default_rng(seed)
    probes = rng.integers(0, 3 * rows + 3, (width, 50), dtype=np.uint64)
    if rows:
        probes[:, :25] = run.words[:, rng.integers(0, rows, 25)]
    probes = probes[: max(1, width - fewer)]
    if ordered:
        probes = probes[:, np.lexsort(probes[::-1])]
    find_both(run, file, np.ascontiguousarray(probes))


@pytest.mark.parametrize("beyond", [[0], [2**64 - 1], [0, 2**64 - 1], [0, 1050], []])
def test_probes_outside_the_keys_of_a_file_find_nothing(beyond):
    run = Run(np.arange(100, 2100, dtype=np.uint64)[None, :], (np.ones(2000, np.int64),))
    file = runfile.decode(np.frombuffer(bytes(runfile.encode(run)), np.uint8), "in memory")
    find_both(run, file, np.array([beyond], np.uint64).reshape(1, len(beyond)))


def test_a_prefix_may_stretch_over_many_fences():
    words = np.stack([np.repeat(np.array([1, 2, 3], np.uint64), 3000), np.arange(9000, dtype=np.uint64)])
    run = Run(words, (np.ones(9000, np.int64),))
    file = runfile.decode(np.frombuffer(bytes(runfile.encode(run)), np.uint8), "in memory")
    find_both(run, file, np.array([[0, 1, 2, 3, 4]], np.uint64))


def damaged_copies(data: bytes, count: int, seed: int):
    """Copies with one byte flipped, at the edges of everything and at random places."""
    choose = random.Random(seed)
    header = int.from_bytes(data[8:16], "little")
    chosen = {*range(0, 40), *range(header - 8, min(header + 8, len(data))), len(data) - 1}
    chosen |= {choose.randrange(header) for _ in range(count // 2)} | {
        choose.randrange(len(data)) for _ in range(count)
    }
    for position in sorted(p for p in chosen if p < len(data)):
        copy = bytearray(data)
        copy[position] ^= 1 << choose.randrange(8)
        yield position, bytes(copy)


@pytest.mark.parametrize(("rows", "nulls"), [(0, "none"), (1, "some"), (200, "some"), (200, "all"), (5500, "none")])
def test_any_flipped_byte_is_noticed_when_the_file_is_checked(tmp_path, rows, nulls):
    run = a_run(rows, nulls=nulls)
    data = bytes(runfile.encode(run))
    for position, copy in damaged_copies(data, 200, rows):
        path = tmp_path / "damaged.run"
        path.write_bytes(copy)
        with pytest.raises(CorruptFileError) as caught:
            runfile.read(path).check()
        assert str(path) in str(caught.value), position


def read_some(run: Run, copy: bytes, some: np.ndarray) -> None:
    file = runfile.decode(np.frombuffer(copy, np.uint8), "damaged.run")
    find_both(run, file, np.ascontiguousarray(run.words[:, some]))
    assert_same(file.take(some), run.take(some))


@pytest.mark.parametrize("rows", [200, 5500])
def test_reading_parts_of_a_damaged_file_raises_or_is_right(rows):
    run = a_run(rows)
    data = bytes(runfile.encode(run))
    choose, noticed = random.Random(rows), 0
    for _, copy in damaged_copies(data, 200, rows + 1):
        try:
            read_some(run, copy, np.array(sorted(choose.sample(range(rows), 5))))
        except CorruptFileError:
            noticed += 1
    assert noticed > 40  # the header at least


def take_one_by_one(file: StoredRun) -> None:
    for position in range(0, file.rows, 25):
        file.take(np.array([position]))


@pytest.mark.parametrize("buffer", range(16))
def test_a_damaged_column_cannot_be_taken_from(buffer):
    data = bytes(runfile.encode(a_run(5500)))
    clean = runfile.decode(np.frombuffer(data, np.uint8), "clean")
    start, size = clean.meta["spans"][buffer]
    copy = bytearray(data)
    copy[len(data) - len(clean.data) + start + size // 2] ^= 4
    file = runfile.decode(np.frombuffer(bytes(copy), np.uint8), "damaged.run")
    take_one_by_one(clean)
    with pytest.raises(CorruptFileError, match=r"damaged\.run.*1 of its blocks"):
        take_one_by_one(file)


@pytest.mark.parametrize(("start", "stop"), [(0, 5500), (0, 0), (7, 8), (511, 2049), (5499, 5500)])
def test_a_slice_is_what_would_be_taken(start, stop):
    run = a_run(5500)
    file = runfile.decode(np.frombuffer(bytes(runfile.encode(run)), np.uint8), "clean")
    assert_same(file.slice(start, stop), run.take(np.arange(start, stop)))
    some = file.select(["string", "boolean", "no such column"])
    assert_same(some.slice(start, stop), some.take(np.arange(start, stop)))
    assert list(some.values) == ["string", "boolean"]


@pytest.mark.parametrize("column", ["int", "double", "decimal(38,0)", "string", "timestamp"])
def test_values_that_are_not_selected_are_not_verified_and_all_others_are(column):
    data = bytes(runfile.encode(a_run(5500, nulls="none")))
    clean, block = runfile.decode(np.frombuffer(data, np.uint8), "clean"), 4096
    buffers = [c["name"] for c in clean.meta["values"] for present in c["parts"] if present]
    start, size = clean.meta["spans"][1 + len(clean.payload) + buffers.index(column)]
    at = -(-start // block) * block
    assert at + block <= start + size, "a block that is this column's alone"
    copy = bytearray(data)
    copy[len(data) - len(clean.data) + at] ^= 4

    def read(*names: str) -> None:
        file = runfile.decode(np.frombuffer(bytes(copy), np.uint8), "damaged.run").select(names)
        file.slice(0, file.rows)
        file.take(np.arange(file.rows))
        file.check()

    read()
    read(*(name for name in SAMPLES if name != column))
    with pytest.raises(CorruptFileError, match=r"damaged\.run.*1 of its blocks"):
        read(column)


def test_a_string_whose_end_lies_in_a_damaged_block_cannot_be_taken():
    """The offset at which a string ends may stand in the block behind the one it begins in."""
    texts = {"t": pa.array(["a", "bc"] * 4000, pa.large_string())}
    data = bytes(runfile.encode(Run(np.arange(8000, dtype=np.uint64)[None, :], (), texts)))
    clean, block = runfile.decode(np.frombuffer(data, np.uint8), "clean"), 16384
    start, body = clean.meta["spans"][1][0], len(data) - len(clean.data)
    edge = -(-start // block) * block  # the first byte of a block of offsets
    copy = bytearray(data)
    copy[body + edge] ^= 1
    file = runfile.decode(np.frombuffer(bytes(copy), np.uint8), "damaged.run")
    with pytest.raises(CorruptFileError):
        file.take(np.array([(edge - start) // 8 - 1]))


def test_every_truncation_is_noticed(tmp_path):
    data = bytes(runfile.encode(a_run(300)))
    path = tmp_path / "cut.run"
    header = int.from_bytes(data[8:16], "little")
    lengths = {*range(0, 70), header - 1, header, header + 1, len(data) - 1, *range(0, len(data), 499)}
    for length in sorted(lengths):
        path.write_bytes(data[:length])
        with pytest.raises(CorruptFileError, match=r"cut\.run"):
            runfile.read(path)
    path.write_bytes(data + b"\0")
    with pytest.raises(CorruptFileError, match="bytes instead of"):
        runfile.read(path)


def test_bytes_too_short_for_a_preamble_are_noticed():
    with pytest.raises(CorruptFileError, match="only 3 bytes"):
        runfile.decode(np.zeros(3, np.uint8), "short")


def test_a_missing_file_is_named_with_a_way_out(tmp_path):
    with pytest.raises(CorruptFileError, match=r"gone\.run is damaged: it is missing") as caught:
        runfile.read(tmp_path / "gone.run")
    assert "restore the file from a backup" in caught.value.way_out


def test_a_file_of_another_kind_is_refused(tmp_path):
    (tmp_path / "other").write_bytes(b"PAR1" * 100)
    with pytest.raises(CorruptFileError, match="does not begin as a run file does"):
        runfile.read(tmp_path / "other")


def test_a_file_is_never_written_over(tmp_path):
    path = tmp_path / "a.run"
    runfile.write(a_run(3), path)
    before = path.read_bytes()
    with pytest.raises(StorageError, match=r"a\.run could not be written"):
        runfile.write(a_run(5), path)
    assert path.read_bytes() == before


def test_a_location_that_is_not_there_is_a_storage_error(tmp_path):
    with pytest.raises(StorageError, match="No such file or directory"):
        runfile.write(a_run(3), tmp_path / "nowhere" / "a.run")


def test_a_file_that_cannot_be_read_is_a_storage_error_not_a_damaged_file(tmp_path, monkeypatch):
    def opened(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(disk, "opened", opened)
    with pytest.raises(StorageError, match="could not be read: Permission denied"):
        runfile.read(tmp_path / "a.run")
