"""Functional dependencies of a join, and the query that they make of it: its Sigma-reduct.

Where some columns of a table determine others, their values in a join do, too. A relation may then be thought of as
having all columns that its own determine, and a query that is not hierarchical by its columns may be so by these
(F-IVM, Section 7.3). Nothing is added to the data: the reduct only decides the variable order and what is promised.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from headrace.plan.expression import Expression
from headrace.plan.hypergraph import Hypergraph, Relation
from headrace.plan.join import Source

_INTEGERS = ("tinyint", "smallint", "int", "bigint")


@dataclass(frozen=True)
class Dependency:
    """The values of some variables determine those of others."""

    of: tuple[str, ...]
    determines: tuple[str, ...]

    def __str__(self) -> str:
        return f"{', '.join(self.of)} -> {', '.join(self.determines)}"


def closure(names: Iterable[str], dependencies: Collection[Dependency]) -> frozenset[str]:
    """All names that some names determine, with these themselves.

    >>> sigma = [Dependency(("A",), ("D",)), Dependency(("B", "D"), ("E",))]
    >>> sorted(closure(["A", "B", "C"], sigma))
    ['A', 'B', 'C', 'D', 'E']
    """
    found = set(names)
    while more := {name for d in dependencies if found.issuperset(d.of) for name in d.determines} - found:
        found |= more
    return frozenset(found)


def reduct(query: Hypergraph, dependencies: Collection[Dependency]) -> Hypergraph:
    """The query with every relation, and what it shows, extended by what they determine (Definition 25).

    >>> query = Hypergraph((Relation("R", ("A", "B")), Relation("S", ("B", "C")), Relation("T", ("C", "D"))))
    >>> sigma = [Dependency(("B",), ("C",)), Dependency(("C",), ("D",))]
    >>> [relation.variables for relation in reduct(query, sigma).relations]
    [('A', 'B', 'C', 'D'), ('B', 'C', 'D'), ('C', 'D')]
    >>> from headrace.plan.classes import classes
    >>> classes(query), classes(reduct(query, sigma))[-1]
    (('acyclic', 'free-connex'), 'q-hierarchical')
    """

    def extended(variables: Iterable[str]) -> tuple[str, ...]:
        have = tuple(variables)
        found = closure(have, dependencies)
        return (*have, *(v for v in query.variables if v in found and v not in have))

    relations = tuple(Relation(r.name, extended(r.variables)) for r in query.relations)
    return Hypergraph(relations, extended(query.free))


def dependencies_of(source: Source, of_table: Collection[Dependency]) -> list[Dependency]:
    """The dependencies between the variables of a source that follow from those between columns of its table.

    An expression over columns is determined by them; a column is determined by what widens it, as INT to BIGINT.
    """
    plain = {str(e.value): name for name, e in source.variables if e.op == "column"}
    found = []
    for columns in dict.fromkeys([*(d.of for d in of_table), *((column,) for column in plain)]):
        if plain.keys() >= set(columns):
            known = closure(columns, of_table)
            own = tuple(plain[column] for column in columns)
            follow = tuple(n for n, e in source.variables if n not in own and e.columns and known.issuperset(e.columns))
            found += [Dependency(own, follow)] if follow else []
    for name, expression in source.variables:
        widened = _widened(expression)
        if widened in plain:
            found.append(Dependency((name,), (plain[widened],)))
    return found


def _widened(expression: Expression) -> str | None:
    """The column that an expression only widens, so that different values stay different; else None."""
    if expression.op.lower() != "cast" or len(expression.args) != 1:
        return None
    (child,) = expression.args
    kinds = (child.type.kind, expression.type.kind)
    if child.op != "column" or any(kind not in _INTEGERS for kind in kinds):
        return None
    return str(child.value) if _INTEGERS.index(kinds[0]) <= _INTEGERS.index(kinds[1]) else None
