"""From an optimized plan to a tree of operators (`plan.tree`).

The plan is read from the tables upwards. Projections, filters and UNION ALL need no state, so they become no operators
but parts of a *stream*: it holds the plan's columns as expressions over the operator, or table, that the rows come
from. A stream ends in a port of the next operator, and is written down there as a feed.

A view that the query reads is a leaf of the plan. Its own query is read at that place, down to its tables, exactly as
it is read for the view itself: so what the view keeps can stand for that part of the tree.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import NoReturn

from headrace.errors import UnsupportedSQLError
from headrace.plan.expression import Expression, column
from headrace.plan.tree import Aggregation, Feed, FeedId, Field, Node, Port, Tree
from headrace.plan.view import Aggregate, Fed, Shape, ViewPlan
from headrace.relation.types import SqlType
from headrace.sql.evaluate import MapSide
from headrace.sql.flatten import Flat, Flattener
from headrace.sql.jvm import Catalyst, Jvm, conjuncts, identity, items, kind
from headrace.sql.refusals import Refusals
from headrace.sql.scalars import to_expression, to_type
from headrace.sql.session import TABLE_MARK
from headrace.sql.tree_generate import read_generate
from headrace.sql.tree_joins import JoinReader
from headrace.sql.tree_limits import read_top
from headrace.sql.tree_over import read_limited, read_over
from headrace.sql.tree_root import Root
from headrace.sql.tree_streams import Grouped, Producer, Stream, numbered, subqueries, unnamed

_TRANSPARENT = {"SubqueryAlias", "View", "ResolvedHint", "Sort", "LocalLimit"}


@dataclass(frozen=True)
class ReadView:
    """The query of a view that other queries read: its optimized plan, and who refuses what cannot be kept of it.

    Parameters
    ----------
    hands_on : whether the view can give the rows that it keeps, so that they are worth an operator.
    """

    optimized: Jvm
    is_ordered: bool
    refusals: Refusals
    hands_on: bool = False


@dataclass
class TreeRead:
    """A query that has been read: its tree, the finish of its answer, and the Catalyst expressions of every feed."""

    tree: Tree
    flat: Flat
    sides: dict[str, MapSide] = field(default_factory=dict)
    between: dict[FeedId, tuple[MapSide, Sequence[Jvm]]] = field(default_factory=dict)
    views: dict[int, str] = field(default_factory=dict)  # the operators that keep what a view keeps as its answer


class TreeReader:
    """Reads one optimized plan.

    Parameters
    ----------
    view : finds the query of a leaf; None for a leaf that is a table.
    """

    def __init__(
        self, catalyst: Catalyst, refusals: Refusals, view: Callable[[str], ReadView | None] = lambda name: None
    ) -> None:
        self.catalyst = catalyst
        self.refusals = refusals
        self._view = view
        self._answers: dict[str, list[tuple[Stream, list[Jvm]]]] = {}  # the rows and columns of views, each read once
        self._views: dict[int, str] = {}
        self.nodes: list[Node] = []
        self.sides: dict[str, MapSide] = {}
        self.between: dict[FeedId, tuple[MapSide, Sequence[Jvm]]] = {}
        self.leaf: Jvm = None
        self._groups: list[Grouped] = []
        self._stand_ins: dict[int, Jvm] = {}  # the attribute in place of a scalar subquery, by the subquery's number
        self._values: dict[int, tuple[Jvm, Jvm]] = {}  # such an attribute and its subquery, by the attribute's number
        self._joins = JoinReader(self)

    def read(self, optimized: Jvm, *, is_ordered: bool) -> TreeRead:
        """Read a whole query; `is_ordered` says whether it ends in an ORDER BY of its own."""
        root = Root(self.catalyst, self.refusals, optimized, is_ordered=is_ordered)
        flat = root.flat
        self.nodes.append(self._kept_of(root, self._entering(root)))
        if self.leaf is None:
            self.refusals.refuse(
                "a query without a table", "nothing it reads can change", "read a table made with engine.table()"
            )
        flat.leaves = [("", self.leaf)]
        return TreeRead(Tree(tuple(self.nodes)), flat, self.sides, self.between, self._views)

    def _entering(self, root: Root) -> list[Stream]:
        """The rows that the top of a query takes."""
        wanted = [*root.flat.keys, *root.flat.arguments, *root.conditions]
        streams = self.streams(root.base, self.referenced(wanted))
        return [self._filtered(stream, root.conditions) for stream in streams]

    def _kept_of(self, root: Root, streams: Sequence[Stream]) -> Aggregation:
        """What is kept of a query: its topmost groups, or its rows."""
        flat = root.flat
        port = self.port(streams, [*numbered("k", flat.keys), *numbered("v", flat.arguments)])
        return Aggregation(port, _group_plan(flat, port))

    # -- what needs no state --------------------------------------------------------------------------------------

    def streams(self, node: Jvm, needed: set[int]) -> list[Stream]:
        """The rows of a plan as a sum of streams that have at least the columns in `needed`."""
        name = kind(node)
        if name in ("GlobalLimit", "Offset"):
            return [read_top(self, node, needed)]
        read: dict[str, Callable[[Jvm, set[int]], list[Stream]]] = {
            "LogicalRDD": self._table,
            "Project": self._project,
            "Filter": self._filter,
            "Union": self._union,
            "Expand": self._expand,
            "Generate": partial(read_generate, self),
            "Join": self._joins.join,
            "Aggregate": self._aggregate,
            "Window": partial(read_over, self),
            "WindowGroupLimit": partial(read_limited, self),
        }
        if name in _TRANSPARENT:
            return self.streams(node.child(), needed)
        if name not in read:
            self.refusals.refuse_operator(node)
        return read[name](node, needed)

    def _table(self, node: Jvm, needed: set[int]) -> list[Stream]:
        columns = items(node.output())
        marks = [json.loads(column.metadata().json()).get(TABLE_MARK) for column in columns]
        if not marks or marks[0] is None:
            self.refusals.refuse_operator(node)
        if (answer := self._answer_of_view(marks[0])) is not None:
            return [
                replace(stream, meaning={identity(c): value for c, value in zip(columns, values, strict=True)})
                for stream, values in answer
            ]
        self.leaf = node
        producer = Producer(None, node, tuple(columns), marks[0])
        return [Stream(producer, {identity(column): column for column in columns})]

    def _answer_of_view(self, name: str) -> list[tuple[Stream, list[Jvm]]] | None:
        """The rows of a view, each stream with the columns of the answer; None for what is a table."""
        if name not in self._answers:
            outer = self.refusals
            try:
                read = self._view(name)
                if read is None:
                    return None
                self.refusals = read.refusals
                root = Root(self.catalyst, self.refusals, read.optimized, is_ordered=read.is_ordered)
                self._answers[name] = self._answer(root, name, hands_on=read.hands_on)
            except UnsupportedSQLError as error:
                raise UnsupportedSQLError(
                    f"view {outer.view!r} reads view {name!r}, which operators cannot keep: {error.what}",
                    way_out="let Spark recompute this view too, with refresh='full'",
                ) from None
            finally:
                self.refusals = outer
        return self._answers[name]

    def _answer(self, root: Root, name: str, *, hands_on: bool) -> list[tuple[Stream, list[Jvm]]]:
        """The rows that the query of a view gives; what the view keeps of them becomes an operator."""
        flat, streams = root.flat, self._entering(root)
        of_tables = all(stream.producer.number is None and stream.times is None for stream in streams)
        if flat.shape is Shape.ROWS and (of_tables or not hands_on):
            shown = flat.keys[: len(flat.keys) - flat.hidden]
            return [(stream, [self.resolve(key, stream) for key in shown]) for stream in streams]
        number = self.add(self._kept_of(root, streams))
        if hands_on:
            self._views[number] = name
        producer = Producer(number, self.leaf, tuple(flat.slots))
        stream = Stream(producer, {identity(slot): slot for slot in producer.attributes})
        shown = flat.outputs[: len(flat.outputs) - flat.hidden]
        return [(self._filtered(stream, [] if flat.having is None else [flat.having]), shown)]

    def _project(self, node: Jvm, needed: set[int]) -> list[Stream]:
        wanted = [item for item in items(node.projectList()) if identity(item) in needed]
        named = [self.without_subqueries(item) for item in wanted]
        return [self.projected(stream, named) for stream in self.streams_with(node.child(), named)]

    def projected(self, stream: Stream, named: Iterable[Jvm]) -> Stream:
        """The stream with these named expressions as its columns."""
        return replace(stream, meaning={identity(item): self.resolve(unnamed(item), stream) for item in named})

    def _filter(self, node: Jvm, needed: set[int]) -> list[Stream]:
        terms = [self.without_subqueries(term) for term in conjuncts(node.condition())]
        asking = [term for term in terms if self.values_in([term])]
        columns = items(node.child().output())
        below = needed | self.referenced(terms)
        streams = self.streams(node.child(), below - self._values.keys())
        streams = [self._filtered(s, [term for term in terms if term not in asking]) for s in streams]
        for i, term in enumerate(asking):
            *others, last = self.values_in([term])
            later = needed | self.referenced(asking[i + 1 :])
            for value in others:
                streams = [self._joins.beside(streams, columns, value, [], later | self.referenced([term]))]
                columns = [*columns, value]
            streams = [self._joins.beside(streams, columns, last, [term], later)]
        return streams

    def streams_with(self, child: Jvm, expressions: Sequence[Jvm]) -> list[Stream]:
        """The rows of a plan with every column that some expressions read, values of scalar subqueries included."""
        needed, columns = self.referenced(expressions), items(child.output())
        streams = self.streams(child, needed - self._values.keys())
        for value in self.values_in(expressions):
            streams = [self._joins.beside(streams, columns, value, [], needed)]
            columns = [*columns, value]
        return streams

    def without_subqueries(self, node: Jvm) -> Jvm:
        """An expression with an attribute in place of each scalar subquery: the column that its value will be."""
        if kind(node) == "ScalarSubquery":
            number = int(node.exprId().id())
            if number not in self._stand_ins:
                value = self.catalyst.attribute("value", node.dataType(), True)
                self._stand_ins[number] = value
                self._values[identity(value)] = (value, node)
            return self._stand_ins[number]
        children = items(node.children())
        return self.catalyst.with_children(node, children, [self.without_subqueries(child) for child in children])

    def values_in(self, nodes: Iterable[Jvm]) -> list[Jvm]:
        """The values of scalar subqueries that some expressions read."""
        return [self._values[number][0] for number in sorted(self.referenced(nodes) & self._values.keys())]

    def _filtered(self, stream: Stream, terms: Iterable[Jvm]) -> Stream:
        return replace(stream, filters=(*stream.filters, *(self.resolve(term, stream) for term in terms)))

    def filtered(self, stream: Stream, term: Jvm) -> Stream:
        """The stream of those rows for which a term is true."""
        return self._filtered(stream, [term])

    def _union(self, node: Jvm, needed: set[int]) -> list[Stream]:
        out = []
        attributes = items(node.output())
        for child in items(node.children()):
            pairs = list(zip(attributes, items(child.output()), strict=True))
            wanted = {identity(own) for attribute, own in pairs if identity(attribute) in needed}
            for stream in self.streams(child, wanted):
                meaning = {
                    identity(attribute): stream.meaning[identity(own)]
                    for attribute, own in pairs
                    if identity(own) in stream.meaning
                }
                out.append(replace(stream, meaning=meaning))
        return out

    def _expand(self, node: Jvm, needed: set[int]) -> list[Stream]:
        """GROUPING SETS: every row several times, each time with other columns."""
        below = self.streams(node.child(), self.referenced(items(node.expressions())))
        attributes = items(node.output())
        return [
            replace(
                stream,
                meaning={
                    identity(attribute): self.resolve(unnamed(value), stream)
                    for attribute, value in zip(attributes, items(projection), strict=True)
                },
            )
            for projection in items(node.projections())
            for stream in below
        ]

    # -- operators ------------------------------------------------------------------------------------------------

    def _aggregate(self, node: Jvm, needed: set[int]) -> list[Stream]:
        flattener = Flattener(self.catalyst, self.refusals)
        outputs = flattener.groups(node)
        flat = flattener.flat
        for known in self._groups:
            if (slots := known.slots_for(node.child(), flat, self.catalyst)) is not None:
                shown = {i: self.catalyst.substitute(output, slots) for i, output in outputs.items()}
                return [self._of_groups(known.producer, shown)]
        keys, arguments = ([self.without_subqueries(n) for n in nodes] for nodes in (flat.keys, flat.arguments))
        streams = self.streams_with(node.child(), [*keys, *arguments])
        port = self.port(streams, [*numbered("k", keys), *numbered("v", arguments)])
        number = self.add(Aggregation(port, _group_plan(flat, port), text=_group_text(flat, self.refusals)))
        producer = Producer(number, self.leaf, tuple(flat.slots))
        self._groups.append(Grouped(producer, node.child(), flat))
        return [self._of_groups(producer, outputs)]

    def _of_groups(self, producer: Producer, outputs: dict[int, Jvm]) -> Stream:
        """The output of an aggregate as a stream, with the values of the scalar subqueries that its columns read."""
        stream = Stream(producer, {identity(slot): slot for slot in producer.attributes})
        shown = {number: self.without_subqueries(output) for number, output in outputs.items()}
        columns = list(producer.attributes)
        for value in self.values_in(shown.values()):
            stream = self._joins.beside([stream], columns, value, [], self.referenced(shown.values()))
            columns.append(value)
        return replace(stream, meaning={number: self.resolve(output, stream) for number, output in shown.items()})

    def joined(
        self,
        streams: list[Stream],
        columns: Sequence[Jvm],
        others: list[Stream],
        theirs: Sequence[Jvm],
        terms: Sequence[Jvm],
        needed: set[int],
    ) -> Stream:
        """The inner join of some rows with others, where all terms are true."""
        return self._joins.pairs(streams, columns, others, theirs, terms, needed)

    def single(self, value: Jvm) -> Stream:
        """The one row of an uncorrelated scalar subquery, as a stream of its value."""
        _, subquery = self._values[identity(value)]
        plan = subquery.plan()
        shown, *others = items(plan.output())
        if others:  # columns of a condition over the outer row, which Spark has not made a join of
            self.refusals.refuse_for_now(
                "a scalar subquery over a row of a joined subquery",
                "Spark evaluates it row by row, and makes no join of it",
                "join with the subquery, grouped by the columns that it is compared by",
            )
        streams = self.streams(plan, {identity(shown)})
        if len(streams) == 1 and self._is_total(streams[0]):
            return replace(streams[0], meaning={identity(value): streams[0].meaning[identity(shown)]})
        # MIN over one row is the value of that row; the count tells whether there are more rows.
        port = self.port(streams, [("v0", shown)])
        aggregates = [
            Aggregate("min", 0, port.fields[0].type, str(shown.sql())),
            Aggregate("count", None, SqlType("bigint"), "count(*)"),
        ]
        flat = Flat(shape=Shape.TOTAL, arguments=[shown], aggregates=aggregates)
        number = self.add(Aggregation(port, _group_plan(flat, port), single=True, text="the one row of a subquery"))
        return self.given(number, [(value, "a0")])

    def _is_total(self, stream: Stream) -> bool:
        number = stream.producer.number
        if number is None or stream.filters or stream.times is not None:
            return False
        node = self.nodes[number]
        return isinstance(node, Aggregation) and node.plan.shape is Shape.TOTAL

    # -- feeds ----------------------------------------------------------------------------------------------------

    def add(self, node: Node) -> int:
        """Append an operator, and return the number by which it and its feeds are known."""
        self.nodes.append(node)
        return len(self.nodes) - 1

    def given(self, number: int, columns: Sequence[tuple[Jvm, str]]) -> Stream:
        """The output of an operator as a stream; `columns` pairs the plan's attributes with the operator's fields."""
        own = [self.catalyst.attribute(name, given.dataType(), given.nullable()) for given, name in columns]
        meaning = {identity(given): attribute for (given, _), attribute in zip(columns, own, strict=True)}
        return Stream(Producer(number, self.leaf, tuple(own)), meaning)

    def port(self, streams: Sequence[Stream], columns: Sequence[tuple[str, Jvm]], side: int = 0) -> Port:
        """End streams in a port of the next operator, with these expressions of the plan as its fields."""
        number, feeds = len(self.nodes), []
        resolved = [[self.resolve(node, stream) for _, node in columns] for stream in streams]
        for i, (stream, nodes) in enumerate(zip(streams, resolved, strict=True)):
            feeds.append(self._feed(stream, nodes, (number, side, i)))
        fields = []
        for j, (name, node) in enumerate(columns):
            type = to_type(node.dataType())
            if type is None:
                self.refusals.refuse_type(node)
            fields.append(Field(name, type, any(bool(nodes[j].nullable()) for nodes in resolved)))
        return Port(tuple(fields), tuple(feeds))

    def _feed(self, stream: Stream, nodes: list[Jvm], feed_id: FeedId) -> Feed:
        producer, names = stream.producer, stream.producer.names
        condition = self.catalyst.conjunction(list(stream.filters))
        for node in [*stream.filters, *nodes]:
            if found := subqueries(node):  # Spark would evaluate it over tables that it has no rows of
                self.refuse(
                    f"the subquery {self.refusals.text(found[0])} at this place",
                    "Headrace has no rule for it",
                    "join the subquery in FROM",
                )
        times = [] if stream.times is None else [stream.times]
        side = MapSide(producer.leaf, condition, nodes, times)
        feed = Feed(
            producer.number,
            None if condition is None else to_expression(condition, names),
            tuple(to_expression(node, names) for node in nodes),
            producer.table,
            "",
            to_expression(times[0], names) if times else None,
        )
        if producer.number is not None:
            self.between[feed_id] = (side, producer.attributes)
            return feed
        source = next(name for name in _copies(producer.table) if name not in self.sides)
        self.sides[source] = side
        return replace(feed, source=source)

    def resolve(self, node: Jvm, stream: Stream) -> Jvm:
        """What an expression of the plan means for the rows of a stream."""
        return self.catalyst.substitute(node, stream.meaning)

    def referenced(self, nodes: Iterable[Jvm]) -> set[int]:
        """The attributes that some expressions read, each by its number."""
        return {identity(a) for node in nodes for a in items(node.references().toSeq())}

    def refuse(self, what: str, why: str, way_out: str) -> NoReturn:
        self.refusals.refuse_for_now(what, why, way_out)


def _group_plan(flat: Flat, port: Port) -> ViewPlan:
    """The plan of an aggregate over the fields of its port."""
    columns = [_column(field) for field in port.fields]
    keys = len(flat.keys)
    return ViewPlan(
        over=Fed(),
        shape=flat.shape,
        keys=tuple(columns[:keys]),
        arguments=tuple(columns[keys:]),
        aggregates=tuple(flat.aggregates),
        having=None,
        outputs=(),
    )


def _column(field: Field) -> Expression:
    return column(field.name, field.type, field.nullable)


def _group_text(flat: Flat, refusals: Refusals) -> str:
    keys = ", ".join(refusals.text(key) for key in flat.keys)
    aggregates = ", ".join(aggregate.sql for aggregate in flat.aggregates)
    if not aggregates:
        return f"DISTINCT {keys}"
    return f"{aggregates} BY {keys}" if keys else aggregates


def _copies(table: str) -> Iterable[str]:
    yield table
    yield from (f"{table}#{i}" for i in count(2))
