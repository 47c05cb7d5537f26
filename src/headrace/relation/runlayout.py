"""What lies where in a run file.

A fixed preamble, a header (JSON, fences, checksums) guarded by a CRC, then the buffers, each aligned to 64 bytes: the
words of the keys, the payload, the values, a filter of the keys (`probing.filter_of`) and, in a run that has entries of
several buckets, the bucket of each. *Fences* are every 512th key; a search reads them first and then one stretch of the
file. *Checksums* guard blocks of 4 KB.
"""

from __future__ import annotations

import json
import mmap
import re
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.errors import CorruptFileError, HeadraceError
from headrace.relation import kernels, probing
from headrace.relation.kernels import Words
from headrace.relation.types import SqlType, sql_type
from headrace.rings import Group

MAGIC = b"HEADRUN1"
PREAMBLE = struct.Struct("<8sQQQ")  # magic, header bytes, header CRC, file bytes
FENCE_ROWS = probing.FENCE_ROWS
BLOCK_WORDS = 512
BLOCK_BYTES = 8 * BLOCK_WORDS
_ALIGN = 64
_MOST = 1 << 40  # rows, or words of a key, that no run has
_PAYLOAD = re.compile("([1-9][0-9]{0,8})?<[iuf]8")  # as `dtype_text` writes types: searches copy payloads word by word


@dataclass(frozen=True)
class FileLayout:
    """Where the buffers of one file lie, and what its header says.

    Parameters
    ----------
    fences : every 512th key.
    last : the words of the last key; none if there are no rows.
    payload : the types of the columns of the payload, as `dtype_text` writes them.
    columns : the columns of values, as `column_text` describes them.
    sizes : the bytes of all buffers.
    with_buckets : whether the last buffer has the bucket of each entry.
    """

    rows: int
    fences: Words
    last: Words
    payload: Sequence[str]
    columns: Sequence[dict[str, Any]]
    sizes: Sequence[int]
    with_buckets: bool

    @classmethod
    def read(cls, text: bytes, header_bytes: int, data_bytes: int) -> dict[str, Any]:
        """What the text of a header says, if it can be true of a file with a header of so many bytes, and so many more.

        A checksum tells that a file is as somebody wrote it, not that Headrace did. So the layout is made again from
        the number of rows and the types, and its text has to be that of the file, byte by byte.

        Raises
        ------
        ValueError : it cannot be true.
        """
        try:
            meta = json.loads(text)
            rows, width, payload, columns = meta["rows"], meta["words"], meta["payload"], meta["values"]
            with_buckets = meta["buckets"]
            if type(rows) is not int or type(width) is not int or not 0 <= rows < _MOST or not 0 < width < _MOST:
                raise ValueError(f"it cannot have {rows} rows with keys of {width} words")
            if type(with_buckets) is not bool:
                raise ValueError("it does not say whether it has buckets")
            sizes = [8 * rows * width, *(rows * payload_dtype(kind).itemsize for kind in payload)]
            for column in columns:
                sizes += _column_sizes(column, rows, [size for _, size in meta["spans"][len(sizes) :][:3]])
            sizes += [8 * probing.filter_words(rows), *([4 * rows] if with_buckets else [])]
            last = np.array(meta["last"], np.uint64)
            if len(last) != (width if rows else 0):
                raise ValueError(f"its last key has {len(last)} words")
            fences = np.broadcast_to(np.uint64(0), (width, -(-rows // FENCE_ROWS)))  # how many there are, and not which
            layout = cls(rows, fences, last, payload, columns, sizes, with_buckets)
            same = (layout._text, layout.header_bytes, layout._data_bytes) == (text, header_bytes, data_bytes)
        except (TypeError, KeyError, AttributeError, IndexError, OverflowError, RecursionError, HeadraceError) as error:
            raise ValueError(f"its header cannot be read: {error}") from error
        if not same:
            raise ValueError("its header does not fit its size")
        return cast("dict[str, Any]", meta)

    @cached_property
    def spans(self) -> list[tuple[int, int]]:
        """The first byte of each buffer after the header, and its size."""
        spans, at = [], 0
        for size in self.sizes:
            spans.append((at, size))
            at += _aligned(size)
        return spans

    @property
    def filter(self) -> int:
        """The number of the buffer with the filter."""
        return len(self.sizes) - 1 - self.with_buckets

    @cached_property
    def header_bytes(self) -> int:
        """How many bytes lie before the buffers."""
        return _aligned(PREAMBLE.size + 4 + len(self._text) + self.fences.nbytes + 8 * self._blocks)

    @property
    def file_bytes(self) -> int:
        """The size of the file."""
        return self.header_bytes + self._data_bytes

    def write_header(self, out: bytearray | mmap.mmap) -> int:
        """Write the header of a file whose buffers are in place; returns its checksum."""
        start, sums = self.header_bytes, np.empty(self._blocks, np.uint64)
        data = np.frombuffer(out, np.uint8)[start:].view(np.uint64)
        kernels.checksums(data, BLOCK_WORDS, np.arange(self._blocks), sums)
        at = PREAMBLE.size
        for part in (struct.pack("<I", len(self._text)), self._text, self.fences.tobytes(), sums.tobytes()):
            out[at : at + len(part)] = part
            at += len(part)
        crc = zlib.crc32(out[PREAMBLE.size : start])
        PREAMBLE.pack_into(out, 0, MAGIC, start, crc, len(out))
        return crc

    @property
    def _data_bytes(self) -> int:
        start, size = self.spans[-1]
        return start + _aligned(size)

    @property
    def _blocks(self) -> int:
        return -(-self._data_bytes // BLOCK_BYTES)

    @cached_property
    def _text(self) -> bytes:
        meta = {
            "rows": self.rows,
            "words": self.fences.shape[0],
            "payload": self.payload,
            "values": self.columns,
            "spans": self.spans,
            "blocks": self._blocks,
            "last": [int(word) for word in self.last],
            "filter": self.filter,
            "buckets": self.with_buckets,
        }
        return json.dumps(meta, separators=(",", ":")).encode()


def _aligned(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN


def column_text(name: str, kind: pa.DataType, parts: Sequence[object]) -> dict[str, Any]:
    """Describe a column of values: its name, its type, and which of its Arrow buffers there are."""
    return {"name": name, "type": str(sql_type(kind)), "parts": [part is not None for part in parts]}


def dtype_text(column: NDArray[Any]) -> str:
    """Name the type of a column of payloads, as in "<i8", or "377<f8" for several numbers per key."""
    return "".join(f"{width}" for width in column.shape[1:]) + column.dtype.str


def kinds_of(group: Group) -> tuple[str, ...]:
    """The types of the payloads of a group, as `dtype_text` names those of columns."""
    return _named(tuple(group.dtypes))


@lru_cache  # because it is asked for at every lookup
def _named(dtypes: tuple[np.dtype[Any], ...]) -> tuple[str, ...]:
    return tuple("".join(f"{width}" for width in dtype.shape) + dtype.base.str for dtype in dtypes)


def payload_dtype(text: str) -> np.dtype[Any]:
    """The type that `dtype_text` has named; raises ValueError for any other."""
    if not _PAYLOAD.fullmatch(text):
        raise ValueError(f"{text!r} is no type of a payload")
    return np.dtype(text)


def _column_sizes(column: dict[str, Any], rows: int, said: Sequence[int]) -> list[int]:
    """The bytes of the buffers of a column of values; those of its texts, which nothing else tells, are as said."""
    if column.keys() != {"name", "type", "parts"} or not isinstance(column["name"], str):
        raise ValueError(f"{column!r} describes no column")
    kind, parts = SqlType.parse(column["type"]).arrow, column["parts"]
    bits = -(-rows // 8)
    if pa.types.is_large_string(kind):
        sizes = [bits, 8 * (rows + 1) if rows else 8, *(said[sum(parts[:2]) :][:1] if parts[2] else [0])]
    else:
        sizes = [bits, bits if pa.types.is_boolean(kind) else rows * kind.bit_width // 8]
    if len(parts) != len(sizes) or not parts[1] or not all(type(part) is bool for part in parts):
        raise ValueError(f"column {column['name']} has other parts")
    return [size for part, size in zip(parts, sizes, strict=True) if part]


def array_buffers(array: pa.Array) -> list[NDArray[np.uint8] | None]:
    """The Arrow buffers of a column: which values there are, if some are NULL; the values, or their ends and bytes."""
    if array.offset:
        array = array.take(pa.array(np.arange(len(array))))
    n, buffers = len(array), array.buffers()
    valid = None
    if array.null_count:
        valid = np.frombuffer(buffers[0], np.uint8)[: -(-n // 8)]
    if pa.types.is_large_string(array.type):
        if n == 0:
            return [None, np.zeros(8, np.uint8), None]
        offsets = np.frombuffer(buffers[1], np.int64)[: n + 1]
        data = np.frombuffer(buffers[2], np.uint8)[: offsets[-1]] if offsets[-1] else None
        return [valid, offsets.view(np.uint8), data]
    size = -(-n // 8) if pa.types.is_boolean(array.type) else n * array.type.bit_width // 8
    return [valid, np.frombuffer(buffers[1], np.uint8)[:size] if n else np.zeros(0, np.uint8)]


def corrupt(path: Path | str, why: str) -> CorruptFileError:
    """The error for a file that is not what was written."""
    return CorruptFileError(
        f"run file {path} is damaged: {why}",
        way_out="restore the file from a backup; if only a view is damaged, drop the view and create it again: "
        "it is rebuilt from its table",
    )
