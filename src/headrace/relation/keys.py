"""From SQL values to key words and back.

`KeyLayout` decides how the columns of a key become 64-bit words. A value of fixed width becomes one or two words that
sort as the values do, and is read back from them, so it is stored once. A string becomes a 128-bit hash (seeded by the
location), and its text is stored beside the key. Keys of several columns get one more word in front, a hash of all the
others: a search then compares one word, and ties are told apart by the rest. NULLs are bits of the last words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.relation import kernels
from headrace.relation.kernels import Words
from headrace.relation.types import SqlType

_SIGN = np.uint64(1 << 63)
_NUMPY = {"tinyint": "i1", "smallint": "i2", "int": "i4", "bigint": "i8", "date": "i4", "timestamp": "i8"}
_NUMPY |= {"timestamp_ntz": "i8", "float": "f4", "double": "f8"}


@dataclass(frozen=True)
class KeyLayout:
    """How the columns of a key are laid out as words.

    >>> layout = KeyLayout((SqlType("bigint"),), (False,), seed=7)
    >>> words = layout.encode([pa.array([3, -1])])
    >>> layout.width, layout.decode(words)[0].to_pylist()
    (1, [3, -1])
    """

    types: tuple[SqlType, ...]
    nullable: tuple[bool, ...]
    seed: int

    @cached_property
    def has_lead(self) -> bool:
        """Whether a hash word goes first: for keys of several columns, and for one whose first word says little."""
        # The high half of a wide decimal is nearly always 0 or -1: all keys would fall into two buckets.
        return len(self.types) > 1 or any(kind.precision > 18 for kind in self.types)

    @cached_property
    def null_words(self) -> int:
        """How many words of NULL bits go last."""
        return -(-len(self.types) // 64) if any(self.nullable) else 0

    @cached_property
    def width(self) -> int:
        """Number of words a key has."""
        inner = sum(_words_of(kind) for kind in self.types)
        return max(1, inner + self.has_lead + self.null_words)

    @cached_property
    def stored(self) -> tuple[int, ...]:
        """Which columns cannot be read back from the words, so that their values are stored beside them."""
        return tuple(i for i, kind in enumerate(self.types) if kind.kind == "string")

    def encode(self, columns: list[pa.Array]) -> Words:
        """Make the words of the keys in these columns."""
        n = len(columns[0]) if columns else 0
        words = np.zeros((self.width, n), np.uint64)
        at = int(self.has_lead)
        for i, (column, kind) in enumerate(zip(columns, self.types, strict=True)):
            width = _words_of(kind)
            if kind.kind == "string":
                offsets, data = string_buffers(column)
                kernels.hash_strings(offsets, data, np.uint64(self.seed), words[at : at + width])
            else:
                words[at : at + width] = ordered_words(column, kind)
            if column.null_count:
                missing = ~validity(column)
                words[at : at + width, missing] = 0
                if self.null_words:
                    words[self._null_word(i)] |= missing.astype(np.uint64) << np.uint64(i % 64)
            at += width
        if self.has_lead:
            kernels.fold(words[1:], np.uint64(self.seed), words[0])
        return words

    def pack(self, columns: Sequence[tuple[Words, NDArray[np.bool_] | None]], n: int) -> Words:
        """Make the words of n keys from those of their columns, each with a mask of its NULLs if it has some."""
        words = np.zeros((self.width, n), np.uint64)
        at = int(self.has_lead)
        for i, (own, missing) in enumerate(columns):
            words[at : at + len(own)] = own
            if missing is not None and self.null_words:
                words[self._null_word(i)] |= missing.astype(np.uint64) << np.uint64(i % 64)
            at += len(own)
        if self.has_lead:
            kernels.fold(words[1:], np.uint64(self.seed), words[0])
        return words

    def words_of(self, words: Words, columns: Sequence[int]) -> Words:
        """The words of some columns of keys, side by side, without what says whether they are NULL."""
        starts = np.cumsum([int(self.has_lead), *map(_words_of, self.types)])
        rows = [row for i in columns for row in range(starts[i], starts[i + 1])]
        return words[rows]

    def encode_empty(self, n: int) -> Words:
        """Make the words of n empty keys (a total: one group, no columns)."""
        return np.zeros((self.width, n), np.uint64)

    def decode(self, words: Words) -> list[pa.Array | None]:
        """Read columns back from words; None where the column is stored beside the key."""
        columns: list[pa.Array | None] = []
        at = int(self.has_lead)
        for i, kind in enumerate(self.types):
            width = _words_of(kind)
            missing = (words[self._null_word(i)] >> np.uint64(i % 64)) & np.uint64(1) if self.nullable[i] else None
            if kind.kind == "string":
                columns.append(None)
            else:
                mask = None if missing is None else missing.astype(bool)
                columns.append(values_of_words(words[at : at + width], kind, mask))
            at += width
        return columns

    def _null_word(self, column: int) -> int:
        return self.width - self.null_words + column // 64


def _words_of(kind: SqlType) -> int:
    return 2 if kind.kind == "string" or kind.precision > 18 else 1


def validity(column: pa.Array) -> NDArray[np.bool_]:
    """Tell which values are not NULL."""
    return np.asarray(pc.is_valid(column).to_numpy(zero_copy_only=False), dtype=bool)


def string_buffers(column: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """View a large_string array as offsets and bytes, without copying."""
    _, offsets, data = column.buffers()
    if offsets is None:
        return np.zeros(len(column) + 1, np.int64), np.zeros(0, np.uint8)
    edges = np.frombuffer(offsets, np.int64)[column.offset : column.offset + len(column) + 1]
    return edges, np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(0, np.uint8)


def decimal_halves(column: pa.Array) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """View a decimal128 array as low and high 64-bit halves."""
    raw = np.frombuffer(column.buffers()[1], np.uint64)[2 * column.offset : 2 * (column.offset + len(column))]
    return raw[0::2], raw[1::2].view(np.int64)


def decimals_of_halves(
    low: NDArray[np.uint64], high: NDArray[np.int64], kind: SqlType, valid: pa.Buffer | None
) -> pa.Array:
    """Make a decimal128 array from its halves."""
    raw = np.empty(2 * len(low), np.uint64)
    raw[0::2], raw[1::2] = low, np.ascontiguousarray(high).view(np.uint64)
    return pa.Array.from_buffers(kind.arrow, len(low), [valid, pa.py_buffer(raw)])


def fixed_values(column: pa.Array, kind: SqlType) -> NDArray[np.generic]:
    """View a fixed-width column as NumPy values; what stands at NULLs is unspecified."""
    if kind.kind == "boolean":
        filled = column.fill_null(False) if column.null_count else column
        return np.asarray(filled.to_numpy(zero_copy_only=False), dtype=bool)
    dtype = np.dtype(_NUMPY[kind.kind])
    return np.frombuffer(column.buffers()[1], dtype)[column.offset : column.offset + len(column)]


def bitmap(mask: NDArray[np.bool_] | None) -> pa.Buffer | None:
    """Make Arrow's validity bitmap from a mask of NULLs."""
    if mask is None or not mask.any():
        return None
    return pa.py_buffer(np.packbits(~mask, bitorder="little"))


def ordered_words(column: pa.Array, kind: SqlType) -> Words:
    """Make words that sort as the values do; NULLs get whatever stands under them."""
    n = len(column)
    if n == 0:
        return np.zeros((_words_of(kind), 0), np.uint64)
    if kind.is_decimal:
        low, high = decimal_halves(column)
        if kind.precision <= 18:  # the low half is the whole value
            return (low ^ _SIGN)[None, :]
        return np.stack([high.view(np.uint64) ^ _SIGN, low])
    values = fixed_values(column, kind)
    if kind.is_floating:
        doubles = values.astype(np.float64) + 0.0  # -0.0 and 0.0 are one key, as in Spark
        doubles[np.isnan(doubles)] = np.nan
        bits = doubles.view(np.uint64)
        return np.where(bits & _SIGN, ~bits, bits | _SIGN)[None, :]
    return (values.astype(np.int64).view(np.uint64) ^ _SIGN)[None, :]


def values_of_words(words: Words, kind: SqlType, missing: NDArray[np.bool_] | None) -> pa.Array:
    """Invert `ordered_words`."""
    n, valid = words.shape[1], bitmap(missing)
    if kind.is_decimal:
        if kind.precision <= 18:
            low = np.ascontiguousarray(words[0]) ^ _SIGN
            return decimals_of_halves(low, low.view(np.int64) >> 63, kind, valid)
        return decimals_of_halves(words[1], (words[0] ^ _SIGN).view(np.int64), kind, valid)
    word = np.ascontiguousarray(words[0])
    if kind.is_floating:
        bits = np.where(word & _SIGN, word ^ _SIGN, ~word)
        values: NDArray[np.generic] = bits.view(np.float64).astype(_NUMPY[kind.kind])
    elif kind.kind == "boolean":
        return pa.array((word ^ _SIGN).astype(bool), mask=missing)
    else:
        values = (word ^ _SIGN).view(np.int64).astype(_NUMPY[kind.kind])
    return pa.Array.from_buffers(kind.arrow, n, [valid, pa.py_buffer(values)])


def ordered_string_words(column: pa.Array) -> Words:
    """Make words that sort as the strings' bytes do: as many as the longest string needs, and the length."""
    offsets, data = string_buffers(column)
    longest = int(np.diff(offsets).max(initial=0))
    words = np.zeros(((longest + 7) // 8 + 1, len(column)), np.uint64)
    kernels.chunk_strings(offsets, data, words)
    return words


def strings_of_words(words: Words, missing: NDArray[np.bool_] | None) -> pa.Array:
    """Invert `ordered_string_words`."""
    n, lengths = words.shape[1], words[-1].astype(np.int64)
    chunks = np.ascontiguousarray(words[:-1].T).astype(">u8").view(np.uint8).reshape(n, 8 * (words.shape[0] - 1))
    keep = np.arange(chunks.shape[1])[None, :] < lengths[:, None]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    buffers = [bitmap(missing), pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(chunks[keep]))]
    return pa.Array.from_buffers(pa.large_string(), n, buffers)
