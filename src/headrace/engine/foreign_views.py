"""When a view is kept by live tuples, and how it is planned then.

It may be asked for; it may be all there is, because sums of products cannot keep the view; or it may win over them. The
reason is written down with the choice, for EXPLAIN to repeat.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from headrace.engine.definition import Definition, PlannedView, refuse_factorizing
from headrace.errors import HeadraceError, UnsupportedSQLError
from headrace.foreign.planner import FOREIGN, foreign_view
from headrace.operators.layout import ViewLayout
from headrace.plan.view import Shape, ViewPlan
from headrace.relation.schema import TableSchema
from headrace.sql.catalyst import analyse_joined_rows
from headrace.sql.session import SqlSession
from headrace.thrifty.statistics import Statistics


@dataclass(frozen=True)
class ForeignPlanner:
    """Plans views over foreign-key joins for one engine."""

    sql: SqlSession
    seed: int
    buckets: int

    def why(self, by_sums: PlannedView | None, refused: HeadraceError | None, tables: Mapping[str, TableSchema]) -> str:
        """Why live tuples win over sums of products, in the words of the query; empty if only numbers can say.

        Summing before a join pays where many rows become one sum. Rows as they are, and groups as fine as the rows of a
        table, leave nothing to sum, and then a tuple is cheaper to keep than the sums of its products.
        """
        if by_sums is None:
            said = "" if refused is None else refused.what.partition(": ")[2]
            return f"it follows foreign keys, and sums of products cannot keep it: {said}"
        assert by_sums.analysed is not None
        plan = by_sums.analysed.plan
        assert plan.join is not None
        if plan.shape is Shape.ROWS:
            return "it follows foreign keys, and the joined rows themselves are wanted"
        for source in plan.join.sources:
            key = tables[source.table].key
            grouped = {str(e.value) for name, e in source.variables if e.op == "column" and name in plan.join.keys}
            if key and grouped.issuperset(key):
                return f"it follows foreign keys, and its groups are as fine as the rows of {source.name}"
        return ""

    def plan(self, name: str, definition: Definition, statistics: Statistics) -> PlannedView:
        """Plan a view by live tuples; refused where the join does not follow foreign keys."""
        refuse_factorizing(name, definition, FOREIGN, "tables are joined along their foreign keys")
        analysed = analyse_joined_rows(self.sql, name, definition.sql)
        check_sums(name, analysed.plan)
        layout = ViewLayout(analysed.plan, self.seed)
        assert analysed.plan.rows is not None
        chosen = definition.chosen
        # Sizes that led to the plan lead to it again, also where nothing was known.
        known = (
            chosen["sizes"]
            if "sizes" in chosen
            else statistics.sizes({source.name: source.table for source in analysed.plan.rows.sources})
        )
        kernel = foreign_view(name, layout, statistics.tables, known, self.buckets)
        root, required = kernel.chain.graph.root, analysed.catalyst.flat.root_required
        if required is not None and analysed.plan.rows.sources[required].name != root:
            raise UnsupportedSQLError(
                f"view {name!r}: {analysed.plan.root_required} cannot be maintained: it is a condition on the groups "
                f"only if a row of {analysed.plan.rows.sources[required].name} is joined once, but the root is {root}",
                way_out="make the subquery a view of its own, and combine the answers; or use refresh='full'",
            )
        choice = {"strategy": FOREIGN, "sizes": known, "why": chosen.get("why", "it was asked for")}
        return PlannedView(replace(definition, chosen=choice), analysed, kernel, layout)


def check_sums(name: str, plan: ViewPlan) -> None:
    """Refuse sums of what is no number (an interval)."""
    for aggregate in plan.aggregates:
        if aggregate.function in ("sum", "avg") and not aggregate.type.is_numeric:
            raise UnsupportedSQLError(f"view {name!r}: {aggregate.sql} is not numeric", way_out="sum numbers only")
