"""What the join under a view computes: sources that bind variables, and sums of products of what they bring.

A join is a set of *sources* (tables, each occurrence a copy of its own) that share *variables*: columns that must be
equal have one name, so every join is a natural join. An aggregate's argument is a sum of *terms*, each a product of
*factors*, and a factor reads one source only. That is the shape that distributes: a factor can be summed where its
source is, before anything is joined.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from headrace.plan.expression import Expression

FactorRef = tuple[int, int]
"""Which source, and which of its factors."""


@dataclass(frozen=True)
class Source:
    """One occurrence of a table in a join: which of its rows take part, and what they bring.

    A row that has NULL in a variable of `required` takes no part: NULL equals nothing.
    """

    name: str  # the table's name, or name#2 for its second copy
    table: str
    condition: Expression | None
    variables: tuple[tuple[str, Expression], ...]  # join and group-by variables, over the table's columns
    factors: tuple[Expression, ...] = ()  # what aggregates multiply, over the table's columns
    required: frozenset[str] = frozenset()

    @cached_property
    def variable_names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.variables)


@dataclass(frozen=True)
class Term:
    """A product of factors, at most one per source, with a sign."""

    sign: int
    factors: tuple[FactorRef, ...]


@dataclass(frozen=True)
class Argument:
    """What one aggregate sums. It is NULL, and left out, where one of the factors in `nullable` is."""

    terms: tuple[Term, ...]
    nullable: tuple[FactorRef, ...]


@dataclass(frozen=True)
class JoinPlan:
    """The join under a view: `keys` and `arguments` say what the view's keys and arguments are made of."""

    sources: tuple[Source, ...]
    keys: tuple[str, ...]  # the variable of each key of the view
    arguments: tuple[Argument, ...]  # one per argument of the view
    cross: bool = False  # the query asks for a product of parts that share no variable (CROSS JOIN)

    @cached_property
    def tables(self) -> tuple[str, ...]:
        """The tables read, each once."""
        return tuple(dict.fromkeys(source.table for source in self.sources))
