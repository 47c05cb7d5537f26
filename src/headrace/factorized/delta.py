"""The delta of a view: the join of one change with other views, summed by the keys that stay.

This is the one loop of factorized maintenance. A change is joined with its siblings, the most bound first; a sibling
that is found by its whole key is looked up, one that is not is listed. The rows of the join exist only as positions;
payloads are multiplied straight into the sums of the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from headrace.factorized.algebra import Algebra
from headrace.factorized.maintenance import MaintenancePlan, Probe, Statement
from headrace.factorized.variables import Variables
from headrace.relation import kernels
from headrace.relation.arrangement import AnyRun, alive, lookup, stretches
from headrace.relation.columns import take_column
from headrace.relation.kernels import Positions, Words
from headrace.relation.run import Run, Values, merge
from headrace.rings import Group, Payload, take

_SORTED_BITS = 44  # keys that vary in no more bits are grouped faster by sorting them than by hashing them

Reader = Callable[[int, int], Sequence[AnyRun]]
"""The runs of a view in one of its orders."""


@dataclass
class _Matches:
    """Rows of a join in the making: the words of their variables, and where each factor's payload is."""

    rows: int
    words: dict[str, Words]
    texts: Values
    index: dict[int, Positions]

    def take(self, positions: Positions) -> None:
        self.rows = len(positions)
        self.words = {name: np.ascontiguousarray(words[:, positions]) for name, words in self.words.items()}
        self.texts = {name: take_column(text, positions) for name, text in self.texts.items()}
        self.index = {slot: at[positions] for slot, at in self.index.items()}


def delta(
    plan: MaintenancePlan, algebra: Algebra, variables: Variables, statement: Statement, change: Run, read: Reader
) -> Run | None:
    """Compute the change of a statement's target; None when nothing changes."""
    source, target = plan.views[statement.source], plan.views[statement.target]
    slices = variables.slices(source.orders[0])
    matches = _Matches(
        change.rows,
        {name: change.words[at] for name, at in slices.items()},
        dict(change.values),
        {statement.delta: np.arange(change.rows)},
    )
    payloads: dict[int, Payload] = {statement.delta: change.payload}
    order = source.orders[0]
    for probe in statement.probes:
        view = statement.factors[probe.slot]
        runs = read(view, probe.order)
        if not runs:
            return None
        payloads[probe.slot] = _join(plan, algebra.group(view), variables, view, probe, matches, runs, order)
        if not matches.rows:
            return None
    index = np.stack([matches.index[slot] for slot in range(len(statement.factors))])
    lifted = [variables.numbers(name, matches.words[name]) for name in target.lifted]
    words = variables.key(matches.words, target.orders[0], matches.rows)
    kept = target.orders[0]
    # Joining repeats rows and drops rows, but never moves one past another.
    heads, group_of, first = grouped(words, bool(kept) and order[: len(kept)] == kept)
    factors = [payloads[slot] for slot in range(len(statement.factors))]
    payload = algebra.multiply(statement, factors, index, lifted, group_of, heads.shape[1])
    texts = {name: take_column(text, first) for name, text in matches.texts.items() if name in target.keys}
    run = Run(heads, payload, texts)
    zero = algebra.group(statement.target).is_zero(payload)
    return run.take(np.flatnonzero(~zero)) if zero.any() else run


def _join(
    plan: MaintenancePlan,
    group: Group,
    variables: Variables,
    view: int,
    probe: Probe,
    matches: _Matches,
    runs: Sequence[AnyRun],
    order: tuple[str, ...],
) -> Payload:
    """Join the matches with one more factor; gives its payloads, to which the matches' index refers."""
    keys = plan.views[view].orders[probe.order]
    bound = keys[: probe.bound]
    if not bound:
        return _product(group, variables, keys, probe.slot, matches, runs)
    probes = variables.key(matches.words, bound, matches.rows)
    heads, group_of, _ = grouped(probes, order[: len(bound)] == bound)
    if len(bound) == len(keys):
        found = lookup(group, runs, heads)
        there = alive(found)
        if not there.all():
            matches.take(np.flatnonzero(there[group_of]))
            group_of = group_of[there[group_of]]
        matches.index[probe.slot] = group_of
        return found
    parts = []
    for run in runs:
        positions, _ = stretches(run, heads)
        if len(positions):
            parts.append(run.take(positions))
    if not parts:
        matches.take(np.zeros(0, np.int64))
        return group.zeros(0)
    entries = merge(group, parts)
    first, last = entries.find(heads)
    positions, owners = _expanded(first[group_of], last[group_of])
    _extend(variables, keys, matches, entries, positions, owners, probe.slot)
    return entries.payload


def _product(
    group: Group, variables: Variables, keys: Sequence[str], slot: int, matches: _Matches, runs: Sequence[AnyRun]
) -> Payload:
    """Pair every row with every entry: the factor shares no variable with what is there."""
    entries = merge(group, list(runs))  # type: ignore[arg-type]
    if not keys:  # one entry, the empty key
        matches.take(np.arange(matches.rows) if entries.rows else np.zeros(0, np.int64))
        matches.index[slot] = np.zeros(matches.rows, np.int64)
        return entries.payload
    positions = np.tile(np.arange(entries.rows), matches.rows)
    owners = np.repeat(np.arange(matches.rows), entries.rows)
    _extend(variables, keys, matches, entries, positions, owners, slot)
    return entries.payload


def _extend(
    variables: Variables,
    keys: Sequence[str],
    matches: _Matches,
    entries: Run,
    positions: Positions,
    owners: Positions,
    slot: int,
) -> None:
    matches.take(owners)
    matches.index[slot] = positions
    for name, at in variables.slices(keys).items():
        if name not in matches.words:
            matches.words[name] = np.ascontiguousarray(entries.words[at][:, positions])
            if name in entries.values:
                matches.texts[name] = take_column(entries.values[name], positions)


def _expanded(first: Positions, last: Positions) -> tuple[Positions, Positions]:
    count = int((last - first).sum())
    positions, owners = np.empty(count, np.int64), np.empty(count, np.int64)
    kernels.expand(first, last, positions, owners)
    return positions, owners


def grouped(words: Words, is_sorted: bool) -> tuple[Words, Positions, Positions]:
    """Find the distinct keys, ascending, which of them each row has, and a row that has each."""
    n = words.shape[1]
    group_of, first = np.empty(n, np.int64), np.empty(n, np.int64)
    if is_sorted:
        groups = kernels.heads_sorted(words, group_of, first)
        first = first[:groups].copy()
        return (words if groups == n else np.ascontiguousarray(words[:, first])), group_of, first
    one = kernels.packed(words)
    if one is not None and one[1] <= _SORTED_BITS:
        groups = kernels.group_packed(*one, group_of, first)
        first = first[:groups].copy()
        return np.ascontiguousarray(words[:, first]), group_of, first
    groups = kernels.group_hashed(words, group_of, first)
    first = first[:groups].copy()
    heads = np.ascontiguousarray(words[:, first])
    order = kernels.sort_order(heads)
    rank = np.empty(groups, np.int64)
    rank[order] = np.arange(groups)
    return np.ascontiguousarray(heads[:, order]), rank[group_of], first[order]


def in_order(variables: Variables, run: Run, order: Sequence[str], wanted: Sequence[str]) -> Run:
    """Bring a run from one order of its keys to another."""
    if tuple(order) == tuple(wanted):
        return run
    slices = variables.slices(order)
    words = variables.key({name: run.words[at] for name, at in slices.items()}, wanted, run.rows)
    moved = kernels.sort_order(words)
    values = {name: take_column(text, moved) for name, text in run.values.items()}
    return Run(np.ascontiguousarray(words[:, moved]), take(run.payload, moved), values)
