"""Runs: sorted maps from keys to payloads, the one shape in which state, changes and exchanged data exist.

A run has unique keys in ascending order, one payload per key, and *values*: Arrow columns that depend on the key and
cannot be read back from its words (strings, or the other columns of a table's row). A run in memory and a run in a file
(`runfile`) offer the same fields, so no kernel knows which of them it reads.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.relation import kernels, probing
from headrace.relation.columns import positions_of, take_column
from headrace.relation.kernels import Positions, Words
from headrace.rings import Group, Payload, concatenate, gathers, take

Values = dict[str, pa.Array]


@dataclass(frozen=True)
class Run:
    """Sorted unique keys with their payloads and values."""

    words: Words
    payload: Payload
    values: Values = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return int(self.words.shape[1])

    def find(self, probes: Words) -> tuple[Positions, Positions]:
        """Find the stretch [first, last) of keys that begin with each probe."""
        m = probes.shape[1]
        lows, highs = np.zeros(m, np.int64), np.full(m, self.rows)
        first, last = np.empty(m, np.int64), np.empty(m, np.int64)
        kernels.lower_bounds(self.words, probes, lows, highs, first)
        kernels.upper_bounds(self.words, probes, first, highs, last)
        return first, last

    def check(self, positions: Positions | None = None) -> None:
        """Memory needs no checking; a run in a file does."""

    def check_fits(self, group: Group) -> None:
        """What was computed is of its group; a run in a file may be another one."""

    def take(self, positions: NDArray[np.integer] | NDArray[np.bool_]) -> Run:
        """Pick entries; the positions must be ascending, so that the result is a run."""
        at = positions_of(positions)
        return Run(np.take(self.words, at, axis=1), take(self.payload, at), take_values(self.values, at))

    def values_at(self, positions: Positions) -> Values:
        """Copy values of entries out."""
        return take_values(self.values, positions)

    def select(self, names: Collection[str]) -> Run:
        """The same run with some of its values only."""
        return Run(self.words, self.payload, {name: self.values[name] for name in self.values if name in names})

    def slice(self, start: int, stop: int) -> Run:
        """The entries from one position up to another, not copied."""
        values = {name: column.slice(start, stop - start) for name, column in self.values.items()}
        return Run(self.words[:, start:stop], tuple(column[start:stop] for column in self.payload), values)

    @cached_property
    def place(self) -> Place:
        """Where compiled searches through several runs find this one."""
        words = np.ascontiguousarray(self.words)
        fences = np.ascontiguousarray(words[:, :: probing.FENCE_ROWS])
        ready = np.ones(max(1, fences.shape[1]), bool)
        payload = tuple(np.ascontiguousarray(column) for column in self.payload)
        last = int(words[0, -1]) if self.rows else 0
        keys = probing.filter_of(words[0])
        return Place.of(words, fences, last, keys, payload, {"words": ready, "payload": ready}, ready)

    def verify_wanted(self, part: str) -> None:
        """Memory needs no checking; a run in a file does."""


@dataclass(frozen=True)
class Place:
    """The addresses of a run, for compiled searches through several runs (`probing`); valid while this is held.

    Parameters
    ----------
    row : the row of the run in the table of places.
    payload : the address of each column of the payload.
    ready : per part of the run, the address of the flags that say which blocks of rows may be read.
    held : what lies at the addresses.
    """

    row: tuple[int, ...]
    payload: tuple[int, ...]
    ready: Mapping[str, int]
    held: tuple[object, ...]

    @classmethod
    def of(
        cls,
        words: Words,
        fences: Words,
        last: int,
        keys: Words,
        payload: Payload,
        ready: Mapping[str, NDArray[np.bool_]],
        wanted: NDArray[np.bool_],
    ) -> Place:
        flags = {part: _address(blocks) for part, blocks in ready.items()}
        count = fences.shape[1]
        low = int(fences[0, 0]) if count else 0
        where = (_address(words), words.shape[1], _address(fences), count, low, last)
        blocks = (int(probing.ANYWHERE), flags["words"], _address(wanted))
        row = (*where, *blocks, _address(keys), len(keys))
        return cls(row, tuple(map(_address, payload)), flags, (words, fences, keys, payload, ready, wanted))


def _address(array: NDArray[Any]) -> int:
    return int(array.__array_interface__["data"][0])


def take_values(values: Values, positions: NDArray[np.integer] | NDArray[np.bool_]) -> Values:
    """Pick rows of values by position or by mask."""
    if not values:
        return {}
    at = positions_of(positions)
    return {name: take_column(column, at) for name, column in values.items()}


def consolidate(group: Group, words: Words, payload: Payload, values: Values) -> Run:
    """Make a run from entries in any order: equal keys are summed, zeros disappear."""
    order = kernels.sort_order(words)
    return _sum_in_order(group, words, payload, values, order)


def merge(group: Group, runs: Sequence[Run], *, keep_zeros: bool = False) -> Run:
    """Return the sum of runs as one run; entries that are zero stay only if `keep_zeros`."""
    for run in runs:
        run.check_fits(group)
        run.check()
    if len(runs) == 1:
        zero = group.is_zero(runs[0].payload)
        return runs[0] if keep_zeros or not zero.any() else runs[0].take(np.flatnonzero(~zero))
    words = concatenate_words([run.words for run in runs])
    bounds = np.cumsum([0] + [run.rows for run in runs])
    order = kernels.merge_order(words, bounds)
    payload = concatenate([run.payload for run in runs])
    values = {name: pa.concat_arrays([run.values[name] for run in runs]) for name in runs[0].values}
    return _sum_in_order(group, words, payload, values, order, keep_zeros)


def _sum_in_order(
    group: Group, words: Words, payload: Payload, values: Values, order: Positions, keep_zeros: bool = False
) -> Run:
    group_of = np.empty(len(order), np.int64)
    groups = kernels.group_sorted(words, order, group_of)
    in_place = groups == len(order) and kernels.is_identity(order)
    if in_place and (keep_zeros or not group.is_zero(payload).any()):
        return Run(words, payload, values)  # keys that only grow: the runs lie end to end already
    if groups == len(order):
        summed, first = take(payload, order), order
    else:
        if gathers(group):
            summed = group.zeros(groups)
            group.gather(summed, payload, order, group_of)
        else:
            summed = group.sum_by(take(payload, order), group_of, groups)
        first = order[np.flatnonzero(np.diff(group_of, prepend=-1))]
    alive = np.ones(groups, bool) if keep_zeros else ~group.is_zero(summed)
    if not alive.all():
        summed, first = take(summed, alive), first[alive]
    return Run(np.take(words, first, axis=1), summed, take_values(values, first))


def concatenate_words(parts: Sequence[Words]) -> Words:
    """Concatenate keys; narrower ordered strings are widened to the widest."""
    width = max(part.shape[0] for part in parts)
    return np.concatenate([widen(part, width) for part in parts], axis=1)


def widen(words: Words, width: int) -> Words:
    """Widen ordered strings."""
    # Only ordered string keys differ in width; their last word is the length (keys.ordered_string_words).
    missing = width - words.shape[0]
    if missing <= 0:
        return words
    return np.concatenate([words[:-1], np.zeros((missing, words.shape[1]), np.uint64), words[-1:]])


def refit(words: Words, width: int) -> tuple[Words, Positions]:
    """Bring ordered string keys to another width; return the keys that fit, and their positions."""
    extra = words.shape[0] - width
    if extra <= 0:
        return widen(words, width), np.arange(words.shape[1])
    fits = np.flatnonzero(~words[width - 1 : -1].any(axis=0))
    return np.ascontiguousarray(np.concatenate([words[: width - 1], words[-1:]])[:, fits]), fits


def at_width(key: Words, width: int) -> Words:
    """Bring a key to the width of a run, so that it has the same place among the run's keys as it had before."""
    if key.shape[0] <= width:
        return widen(key, width)
    short = np.concatenate([key[: width - 1], key[-1:]])
    if key[width - 1 : -1].any():
        short[-1] = np.iinfo(np.uint64).max  # longer than all keys of the run that begin like it, so after them
    return short
