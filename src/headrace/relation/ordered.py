"""Rows in an order that a query asks for: keys whose words sort as ORDER BY does, and what is left to be decided.

An *ordered arrangement* is an arrangement whose keys begin with the values of some columns, written so that their
unsigned words compare as the values do: descending ones are complemented, and a word before each that can be NULL says
on which side its NULLs are. Its runs then lie in the order asked for, so that the first rows are at the beginning of
each run, and nobody has to sort (`relation.leading` reads them).

A string has as many bytes as it likes, and two words of the key: its first 15 bytes and its length, which is the same
for all strings of more than 15. Strings that are longer and begin alike therefore *tie*. Entries that tie lie side by
side, and only where the order of some of them matters their texts are compared (`exact`). Hashes of the strings at the
end of the key tell such entries apart. All other types are decided by their words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.relation import kernels
from headrace.relation.coded import Coded
from headrace.relation.kernels import Positions, Words
from headrace.relation.keys import string_buffers, validity
from headrace.relation.run import Run
from headrace.relation.types import SqlType

_SHOWN = 15  # bytes of a string that its words hold; the last byte of its words is the length
_LONGER = np.uint64(_SHOWN + 1)  # the length of strings of which the words do not hold everything
_LENGTH = np.uint64(0xFF)


@dataclass(frozen=True)
class Sorted:
    """A column by which rows are sorted."""

    name: str
    type: SqlType
    nullable: bool
    descending: bool = False
    nulls_first: bool = True

    @property
    def is_text(self) -> bool:
        return self.type.kind == "string"

    @property
    def width(self) -> int:
        """How many words it has, with the one that says whether it is NULL."""
        return (2 if self.is_text or self.type.precision > 18 else 1) + self.nullable


@dataclass(frozen=True)
class Ordering:
    """An order of rows that names all of their columns, the most significant first.

    >>> ordering = Ordering((Sorted("x", SqlType("int"), False, descending=True),))
    >>> ordering.width
    1
    """

    columns: tuple[Sorted, ...]

    @cached_property
    def slices(self) -> dict[str, slice]:
        """Where the words of each column are in a key."""
        out, at = {}, 0
        for column in self.columns:
            out[column.name] = slice(at, at + column.width)
            at += column.width
        return out

    @cached_property
    def hashes(self) -> dict[str, slice]:
        """Where the hashes of texts are in a key: behind all that is in order."""
        at = sum(column.width for column in self.columns)
        texts = [column.name for column in self.columns if column.is_text]
        return {name: slice(at + 2 * i, at + 2 * i + 2) for i, name in enumerate(texts)}

    @cached_property
    def width(self) -> int:
        """How many words a key has."""
        return max(1, sum(column.width for column in self.columns) + 2 * len(self.hashes))

    # -- values to words and back -------------------------------------------------------------------------------------

    def words(self, columns: Mapping[str, Coded], rows: int) -> Words:
        """The keys of rows."""
        out = np.zeros((self.width, rows), np.uint64)
        for column in self.columns:
            found = columns[column.name]
            own = out[self.slices[column.name]]
            values = own[int(column.nullable) :]
            if column.is_text:
                assert found.text is not None, "a string has its text with it"
                _beginnings(found.text, values)
                out[self.hashes[column.name]] = found.words
            else:
                values[:] = found.words
            if column.descending:
                np.invert(values, out=values)
            if column.nullable:
                missing = np.zeros(rows, bool) if found.missing is None else found.missing
                own[0] = missing ^ column.nulls_first
                values[:, missing] = 0
        return out

    def column(self, column: Sorted, run: Run) -> Coded:
        """Read one column of a run's entries back."""
        own, missing = run.words[self.slices[column.name]], None
        if column.nullable:
            missing = own[0].astype(bool) ^ column.nulls_first
            own, missing = own[1:], missing if missing.any() else None
        if column.is_text:
            return Coded(column.type, run.words[self.hashes[column.name]], missing, run.values[column.name])
        words = ~own if column.descending else own
        return Coded(column.type, words if missing is None else np.where(missing, np.uint64(0), words), missing)

    # -- what the words leave open ------------------------------------------------------------------------------------

    def decided(self, words: Words) -> NDArray[np.int64]:
        """How many words of each key decide about its place: all, or those up to the first text that is longer."""
        out = np.full(words.shape[1], self.width, np.int64)
        for column in reversed(self.columns):
            if column.is_text:
                stop = self.slices[column.name].stop
                length = ~words[stop - 1] if column.descending else words[stop - 1]
                longer = (length & _LENGTH) == _LONGER
                if column.nullable:
                    longer &= words[self.slices[column.name].start].astype(bool) == column.nulls_first
                out[longer] = stop
        return out

    def prefix(self, run: Run, at: int) -> Words:
        """The words that an entry has in common with those that it ties with; all its words if it ties with none."""
        key = run.words[:, at : at + 1]
        return np.ascontiguousarray(key[: int(self.decided(key)[0])])

    def tied(self, run: Run, at: int) -> tuple[int, int]:
        """The stretch of entries of a run that tie with one of them."""
        prefix = self.prefix(run, at)
        if len(prefix) == self.width:
            return at, at + 1
        first, last = run.find(prefix)
        return int(first[0]), int(last[0])

    def exact(self, entries: Run) -> Positions:
        """The positions of entries in the order of their values, texts included."""
        keys: list[Words] = []
        for column in self.columns:
            words = entries.words[self.slices[column.name]]
            if not column.is_text:
                keys.append(words)
                continue
            if column.nullable:
                keys.append(words[:1])
            text = entries.values[column.name]
            ranks = pc.rank(text, "descending" if column.descending else "ascending", tiebreaker="dense")
            keys.append(np.where(validity(text), ranks.to_numpy().astype(np.uint64), np.uint64(0))[None])
        order: Positions = np.lexsort(np.concatenate(keys)[::-1]) if keys else np.arange(entries.rows)
        return order

    # -- beginnings of a run ------------------------------------------------------------------------------------------

    def last(self, run: Run) -> Run:
        """The last entry of a run."""
        at = run.rows - 1
        low, high = self.tied(run, at)
        if high - low > 1:
            at = low + int(self.exact(run.slice(low, high))[-1])
        return run.take(np.array([at]))

    def up_to(self, run: Run, edge: Run) -> Run:
        """The entries of a run that do not come after an entry."""
        prefix = self.prefix(edge, 0)
        first, last = (int(bound[0]) for bound in run.find(prefix))
        if len(prefix) == self.width or first == last:
            return run.slice(0, last)
        tied = run.slice(first, last)
        # The edge stands behind the others, so that one which equals it comes before it.
        values = {name: pa.concat_arrays([text, edge.values[name]]) for name, text in tied.values.items()}
        order = self.exact(Run(np.concatenate([tied.words, edge.words], axis=1), (), values))
        before = order[: int(np.flatnonzero(order == tied.rows)[0])]
        return run.take(np.concatenate([np.arange(first), first + np.sort(before)]))

    def head(self, run: Run, count: int) -> Head:
        """The entries that hold the first `count` rows of a run, where each entry is as many rows as its count says."""
        times = np.maximum(run.payload[0], 0)
        reached = np.cumsum(times)
        if not run.rows or reached[-1] < count:
            return Head(np.arange(run.rows), None, 0)
        at = int(np.searchsorted(reached, count))
        low, high = self.tied(run, at)
        if high - low == 1:
            return Head(np.arange(at + 1), at, int(reached[at]) - count)
        order = low + self.exact(run.slice(low, high))
        reached = (reached[low - 1] if low else 0) + np.cumsum(times[order])
        at = int(np.searchsorted(reached, count))
        chosen = np.concatenate([np.arange(low), np.sort(order[: at + 1])])
        return Head(chosen, int(np.flatnonzero(chosen == order[at])[0]), int(reached[at]) - count)


@dataclass(frozen=True)
class Head:
    """The first entries of a run.

    Parameters
    ----------
    positions : which they are, ascending.
    last : the place, among these, of the one that comes last in the order; None if there are too few rows.
    excess : how many of its rows are too many.
    """

    positions: Positions
    last: int | None
    excess: int


def rows_in(run: Run | None) -> int:
    """How many rows are in the entries of a run; what was deleted before it was inserted is no row yet."""
    return 0 if run is None else int(np.maximum(run.payload[0], 0).sum())


def _beginnings(text: pa.Array, out: Words) -> None:
    """Write the first bytes of texts, and their lengths as far as these are told, as two words that are in order."""
    offsets, data = string_buffers(text)
    chunks = np.empty((3, len(text)), np.uint64)
    kernels.chunk_strings(offsets, data, chunks)
    out[0] = chunks[0]
    out[1] = (chunks[1] & ~_LENGTH) | np.minimum(chunks[2], _LONGER)
