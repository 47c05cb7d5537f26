"""What a strategy is: a way to keep a query. It plans or says why not, estimates, and explains.

All differences between strategies are behind this protocol, so a new strategy is one file and one place in the tuple.
Queries and plans belong to the engine; this module states only what the choice needs to know of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.explain.report import Report
    from headrace.thrifty.cost import Cost
    from headrace.thrifty.statistics import Statistics

ONE_TABLE = "one table"
FACTORIZED, RECURSIVE, FIRST_ORDER = "factorized", "recursive", "first-order"  # as in `factorized.planner`
FOREIGN_KEY = "foreign-key"
OPERATORS = "operators"
RECOMPUTE = "recompute"
F_SQL = "f-sql"
WINDOW_JOIN = "window join"
MATRIX_CHAIN = "matrix chain"


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
        """How many times cheaper than others it must be to be chosen: below 1 if its estimate is the surest."""
        ...

    @property
    def is_incremental(self) -> bool:
        """Whether a step costs in proportion to the change; others are chosen only if an incremental one has a plan."""
        ...

    def offers(self, query: Q) -> bool:
        """Whether the strategy is tried when the user leaves the choice to Headrace, and not only when asked for."""
        ...

    def plan(self, query: Q) -> P | HeadraceError:
        """A plan, or the reason why there is none."""
        ...

    def suits(self, query: Q, refused: Mapping[str, HeadraceError]) -> str:
        """Why the shape of a planned query speaks for this strategy, in a clause; empty if only costs can decide.

        Parameters
        ----------
        refused : the reasons of strategies that have no plan, by name.
        """
        ...

    def estimate(self, plan: P, statistics: Statistics) -> Cost:
        """Estimate the cost of a step by a plan of this strategy."""
        ...

    def explain(self, plan: P, known: Any) -> Report:
        """Report how a plan of this strategy keeps a view, why, and what a step costs, given the state of the view."""
        ...
