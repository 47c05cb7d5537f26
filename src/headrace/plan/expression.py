"""Scalar expressions of a plan, free of Spark.

An `Expression` mirrors one node of Catalyst's resolved expression tree: enough to read it, to show it, and, for
the nodes that `plan.native` knows, to evaluate it over Arrow columns with the very semantics Spark gives it.
Everything else is evaluated by Catalyst itself; the expression then only tells what it is and what it reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from headrace.relation.types import SqlType


@dataclass(frozen=True)
class Expression:
    """One node: `op` is "column", "literal", or the name of the Catalyst class (`Add`, `Like`, ...)."""

    op: str
    type: SqlType
    sql: str
    args: tuple[Expression, ...] = ()
    value: object = None
    nullable: bool = True

    @property
    def columns(self) -> frozenset[str]:
        """Names of the columns that this expression reads."""
        if self.op == "column":
            return frozenset([str(self.value)])
        return frozenset().union(*(arg.columns for arg in self.args))

    def over(self, columns: Mapping[str, Expression]) -> Expression:
        """The same expression with others in place of the columns that it reads."""
        if self.op == "column":
            return columns[str(self.value)]
        return replace(self, args=tuple(arg.over(columns) for arg in self.args))

    def __str__(self) -> str:
        return self.sql


def column(name: str, type: SqlType, nullable: bool = True) -> Expression:
    """A reference to a column by name."""
    return Expression("column", type, name, value=name, nullable=nullable)
