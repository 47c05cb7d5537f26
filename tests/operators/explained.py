"""Explanations of views kept by operators, made without Spark: what tests of the text and the drawing share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace.explain.report import Report, Size, Subject
from headrace.operators.report import report
from headrace.operators.tree_view import TreeView
from headrace.plan.expression import Expression, column
from headrace.plan.over import First, OverFunction
from headrace.plan.tree import Aggregation, Feed, Field, Join, JoinKind, Node, Over, Port, Top, Tree
from headrace.plan.view import Aggregate, Fed, Output, Shape, ViewPlan
from headrace.relation.types import SqlType

BIGINT, BOOLEAN = SqlType("bigint"), SqlType("boolean")
LAST_STEP = {"text": "step 3: 2 rows of sale in 1.5 ms (driver)", "ran": "driver", "why": "2 changed rows"}
COUNT = (Aggregate("count", None, BIGINT, "count(*)"),)


def field(name: str, nullable: bool = False) -> Expression:
    """A column, or a field of an operator."""
    return column(name, BIGINT, nullable)


def above(name: str, least: int = 0) -> Expression:
    """A condition on one column."""
    literal = Expression("literal", BIGINT, f"{least}L", value=least, nullable=False)
    return Expression("GreaterThan", BOOLEAN, f"({name} > {least}L)", (field(name), literal), nullable=False)


def plus(left: str, right: str) -> Expression:
    """Something that is computed."""
    return Expression("Add", BIGINT, f"({left} + {right})", (field(left), field(right)), nullable=False)


class Trees:
    """Builds a tree, operator by operator; each method gives the number of its operator."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._read: dict[str, int] = {}

    def table(self, name: str, *columns: str | Expression, where: Expression | None = None) -> Feed:
        """Rows of a table, as often as it is asked for."""
        self._read[name] = self._read.get(name, 0) + 1
        copy = "" if self._read[name] == 1 else f"#{self._read[name]}"
        outputs = tuple(field(c) if isinstance(c, str) else c for c in columns)
        return Feed(None, where, outputs, name, f"{name}{copy}")

    def given(self, number: int, *fields: str | Expression, where: Expression | None = None) -> Feed:
        """What an operator gives."""
        return Feed(number, where, tuple(field(f) if isinstance(f, str) else f for f in fields))

    def join(
        self,
        left: Feed,
        right: Feed,
        kind: JoinKind = JoinKind.INNER,
        keys: int = 1,
        residual: Expression | None = None,
        outputs: Sequence[str] = ("l0",),
    ) -> int:
        """A join on the first columns of both sides."""
        ports = [_port(letter, [feed]) for letter, feed in (("l", left), ("r", right))]
        safe = (kind is JoinKind.NULL_AWARE,) * keys
        return self._add(Join(kind, ports[0], ports[1], keys, safe, residual, tuple(outputs), ""))

    def group(self, *feeds: Feed, keys: int, aggregates: Sequence[Aggregate] = COUNT) -> int:
        """Groups by the first columns; without aggregates it is DISTINCT, without keys a total."""
        return self._add(_group(feeds, keys, aggregates))

    def top(self, feed: Feed, count: int, offset: int = 0) -> int:
        """The first rows by the first column, the largest first."""
        return self._add(Top(_port("c", [feed]), ((0, True, False),), count, offset))

    def over(self, feed: Feed, functions: Sequence[OverFunction], keys: int = 1, first: First | None = None) -> int:
        """Functions over the rows of partitions by the first columns, in the order of the next one."""
        return self._add(Over(_port("c", [feed]), keys, ((keys, False, True),), tuple(functions), first))

    def answer(self, *feeds: Feed, keys: int | None = None, aggregates: Sequence[Aggregate] = COUNT) -> Tree:
        """The whole tree: groups, or the rows if no keys are given."""
        plan = _group(feeds, keys, aggregates) if keys is not None else _rows(feeds)
        self._add(plan)
        return Tree(tuple(self.nodes))

    def _add(self, node: Node) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1


def _port(letter: str, feeds: Sequence[Feed]) -> Port:
    fields = tuple(Field(f"{letter}{i}", e.type, e.nullable) for i, e in enumerate(feeds[0].outputs))
    return Port(fields, tuple(feeds))


def _group(feeds: Sequence[Feed], keys: int, aggregates: Sequence[Aggregate]) -> Aggregation:
    fields = _port("x", feeds).fields
    names = [f"k{i}" if i < keys else f"v{i - keys}" for i in range(len(fields))]
    port = Port(tuple(Field(n, f.type, f.nullable) for n, f in zip(names, fields, strict=True)), tuple(feeds))
    columns = tuple(column(f.name, f.type, f.nullable) for f in port.fields)
    shape = Shape.GROUPS if keys else Shape.TOTAL
    outputs = tuple(Output(f"a{i}", field(f"a{i}")) for i in range(len(aggregates)))
    return Aggregation(port, ViewPlan(Fed(), shape, columns[:keys], columns[keys:], tuple(aggregates), None, outputs))


def _rows(feeds: Sequence[Feed]) -> Aggregation:
    port = _port("k", feeds)
    keys = tuple(column(f.name, f.type, f.nullable) for f in port.fields)
    outputs = tuple(Output(key.sql, key) for key in keys)
    return Aggregation(port, ViewPlan(Fed(), Shape.ROWS, keys, (), (), None, outputs))


def explained(
    tree: Tree,
    sizes: Mapping[str, int] | None = None,
    static: Sequence[str] = (),
    name: str = "v",
    stepped: bool = True,
    buckets: int = 4,
) -> Report:
    """Explain a tree with made-up numbers: what went through its operators, and what they keep."""
    kernel = TreeView(tree, 0, buckets, sizes or {}, frozenset(static))
    held = {
        part: Size(buckets, buckets * (10 + i), buckets * (1000 + 100 * i))
        for i, part in enumerate(kernel.arrangements)
    }
    through = {str(i): [100 * i + 5, 3, 2, 7, 4, 1] for i in range(len(tree.nodes))}
    rows = {table: 1_000 * (i + 1) for i, table in enumerate(tree.tables)}
    last_step = LAST_STEP | {"operators": {name: through}} if stepped else {}
    subject = Subject(
        name, "SELECT ...", "operators", "it was asked for", buckets, sizes=held, rows=rows, last_step=last_step
    )
    return report(kernel, subject)


# -- trees ------------------------------------------------------------------------------------------------------------


def customers() -> Tree:
    """Customers by how many orders they have: query 13 of TPC-H."""
    t = Trees()
    right = t.table("orders", field("o_custkey", nullable=True), "o_orderkey", where=above("o_comment"))
    joined = t.join(t.table("customer", "c_custkey"), right, JoinKind.LEFT, outputs=("l0", "r1"))
    orders = t.group(
        t.given(joined, "l0", "r1"), keys=1, aggregates=(Aggregate("count", 0, BIGINT, "count(o_orderkey)"),)
    )
    return t.answer(t.given(orders, "a0"), keys=1)


def waiting() -> Tree:
    """Suppliers who alone kept an order waiting: query 21 of TPC-H."""
    t = Trees()
    late, columns = above("l_receiptdate"), ("l_orderkey", "l_suppkey")
    others = Expression("EqualTo", BOOLEAN, "(l1.l_suppkey = l2.l_suppkey)", (field("l1"), field("r1")))
    first = t.table("lineitem", *columns, where=late)
    semi = t.join(first, t.table("lineitem", *columns), JoinKind.SEMI, residual=others, outputs=("l0", "l1"))
    alone = t.table("lineitem", *columns, where=late)
    anti = t.join(t.given(semi, "l0", "l1"), alone, JoinKind.ANTI, residual=others, outputs=("l0", "l1"))
    supplier = t.table("supplier", "s_suppkey", "s_name", "s_nationkey")
    supplied = t.join(supplier, t.given(anti, "l1", "l0"), outputs=("l1", "l2", "r1"))
    orders = t.table("orders", "o_orderkey", where=above("o_orderstatus"))
    ordered = t.join(t.given(supplied, "r1", "l1", "l2"), orders, outputs=("l1", "l2"))
    nation = t.table("nation", "n_nationkey", where=above("n_name"))
    there = t.join(t.given(ordered, "l2", "l1"), nation, outputs=("l1",))
    waits = t.group(t.given(there, "l1"), keys=1)
    return t.answer(t.given(t.top(t.given(waits, "a0", "k0"), 100), "c1", "c0"))


WAITING_SIZES = {
    **dict.fromkeys(("lineitem", "lineitem#2", "lineitem#3"), 6_000_000),
    **{"orders": 1_500_000, "supplier": 10_000, "nation": 25},
}


def star(points: int) -> Tree:
    """A table that is joined with many others, one after the other."""
    t = Trees()
    rows = t.table("fact", *(f"k{i}" for i in range(points)))
    for i in range(points):
        joined = t.join(rows, t.table(f"d{i}", f"d{i}"), outputs=tuple(f"l{j}" for j in range(points - i)))
        rows = t.given(joined, *(f"l{j}" for j in range(1, points - i)), "l0")
    return t.answer(rows, keys=1)


def shared() -> Tree:
    """An aggregate that two operators read, a UNION ALL, DISTINCT, and what is computed on the way."""
    t = Trees()
    sums = t.group(t.table("sale", "shop", plus("price", "fee")), keys=1)
    most = t.group(t.given(sums, "a0"), keys=0, aggregates=(Aggregate("max", 0, BIGINT, "max(total)"),))
    best = t.join(t.given(sums, "a0", "k0", where=above("a0", 10)), t.given(most, "a0"), outputs=("l1",))
    names = t.group(t.given(best, "l1"), t.table("closed", "shop"), keys=1, aggregates=())
    return t.answer(t.given(names, "k0"))


def unlike() -> Tree:
    """NOT IN, a full outer join, a join without keys, and OFFSET."""
    t = Trees()
    seen = t.join(
        t.table("sale", field("shop", nullable=True), "price"),
        t.table("closed", field("closed_shop", nullable=True)),
        JoinKind.NULL_AWARE,
        outputs=("l0", "l1"),
    )
    both = t.join(
        t.given(seen, field("l0", nullable=True), "l1"),
        t.table("shop", field("shop_id", nullable=True), "town"),
        JoinKind.FULL,
        outputs=("l1", "r1"),
    )
    every = t.join(t.given(both, "l1", "r1"), t.table("fee", "fee"), keys=0, residual=above("l0"), outputs=("l0", "r0"))
    return t.answer(t.given(t.top(t.given(every, "l0", "r0"), 10, offset=5), "c0"), keys=0)
