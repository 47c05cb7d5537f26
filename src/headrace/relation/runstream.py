"""Writing a run piece by piece: memory holds one piece at a time, however long the run is.

The buffers of a run file lie one after the other, and how long each becomes is known only at the end. So the pieces
wait in a file without a name, and the system then copies them into place. What takes a bit per row stays in memory.
"""

from __future__ import annotations

import errno
import mmap
import os
import tempfile
from contextlib import closing
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.relation import disk, probing
from headrace.relation.run import Run, widen
from headrace.relation.runlayout import FENCE_ROWS, FileLayout, array_buffers, column_text, dtype_text

Extents = list[tuple[int, int]]  # where the parts of a buffer wait: first byte and size
Buffer = Extents | NDArray[np.uint8]
_COPIED = 1 << 20  # bytes that are copied into place at a time


class RunStream:
    """Takes the pieces of a run in the order of their keys, and then writes its file.

    Parameters
    ----------
    folder : where the pieces wait.
    width : the words of a key; narrower keys (of strings) are widened.
    with_buckets : whether each piece comes with the buckets of its entries.
    """

    def __init__(self, folder: Path, width: int, *, with_buckets: bool = False) -> None:
        self._waiting: IO[bytes] = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115 - closed by `close`
        self._at = 0
        self._width = width
        self._words: list[Extents] = [[] for _ in range(width)]
        self._payload: list[Extents] = []
        self._columns: dict[str, _Column] = {}
        self._buckets: Extents | None = [] if with_buckets else None
        self._fences: list[NDArray[np.uint64]] = []
        self._last = np.empty(0, np.uint64)
        self._like: Run | None = None
        self.rows = 0

    def add(self, piece: Run, buckets: NDArray[np.int32] | None = None) -> None:
        """Add a piece: all of its keys follow those of earlier pieces."""
        if self._like is None:
            self._like = piece.slice(0, 0)
            self._payload = [[] for _ in piece.payload]
            self._columns = {name: _Column(array.type) for name, array in piece.values.items()}
        if not piece.rows:
            return
        words = np.ascontiguousarray(widen(piece.words, self._width))
        for extents, word in zip(self._words, words, strict=True):
            self._wait(extents, word)
        for extents, column in zip(self._payload, piece.payload, strict=True):
            self._wait(extents, np.ascontiguousarray(column))
        for name, array in piece.values.items():
            self._wait_column(self._columns[name], array)
        if self._buckets is not None:
            assert buckets is not None
            self._wait(self._buckets, np.ascontiguousarray(buckets))
        self._fences.append(words[:, -self.rows % FENCE_ROWS :: FENCE_ROWS])
        self._last = words[:, -1].copy()
        self.rows += piece.rows

    def write(self, path: Path, *, fsync: bool = False) -> tuple[int, int]:
        """Write the file, which must not exist; returns its size, and the checksum of its header."""
        assert self._like is not None, "a run has at least one piece, which may be empty"
        values = {name: column.buffers() for name, column in self._columns.items()}
        buffers: list[Buffer] = [[extent for word in self._words for extent in word], *self._payload]
        buffers += [part for parts in values.values() for part in parts if part is not None]
        buffers.append(np.zeros(8 * probing.filter_words(self.rows), np.uint8))
        if self._buckets is not None:
            buffers.append(self._buckets)
        layout = FileLayout(
            rows=self.rows,
            fences=np.concatenate([np.empty((self._width, 0), np.uint64), *self._fences], axis=1),
            last=self._last,
            payload=[dtype_text(column) for column in self._like.payload],
            columns=[column_text(name, self._columns[name].type, parts) for name, parts in values.items()],
            sizes=[_size(buffer) for buffer in buffers],
            with_buckets=self._buckets is not None,
        )
        with disk.DISK.create(path) as file:
            _reserve(file, layout.file_bytes)
            for buffer, (start, _) in zip(buffers, layout.spans, strict=True):
                self._place(buffer, file, layout.header_bytes + start)
            with closing(mmap.mmap(file, layout.file_bytes)) as out:
                _write_filter(out, layout)
                crc = layout.write_header(out)
                if fsync:
                    out.flush()
            if fsync:
                os.fsync(file)
        return layout.file_bytes, crc

    def close(self) -> None:
        """Give the room of the waiting pieces back."""
        self._waiting.close()

    def __enter__(self) -> RunStream:
        return self

    def __exit__(self, *details: object) -> None:
        self.close()

    def _wait_column(self, column: _Column, array: pa.Array) -> None:
        valid, values, *data = array_buffers(array)
        assert values is not None
        column.valid.add(valid, len(array))
        if column.bits is not None:
            column.bits.add(values, len(array))
        elif data:
            ends = values.view(np.int64) + column.end
            column.end = int(ends[-1])
            self._wait(column.values, ends[1:] if column.values else ends)
            if data[0] is not None:
                self._wait(column.data, data[0])
        else:
            self._wait(column.values, values)

    def _wait(self, extents: Extents, buffer: NDArray[Any]) -> None:
        view = memoryview(buffer.view(np.uint8).reshape(-1).data)
        extents.append((self._at, len(view)))
        self._at += len(view)
        while view:
            view = view[self._waiting.write(view) :]

    def _place(self, buffer: Buffer, file: int, start: int) -> None:
        """Write a buffer that has waited to its place in the file."""
        if isinstance(buffer, np.ndarray):
            _write_at(file, memoryview(buffer.data), start)
            return
        room = memoryview(bytearray(_COPIED))
        for at, size in buffer:
            while size:
                part = room[: os.preadv(self._waiting.fileno(), [room[:size]], at)]
                if not part:
                    raise OSError(errno.EIO, "pieces that waited are gone")
                _write_at(file, part, start)
                at, start, size = at + len(part), start + len(part), size - len(part)


class _Bits:
    """Bits of the rows of a column, in the order of Arrow; None stands for rows whose bits are all set."""

    def __init__(self) -> None:
        self._parts: list[tuple[NDArray[np.uint8] | None, int]] = []

    def add(self, packed: NDArray[np.uint8] | None, rows: int) -> None:
        self._parts.append((None if packed is None else packed.copy(), rows))

    def packed(self) -> NDArray[np.uint8] | None:
        """All of them; None if all are set."""
        if all(packed is None for packed, _ in self._parts):
            return None
        bits = [
            np.ones(rows, np.uint8) if packed is None else np.unpackbits(packed, count=rows, bitorder="little")
            for packed, rows in self._parts
        ]
        return np.packbits(np.concatenate(bits), bitorder="little")


class _Column:
    """What has come of a column of values."""

    def __init__(self, kind: pa.DataType) -> None:
        self.type = kind
        self.valid = _Bits()
        self.bits = _Bits() if pa.types.is_boolean(kind) else None
        self.values: Extents = []
        self.data: Extents = []
        self.end = 0

    def buffers(self) -> list[Buffer | None]:
        """The Arrow buffers of the whole column."""
        valid = self.valid.packed()
        if self.bits is not None:
            packed = self.bits.packed()
            return [valid, packed if packed is not None else np.zeros(0, np.uint8)]
        if pa.types.is_large_string(self.type):
            return [valid, self.values or np.zeros(8, np.uint8), self.data or None]
        return [valid, self.values]


def _reserve(file: int, size: int) -> None:
    """Give a file its size and, where the system can do that, its room on the disk.

    A full disk is an error here; where a mapped file first needs the room when it is written, it ends the process.
    """
    os.ftruncate(file, size)
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, 0, size)


def _write_at(file: int, data: memoryview, start: int) -> None:
    """Write all of the data, of which the system may take a part at a time."""
    while data:
        written = os.pwrite(file, data, start)
        data, start = data[written:], start + written


def _size(buffer: Buffer) -> int:
    return buffer.nbytes if isinstance(buffer, np.ndarray) else sum(size for _, size in buffer)


def _write_filter(out: mmap.mmap, layout: FileLayout) -> None:
    start, size = layout.spans[layout.filter]
    if size:
        data = np.frombuffer(out, np.uint8)[layout.header_bytes :]
        probing.fill_filter(data[: 8 * layout.rows].view(np.uint64), data[start : start + size].view(np.uint64))
