"""A dense matrix as a sum: blocks of rows, and outer products that are kept as their factors.

What is stored of a matrix and what changes it are the same thing, as everywhere: a sum of runs. An outer product of two
vectors of n numbers takes 2n numbers instead of n * n, and multiplying by it takes 2n instead of n * n operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from headrace.relation.arrangement import scan
from headrace.relation.run import Run, merge
from headrace.relation.runset import AnyRun
from headrace.rings.vector import Vector

Numbers = NDArray[np.float64]
Rows = NDArray[np.int64]
_SPARSE = 8


@dataclass(frozen=True)
class Block:
    """Some rows of a matrix; all others are 0."""

    rows: Rows
    values: Numbers


@dataclass(frozen=True)
class Factors:
    """The sum of outer products of the rows of two arrays: left.T @ right. Each product has a number."""

    numbers: NDArray[np.uint64]
    left: Numbers
    right: Numbers

    @property
    def rank(self) -> int:
        return len(self.numbers)


@dataclass
class Dense:
    """A matrix, or a change of one."""

    shape: tuple[int, int]
    blocks: list[Block] = field(default_factory=list)
    factors: list[Factors] = field(default_factory=list)

    @classmethod
    def of(
        cls, shape: tuple[int, int], rows: Sequence[AnyRun], left: Sequence[AnyRun], right: Sequence[AnyRun]
    ) -> Dense:
        """The matrix that some runs hold: of rows, and of the left and right factors of outer products."""
        made = cls(shape)
        for run in rows:
            run.check()
            made.blocks.append(Block(run.words[0].astype(np.int64), run.payload[0][:, 1:]))
        ours, theirs = scan(Vector(shape[0]), left), scan(Vector(shape[1]), right)
        if ours is not None and theirs is not None:
            # A product of which one factor is 0 everywhere has no entry for it.
            both, a, b = np.intersect1d(ours.words[0], theirs.words[0], return_indices=True)
            if len(both):
                made.factors.append(Factors(both, ours.payload[0][a, 1:], theirs.payload[0][b, 1:]))
        return made

    def __bool__(self) -> bool:
        return bool(self.blocks or self.factors)

    def __add__(self, other: Dense) -> Dense:
        return Dense(self.shape, self.blocks + other.blocks, self.factors + other.factors)

    @property
    def rank(self) -> int:
        """How many outer products are kept as factors."""
        return sum(factors.rank for factors in self.factors)

    def before(self, vectors: Numbers) -> Numbers:
        """The matrix applied to the rows of an array, each a vector: vectors @ self."""
        out = np.zeros((len(vectors), self.shape[1]))
        used = _used(vectors)
        for block in self.blocks:
            if used is None:
                out += _picked(vectors, block.rows, self.shape[0]) @ block.values
            else:
                at = np.flatnonzero(np.isin(block.rows, used))
                out += vectors[:, block.rows[at]] @ block.values[at]
        for factors in self.factors:
            out += (vectors @ factors.left.T) @ factors.right
        return out

    def after(self, vectors: Numbers) -> Numbers:
        """The matrix applied to vectors, each a row of an array: (self @ vectors.T).T."""
        out = np.zeros((len(vectors), self.shape[0]))
        used = _used(vectors)
        for block in self.blocks:
            whole = used is None
            out[:, block.rows] += (block.values @ vectors.T if whole else block.values[:, used] @ vectors[:, used].T).T
        for factors in self.factors:
            out += (vectors @ factors.right.T) @ factors.left
        return out

    def columns(self, at: Rows) -> Numbers:
        """Some columns, each as a row of an array."""
        out = np.zeros((len(at), self.shape[0]))
        for block in self.blocks:
            out[:, block.rows] += block.values[:, at].T
        for factors in self.factors:
            out += factors.right[:, at].T @ factors.left
        return out

    def at_rows(self, at: Rows) -> Numbers:
        """Some rows."""
        out = np.zeros((len(at), self.shape[1]))
        for block in self.blocks:
            found = np.searchsorted(block.rows, at)
            there = (found < len(block.rows)) & (block.rows[np.minimum(found, len(block.rows) - 1)] == at)
            out[there] += block.values[found[there]]
        for factors in self.factors:
            out += factors.left[:, at].T @ factors.right
        return out

    def to_numpy(self) -> Numbers:
        """The whole matrix."""
        out = np.zeros(self.shape)
        for block in self.blocks:
            out[block.rows] += block.values
        for factors in self.factors:
            out += factors.left.T @ factors.right
        return out

    # -- as runs ------------------------------------------------------------------------------------------------------

    def row_run(self) -> Run | None:
        """The blocks as one run."""
        group = Vector(self.shape[1])
        runs = [Run(block.rows.astype(np.uint64)[None, :], group.lift(block.values), {}) for block in self.blocks]
        return merge(group, runs) if runs else None

    def factor_runs(self) -> tuple[Run, Run] | None:
        """The left and the right factors as runs."""
        if not self.factors:
            return None
        numbers = np.concatenate([factors.numbers for factors in self.factors])
        order = np.argsort(numbers)
        sides = []
        for length, side in zip(self.shape, ("left", "right"), strict=True):
            vectors = np.concatenate([getattr(factors, side) for factors in self.factors])[order]
            sides.append(Run(numbers[order][None, :], Vector(length).lift(vectors), {}))
        return sides[0], sides[1]


def _used(vectors: Numbers) -> Rows | None:
    """Where vectors are not 0, if that is in few places: those of a changed row are 0 in all but one."""
    used = np.flatnonzero(vectors.any(axis=0))
    return used if _SPARSE * len(used) < vectors.shape[1] else None


def _picked(vectors: Numbers, rows: Rows, count: int) -> Numbers:
    return vectors if len(rows) == count else vectors[:, rows]  # rows ascend, so as many as there are are all


def times(change: Dense, right: Dense) -> Dense:
    """The change of a product by a change of its left factor: only the right side of each product is multiplied."""
    return Dense(
        (change.shape[0], right.shape[1]),
        [Block(block.rows, right.before(block.values)) for block in change.blocks],
        [Factors(new_numbers(f.rank), f.left, right.before(f.right)) for f in change.factors],
    )


def times_change(left: Dense, change: Dense) -> Dense:
    """The change of a product by a change of its right factor; few rows of it are outer products of the result."""
    made = Dense((left.shape[0], change.shape[1]))
    for block in change.blocks:
        columns = left.columns(block.rows)
        if len(block.rows) <= most_factors(made.shape):
            made.factors.append(Factors(new_numbers(len(block.rows)), columns, block.values))
        else:
            made.blocks.append(Block(np.arange(made.shape[0]), columns.T @ block.values))
    made.factors += [Factors(new_numbers(f.rank), left.after(f.left), f.right) for f in change.factors]
    return made


def most_factors(shape: tuple[int, int]) -> int:
    """Up to how many outer products are kept as factors: beyond that, one dense sum is smaller and faster to use."""
    return max(1, min(shape) // 32)


def new_numbers(count: int) -> NDArray[np.uint64]:
    """Numbers for new outer products, which no others have."""
    return np.random.default_rng().integers(1, 2**63 - 1, count).astype(np.uint64)
