"""Views of one table: a changed row changes its group, and only the groups have to be kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.engine.definition import PlannedView, SqlAnswer
from headrace.engine.explain import Known
from headrace.engine.strategies.kept import Kept
from headrace.engine.strategies.tree import kept_by
from headrace.errors import HeadraceError, UnsupportedSQLError
from headrace.explain.report import Report
from headrace.operators import report
from headrace.operators.tree_view import TreeView
from headrace.plan.tree import over_one_table
from headrace.thrifty.cost import Cost, one_table_cost
from headrace.thrifty.statistics import Statistics
from headrace.thrifty.strategy import ONE_TABLE

if TYPE_CHECKING:
    from headrace.engine.strategies.query import Query


class OneTable(Kept[TreeView, SqlAnswer]):
    """Aggregates of one table, or its rows, filtered and projected."""

    name = ONE_TABLE

    def offers(self, query: Query) -> bool:
        return query.is_of_one_table

    def planned(self, query: Query) -> PlannedView[TreeView, SqlAnswer]:
        analysed = query.summed
        if not query.is_of_one_table:
            raise UnsupportedSQLError(f"view {query.name!r} reads several tables", way_out="leave the strategy out")
        query.check_sums(analysed.plan)
        return kept_by(over_one_table(analysed.plan), query, ONE_TABLE, analysed, {})

    def suits(self, query: Query, refused: Mapping[str, HeadraceError]) -> str:
        return "it reads one table"

    def estimate(self, plan: PlannedView[TreeView, SqlAnswer], statistics: Statistics) -> Cost:
        (table,) = plan.tables
        return one_table_cost(table, statistics)

    def explain(self, plan: PlannedView[TreeView, SqlAnswer], known: Known) -> Report:
        return report.report(plan.kernel, known.subject)
