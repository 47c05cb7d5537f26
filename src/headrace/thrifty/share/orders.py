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
from weakref import WeakKeyDictionary

from headrace.thrifty.share.blocks import Block, Joined, Leaf, Skeleton, Value, joined, leaves_of


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


@dataclass(frozen=True, eq=False)
class _Unit:
    """Tables of a block that are joined already.

    Parameters
    ----------
    paths : per path in the unit, the path of the table in the block.
    own_path : the path of the block's own join over the same tables; None if it has none.
    name, exact_name : fingerprints of the join; the second is of the rows that it takes, too.
    """

    skeleton: Skeleton
    paths: Mapping[str, str]
    own_path: str | None
    name: str
    exact_name: str

    def value(self, value: Value) -> Value | None:
        """A value of the block as one of the unit; None if its table is not in it."""
        return next((replace(value, path=new) for new, old in self.paths.items() if old == value.path), None)


class _Joinable:
    """What the tables of a block can be joined to. Each join is made once, however many orders are tried."""

    def __init__(self, block: Block) -> None:
        # Not the block itself: what is known of a block is forgotten with it.
        self._conditions = block.wanted
        self._edges = list(_edges(block.skeleton, ""))
        self._own = {frozenset(p for p in block.conditions if p.startswith(at)): at for at in ("", *block.inner)}
        self.tables = [self._unit(leaf, {"": path}) for path, leaf in leaves_of(block.skeleton, "")]
        self._joined: dict[tuple[_Unit, _Unit], tuple[_Unit, int] | None] = {}

    def join(self, one: _Unit, other: _Unit) -> tuple[_Unit, int] | None:
        """Join two units; None if nothing connects them. The number says how deep in the block's own order that is."""
        if (one, other) not in self._joined:
            self._joined[one, other] = self._made(one, other)
        return self._joined[one, other]

    def _made(self, one: _Unit, other: _Unit) -> tuple[_Unit, int] | None:
        units, pairs, edges = (one, other), list[tuple[Value, Value]](), list[_Edge]()
        for edge in self._edges:
            for values in (edge.values, edge.values[::-1]):
                left, right = one.value(values[0]), other.value(values[1])
                if left is not None and right is not None:
                    pairs.append((left, right))
                    edges.append(edge)
        if not edges:
            return None
        skeleton, at = joined([unit.skeleton for unit in units], pairs, [edge.safe for edge in edges])
        paths = {f"{i}{new}": old for i, side in enumerate(at) for new, old in units[side].paths.items()}
        return self._unit(skeleton, paths), max(len(edge.at) for edge in edges)

    def _unit(self, skeleton: Skeleton, paths: Mapping[str, str]) -> _Unit:
        name = repr(skeleton.shape)
        wanted = [(new, self._conditions[old]) for new, old in sorted(paths.items())]
        return _Unit(skeleton, paths, self._own.get(frozenset(paths.values())), name, repr((name, wanted)))


_KNOWN: WeakKeyDictionary[Block, _Joinable] = WeakKeyDictionary()


class _Ordering:
    """The order of joins in one block, while it is being made."""

    def __init__(self, block: Block) -> None:
        if block not in _KNOWN:
            _KNOWN[block] = _Joinable(block)
        self.block = block
        self.joinable = _KNOWN[block]
        self.units = self.joinable.tables

    def joins(self) -> Iterator[tuple[_Unit, _Unit, _Unit, int]]:
        """What could be joined next: two units, what they give, and how deep in the block's own order that is."""
        for one, other in combinations(self.units, 2):
            if (made := self.joinable.join(one, other)) is not None:
                yield one, other, *made

    def join(self, one: _Unit, other: _Unit, made: _Unit) -> None:
        self.units = [*(unit for unit in self.units if unit not in (one, other)), made]

    def finish(self) -> _Unit:
        """Join all that is left, as far as possible in the order of the block itself."""
        while len(self.units) > 1:
            one, other, made, _ = max(self.joins(), key=lambda found: found[3])
            self.join(one, other, made)
        return self.units[0]


def in_common_order(blocks: Sequence[Block], manner: Manner) -> list[list[Block]]:
    """Order the joins of blocks so that they have as many as possible in common.

    Returns, per block, the blocks in their new order that a shared subplan can stand for: those of its own joins over
    whose tables others have the same join. If the common order is none of its own, that is the block as a whole; if it
    has no join in common with others, there are none.
    """
    orderings = [_Ordering(block) for block in blocks]
    while True:
        found: dict[str, dict[int, tuple[_Unit, _Unit, _Unit]]] = {}
        for i, ordering in enumerate(orderings):
            for one, other, made, _ in ordering.joins():
                if made.own_path is not None or not manner.own_orders:
                    name = made.exact_name if manner.exact else made.name
                    found.setdefault(name, {}).setdefault(i, (one, other, made))
        several = {name: users for name, users in found.items() if len(users) > 1}
        if not several:
            break
        # Of two joins that as many blocks have, that one comes first which more of them have in their own order.
        own = {name: sum(made.own_path is not None for _, _, made in users.values()) for name, users in several.items()}
        for i, joined_units in several[max(several, key=lambda name: (len(several[name]), own[name], name))].items():
            orderings[i].join(*joined_units)
    return [_read(ordering) for ordering in orderings]


def _read(ordering: _Ordering) -> list[Block]:
    block = ordering.block
    common = [unit for unit in ordering.units if isinstance(unit.skeleton, Joined)]
    if any(unit.own_path is None for unit in common):
        return [_in_order(block, ordering.finish(), "")]
    within = {"": block, **block.inner}
    return [_in_order(within[unit.own_path], unit, unit.own_path) for unit in common if unit.own_path is not None]


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
    return {made.name for _, _, made, _ in _Ordering(block).joins()}


def _edges(skeleton: Skeleton, path: str) -> Iterator[_Edge]:
    if isinstance(skeleton, Leaf):
        return
    for key in skeleton.keys:
        left, right = (value.below(f"{path}{i}") for i, value in enumerate(key.values))
        yield _Edge((left, right), key.safe, path)
    for i, side in enumerate(skeleton.sides):
        yield from _edges(side, f"{path}{i}")
