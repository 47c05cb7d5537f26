"""What a view over a join asks of the joined rows themselves.

Not everything is a sum of products: MIN, COUNT DISTINCT, a condition that compares columns of two tables, or the rows
as they are, need the rows of the join to exist, at least those that change. Here a join is its sources, which share
variables, and expressions over these variables. A part of an expression that reads one source is a variable of that
source, evaluated before anything is joined; what is left reads variables only.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from headrace.plan.expression import Expression
from headrace.plan.join import Source

STAND_IN = "variable"
"""The text that stands for a variable in an expression over joined rows."""


@dataclass(frozen=True)
class JoinedRows:
    """The rows of a join: which are wanted, and the keys and arguments that the view makes of each."""

    sources: tuple[Source, ...]
    condition: Expression | None  # over variables; what reads one source is that source's own condition
    keys: tuple[Expression, ...]
    arguments: tuple[Expression, ...]

    @cached_property
    def tables(self) -> tuple[str, ...]:
        """The tables read, each once."""
        return tuple(dict.fromkeys(source.table for source in self.sources))

    @cached_property
    def shown(self) -> tuple[str, ...]:
        """The variables that the expressions over joined rows read, in order of first appearance."""
        condition = () if self.condition is None else (self.condition,)
        read = frozenset[str]().union(*(e.columns for e in (*condition, *self.keys, *self.arguments)))
        every = dict.fromkeys(name for source in self.sources for name in source.variable_names)
        return tuple(name for name in every if name in read)

    def source(self, name: str) -> Source:
        """The source of this name."""
        return next(source for source in self.sources if source.name == name)


def written(expression: Expression) -> str:
    """An expression over joined rows as SQL, with the names of its variables in it."""
    if expression.op == "column":
        return str(expression.value)
    out, at = "", 0
    for arg in expression.args:
        text = STAND_IN if arg.op == "column" else arg.sql
        start = expression.sql.find(text, at)
        if start < 0:  # its text is not made of the texts of its parts
            return expression.sql
        out += expression.sql[at:start] + written(arg)
        at = start + len(text)
    return out + expression.sql[at:]
