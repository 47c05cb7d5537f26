"""Is sharing worth its price? The work of blocks that are shared, and of blocks that are not.

A shared subplan runs each join once. But it takes rows that any of its members wants, with the columns that all of them
read, perhaps in an order that none of them would choose alone; and each member picks its rows out of what the subplan
gives. So blocks are clustered from the bottom up: those that are the same, conditions included, always share, since no
row is taken for others. Then the two clusters with the highest *sharing benefit* are merged, again and again (Tang,
"Thrifty Query Processing", 4.3.1, Eq. 4.4, for views that follow every step), and of all splits on the way, the one
with the least work is taken.

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
from headrace.thrifty.share.blocks import Block, Shape, Value, shape_of
from headrace.thrifty.share.family import FamilyJoin, family_of
from headrace.thrifty.share.orders import Manner, in_common_order, leaves_of

# In units of what a row of no columns costs an operator (1 to 2 microseconds here).
_COLUMN = 0.25
_TEXT = 1.0  # a column of texts, which are stored beside their hashes
_START = 500.0  # an operator that takes any rows at all
_READ = 500.0  # a view that reads a shared subplan, as it runs apart from that
_CLEARLY = 1.2  # work that is this many times as much is worth a change
_PICKED = 0.5  # a row among which a view looks for its own

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
    def _known(self) -> dict[Shape, NDArray[np.bool_]]:
        return {(): np.ones(self.rows.num_rows, bool)}

    def passing(self, condition: Expression | None) -> NDArray[np.bool_]:
        """Which rows of the sample pass a condition."""
        shape = shape_of(condition)
        if shape not in self._known:
            assert condition is not None
            found = native.evaluate(condition, self._columns, self.rows.num_rows)
            self._known[shape] = np.asarray(found.fill_null(False).to_numpy(zero_copy_only=False), bool)
        return self._known[shape]


def work_of(samples: Mapping[str, Sample]) -> Work:
    """Estimates the work per step of a cluster of blocks, by samples of the tables."""

    def work(blocks: Sequence[Block], manner: Manner) -> float:
        if len(blocks) == 1:
            return _Estimate(samples, blocks, exact=True).work()
        reads = in_common_order(blocks, manner)
        total = _Estimate(samples, [one for own in reads for one in own], exact=manner.exact).work(shared=True)
        for block, own in zip(blocks, reads, strict=True):  # joins that stay with the view
            total += _Estimate(samples, [block], exact=True).work(without={one.number for one in own})
        return total

    return work


class _Estimate:
    """The rows through the joins of a family, and what they cost."""

    def __init__(self, samples: Mapping[str, Sample], blocks: Sequence[Block], *, exact: bool) -> None:
        self.samples = samples
        self.blocks = blocks
        self.joins = family_of(blocks, exact=exact)

    def work(self, *, shared: bool = False, without: Collection[int] = ()) -> float:
        """The work of all joins; those at some operators of a single block, and below these, are left out."""
        total = 0.0
        for join in self.joins:
            if without and self._is_below(join, without):
                continue
            total += _START
            for side in (0, 1):
                paths = {i: f"{path}{side}" for i, path in join.users.items()}
                values = {v.shape: v for i, path in paths.items() for v in _read(self.blocks[i], path)}
                total += self._rows(paths) * (1.0 + sum(map(_width, values.values())))
            if shared:
                total += len(join.ends) * (_READ + _PICKED * self._rows(join.users))
        return total

    def _is_below(self, join: FamilyJoin, numbers: Collection[int]) -> bool:
        (path,), (block,) = join.users.values(), self.blocks
        tops = ["" for _ in (block.number,) if block.number in numbers]
        tops += [at for at, inner in block.inner.items() if inner.number in numbers]
        return any(path.startswith(top) for top in tops)

    def _rows(self, paths: Mapping[int, str]) -> float:
        """How many rows a step changes in what some blocks have at a path of theirs."""
        changed, least = 0.0, 1.0
        wanted = dict.fromkeys(paths, 1.0)
        block, at = next((self.blocks[i], path) for i, path in paths.items())
        for leaf, table in _tables(block, at):
            sample = self.samples.get(table)
            if sample is None:
                continue
            changed += sample.changed
            masks: dict[Shape, NDArray[np.bool_]] = {}
            for i, path in paths.items():
                condition = self.blocks[i].conditions[path + leaf]
                shape = shape_of(condition)
                if shape not in masks:
                    masks[shape] = sample.passing(condition)
                wanted[i] *= _mean(masks[shape])
            least = min(least, _mean(np.logical_or.reduce(list(masks.values()))))
        # Blocks with equal conditions want the same rows.
        return changed * min(least, sum({self._conditions(i, path): wanted[i] for i, path in paths.items()}.values()))

    def _conditions(self, number: int, at: str) -> object:
        block = self.blocks[number]
        return tuple(
            sorted((path[len(at) :], shape_of(one)) for path, one in block.conditions.items() if path.startswith(at))
        )


def _mean(found: NDArray[np.bool_]) -> float:
    return float(found.mean()) if len(found) else 1.0


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
) -> list[Cluster]:
    """Which blocks share a subplan; one that shares nothing is a cluster of its own.

    Parameters
    ----------
    before : which of them share one now. They go on to do so, unless the work of another split is clearly less: a
        change has to be filled from the tables.
    manners : how far blocks may go to share.
    """
    costs: dict[tuple[int, ...], tuple[float, Manner]] = {}

    def best_of(part: Sequence[int]) -> tuple[float, Manner]:
        key = tuple(sorted(part))
        if key not in costs:
            each = [(work([blocks[i] for i in key], manner), manner) for manner in manners[: None if key[1:] else 1]]
            costs[key] = min(each, key=lambda found: found[0])
        return costs[key]

    def cost(part: Sequence[int]) -> float:
        return best_of(part)[0]

    def total(split: Sequence[Sequence[int]]) -> float:
        return sum(map(cost, split))

    equal = _equal(blocks)
    found = best = equal
    while len(found) > 1:
        benefits = {
            (one, other): cost(found[one]) + cost(found[other]) - cost([*found[one], *found[other]])
            for one, other in combinations(range(len(found)), 2)
        }
        pair = max(benefits, key=lambda pair: benefits[pair])
        # A pair may be worth less than the two, and three of the same kind more: so the merging goes on to the end.
        found = [part for i, part in enumerate(found) if i not in pair] + [[*found[pair[0]], *found[pair[1]]]]
        best = min(best, found, key=total)
    if before:
        least = total(best)
        for now in before:  # what goes on does so in the manner that it has
            costs[now.blocks] = work([blocks[i] for i in now.blocks], now.manner), now.manner
        kept = _with_all([now.blocks for now in before], equal)
        if total(kept) <= _CLEARLY * least:
            best = kept
    return [Cluster(tuple(part), best_of(part)[1]) for part in sorted(sorted(part) for part in best)]


def _equal(blocks: Sequence[Block]) -> list[list[int]]:
    """Blocks that have a join in common as it is, the rows of its tables included: sharing it costs nobody anything."""
    parts: list[tuple[set[object], list[int]]] = []
    for i, block in enumerate(blocks):
        own: set[object] = set()
        for one in (block, *block.inner.values()):
            conditions = tuple(sorted((path, shape_of(condition)) for path, condition in one.conditions.items()))
            own.add((repr(one.skeleton.shape), conditions))
        members = [i]
        for part in [part for part in parts if part[0] & own]:
            parts.remove(part)
            own, members = own | part[0], [*part[1], *members]
        parts.append((own, members))
    return [members for _, members in parts]


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


def _tables(block: Block, at: str) -> list[tuple[str, str]]:
    """The tables that a block has at a path and below, each with its path from there."""
    return [(path[len(at) :], leaf.table) for path, leaf in leaves_of(block.skeleton, "") if path.startswith(at)]


def _read(block: Block, at: str) -> list[Value]:
    return [value.above(at) for value in block.given.values() if value.path.startswith(at)]


def _width(value: Value) -> float:
    return _TEXT if value.expression.type.kind == "string" else _COLUMN
