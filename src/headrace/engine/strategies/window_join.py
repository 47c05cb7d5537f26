"""Window joins of late streams: they have a call of their own, and there is one way to keep them."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from headrace.engine.definition import PlannedView, WindowAnswer
from headrace.engine.explain import Known
from headrace.engine.strategies.kept import Kept
from headrace.engine.window_joins import plan_window_join
from headrace.explain.report import Report
from headrace.thrifty.cost import Cost
from headrace.thrifty.statistics import Statistics
from headrace.thrifty.strategy import WINDOW_JOIN
from headrace.window import report
from headrace.window.window_view import WindowView

if TYPE_CHECKING:
    from headrace.engine.strategies.query import Query


class WindowJoin(Kept[WindowView, WindowAnswer]):
    """Rows are added to the totals of their windows, and windows that are due are answered."""

    name = WINDOW_JOIN
    kinds: ClassVar[tuple[str, ...]] = (WINDOW_JOIN,)

    def planned(self, query: Query) -> PlannedView[WindowView, WindowAnswer]:
        return plan_window_join(query.name, query.definition, query.statistics.tables, query.seed)

    def estimate(self, plan: PlannedView[WindowView, WindowAnswer], statistics: Statistics) -> Cost:
        tables = {table: table for table in plan.tables}
        return Cost(statistics.of_sources(tables, dict.fromkeys(tables, False)).changed, statistics.units.group)

    def explain(self, plan: PlannedView[WindowView, WindowAnswer], known: Known) -> Report:
        runs = {part: known.reader.runs(known.subject.name, part) for part in plan.kernel.arrangements}
        return report.report(plan.kernel, known.subject, runs)
