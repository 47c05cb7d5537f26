"""LISTAGG: the texts of a group, one behind the other, in an order that is always the same.

A text of all values cannot be patched, so the values of a changed group are read and put together again; those of other
groups are not. They come in the order asked for, and where that leaves a tie, or nothing is asked for, in that of the
texts themselves.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.operators.layout import ViewLayout, ordered, paired
from headrace.plan.view import Aggregate
from headrace.relation.kernels import Words
from headrace.relation.keys import strings_of_words
from headrace.relation.run import Run
from headrace.relation.runset import RunSet
from headrace.rings import COUNT


def listed(layout: ViewLayout, state: Mapping[str, RunSet], one: Aggregate, groups: Words) -> pa.Array:
    """The texts of each group put together; NULL where it has none. The groups are in ascending order.

    The options are: what stands between two texts, whether the texts descend; and, if another argument comes first in
    the order, whether that descends, and whether its NULLs come first.
    """
    assert one.argument is not None
    delimiter, descending = str(one.options[0]), bool(one.options[1])
    name = paired(one.others[0], one.argument) if one.others else ordered(one.argument)
    depth, count = groups.shape
    found = state[name].matching(COUNT, groups) if count else None
    if found is None:
        return pa.nulls(count, pa.large_string())
    entries = found.take(np.flatnonzero(found.payload[0] > 0))
    owner, _ = Run(groups, ()).find(np.ascontiguousarray(entries.words[:depth]))
    behind, keys = entries.words[depth:], list[Words]()
    if one.others:
        width = 2 if layout.plan.arguments[one.others[0]].type.precision > 18 else 1
        order, there, behind = behind[: 1 + width], behind[1 + width], behind[2 + width :]
        last, nulls_first = bool(one.options[2]), bool(one.options[3])
        missing = order[:1] == 0
        keys = [(missing != nulls_first).astype(np.uint64), ~order[1:] if last else order[1:]]
    else:
        there = np.ones(entries.rows, np.uint64)
    keys.append(~behind if descending else behind)
    rows = np.lexsort([*(word for key in reversed(keys) for word in key[::-1]), owner])
    rows = rows[there[rows] == 1]
    times = np.ones(len(rows), np.int64) if one.function == "listagg_distinct" else entries.payload[0][rows]
    rows = np.repeat(rows, times)
    texts = strings_of_words(np.ascontiguousarray(behind[:, rows]), None)
    sizes = np.bincount(owner[rows], minlength=count)
    lists = pa.LargeListArray.from_arrays(pa.array(np.concatenate([[0], np.cumsum(sizes)])), texts)
    joined = pc.binary_join(lists, pa.scalar(delimiter, pa.large_string()))
    return pc.if_else(pa.array(sizes > 0), joined, pa.scalar(None, pa.large_string()))
