"""Runs as files: immutable, columnar, memory-mapped. The same bytes travel through exchanges.

`runlayout` says what lies where in a file, `storedrun` reads one, and `runstream` writes one that memory need not hold.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.errors import CorruptFileError, StorageError
from headrace.relation import disk, probing
from headrace.relation.run import Run
from headrace.relation.runlayout import (
    FENCE_ROWS,
    MAGIC,
    PREAMBLE,
    FileLayout,
    array_buffers,
    column_text,
    corrupt,
    dtype_text,
)
from headrace.relation.storedrun import StoredRun

SMALL = 1 << 18  # below this a file is read, not mapped: a mapping holds a file descriptor


def encode(run: Run, buckets: NDArray[np.int32] | None = None) -> bytearray:
    """Lay a run out as the bytes of a file; `buckets` has the bucket of each entry, if they lie in several."""
    words = np.ascontiguousarray(run.words)
    buffers: list[NDArray[Any]] = [words.reshape(-1)]
    buffers += [np.ascontiguousarray(column) for column in run.payload]
    columns = []
    for name, array in run.values.items():
        parts = array_buffers(array)
        columns.append(column_text(name, array.type, parts))
        buffers += [part for part in parts if part is not None]
    buffers.append(probing.filter_of(words[0]))
    if buckets is not None:
        buffers.append(np.ascontiguousarray(buckets))
    layout = FileLayout(
        rows=run.rows,
        fences=np.ascontiguousarray(words[:, ::FENCE_ROWS]),
        last=words[:, -1:].reshape(-1),
        payload=[dtype_text(column) for column in run.payload],
        columns=columns,
        sizes=[buffer.nbytes for buffer in buffers],
        with_buckets=buckets is not None,
    )
    out = bytearray(layout.file_bytes)
    data = np.frombuffer(out, np.uint8)[layout.header_bytes :]
    for (start, size), buffer in zip(layout.spans, buffers, strict=True):
        data[start : start + size] = buffer.view(np.uint8).reshape(-1)
    layout.write_header(out)
    return out


def write(run: Run, path: Path, *, fsync: bool = False) -> int:
    """Write a run to a new file; returns its size."""
    data = encode(run)
    write_encoded(data, path, fsync=fsync)
    return len(data)


def write_encoded(data: bytearray, path: Path, *, fsync: bool = False) -> None:
    """Write an encoded run to a new file. A file that cannot be written whole is removed."""
    try:
        disk.DISK.write(path, data, sync=fsync)
    except OSError as error:
        if not isinstance(error, FileExistsError):  # what was there before is not ours to remove
            with suppress(OSError):
                disk.DISK.remove(path)
        raise StorageError(
            f"run file {path} could not be written: {error.strerror}",
            way_out="free space or fix permissions, and apply the same changes again: nothing was committed",
        ) from error


def read(path: Path, at: int = 0, size: int | None = None, crc: int | None = None) -> StoredRun:
    """Open a run file, or a run that begins at some byte of a file and has some size.

    Parameters
    ----------
    crc : the checksum that its header must have, if that is known.

    Raises
    ------
    CorruptFileError : it is missing, truncated, another run, or its header is damaged.
    """
    try:
        return _read(path, at, size, crc)
    except CorruptFileError:
        if not disk.DISK.renewed(path):
            raise
        return _read(path, at, size, crc)


def _read(path: Path, at: int, size: int | None, crc: int | None) -> StoredRun:
    try:
        with disk.opened(path) as file:
            there = os.fstat(file.fileno()).st_size
            size = there if size is None else size
            if at + size > there:
                raise corrupt(path, f"it has {there} bytes, and the run ends at {at + size}")
            if size <= SMALL:
                data = np.fromfile(file, np.uint8, size, offset=at)
            elif at:
                raise corrupt(path, f"a run of {size} bytes has a file of its own")
            else:
                data = np.frombuffer(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ), np.uint8)
    except FileNotFoundError as error:
        raise corrupt(path, "it is missing") from error
    except disk.NoFileError as error:
        raise corrupt(path, "it is no file") from error
    except OSError as error:
        if disk.is_damage(error):
            raise corrupt(path, f"it cannot be read: {error.strerror}") from error
        raise StorageError(
            f"run file {path} could not be read: {error.strerror}",
            way_out="make the location readable again; nothing was changed",
        ) from error
    found = decode(data, str(path), crc)
    if size <= SMALL and disk.DISK.is_copy(path):
        found.check()  # at once, because what is in memory does not change with the copy if that is made anew
    return found


def crc_of(data: bytes | bytearray | memoryview) -> int:
    """The checksum of the header of an encoded run, which has the checksums of everything else."""
    return int(PREAMBLE.unpack_from(data)[2])


def decode(data: NDArray[np.uint8], name: str, crc: int | None = None) -> StoredRun:
    """Read a run from the bytes of a file, once its header is found to be true; `name` is what errors call it."""
    if len(data) < PREAMBLE.size:
        raise corrupt(name, f"it has only {len(data)} bytes")
    magic, header_bytes, header_crc, size = PREAMBLE.unpack_from(data.data)
    if magic != MAGIC:
        raise corrupt(name, "it does not begin as a run file does")
    if size != len(data):
        raise corrupt(name, f"it has {len(data)} bytes instead of {size}")
    if not PREAMBLE.size + 4 <= header_bytes <= size:
        raise corrupt(name, f"its header cannot have {header_bytes} bytes")
    if zlib.crc32(data[PREAMBLE.size : header_bytes].data) != header_crc:
        raise corrupt(name, "its header does not match its checksum")
    if crc is not None and crc != header_crc:
        raise corrupt(name, "it is not the run that the log names")
    text = _text(data)
    try:
        meta = FileLayout.read(text, header_bytes, size - header_bytes)
    except ValueError as error:
        raise corrupt(name, str(error)) from error
    return _stored(data, name, meta, header_bytes, PREAMBLE.size + 4 + len(text))


def decode_own(data: bytearray, name: str) -> StoredRun:
    """Read a run from bytes that this process has just made: there is nothing to check."""
    whole = np.frombuffer(data, np.uint8)
    text, header_bytes = _text(whole), PREAMBLE.unpack_from(data)[1]
    return _stored(whole, name, json.loads(text), header_bytes, PREAMBLE.size + 4 + len(text)).trusted()


def _text(data: NDArray[np.uint8]) -> bytes:
    (length,) = struct.unpack_from("<I", data.data, PREAMBLE.size)
    return data[PREAMBLE.size + 4 :][:length].tobytes()


def _stored(data: NDArray[np.uint8], name: str, meta: dict[str, Any], header_bytes: int, at: int) -> StoredRun:
    """A run of which the header is known to be true; its fences begin at byte `at`."""
    width, fence_count = meta["words"], -(-meta["rows"] // FENCE_ROWS)
    fences = data[at : at + 8 * width * fence_count].copy().view(np.uint64).reshape(width, fence_count)
    at += fences.nbytes
    sums = data[at : at + 8 * meta["blocks"]].copy().view(np.uint64)
    return StoredRun(name, data[header_bytes:], meta, fences, sums, np.zeros(meta["blocks"], bool))
