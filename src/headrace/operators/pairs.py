"""MAX_BY and MIN_BY under deletions: the value that stands beside the greatest, or least, value of another column.

Behind the words of the group, an arrangement of pairs has the value to order by and then the one to take, each with a
word in front that says whether it is there. So the pairs of a group lie in order, and the answer is part of the first
or the last of them. Where several rows tie, that is the greatest value beside them for MAX_BY, and the least for
MIN_BY; NULL is less than any other value.

Words of texts are as many as the longest of them needs, so they can only end a key. A text to order by is therefore
looked for in two steps: the greatest one in the arrangement of the texts, and the pairs with it by its hash.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.operators.extremes import extreme_values, extreme_words
from headrace.operators.layout import ViewLayout, ordered, paired
from headrace.plan.view import Aggregate
from headrace.relation.kernels import Words
from headrace.relation.keys import (
    ordered_string_words,
    ordered_words,
    strings_of_words,
    validity,
    values_of_words,
)
from headrace.relation.runset import RunSet
from headrace.relation.types import SqlType

_THERE, _MISSING = np.uint64(1), np.uint64(0)


def in_order(array: pa.Array, kind: SqlType) -> Words:
    """The words of values, which sort as the values do; those of NULLs are unspecified."""
    return ordered_string_words(array) if kind.kind == "string" else ordered_words(array, kind)


def out_of_words(words: Words, kind: SqlType, missing: NDArray[np.bool_] | None) -> pa.Array:
    """Invert `in_order`."""
    return strings_of_words(words, missing) if kind.kind == "string" else values_of_words(words, kind, missing)


def pair_words(layout: ViewLayout, arrays: list[pa.Array], kinds: list[SqlType]) -> Words:
    """The words of pairs, behind those of the group."""
    order, value = arrays
    first = _hashed(layout, order) if kinds[0].kind == "string" else in_order(order, kinds[0])
    return np.concatenate([_with_presence(first, order), _with_presence(in_order(value, kinds[1]), value)])


def _with_presence(words: Words, array: pa.Array) -> Words:
    there = validity(array)
    out = np.concatenate([there.astype(np.uint64)[None], words])
    if array.null_count:
        out[:, ~there] = _MISSING
    return out


def _hashed(layout: ViewLayout, texts: pa.Array) -> Words:
    return layout.text.encode([texts])


def value_beside(layout: ViewLayout, state: Mapping[str, RunSet], one: Aggregate, groups: Words) -> pa.Array:
    """MAX_BY or MIN_BY of each group; NULL where no row has a value to order by."""
    assert one.argument is not None
    order, (value,) = one.argument, one.others
    smallest = one.function == "min_by"
    pairs, kind = state[paired(order, value)], layout.plan.arguments[value].type
    order_kind = layout.plan.arguments[order].type
    there = np.full((1, groups.shape[1]), _THERE)
    if order_kind.kind == "string":
        texts = extreme_values(state[ordered(order)], groups, order_kind, smallest=smallest)
        found = validity(texts)
        probes = np.concatenate([groups, there, _hashed(layout, texts)])
        at, words = 0, extreme_words(pairs, np.ascontiguousarray(probes[:, found]), _width(kind), smallest)[0]
        out = np.zeros((words.shape[0], groups.shape[1]), np.uint64)
        out[:, found] = words
    else:
        at = 2 if order_kind.precision > 18 else 1
        out, _ = extreme_words(pairs, np.concatenate([groups, there]), at + _width(kind), smallest)
    # Where nothing is found all words are 0, and so is the one that says whether the value is there.
    return out_of_words(out[at + 1 :], kind, out[at] == _MISSING)


def _width(kind: SqlType) -> int:
    """How many words the taken half of a pair has at least."""
    return 3 if kind.precision > 18 else 2
