"""Is sharing worth its price? The work of blocks that are shared, and of blocks that are not.

A shared subplan takes each row once. But it takes rows that any of its members wants, with the columns that all of them
read, and each member picks its rows out of what the subplan gives. So members are clustered from the bottom up: those
whose conditions are equal always share, since no row is taken for others. Then the two clusters with the highest
*sharing benefit* are merged, again and again (Tang, "Thrifty Query Processing", 4.3.1, Eq. 4.4), and of all splits on
the way, the one with the least work is taken. A subplan runs as often as the most eager of its members needs it. So
members whose goals differ may be better off apart, even if their conditions are equal.

How many rows conditions have in common is counted on a sample of the rows of each table. Without a sample nothing is
known, and members with different conditions do not share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.plan import native
from headrace.plan.expression import Expression
from headrace.thrifty.share.blocks import Block, Joined, Shape, Skeleton, Value, shape_of

# In units of what a row of no columns costs an operator (1 to 2 microseconds here).
_COLUMN = 0.25
_TEXT = 1.0  # a column of texts, which are stored beside their hashes
_START = 500.0  # an operator that takes any rows at all
_READ = 500.0  # a view that reads a shared subplan, as it runs apart from that
_HELD = 250.0  # a table whose rows wait before the joins, in every step in which some come
_CLEARLY = 1.2  # work that is this many times as much is worth a change
_PICKED = 0.5  # a row among which a view looks for its own

Work = Callable[[Sequence[Block]], float | None]


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
    """The work per step of a subplan that is shared by some blocks (or that one block has to itself).

    None stands for work that is not known.
    """

    def work(blocks: Sequence[Block]) -> float | None:
        skeleton, eagerness = blocks[0].skeleton, max(block.eagerness for block in blocks)
        total = eagerness * _START * blocks[0].joins
        given = 0.0
        for path, table in _tables(skeleton, ""):
            sample = samples.get(table)
            if sample is None or not sample.rows.num_rows:
                return None
            wanted = np.zeros(sample.rows.num_rows, bool)
            for condition in {shape_of(block.conditions[path]): block.conditions[path] for block in blocks}.values():
                wanted |= sample.passing(condition)
            rows = sample.changed * wanted.mean()
            values = {value.shape: value for block in blocks for value in _read(block, path)}
            # A row goes through all joins between its table and the top of the block.
            total += len(path) * rows * (1.0 + sum(map(_width, values.values())))
            total += _HELD * (eagerness < 1.0)
            given = max(given, rows)
        if len(blocks) > 1:
            # Whatever is given is handed on at once, so a lazy view is disturbed as often as the most eager one asks.
            total += len(blocks) * (eagerness * _READ + _PICKED * given)
        return total

    return work


def clusters(blocks: Sequence[Block], work: Work, before: Sequence[Sequence[int]] = ()) -> list[list[int]]:
    """Which blocks of one skeleton share a subplan, by their positions.

    Parameters
    ----------
    before : which of them share one now. They go on to do so, unless the work of another split is clearly less: a
        change has to be filled from the tables.
    """
    equal: dict[object, list[int]] = {}
    for i, block in enumerate(blocks):
        key = tuple(sorted((path, shape_of(condition)) for path, condition in block.conditions.items()))
        equal.setdefault(key, []).append(i)
    found = list(equal.values())

    costs: dict[tuple[int, ...], float | None] = {}

    def cost(cluster: Sequence[int]) -> float:
        key = tuple(sorted(cluster))
        if key not in costs:
            costs[key] = work([blocks[i] for i in key])
        known = costs[key]
        return np.inf if known is None else known

    def total(split: Sequence[Sequence[int]]) -> float:
        return sum(map(cost, split))

    if np.isfinite(total(found)):  # otherwise nothing speaks against sharing what is equal
        found = [list(part) for whole in found for part in _by_eagerness(blocks, whole)]
    best = min(found, list(equal.values()), key=total)
    while len(found) > 1:
        benefits = {
            (one, other): cost(found[one]) + cost(found[other]) - cost([*found[one], *found[other]])
            for one, other in combinations(range(len(found)), 2)
        }
        pair = max(benefits, key=lambda pair: -np.inf if np.isnan(benefits[pair]) else benefits[pair])
        if not np.isfinite(benefits[pair]):
            break  # nothing is known of what is left
        # A pair may be worth less than the two, and three of the same kind more: so the merging goes on to the end.
        found = [part for i, part in enumerate(found) if i not in pair] + [[*found[pair[0]], *found[pair[1]]]]
        best = min(best, found, key=total)
    if before:
        kept = _with_all(before, equal.values())
        if total(kept) <= _CLEARLY * total(best) or np.isinf(total(kept)):
            best = kept
    return sorted(sorted(part) for part in best)


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


def _tables(skeleton: Skeleton, path: str) -> list[tuple[str, str]]:
    if not isinstance(skeleton, Joined):
        return [(path, skeleton.table)]
    return [found for i, side in enumerate(skeleton.sides) for found in _tables(side, f"{path}{i}")]


def _read(block: Block, path: str) -> list[Value]:
    return [value for value in block.given.values() if value.path == path]


def _width(value: Value) -> float:
    return _TEXT if value.expression.type.kind == "string" else _COLUMN
