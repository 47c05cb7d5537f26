"""MIN and MAX under deletions: the first (or last) value of each group that is still alive.

The values of a group lie in order behind the words of the group, so they are the first live entries of an ordered
arrangement, of which one row per group is wanted (`relation.leading`). That begins with a window of one entry, which
nearly always suffices.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.relation.kernels import Words
from headrace.relation.keys import strings_of_words, values_of_words
from headrace.relation.leading import leading
from headrace.relation.runset import AnyRun, RunSet, as_set
from headrace.relation.types import SqlType


def extreme_values(runs: Sequence[AnyRun], groups: Words, kind: SqlType, *, smallest: bool) -> pa.Array:
    """Find MIN (or MAX) of each group as an Arrow array; NULL where no value is alive."""
    words, found = extreme_words(as_set(runs), groups, 2 if kind.precision > 18 else 1, smallest)
    if kind.kind == "string":
        return strings_of_words(words, ~found)
    return values_of_words(words, kind, ~found)


def extreme_words(runs: RunSet, groups: Words, narrow: int, smallest: bool) -> tuple[Words, NDArray[np.bool_]]:
    """Find the words behind each group (or longer beginning of keys) in its first or last live entry, 0 if it has none.

    Parameters
    ----------
    narrow : how many words there are where no run tells.
    """
    depth, m = groups.shape
    width = max((run.words.shape[0] for run in runs), default=depth + narrow)
    out, found = np.zeros((width - depth, m), np.uint64), np.zeros(m, bool)
    first = leading(runs, runs.find(groups), 1, depth=depth, end=not smallest)
    alive = np.flatnonzero(first.entries.payload[0] > 0)
    winners, at = np.unique(first.groups[alive], return_index=True)
    if len(winners):
        chosen = first.entries.words[:, alive[at]]
        out[:, winners] = chosen if smallest else ~chosen
        found[winners] = True
    return out, found
