"""The exact answers per key: a relation from (window, key) to the number of matches and the sum over them.

It is exact at any moment, and kept only on request: a window has one answer, but as many keys as there are. Keys are
words here, as everywhere; their values are kept beside them, once per key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.relation import kernels
from headrace.relation.arrangement import lookup, scan
from headrace.relation.columns import take_column
from headrace.relation.kernels import Positions, Words
from headrace.relation.run import Run, consolidate, merge
from headrace.relation.runset import AnyRun
from headrace.rings import COUNT
from headrace.rings.double import Compensated
from headrace.rings.integer import Integer
from headrace.rings.product import Product
from headrace.window.emitted import window_columns
from headrace.window.exact import Matched, time_words, times_of

if TYPE_CHECKING:
    from headrace.window.window_view import WindowView

GROUPS, KEYS = "groups", "keys"
MATCHES = Product((Integer(), Compensated()))


def group_run(found: Sequence[Matched]) -> Run | None:
    """Return the run to add to the answers per (window, key); None if there are no matches."""
    runs = []
    for one in found:
        there = np.flatnonzero(one.matches)
        words = np.concatenate([time_words(one.window[there])[None, :], one.key[:, there]])
        matches = np.rint(one.matches[there]).astype(np.int64)
        runs.append(consolidate(MATCHES, words, (matches, *Compensated().lift(one.total[there])), {}))
    merged = merge(MATCHES, runs) if runs else None
    return merged if merged is not None and merged.rows else None


def key_run(words: Words, keys: Sequence[pa.Array], rows: Positions) -> Run:
    """Return the distinct keys of rows, given as words; column i of `keys` has their values, at `rows`."""
    group_of, first = np.empty(words.shape[1], np.int64), np.empty(words.shape[1], np.int64)
    first = first[: kernels.group_hashed(words, group_of, first)]
    values = {f"k{i}": take_column(key, rows[first]) for i, key in enumerate(keys)}
    return consolidate(COUNT, np.ascontiguousarray(words[:, first]), COUNT.ones(len(first)), values)


def new_keys(known: Sequence[AnyRun], coming: Sequence[Run]) -> Run | None:
    """Return the keys that are not known yet; None if all are."""
    keys = merge(COUNT, list(coming))
    new = np.flatnonzero(lookup(COUNT, known, keys.words)[0] == 0)
    if not len(new):
        return None
    return Run(np.ascontiguousarray(keys.words[:, new]), COUNT.ones(len(new)), keys.take(new).values)


@dataclass(frozen=True)
class Groups:
    """Reads the exact answers per window and key."""

    view: WindowView
    closed: float | None  # the window before which all windows are complete

    def read(self, groups: Sequence[AnyRun], keys: Sequence[AnyRun]) -> pa.Table:
        """Return one row per window and key that have matches, in the order of windows."""
        spec, left = self.view.spec, self.view.streams[0]
        run, known = scan(MATCHES, groups), scan(COUNT, keys)
        if run is None or known is None:
            run = Run(np.zeros((1 + self.view.keys.width, 0), np.uint64), MATCHES.zeros(0))
        window = times_of(run.words[0])
        columns = window_columns(spec, window)
        at = np.zeros(0, np.int64) if known is None else known.find(np.ascontiguousarray(run.words[1:]))[0]
        for i, key in enumerate(left.keys):
            columns[str(key)] = (
                pa.array([], key.type.arrow) if known is None else take_column(known.values[f"k{i}"], at)
            )
        matches, total = run.payload[0].astype(np.float64), Compensated().values(run.payload[1:])
        function = spec.aggregate.function
        columns["value"] = pa.array(matches if function == "count" else total if function == "sum" else total / matches)
        columns["final"] = pa.array(window < self.closed if self.closed is not None else np.zeros(len(window), bool))
        return pa.table(columns)
