"""Percentiles under changes: a place among the values of a group that moves as far as the change makes it.

The payload of a group has, per percentile, the number of values of the group, the value at the place, how many values
come before it, and the value that follows, between which and the first a percentile may lie. A step knows the values
that it changed, and so how many more or fewer there are now, in all and before the place. The rank that is asked for
has therefore moved by no more rows than the step changed, and the place is moved there along the ordered arrangement,
reading as many entries as it passes: the cost of a step follows its changes, whatever the size of the group.

What a step adds to the payload is the difference between the new place and the old one, number by number: a place is
what the differences sum up to, modulo 2**64, as all payloads are sums. A group without values has a place of zeros.
That is also where a new one begins: before the first value, as no words are less than these.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.operators.asked import is_distinct, plain
from headrace.operators.distinct import ChangedValues
from headrace.operators.layout import Component, ViewLayout, ordered, value_words
from headrace.plan.view import Aggregate
from headrace.relation.kernels import Words
from headrace.relation.keys import decimal_halves, fixed_values, values_of_words
from headrace.relation.leading import leading, less
from headrace.relation.run import Run
from headrace.relation.runset import RunSet
from headrace.relation.types import SqlType
from headrace.rings import Payload

Counts = NDArray[np.int64]
Doubles = NDArray[np.float64]

_EXACT = 2**53  # up to here integers are doubles
_EXACT_SCALE = 22  # up to here powers of ten are doubles


def with_places(
    layout: ViewLayout,
    touched: Run,
    before: Payload,
    values: Mapping[str, ChangedValues],
    later: Mapping[str, RunSet],
) -> Run:
    """Add to the payloads of touched groups how the places of their percentiles move.

    Parameters
    ----------
    before : the payloads of the groups before the step.
    later : the arrangements of values after it.
    """
    parts, old = layout.ring.split(touched.payload), layout.ring.split(before)
    for i, part in enumerate(layout.components):
        if part.role == "place" and part.argument is not None and (name := ordered(part.argument)) in values:
            parts[i] = _moved(layout, part, touched.words, old[i], values[name], later[name])
    return Run(touched.words, layout.ring.join(parts), touched.values)


def _moved(
    layout: ViewLayout, part: Component, groups: Words, old: Payload, changed: ChangedValues, runs: RunSet
) -> Payload:
    """The difference between the places of groups after a step and before it."""
    assert part.argument is not None
    depth, wide = layout.keys.width, value_words(layout.plan.arguments[part.argument].type)
    words = changed.delta.words
    owner, _ = Run(groups, ()).find(np.ascontiguousarray(words[:depth]))
    touched, at = np.unique(owner, return_inverse=True)
    count, below = (column[touched].copy() for column in old[:2])
    place = np.stack([column[touched].view(np.uint64) for column in old[2 : 2 + wide]])
    once = is_distinct(str(part.options[0]))
    more = _rows(changed.after, once) - _rows(changed.before, once)
    np.add.at(count, at, more)
    np.add.at(below, at, np.where(less(words[depth:], place[:, at]), more, 0))
    rank, last = _ranks(part, count)
    walk = _Walk(runs, np.ascontiguousarray(groups[:, touched]), once)
    walk.back(count > 0, place, below, rank)
    place, follows = walk.forward(count > 0, place, below, rank, last)
    new = [count, below, *place.view(np.int64), *follows.view(np.int64)]
    out = tuple(np.zeros_like(column) for column in old)
    for difference, was, now in zip(out, old, new, strict=True):
        difference[touched] = np.where(count > 0, now, 0) - was[touched]
    return out


class _Walk:
    """Moves places of groups along the ordered arrangement of their values."""

    def __init__(self, runs: RunSet, groups: Words, once: bool) -> None:
        self.runs = runs
        self.groups = groups
        self.once = once
        self.stretches = runs.find(groups)

    def back(self, there: NDArray[np.bool_], place: Words, below: Counts, rank: Counts) -> None:
        """Move the places that are behind their rank to it, or further back; changes `place` and `below`."""
        chosen = there & (rank < below)
        if not chosen.any():
            return
        run, first, _, group = self.stretches[:, chosen[self.stretches[3]]]
        stretches = np.stack([run, first, self._starts(chosen, place), group])
        found, groups, passed = self._read(stretches, below - rank, end=True)
        at, which = _reaching(groups, passed, below - rank)
        place[:, which] = ~found[:, at]
        below[which] -= passed[at]

    def forward(
        self, there: NDArray[np.bool_], place: Words, below: Counts, rank: Counts, last: Counts
    ) -> tuple[Words, Words]:
        """Find the values at a rank and at a `last` one behind it; changes `below` to what is before the first."""
        run, _, stop, group = self.stretches[:, there[self.stretches[3]]]
        stretches = np.stack([run, self._starts(there, place), stop, group])
        found, groups, passed = self._read(stretches, last + 1 - below)
        at, which = _reaching(groups, passed, rank + 1 - below)
        behind, same = _reaching(groups, passed, last + 1 - below)
        assert len(which) == len(same) == there.sum(), "a rank is less than the number of values of its group"
        first, follows = np.zeros_like(place), np.zeros_like(place)
        first[:, which], follows[:, same] = found[:, at], found[:, behind]
        starts = np.flatnonzero(np.diff(groups, prepend=-1) != 0)
        before = np.concatenate([[0], passed[:-1]])
        before[starts] = 0
        below[which] += before[at]
        return first, follows

    def _starts(self, chosen: NDArray[np.bool_], place: Words) -> Counts:
        """Where the places are in the stretches of chosen groups."""
        stretches = self.stretches[:, chosen[self.stretches[3]]]
        return self.runs.starts(stretches, np.concatenate([self.groups, place]))

    def _read(self, stretches: NDArray[np.int64], wanted: Counts, *, end: bool = False) -> tuple[Words, Counts, Counts]:
        """Entries of stretches in order: words, groups, and how many rows of the group there are up to each."""
        stretches = np.ascontiguousarray(stretches[:, stretches[1] < stretches[2]])
        depth = self.groups.shape[0]
        found = leading(self.runs, stretches, wanted, depth=depth, end=end, once=self.once)
        rows = _rows(found.entries.payload[0], self.once)
        passed = np.cumsum(rows)
        starts = np.flatnonzero(np.diff(found.groups, prepend=-1) != 0)
        sizes = np.diff(starts, append=len(rows))
        return found.entries.words, found.groups, passed - np.repeat(passed[starts] - rows[starts], sizes)


def _rows(counts: Counts, once: bool) -> Counts:
    """How many rows entries stand for; what was deleted before it was inserted is no row yet."""
    return (counts > 0).astype(np.int64) if once else np.maximum(counts, 0)


def _reaching(groups: Counts, passed: Counts, wanted: Counts) -> tuple[Counts, Counts]:
    """The first entry of each group up to which there are as many rows as wanted, and the group."""
    enough = np.flatnonzero(passed >= wanted[groups])
    which, first = np.unique(groups[enough], return_index=True)
    return enough[first], which


def _ranks(part: Component, count: Counts) -> tuple[Counts, Counts]:
    """The ranks, from 0, of the values between which a percentile lies; the same one if it is a value of the group."""
    low, high = _positions(part, count)
    if part.options[2]:
        return count - 1 - high, count - 1 - low
    return low, high


def _positions(part: Component, count: Counts) -> tuple[Counts, Counts]:
    """Where a percentile lies, counted in the direction of its order, as Spark computes it."""
    function, fraction, _ = part.options
    if plain(str(function)) == "percentile":
        position = (count - 1) * float(fraction)
        return np.floor(position).astype(np.int64), np.ceil(position).astype(np.int64)
    at = np.maximum(np.ceil(count * float(fraction)).astype(np.int64), 1) - 1
    return at, at


def percentile(layout: ViewLayout, aggregate: Aggregate, payload: Payload) -> pa.Array:
    """The SQL values of a percentile; NULL where a group has no value."""
    assert aggregate.argument is not None
    kind, part = layout.plan.arguments[aggregate.argument].type, layout.place(aggregate)
    count, wide = payload[0], value_words(kind)
    missing = count <= 0
    words = np.stack([column.view(np.uint64) for column in payload[2:]])
    if plain(aggregate.function) == "percentile_approx":
        return values_of_words(words[:wide], kind, missing)
    first, last = _doubles(words[:wide], kind, missing), _doubles(words[wide:], kind, missing)
    low, high = _positions(part, count)
    if part.options[2]:
        first, last = last, first
    position = (count - 1) * float(part.options[1])
    with np.errstate(invalid="ignore", over="ignore"):  # an infinity among the values, as Spark computes with it
        between = (high - position) * first + (position - low) * last
    same = (high == low) | (first == last) | (np.isnan(first) & np.isnan(last))
    return pa.array(np.where(missing, 0.0, np.where(same, first, between)), pa.float64(), mask=missing)


def _doubles(words: Words, kind: SqlType, missing: NDArray[np.bool_]) -> Doubles:
    array = values_of_words(words, kind, None)
    if not kind.is_decimal:
        return fixed_values(array, kind).astype(np.float64)
    low, high = decimal_halves(array)
    unscaled = low.view(np.int64)
    exact = (high == unscaled >> 63) & (np.abs(unscaled) <= _EXACT) & (kind.scale <= _EXACT_SCALE)
    out = unscaled.astype(np.float64) / 10.0**kind.scale
    for i in np.flatnonzero(~exact & ~missing):
        out[i] = float(array[i].as_py())
    return out
