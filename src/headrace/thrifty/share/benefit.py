"""Is sharing worth its price? The work of blocks that are shared, and of blocks that are not.

A shared subplan runs each operator once. But it takes rows that any of its members wants, with the columns that all of
them read, perhaps in an order that none of them would choose alone; and each member picks its rows out of what the
subplan gives. So blocks are clustered from the bottom up: those that are the same, conditions included, always share,
since no row is taken for others. Then the two clusters with the highest *sharing benefit* are merged, again and again
(Tang, "Thrifty Query Processing", 4.3.1, Eq. 4.4), and of all splits on the way, the one with the least work is taken.
A subplan runs as often as the most eager of its members needs it. So members whose goals differ may be better off
apart, even if their conditions are equal.

How many rows conditions have in common is counted on a sample of the rows of each table. Where there is no sample,
blocks share only what they have under equal conditions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.plan import native
from headrace.plan.expression import Expression
from headrace.thrifty.share.blocks import Block
from headrace.thrifty.share.family import FamilyOperator, family_of
from headrace.thrifty.share.orders import Manner, in_common_order
from headrace.thrifty.share.skeleton import Grouped, Joined

SECONDS = 3e-7  # of a unit of work: of a row of no columns in an operator, where the following were measured
_COLUMN = 0.25
_TEXT = 1.3  # a column of texts, which are stored beside their hashes
_START = 800.0  # an operator that takes any rows at all
_START_COLUMN = 120.0  # more, for every column
_START_TEXT = 350.0
_READ = 1_000.0  # a view that reads a shared subplan, as it runs apart from that
_HELD = 500.0  # a table whose rows wait before an operator, in every step in which some come
_PICKED = 0.5  # a row among which a view looks for its own
_CLEARLY = 1.2  # work that is this many times as much is worth a change

Work = Callable[[Sequence[Block], Manner], float]
"""The work per step of blocks that share a subplan in some manner, or of a block by itself."""

EXACT_MANNERS = (Manner(exact=True, own_orders=True), Manner(exact=True, own_orders=False))
ALL_MANNERS = (*EXACT_MANNERS, Manner(exact=False, own_orders=True), Manner(exact=False, own_orders=False))


@dataclass(frozen=True)
class Sample:
    """Some rows of a table, and how many of its rows a step changes."""

    rows: pa.Table
    changed: float

    @cached_property
    def _columns(self) -> dict[str, pa.Array]:
        return {name: self.rows.column(name).combine_chunks() for name in self.rows.column_names}

    @cached_property
    def _passing(self) -> dict[str, NDArray[np.bool_]]:
        return {}

    @cached_property
    def _shares(self) -> dict[frozenset[str], float]:
        return {}

    def share(self, conditions: Mapping[str, Expression | None]) -> float:
        """The share of the rows that pass any of some conditions, which are given by their fingerprints."""
        names = frozenset(conditions)
        if names not in self._shares:
            passing = [self._rows_of(name, condition) for name, condition in conditions.items()]
            self._shares[names] = float(np.logical_or.reduce(passing).mean()) if self.rows.num_rows else 1.0
        return self._shares[names]

    def _rows_of(self, name: str, condition: Expression | None) -> NDArray[np.bool_]:
        if name not in self._passing:
            count = self.rows.num_rows
            found = None if condition is None else native.evaluate(condition, self._columns, count).fill_null(False)
            whole = np.ones(count, bool)
            self._passing[name] = whole if found is None else np.asarray(found.to_numpy(zero_copy_only=False), bool)
        return self._passing[name]


def work_of(samples: Mapping[str, Sample]) -> Work:
    """Estimates the work per step of a cluster of blocks, by samples of the tables."""

    alone: dict[Block, dict[str, float]] = {}

    def by_itself(block: Block) -> dict[str, float]:
        """The work of each operator of a block that shares nothing, by its path."""
        if block not in alone:
            estimate = _Estimate(samples, [block], exact=True)
            alone[block] = {one.users[0]: estimate.work(one) for one in estimate.family}
        return alone[block]

    def work(blocks: Sequence[Block], manner: Manner) -> float:
        if len(blocks) == 1:
            return sum(by_itself(blocks[0]).values())
        reads = in_common_order(blocks, manner)
        estimate = _Estimate(samples, [one for own in reads for one in own], exact=manner.exact)
        total = sum(estimate.work(one) + estimate.reading(one) for one in estimate.family)
        for block, own in zip(blocks, reads, strict=True):  # operators that stay with the view
            read = {one.number for one in own}
            tops = [at for at, one in (("", block), *block.inner.items()) if one.number in read]
            total += sum(cost for path, cost in by_itself(block).items() if not any(map(path.startswith, tops)))
        return total

    return work


class _Estimate:
    """The rows through the operators of a family, and what they cost."""

    def __init__(self, samples: Mapping[str, Sample], blocks: Sequence[Block], *, exact: bool) -> None:
        self.samples = samples
        self.blocks = blocks
        self.family = family_of(blocks, exact=exact)

    def work(self, one: FamilyOperator) -> float:
        """The work of one operator."""
        total = taken = 0.0
        start, eagerness = _START, self._eagerness
        for (step, _), below in zip(one.skeleton.inputs, one.inputs, strict=True):
            paths = {i: path + step for i, path in one.users.items()}
            rows, (columns, texts) = self._taken(one, paths), self._columns(one, paths)
            taken += rows
            total += rows * (1.0 + _COLUMN * columns + _TEXT * texts)
            start += _START_COLUMN * columns + _START_TEXT * texts
            total += _HELD * min(1.0, rows) * (eagerness < 1.0 and below is None)
        # Less than a row stands for steps in which none comes.
        return total + eagerness * start * min(1.0, taken)

    def reading(self, one: FamilyOperator) -> float:
        """The work of the views that read what an operator gives."""
        rows = self._taken(one, one.users) if one.ends else 0.0
        # What is given is handed on at once, so a lazy view is disturbed as often as the most eager one asks.
        return len(one.ends) * (self._eagerness * _READ * min(1.0, rows) + _PICKED * rows)

    def _taken(self, one: FamilyOperator, paths: Mapping[int, str]) -> float:
        """How many rows a step brings to an operator: groups take a row once per cluster of blocks that want it."""
        if isinstance(one.skeleton, Joined):
            return self._rows(paths)
        clusters: dict[object, dict[int, str]] = {}
        for i, path in paths.items():
            wanted = tuple((at, self.blocks[i].wanted[path + at]) for at, _ in self._tables({i: path}))
            clusters.setdefault(wanted, {})[i] = path
        return sum(map(self._rows, clusters.values()))

    @property
    def _eagerness(self) -> float:
        """How many times per step the operators run: as often as the most eager block needs them."""
        return max(block.eagerness for block in self.blocks)

    def _rows(self, paths: Mapping[int, str]) -> float:
        """How many rows a step changes in what some blocks have at a path of theirs."""
        changed, least = 0.0, 1.0
        wanted = dict.fromkeys(paths, 1.0)
        names: dict[int, tuple[str, ...]] = dict.fromkeys(paths, ())
        for leaf, table in self._tables(paths):
            sample = self.samples.get(table)
            if sample is None:
                continue
            changed += sample.changed
            conditions: dict[str, Expression | None] = {}
            for i, path in paths.items():
                name = self.blocks[i].wanted[path + leaf]
                conditions[name] = self.blocks[i].conditions[path + leaf]
                wanted[i] *= sample.share({name: conditions[name]})
                names[i] += (name,)
            least = min(least, sample.share(conditions))
        # Blocks with equal conditions want the same rows.
        return changed * min(least, sum({names[i]: wanted[i] for i in paths}.values()))

    def _columns(self, one: FamilyOperator, paths: Mapping[int, str]) -> tuple[int, int]:
        """How many columns the rows have that an operator takes, and how many of them are texts."""
        if isinstance(one.skeleton, Grouped):
            arguments = (value for found in one.skeleton.aggregates for value in found.values)
            values = {value.shape: value for value in (*one.skeleton.keys, *arguments)}
        else:
            values = {
                shape: value
                for i, path in paths.items()
                for at, found in self.blocks[i].shapes.items()
                if at.startswith(path)
                for shape, value in (((at[len(path) :], *own), value) for own, value in found)
            }
        texts = sum(value.expression.type.kind == "string" for value in values.values())
        return len(values) - texts, texts

    def _tables(self, paths: Mapping[int, str]) -> list[tuple[str, str]]:
        """The tables that blocks have at a path and below, each with its path from there."""
        i, at = next(iter(paths.items()))
        return [(path[len(at) :], table) for path, table in self.blocks[i].tables.items() if path.startswith(at)]


@dataclass(frozen=True)
class Cluster:
    """Blocks that share a subplan, by their positions, and the manner in which they do."""

    blocks: tuple[int, ...]
    manner: Manner


def clusters(
    blocks: Sequence[Block],
    work: Work,
    before: Sequence[Cluster] = (),
    manners: Sequence[Manner] = ALL_MANNERS,
    fresh: Collection[int] | None = None,
) -> list[Cluster]:
    """Which blocks share a subplan; one that shares nothing is a cluster of its own.

    Parameters
    ----------
    before : which of them share one now. They go on to do so, unless the work of another split is clearly less: a
        change has to be filled from the tables.
    manners : how far blocks may go to share.
    fresh : blocks that are new; only these look for others to share with. None stands for all blocks.
    """
    costs = _Costs(blocks, work, manners)
    equal = _equal(blocks)
    fresh = range(len(blocks)) if fresh is None else fresh
    best = kept = _with_all([now.blocks for now in before], equal)
    if before or len(fresh) < len(blocks):
        for now in before:  # what goes on does so in the manner that it has
            costs.known[now.blocks] = work([blocks[i] for i in now.blocks], now.manner), now.manner
        grown = _merged(kept, costs, fresh)
        new, going_on = (
            sum(costs.of([i]) for i in some) for some in (fresh, {i for now in before for i in now.blocks})
        )
        worth = (_CLEARLY - 1.0) * min(new, going_on)
        best = grown if costs.total(grown) < costs.total(kept) - worth else kept
    if len(fresh) == len(blocks):
        apart = [part for whole in equal for part in _by_eagerness(blocks, whole)]
        free = _Costs(blocks, work, manners)
        # Where nothing is known, nothing speaks against sharing what is equal.
        anew = min(equal, _merged(apart, free, fresh), key=free.total)
        if not before or _CLEARLY * costs.total(anew) < costs.total(best):
            best = anew
    return [Cluster(tuple(part), costs.best(part)[1]) for part in sorted(sorted(part) for part in best)]


class _Costs:
    """The work of clusters, each in the manner that makes it least."""

    def __init__(self, blocks: Sequence[Block], work: Work, manners: Sequence[Manner]) -> None:
        self.known: dict[tuple[int, ...], tuple[float, Manner]] = {}
        self._blocks = blocks
        self._work = work
        self._manners = manners

    def best(self, part: Sequence[int]) -> tuple[float, Manner]:
        key = tuple(sorted(part))
        if key not in self.known:
            able = self._manners if len(key) > 1 else self._manners[:1]
            each = [(self._work([self._blocks[i] for i in key], manner), manner) for manner in able]
            self.known[key] = min(each, key=lambda found: found[0])
        return self.known[key]

    def of(self, part: Sequence[int]) -> float:
        return self.best(part)[0]

    def total(self, split: Sequence[Sequence[int]]) -> float:
        return sum(map(self.of, split))


def _merged(split: Sequence[list[int]], costs: _Costs, fresh: Collection[int]) -> list[list[int]]:
    """The best split on the way from one with many clusters to one with few; clusters with new blocks are merged."""
    found = best = list(split)
    new = {*fresh}
    while len(found) > 1:
        benefits = {
            (one, other): costs.of(found[one]) + costs.of(found[other]) - costs.of([*found[one], *found[other]])
            for one, other in combinations(range(len(found)), 2)
            if new & {*found[one], *found[other]}
        }
        if not benefits:
            break
        pair = max(benefits, key=lambda pair: benefits[pair])
        # A pair may be worth less than the two, and three of the same kind more: so the merging goes on to the end.
        found = [part for i, part in enumerate(found) if i not in pair] + [[*found[pair[0]], *found[pair[1]]]]
        best = min(best, found, key=costs.total)
    return best


def _equal(blocks: Sequence[Block]) -> list[list[int]]:
    """Blocks that have an operator in common, over the same rows of its tables: sharing it costs nobody anything."""
    parts: list[tuple[set[object], list[int]]] = []
    for i, block in enumerate(blocks):
        own: set[object] = set()
        for one in (block, *block.inner.values()):
            own.add((repr(one.skeleton.shape), tuple(sorted(one.wanted.items()))))
        members = [i]
        for part in [part for part in parts if part[0] & own]:
            parts.remove(part)
            own, members = own | part[0], [*part[1], *members]
        parts.append((own, members))
    return [members for _, members in parts]


def _by_eagerness(blocks: Sequence[Block], cluster: Sequence[int]) -> Iterable[list[int]]:
    """A cluster taken apart, into those that are brought up to date equally often."""
    out: dict[float, list[int]] = {}
    for i in cluster:
        out.setdefault(blocks[i].eagerness, []).append(i)
    return out.values()


def _with_all(before: Sequence[Sequence[int]], equal: Iterable[Sequence[int]]) -> list[list[int]]:
    """A split that goes on: those that are equal to a member of a cluster join it, and all others are by themselves."""
    out = [list(part) for part in before]
    for part in equal:
        home = next((cluster for cluster in out if {*part} & {*cluster}), None)
        if home is None:
            out.append(list(part))
        else:
            home += [i for i in part if all(i not in cluster for cluster in out)]
    return out
