"""The sources of a join in Catalyst's expressions, and which of them an expression reads.

A join is taken apart by asking one question of every expression: whose columns does it read? An expression that reads
one source is evaluated there, however complicated it is. To get that far, a column may be replaced by another that the
join makes equal to it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

from headrace.plan.join import FactorRef, Source
from headrace.sql.evaluate import MapSide
from headrace.sql.flatten import Flat
from headrace.sql.jvm import Catalyst, Jvm, identity, items
from headrace.sql.scalars import to_expression


@dataclass
class SourceSide:
    """One source: its filters, variables and factors, as Catalyst expressions over its own leaf."""

    name: str
    table: str
    leaf: Jvm
    filters: list[Jvm] = field(default_factory=list)
    variables: list[tuple[str, Jvm]] = field(default_factory=list)
    factors: list[Jvm] = field(default_factory=list)
    required: set[str] = field(default_factory=set)

    def map_side(self, catalyst: Catalyst) -> MapSide:
        variables = [node for _, node in self.variables]
        return MapSide(self.leaf, catalyst.conjunction(self.filters), variables, self.factors)

    def source(self, condition: Jvm | None) -> Source:
        """This source as a Spark-free plan."""
        columns = {identity(attribute): attribute.name() for attribute in items(self.leaf.output())}
        return Source(
            name=self.name,
            table=self.table,
            condition=None if condition is None else to_expression(condition, columns),
            variables=tuple((name, to_expression(node, columns)) for name, node in self.variables),
            factors=tuple(to_expression(node, columns) for node in self.factors),
            required=frozenset(self.required),
        )


class Sources:
    """The sources of one join, in the order in which the query names them."""

    def __init__(self, catalyst: Catalyst, flat: Flat) -> None:
        self.catalyst = catalyst
        self.sides: list[SourceSide] = []
        self._owner: dict[int, int] = {}
        self._equal: dict[int, dict[int, Jvm]] = {}  # attribute -> the column of another source that equals it
        taken = {table for table, _ in flat.leaves}  # a table may well be called nation#2
        for table, leaf in flat.leaves:
            copies = (f"{table}#{i}" for i in count(2))
            again = any(side.table == table for side in self.sides)
            name = next(copy for copy in copies if copy not in taken) if again else table
            taken.add(name)
            self._owner.update((identity(attribute), len(self.sides)) for attribute in items(leaf.output()))
            self.sides.append(SourceSide(name, table, leaf))

    def read_by(self, node: Jvm) -> list[int]:
        """The sources whose columns an expression reads, in order."""
        return sorted({self._owner[identity(attribute)] for attribute in items(node.references().toSeq())})

    def equate(self, columns: dict[int, Jvm]) -> None:
        """Let these columns, one per source, replace each other: they are equal in every row of the join."""
        for attribute in columns.values():
            self._equal[identity(attribute)] = columns

    def localised(self, node: Jvm) -> tuple[list[int], Jvm]:
        """The sources that an expression reads, and the expression: over one source if equal columns allow it."""
        read = self.read_by(node)
        if len(read) < 2:
            return read, node
        for home in read:
            away = [a for a in items(node.references().toSeq()) if self._owner[identity(a)] != home]
            stand_ins = {identity(a): self._equal.get(identity(a), {}).get(home) for a in away}
            if None not in stand_ins.values():
                return [home], self.catalyst.substitute(node, stand_ins)
        return read, node

    def factor(self, source: int, node: Jvm) -> FactorRef:
        """The source and position of an expression among the factors; a new factor if there is none like it."""
        factors = self.sides[source].factors
        for i, known in enumerate(factors):
            if node.semanticEquals(known):
                return source, i
        factors.append(node)
        return source, len(factors) - 1

    def qualified(self, node: Jvm) -> Jvm:
        """The expression with the source's name before every column, for people to read."""
        names = {
            identity(a): a.withQualifier(self.catalyst.seq([self.sides[self._owner[identity(a)]].name]))
            for a in items(node.references().toSeq())
        }
        return self.catalyst.substitute(node, names)

    def qualified_names(self) -> dict[int, str]:
        """The name of every attribute, with its source's before it."""
        return {
            identity(attribute): f"{side.name}.{attribute.name()}"
            for side in self.sides
            for attribute in items(side.leaf.output())
        }
