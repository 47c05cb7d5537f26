"""The delta of a view: the join of one change with other views, summed by the keys that stay.

This is the one loop of factorized maintenance. A change is joined with its siblings, the most bound first: a sibling
whose whole key is bound is looked up; of others, all entries with the bound keys are listed. The rows of the join exist
only as positions; payloads are multiplied straight into the sums of the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.factorized.algebra import Algebra
from headrace.factorized.maintenance import MaintenancePlan, Probe, Statement
from headrace.relation import kernels
from headrace.relation.arrangement import alive, lookup
from headrace.relation.columns import take_column
from headrace.relation.kernels import Positions, Words
from headrace.relation.run import Run, merge
from headrace.relation.runset import AnyRun, as_set
from headrace.relation.variables import Variables
from headrace.rings import Group, Payload, take

_SORTED_BITS = 44  # keys that vary in no more bits are grouped faster by sorting them than by hashing them

Reader = Callable[[int, int], Sequence[AnyRun]]
"""The runs of a view in one of its orders."""


@dataclass
class _Matches:
    """Rows of a join in progress. A row is nothing but one position per factor that has been joined."""

    rows: int
    index: dict[int, Positions]  # per factor: the position of each row's entry
    words: dict[str, tuple[int, Words]]  # per variable: a factor that has it, and its words there
    texts: dict[str, tuple[int, pa.Array]]

    def take(self, positions: Positions) -> None:
        """Keep or repeat rows; positions never go down, so rows never move past one another."""
        self.rows = len(positions)
        self.index = {slot: at[positions] for slot, at in self.index.items()}

    def join(self, slot: int, run: Run, at: Positions, variables: Variables, keys: Sequence[str]) -> None:
        """Add a factor: row i has the entry `at[i]` of a run."""
        self.index[slot] = at
        for name, where in variables.slices(keys).items():
            self.words.setdefault(name, (slot, run.words[where]))
        for name, text in run.values.items():
            self.texts.setdefault(name, (slot, text))

    def key(self, variables: Variables, names: Sequence[str]) -> Words:
        """The words of some variables, side by side."""
        picked = {name: np.take(self.words[name][1], self.index[self.words[name][0]], axis=1) for name in names}
        return variables.key(picked, names, self.rows)

    def numbers(self, variables: Variables, name: str) -> NDArray[np.float64]:
        """The values of a numeric variable."""
        slot, words = self.words[name]
        return variables.numbers(name, words)[self.index[slot]]


def delta(
    plan: MaintenancePlan, algebra: Algebra, variables: Variables, statement: Statement, change: Run, read: Reader
) -> Run | None:
    """Compute the change of a statement's target; None when nothing changes."""
    order, kept = plan.views[statement.source].orders[0], plan.views[statement.target].orders[0]
    matches = _Matches(change.rows, {}, {}, {})
    matches.join(statement.delta, change, np.arange(change.rows), variables, order)
    payloads: dict[int, Payload] = {statement.delta: change.payload}
    for probe in statement.probes:
        view = statement.factors[probe.slot]
        runs = read(view, probe.order)
        if not runs:
            return None
        keys = plan.views[view].orders[probe.order]
        payloads[probe.slot] = _join(algebra.group(view), variables, keys, probe, matches, runs, order)
        if not matches.rows:
            return None
    index = np.stack([matches.index[slot] for slot in range(len(statement.factors))])
    lifted = [matches.numbers(variables, name) for name in plan.views[statement.target].lifted]
    # Joining repeats rows and drops rows, but never moves one past another.
    heads, group_of, first = grouped(matches.key(variables, kept), bool(kept) and order[: len(kept)] == kept)
    factors = [payloads[slot] for slot in range(len(statement.factors))]
    payload = algebra.multiply(statement, factors, index, lifted, group_of, heads.shape[1])
    shown = {name: found for name, found in matches.texts.items() if name in kept}
    texts = {name: take_column(text, matches.index[slot][first]) for name, (slot, text) in shown.items()}
    run = Run(heads, payload, texts)
    zero = algebra.group(statement.target).is_zero(payload)
    return run.take(np.flatnonzero(~zero)) if zero.any() else run


def _join(
    group: Group,
    variables: Variables,
    keys: tuple[str, ...],
    probe: Probe,
    matches: _Matches,
    runs: Sequence[AnyRun],
    order: tuple[str, ...],
) -> Payload:
    """Join the matches with one more factor; returns the payloads that the index of the matches refers to."""
    bound = keys[: probe.bound]
    if not bound:
        return _product(group, variables, keys, probe.slot, matches, runs)
    heads, group_of, _ = grouped(matches.key(variables, bound), order[: len(bound)] == bound)
    if len(bound) == len(keys):
        found = lookup(group, runs, heads)
        there = alive(found)
        if not there.all():
            stay = np.flatnonzero(there[group_of])
            matches.take(stay)
            group_of = group_of[stay]
        matches.index[probe.slot] = group_of
        return found
    entries = as_set(runs).matching(group, heads)
    if entries is None:
        matches.take(np.zeros(0, np.int64))
        return group.zeros(0)
    first, last = entries.find(heads)
    positions, owners = _expanded(first[group_of], last[group_of])
    matches.take(owners)
    matches.join(probe.slot, entries, positions, variables, keys)
    return entries.payload


def _product(
    group: Group, variables: Variables, keys: Sequence[str], slot: int, matches: _Matches, runs: Sequence[AnyRun]
) -> Payload:
    """Pair every row with every entry of a factor that shares no variable with the factors joined so far."""
    entries = merge(group, list(runs))  # type: ignore[arg-type]
    rows = matches.rows
    matches.take(np.repeat(np.arange(rows), entries.rows))
    matches.join(slot, entries, np.tile(np.arange(entries.rows), rows), variables, keys)
    return entries.payload


def _expanded(first: Positions, last: Positions) -> tuple[Positions, Positions]:
    count = int((last - first).sum())
    positions, owners = np.empty(count, np.int64), np.empty(count, np.int64)
    kernels.expand(first, last, positions, owners)
    return positions, owners


def grouped(words: Words, is_sorted: bool) -> tuple[Words, Positions, Positions]:
    """Find the distinct keys, ascending; per row, the number of its key; and per key, one row that has it."""
    n = words.shape[1]
    group_of, first = np.empty(n, np.int64), np.empty(n, np.int64)
    if is_sorted:
        groups = kernels.heads_sorted(words, group_of, first)
        first = first[:groups].copy()
        return (words if groups == n else np.take(words, first, axis=1)), group_of, first
    one = kernels.packed(words)
    if one is not None and one[1] <= _SORTED_BITS:
        groups = kernels.group_packed(*one, group_of, first)
        first = first[:groups].copy()
        return np.take(words, first, axis=1), group_of, first
    groups = kernels.group_hashed(words, group_of, first)
    first = first[:groups].copy()
    heads = np.take(words, first, axis=1)
    order = kernels.sort_order(heads)
    rank = np.empty(groups, np.int64)
    rank[order] = np.arange(groups)
    return np.take(heads, order, axis=1), rank[group_of], first[order]


def in_order(variables: Variables, run: Run, order: Sequence[str], wanted: Sequence[str]) -> Run:
    """Rearrange a run from one order of its keys to another."""
    if tuple(order) == tuple(wanted):
        return run
    slices = variables.slices(order)
    words = variables.key({name: run.words[at] for name, at in slices.items()}, wanted, run.rows)
    moved = kernels.sort_order(words)
    values = {name: take_column(text, moved) for name, text in run.values.items()}
    return Run(np.take(words, moved, axis=1), take(run.payload, moved), values)
