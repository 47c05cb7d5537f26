"""A query as a tree of operators, free of Spark: what each of them reads, and what it is asked to do.

Only what needs state is an operator: joins, aggregates, the first rows of an order. Everything else, a filter, a
projection, a UNION ALL, happens on the way from one operator to the next: it is part of a *feed*. A *port* is where
changes enter an operator, and several feeds may end in one port, because adding changes is what UNION ALL means.

Fields have names of their own in each operator, by position, so that state written under them is found again whatever
the columns of the query are called: `l0, l1, ...` and `r0, ...` of a join, `k0, ...` and `v0, ...` that an aggregate
takes, `k0, ...` and `a0, ...` that it gives, `c0, ...` of sorted rows, and `w0, ...` of functions over them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from headrace.plan.expression import Expression
from headrace.plan.over import First, OverFunction
from headrace.plan.view import Shape, TableRows, ViewPlan
from headrace.relation.types import SqlType


@dataclass(frozen=True)
class Field:
    """One column of the rows that an operator takes or gives."""

    name: str
    type: SqlType
    nullable: bool


@dataclass(frozen=True)
class Feed:
    """Rows on their way to an operator: from a table, or from another operator.

    Parameters
    ----------
    producer : the number of the operator that the rows come from; None for a table.
    table, source : the table, and which of its occurrences in the query this is.
    condition, outputs : over the fields of the producer, or the columns of the table.
    times : how many times each row counts, where a column says so (INTERSECT ALL, EXCEPT ALL).
    required : outputs that must not be NULL: a row of the table that has NULL there takes no part.
    """

    producer: int | None
    condition: Expression | None
    outputs: tuple[Expression, ...]
    table: str = ""
    source: str = ""
    times: Expression | None = None
    required: tuple[int, ...] = ()

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """All expressions evaluated on the way: the condition, how many times a row counts, and the outputs."""
        others = tuple(part for part in (self.condition, self.times) if part is not None)
        return (*others, *self.outputs)


FeedId = tuple[int, int, int]
"""The number of an operator, of one of its ports, and of a feed there."""


@dataclass(frozen=True)
class Port:
    """Where changes enter an operator."""

    fields: tuple[Field, ...]
    feeds: tuple[Feed, ...]


class JoinKind(Enum):
    """What a join gives. A right outer join is a left one with its sides exchanged."""

    INNER = "inner join"
    LEFT = "left outer join"
    FULL = "full outer join"
    SEMI = "semi join"  # EXISTS, IN
    ANTI = "anti join"  # NOT EXISTS
    NULL_AWARE = "null-aware anti join"  # NOT IN, where NULLs may occur
    FLAG = "existence join"  # EXISTS in an expression: every row, and whether it has a partner
    SINGLE = "single join"  # a correlated scalar subquery: a left outer join with one partner at most

    @property
    def keeps_left(self) -> bool:
        """Whether rows of the left side without a partner are given too."""
        return self not in (JoinKind.INNER, JoinKind.SEMI)

    @property
    def pairs(self) -> bool:
        """Whether rows of both sides are put together."""
        return self in (JoinKind.INNER, JoinKind.LEFT, JoinKind.FULL, JoinKind.SINGLE)


FLAG = "x"  # the field of an existence join


@dataclass(frozen=True)
class Join:
    """Rows of two sides whose keys, the first fields of each port, are equal.

    Parameters
    ----------
    safe : per key, whether NULL equals NULL (`<=>`).
    residual : what else must be true of a pair, over the fields of both sides.
    outputs : the fields that are given, of both sides.
    """

    kind: JoinKind
    left: Port
    right: Port
    keys: int
    safe: tuple[bool, ...]
    residual: Expression | None
    outputs: tuple[str, ...]
    text: str  # the condition, for people

    @property
    def ports(self) -> tuple[Port, ...]:
        return (self.left, self.right)

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        out = []
        known = {field.name: field for port in self.ports for field in port.fields}
        for name in self.outputs:
            if name == FLAG:
                out.append(Field(FLAG, SqlType("boolean"), False))
                continue
            field = known[name]
            optional = self.kind is JoinKind.FULL or (
                name.startswith("r") and self.kind in (JoinKind.LEFT, JoinKind.SINGLE)
            )
            out.append(Field(name, field.type, field.nullable or optional))
        return tuple(out)

    def given_at(self, name: str) -> int | None:
        """The position in its port of a field that is given unchanged; None for the flag of an existence join."""
        return _position(self.ports, name)


@dataclass(frozen=True)
class Aggregation:
    """Aggregates by group, or without groups; with no aggregates it is DISTINCT.

    Parameters
    ----------
    plan : keys, arguments and aggregates; its other parts mean nothing here.
    single : this is a scalar subquery that might give several rows, an error: a0 is its value, a1 its number of rows.
    """

    port: Port
    plan: ViewPlan
    single: bool = False
    text: str = ""

    @property
    def ports(self) -> tuple[Port, ...]:
        return (self.port,)

    @property
    def keys(self) -> int:
        """How many of the first fields of the port are keys."""
        return len(self.plan.keys)

    def given_at(self, name: str) -> int | None:
        """The position in its port of a field that is given unchanged; None for a field that is computed."""
        return int(name[1:]) if name.startswith("k") else None

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        keys = [Field(f"k{i}", key.type, key.nullable) for i, key in enumerate(self.plan.keys)]
        return (*keys, *(Field(f"a{i}", a.type, True) for i, a in enumerate(self.plan.aggregates)))


@dataclass(frozen=True)
class Top:
    """The first rows in an order, after some that are skipped.

    Parameters
    ----------
    order : (field, descending, nulls first), most significant first; other fields break ties.
    """

    port: Port
    order: tuple[tuple[int, bool, bool], ...]
    count: int
    offset: int = 0
    keys = 0  # all rows have one order, so none of their fields decides where they meet

    @property
    def ports(self) -> tuple[Port, ...]:
        return (self.port,)

    def given_at(self, name: str) -> int | None:
        """The position in its port of a field that is given."""
        return _position(self.ports, name)

    @property
    def fields(self) -> tuple[Field, ...]:
        return self.port.fields


@dataclass(frozen=True)
class Over:
    """All rows, each with the values of functions over the rows around it: those of its partition, in an order.

    Parameters
    ----------
    keys : how many of the first fields of the port are the partition.
    order : as that of `Top`; the other fields break ties, so that each row has one place.
    first : which rows are given, by their place in the partition; None for all rows.
    """

    port: Port
    keys: int
    order: tuple[tuple[int, bool, bool], ...]
    functions: tuple[OverFunction, ...]
    first: First | None = None

    @property
    def ports(self) -> tuple[Port, ...]:
        return (self.port,)

    def given_at(self, name: str) -> int | None:
        """The position in its port of a field that is given unchanged; None for the value of a function."""
        return _position(self.ports, name)

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        return (*self.port.fields, *(Field(f"w{i}", f.type, True) for i, f in enumerate(self.functions)))


Node = Join | Aggregation | Top | Over


def _position(ports: tuple[Port, ...], name: str) -> int | None:
    return next((i for port in ports for i, field in enumerate(port.fields) if field.name == name), None)


@dataclass(frozen=True)
class Tree:
    """All operators of a view, each after those it reads from; the last is the view's own answer."""

    nodes: tuple[Node, ...]

    @property
    def root(self) -> Aggregation:
        """The answer: groups, or the rows themselves as a bag."""
        last = self.nodes[-1]
        assert isinstance(last, Aggregation)
        return last

    def feeds(self) -> Iterator[tuple[int, int, int, Feed]]:
        """All feeds, with the number of their operator, of its port, and their own."""
        for number, node in enumerate(self.nodes):
            for side, port in enumerate(node.ports):
                for i, feed in enumerate(port.feeds):
                    yield number, side, i, feed

    def from_top(self, number: int, stop: Collection[int] = ()) -> frozenset[int]:
        """An operator and all below it; those at `stop` are left out, and what only they read."""
        found, left = set[int](), [number]
        while left:
            at = left.pop()
            if at not in stop and at not in found:
                found.add(at)
                feeds = (feed for port in self.nodes[at].ports for feed in port.feeds)
                left += [feed.producer for feed in feeds if feed.producer is not None]
        return frozenset(found)

    @cached_property
    def tables(self) -> tuple[str, ...]:
        """The tables that the query reads."""
        return tuple(dict.fromkeys(feed.table for _, _, _, feed in self.feeds() if feed.producer is None))

    @property
    def totals(self) -> tuple[int, ...]:
        """Operators that have a row before any change has come: aggregates without groups."""
        inner = enumerate(self.nodes[:-1])
        return tuple(n for n, node in inner if isinstance(node, Aggregation) and node.plan.shape is Shape.TOTAL)


def over_one_table(plan: ViewPlan) -> Tree:
    """A view over one table as a tree: one aggregate, fed by the rows of the table."""
    named = [*(("k", i, e) for i, e in enumerate(plan.keys)), *(("v", i, e) for i, e in enumerate(plan.arguments))]
    fields = tuple(Field(f"{letter}{i}", e.type, e.nullable) for letter, i, e in named)
    assert isinstance(plan.over, TableRows)
    table, condition = plan.over.table, plan.over.condition
    feed = Feed(None, condition, (*plan.keys, *plan.arguments), table, table)
    return Tree((Aggregation(Port(fields, (feed,)), plan),))
