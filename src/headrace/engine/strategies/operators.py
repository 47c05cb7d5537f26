"""Trees of operators: any query that can be kept at all."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.engine.definition import PlannedView, SqlAnswer
from headrace.engine.explain import Known
from headrace.engine.strategies.kept import Kept
from headrace.engine.strategies.tree import kept_by, sources_of
from headrace.explain.report import Report
from headrace.operators import report
from headrace.operators.tree_view import TreeView
from headrace.thrifty.cost import Cost
from headrace.thrifty.statistics import Statistics
from headrace.thrifty.strategy import OPERATORS
from headrace.thrifty.tree_cost import tree_cost

if TYPE_CHECKING:
    from headrace.engine.strategies.query import Query


class Operators(Kept[TreeView, SqlAnswer]):
    """Joins, aggregates and limits as the query's plan has them, each kept up to date."""

    name = OPERATORS

    def offers(self, query: Query) -> bool:
        return query.is_sql and not query.is_of_one_table and not query.rings

    def planned(self, query: Query) -> PlannedView[TreeView, SqlAnswer]:
        query.refuse_factorizing(OPERATORS, "tables are joined as the query's plan says")
        tree, chosen = query.tree.tree, query.definition.tree
        sizes = chosen.sizes if chosen else query.statistics.sizes(sources_of(tree))
        return replace(kept_by(tree, query, OPERATORS, query.tree.view, sizes), views=query.tree.views)

    def estimate(self, plan: PlannedView[TreeView, SqlAnswer], statistics: Statistics) -> Cost:
        return tree_cost(plan.kernel.tree, statistics)

    def explain(self, plan: PlannedView[TreeView, SqlAnswer], known: Known) -> Report:
        return report.report(plan.kernel, known.subject)
