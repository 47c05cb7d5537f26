"""Blocks: inner joins over tables, in a form in which equal joins of different queries look alike.

Two subplans can be shared if they differ only in filters and projections (Tang, "Thrifty Query Processing", 4.1.3). So
a block has two parts. Its *skeleton* says which tables are joined and by which keys; skeletons of sharable blocks are
equal. What is particular to the query stands beside it: the condition on the rows of each table, and the values that
the query reads, each an expression over the columns of one table.

The sides of an inner join may be exchanged, and its keys may be written in any order. A skeleton has them in an order
of its own, so these differences do not count. A table is named by its path from the root: "01" is the second table of
the first side. In which order the tables of a block are joined is part of its skeleton; `orders` changes it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from headrace.plan import native
from headrace.plan.expression import Expression
from headrace.plan.tree import Join, JoinKind, Port, Tree

Shape = tuple[object, ...]

# Operations whose result exists for all values, so that they never have to be evaluated again by Catalyst.
_CHOICES = {"If", "CaseWhen", "Coalesce"}
_COMPARISONS = {"EqualTo", "EqualNullSafe", "LessThan", "LessThanOrEqual", "GreaterThan", "GreaterThanOrEqual", "In"}
_LOGIC = {"And", "Or", "Not", "IsNull", "IsNotNull", "BitwiseAnd", "BitwiseOr"}
_TEXT = {"Like", "StartsWith", "EndsWith", "Contains"}
_TOTAL = frozenset({"column", "literal", "Year"} | _CHOICES | _COMPARISONS | _LOGIC | _TEXT)
_EXACT = frozenset({"Add", "Subtract", "Multiply"})
_WIDEST = 38  # digits; the result type of narrower decimals holds every result


@dataclass(frozen=True)
class Value:
    """An expression over the columns of one table of a block."""

    path: str
    expression: Expression

    @property
    def shape(self) -> Shape:
        return (self.path, *shape_of(self.expression))

    def below(self, side: str) -> Value:
        """The same value, seen from the join above."""
        return replace(self, path=side + self.path)

    def above(self, at: str) -> Value:
        """The same value, seen from a join below that has it."""
        return replace(self, path=self.path[len(at) :])


@dataclass(frozen=True)
class Leaf:
    """The rows of a table."""

    table: str

    @property
    def shape(self) -> Shape:
        return ("table", self.table)


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
    def shape(self) -> Shape:
        return ("join", tuple(key.shape for key in self.keys), *(side.shape for side in self.sides))


Skeleton = Leaf | Joined


def leaves_of(skeleton: Skeleton, path: str) -> Iterator[tuple[str, Leaf]]:
    """The tables of a skeleton, by path."""
    if isinstance(skeleton, Leaf):
        yield path, skeleton
        return
    for i, side in enumerate(skeleton.sides):
        yield from leaves_of(side, f"{path}{i}")


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


@dataclass(frozen=True, eq=False)
class Block:
    """A subplan of inner joins.

    Parameters
    ----------
    number : the operator of the tree at its top.
    conditions : on the rows of each table, by path; None if all of them take part.
    sources : the name that each table has in the tree, by path.
    given : per field that the operator gives, its value.
    joins : how many operators the block has.
    inner : the blocks within it, by path.
    eagerness : how often it has to be brought up to date, in times per step; less than 1 for a view with a goal.
    """

    number: int
    skeleton: Joined
    conditions: Mapping[str, Expression | None]
    sources: Mapping[str, str]
    given: Mapping[str, Value]
    joins: int
    inner: Mapping[str, Block] = field(default_factory=dict)
    eagerness: float = 1.0

    @cached_property
    def tables(self) -> dict[str, str]:
        """The table at each path."""
        return {path: leaf.table for path, leaf in leaves_of(self.skeleton, "")}

    @cached_property
    def wanted(self) -> dict[str, str]:
        """A fingerprint of the condition on the rows of each table, by path."""
        return {path: repr(shape_of(condition)) for path, condition in self.conditions.items()}

    @cached_property
    def shapes(self) -> dict[str, list[tuple[Shape, Value]]]:
        """The values that the block gives, by the path of their table."""
        out: dict[str, list[tuple[Shape, Value]]] = {path: [] for path in self.conditions}
        for value in self.given.values():
            out[value.path].append((shape_of(value.expression), value))
        return out


@dataclass(frozen=True)
class _Side:
    """What enters a join: a table or a block, with the value of each field of the port."""

    skeleton: Skeleton
    conditions: Mapping[str, Expression | None]
    sources: Mapping[str, str]
    fields: Mapping[str, Value]
    joins: int
    inner: Mapping[str, Block]

    def below(self, side: str) -> _Side:
        return _Side(
            self.skeleton,
            {side + path: condition for path, condition in self.conditions.items()},
            {side + path: source for path, source in self.sources.items()},
            {name: value.below(side) for name, value in self.fields.items()},
            self.joins,
            {side + path: block for path, block in self.inner.items()},
        )


def blocks_of(tree: Tree) -> dict[int, Block]:
    """The blocks of a tree, by the operator at the top of each; blocks within blocks are there too."""
    found: dict[int, Block] = {}
    for number, node in enumerate(tree.nodes):
        if isinstance(node, Join) and (block := _block(number, node, found)) is not None:
            found[number] = block
    return found


def _block(number: int, node: Join, known: Mapping[int, Block]) -> Block | None:
    if node.kind is not JoinKind.INNER or not node.keys or node.residual is not None:
        return None
    # A row whose key is NULL has no partner, whether or not its feed leaves it out.
    strict = {i for i in range(node.keys) if not node.safe[i]}
    left, right = (_side(port, known, strict) for port in node.ports)
    if left is None or right is None:
        return None
    names = [[field.name for field in port.fields[: node.keys]] for port in node.ports]
    pairs = [(left.fields[a], right.fields[b]) for a, b in zip(*names, strict=True)]

    skeleton, at = joined((left.skeleton, right.skeleton), pairs, node.safe)
    sides = [(left, right)[original].below(str(i)) for i, original in enumerate(at)]
    fields = {**sides[0].fields, **sides[1].fields}
    return Block(
        number,
        skeleton,
        {**sides[0].conditions, **sides[1].conditions},
        {**sides[0].sources, **sides[1].sources},
        {name: fields[name] for name in node.outputs},
        1 + left.joins + right.joins,
        {**sides[0].inner, **sides[1].inner},
    )


def _side(port: Port, known: Mapping[int, Block], strict: Collection[int]) -> _Side | None:
    if len(port.feeds) != 1:
        return None
    (feed,) = port.feeds
    if feed.times is not None or not {*feed.required} <= {*strict} or not all(map(is_total, feed.expressions)):
        return None
    names = [field.name for field in port.fields]
    if feed.producer is None:
        fields = {name: Value("", output) for name, output in zip(names, feed.outputs, strict=True)}
        return _Side(Leaf(feed.table), {"": feed.condition}, {"": feed.source}, fields, 0, {})
    block = known.get(feed.producer)
    if block is None or feed.condition is not None or any(output.op != "column" for output in feed.outputs):
        return None
    fields = {name: block.given[str(output.value)] for name, output in zip(names, feed.outputs, strict=True)}
    inner = {"": block, **block.inner}
    return _Side(block.skeleton, block.conditions, block.sources, fields, block.joins, inner)


def is_total(expression: Expression) -> bool:
    """Whether the kernels evaluate an expression on any values, so that Catalyst is never needed."""
    if native.why_not(expression) is not None:
        return False
    if expression.op in _EXACT:
        kinds = [expression.type, *(arg.type for arg in expression.args)]
        if not all(kind.kind == "decimal" and kind.precision < _WIDEST for kind in kinds):
            return False
    elif expression.op not in _TOTAL:
        return False
    return all(map(is_total, expression.args))


def shape_of(expression: Expression | None) -> Shape:
    """What an expression computes, however it is written."""
    if expression is None:
        return ()
    kind = expression.type
    own = (expression.op, kind.kind, kind.precision, kind.scale, repr(expression.value))
    return (*own, *map(shape_of, expression.args))
