"""The delta of a view: the join of one change with other views, summed by the keys that stay.

This is the one loop of factorized maintenance. A change is joined with its siblings, the most bound first: a sibling
whose whole key is bound is looked up; of others, all entries with the bound keys are listed. The rows of the join exist
only as positions; payloads are multiplied straight into the sums of the result.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headrace.factorized.algebra import Algebra
from headrace.factorized.intersection import Found, intersect
from headrace.factorized.maintenance import MaintenancePlan, Probe, Statement
from headrace.factorized.matches import Matches, Reader, expanded, grouped
from headrace.relation import kernels
from headrace.relation.arrangement import alive, lookup
from headrace.relation.columns import take_column
from headrace.relation.run import Run, merge
from headrace.relation.runset import AnyRun, as_set
from headrace.relation.variables import Variables
from headrace.rings import Group, Payload, take


def delta(
    plan: MaintenancePlan, algebra: Algebra, variables: Variables, statement: Statement, change: Run, read: Reader
) -> Run | None:
    """Compute the change of a statement's target; None when nothing changes."""
    order, kept = plan.views[statement.source].orders[0], plan.views[statement.target].orders[0]
    matches = Matches(change.rows, {}, {}, {})
    matches.join(statement.delta, change, np.arange(change.rows), variables, order)
    payloads: dict[int, Payload] = {statement.delta: change.payload}
    if not all(read(statement.factors[probe.slot], probe.order) for probe in statement.every_probe):
        return None  # seen before the first factor is joined, because that may take long
    for probe in statement.probes:
        found = [Found.of(plan, algebra, statement, one, read) for one in probe.all]
        if probe.beside:
            payloads |= intersect(variables, matches, found, order)
        else:
            payloads[probe.slot] = join(found[0].group, variables, found[0].keys, probe, matches, found[0].runs, order)
        if not matches.rows:
            return None
    for slot, view in enumerate(statement.factors):
        if plan.views[view].indicator and slot != statement.delta:
            payloads[slot] = indicator(payloads[slot])
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


def join(
    group: Group,
    variables: Variables,
    keys: tuple[str, ...],
    probe: Probe,
    matches: Matches,
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
    positions, owners = expanded(first[group_of], last[group_of])
    matches.take(owners)
    matches.join(probe.slot, entries, positions, variables, keys)
    return entries.payload


def _product(
    group: Group, variables: Variables, keys: Sequence[str], slot: int, matches: Matches, runs: Sequence[AnyRun]
) -> Payload:
    """Pair every row with every entry of a factor that shares no variable with the factors joined so far."""
    entries = merge(group, list(runs))  # type: ignore[arg-type]
    rows = matches.rows
    matches.take(np.repeat(np.arange(rows), entries.rows))
    matches.join(slot, entries, np.tile(np.arange(entries.rows), rows), variables, keys)
    return entries.payload


def indicator(counted: Payload) -> Payload:
    """The payloads of an indicator projection, given how many rows each key has: 1 where there are some."""
    return tuple((column != 0).astype(column.dtype) for column in counted)


def transitions(group: Group, before: Payload, change: Payload) -> Payload:
    """The change of an indicator projection: +1 where the first row of a key came, -1 where the last one went."""
    now, was = indicator(group.add(before, change)), indicator(before)
    return tuple(np.subtract(new, old) for new, old in zip(now, was, strict=True))


def in_order(variables: Variables, run: Run, order: Sequence[str], wanted: Sequence[str]) -> Run:
    """Rearrange a run from one order of its keys to another."""
    if tuple(order) == tuple(wanted):
        return run
    slices = variables.slices(order)
    words = variables.key({name: run.words[at] for name, at in slices.items()}, wanted, run.rows)
    moved = kernels.sort_order(words)
    values = {name: take_column(text, moved) for name, text in run.values.items()}
    return Run(np.take(words, moved, axis=1), take(run.payload, moved), values)
