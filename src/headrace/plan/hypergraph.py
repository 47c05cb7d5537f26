"""The shape of a join: which relation has which variables, and which variables the answer keeps.

How cheaply a join can be maintained depends on nothing else, so everything that decides about it (query classes,
variable orders) reads this value and no plan, schema or SQL. Columns that must be equal are one variable.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from headrace.errors import SchemaError


@dataclass(frozen=True)
class Relation:
    """One occurrence of a table in a join: a table that is joined with itself is two relations of different names."""

    name: str
    variables: tuple[str, ...]


@dataclass(frozen=True)
class Hypergraph:
    """A join query: variables are vertices, relations are edges, and the `free` variables stay in the answer.

    >>> query = Hypergraph((Relation("R", ("A", "B")), Relation("S", ("A", "C", "E")), Relation("T", ("C", "D"))))
    >>> query.variables, query.join_variables
    (('A', 'B', 'C', 'E', 'D'), ('A', 'C'))
    >>> sorted(query.rels("C")), sorted(query.neighbours("D"))
    (['S', 'T'], ['C'])
    """

    relations: tuple[Relation, ...]
    free: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if name := _repeated(relation.name for relation in self.relations):
            raise SchemaError(
                f"Two relations of the query are called {name}.",
                way_out="Give each occurrence of a table a name of its own, such as an alias.",
            )
        for relation in self.relations:
            if variable := _repeated(relation.variables):
                raise SchemaError(
                    f"Relation {relation.name} has variable {variable} twice.",
                    way_out="Compare the two columns within the relation first, and keep one of them.",
                )
        if variable := _repeated(self.free):
            raise SchemaError(f"Variable {variable} is free twice.", way_out="Name each free variable once.")
        if unknown := set(self.free) - set(self.variables):
            raise SchemaError(
                f"Free variable {min(unknown)} is in no relation of the query.",
                way_out=f"The variables of the query are: {', '.join(self.variables)}.",
            )

    @cached_property
    def variables(self) -> tuple[str, ...]:
        """All variables, in order of first appearance."""
        return tuple(dict.fromkeys(v for relation in self.relations for v in relation.variables))

    @cached_property
    def join_variables(self) -> tuple[str, ...]:
        """The variables that two or more relations share."""
        return tuple(v for v in self.variables if len(self.rels(v)) > 1)

    @cached_property
    def local_variables(self) -> tuple[str, ...]:
        """The bound variables of a single relation: they can be summed away where they are."""
        return tuple(v for v in self.variables if len(self.rels(v)) == 1 and v not in self.free)

    @cached_property
    def _rels(self) -> dict[str, frozenset[str]]:
        names: dict[str, list[str]] = {}
        for relation in self.relations:
            for variable in relation.variables:
                names.setdefault(variable, []).append(relation.name)
        return {variable: frozenset(of) for variable, of in names.items()}

    @cached_property
    def _by_name(self) -> dict[str, Relation]:
        return {relation.name: relation for relation in self.relations}

    def rels(self, variable: str) -> frozenset[str]:
        """The names of the relations that have this variable."""
        return self._rels.get(variable, frozenset())

    def relation(self, name: str) -> Relation:
        """The relation of this name.

        Raises
        ------
        SchemaError : the query has no such relation.
        """
        if name not in self._by_name:
            known = ", ".join(self._by_name)
            raise SchemaError(f"The query has no relation {name}.", way_out=f"Its relations are: {known}.")
        return self._by_name[name]

    def neighbours(self, variable: str) -> frozenset[str]:
        """The variables that share a relation with this one: those on which it depends."""
        return frozenset(v for r in self.relations if variable in r.variables for v in r.variables) - {variable}

    def touching(self, variables: Iterable[str]) -> tuple[Relation, ...]:
        """The relations that have at least one of these variables."""
        names = frozenset[str]().union(*(self.rels(variable) for variable in variables))
        return tuple(relation for relation in self.relations if relation.name in names)

    def components(self) -> list[tuple[str, ...]]:
        """The names of the relations, in groups that are linked by shared variables.

        >>> Hypergraph((Relation("R", ("A",)), Relation("S", ("B",)), Relation("T", ("A",)))).components()
        [('R', 'T'), ('S',)]
        """
        left = list(self.relations)
        found = []
        while left:
            linked, reached = {left[0].name}, set(left[0].variables)
            while more := [r for r in left if r.name not in linked and not reached.isdisjoint(r.variables)]:
                linked.update(r.name for r in more)
                reached.update(v for r in more for v in r.variables)
            found.append(tuple(r.name for r in left if r.name in linked))
            left = [r for r in left if r.name not in linked]
        return found

    def restricted(self, variables: Iterable[str]) -> Hypergraph:
        """The same query over these variables only; relations that have none of them are gone."""
        kept = frozenset(variables)
        projected = (Relation(r.name, _within(r.variables, kept)) for r in self.relations)
        return Hypergraph(tuple(r for r in projected if r.variables), _within(self.free, kept))


def _within(variables: Sequence[str], kept: frozenset[str]) -> tuple[str, ...]:
    return tuple(variable for variable in variables if variable in kept)


def _repeated(names: Iterable[str]) -> str | None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None
