"""What strategies have in common: `plan` returns an error instead of raising it, and most leave the choice to costs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Generic

from headrace.engine.definition import A, K, PlannedView
from headrace.engine.explain import Known
from headrace.errors import HeadraceError
from headrace.explain.report import Report
from headrace.thrifty.cost import Cost
from headrace.thrifty.statistics import Statistics

if TYPE_CHECKING:
    from headrace.engine.strategies.query import Query


class Kept(ABC, Generic[K, A]):
    """A strategy of the engine (`thrifty.strategy.Strategy`)."""

    name: str
    kinds: ClassVar[tuple[str, ...]] = ("view",)  # the kinds of definitions that it is offered for
    margin: ClassVar[float] = 1.0
    is_incremental: ClassVar[bool] = True

    def offers(self, query: Query) -> bool:
        return query.definition.kind in self.kinds

    def plan(self, query: Query) -> PlannedView[K, A] | HeadraceError:
        try:
            return self.planned(query)
        except HeadraceError as reason:
            return reason

    @abstractmethod
    def planned(self, query: Query) -> PlannedView[K, A]:
        """Plan a query; raises the reason why that is impossible."""

    def suits(self, query: Query, refused: Mapping[str, HeadraceError]) -> str:
        return ""

    @abstractmethod
    def estimate(self, plan: PlannedView[K, A], statistics: Statistics) -> Cost: ...

    @abstractmethod
    def explain(self, plan: PlannedView[K, A], known: Known) -> Report: ...
