"""Blocks: inner joins and groups over tables, in a form in which equal subplans of different queries look alike.

A block has two parts. Its *skeleton* says which operators it has; skeletons of sharable blocks are equal. What is
particular to the query stands beside it: the condition on the rows of each table and on groups, and the values that the
query reads, each an expression over one table or over groups. In which order the tables of a block are joined is part
of its skeleton; `orders` changes it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from headrace.plan import native
from headrace.plan.expression import Expression, column
from headrace.plan.tree import Aggregation, Join, JoinKind, Port, Tree
from headrace.plan.view import Shape as Rows
from headrace.thrifty.share.skeleton import (
    Grouped,
    Joined,
    Leaf,
    Shape,
    Skeleton,
    Value,
    aggregated,
    joined,
    leaves_of,
    shape_of,
)

# Operations whose result exists for all values, so that they never have to be evaluated again by Catalyst.
_CHOICES = {"If", "CaseWhen", "Coalesce"}
_COMPARISONS = {"EqualTo", "EqualNullSafe", "LessThan", "LessThanOrEqual", "GreaterThan", "GreaterThanOrEqual", "In"}
_LOGIC = {"And", "Or", "Not", "IsNull", "IsNotNull", "BitwiseAnd", "BitwiseOr"}
_TEXT = {"Like", "StartsWith", "EndsWith", "Contains"}
_TOTAL = frozenset({"column", "literal", "Year"} | _CHOICES | _COMPARISONS | _LOGIC | _TEXT)
_EXACT = frozenset({"Add", "Subtract", "Multiply"})
_WIDEST = 38  # digits; the result type of narrower decimals holds every result


@dataclass(frozen=True, eq=False)
class Block:
    """A subplan of inner joins and groups.

    Parameters
    ----------
    number : the operator of the tree at its top.
    conditions : on the rows of each table and on groups, by path; None if all of them take part.
    sources : the name that each table has in the tree, by path.
    given : per field that the operator gives, its value.
    operators : how many operators the block has.
    inner : the blocks within it, by path.
    eagerness : how often it has to be brought up to date, in times per step; less than 1 for a view with a goal.
    """

    number: int
    skeleton: Joined | Grouped
    conditions: Mapping[str, Expression | None]
    sources: Mapping[str, str]
    given: Mapping[str, Value]
    operators: int
    inner: Mapping[str, Block] = field(default_factory=dict)
    eagerness: float = 1.0

    @cached_property
    def tables(self) -> dict[str, str]:
        """The table at each path."""
        return {path: leaf.table for path, leaf in leaves_of(self.skeleton, "")}

    @cached_property
    def wanted(self) -> dict[str, str]:
        """A fingerprint of each condition, by path."""
        return {path: repr(shape_of(condition)) for path, condition in self.conditions.items()}

    @cached_property
    def shapes(self) -> dict[str, list[tuple[Shape, Value]]]:
        """The values that the block gives, by the path of their table or groups."""
        out: dict[str, list[tuple[Shape, Value]]] = {path: [] for path in self.conditions}
        for value in self.given.values():
            out[value.path].append((shape_of(value.expression), value))
        return out


@dataclass(frozen=True)
class _Side:
    """What enters an operator: a table or a block, with the value of each field of the port."""

    skeleton: Skeleton
    conditions: Mapping[str, Expression | None]
    sources: Mapping[str, str]
    fields: Mapping[str, Value]
    operators: int
    inner: Mapping[str, Block]

    def below(self, side: str) -> _Side:
        return _Side(
            self.skeleton,
            {side + path: condition for path, condition in self.conditions.items()},
            {side + path: source for path, source in self.sources.items()},
            {name: value.below(side) for name, value in self.fields.items()},
            self.operators,
            {side + path: block for path, block in self.inner.items()},
        )


def blocks_of(tree: Tree) -> dict[int, Block]:
    """The blocks of a view's tree, by the operator at the top of each; blocks within blocks are there too.

    The answer itself is no part of any: a view reads its answer from its own state.
    """
    found: dict[int, Block] = {}
    for number, node in enumerate(tree.nodes):
        block: Block | None = None
        if isinstance(node, Join):
            block = _joins(number, node, found)
        elif isinstance(node, Aggregation) and number < len(tree.nodes) - 1:
            block = _groups(number, node, found)
        if block is not None:
            found[number] = block
    return found


def _joins(number: int, node: Join, known: Mapping[int, Block]) -> Block | None:
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
        1 + left.operators + right.operators,
        {**sides[0].inner, **sides[1].inner},
    )


def _groups(number: int, node: Aggregation, known: Mapping[int, Block]) -> Block | None:
    # A total has a row even where nothing is grouped, and the row of a subquery may be one too many.
    if node.single or node.plan.shape is not Rows.GROUPS or not node.keys:
        return None
    side = _side(node.port, known, ())
    if side is None:
        return None
    values = [side.fields[field.name] for field in node.port.fields]
    keys, arguments = tuple(values[: node.keys]), values[node.keys :]
    found = tuple(aggregated(side.skeleton, one, arguments) for one in node.plan.aggregates)
    skeleton = Grouped(side.skeleton, keys, found)
    ((step, _),) = skeleton.inputs
    below = side.below(step)
    named = [*((f"k{i}", key.expression.sql) for i, key in enumerate(keys)), *((one.name, one.sql) for one in found)]
    given = {
        own.name: Value("", replace(column(name, own.type, own.nullable), sql=text))
        for own, (name, text) in zip(node.fields, named, strict=True)
    }
    conditions = {"": None, **below.conditions}
    return Block(number, skeleton, conditions, below.sources, given, 1 + side.operators, below.inner)


def _side(port: Port, known: Mapping[int, Block], strict: Collection[int]) -> _Side | None:
    if len(port.feeds) != 1:
        return None
    (feed,) = port.feeds
    if feed.times is not None or not {*feed.required} <= {*strict} or not all(map(is_total, feed.expressions)):
        return None
    outputs = dict(zip((field.name for field in port.fields), feed.outputs, strict=True))
    if feed.producer is None:
        fields = {name: Value("", output) for name, output in outputs.items()}
        return _Side(Leaf(feed.table), {"": feed.condition}, {"": feed.source}, fields, 0, {})
    block = known.get(feed.producer)
    if block is None:
        return None
    conditions, inner = block.conditions, {"": block, **block.inner}
    if isinstance(block.skeleton, Grouped):
        columns = {name: value.expression for name, value in block.given.items()}
        fields = {name: Value("", output.over(columns)) for name, output in outputs.items()}
        conditions = {**conditions, "": feed.condition and feed.condition.over(columns)}
    elif feed.condition is None and all(output.op == "column" for output in feed.outputs):
        fields = {name: block.given[str(output.value)] for name, output in outputs.items()}
    else:
        return None
    return _Side(block.skeleton, conditions, block.sources, fields, block.operators, inner)


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
