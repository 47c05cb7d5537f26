"""Which strategy a view gets when its user leaves the choice to Headrace: the one whose steps are estimated cheapest.

Every strategy that can keep the view is planned and asked what a step would cost; those that cannot say why. The winner
is written down with its reason. EXPLAIN ANALYZE (`engine.analysis`) compares them again, for tables as they are then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.engine.definition import Definition, PlannedView
from headrace.errors import HeadraceError
from headrace.factorized.join_view import JoinView
from headrace.foreign.planner import FOREIGN
from headrace.foreign.view import ForeignView
from headrace.operators.tree_view import TreeView
from headrace.operators.view import AggregateView
from headrace.thrifty.chain_cost import chain_cost
from headrace.thrifty.cost import Cost, one_table_cost, recompute_cost, time_text
from headrace.thrifty.statistics import Statistics
from headrace.thrifty.tree_cost import tree_cost
from headrace.thrifty.view_tree_cost import view_tree_cost

ONE_TABLE, FACTORIZED, RECOMPUTE = "one table", "factorized", "recompute"
NOTHING_KNOWN = "its tables are empty, so the shape of the query decides, and not their sizes"
MARGIN = 4  # estimates tell thousands from millions, and not much more


@dataclass
class Choice:
    """The strategies of one view: what each is estimated to cost, or why it cannot keep the view."""

    statistics: Statistics
    planned: dict[str, PlannedView] = field(default_factory=dict)
    costs: dict[str, Cost] = field(default_factory=dict)
    refused: dict[str, HeadraceError] = field(default_factory=dict)

    def consider(self, strategy: str, plan: Callable[[], PlannedView]) -> None:
        """Plan a view by a strategy and estimate its steps, or note why it cannot keep the view."""
        try:
            self.planned[strategy] = plan()
        except HeadraceError as error:
            self.refused[strategy] = error
        else:
            self.costs[strategy] = self._cost(self.planned[strategy])

    def cheapest(self) -> str:
        """The strategy with the cheapest steps among those that can keep the view."""
        return min(self.planned, key=lambda strategy: self.costs[strategy].seconds)

    def knows_sizes(self, tables: Iterable[str]) -> bool:
        """Whether the rows of some table are known, or expected."""
        return self.statistics.knows(tables)

    def is_full_cheaper(self, than: str) -> bool:
        """Whether running the query again is so much cheaper that even poor estimates leave no doubt."""
        return MARGIN * self.costs[RECOMPUTE].seconds < self.costs[than].seconds

    def recompute(self, tables: Iterable[str]) -> None:
        """Estimate what Spark would take to run the query at every step."""
        self.costs[RECOMPUTE] = recompute_cost(tables, self.statistics)

    def made(self, strategy: str, why: str) -> PlannedView:
        """The chosen view, with the reason written down."""
        view = self.planned[strategy]
        return replace(view, definition=replace(view.definition, chosen={**view.definition.chosen, "why": why}))

    def to_json(self) -> list[dict[str, Any]]:
        """All strategies, the cheapest first, then those that cannot keep the view."""
        found: list[dict[str, Any]] = []
        for strategy, cost in sorted(self.costs.items(), key=lambda item: item[1].seconds):
            found.append({"strategy": strategy, "seconds": cost.seconds, "rows": cost.rows, "most": cost.most()})
        return found + [
            {"strategy": strategy, "refused": error.what.partition(": ")[2] or error.what}
            for strategy, error in self.refused.items()
        ]

    def _cost(self, view: PlannedView) -> Cost:
        kernel, statistics = view.kernel, self.statistics
        if isinstance(kernel, TreeView):
            return tree_cost(kernel.tree, statistics)
        if isinstance(kernel, AggregateView):
            return one_table_cost(kernel.layout.plan.table, statistics)
        if isinstance(kernel, ForeignView):
            return chain_cost(kernel.chain, kernel.rows.sources, statistics)
        assert isinstance(kernel, JoinView)
        return view_tree_cost(kernel.plan, kernel.join, statistics)


def why_cheapest(choice: Choice, strategy: str) -> str:
    """Say why a strategy won, in a clause."""
    if len(choice.planned) == 1 and strategy in choice.planned:
        others = [name for name in (FACTORIZED, FOREIGN) if name in choice.refused]
        return f"no other strategy keeps it ({', '.join(others)} cannot)" if others else "no other strategy keeps it"
    rest = {other: cost for other, cost in choice.costs.items() if other != strategy}
    against = min(rest, key=lambda other: rest[other].seconds)
    return (
        f"its steps are estimated cheapest: {time_text(choice.costs[strategy].seconds)}, "
        f"against {time_text(rest[against].seconds)} by {against}"
    )


def is_open(definition: Definition) -> bool:
    """Whether a choice is still to be made."""
    return definition.asked.get("strategy", "auto") == "auto" and not definition.chosen
