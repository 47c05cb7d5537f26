"""Values of variables as key words.

Views over joins are searched by the first few variables of their keys, so here a key is the words of its variables
side by side, in the order of the arrangement, with nothing in front. A variable has the words of its type
(`relation.keys`) and, if it can be NULL, one more that says whether it is. Strings are hashes; the text of those that
the answer shows travels beside the keys. A category has a *code*, which is always one word: the value itself where that
fits, else a hash of it. So codes are the same in every task, bucket and step, without anybody handing them out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.relation import kernels
from headrace.relation.kernels import Words
from headrace.relation.keys import KeyLayout, validity, values_of_words
from headrace.relation.types import SqlType


@dataclass(frozen=True)
class Variable:
    """The type of a variable, and whether it can be NULL (a variable that is joined on cannot).

    One that is `coded` has the one word of its code; nothing else of it is wanted as a key.
    """

    type: SqlType
    nullable: bool = False
    coded: bool = False


@dataclass(frozen=True)
class Variables:
    """All variables of a plan and the seed of their hashes."""

    kinds: Mapping[str, Variable]
    seed: int

    def __hash__(self) -> int:
        return hash((tuple(self.kinds), self.seed))

    @cached_property
    def widths(self) -> dict[str, int]:
        """How many words each variable has."""
        return {name: self._words(kind) + kind.nullable for name, kind in self.kinds.items()}

    def _words(self, kind: Variable) -> int:
        return 2 if is_hashed(kind.type) and not kind.coded else 1

    def encode(self, name: str, column: pa.Array) -> Words:
        """Make the words of a variable's values."""
        kind = self.kinds[name]
        layout = KeyLayout((kind.type,), (False,), self.seed)
        words = layout.encode([column])[int(layout.has_lead) :]
        if kind.coded:
            words = self.hashed(words)[None, :]
        if not kind.nullable:
            return words
        missing = np.zeros((1, len(column)), np.uint64)
        if column.null_count:
            missing[0] = ~validity(column)
        return np.concatenate([words, missing])

    def code(self, name: str, words: Words) -> NDArray[np.uint64]:
        """The codes of a category, from its words."""
        return self.hashed(words[: self._words(self.kinds[name])])

    def hashed(self, words: Words) -> NDArray[np.uint64]:
        """Codes from words: the word itself, or a hash of several."""
        if len(words) == 1:
            return np.ascontiguousarray(words[0])
        codes = np.empty(words.shape[1], np.uint64)
        kernels.fold(np.ascontiguousarray(words), np.uint64(self.seed), codes)
        return codes

    def whole_words(self, name: str, column: pa.Array) -> Words:
        """The words of a category's values from which its codes are hashed."""
        layout = KeyLayout((self.kinds[name].type,), (False,), self.seed)
        return layout.encode([column])[int(layout.has_lead) :]

    def numbers(self, name: str, words: Words) -> NDArray[np.float64]:
        """Read a numeric variable back from its words."""
        kind = self.kinds[name]
        column = values_of_words(words[: self._words(kind)], kind.type, None)
        return as_numbers(column)

    def slices(self, order: Sequence[str]) -> dict[str, slice]:
        """Where the words of each variable are in a key of this order."""
        out, at = {}, 0
        for name in order:
            out[name] = slice(at, at + self.widths[name])
            at += self.widths[name]
        return out

    def key(self, words: Mapping[str, Words], order: Sequence[str], rows: int) -> Words:
        """Put the words of variables side by side; an empty key is one word that is always zero."""
        if not order:
            return np.zeros((1, rows), np.uint64)
        if len(order) == 1:
            return np.ascontiguousarray(words[order[0]])
        return np.concatenate([words[name] for name in order])

    def group_key(self, layout: KeyLayout, words: Mapping[str, Words], order: Sequence[str], rows: int) -> Words:
        """Make the words that an answer's own layout gives to a key of these variables."""
        out = np.zeros((layout.width, rows), np.uint64)
        at = int(layout.has_lead)
        for i, name in enumerate(order):
            width = self._words(self.kinds[name])
            out[at : at + width] = words[name][:width]
            if self.kinds[name].nullable:
                word = layout.width - layout.null_words + i // 64
                out[word] |= words[name][width] << np.uint64(i % 64)
            at += width
        if layout.has_lead:
            kernels.fold(out[1:], np.uint64(layout.seed), out[0])
        return out


def is_hashed(kind: SqlType) -> bool:
    """Whether a code of this type is a hash, so that the value cannot be read back from it."""
    return kind.kind == "string" or kind.precision > 18


def as_numbers(column: pa.Array) -> NDArray[np.float64]:
    """A numeric or boolean column as doubles; what stands at NULLs is unspecified."""
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    if column.null_count:
        column = pc.fill_null(column, pa.scalar(0, pa.int8()).cast(column.type))
    if not pa.types.is_float64(column.type):
        column = column.cast(pa.float64(), safe=False)
    return np.asarray(column.to_numpy(zero_copy_only=False), np.float64)


def is_number(kind: SqlType) -> bool:
    """Whether values of a type can be features."""
    return kind.is_numeric or kind.kind == "boolean"
