"""One subplan for a family of blocks.

The merged subplan has each operator of the family once. A join gives the values that any block needs beyond it, and
rows that any of these blocks wants. Where blocks differ in a condition, rows carry a mask of the blocks that want them
(`masks`). Groups are made per *cluster* of blocks that want the same rows: the mask of the cluster is a key of the
groups, so the groups of different clusters are different groups. Each block reads the result of its last operator
through a feed of its own: the rows with its bit, and the columns that its own operator would give.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from headrace.plan.expression import Expression, column
from headrace.plan.tree import Aggregation, Feed, Field, Join, JoinKind, Port, Tree
from headrace.plan.view import Aggregate, Fed, ViewPlan
from headrace.plan.view import Shape as Rows
from headrace.relation.types import SqlType
from headrace.thrifty.share.blocks import Block
from headrace.thrifty.share.family import FamilyOperator, family_of
from headrace.thrifty.share.masks import (
    BITS,
    Mask,
    any_of,
    both,
    conjunction,
    disjunction,
    has,
    literal_mask,
    mask_of,
)
from headrace.thrifty.share.skeleton import Aggregated, Grouped, Joined, Leaf, Shape, Value, shape_of

_LETTERS = ("l", "r")
_WORD = SqlType("bigint")

_Values = dict[Shape, Value]


@dataclass(frozen=True)
class Merged:
    """A subplan that several blocks share.

    Parameters
    ----------
    tree : its operators.
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
    exact : operators over different rows of the same tables stay apart, so that no row needs a mask.
    """
    family = family_of(blocks, exact=exact)
    builder = _Builder(blocks, optional, family)
    for number in range(len(family)):
        builder.add(number)
    feeds: dict[int, Feed] = {}
    for number, one in enumerate(family):
        given = builder.given[number]
        for i in one.ends:
            outputs = tuple(given.column(value) for value in blocks[i].given.values())
            feeds[i] = Feed(number, None if given.mask is None else has(given.mask, i), outputs)
    return Merged(Tree(tuple(builder.nodes)), builder.sources, tuple(feeds[i] for i in range(len(blocks))))


def needed_values(blocks: Sequence[Block], family: Sequence[FamilyOperator]) -> list[_Values]:
    """The values that blocks need of each operator, with their paths from there."""
    needed: list[_Values] = [{} for _ in family]
    for number in reversed(range(len(family))):  # an operator comes after those whose rows it takes
        one = family[number]
        for i in one.ends:
            needed[number] |= {value.shape: value for value in blocks[i].given.values()}
        for port, below in enumerate(one.inputs):
            if below is not None:
                values = values_taken(one, port, needed[number])
                needed[below] |= {value.shape: value for value in values}
    return needed


def values_taken(one: FamilyOperator, port: int, needed: _Values) -> list[Value]:
    """What has to enter an operator, with paths from there: keys, in order, and then all other values."""
    skeleton = one.skeleton
    if isinstance(skeleton, Grouped):
        return [*skeleton.keys, *_arguments(skeleton)]
    keys = [key.values[port] for key in skeleton.keys]
    there = {value.shape for value in keys}
    below = [v.above(str(port)) for v in needed.values() if v.path.startswith(str(port))]
    return [*keys, *(value for value in below if value.shape not in there)]


@dataclass(frozen=True)
class _Given:
    """What an operator of the subplan gives: a field per value, and the mask of a row as an expression over fields.

    Expressions over groups may be evaluated when they are read; `names` has their keys and aggregates as blocks name
    them.
    """

    fields: Mapping[Shape, Field]
    mask: Mask | None
    names: Mapping[str, Field] = field(default_factory=dict)

    def column(self, value: Value) -> Expression:
        return _column(self.fields[value.shape])


@dataclass(frozen=True)
class _Entering:
    """Rows on their way to an operator: the feed, whose last outputs are the mask of the rows, if they carry one."""

    feed: Feed
    mask: Mask | None = None


class _Builder:
    def __init__(
        self, blocks: Sequence[Block], optional: Mapping[str, Collection[str]], family: Sequence[FamilyOperator]
    ) -> None:
        self.blocks = blocks
        self.optional = optional
        self.family = family
        self.needed = needed_values(blocks, family)
        self.nodes: list[Join | Aggregation] = []
        self.given: list[_Given] = []
        self.sources: dict[str, dict[int, str]] = {}

    def add(self, number: int) -> None:
        """Add the next operator of the family."""
        skeleton = self.family[number].skeleton
        if isinstance(skeleton, Joined):
            self._add_join(number, skeleton)
        else:
            self._add_groups(number, skeleton)

    # -- joins --------------------------------------------------------------------------------------------------------

    def _add_join(self, number: int, skeleton: Joined) -> None:
        one, needed = self.family[number], self.needed[number]
        ports, masks, known = [], [], dict[Shape, Field]()
        for side, letter in enumerate(_LETTERS):
            port, mask, fields = self._side(number, side, letter)
            ports.append(port)
            masks.append(mask)
            known |= fields
        outputs = dict.fromkeys(known[shape].name for shape in needed)
        outputs |= dict.fromkeys(str(word.value) for mask in masks if mask is not None for word in mask)
        strays = any(below is not None and len(self.family[below].users) > len(one.users) for below in one.inputs)
        mask, residual = _joined_mask(masks[0], masks[1], one.users if strays else None)
        keys = skeleton.keys
        text = " AND ".join(f"{key.values[0].expression.sql} = {key.values[1].expression.sql}" for key in keys)
        safe = tuple(key.safe for key in keys)
        self.nodes.append(Join(JoinKind.INNER, ports[0], ports[1], len(keys), safe, residual, tuple(outputs), text))
        self.given.append(_Given({shape: known[shape] for shape in needed}, mask))

    def _side(self, number: int, side: int, letter: str) -> tuple[Port, Mask | None, dict[Shape, Field]]:
        """A side of a join; gives its mask as fields of the port, and the field of each value, seen from the join."""
        one = self.family[number]
        values = values_taken(one, side, self.needed[number])
        entering = self._entering(number, side, values, one.users)
        feed, words = entering.feed, entering.mask
        kinds = [(output.type, output.nullable) for output in feed.outputs]
        fields = tuple(Field(f"{letter}{i}", kind, nullable) for i, (kind, nullable) in enumerate(kinds))
        mask = None
        if words is not None:
            mask = tuple(column(one.name, _WORD, False) for one in fields[len(values) :])
        # Of a key that is there twice, the first field stands for the value.
        named = {v.below(str(side)).shape: one for v, one in reversed(list(zip(values, fields, strict=False)))}
        return Port(fields, (feed,)), mask, named

    # -- groups -------------------------------------------------------------------------------------------------------

    def _add_groups(self, number: int, skeleton: Grouped) -> None:
        arguments, clusters = _arguments(skeleton), self._clusters(number)
        values = [*skeleton.keys, *arguments]
        words = max(self.family[number].users) // BITS + 1 if len(clusters) > 1 else 0
        feeds = []
        for cluster in clusters:
            feed = self._entering(number, 0, values, cluster).feed
            feeds.append(replace(feed, outputs=(*literal_mask(cluster, words), *feed.outputs[: len(values)])))
        keys = words + len(skeleton.keys)
        names = [*(f"k{i}" for i in range(keys)), *(f"v{i}" for i in range(len(arguments)))]
        fields = tuple(
            Field(name, outputs[0].type, any(output.nullable for output in outputs))
            for name, *outputs in zip(names, *(feed.outputs for feed in feeds), strict=True)
        )
        columns = tuple(map(_column, fields))
        at = {value.shape: i for i, value in enumerate(arguments)}
        aggregates = tuple(_aggregate(one, [at[value.shape] for value in one.values]) for one in skeleton.aggregates)
        plan = ViewPlan(Fed(), Rows.GROUPS, columns[:keys], columns[keys:], aggregates, None, ())
        functions = ", ".join(one.sql for one in skeleton.aggregates) or "DISTINCT"
        text = f"{functions} by {', '.join(value.expression.sql for value in skeleton.keys)}"
        node = Aggregation(Port(fields, tuple(feeds)), plan, text=text)
        self.nodes.append(node)
        own = {f"k{i}": key for i, key in enumerate(node.fields[words:keys])}
        own |= {one.name: given for one, given in zip(skeleton.aggregates, node.fields[keys:], strict=True)}
        shapes = {Value("", column(name, one.type)).shape: one for name, one in own.items()}
        self.given.append(_Given(shapes, columns[:words] or None, own))

    def _clusters(self, number: int) -> list[list[int]]:
        """The blocks that use some groups, in clusters that want the same rows in them."""
        one = self.family[number]
        ((step, _),) = one.skeleton.inputs
        clusters: dict[object, list[int]] = {}
        for i, path in one.users.items():
            below = path + step
            wanted = sorted((at[len(below) :], c) for at, c in self.blocks[i].wanted.items() if at.startswith(below))
            clusters.setdefault(tuple(wanted), []).append(i)
        return list(clusters.values())

    # -- rows that enter an operator ----------------------------------------------------------------------------------

    def _entering(self, number: int, port: int, values: Sequence[Value], users: Collection[int]) -> _Entering:
        """The rows that some users of an operator want at one of its ports."""
        one = self.family[number]
        below, (step, source) = one.inputs[port], one.skeleton.inputs[port]
        paths = {i: path + step for i, path in one.users.items() if i in users}
        if below is None:
            assert isinstance(source, Leaf)
            return self._of_table(number, port, source.table, values, paths)
        given, all_users = self.given[below], self.family[below].users
        fewer = given.mask is not None and len(users) < len(all_users)
        wanted = [any_of(given.mask, users)] if given.mask is not None and fewer else []
        if isinstance(source, Joined):
            outputs = tuple(map(given.column, values))
            return _Entering(Feed(below, conjunction(wanted), (*outputs, *(given.mask or ()))), given.mask)
        return self._of_groups(below, values, paths, wanted)

    def _of_table(
        self, number: int, port: int, table: str, values: Sequence[Value], paths: Mapping[int, str]
    ) -> _Entering:
        source = f"{table}#{number}.{port}"
        while source in self.sources:  # each cluster of groups reads the table by itself
            source += "+"
        self.sources[source] = {i: self.blocks[i].sources[path] for i, path in paths.items()}
        optional = self.optional[table]
        outputs = tuple(replace(v.expression, nullable=_may_be_null(v.expression, optional)) for v in values)
        condition, mask = _wanted({i: self.blocks[i].conditions[path] for i, path in paths.items()})
        return _Entering(Feed(None, condition, (*outputs, *(mask or ())), table, source), mask)

    def _of_groups(
        self, below: int, values: Sequence[Value], paths: Mapping[int, str], wanted: list[Expression]
    ) -> _Entering:
        """Rows of groups, of which users may want different ones."""
        given = self.given[below]
        columns = {name: _column(one) for name, one in given.names.items()}
        optional = {one.name for one in given.names.values() if one.nullable}
        conditions = {i: self.blocks[i].conditions[path] for i, path in paths.items()}
        condition, mask = _wanted({i: c if c is None else c.over(columns) for i, c in conditions.items()})
        if mask is not None and given.mask is not None:
            mask = both(mask, given.mask)
            wanted = [any_of(mask)]
        elif condition is not None:
            wanted = [*wanted, condition]
        mask = given.mask if mask is None else mask
        outputs = [value.expression.over(columns) for value in values]
        outputs = [replace(one, nullable=_may_be_null(one, optional)) for one in outputs]
        return _Entering(Feed(below, conjunction(wanted), (*outputs, *(mask or ()))), mask)


def _arguments(groups: Grouped) -> list[Value]:
    """The values that the aggregates of groups are over, each once."""
    return list({value.shape: value for one in groups.aggregates for value in one.values}.values())


def _aggregate(one: Aggregated, at: Sequence[int]) -> Aggregate:
    """An aggregate over the arguments at some positions."""
    return Aggregate(one.function, at[0] if at else None, one.type, one.sql, tuple(at[1:]), options=one.options)


def _column(one: Field) -> Expression:
    return column(one.name, one.type, one.nullable)


def _wanted(conditions: Mapping[int, Expression | None]) -> tuple[Expression | None, Mask | None]:
    """The condition that any of some blocks wants a row, and the mask of those that do; None if all want the same."""
    distinct = {shape_of(condition): condition for condition in conditions.values()}
    if len(distinct) == 1:
        return next(iter(distinct.values())), None
    terms = [condition for condition in distinct.values() if condition is not None]
    return None if () in distinct else disjunction(terms), mask_of(conditions)


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
