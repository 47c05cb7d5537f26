"""Common join orders: blocks of several views, joined so that what they have in common comes first.

Each view has its joins in an order of its own. If one joins `a` with `b` and the result with `c`, and another `b` with
`c` first, there is no operator that both have, though both join the same tables. Inner joins may run in any order, so
the blocks of views that could share are put into orders with common beginnings: two inputs that most of the blocks
join with each other are joined first, their join is an input from then on, and so forth, until no two inputs are left
that several blocks join.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from headrace.thrifty.share.blocks import Block, Joined, Leaf, Skeleton, Value, joined, shape_of


@dataclass(frozen=True)
class Manner:
    """How far blocks may go to share a subplan.

    Parameters
    ----------
    exact : only joins over the same rows of tables are shared. Otherwise conditions on rows may differ.
    own_orders : only joins are shared that all blocks concerned have in their own order.
    """

    exact: bool
    own_orders: bool


@dataclass(frozen=True)
class _Edge:
    """Two values of a block that are equal; `at` is the path of the block's own join that compares them."""

    values: tuple[Value, Value]
    safe: bool
    at: str


@dataclass(frozen=True)
class _Unit:
    """Tables of a block that are joined already: in which order, and per path there, the path in the block."""

    skeleton: Skeleton
    paths: Mapping[str, str]

    def value(self, value: Value) -> Value | None:
        """A value of the block as one of the unit; None if its table is not in it."""
        return next((replace(value, path=new) for new, old in self.paths.items() if old == value.path), None)


class _Ordering:
    """The order of joins in one block, while it is being made."""

    def __init__(self, block: Block, exact: bool) -> None:
        self.block = block
        self.exact = exact
        self.edges = list(_edges(block.skeleton, ""))
        self.units = [_Unit(Leaf(leaf.table), {"": path}) for path, leaf in leaves_of(block.skeleton, "")]
        own = ["", *block.inner]
        self._own = {frozenset(path for path in block.conditions if path.startswith(at)): at for at in own}

    def joins(self) -> Iterator[tuple[str, tuple[int, int], _Unit]]:
        """What could be joined next: a fingerprint of the join, the positions of its inputs, and what it gives."""
        for pair in combinations(range(len(self.units)), 2):
            made = self._join(*pair)
            if made is not None:
                yield self._fingerprint(made), pair, made

    def join(self, pair: tuple[int, int], made: _Unit) -> None:
        self.units = [*(unit for i, unit in enumerate(self.units) if i not in pair), made]

    def own_path(self, unit: _Unit) -> str | None:
        """The path of the block's own join over the same tables; None if it has none."""
        return self._own.get(frozenset(unit.paths.values()))

    def finish(self) -> _Unit:
        """Join all that is left, as far as possible in the order of the block itself."""
        while len(self.units) > 1:
            together = [(pair, made) for _, pair, made in self.joins()]
            self.join(*max(together, key=lambda found: self._depth(found[0])))
        return self.units[0]

    def _depth(self, pair: tuple[int, int]) -> int:
        return max(len(edge.at) for edge in self._between(*pair))

    def _between(self, one: int, other: int) -> list[_Edge]:
        """The equalities between two inputs."""
        sides = [frozenset(self.units[at].paths.values()) for at in (one, other)]
        return [
            edge
            for edge in self.edges
            if any(edge.values[i].path in sides[0] and edge.values[1 - i].path in sides[1] for i in (0, 1))
        ]

    def _join(self, one: int, other: int) -> _Unit | None:
        units, edges = (self.units[one], self.units[other]), self._between(one, other)
        if not edges:
            return None
        pairs = []
        for edge in edges:
            found = [[unit.value(value) for value in edge.values] for unit in units]
            left, right = ([value for value in side if value is not None] for side in found)
            pairs.append((left[0], right[0]))
        skeleton, at = joined([unit.skeleton for unit in units], pairs, [edge.safe for edge in edges])
        paths = {f"{i}{new}": old for i, side in enumerate(at) for new, old in units[side].paths.items()}
        return _Unit(skeleton, paths)

    def _fingerprint(self, unit: _Unit) -> str:
        conditions = [(new, shape_of(self.block.conditions[old])) for new, old in sorted(unit.paths.items())]
        return repr((unit.skeleton.shape, conditions if self.exact else ()))


def in_common_order(blocks: Sequence[Block], manner: Manner) -> list[list[Block]]:
    """Order the joins of blocks so that they have as many as possible in common.

    Returns, per block, the blocks in their new order that a shared subplan can stand for: those of its own joins over
    whose tables others have the same join. If the common order is none of its own, that is the block as a whole; if it
    has no join in common with others, there are none.
    """
    orderings = [_Ordering(block, manner.exact) for block in blocks]
    while True:
        found: dict[str, dict[int, tuple[tuple[int, int], _Unit]]] = {}
        for i, ordering in enumerate(orderings):
            for fingerprint, pair, made in ordering.joins():
                if manner.own_orders and ordering.own_path(made) is None:
                    continue
                found.setdefault(fingerprint, {}).setdefault(i, (pair, made))
        several = {name: users for name, users in found.items() if len(users) > 1}
        if not several:
            break

        # Of two joins that as many blocks have, that one comes first which more of them have in their own order.
        own = {name: [orderings[i].own_path(one) for i, (_, one) in users.items()] for name, users in several.items()}
        ranks = {name: (len(paths), sum(at is not None for at in paths), name) for name, paths in own.items()}
        for i, (pair, made) in several[max(several, key=lambda name: ranks[name])].items():
            orderings[i].join(pair, made)
    return [_read(ordering) for ordering in orderings]


def _read(ordering: _Ordering) -> list[Block]:
    block = ordering.block
    common = [unit for unit in ordering.units if isinstance(unit.skeleton, Joined)]
    own = [ordering.own_path(unit) for unit in common]
    if any(at is None for at in own):
        return [_in_order(block, ordering.finish(), "")]
    within = {"": block, **block.inner}
    return [_in_order(within[at], unit, at) for at, unit in zip(own, common, strict=True) if at is not None]


def _in_order(block: Block, unit: _Unit, at: str) -> Block:
    """A block in another order; it lies at a path of the block that the unit is of."""
    assert isinstance(unit.skeleton, Joined)
    new = {old[len(at) :]: path for path, old in unit.paths.items()}
    return replace(
        block,
        skeleton=unit.skeleton,
        conditions={new[path]: condition for path, condition in block.conditions.items()},
        sources={new[path]: source for path, source in block.sources.items()},
        given={name: replace(value, path=new[value.path]) for name, value in block.given.items()},
        inner={},
    )


def pairs_of(block: Block) -> set[str]:
    """A fingerprint of each pair of tables that a block joins; blocks without a common pair have no join in common."""
    return {fingerprint for fingerprint, _, _ in _Ordering(block, exact=False).joins()}


def leaves_of(skeleton: Skeleton, path: str) -> Iterator[tuple[str, Leaf]]:
    """The tables of a skeleton, by path."""
    if isinstance(skeleton, Leaf):
        yield path, skeleton
        return
    for i, side in enumerate(skeleton.sides):
        yield from leaves_of(side, f"{path}{i}")


def _edges(skeleton: Skeleton, path: str) -> Iterator[_Edge]:
    if isinstance(skeleton, Leaf):
        return
    for key in skeleton.keys:
        left, right = (value.below(f"{path}{i}") for i, value in enumerate(key.values))
        yield _Edge((left, right), key.safe, path)
    for i, side in enumerate(skeleton.sides):
        yield from _edges(side, f"{path}{i}")
