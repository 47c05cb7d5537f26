"""One subplan for a family of blocks.

The merged subplan has each join of the family once. A join gives the values that any block needs beyond it, and rows
that any of these blocks wants. Where blocks differ in the condition on a table, rows carry a mask of the blocks that
want them (`masks`). Each block reads the result of its last join through a feed of its own: the rows with its bit, and
the columns that its own operator would give.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from headrace.plan.expression import Expression, column
from headrace.plan.tree import Feed, Field, Join, JoinKind, Port, Tree
from headrace.relation.types import SqlType
from headrace.thrifty.share.blocks import Block, Leaf, Shape, Value, shape_of
from headrace.thrifty.share.family import FamilyJoin, family_of
from headrace.thrifty.share.masks import Mask, any_of, both, disjunction, has, mask_of

_LETTERS = ("l", "r")
_WORD = SqlType("bigint")

_Values = dict[Shape, Value]


@dataclass(frozen=True)
class Merged:
    """A subplan that several blocks share.

    Parameters
    ----------
    tree : its joins.
    sources : per table that it reads, by its name in the tree: the names that the table has in the trees of blocks, by
        the position of the block.
    feeds : how each block reads it.
    """

    tree: Tree
    sources: Mapping[str, Mapping[int, str]]
    feeds: tuple[Feed, ...]


def merged(blocks: Sequence[Block], optional: Mapping[str, Collection[str]], *, exact: bool = False) -> Merged:
    """Merge blocks into one subplan.

    Parameters
    ----------
    optional : the columns of each table that may be NULL. A block whose condition leaves such rows out takes the
        column for one that has values only, but the rows of other blocks have NULL there.
    exact : joins over different rows of the same tables stay apart, so that no row needs a mask.
    """
    joins = family_of(blocks, exact=exact)
    builder = _Builder(blocks, optional, joins)
    for number in range(len(joins)):
        builder.add(number)
    feeds: dict[int, Feed] = {}
    for number, one in enumerate(joins):
        given = builder.given[number]
        for i in one.ends:
            outputs = tuple(given.column(value) for value in blocks[i].given.values())
            feeds[i] = Feed(number, None if given.mask is None else has(given.mask, i), outputs)
    return Merged(Tree(tuple(builder.nodes)), builder.sources, tuple(feeds[i] for i in range(len(blocks))))


def needed_values(blocks: Sequence[Block], joins: Sequence[FamilyJoin]) -> list[_Values]:
    """The values that blocks need of each join, with their paths from there."""
    needed: list[_Values] = [{} for _ in joins]
    for number in reversed(range(len(joins))):  # a join comes after those whose rows it takes
        one = joins[number]
        for i in one.ends:
            needed[number] |= {value.shape: value for value in blocks[i].given.values()}
        for side, below in enumerate(one.inputs):
            if below is not None:
                values = values_of_side(one, side, needed[number])
                needed[below] |= {value.shape: value for value in values}
    return needed


def values_of_side(join: FamilyJoin, side: int, needed: _Values) -> list[Value]:
    """What a side of a join has to bring, with paths from there: its keys, in order, and then all other values."""
    keys = [key.values[side] for key in join.skeleton.keys]
    there = {value.shape for value in keys}
    below = [v.above(str(side)) for v in needed.values() if v.path.startswith(str(side))]
    return [*keys, *(value for value in below if value.shape not in there)]


@dataclass(frozen=True)
class _Given:
    """What a join of the subplan gives: a field per value, and the mask of a row as an expression over fields."""

    fields: Mapping[Shape, Field]
    mask: Mask | None

    def column(self, value: Value) -> Expression:
        field = self.fields[value.shape]
        return column(field.name, field.type, field.nullable)


class _Builder:
    def __init__(
        self, blocks: Sequence[Block], optional: Mapping[str, Collection[str]], joins: Sequence[FamilyJoin]
    ) -> None:
        self.blocks = blocks
        self.optional = optional
        self.joins = joins
        self.needed = needed_values(blocks, joins)
        self.nodes: list[Join] = []
        self.given: list[_Given] = []
        self.sources: dict[str, dict[int, str]] = {}

    def add(self, number: int) -> None:
        """Add the next join of the family."""
        one, needed = self.joins[number], self.needed[number]
        ports, masks, known = [], [], dict[Shape, Field]()
        for side, letter in enumerate(_LETTERS):
            port, mask, fields = self._port(number, side, letter)
            ports.append(port)
            masks.append(mask)
            known |= fields
        outputs = dict.fromkeys(known[shape].name for shape in needed)
        outputs |= dict.fromkeys(str(word.value) for mask in masks if mask is not None for word in mask)
        strays = any(below is not None and len(self.joins[below].users) > len(one.users) for below in one.inputs)
        mask, residual = _joined_mask(masks[0], masks[1], one.users if strays else None)
        keys = one.skeleton.keys
        text = " AND ".join(f"{key.values[0].expression.sql} = {key.values[1].expression.sql}" for key in keys)
        safe = tuple(key.safe for key in keys)
        self.nodes.append(Join(JoinKind.INNER, ports[0], ports[1], len(keys), safe, residual, tuple(outputs), text))
        self.given.append(_Given({shape: known[shape] for shape in needed}, mask))

    def _port(self, number: int, side: int, letter: str) -> tuple[Port, Mask | None, dict[Shape, Field]]:
        """A side of a join; gives its mask as fields of the port, and the field of each value, seen from the join."""
        one = self.joins[number]
        values, below = values_of_side(one, side, self.needed[number]), one.inputs[side]
        if below is None:
            feed, words = self._table(number, side, values)
        else:
            given = self.given[below]
            words = given.mask
            fewer = len(one.users) < len(self.joins[below].users)
            wanted = any_of(words, one.users) if words is not None and fewer else None
            feed = Feed(below, wanted, (*map(given.column, values), *(words or ())))
        kinds = [(output.type, output.nullable) for output in feed.outputs]
        fields = tuple(Field(f"{letter}{i}", kind, nullable) for i, (kind, nullable) in enumerate(kinds))
        mask = None
        if words is not None:
            mask = tuple(column(field.name, _WORD, False) for field in fields[len(values) :])
        # Of a key that is there twice, the first field stands for the value.
        named = {v.below(str(side)).shape: field for v, field in reversed(list(zip(values, fields, strict=False)))}
        return Port(fields, (feed,)), mask, named

    def _table(self, number: int, side: int, values: Sequence[Value]) -> tuple[Feed, Mask | None]:
        one = self.joins[number]
        leaf = one.skeleton.sides[side]
        assert isinstance(leaf, Leaf)
        paths = {i: f"{path}{side}" for i, path in one.users.items()}
        source = f"{leaf.table}#{number}.{side}"
        self.sources[source] = {i: self.blocks[i].sources[path] for i, path in paths.items()}
        conditions = {i: self.blocks[i].conditions[path] for i, path in paths.items()}
        optional = self.optional[leaf.table]
        outputs = tuple(replace(v.expression, nullable=_may_be_null(v.expression, optional)) for v in values)
        distinct = {shape_of(condition): condition for condition in conditions.values()}
        if len(distinct) == 1:
            return Feed(None, next(iter(distinct.values())), outputs, leaf.table, source), None
        mask = mask_of(conditions)
        terms = [condition for condition in distinct.values() if condition is not None]
        anyone = None if () in distinct else disjunction(terms)
        return Feed(None, anyone, (*outputs, *mask), leaf.table, source), mask


def _may_be_null(expression: Expression, optional: Collection[str]) -> bool:
    if expression.op == "column":
        return str(expression.value) in optional
    if expression.op == "literal":
        return expression.value is None
    lacks_else = expression.op == "CaseWhen" and len(expression.args) % 2 == 0
    return lacks_else or any(_may_be_null(arg, optional) for arg in expression.args)


def _joined_mask(
    left: Mask | None, right: Mask | None, users: Collection[int] | None
) -> tuple[Mask | None, Expression | None]:
    """The mask of joined rows, and the condition that some user wants them; None if the mask has bits of these only."""
    if left is None or right is None:
        return left or right, None
    mask = both(left, right)
    return mask, any_of(mask, users)
