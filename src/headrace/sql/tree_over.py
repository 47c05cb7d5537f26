"""Window functions (`OVER`) of an optimized plan as operators.

A function of a whole partition, in no order, is an aggregate: its rows are joined with the groups of the partition, so
any aggregate that is kept for GROUP BY is kept here too. All others become one operator per partition and order.

A limit on ROW_NUMBER, RANK or DENSE_RANK stands below the functions in Catalyst's plan (`WindowGroupLimit`). It becomes
part of the operator, if there is nothing else that has to see the other rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, NoReturn

from headrace.plan.over import AGGREGATES, NUMBERS, First, Frame, OverFunction
from headrace.plan.tree import Over
from headrace.relation.types import SqlType
from headrace.sql.jvm import Jvm, identity, items, kind, option
from headrace.sql.scalars import to_type
from headrace.sql.tree_limits import direction
from headrace.sql.tree_streams import Stream, numbered, unnamed

if TYPE_CHECKING:
    from headrace.sql.tree_reader import TreeReader

_NUMBERS = {
    "RowNumber": "row_number",
    "Rank": "rank",
    "DenseRank": "dense_rank",
    "PercentRank": "percent_rank",
    "CumeDist": "cume_dist",
    "NTile": "ntile",
}
_LIMITED = {"RowNumber": "row_number", "Rank": "rank", "DenseRank": "dense_rank"}
_PICKS = {"First": "first", "Last": "last", "NthValue": "nth"}
_AGGREGATES = {"Count": "count", "Sum": "sum", "Average": "avg", "Min": "min", "Max": "max"}
_DAY = 86_400_000_000  # in microseconds
_NO_RULE = "Headrace has no rule for it"


def read_limited(reader: TreeReader, node: Jvm, needed: set[int]) -> list[Stream]:
    """Read a limit per partition that stands alone: its rows are the first ones, without any function of them."""
    first = First(_LIMITED[kind(node.rankLikeFunction())], int(node.limit()))
    return [_Over(reader, node.child(), items(node.partitionSpec()), items(node.orderSpec())).read([], needed, first)]


def read_over(reader: TreeReader, node: Jvm, needed: set[int]) -> list[Stream]:
    """Read window functions over one partition and one order."""
    partition, order = items(node.partitionSpec()), items(node.orderSpec())
    named = [item for item in items(node.windowExpressions()) if identity(item) in needed]
    calls = [call for item in named for call in _calls(item)]
    own = {identity(item) for item in named}
    below = (needed - {identity(item) for item in items(node.windowExpressions())}) | reader.referenced(named)
    if not named:
        return reader.streams(node.child(), below)
    stands_for: list[tuple[Jvm, Jvm]] = []
    whole = [call for call in calls if _is_of_whole_partition(call)]
    others = [call for call in calls if call not in whole]
    child, first = node.child(), None
    if not whole and kind(child) == "WindowGroupLimit" and _is_same(child, partition, order):
        first = First(_LIMITED[kind(child.rankLikeFunction())], int(child.limit()))
        child = child.child()
    if others:
        over = _Over(reader, child, partition, order)
        streams = [over.read(others, below, first)]
        stands_for += over.stands_for
    else:
        streams = reader.streams(child, below | reader.referenced(partition))
    if whole:
        columns = [a for a in items(child.output()) if identity(a) in below | reader.referenced(partition)]
        columns += [slot for _, slot in stands_for]
        wanted = below | {identity(slot) for _, slot in stands_for}
        streams = [_beside_groups(reader, child, streams, columns, partition, whole, wanted, stands_for)]
    outputs = {identity(item): _standing(reader, unnamed(item), stands_for) for item in named}
    out = []
    for stream in streams:
        meaning = {number: reader.resolve(value, stream) for number, value in outputs.items()}
        passed = {n: meant for n, meant in stream.meaning.items() if n not in own}
        out.append(Stream(stream.producer, passed | meaning, stream.filters, stream.times))
    return out


def _calls(node: Jvm) -> Iterator[Jvm]:
    """The window expressions in an expression."""
    if kind(node) == "WindowExpression":
        yield node
        return
    for child in items(node.children()):
        yield from _calls(child)


def _standing(reader: TreeReader, node: Jvm, stands_for: Sequence[tuple[Jvm, Jvm]]) -> Jvm:
    """An expression with the columns that stand for its window expressions."""
    for call, slot in stands_for:
        if node.equals(call):
            return slot
    children = items(node.children())
    return reader.catalyst.with_children(node, children, [_standing(reader, c, stands_for) for c in children])


def _is_same(limit: Jvm, partition: Sequence[Jvm], order: Sequence[Jvm]) -> bool:
    """Whether a limit per partition has the partition and the order of the functions above it."""
    pairs = ((items(limit.partitionSpec()), partition), (items(limit.orderSpec()), order))
    return all(
        len(one) == len(other) and all(a.semanticEquals(b) for a, b in zip(one, other, strict=True))
        for one, other in pairs
    )


def _is_of_whole_partition(call: Jvm) -> bool:
    """Whether a window expression is an aggregate over all rows of the partition, whose order does not matter."""
    frame, function = call.windowSpec().frameSpecification(), call.windowFunction()
    everything = kind(frame.lower()) == "UnboundedPreceding$" and kind(frame.upper()) == "UnboundedFollowing$"
    return everything and kind(function) == "AggregateExpression" and kind(function.aggregateFunction()) not in _PICKS


def _beside_groups(
    reader: TreeReader,
    child: Jvm,
    streams: list[Stream],
    columns: Sequence[Jvm],
    partition: Sequence[Jvm],
    calls: Sequence[Jvm],
    needed: set[int],
    stands_for: list[tuple[Jvm, Jvm]],
) -> Stream:
    """Rows beside the aggregates of their partitions."""
    catalyst = reader.catalyst
    keys = [catalyst.alias(key, "k") for key in partition]
    values = [catalyst.alias(call.windowFunction(), "a") for call in calls]
    nothing = catalyst.jvm.scala.Option.empty()
    logical = catalyst.jvm.org.apache.spark.sql.catalyst.plans.logical
    groups = logical.Aggregate(catalyst.seq(partition), catalyst.seq([*keys, *values]), child, nothing)
    attributes = items(groups.output())
    given = reader.streams(groups, {identity(a) for a in attributes})
    terms = [
        catalyst.expressions.EqualNullSafe(_normalised(reader, own), group)
        for own, group in zip(partition, attributes, strict=False)
    ]
    found = attributes[len(partition) :]
    stands_for += list(zip(calls, found, strict=True))
    return reader.joined(streams, columns, given, attributes, terms, needed | {identity(a) for a in found})


def _normalised(reader: TreeReader, key: Jvm) -> Jvm:
    """A key of a partition with one zero and one NaN, as Spark compares floats."""
    is_float = key.dataType().simpleString() in ("float", "double")
    return reader.catalyst.normalised_float(key) if is_float else key


class _Over:
    """Reads functions over one partition and one order as an operator."""

    def __init__(self, reader: TreeReader, child: Jvm, partition: list[Jvm], order: list[Jvm]) -> None:
        self.reader = reader
        self.child = child
        self.partition = [_normalised(reader, key) for key in partition]
        self.order = order
        self.stands_for: list[tuple[Jvm, Jvm]] = []  # window expressions, and the columns that have their values
        self._fields: list[Jvm] = list(self.partition)

    def read(self, calls: Sequence[Jvm], needed: set[int], first: First | None) -> Stream:
        """Add the operator; returns what it gives: the columns of its rows, and the values of the functions."""
        reader = self.reader
        given = [a for a in items(self.child.output()) if identity(a) in needed]
        # The partition comes first; a column that is given and part of it is there once.
        directions = tuple((self._place(item.child()), *direction(item)) for item in self.order)
        functions = tuple(self._function(call) for call in calls)
        places = [self._place(attribute) for attribute in given]
        streams = reader.streams_with(self.child, [*self._fields])
        port = reader.port(streams, numbered("c", self._fields))
        number = reader.add(Over(port, len(self.partition), directions, functions, first))
        slots = [reader.catalyst.attribute("over", call.dataType(), True) for call in calls]
        self.stands_for = list(zip(calls, slots, strict=True))
        columns = [(attribute, f"c{place}") for attribute, place in zip(given, places, strict=True)]
        return reader.given(number, [*columns, *((slot, f"w{i}") for i, slot in enumerate(slots))])

    def _place(self, node: Jvm) -> int:
        """The position of the field of an expression; it becomes a new field if there is none like it."""
        for i, known in enumerate(self._fields):
            if node.semanticEquals(known):
                return i
        self._fields.append(node)
        return len(self._fields) - 1

    # -- functions ----------------------------------------------------------------------------------------------------

    def _function(self, call: Jvm) -> OverFunction:
        reader, function = self.reader, call.windowFunction()
        type, text = to_type(call.dataType()), reader.refusals.text(call)
        if type is None:
            reader.refusals.refuse_type(call)
        if (number := _NUMBERS.get(kind(function))) is not None:
            assert number in NUMBERS
            parts = self._literal(call, function.buckets()) if number == "ntile" else 0
            return OverFunction(number, type, text, number=parts)
        frame = call.windowSpec().frameSpecification()
        if kind(function) in ("Lag", "Lead"):
            default = None if _is_null(function.default()) else self._place(function.default())
            return OverFunction(
                kind(function).lower(),
                type,
                text,
                self._place(function.input()),
                default=default,
                number=self._literal(call, frame.lower()),
                ignores_nulls=bool(function.ignoreNulls()),
            )
        if kind(function) == "NthValue":
            return OverFunction(
                "nth",
                type,
                text,
                self._place(function.input()),
                self._frame(call, frame),
                number=self._literal(call, function.offset()),
                ignores_nulls=bool(function.ignoreNulls()),
            )
        if kind(function) != "AggregateExpression" or function.isDistinct():
            self._refuse(call, "it is no function that Headrace knows over windows of rows")
        return self._aggregate(call, function, type, text, frame)

    def _aggregate(self, call: Jvm, function: Jvm, type: SqlType, text: str, frame: Jvm) -> OverFunction:
        aggregate, condition = function.aggregateFunction(), option(function.filter())
        pick = _PICKS.get(kind(aggregate))
        if pick is not None:
            if condition is not None:
                self._refuse(call, "a FILTER of it would leave rows out of its frame")
            ignores = bool(aggregate.ignoreNulls())
            return OverFunction(
                pick, type, text, self._place(aggregate.child()), self._frame(call, frame), ignores_nulls=ignores
            )
        name = _AGGREGATES.get(kind(aggregate))
        if name is None or str(aggregate.prettyName()).startswith("try_"):
            known = ", ".join(sorted(one.upper() for one in AGGREGATES))
            self._refuse(call, f"of parts of a partition, {known} are kept, and all aggregates of whole partitions")
        arguments = items(aggregate.children())
        if name == "count":
            arguments = [value for value in arguments if value.nullable()]
            if len(arguments) > 1:
                self._refuse(call, "it counts rows in which none of several values is NULL")
        where = None if condition is None else self._place(condition)
        argument = self._place(arguments[0]) if arguments else None
        return OverFunction(name, type, text, argument, self._frame(call, frame), where)

    def _frame(self, call: Jvm, frame: Jvm) -> Frame:
        if kind(frame) != "SpecifiedWindowFrame":
            self._refuse(call, "its frame is none that Headrace knows")
        by_value = kind(frame.frameType()) == "RangeFrame$"
        low, high = (self._bound(call, bound, by_value) for bound in (frame.lower(), frame.upper()))
        return Frame(by_value, low, high)

    def _bound(self, call: Jvm, bound: Jvm, by_value: bool) -> int | float | None:
        if kind(bound) in ("UnboundedPreceding$", "UnboundedFollowing$"):
            return None
        if kind(bound) == "CurrentRow$":
            return 0
        if not by_value:
            return self._literal(call, bound)
        by = to_type(self.order[0].child().dataType())
        if by is None or by.precision > 18 or by.kind in ("string", "boolean"):
            self._refuse(call, "the distance of its frame is of a type that Headrace does not subtract")
        return self._distance(call, bound, by)

    def _distance(self, call: Jvm, bound: Jvm, by: SqlType) -> int | float:
        """The distance of a RANGE in the units of the column that orders rows."""
        catalyst = self.reader.catalyst
        if not bound.foldable():
            self._refuse(call, "the distance of its frame is no constant")
        value = bound.eval(catalyst.jvm.org.apache.spark.sql.catalyst.InternalRow.empty())
        spelling = str(bound.dataType().simpleString())
        if by.kind in ("date", "timestamp", "timestamp_ntz") and spelling.startswith("interval"):
            if "year" in spelling or "month" in spelling:
                self._refuse(call, "months are of different lengths")
            micros = int(value)
            if by.kind != "date":
                return micros
            if micros % _DAY:
                self._refuse(call, "the distance between dates is no number of whole days")
            return micros // _DAY
        if by.is_floating:
            return float(str(value))
        if by.is_decimal:
            return int(Decimal(str(value)).scaleb(by.scale))
        return int(value)

    def _literal(self, call: Jvm, node: Jvm) -> int:
        if not node.foldable():
            self._refuse(call, "one of its numbers is no constant")
        return int(node.eval(self.reader.catalyst.jvm.org.apache.spark.sql.catalyst.InternalRow.empty()))

    def _refuse(self, call: Jvm, why: str) -> NoReturn:
        self.reader.refuse(
            self.reader.refusals.text(call), why, "keep the rows as a view, and compute it from the answer you read"
        )


def _is_null(node: Jvm) -> bool:
    return kind(node) == "Literal" and node.value() is None
