"""A worst-case optimal step of a join: several factors bind the same variables, and the smallest one is listed.

A row with an edge (b, c) is joined with T[c, A] and R[A, b]. Listing all a of T and looking them up in R takes as long
as c has neighbours, which in a skewed graph may be a large part of it. Listing the smaller side of each row, and
looking the other up, takes the time of the smaller: with N rows no more than N^(3/2) for all triangles, which is the
size of the largest answer that there can be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.factorized.algebra import Algebra
from headrace.factorized.maintenance import MaintenancePlan, Probe, Statement
from headrace.factorized.matches import Matches, Reader, expanded, grouped
from headrace.relation.arrangement import alive, lookup
from headrace.relation.kernels import Positions, Words
from headrace.relation.run import Run
from headrace.relation.runset import AnyRun, as_set
from headrace.relation.variables import Variables
from headrace.rings import Group, Payload


@dataclass(frozen=True)
class Found:
    """A factor as a probe finds it: the order of its keys, how many of them are bound, and its runs."""

    slot: int
    group: Group
    keys: tuple[str, ...]
    bound: int
    runs: Sequence[AnyRun]

    @classmethod
    def of(cls, plan: MaintenancePlan, algebra: Algebra, statement: Statement, probe: Probe, read: Reader) -> Found:
        """The factor that a probe of a statement asks for."""
        view = statement.factors[probe.slot]
        runs = read(view, probe.order)
        return cls(probe.slot, algebra.group(view), plan.views[view].orders[probe.order], probe.bound, runs)


def intersect(
    variables: Variables, matches: Matches, factors: Sequence[Found], order: tuple[str, ...]
) -> dict[int, Payload]:
    """Join the matches with factors that bind the same variables; returns the payloads that the index refers to."""
    smallest, bounds = _smallest(variables, matches, factors, order)
    listed = [_listed(factor, *bounds[i], np.flatnonzero(smallest == i)) for i, factor in enumerate(factors)]
    # Rows must not move past one another, whichever factor they were listed from.
    owners = np.concatenate([owner for _, _, owner in listed])
    back = np.argsort(owners, kind="stable")
    source = np.repeat(np.arange(len(factors)), [len(owner) for _, _, owner in listed])[back]
    position = np.concatenate([at for _, at, _ in listed])[back]
    matches.take(owners[back])
    _bind(variables, matches, factors, [run for run, _, _ in listed], source, position)
    return _looked_up(variables, matches, factors, [run for run, _, _ in listed], source, position)


def _smallest(
    variables: Variables, matches: Matches, factors: Sequence[Found], order: tuple[str, ...]
) -> tuple[Positions, list[tuple[Words, Positions]]]:
    """Which factor has the fewest entries for each row; and per factor the distinct bound keys, and each row's."""
    fewest = np.full(matches.rows, np.iinfo(np.int64).max)
    smallest = np.zeros(matches.rows, np.int64)
    bounds = []
    for i, factor in enumerate(factors):
        bound = factor.keys[: factor.bound]
        heads, group_of, _ = grouped(matches.key(variables, bound), order[: len(bound)] == bound)
        stretches = as_set(factor.runs).find(heads)
        count = np.zeros(heads.shape[1], np.int64)
        np.add.at(count, stretches[3], stretches[2] - stretches[1])
        here = count[group_of]
        fewer = here < fewest
        smallest[fewer] = i
        fewest[fewer] = here[fewer]
        bounds.append((heads, group_of))
    return smallest, bounds


def _listed(
    factor: Found, heads: Words, group_of: Positions, rows: Positions
) -> tuple[Run | None, Positions, Positions]:
    """List the entries of one factor for some rows: the entries, which of them, and for which row."""
    none = np.zeros(0, np.int64)
    if not len(rows):
        return None, none, none
    wanted, group_of = np.unique(group_of[rows], return_inverse=True)
    heads = np.ascontiguousarray(heads[:, wanted])
    entries = as_set(factor.runs).matching(factor.group, heads)
    if entries is None:
        return None, none, none
    first, last = entries.find(heads)
    positions, owners = expanded(first[group_of], last[group_of])
    return entries, positions, rows[owners]


def _bind(
    variables: Variables,
    matches: Matches,
    factors: Sequence[Found],
    runs: Sequence[Run | None],
    source: Positions,
    position: Positions,
) -> None:
    """Bind the new variables of each row to their values in the factor that the row was listed from."""
    there = [(factor, run) for factor, run in zip(factors, runs, strict=True) if run is not None]
    if not there:
        return
    starts = np.cumsum([0, *(0 if run is None else run.rows for run in runs)])
    slot = -1 - factors[0].slot  # no factor of its own: entries of several, one behind the other
    matches.index[slot] = starts[source] + position
    for name in factors[0].keys[factors[0].bound :]:
        words = [run.words[variables.slices(factor.keys)[name]] for factor, run in there]
        matches.words[name] = (slot, np.concatenate(words, axis=1))
        texts = [run.values[name] for _, run in there if name in run.values]
        if texts:
            assert len(texts) == len(there), "all leaves with a text variable store its texts"
            matches.texts[name] = (slot, pa.concat_arrays(texts))


def _looked_up(
    variables: Variables,
    matches: Matches,
    factors: Sequence[Found],
    runs: Sequence[Run | None],
    source: Positions,
    position: Positions,
) -> dict[int, Payload]:
    """Look up, in each factor, the rows that were listed from another one; rows without an entry are dropped."""
    payloads: dict[int, Payload] = {}
    for i, (factor, run) in enumerate(zip(factors, runs, strict=True)):
        payload = factor.group.zeros(0) if run is None else run.payload
        others = np.flatnonzero(source != i)
        at = position.copy()
        if len(others):
            heads, group_of, _ = grouped(matches.key(variables, factor.keys, others), False)
            found = lookup(factor.group, factor.runs, heads)
            at[others] = len(payload[0]) + group_of
            payload = tuple(np.concatenate(columns) for columns in zip(payload, found, strict=True))
        payloads[factor.slot] = payload
        matches.index[factor.slot] = at
        there = alive(payload)[at]
        if not there.all():
            stay = np.flatnonzero(there)
            matches.take(stay)
            source, position = source[stay], position[stay]
    return payloads
