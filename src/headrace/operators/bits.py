"""BIT_AND and BIT_OR under deletions: an arrangement counts, per group and bit, the values in which the bit is set.

A bit of BIT_OR is set if any value has it, one of BIT_AND if all have it. So a changed row changes as many counts as
its value has bits, and reading a group means reading at most 64 counts, however many values it has.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.relation.kernels import Positions, Words
from headrace.relation.keys import fixed_values
from headrace.relation.run import Run
from headrace.relation.runset import RunSet
from headrace.relation.types import SqlType
from headrace.rings import COUNT

_WIDTHS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}


def bits_of(array: pa.Array, kind: SqlType) -> tuple[Positions, Words]:
    """The bits that are set in integers: the position of the integer, and the words of the bit's number."""
    width = _WIDTHS[kind.kind]
    values = fixed_values(array, kind).astype(np.int64).view(np.uint64)
    is_set = values[:, None] >> np.arange(width, dtype=np.uint64) & np.uint64(1)
    at, number = np.nonzero(is_set)
    return at, number.astype(np.uint64)[None]


def value_of_bits(runs: RunSet, groups: Words, kind: SqlType, present: NDArray[np.int64], *, every: bool) -> pa.Array:
    """The bits that any value of each group has, or `every` one; NULL where a group has no value.

    Parameters
    ----------
    groups : in ascending order.
    present : how many values each group has.
    """
    out = np.zeros(groups.shape[1], np.uint64)
    found = runs.matching(COUNT, groups) if groups.shape[1] else None
    if found is not None:
        owner, _ = Run(groups, ()).find(np.ascontiguousarray(found.words[: groups.shape[0]]))
        (counts,) = found.payload
        shown = np.flatnonzero(counts >= present[owner] if every else counts > 0)
        np.bitwise_or.at(out, owner[shown], np.uint64(1) << found.words[-1, shown])
    width = _WIDTHS[kind.kind]
    values = out.view(np.int64).astype(f"i{width // 8}")  # the highest bit that is kept becomes the sign
    return pa.array(values, kind.arrow, mask=present <= 0)
