"""The operators of a view in words: what each does, where it runs, what it keeps, and how many rows went through it.

A plan is written for the executor, as numbers that point at each other. Here operators get names and reasons, as values
that JSON can hold; the report is made of these alone.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from headrace.explain.words import counted, cut, listed
from headrace.operators.feeds import why_catalyst
from headrace.operators.kept_words import SIDES, NotKept, not_kept
from headrace.operators.kernel import ViewChange
from headrace.operators.naming import Naming
from headrace.operators.placement import Placer, Places, Way
from headrace.operators.tree_view import TreeView
from headrace.plan.expression import Expression
from headrace.plan.tree import Aggregation, Feed, Join, Node, Over, Top
from headrace.plan.view import Shape

_WAYS = {Way.STAY: "stays", Way.EXCHANGE: "exchanged", Way.EVERYWHERE: "everywhere"}
_BY = 100  # at most so many characters for the columns that decide the bucket


@dataclass(frozen=True)
class DescribedFeed:
    """Rows on their way to an operator: where they come from, what happens to them, and how they get there."""

    producer: int | None  # the number of an operator; None for a table
    table: str
    source: str  # which occurrence of the table
    condition: str | None
    computes: tuple[str, ...]  # computed columns, not those passed on unchanged
    times: str | None  # the expression that says how often each row is repeated
    way: str  # stays | exchanged | everywhere
    moves: str  # the way, in words
    catalyst: str | None  # why Catalyst evaluates the feed; None if kernels do

    @property
    def name(self) -> str:
        """The operator or the source that the rows come from."""
        return self.source if self.producer is None else f"[{self.producer}]"


@dataclass(frozen=True)
class DescribedPort:
    """Where rows enter an operator. Several feeds are a UNION ALL."""

    side: str  # left | right; empty where there is one port
    columns: tuple[str, ...]
    feeds: tuple[DescribedFeed, ...]
    rows: int  # about how many were expected when the view was planned; 0 where nothing was known
    everywhere: str | None  # why these rows are in every bucket; None if they are not


@dataclass(frozen=True)
class DescribedOperator:
    """One operator: what it does, where it runs, and how many rows went through it in the last step."""

    number: int
    kind: str
    text: str  # what it joins on, groups by or sorts by
    residual: str | None  # the condition on pairs of a join, besides equal keys
    ports: tuple[DescribedPort, ...]
    stage: int  # from 1
    where: str  # in which bucket
    why: str
    not_kept: tuple[NotKept, ...]
    takes: str  # what it counts as taken: rows, or groups or distinct rows if they are summed on the way
    taken: ViewChange | None  # None if there was no step yet
    given: ViewChange | None
    extra: Mapping[str, Any]  # further facts about it from the rule that planned the tree
    shared: str = ""  # the shared subplan that does its work; empty if it runs in this view

    @property
    def name(self) -> str:
        return f"[{self.number}]"

    @property
    def said(self) -> str:
        """What the operator does, with the whole condition of a join."""
        if self.residual is None:
            return self.text
        return f"{self.text} {'AND' if self.text.startswith('on ') else 'on'} {self.residual}"

    @property
    def took(self) -> str:
        """What the last step brought to the operator, in words."""
        if self.taken is None:
            return ""
        rows = self.takes == "rows"
        return str(self.taken) if rows else counted(self.taken.inserted, self.takes.removesuffix("s"))

    @property
    def feeds(self) -> Iterator[tuple[DescribedPort, DescribedFeed]]:
        """All feeds of the operator, each with its port."""
        return ((port, feed) for port in self.ports for feed in port.feeds)


@dataclass(frozen=True)
class Stage:
    """Operators that share their buckets: nothing moves between them."""

    number: int  # from 1
    operators: tuple[int, ...]
    arrives: tuple[str, ...]  # the exchanges between operators before this stage, in words


@dataclass(frozen=True)
class Described:
    """Describes the operators of one view."""

    kernel: TreeView
    passing: Mapping[int, tuple[ViewChange, ViewChange]] | None
    extra: Mapping[int, Mapping[str, Any]]

    @cached_property
    def naming(self) -> Naming:
        return Naming(self.kernel.tree)

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        return self.kernel.tree.nodes

    @property
    def _placed_for(self) -> int:
        return self.kernel.placed_for or self.kernel.buckets

    @cached_property
    def _placer(self) -> Placer:
        return Placer(self.kernel.tree, self.kernel.sizes, self._placed_for)

    @cached_property
    def operators(self) -> tuple[DescribedOperator, ...]:
        """All operators, the answer first, each before those it reads from."""
        return tuple(self._operator(number) for number in reversed(range(len(self.nodes))))

    def _operator(self, number: int) -> DescribedOperator:
        node, place = self.nodes[number], self.kernel.placement.places[number]
        kind, text = self._said(number)
        nothing = None if self.passing is None else ViewChange()
        taken, given = (self.passing or {}).get(number, (nothing, nothing))
        return DescribedOperator(
            number=number,
            kind=kind,
            text=text,
            residual=self.naming.residual(number) if isinstance(node, Join) else None,
            ports=tuple(self._port(number, side) for side in range(len(node.ports))),
            stage=place.stage + 1,
            where=self._where(number),
            why=place.why,
            not_kept=tuple(not_kept(self.kernel, number)),
            takes=_takes(node),
            taken=taken,
            given=given,
            extra=self.extra.get(number, {}),
            shared=self._shared.get(number, ""),
        )

    @cached_property
    def _shared(self) -> dict[int, str]:
        """The shared subplan that stands for each operator that does not run in this view."""
        return {
            below: given.by
            for number, given in self.kernel.given.items()
            for below in self.kernel.tree.from_top(number) - self.kernel.own
        }

    def _said(self, number: int) -> tuple[str, str]:
        """The kind of an operator, and its details: what it joins on, groups by or sorts by."""
        node = self.nodes[number]
        names = self.naming.port(number, 0)
        if isinstance(node, Join):
            keys = " AND ".join(" ".join(key) for key in self.naming.keys(number))
            return node.kind.value, f"on {keys}" if keys else "of every row with every row"
        if isinstance(node, Top):
            order = ", ".join(ordered(names[i], descending, first) for i, descending, first in node.order)
            return _first(node), f"by {order}" if order else "in no order that the query asks for"
        if isinstance(node, Over):
            return "window functions", self._said_over(node, names)
        keys = ", ".join(names[: node.keys])
        aggregates = ", ".join(aggregate.sql for aggregate in node.plan.aggregates)
        is_answer = number == len(self.nodes) - 1
        if node.single:
            return "scalar subquery", f"its one row, {aggregates.split(', ')[0]}"
        if node.plan.shape is Shape.ROWS:
            return "answer", f"the rows ({keys})"
        if node.plan.shape is Shape.TOTAL:
            return "answer" if is_answer else "total", aggregates
        if not aggregates:
            return ("answer", f"DISTINCT {keys}") if is_answer else ("DISTINCT", keys)
        return "answer" if is_answer else "aggregate", f"{aggregates} by {keys}"

    def _said_over(self, node: Over, names: Sequence[str]) -> str:
        """The functions of an operator over windows, and what they are over."""
        order = ", ".join(ordered(names[i], descending, first) for i, descending, first in node.order)
        partition = f" by {', '.join(names[: node.keys])}" if node.keys else " over all rows"
        functions = ", ".join(function.sql for function in node.functions)
        if node.first is not None:
            functions = f"{node.first.function} <= {node.first.count:,}: {functions}"
        return f"{functions}{partition}{f' in the order of {order}' if order else ''}"

    def _port(self, number: int, side: int) -> DescribedPort:
        node = self.nodes[number]
        return DescribedPort(
            side=SIDES[side] if len(node.ports) > 1 else "",
            columns=self.naming.port(number, side),
            feeds=tuple(self._feed(number, side, i, feed) for i, feed in enumerate(node.ports[side].feeds)),
            rows=self._placer.side_rows(number, side),
            everywhere=self._why_everywhere(number, side),
        )

    def _feed(self, number: int, side: int, i: int, feed: Feed) -> DescribedFeed:
        route = self.kernel.placement.routes[number, side, i]
        reason = why_catalyst(feed) if feed.producer is None else route.catalyst
        return DescribedFeed(
            producer=feed.producer,
            table=feed.table,
            source=feed.source,
            condition=self.naming.condition(feed),
            computes=tuple(self.naming.on_the_way(feed, e) for e in feed.outputs if e.op not in ("column", "literal")),
            times=None if feed.times is None else self.naming.on_the_way(feed, feed.times),
            way=_WAYS[route.way],
            moves=self._moves(number, side, i),
            catalyst=None if reason is None else self._readable(feed, reason),
        )

    def _readable(self, feed: Feed, reason: str) -> str:
        """Why Catalyst evaluates a feed, with the names of columns in it."""
        for expression in feed.expressions:
            for part in _parts(expression):
                if reason == f"{part.op} in {part.sql}":
                    return f"{part.op} in {self.naming.on_the_way(feed, part)}"
        return reason

    def evaluated(self) -> tuple[str, str]:
        """What evaluates the expressions between operators (kernels or Catalyst), and why."""
        found = []
        for operator in (operator for operator in reversed(self.operators) if not operator.shared):
            for _, feed in operator.feeds:
                if feed.catalyst is not None:
                    rows = f"rows of {feed.source}" if feed.producer is None else f"what {feed.name} gives"
                    found.append(f"{rows} on the way to {operator.name}: {feed.catalyst}")
        if not found:
            return "the kernels on columns", "every expression is one whose result is known to equal Spark's"
        return "the kernels on columns, and Catalyst where only Spark can", "; ".join(found)

    # -- where they run -----------------------------------------------------------------------------------------------

    def _moves(self, number: int, side: int, i: int) -> str:
        """How the rows of a feed get to their operator."""
        way = self.kernel.placement.routes[number, side, i].way
        if way is Way.STAY:
            return "stays in its bucket"
        if way is Way.EVERYWHERE:
            return "to every bucket"
        feed = self.nodes[number].ports[side].feeds[i]
        partition = self.kernel.placement.routes[number, side, i].partition
        by = self._deciding(number, [self.naming.on_the_way(feed, output) for output in feed.outputs], partition)
        return f"by {by}" if by else "to one bucket"

    def _deciding(self, number: int, columns: Sequence[str], partition: Places | None = None) -> str:
        """The columns of a port that decide the bucket."""
        places = self.kernel.placement.places[number].partition if partition is None else partition
        return cut(", ".join(columns[i] for i in places), _BY)

    def _where(self, number: int) -> str:
        """What decides the bucket of a row in an operator: columns of its left side, or of the side that is spread."""
        node, place = self.nodes[number], self.kernel.placement.places[number]
        if len(place.everywhere) == 2:
            return "in every bucket"
        side = place.spread_side
        is_bag = isinstance(node, Aggregation) and node.plan.shape is Shape.ROWS
        if not place.everywhere and not is_bag:
            return self._spread(number, side)
        # Any bucket would do, so each row stays in the bucket that it was in, if it tells which that was.
        routes = self.kernel.placement.routes
        by = (
            self._where(feed.producer)
            if feed.producer is not None and routes[number, side, i].way is Way.STAY
            else self._spread(number, side)
            for i, feed in enumerate(node.ports[side].feeds)
        )
        return " and ".join(dict.fromkeys(by))

    def _spread(self, number: int, side: int) -> str:
        by = self._deciding(number, self.naming.port(number, side))
        return f"by hash of {by}" if by else "in one bucket"

    def _why_everywhere(self, number: int, side: int) -> str | None:
        """Why every bucket has one side of a join; None if it is not in every bucket."""
        everywhere = self.kernel.placement.places[number].everywhere
        if side not in everywhere:
            return None
        if len(everywhere) == 2:
            return "what the join gives is wanted in every bucket"
        node = self.nodes[number]
        mine, other = (self._placer.side_rows(number, s) for s in (side, 1 - side))
        if isinstance(node, Join) and not node.keys:
            return "no column says which rows it is joined with, so it must meet all of them"
        return (
            f"it was expected to have {counted(mine, 'row')} and the other side {other:,}, so {self._placed_for} "
            "copies of it are less than what would have to move"
        )

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """The stages, in the order in which they run."""
        places = self.kernel.placement.places
        return tuple(
            Stage(
                stage + 1,
                tuple(number for number in sorted(self.kernel.own) if places[number].stage == stage),
                tuple(self._arriving(stage)),
            )
            for stage in range(self.kernel.placement.stages)
        )

    def _arriving(self, stage: int) -> Iterator[str]:
        """The exchanges from operators of earlier stages to this stage."""
        placement = self.kernel.placement
        for number, side, i, feed in self.kernel.tree.feeds():
            if feed.producer is None or placement.places[number].stage != stage or number not in self.kernel.own:
                continue
            route = placement.routes[number, side, i]
            if route.way is not Way.STAY:
                giver = self._shared.get(feed.producer)
                source = f"[{feed.producer}]" if giver is None else f"{giver}, in place of [{feed.producer}],"
                yield f"what {source} gives, {self._moves(number, side, i)}"
            elif route.catalyst is not None:
                yield f"what [{feed.producer}] gives, by way of Catalyst and back to its bucket"

    def exchanged(self) -> tuple[str, ...]:
        """What each exchange of a step moves."""
        by_way: dict[str, list[str]] = {}
        for number, side, i, feed in self.kernel.tree.feeds():
            if feed.producer is None and number in self.kernel.own:
                by_way.setdefault(self._moves(number, side, i), []).append(feed.source)
        tables = "; ".join(f"{listed(sources)} {way}" for way, sources in by_way.items())
        later = (f"before stage {s.number}: {'; '.join(s.arrives)}" for s in self.stages if s.arrives)
        return (f"changed rows of {tables}", *later) if tables else tuple(later)


def ordered(name: str, descending: bool, nulls_first: bool) -> str:
    """One item of an ORDER BY; the place of NULLs is mentioned only if it is not Spark's default."""
    nulls = "" if nulls_first is not descending else f" NULLS {'FIRST' if nulls_first else 'LAST'}"
    return f"{name}{' DESC' if descending else ''}{nulls}"


def _parts(expression: Expression) -> Iterator[Expression]:
    yield expression
    for arg in expression.args:
        yield from _parts(arg)


def _takes(node: Node) -> str:
    if not isinstance(node, Aggregation):
        return "rows"
    return "different rows" if node.plan.shape is Shape.ROWS else "groups"


def _first(node: Top) -> str:
    if node.count >= sys.maxsize:
        return f"all rows after the first {node.offset:,}"
    rows = f"the first {node.count:,} rows" if node.count != 1 else "the first row"
    return f"{rows} after {node.offset:,}" if node.offset else rows
