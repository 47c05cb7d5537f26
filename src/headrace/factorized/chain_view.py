"""A chain of dense matrices as a view: a binary tree of products, whose changes stay factorized all the way up.

A change of rank r of one matrix takes r products of a vector with a matrix per view above it, instead of a product of
matrices (F-IVM, Sections 6 and 8.4, Example 42). A changed row is of rank 1, and so is a changed column. The content of
a matrix is in its leaf of the tree: rows, and outer products that have not been multiplied out yet.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.errors import SchemaError
from headrace.factorized.dense import (
    Block,
    Dense,
    Factors,
    most_factors,
    new_numbers,
    times,
    times_change,
)
from headrace.operators.kernel import (
    Evaluated,
    Incoming,
    InOnePass,
    Lifted,
    MapSide,
    Reduced,
    State,
    ViewChange,
    ViewKernel,
)
from headrace.plan.expression import column
from headrace.relation.arrangement import growth
from headrace.relation.keys import validity
from headrace.relation.outer import best_split
from headrace.relation.residence import Residence
from headrace.relation.run import Run, merge
from headrace.relation.runset import AnyRun
from headrace.relation.types import SqlType
from headrace.rings import Group
from headrace.rings.vector import Vector

COLUMNS = {"i": SqlType("bigint"), "j": SqlType("bigint"), "value": SqlType("double"), "term": SqlType("bigint")}
"""The columns of a matrix's table; a row with a term is a number of a factor of an outer product (`relation.outer`)."""
PARTS = ("rows", "left", "right")


@dataclass(frozen=True)
class ChainNode:
    """A matrix of the tree: one of the chain, or the product of two others."""

    name: str
    shape: tuple[int, int]
    children: tuple[int, ...] = ()  # the numbers of the left and the right factor

    def parts(self, number: int) -> tuple[str, str, str]:
        """The names of its arrangements: rows, left factors and right factors."""
        return f"m{number}.rows", f"m{number}.left", f"m{number}.right"


@dataclass(frozen=True)
class ChainView(ViewKernel):
    """A maintained product of matrices; its nodes are the matrices in order, and then products, the answer last."""

    tables: tuple[str, ...]  # of the matrices, in order; one may come several times
    nodes: tuple[ChainNode, ...]
    multiplications: float  # of the whole product, in the order that was chosen
    buckets: int = 1

    @property
    def root(self) -> int:
        """The number of the answer."""
        return len(self.nodes) - 1

    @cached_property
    def _leaves(self) -> dict[str, int]:
        return {source_name(self.tables, i): i for i in range(len(self.tables))}

    @cached_property
    def sides(self) -> tuple[MapSide, ...]:
        keys = tuple(column(name, COLUMNS[name], True) for name in ("i", "j", "term"))
        value = (column("value", COLUMNS["value"], True),)
        return tuple(MapSide(self.tables[i], source, None, keys, value) for source, i in self._leaves.items())

    @cached_property
    def arrangements(self) -> Mapping[str, Group]:
        made: dict[str, Group] = {}
        for i, node in enumerate(self.nodes):
            m, n = node.shape
            made |= dict(zip(node.parts(i), (Vector(n), Vector(m), Vector(n)), strict=True))
        return made

    @property
    def stages(self) -> tuple[tuple[str, ...], ...]:
        return (tuple(self.arrangements),)

    def home(self, part: str, bucket: int) -> int:
        return 0

    @property
    def never_by_catalyst(self) -> bool:
        return True  # it reads columns as they are, and has no query that Catalyst could have read

    @property
    def in_one_pass(self) -> InOnePass:
        # Products are computed by one bucket; BLAS uses all cores for them.
        return InOnePass(self, {part: Residence(self.buckets, None) for part in self.arrangements})

    def refused(self, source: str, rows: Evaluated) -> dict[int, str]:
        shape = self.nodes[self._leaves[source]].shape
        there = [validity(key) for key in rows.keys]
        value = validity(rows.arguments[0]) & np.isfinite(_numbers(rows.arguments[0]))
        reasons: dict[int, str] = {}
        outside = np.zeros(len(rows.diff), bool)
        for key, known, size in zip(rows.keys[:2], there[:2], shape, strict=True):
            at = _positions(key)
            outside |= known & ((at < 0) | (at >= size))
        is_factor = there[2]
        for what, wrong in (
            (f"(i, j) is outside of the matrix, which is {shape[0]:,} by {shape[1]:,}", outside),
            ("value is NULL, NaN or infinity", ~value),
            ("an entry needs both i and j; outer products are made by hr.outer", ~is_factor & ~(there[0] & there[1])),
            ("a row with a term has either i or j", is_factor & (there[0] == there[1])),
            (
                "factors of an outer product are not deleted: subtract the product, -hr.outer(u, v)",
                is_factor & (rows.diff != 1),
            ),
        ):
            for row in np.flatnonzero(wrong):
                reasons.setdefault(int(row), what)
        return reasons

    def lift(self, source: str, rows: Evaluated, buckets: int) -> Lifted:
        number = self._leaves[source]
        node = self.nodes[number]
        i, j, term = (_positions(key) for key in rows.keys)
        is_factor = validity(rows.keys[2])
        value = _numbers(rows.arguments[0]) * rows.diff
        change = Dense(node.shape)
        if (plain := np.flatnonzero(~is_factor)).size:
            _add_entries(change, i[plain], j[plain], value[plain])
        runs: dict[str, Run] = {}
        parts = node.parts(number)
        if (made := change.row_run()) is not None:
            runs[parts[0]] = made
        if (pair := change.factor_runs()) is not None:
            runs |= dict(zip(parts[1:], pair, strict=True))
        for part, key, length, side in zip(parts[1:], (i, j), node.shape, (0, 1), strict=True):
            own = np.flatnonzero(is_factor & validity(rows.keys[side]))
            if own.size:
                run = _vectors(term[own], key[own], value[own], length)
                runs[part] = merge(Vector(length), [runs[part], run]) if part in runs else run
        return {0: runs} if runs else {}

    def reduce(
        self, stage: int, bucket: int, state: State, incoming: Incoming, waiting: Collection[str] = ()
    ) -> Reduced:
        step = _Step(self, state, incoming)
        step.run()
        done = Reduced(summary=ViewChange(updated=int(bool(step.changed.get(self.root)))))
        for part, run in step.runs.items():
            done.runs[part] = run
            done.live[part] = growth(self.arrangements[part], state.get(part, ()), run, None)
        return done

    def matrix(self, number: int, runs: Mapping[str, Sequence[AnyRun]]) -> Dense:
        """A matrix of the tree, given the runs of its arrangements."""
        node = self.nodes[number]
        rows, left, right = (runs.get(part, ()) for part in node.parts(number))
        return Dense.of(node.shape, rows, left, right)


@dataclass
class _Step:
    """What one step does to the tree."""

    view: ChainView
    state: State
    incoming: Incoming
    changed: dict[int, Dense] = field(default_factory=dict)
    runs: dict[str, Run] = field(default_factory=dict)

    def run(self) -> None:
        view = self.view
        for number in range(len(view.tables)):
            arrived = {part: self.incoming.get(part, ()) for part in view.nodes[number].parts(number)}
            if change := view.matrix(number, {part: list(runs) for part, runs in arrived.items()}):
                self.changed[number] = change
        for number, node in enumerate(view.nodes):
            if node.children:
                left, right = node.children
                change = Dense(node.shape)
                # The left factor's change meets the old right factor, and then the right one's the new left factor.
                if left in self.changed:
                    change = change + times(self.changed[left], self._old(right))
                if right in self.changed:
                    new = self._old(left) + self.changed.get(left, Dense(view.nodes[left].shape))
                    change = change + times_change(new, self.changed[right])
                if change:
                    self.changed[number] = change
        for number, change in self.changed.items():
            self._keep(number, change)

    def _old(self, number: int) -> Dense:
        return self.view.matrix(number, self.state)

    def _keep(self, number: int, change: Dense) -> None:
        node = self.view.nodes[number]
        parts = node.parts(number)
        old = Dense.of(node.shape, (), self.state.get(parts[1], ()), self.state.get(parts[2], ()))
        if old.rank + change.rank > most_factors(node.shape):
            # Too many outer products to be multiplied one by one: they become rows, and their factors are taken away.
            gone = Dense(node.shape, [], old.factors)
            whole = Dense(node.shape, [], old.factors + change.factors)
            change = Dense(node.shape, [*change.blocks, Block(np.arange(node.shape[0]), whole.to_numpy())])
            self._remove(parts, gone)
        if (rows := change.row_run()) is not None:
            self.runs[parts[0]] = rows
        if (pair := change.factor_runs()) is not None:
            self.runs |= dict(zip(parts[1:], pair, strict=True))

    def _remove(self, parts: Sequence[str], gone: Dense) -> None:
        for part, run, length in zip(parts[1:], gone.factor_runs() or (), gone.shape, strict=False):
            group = Vector(length)
            stored = merge(group, [r if isinstance(r, Run) else r.slice(0, r.rows) for r in self.state.get(part, ())])
            at = np.isin(stored.words[0], run.words[0])
            self.runs[part] = Run(stored.words, group.negate(stored.payload), {}).take(np.flatnonzero(at))


def _add_entries(change: Dense, i: NDArray[np.int64], j: NDArray[np.int64], value: NDArray[np.float64]) -> None:
    """Add changed entries: as rows, or as columns where these are fewer."""
    m, n = change.shape
    rows, row_of = np.unique(i, return_inverse=True)
    columns, column_of = np.unique(j, return_inverse=True)
    if len(rows) <= len(columns) or len(columns) > most_factors(change.shape):
        values = np.zeros((len(rows), n))
        np.add.at(values, (row_of, j), value)
        change.blocks.append(Block(rows, values))
        return
    left, right = np.zeros((len(columns), m)), np.zeros((len(columns), n))
    np.add.at(left, (column_of, i), value)
    right[np.arange(len(columns)), columns] = 1.0
    change.factors.append(Factors(new_numbers(len(columns)), left, right))


def _vectors(term: NDArray[np.int64], at: NDArray[np.int64], value: NDArray[np.float64], length: int) -> Run:
    """Numbers of factors, gathered into a vector per term."""
    numbers, number_of = np.unique(term, return_inverse=True)
    vectors = np.zeros((len(numbers), length))
    np.add.at(vectors, (number_of, at), value)
    return Run(numbers.astype(np.uint64)[None, :], Vector(length).lift(vectors), {})


def _numbers(array: pa.Array) -> NDArray[np.float64]:
    filled: NDArray[np.float64] = array.fill_null(0.0).to_numpy(zero_copy_only=False)
    return filled


def _positions(array: pa.Array) -> NDArray[np.int64]:
    filled: NDArray[np.int64] = array.fill_null(0).to_numpy(zero_copy_only=False)
    return filled


def source_name(tables: Sequence[str], i: int) -> str:
    """The name of one matrix of a chain: that of its table, or table#2 for the second use of a table."""
    before = tables[:i].count(tables[i])
    return tables[i] if not before else f"{tables[i]}#{before + 1}"


def chain_of(tables: Sequence[str], shapes: Sequence[tuple[int, int]], buckets: int = 1) -> ChainView:
    """Plan the product of a chain of matrices in the cheapest order.

    >>> view = chain_of(("A", "B", "C"), ((10, 100), (100, 5), (5, 50)))
    >>> [node.name for node in view.nodes], view.multiplications
    (['A', 'B', 'C', '(A B)', '((A B) C)'], 7500.0)
    """
    for k in range(1, len(tables)):
        if shapes[k - 1][1] != shapes[k][0]:
            raise SchemaError(
                f"matrix {tables[k - 1]!r} has {shapes[k - 1][1]:,} columns, {tables[k]!r} has {shapes[k][0]:,} rows",
                way_out="give matrices that can be multiplied in this order",
            )
    total, split = best_split(shapes)
    nodes = [ChainNode(source_name(tables, i), shapes[i]) for i in range(len(tables))]
    made: dict[tuple[int, int], int] = {(i, i + 1): i for i in range(len(tables))}
    for a, b in sorted(split, key=lambda part: part[1] - part[0]):
        if (a, b) in _used(split, (0, len(tables))):
            left, right = made[a, split[a, b]], made[split[a, b], b]
            shape = (nodes[left].shape[0], nodes[right].shape[1])
            made[a, b] = len(nodes)
            nodes.append(ChainNode(f"({nodes[left].name} {nodes[right].name})", shape, (left, right)))
    return ChainView(tuple(tables), tuple(nodes), total, buckets)


def _used(split: Mapping[tuple[int, int], int], part: tuple[int, int]) -> set[tuple[int, int]]:
    """The parts that the cheapest order makes on its way to one of them."""
    if part not in split:
        return set()
    at = split[part]
    return {part} | _used(split, (part[0], at)) | _used(split, (at, part[1]))
