"""Common join orders: blocks of several views, joined so that what they have in common comes first.

Each view has its joins in an order of its own. If one joins `a` with `b` and the result with `c`, and another `b` with
`c` first, there is no operator that both have, though both join the same tables. Inner joins may run in any order, so
the blocks of views that could share are put into orders with common beginnings: two inputs that most of the blocks
join with each other are joined first, their join is an input from then on, and so forth, until no two inputs are left
that several blocks join. Groups are made in the same way, as soon as all that they are made of is joined.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations
from weakref import WeakKeyDictionary

from headrace.thrifty.share.blocks import Block
from headrace.thrifty.share.skeleton import Grouped, Joined, Leaf, Skeleton, Value, joined, leaves_of, operators_of


@dataclass(frozen=True)
class Manner:
    """How far blocks may go to share a subplan.

    Parameters
    ----------
    exact : only operators over the same rows of tables are shared. Otherwise conditions on rows may differ.
    own_orders : only operators are shared that all blocks concerned have in their own order.
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
    """Tables of a block that are joined already, or groups that are made already.

    Parameters
    ----------
    paths : per path in the unit, the path of the same table or groups in the block.
    own_path : the path of the block's own operator over the same tables; None if it has none.
    name, exact_name : fingerprints of the operators; the second is of the rows that they take, too.
    """

    skeleton: Skeleton
    paths: Mapping[str, str]
    own_path: str | None
    name: str
    exact_name: str

    def value(self, value: Value) -> Value | None:
        """A value of the block as one of the unit; None if the unit does not have its table or groups."""
        return next((replace(value, path=new) for new, old in self.paths.items() if old == value.path), None)


@dataclass(frozen=True, eq=False)
class _Step:
    """What can be done next: a join of two units, or the groups of one; `depth` is that in the block's own order."""

    units: tuple[_Unit, ...]
    made: _Unit
    depth: int


class _Possible:
    """What can be made of the tables of a block. Each step is made once, however many orders are tried."""

    def __init__(self, block: Block) -> None:
        # Not the block itself: what is known of a block is forgotten with it.
        self._conditions = block.wanted
        self._edges = list(_edges(block.skeleton))
        self._own = {self._within(at): at for at in ("", *block.inner)}
        operators = operators_of(block.skeleton, "")
        self._groups = {
            self._within(path + step): (path, found, path + step)
            for path, found in operators
            if isinstance(found, Grouped)
            for step, _ in found.inputs
        }
        self.tables = [self._unit(leaf, {"": path}) for path, leaf in leaves_of(block.skeleton, "")]
        self._made: dict[tuple[_Unit, ...], _Step | None] = {}

    def step(self, *units: _Unit) -> _Step | None:
        """Join two units, or make the groups of one; None if the block has nothing of that kind."""
        if units not in self._made:
            self._made[units] = self._grouped(*units) if len(units) == 1 else self._joined(*units)
        return self._made[units]

    def _joined(self, one: _Unit, other: _Unit) -> _Step | None:
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
        return _Step(units, self._unit(skeleton, paths), max(len(edge.at) for edge in edges))

    def _grouped(self, unit: _Unit) -> _Step | None:
        found = self._groups.get(frozenset(unit.paths.values()))
        if found is None:
            return None
        path, groups, below = found

        def here(values: Sequence[Value]) -> tuple[Value, ...]:
            return tuple(new for old in values if (new := unit.value(old.below(below))) is not None)

        aggregates = tuple(replace(one, values=here(one.values)) for one in groups.aggregates)
        skeleton = Grouped(unit.skeleton, here(groups.keys), aggregates)
        ((step, _),) = skeleton.inputs
        paths = {"": path, **{step + new: old for new, old in unit.paths.items()}}
        return _Step((unit,), self._unit(skeleton, paths), len(path))

    def _within(self, path: str) -> frozenset[str]:
        """The paths of all tables and groups at a path and below."""
        return frozenset(one for one in self._conditions if one.startswith(path))

    def _unit(self, skeleton: Skeleton, paths: Mapping[str, str]) -> _Unit:
        name = repr(skeleton.shape)
        # The condition on groups counts where they are read: groups are the same whichever of them are wanted.
        taken = sorted((new, old) for new, old in paths.items() if new or isinstance(skeleton, Leaf))
        wanted = [(new, self._conditions[old]) for new, old in taken]
        return _Unit(skeleton, paths, self._own.get(frozenset(paths.values())), name, repr((name, wanted)))


_KNOWN: WeakKeyDictionary[Block, _Possible] = WeakKeyDictionary()


class _Ordering:
    """The order of operators in one block, while it is being made."""

    def __init__(self, block: Block) -> None:
        if block not in _KNOWN:
            _KNOWN[block] = _Possible(block)
        self.block = block
        self.possible = _KNOWN[block]
        self.units = self.possible.tables
        self._common: set[_Unit] = set()

    def steps(self) -> Iterator[_Step]:
        """What could be done next."""
        for units in chain(combinations(self.units, 1), combinations(self.units, 2)):
            if (step := self.possible.step(*units)) is not None:
                yield step

    def take(self, step: _Step, *, common: bool = False) -> None:
        """Take a step; `common` says that other blocks take the same one."""
        if common or any(unit in self._common for unit in step.units):
            self._common.add(step.made)
        self.units = [*(unit for unit in self.units if unit not in step.units), step.made]

    def finished(self) -> list[_Unit]:
        """The units that have something in common with others, each as large as some operator of the block."""
        while True:
            common = [unit for unit in self.units if unit in self._common]
            if all(unit.own_path is not None for unit in common):
                return common
            # The rest is done as far as possible in the order of the block itself.
            self.take(max(self.steps(), key=lambda step: step.depth))


def in_common_order(blocks: Sequence[Block], manner: Manner) -> list[list[Block]]:
    """Order the operators of blocks so that they have as many as possible in common.

    Returns, per block, the blocks in their new order that a shared subplan can stand for: those of its own operators
    over whose tables others have the same operator. If the common order is none of its own, that is the smallest block
    with all tables concerned; if it has nothing in common with others, there are none.
    """
    orderings = [_Ordering(block) for block in blocks]
    while True:
        found: dict[str, dict[int, _Step]] = {}
        for i, ordering in enumerate(orderings):
            for step in ordering.steps():
                if step.made.own_path is not None or not manner.own_orders:
                    name = step.made.exact_name if manner.exact else step.made.name
                    found.setdefault(name, {}).setdefault(i, step)
        several = {name: users for name, users in found.items() if len(users) > 1}
        if not several:
            break
        # Of two that as many blocks have, that one comes first which more of them have in their own order.
        own = {name: sum(step.made.own_path is not None for step in users.values()) for name, users in several.items()}
        for i, step in several[max(several, key=lambda name: (len(several[name]), own[name], name))].items():
            orderings[i].take(step, common=True)
    return [_read(ordering) for ordering in orderings]


def _read(ordering: _Ordering) -> list[Block]:
    within = {"": ordering.block, **ordering.block.inner}
    common = ordering.finished()
    return [_in_order(within[unit.own_path], unit, unit.own_path) for unit in common if unit.own_path is not None]


def _in_order(block: Block, unit: _Unit, at: str) -> Block:
    """A block in another order; it lies at a path of the block that the unit is of."""
    assert not isinstance(unit.skeleton, Leaf)
    new = {old[len(at) :]: path for path, old in unit.paths.items()}
    return replace(
        block,
        skeleton=unit.skeleton,
        conditions={new[path]: condition for path, condition in block.conditions.items()},
        sources={new[path]: source for path, source in block.sources.items()},
        given={name: replace(value, path=new[value.path]) for name, value in block.given.items()},
        inner={},
    )


def beginnings(block: Block) -> set[str]:
    """A fingerprint of each operator over tables alone that a block can begin with.

    Blocks that have none of these in common have no operator in common.
    """
    return {step.made.name for step in _Ordering(block).steps()}


def _edges(skeleton: Skeleton) -> Iterator[_Edge]:
    for path, found in operators_of(skeleton, ""):
        for key in found.keys if isinstance(found, Joined) else ():
            left, right = (value.below(f"{path}{i}") for i, value in enumerate(key.values))
            yield _Edge((left, right), key.safe, path)
