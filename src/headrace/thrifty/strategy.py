"""What a strategy is: a way to keep a query, that plans or says why not, estimates and explains.

Everything that differs between strategies is asked of them, so a new one is a file and a place in the tuple. Queries
and plans are the engine's; here is what has to be known of them to choose.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

from headrace.errors import HeadraceError
from headrace.explain.report import Report
from headrace.factorized import planner
from headrace.thrifty.cost import Cost
from headrace.thrifty.statistics import Statistics

ONE_TABLE = "one table"
FACTORIZED, RECURSIVE, FIRST_ORDER = planner.STRATEGIES
FOREIGN_KEY = "foreign-key"
OPERATORS = "operators"
RECOMPUTE = "recompute"
F_SQL = "f-sql"
WINDOW_JOIN = "window join"


class Plan(Protocol):
    """A way to keep one query, made by a strategy."""

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables that the query reads."""
        ...


Q = TypeVar("Q", contravariant=True)
P = TypeVar("P", bound=Plan)


class Strategy(Protocol[Q, P]):
    """A way to keep queries."""

    @property
    def name(self) -> str: ...

    @property
    def margin(self) -> float:
        """How many times cheaper than all others it must be to be chosen; more than 1 for what scans all rows."""
        ...

    @property
    def is_incremental(self) -> bool:
        """Whether a step costs as much as the change; what is not is chosen only beside something that is."""
        ...

    def offers(self, query: Q) -> bool:
        """Whether it is tried for a query that was left to Headrace; all others must be asked for by name."""
        ...

    def plan(self, query: Q) -> P | HeadraceError:
        """A plan, or the reason why there is none."""
        ...

    def suits(self, query: Q, refused: Mapping[str, HeadraceError]) -> str:
        """Why the shape of a query that it has planned speaks for it, in a clause; empty if only numbers can say.

        Parameters
        ----------
        refused : the reasons of the strategies that have no plan.
        """
        ...

    def estimate(self, plan: P, statistics: Statistics) -> Cost:
        """What a step costs by one of its plans."""
        ...

    def explain(self, plan: P, known: Any) -> Report:
        """How a view is kept by one of its plans, what a step costs and why so, from what is known of its state."""
        ...
