"""MODE under deletions: the values of a group by how often they occur.

An arrangement has, behind the group, the complement of a value's count and then the value, so that the first entry of a
group is its most frequent value, and of several the least. When a count changes, the entry of the value moves: the old
one is deleted, and the new one inserted.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headrace.operators.distinct import ChangedValues
from headrace.operators.extremes import extreme_words
from headrace.operators.layout import ViewLayout
from headrace.operators.pairs import out_of_words
from headrace.relation.kernels import Words
from headrace.relation.run import Run, consolidate
from headrace.relation.runset import RunSet
from headrace.relation.types import SqlType
from headrace.rings import COUNT


def moved_values(layout: ViewLayout, changed: ChangedValues) -> Run:
    """The entries that changed values leave, and those that they move to."""
    depth, words = layout.keys.width, changed.delta.words
    parts, signs = [], []
    for counts, sign in ((changed.before, -1), (changed.after, 1)):
        there = np.flatnonzero((counts > 0) & (changed.before != changed.after))
        frequency = ~counts[there].astype(np.uint64)[None]
        parts.append(np.concatenate([words[:depth, there], frequency, words[depth:, there]]))
        signs.append(np.full(len(there), sign, np.int64))
    return consolidate(COUNT, np.concatenate(parts, axis=1), (np.concatenate(signs),), {})


def most_frequent(runs: RunSet, groups: Words, kind: SqlType, *, greatest: bool) -> pa.Array:
    """The most frequent value of each group, and of several the least or the `greatest`; NULL where it has none."""
    narrow = 2 if kind.precision > 18 else 1
    words, found = extreme_words(runs, groups, 1 + narrow, smallest=True)
    if not greatest:
        return out_of_words(words[1:], kind, ~found)
    probes = np.ascontiguousarray(np.concatenate([groups, words[:1]])[:, found])
    last, _ = extreme_words(runs, probes, narrow, smallest=False)
    out = np.zeros((last.shape[0], groups.shape[1]), np.uint64)
    out[:, found] = last
    return out_of_words(out, kind, ~found)
