"""Run files that somebody made on purpose: their checksums are right, and what they say is not."""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headrace.errors import CorruptFileError
from headrace.relation import kernels, runfile
from headrace.relation.run import Run, merge
from headrace.relation.runlayout import BLOCK_WORDS, PREAMBLE
from headrace.relation.runset import RunSet
from headrace.relation.storedrun import StoredRun
from headrace.rings import COUNT, Compensated, Group

ROWS = 700


def a_run(texts: bool = True) -> Run:
    keys = np.arange(ROWS, dtype=np.uint64)
    values = {
        "t": pa.array([f"text {i}" if i % 7 else None for i in range(ROWS)], pa.large_string()),
        "b": pa.array([i % 2 == 0 for i in range(ROWS)]),
        "n": pa.array(range(ROWS), pa.int64()),
    }
    return Run(np.stack([keys, keys]), (np.ones(ROWS, np.int64),), values if texts else {})


def encoded(run: Run, *, with_buckets: bool = True) -> bytes:
    return bytes(runfile.encode(run, np.zeros(run.rows, np.int32) if with_buckets else None))


def decoded(data: bytes) -> StoredRun:
    return runfile.decode(np.frombuffer(data, np.uint8).copy(), "a crafted run")


def with_header(data: bytes, change: Callable[[dict[str, Any]], object]) -> bytes:
    """The same file with another header, which has as many bytes and the right checksum."""
    magic, header_bytes, _, size = PREAMBLE.unpack_from(data)
    (length,) = struct.unpack_from("<I", data, PREAMBLE.size)
    at = PREAMBLE.size + 4
    meta = json.loads(data[at : at + length])
    change(meta)
    text = json.dumps(meta, separators=(",", ":")).encode()
    rest = data[at + length : header_bytes]
    header = (struct.pack("<I", len(text)) + text + rest)[: header_bytes - PREAMBLE.size]
    header = header.ljust(header_bytes - PREAMBLE.size, b"\0")
    return PREAMBLE.pack(magic, header_bytes, zlib.crc32(header), size) + header + data[header_bytes:]


def with_content(data: bytes, buffer: int, change: Callable[[np.ndarray], object]) -> bytes:
    """The same file with other bytes in one buffer, and the right checksums."""
    out = bytearray(data)
    magic, header_bytes, _, size = PREAMBLE.unpack_from(data)
    (length,) = struct.unpack_from("<I", data, PREAMBLE.size)
    at = PREAMBLE.size + 4
    meta = json.loads(data[at : at + length])
    body = np.frombuffer(out, np.uint8)[header_bytes:]
    start, taken = meta["spans"][buffer]
    change(body[start : start + taken])
    sums = np.empty(meta["blocks"], np.uint64)
    kernels.checksums(body.view(np.uint64), BLOCK_WORDS, np.arange(meta["blocks"]), sums)
    after_fences = at + length + 8 * meta["words"] * -(-meta["rows"] // 512)
    out[after_fences : after_fences + sums.nbytes] = sums.tobytes()
    PREAMBLE.pack_into(out, 0, magic, header_bytes, zlib.crc32(out[PREAMBLE.size : header_bytes]), size)
    return bytes(out)


def spans(change: Callable[[list[list[int]]], object]) -> Callable[[dict[str, Any]], object]:
    return lambda meta: change(meta["spans"])


def column(number: int, **said: Any) -> Callable[[dict[str, Any]], object]:
    return lambda meta: meta["values"][number].update(said)


LIES: dict[str, Callable[[dict[str, Any]], object]] = {
    "more rows": lambda meta: meta.update(rows=ROWS + 1),
    "fewer rows": lambda meta: meta.update(rows=ROWS - 1),
    "negative rows": lambda meta: meta.update(rows=-1),
    "rows beyond numbers": lambda meta: meta.update(rows=10**30),
    "rows of a fraction": lambda meta: meta.update(rows=float(ROWS)),
    "wider keys": lambda meta: meta.update(words=3),
    "no keys": lambda meta: meta.update(words=0),
    "payload of objects": lambda meta: meta.update(payload=["|O"]),
    "payload of bytes": lambda meta: meta.update(payload=["<i1"]),
    "wider payload": lambda meta: meta.update(payload=["8<i8"]),
    "payload without columns": lambda meta: meta.update(payload=[]),
    "payload that is none": lambda meta: meta.update(payload=None),
    "a buffer elsewhere": spans(lambda found: found[1].__setitem__(0, 1 << 40)),
    "a buffer before the file": spans(lambda found: found[1].__setitem__(0, -4096)),
    "a longer buffer": spans(lambda found: found[0].__setitem__(1, 1 << 40)),
    "texts beyond the file": spans(lambda found: found[4].__setitem__(1, 1 << 40)),
    "fewer buffers": spans(lambda found: found.pop()),
    "no buffers": lambda meta: meta.update(spans=[]),
    "another type": column(2, type="decimal(38,0)"),
    "no type": column(2, type="object"),
    "a type that is none": column(2, type=7),
    "texts without ends": column(0, parts=[True, False, True]),
    "no texts": column(0, parts=[True, True, False]),
    "more parts": column(1, parts=[True, True, True]),
    "more blocks": lambda meta: meta.update(blocks=10**6),
    "no blocks": lambda meta: meta.update(blocks=0),
    "the filter elsewhere": lambda meta: meta.update(filter=0),
    "no filter": lambda meta: meta.pop("filter"),
    "no buckets": lambda meta: meta.update(buckets=False),
    "buckets that are none": lambda meta: meta.update(buckets={}),
    "a last key that is longer": lambda meta: meta["last"].append(1),
    "a last key of lists": lambda meta: meta.update(last=[[1], [2]]),
    "a last key that is no number": lambda meta: meta.update(last=["x", "y"]),
    "something else": lambda meta: meta.update(other=1),
    "deep": lambda meta: meta.update(values=[[[[[[[]]]]]]]),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_header_that_cannot_be_true_is_refused(lie: str) -> None:
    data = encoded(a_run())
    assert decoded(with_header(data, lambda meta: None)).rows == ROWS
    with pytest.raises(CorruptFileError):
        decoded(with_header(data, LIES[lie]))


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b"null", b"\xff\xfe", b"[" * 100_000])
def test_a_header_that_is_no_header_is_refused(text: bytes) -> None:
    size = -(-(PREAMBLE.size + 4 + len(text)) // 64) * 64
    header = (struct.pack("<I", len(text)) + text).ljust(size - PREAMBLE.size, b"\0")
    data = PREAMBLE.pack(b"HEADRUN1", size, zlib.crc32(header), size + 64) + header + bytes(64)
    with pytest.raises(CorruptFileError):
        decoded(data)


@pytest.mark.parametrize("length", [0, 31, 35, 10**6, 2**63])
def test_a_header_of_an_impossible_length_is_refused(length: int) -> None:
    data = bytearray(encoded(a_run()))
    struct.pack_into("<Q", data, 8, length)
    with pytest.raises(CorruptFileError):
        decoded(bytes(data))


@pytest.mark.parametrize(
    "ends", [lambda e: e.__setitem__(5, -1), lambda e: e.__setitem__(5, 1 << 50), lambda e: e.__setitem__(-1, 1 << 40)]
)
def test_texts_cannot_lie_outside_of_their_bytes(ends: Callable[[np.ndarray], object]) -> None:
    data = with_content(encoded(a_run()), 3, lambda buffer: ends(buffer.view(np.int64)))
    for read in (
        lambda run: run.check(),
        lambda run: run.take(np.arange(ROWS)),
        lambda run: run.values_at(np.array([4, 5, ROWS - 1])),
        lambda run: run.slice(0, ROWS),
        lambda run: run.select(["t"]).check(),
    ):
        with pytest.raises(CorruptFileError, match="texts of column t"):
            read(decoded(data))
    assert decoded(data).select(["n"]).values_at(np.array([5]))["n"].to_pylist() == [5]


@pytest.mark.parametrize("code", [-1, 4, 2**31 - 1])
def test_entries_cannot_lie_in_buckets_that_do_not_exist(code: int) -> None:
    data = with_content(encoded(a_run()), -1, lambda buffer: buffer.view(np.int32).__setitem__(3, code))
    with pytest.raises(CorruptFileError, match="buckets that are none of 4"):
        decoded(data).by_bucket(4)
    with pytest.raises(CorruptFileError, match="does not say in which buckets"):
        decoded(encoded(a_run(), with_buckets=False)).by_bucket(4)


@pytest.mark.parametrize("group", [Compensated()])
def test_payloads_of_another_group_are_not_summed(group: Group) -> None:
    run, probes = decoded(encoded(a_run())), np.array([[3], [3]], np.uint64)
    assert RunSet([run]).lookup(COUNT, probes)[0].tolist() == [1]
    for read in (
        lambda: RunSet([run]).lookup(group, probes),
        lambda: RunSet([run, a_run()]).matching(group, probes),
        lambda: merge(group, [run, run]),  # type: ignore[list-item]
    ):
        with pytest.raises(CorruptFileError, match="its payloads are <i8"):
            read()


def test_longer_keys_than_a_run_has_are_not_looked_for() -> None:
    run, probes = decoded(encoded(a_run())), np.zeros((3, 1), np.uint64)
    for read in (RunSet([run]).find, run.find):
        with pytest.raises(CorruptFileError, match="keys have 2 words, and 3 are looked for"):
            read(probes)
    none = a_run().take(np.arange(0))  # a run without rows may be of keys of any width
    assert RunSet([none, decoded(encoded(none))]).find(probes).shape == (4, 0)


def test_a_mapped_run_that_was_cut_short_is_damaged(tmp_path: Path) -> None:
    many = np.arange(100_000, dtype=np.uint64)
    path = tmp_path / "a.run"
    size = runfile.write(Run(many[None, :], (np.ones(len(many), np.int64),)), path)
    assert size > runfile.SMALL
    os.truncate(path, size // 2)
    with pytest.raises(CorruptFileError, match="and the run ends at"):
        runfile.read(path, 0, size)


def test_another_run_in_the_place_of_one_is_noticed(tmp_path: Path) -> None:
    one, other = a_run(), a_run()
    other.payload[0][:] = 2
    data, wrong = encoded(one), encoded(other)
    assert len(data) == len(wrong)
    (tmp_path / "a.run").write_bytes(wrong)
    with pytest.raises(CorruptFileError, match="not the run that the log names"):
        runfile.read(tmp_path / "a.run", crc=runfile.crc_of(data))


def test_only_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(encoded(a_run()))
    (tmp_path / "link").symlink_to(tmp_path / "real")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    assert runfile.read(tmp_path / "real").rows == ROWS
    for name in ("link", "pipe", "folder"):
        with pytest.raises(CorruptFileError, match="it is no file"):
            runfile.read(tmp_path / name)
