"""One subplan for blocks of several views that have the same skeleton.

The merged subplan has the values of all its members, and rows that any of them wants. Where members differ in the
condition on a table, rows carry a mask of the members that want them (`masks`). Each member reads the result through a
feed of its own: the rows with its bit, and the columns that its own operator would give.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from headrace.plan.expression import Expression, column
from headrace.plan.tree import Feed, Field, Join, JoinKind, Port, Tree
from headrace.relation.types import SqlType
from headrace.thrifty.share.blocks import Block, Joined, Leaf, Shape, Skeleton, Value, shape_of
from headrace.thrifty.share.masks import Mask, any_of, both, disjunction, has, mask_of

_LETTERS = ("l", "r")
_WORD = SqlType("bigint")


@dataclass(frozen=True)
class Merged:
    """A subplan that several blocks share.

    Parameters
    ----------
    tree : its joins; the last gives the rows that members read.
    sources : per table that it reads, by its name in the tree: the name that the table has in each member's tree.
    feeds : how each member reads it.
    """

    tree: Tree
    sources: Mapping[str, tuple[str, ...]]
    feeds: tuple[Feed, ...]


def merged(blocks: Sequence[Block], optional: Mapping[str, Collection[str]]) -> Merged:
    """Merge blocks that have the same skeleton.

    Parameters
    ----------
    optional : the columns of each table that may be NULL. A member whose condition leaves such rows out takes the
        column for one that has values only, but the rows of other members have NULL there.
    """
    builder = _Builder(blocks, optional)
    wanted = [value for block in blocks for value in block.given.values()]
    top = builder.add(blocks[0].skeleton, "", wanted)
    feeds = []
    for i, block in enumerate(blocks):
        outputs = tuple(top.column(value) for value in block.given.values())
        feeds.append(Feed(top.producer, None if top.mask is None else has(top.mask, i), outputs))
    return Merged(Tree(tuple(builder.nodes)), builder.sources, tuple(feeds))


@dataclass(frozen=True)
class _Given:
    """What a part of the subplan gives: a field per value, and the mask of a row as an expression over fields."""

    producer: int
    fields: Mapping[Shape, Field]
    mask: Mask | None

    def column(self, value: Value) -> Expression:
        field = self.fields[value.shape]
        return column(field.name, field.type, field.nullable)


class _Builder:
    def __init__(self, blocks: Sequence[Block], optional: Mapping[str, Collection[str]]) -> None:
        self.blocks = blocks
        self.optional = optional
        self.nodes: list[Join] = []
        self.sources: dict[str, tuple[str, ...]] = {}

    def add(self, skeleton: Joined, path: str, wanted: Sequence[Value]) -> _Given:
        """Add a join that gives some values; `path` leads to it from the root."""
        keys = [tuple(v.below(f"{path}{i}") for i, v in enumerate(key.values)) for key in skeleton.keys]
        ports, masks, known = [], [], list[dict[Shape, Field]]()
        for i, side in enumerate(skeleton.sides):
            needed = [*(key[i] for key in keys), *(v for v in wanted if v.path.startswith(f"{path}{i}"))]
            # A value may be a key twice, so keys keep their places; all others are there once.
            others = list({v.shape: v for v in needed[len(keys) :]}.values())
            there = {v.shape for v in needed[: len(keys)]}
            values = [*needed[: len(keys)], *(v for v in others if v.shape not in there)]
            port, mask, fields = self._port(side, f"{path}{i}", values, _LETTERS[i])
            ports.append(port)
            masks.append(mask)
            known.append(fields)
        fields = known[1] | known[0]
        outputs = dict.fromkeys(fields[v.shape].name for v in wanted)
        outputs |= dict.fromkeys(str(word.value) for mask in masks if mask is not None for word in mask)
        mask, residual = _joined_mask(masks[0], masks[1])
        text = " AND ".join(f"{key[0].expression.sql} = {key[1].expression.sql}" for key in keys)
        safe = tuple(key.safe for key in skeleton.keys)
        self.nodes.append(Join(JoinKind.INNER, ports[0], ports[1], len(keys), safe, residual, tuple(outputs), text))
        return _Given(len(self.nodes) - 1, {v.shape: fields[v.shape] for v in wanted}, mask)

    def _port(
        self, side: Skeleton, path: str, values: Sequence[Value], letter: str
    ) -> tuple[Port, Mask | None, dict[Shape, Field]]:
        """A side of a join with some values; gives its mask as fields of the port, and the field of each value."""
        if isinstance(side, Leaf):
            feed, words = self._table(side, path, values)
        else:
            given = self.add(side, path, values)
            words = given.mask
            feed = Feed(given.producer, None, (*map(given.column, values), *(words or ())))
        kinds = [(output.type, output.nullable) for output in feed.outputs]
        fields = tuple(Field(f"{letter}{i}", kind, nullable) for i, (kind, nullable) in enumerate(kinds))
        mask = None
        if words is not None:
            mask = tuple(column(field.name, _WORD, False) for field in fields[len(values) :])
        # Of a key that is there twice, the first field stands for the value.
        named = {v.shape: field for v, field in reversed(list(zip(values, fields, strict=False)))}
        return Port(fields, (feed,)), mask, named

    def _table(self, leaf: Leaf, path: str, values: Sequence[Value]) -> tuple[Feed, Mask | None]:
        source = f"{leaf.table}#{path}"
        self.sources[source] = tuple(block.sources[path] for block in self.blocks)
        conditions = [block.conditions[path] for block in self.blocks]
        optional = self.optional[leaf.table]
        outputs = tuple(replace(v.expression, nullable=_may_be_null(v.expression, optional)) for v in values)
        distinct = {shape_of(condition): condition for condition in conditions}
        if len(distinct) == 1:
            return Feed(None, conditions[0], outputs, leaf.table, source), None
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


def _joined_mask(left: Mask | None, right: Mask | None) -> tuple[Mask | None, Expression | None]:
    """The mask of joined rows, and the condition that some member wants them."""
    if left is None or right is None:
        return left or right, None
    mask = both(left, right)
    return mask, any_of(mask)
