"""The change of an answer with categories: the last join of a plan, whose result is summed by level and by pair.

Below the answer, categories are keys (`categories`). Here the factors meet by what they are joined on, and each brings
a stretch of entries per key. Their product is summed by level and by pair of levels (`rings.mixed_product`): entries of
two factors meet only to be counted as pairs, and those of three never.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.factorized.maintenance import MaintenancePlan, Probe, Statement
from headrace.factorized.matches import Matches, Reader, expanded, grouped
from headrace.factorized.moments import MomentsAlgebra
from headrace.relation import kernels
from headrace.relation.arrangement import alive, lookup
from headrace.relation.columns import take_column
from headrace.relation.kernels import Positions, Words
from headrace.relation.run import Run, merge
from headrace.relation.runset import AnyRun, as_set
from headrace.relation.variables import Variables
from headrace.rings import take
from headrace.rings.covariance import projected
from headrace.rings.mixed_product import mixed_product_sum
from headrace.rings.stretches import MixedSums, Stretches

Codes = NDArray[np.uint64]
_NEAR = 1 << 16  # codes that lie so close together are numbered by their distance from the first


@dataclass(frozen=True)
class MixedChange:
    """A change of the answer: sums by group, in the answer's order of features and categories.

    Parameters
    ----------
    heads : the keys of the groups.
    texts : the texts of those keys that are strings.
    sums : sums of the groups; codes of levels are numbers of `levels`.
    levels : per category, the codes that the numbers stand for.
    """

    heads: Words
    texts: dict[str, pa.Array]
    sums: MixedSums
    levels: tuple[Codes, ...]

    @property
    def rows(self) -> int:
        return int(self.heads.shape[1])


@dataclass(frozen=True)
class _Factor:
    """A factor of the last join: its distinct keys, and the entries of each."""

    keys: Run  # without payloads
    names: tuple[str, ...]
    starts: Positions
    entries: Run
    order: tuple[str, ...]


def mixed_delta(
    plan: MaintenancePlan,
    algebra: MomentsAlgebra,
    variables: Variables,
    statement: Statement,
    change: Run,
    read: Reader,
) -> MixedChange | None:
    """Compute the change of the answer that follows from a change of one of its factors; None when nothing changes."""
    joined = _Joined(plan, algebra, variables, statement, change)
    for probe in statement.probes:
        runs = read(statement.factors[probe.slot], probe.order)
        if not runs or not joined.probe(probe, runs):
            return None
    return joined.summed()


class _Joined:
    """A join in progress: rows are positions of keys, one per factor."""

    def __init__(
        self,
        plan: MaintenancePlan,
        algebra: MomentsAlgebra,
        variables: Variables,
        statement: Statement,
        change: Run,
    ) -> None:
        self.plan, self.algebra, self.variables, self.statement = plan, algebra, variables, statement
        self.root = plan.views[statement.target]
        every = [key for factor in statement.factors for key in plan.views[factor].keys]
        wanted = {*self.root.keys, *self.root.lifted, *self.root.categories}
        self.needed = wanted | {key for key in every if every.count(key) > 1}
        first = self._factor(change, plan.views[statement.source].orders[0])
        self.factors = {statement.delta: first}
        self.order = first.names
        self.matches = Matches(first.keys.rows, {}, {}, {})
        self.matches.join(statement.delta, first.keys, np.arange(first.keys.rows), variables, first.names)

    def _factor(self, run: Run, order: tuple[str, ...]) -> _Factor:
        return stretched(self.variables, run, order, self.needed)

    def probe(self, probe: Probe, runs: Sequence[AnyRun]) -> bool:
        """Join one more factor; False if no row is left."""
        view, matches = self.statement.factors[probe.slot], self.matches
        group, keys = self.algebra.group(view), self.plan.views[view].orders[probe.order]
        bound = keys[: probe.bound]
        if not bound:
            factor = self._factor(merge(group, list(runs)), keys)  # type: ignore[arg-type]
            rows, found = matches.rows, factor.keys.rows
            matches.take(np.repeat(np.arange(rows), found))
            positions = np.tile(np.arange(found), rows)
        else:
            heads, group_of, _ = grouped(matches.key(self.variables, bound), self.order[: len(bound)] == bound)
            if len(bound) == len(keys):
                return self._looked_up(probe.slot, heads, group_of, runs, keys)
            entries = as_set(runs).matching(group, heads)
            if entries is None:
                return False
            factor = self._factor(entries, keys)
            first, last = factor.keys.find(heads)
            positions, owners = expanded(first[group_of], last[group_of])
            matches.take(owners)
        matches.join(probe.slot, factor.keys, positions, self.variables, factor.names)
        self.factors[probe.slot] = factor
        return matches.rows > 0

    def _looked_up(
        self, slot: int, heads: Words, group_of: Positions, runs: Sequence[AnyRun], keys: tuple[str, ...]
    ) -> bool:
        """Join a factor that is found by its whole key: one entry per key at most."""
        found = lookup(self.algebra.group(self.statement.factors[slot]), runs, heads)
        there = alive(found)
        if not there.all():
            stay = np.flatnonzero(there[group_of])
            self.matches.take(stay)
            group_of = group_of[stay]
        self.matches.index[slot] = group_of
        run = Run(heads, found)
        self.factors[slot] = _Factor(run, keys, np.arange(run.rows + 1), run, keys)
        return self.matches.rows > 0

    # -- summing ------------------------------------------------------------------------------------------------------

    def summed(self) -> MixedChange | None:
        """Sum the products of the rows by the keys of the answer."""
        matches, kept = self.matches, self.root.orders[0]
        if not matches.rows:
            return None
        is_sorted = bool(kept) and self.order[: len(kept)] == kept
        heads, group_of, first = grouped(matches.key(self.variables, kept), is_sorted)
        slots = range(len(self.statement.factors))
        names: list[str] = []
        categories: list[str] = []
        levels: list[Codes] = []
        factors: list[Stretches] = []
        for slot in slots:
            view = self.statement.factors[slot]
            own = self.algebra.categories(view)
            factors.append(self._stretches(self.factors[slot], own, len(self.algebra.features(view)), levels))
            names += self.algebra.features(view)
            categories += own
        index = [matches.index[slot] for slot in slots]
        if self.root.categories:  # of the rows themselves: a factor with one entry per row
            codes = [self._code_of_rows(name) for name in self.root.categories]
            factors.append(_coded(np.ones((matches.rows, 1)), 0, np.arange(matches.rows + 1), codes, levels))
            categories += self.root.categories
            index.append(np.arange(matches.rows))
        lifted = np.zeros((len(self.root.lifted), matches.rows))
        for i, name in enumerate(self.root.lifted):
            lifted[i] = matches.numbers(self.variables, name) - self.algebra.shifts.get(name, 0.0)
        names += self.root.lifted
        sums = mixed_product_sum(factors, lifted, np.stack(index), group_of, heads.shape[1])
        shown = {name: found for name, found in matches.texts.items() if name in kept}
        texts = {name: take_column(text, matches.index[slot][first]) for name, (slot, text) in shown.items()}
        wanted, order = self.algebra.features(self.statement.target), self.algebra.categories(self.statement.target)
        sums = _reordered(sums, [names.index(name) for name in wanted], [categories.index(name) for name in order])
        return MixedChange(heads, texts, sums, tuple(levels[categories.index(name)] for name in order))

    def _stretches(self, factor: _Factor, own: tuple[str, ...], degree: int, levels: list[Codes]) -> Stretches:
        slices = self.variables.slices(factor.order)
        codes = [self.variables.code(name, factor.entries.words[slices[name]]) for name in own]
        return _coded(factor.entries.payload[0], degree, factor.starts, codes, levels)

    def _code_of_rows(self, name: str) -> Codes:
        slot, words = self.matches.words[name]
        return self.variables.code(name, words)[self.matches.index[slot]]


def stretched(variables: Variables, run: Run, order: tuple[str, ...], needed: Collection[str]) -> _Factor:
    """Find the distinct values of the keys that are needed, and bring the entries of each together."""
    names = tuple(name for name in order if name in needed)
    slices = variables.slices(order)
    words = variables.key({name: run.words[slices[name]] for name in names}, names, run.rows)
    is_sorted = order[: len(names)] == names
    heads, group_of, _ = grouped(words, is_sorted)
    if not is_sorted:
        by = np.argsort(group_of, kind="stable")
        run, group_of = Run(np.take(run.words, by, axis=1), take(run.payload, by)), group_of[by]
    starts = np.searchsorted(group_of, np.arange(heads.shape[1] + 1))
    shown = {name: text for name, text in run.values.items() if name in names}
    return _Factor(
        Run(heads, (), {name: take_column(text, starts[:-1]) for name, text in shown.items()}),
        names,
        starts,
        run,
        order,
    )


def numbered(codes: Codes) -> tuple[Positions, Codes]:
    """Number codes from 0 on: the number of each, and the code of each number."""
    if not len(codes):
        return np.zeros(0, np.int64), codes
    low, high = codes.min(), codes.max()
    if high - low < np.uint64(min(_NEAR, 256 + len(codes))):
        return (codes - low).astype(np.int64), low + np.arange(int(high - low) + 1, dtype=np.uint64)
    number, first = np.empty(len(codes), np.int64), np.empty(len(codes), np.int64)
    count = kernels.group_hashed(np.ascontiguousarray(codes)[None, :], number, first)
    return number, codes[first[:count]]


def _coded(
    payload: NDArray[np.float64], degree: int, starts: Positions, codes: Sequence[Codes], levels: list[Codes]
) -> Stretches:
    """A factor whose codes are numbers; what they stand for is added to the levels."""
    numbers = np.empty((len(codes), len(payload)), np.int32)
    sizes = []
    for i, code in enumerate(codes):
        numbers[i], known = numbered(code)
        levels.append(known)
        sizes.append(len(known))
    return Stretches(np.asarray(payload), degree, starts, numbers, tuple(sizes))


def _reordered(sums: MixedSums, features: list[int], categories: list[int]) -> MixedSums:
    """Put features and categories into another order: number `features[j]` becomes number j."""
    degree = len(features)
    in_order = features == list(range(degree))
    moments = sums.moments if in_order else projected(sums.moments, degree, features)
    columns = [0, *(1 + feature for feature in features)]
    levels = [sums.levels[category] for category in categories]
    if not in_order:
        levels = [type(own)(own.group, own.code, np.ascontiguousarray(own.sums[:, columns])) for own in levels]
    pairs = {}
    for i, a in enumerate(categories):
        for j in range(i + 1, len(categories)):
            b = categories[j]
            found = sums.pairs[min(a, b), max(a, b)]
            pairs[i, j] = found if a < b else type(found)(found.group, found.right, found.left, found.counts)
    return MixedSums(moments, tuple(levels), pairs)
