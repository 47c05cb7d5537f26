"""Skeletons: which operators a subplan has, apart from the filters and the columns of the query that it is part of.

Two subplans can be shared if they differ only in filters and projections (Tang, "Thrifty Query Processing", 4.1.3).
What they must have in common is their skeleton: which tables are joined and by which keys, and which groups are made of
the result.

The sides of an inner join may be exchanged, and its keys may be written in any order. A skeleton has them in an order
of its own, so these differences do not count. Tables and groups are named by their path from the root: "01" is the
second table of the first side, and "0g1" is the second table of the join whose groups are the first side.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from headrace.plan.expression import Expression
from headrace.plan.view import Aggregate
from headrace.relation.types import SqlType

Shape = tuple[object, ...]
_BELOW_GROUPS = "g"


@dataclass(frozen=True)
class Value:
    """An expression over the columns of one table of a subplan, or over the keys and aggregates of its groups."""

    path: str
    expression: Expression

    @property
    def shape(self) -> Shape:
        return (self.path, *shape_of(self.expression))

    def below(self, side: str) -> Value:
        """The same value, seen from the operator above."""
        return replace(self, path=side + self.path)

    def above(self, at: str) -> Value:
        """The same value, seen from an operator below that has it."""
        return replace(self, path=self.path[len(at) :])


@dataclass(frozen=True)
class Leaf:
    """The rows of a table."""

    table: str

    @property
    def shape(self) -> Shape:
        return ("table", self.table)

    @property
    def inputs(self) -> tuple[tuple[str, Skeleton], ...]:
        return ()


@dataclass(frozen=True)
class Key:
    """Two values that are equal in joined rows; `safe` says whether NULL equals NULL.

    One is of each side, with its path from there.
    """

    values: tuple[Value, Value]
    safe: bool

    @property
    def shape(self) -> Shape:
        return (self.values[0].shape, self.values[1].shape, self.safe)


@dataclass(frozen=True)
class Joined:
    """An inner join of two skeletons."""

    sides: tuple[Skeleton, Skeleton]
    keys: tuple[Key, ...]

    @property
    def inputs(self) -> tuple[tuple[str, Skeleton], ...]:
        """What the join takes, each with its path from here."""
        return tuple((str(i), side) for i, side in enumerate(self.sides))

    @property
    def own_shape(self) -> Shape:
        """What the join does, whatever its sides are."""
        return ("join", tuple(key.shape for key in self.keys))

    @property
    def shape(self) -> Shape:
        return (*self.own_shape, *(side.shape for side in self.sides))


@dataclass(frozen=True)
class Aggregated:
    """One aggregate function over the rows of groups.

    Parameters
    ----------
    values : its arguments, with their paths from what is grouped; none for COUNT(*).
    name : what values above the groups call it. Aggregates of different queries have the same name if they are the
        same, in whatever order the queries join the tables below.
    """

    function: str
    values: tuple[Value, ...]
    type: SqlType
    sql: str
    name: str
    options: tuple[str | float | bool, ...] = ()

    @property
    def shape(self) -> Shape:
        return (self.function, self.options, *type_shape(self.type), *(value.shape for value in self.values))


@dataclass(frozen=True)
class Grouped:
    """The groups of a skeleton's rows, with their aggregates; DISTINCT rows, if there are no aggregates.

    Two queries that compute other aggregates of the same groups differ in their projections only, so aggregates are no
    part of the shape. But where a table occurs twice below, the names of aggregates do not tell of which one they are.
    There, all aggregates have to be the same.

    Parameters
    ----------
    keys : with their paths from what is grouped. Their order counts.
    """

    of: Skeleton
    keys: tuple[Value, ...]
    aggregates: tuple[Aggregated, ...]

    @property
    def inputs(self) -> tuple[tuple[str, Skeleton], ...]:
        """What is grouped, with its path from here."""
        return ((_BELOW_GROUPS, self.of),)

    @property
    def own_shape(self) -> Shape:
        """What is made of the rows, whatever they are."""
        keys = tuple(value.shape for value in self.keys)
        occur = [_called(one) for _, one in _sources_of(self.of, "")]
        fixed = () if len({*occur}) == len(occur) else tuple(one.shape for one in self.aggregates)
        return ("groups", keys, fixed)

    @property
    def shape(self) -> Shape:
        return (*self.own_shape, self.of.shape)

    def with_all(self, other: Grouped) -> Grouped:
        """The same groups with the aggregates of both."""
        return replace(
            self, aggregates=tuple({one.name: one for one in (*self.aggregates, *other.aggregates)}.values())
        )


def aggregated(of: Skeleton, aggregate: Aggregate, arguments: Sequence[Value]) -> Aggregated:
    """An aggregate of a query over rows of a skeleton."""
    numbers = () if aggregate.argument is None else (aggregate.argument, *aggregate.others)
    values = tuple(arguments[i] for i in numbers)
    sources = dict(_sources_of(of, ""))
    over = [(_called(sources[value.path]), shape_of(value.expression)) for value in values]
    name = repr((aggregate.function, aggregate.options, type_shape(aggregate.type), over))
    return Aggregated(aggregate.function, values, aggregate.type, aggregate.sql, name, aggregate.options)


Skeleton = Leaf | Joined | Grouped


def leaves_of(skeleton: Skeleton, path: str) -> Iterator[tuple[str, Leaf]]:
    """The tables of a skeleton, by path."""
    if isinstance(skeleton, Leaf):
        yield path, skeleton
    for step, below in skeleton.inputs:
        yield from leaves_of(below, path + step)


def operators_of(skeleton: Skeleton, path: str) -> Iterator[tuple[str, Joined | Grouped]]:
    """The joins and groups of a skeleton, by path."""
    if not isinstance(skeleton, Leaf):
        yield path, skeleton
    for step, below in skeleton.inputs:
        yield from operators_of(below, path + step)


def _sources_of(skeleton: Skeleton, path: str) -> Iterator[tuple[str, Leaf | Grouped]]:
    """The tables and groups whose values the rows of a skeleton have, by path."""
    if not isinstance(skeleton, Joined):
        yield path, skeleton
        return
    for step, below in skeleton.inputs:
        yield from _sources_of(below, path + step)


def _called(source: Leaf | Grouped) -> str:
    return source.table if isinstance(source, Leaf) else "groups"


def joined(
    sides: Sequence[Skeleton], pairs: Sequence[tuple[Value, Value]], safe: Sequence[bool]
) -> tuple[Joined, tuple[int, int]]:
    """Join two skeletons by pairs of values, one of each side; the second result says which side comes first."""

    def order(at: int) -> str:
        return repr((sides[at].shape, sorted(repr(values[at].shape) for values in pairs)))

    first, second = sorted((0, 1), key=order)
    keys = [Key((values[first], values[second]), one) for values, one in zip(pairs, safe, strict=True)]
    keys.sort(key=lambda key: repr(key.shape))
    return Joined((sides[first], sides[second]), tuple(keys)), (first, second)


def shape_of(expression: Expression | None) -> Shape:
    """What an expression computes, however it is written."""
    if expression is None:
        return ()
    own = (expression.op, *type_shape(expression.type), repr(expression.value))
    return (*own, *map(shape_of, expression.args))


def type_shape(kind: SqlType) -> Shape:
    """What a type is, for comparing."""
    return (kind.kind, kind.precision, kind.scale)
