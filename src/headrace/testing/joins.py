"""Random joins: tables that share columns, queries over them, and variable orders to maintain these by.

Tables hang together as a tree: each takes some columns of one table before it and has some of its own. The columns
that are joined on have the same name everywhere, so that one set of tables serves NATURAL JOIN, USING and ON.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from headrace.factorized.order import Node, VariableOrder, completed, rebuilt
from headrace.plan.hypergraph import Hypergraph
from headrace.relation.schema import Column, TableSchema
from headrace.relation.types import SqlType

JOINED_ON = ["int", "bigint", "decimal(9,2)", "double", "string", "date"]
OWN = ["int", "bigint", "decimal(9,2)", "decimal(12,4)", "double", "string", "date"]


@dataclass(frozen=True)
class Join:
    """Tables that can be joined: each after the first with `parents[i]`, a table before it, on `shared[i]`."""

    tables: tuple[TableSchema, ...]
    parents: tuple[int, ...]
    shared: tuple[tuple[str, ...], ...]

    @property
    def joined_on(self) -> tuple[str, ...]:
        """The columns that tables share."""
        return tuple(dict.fromkeys(name for names in self.shared for name in names))


def random_join(rng: random.Random, tables: int = 4) -> Join:
    """Two to `tables` tables that form a tree; some columns are joined on, others are a table's own."""
    made: list[TableSchema] = []
    parents: list[int] = []
    shared: list[tuple[str, ...]] = []
    joins: list[list[str]] = []
    kinds: dict[str, str] = {}
    for i in range(rng.randint(2, tables)):
        parent = rng.randrange(i) if i else -1
        common = rng.sample(joins[parent], rng.randint(1, min(2, len(joins[parent])))) if i else []
        fresh = [f"j{len(kinds) + n}" for n in range(rng.choice([1, 1, 2]))]
        kinds |= {name: rng.choice(JOINED_ON) for name in fresh}
        names = [*common, *fresh]
        columns = [Column(name, _joined_type(rng, kinds[name]), rng.random() < 0.6) for name in names]
        columns += [
            Column(f"t{i}_x{n}", SqlType.parse(rng.choice(OWN)), rng.random() < 0.6) for n in range(rng.randint(1, 3))
        ]
        rng.shuffle(columns)
        key: tuple[str, ...] = ()
        if rng.random() < 0.3:
            columns.append(Column(f"t{i}_id", SqlType("bigint"), False))
            key = (f"t{i}_id",)
        made.append(TableSchema.of(f"t{i}", columns, key))
        parents.append(parent)
        shared.append(tuple(common))
        joins.append(names)
    return Join(tuple(made), tuple(parents), tuple(shared))


def _joined_type(rng: random.Random, kind: str) -> SqlType:
    """Integers of different widths are equal too, once Catalyst has widened one of them."""
    return SqlType(rng.choice(["int", "bigint"])) if kind in ("int", "bigint") else SqlType.parse(kind)


KINDS = ("groups", "groups", "groups", "groups", "total", "rows", "distinct")


def random_join_query(rng: random.Random, join: Join, kinds: Sequence[str] = KINDS) -> str:
    """SELECT over some of the tables, with any of WHERE, GROUP BY, HAVING, and sums of products across tables."""
    return _Query(rng, join).sql(kinds)


class _Query:
    """One query in the making: which tables it joins, how, and by what name it may call a column."""

    def __init__(self, rng: random.Random, join: Join) -> None:
        self.rng = rng
        self.join = join
        self.tables = rng.randint(2, len(join.tables))  # a table's parent is before it
        self.style = rng.choice(["natural", "using", "on", "where"])

    def sql(self, kinds: Sequence[str]) -> str:
        kind = self.rng.choice(kinds)
        from_, equalities = self._from()
        terms = equalities + [self._condition() for _ in range(self.rng.choice([0, 0, 1, 2]))]
        where = f" WHERE {' AND '.join(f'({term})' for term in terms)}" if terms else ""
        if kind in ("rows", "distinct"):
            items = [self._column()[0] for _ in range(self.rng.randint(1, 3))]
            select = ", ".join(f"{item} AS o{i}" for i, item in enumerate(items))
            return f"SELECT {'DISTINCT ' if kind == 'distinct' else ''}{select} FROM {from_}{where}"
        keys = [self._key() for _ in range(self.rng.randint(1, 3))] if kind == "groups" else []
        sums = [self._aggregate() for _ in range(self.rng.randint(1, 4))]
        select = ", ".join(f"{item} AS o{i}" for i, item in enumerate([*keys, *sums]))
        group = f" GROUP BY {', '.join(keys)}" if keys else ""
        having = f" HAVING {self._having()}" if self.rng.random() < 0.3 else ""
        return f"SELECT {select} FROM {from_}{where}{group}{having}"

    def _from(self) -> tuple[str, list[str]]:
        """The FROM clause, and the equalities that belong into WHERE."""
        from_, equalities = "t0", []
        for i in range(1, self.tables):
            shared, parent = self.join.shared[i], self.join.parents[i]
            equal = [f"t{i}.{name} = t{parent}.{name}" for name in shared]
            if self.style == "natural":
                from_ += f" NATURAL JOIN t{i}"
            elif self.style == "using":
                from_ += f" JOIN t{i} USING ({', '.join(shared)})"
            elif self.style == "on":
                from_ += f" JOIN t{i} ON {' AND '.join(equal)}"
            else:
                from_ += f", t{i}"
                equalities += equal
        return from_, equalities

    def _column(self, table: int | None = None) -> tuple[str, Column]:
        """Some column of some table, as this query may call it."""
        number = self.rng.randrange(self.tables) if table is None else table
        column = self.rng.choice(self.join.tables[number].columns)
        plain = column.name not in self.join.joined_on
        return (column.name if plain and self.rng.random() < 0.5 else f"t{number}.{column.name}"), column

    def _number(self, table: int | None = None) -> str | None:
        """A numeric expression of one column; small enough that products of two and their sums fit a BIGINT."""
        for _ in range(20):
            name, column = self._column(table)
            if column.type.is_integer:
                return f"CAST({name} % 1000 AS BIGINT)"
            if column.type.is_numeric:
                return name
        return None

    def _aggregate(self) -> str:
        function = self.rng.choice(["STAR", "COUNT", "SUM", "SUM", "AVG", "PRODUCT", "PRODUCT"])
        argument = "*"
        if function == "COUNT":
            argument = self._column()[0]
        elif function in ("SUM", "AVG"):
            argument = self._number() or "1"
        elif function == "PRODUCT":
            left, right = self.rng.sample(range(self.tables), 2)
            one, other = self._number(left) or "2", self._number(right) or "3"
            argument = self.rng.choice([f"{one} * {other}", f"{one} * {other} - {one}", f"{one} + {other}"])
            function = self.rng.choice(["SUM", "SUM", "COUNT", "AVG"])
        name = "COUNT" if function == "STAR" else function
        suffix = f" FILTER (WHERE {self._condition()})" if self.rng.random() < 0.15 else ""
        return f"{name}({argument}){suffix}"

    def _having(self) -> str:
        return self.rng.choice(["COUNT(*) > 1", "COUNT(*) % 2 = 1", f"COUNT({self._column()[0]}) > 0"])

    def _key(self) -> str:
        name, column = self._column()
        if self.rng.random() < 0.7:
            return name
        if column.type.kind == "string":
            return self.rng.choice([f"upper({name})", f"coalesce({name}, 'none')"])
        if column.type.kind == "date":
            return f"month({name})"
        return f"{name} % 3" if column.type.is_integer else name

    def _condition(self) -> str:
        name, column = self._column()
        kind = column.type.kind
        if self.rng.random() < 0.2:
            return f"{name} IS {self.rng.choice(['', 'NOT '])}NULL"
        if kind == "string":
            return self.rng.choice([f"{name} >= 'ab'", f"{name} IN ('a', 'b', '')", f"length({name}) < 3"])
        if kind == "date":
            return self.rng.choice([f"{name} > DATE'2024-02-28'", f"month({name}) = 2"])
        return self.rng.choice([f"{name} > 0", f"{name} <= 1 OR {name} IS NULL", f"NOT ({name} = 0)"])


def random_order(rng: random.Random, query: Hypergraph, stop: float = 0.0) -> VariableOrder:
    """Take a join apart by random variables; what is still connected stays one branch.

    Parameters
    ----------
    stop : how probable it is that a node does not aggregate (`stop_pushdown`).
    """
    order = VariableOrder(tuple(_branches(rng, query, set(query.variables))))
    return completed(rebuilt(order, lambda node: replace(node, stop_pushdown=rng.random() < stop)), query)


def _branches(rng: random.Random, query: Hypergraph, left: set[str]) -> list[Node]:
    nodes = []
    while left:
        part, new = set[str](), {min(left)}
        while new:
            part |= new
            new = {v for known in new for v in query.neighbours(known) if v in left} - part
        left = left - part
        top = rng.choice(sorted(part))
        nodes.append(Node(top, tuple(_branches(rng, query, part - {top}))))
    return nodes
