"""A run in a file: the fields of a run as views into the file, never believed without a checksum.

Checksums are verified when a block is first read by a process, so damage is found where it is read, at the cost of what
is read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.relation import disk, kernels
from headrace.relation.columns import positions_of
from headrace.relation.kernels import Positions, Words
from headrace.relation.run import Place, Run, Values, take_values
from headrace.relation.runlayout import BLOCK_BYTES, BLOCK_WORDS, FENCE_ROWS, corrupt, kinds_of
from headrace.relation.types import SqlType
from headrace.rings import Group, Payload, take

# What the objects of an open run take, measured: arrays, places and texts, and more of them per buffer of the file.
_OBJECT_BYTES, _OBJECT_BYTES_PER_BUFFER = 6_000, 550


@dataclass
class StoredRun:
    """A run in a file. Its fields are views into the file; `check` the positions before reading them."""

    name: str
    data: NDArray[np.uint8]
    meta: dict[str, Any]
    fences: Words
    sums: NDArray[np.uint64]
    verified: NDArray[np.bool_]
    shown: frozenset[str] | None = None  # the values that it has; None: all that are in the file

    @property
    def rows(self) -> int:
        return int(self.meta["rows"])

    @property
    def aside_bytes(self) -> int:
        """How much memory it takes besides its data: fences, checksums, flags, and what is made when it is used."""
        objects = _OBJECT_BYTES + _OBJECT_BYTES_PER_BUFFER * len(self.meta["spans"])
        flags = self.verified.nbytes + self._wanted.nbytes + sum(ready.nbytes for ready in self._ready.values())
        return int(self.fences.nbytes + self.sums.nbytes + flags) + objects

    @cached_property
    def words(self) -> Words:
        return self._buffer(0).view(np.uint64).reshape(self.meta["words"], self.rows)

    @cached_property
    def payload(self) -> Payload:
        columns = []
        for i, text in enumerate(self.meta["payload"]):
            dtype = np.dtype(text)  # a payload of several numbers, such as "377<f8", is one row a key
            columns.append(self._buffer(1 + i).view(dtype.base).reshape(self.rows, *dtype.shape))
        return tuple(columns)

    @cached_property
    def values(self) -> Values:
        out: Values = {}
        for column, first in self._columns:
            at, parts = first, []
            for present in column["parts"]:
                parts.append(pa.py_buffer(self._buffer(at)) if present else None)
                at += present
            if len(parts) == 3 and parts[2] is None:
                parts[2] = pa.py_buffer(b"")  # strings that are all empty have no bytes, but Arrow wants a buffer
            out[column["name"]] = pa.Array.from_buffers(SqlType.parse(column["type"]).arrow, self.rows, parts)
        return out

    def in_bucket(self, bucket: int) -> Run:
        """The entries of one bucket, of a run that has those of several."""
        return self.take(np.flatnonzero(self._buckets == bucket))

    def by_bucket(self, buckets: int) -> dict[int, Run]:
        """The entries of each bucket that has some, of a run that has those of several."""
        codes = self._buckets
        if self.rows and not (codes.min() >= 0 and codes.max() < buckets):
            raise corrupt(self.name, f"it has entries of buckets that are none of {buckets}")
        order, starts = np.empty(self.rows, np.int64), np.empty(buckets + 1, np.int64)
        kernels.split_by(codes, buckets, order, starts)
        edges = pairwise(starts.tolist())
        return {b: self.take(order[start:stop]) for b, (start, stop) in enumerate(edges) if start < stop}

    @property
    def _buckets(self) -> NDArray[np.int32]:
        if not self.meta["buckets"]:
            raise corrupt(self.name, "it does not say in which buckets its entries lie")
        start, size = self.meta["spans"][-1]
        self._check_bytes(np.array([start]), np.array([start + size]))
        return self._buffer(-1).view(np.int32)

    def select(self, names: Collection[str]) -> StoredRun:
        """The same run with some of its values only: the others are neither read nor verified."""
        return replace(self, shown=frozenset(names))

    def find(self, probes: Words) -> tuple[Positions, Positions]:
        """Find the stretch [first, last) of keys that begin with each probe. Reads all keys; `runset` reads a few."""
        if self.rows and probes.shape[0] > self.meta["words"]:
            raise corrupt(self.name, f"its keys have {self.meta['words']} words, and {probes.shape[0]} are looked for")
        self._ensure("words", np.arange(self.fences.shape[1]))
        return Run(self.words, ()).find(probes)

    def check(self, positions: Positions | None = None) -> None:
        """Verify the payloads at these positions, or all that it has, as far as this process has not done so yet."""
        if positions is not None:
            self._ensure("payload", positions // FENCE_ROWS)
        elif self.shown is not None:
            self._ensure_all(np.arange(self.fences.shape[1]))
        elif not self.verified.all():
            self._verify(np.flatnonzero(~self.verified))
            everything = np.array([0]), np.array([self.rows])
            for column, first in self._columns:
                self._check_texts(column, first, *everything)
            for ready in self._ready.values():
                ready[:] = True

    def take(self, positions: Positions | NDArray[np.bool_]) -> Run:
        """Copy entries out, verified; the positions must be ascending."""
        at: Positions = positions_of(positions).astype(np.int64, copy=False)
        self._ensure_all(at // FENCE_ROWS)
        return Run(np.take(self.words, at, axis=1), take(self.payload, at), take_values(self.values, at))

    def values_at(self, positions: Positions) -> Values:
        """Copy values of entries out, verified."""
        self._ensure("values", positions // FENCE_ROWS)
        return take_values(self.values, positions)

    def slice(self, start: int, stop: int) -> Run:
        """The entries from one position up to another, verified and not copied: views into the file."""
        self._ensure_all(np.arange(start // FENCE_ROWS, -(-stop // FENCE_ROWS)))
        values = {name: column.slice(start, stop - start) for name, column in self.values.items()}
        return Run(self.words[:, start:stop], tuple(column[start:stop] for column in self.payload), values)

    @cached_property
    def place(self) -> Place:
        """Where compiled searches through several runs find this one."""
        last = self.meta["last"][0] if self.rows else 0
        return Place.of(self.words, self.fences, last, self._filter, self.payload, self._ready, self._wanted)

    @property
    def _filter(self) -> Words:
        start, size = self.meta["spans"][self.meta["filter"]]
        if size:
            self._check_bytes(np.array([start]), np.array([start + size]))
        return self._buffer(self.meta["filter"]).view(np.uint64)

    def verify_wanted(self, part: str) -> None:
        """Verify one part of the blocks that a search has marked as wanted."""
        blocks = np.flatnonzero(self._wanted)
        if len(blocks):
            self._ensure(part, blocks)
            self._wanted[blocks] = False

    def trusted(self) -> StoredRun:
        """The same run, whose bytes this process has just written: there is nothing to verify."""
        self.verified[:] = True
        for ready in self._ready.values():
            ready[:] = True
        return self

    def __post_init__(self) -> None:
        # Made at once and not when first needed, because threads share a run, and all must see the same flags.
        blocks = self.fences.shape[1]
        # Which blocks of rows (one per fence) may be read: their words, payloads and values have been verified.
        self._ready = {part: np.zeros(blocks, bool) for part in ("words", "payload", "values")}
        self._wanted = np.zeros(blocks, bool)

    @cached_property
    def _columns(self) -> list[tuple[dict[str, Any], int]]:
        """The columns of values that it has, each with the number of its first buffer."""
        found, at = [], 1 + len(self.meta["payload"])
        for column in self.meta["values"]:
            if self.shown is None or column["name"] in self.shown:
                found.append((column, at))
            at += sum(column["parts"])
        return found

    def _buffer(self, index: int) -> NDArray[np.uint8]:
        start, size = self.meta["spans"][index]
        return self.data[start : start + size]

    def _ensure_all(self, blocks: Positions) -> None:
        for part in self._ready:
            self._ensure(part, blocks)

    def _ensure(self, part: str, blocks: Positions) -> None:
        """Verify one part of some blocks of rows, unless that has been done."""
        ready = self._ready[part]
        if ready[blocks].all():
            return
        wanted = np.zeros(len(ready), bool)
        wanted[blocks] = True
        todo = np.flatnonzero(wanted & ~ready)
        lows = todo * FENCE_ROWS
        for start, stop in self._byte_ranges(part, lows, np.minimum(lows + FENCE_ROWS, self.rows)):
            self._check_bytes(start, stop)
        ready[todo] = True

    def _byte_ranges(self, part: str, lows: Positions, highs: Positions) -> Iterator[tuple[Positions, Positions]]:
        """Where rows from lows to highs lie in a part; each range is verified before the next is asked for."""
        spans = self.meta["spans"]
        if part == "words":
            for w in range(self.meta["words"]):
                yield 8 * (w * self.rows + lows), 8 * (w * self.rows + highs)
        elif part == "payload":
            for i, dtype in enumerate(self.meta["payload"]):
                start, size = spans[1 + i][0], np.dtype(dtype).itemsize
                yield start + size * lows, start + size * highs
        else:
            for column, first in self._columns:
                yield from self._value_ranges(column, first, lows, highs)

    def _value_ranges(
        self, column: dict[str, Any], at: int, lows: Positions, highs: Positions
    ) -> Iterator[tuple[Positions, Positions]]:
        spans = self.meta["spans"]
        has_validity, *rest = column["parts"]
        if has_validity:
            yield spans[at][0] + lows // 8, spans[at][0] + (highs + 7) // 8
            at += 1
        start = spans[at][0]
        if len(rest) == 2:  # strings: offsets, then the bytes between them
            yield start + 8 * lows, start + 8 * (highs + 1)
            self._check_texts(column, at - has_validity, lows, highs)
            if rest[1]:
                offsets, start = self._buffer(at).view(np.int64), spans[at + 1][0]
                yield start + offsets[lows], start + offsets[highs]
        elif column["type"] == "boolean":
            yield start + lows // 8, start + (highs + 7) // 8
        else:
            size = spans[at][1] // max(self.rows, 1)
            yield start + size * lows, start + size * highs

    def _check_texts(self, column: dict[str, Any], at: int, lows: Positions, highs: Positions) -> None:
        """Refuse a column whose texts would lie elsewhere than in its bytes; where these end has been verified."""
        has_validity, _, *has_data = column["parts"]
        if not has_data or not self.rows:
            return
        at += has_validity
        size = self.meta["spans"][at + 1][1] if has_data[0] else 0
        if not _are_ends(self._buffer(at).view(np.int64), lows, highs, size):
            raise corrupt(self.name, f"the texts of column {column['name']} do not end where they may")

    def check_fits(self, group: Group) -> None:
        """Refuse a run that is not of the group: compiled sums would read beyond its payloads."""
        if self.kinds != kinds_of(group):
            raise corrupt(self.name, f"its payloads are {', '.join(self.kinds)}, not {', '.join(kinds_of(group))}")

    @property
    def kinds(self) -> tuple[str, ...]:
        """The types of the columns of its payload, as text."""
        return tuple(self.meta["payload"])

    def _check_bytes(self, start: Positions, stop: Positions) -> None:
        first, last = start // BLOCK_BYTES, np.maximum(stop - 1, start) // BLOCK_BYTES
        limit = len(self.verified) - 1
        blocks = [np.minimum(first, limit)]
        # Nearly every range lies in one or two blocks; the loop runs once for each further one.
        while (first < last).any():
            first = np.minimum(first + 1, last)
            blocks.append(np.minimum(first, limit))
        wanted = np.zeros(len(self.verified), bool)
        for block in blocks:
            wanted[block] = True
        self._verify(np.flatnonzero(wanted & ~self.verified))

    def _verify(self, blocks: Positions) -> None:
        if not len(blocks):
            return
        wrong = self._wrong(blocks)
        if len(wrong) and disk.DISK.renewed(Path(self.name)):
            wrong = self._wrong(wrong)  # the file is mapped, so what was put into it is there
        if len(wrong):
            raise corrupt(
                self.name, f"{len(wrong)} of its blocks do not match their checksums (the first is block {wrong[0]})"
            )
        self.verified[blocks] = True

    def _wrong(self, blocks: Positions) -> Positions:
        found = np.empty(len(blocks), np.uint64)
        kernels.checksums(self.data.view(np.uint64), BLOCK_WORDS, blocks, found)
        wrong: Positions = blocks[found != self.sums[blocks]]
        return wrong


def _are_ends(ends: NDArray[np.int64], lows: Positions, highs: Positions, size: int) -> bool:
    """Whether texts from each low up to its high may end at `ends`: they never go back, nor beyond `size`."""
    gaps = np.flatnonzero(lows[1:] != highs[:-1])
    for low, high in zip(lows[np.append(0, gaps + 1)], highs[np.append(gaps, -1)], strict=True):
        part = ends[low : high + 1]
        if part[0] < 0 or part[-1] > size or (part[1:] < part[:-1]).any():
            return False
    return True
