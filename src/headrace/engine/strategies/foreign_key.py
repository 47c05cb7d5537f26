"""Joins along declared keys to one root: live tuples, at constant cost per changed row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from headrace.engine.definition import PlannedView
from headrace.engine.strategies.kept import Kept
from headrace.engine.strategies.query import Query
from headrace.errors import HeadraceError, UnsupportedSQLError
from headrace.foreign.planner import foreign_view
from headrace.foreign.view import ForeignView
from headrace.operators.layout import ViewLayout
from headrace.plan.view import Shape
from headrace.thrifty.chain_cost import chain_cost
from headrace.thrifty.cost import Cost
from headrace.thrifty.statistics import Statistics
from headrace.thrifty.strategy import FACTORIZED, FOREIGN_KEY


class ForeignKey(Kept):
    """Tables joined along their foreign keys."""

    name = FOREIGN_KEY

    def offers(self, query: Query) -> bool:
        return query.is_sql and not query.is_of_one_table

    def planned(self, query: Query) -> PlannedView:
        query.refuse_factorizing(FOREIGN_KEY, "tables are joined along their foreign keys")
        analysed, chosen = query.joined_rows, query.definition.chosen
        query.check_sums(analysed.plan)
        layout, rows = ViewLayout(analysed.plan, query.seed), analysed.plan.rows
        assert rows is not None
        # Sizes that led to the plan lead to it again, also where nothing was known.
        sources = {source.name: source.table for source in rows.sources}
        known = chosen["sizes"] if "sizes" in chosen else query.statistics.sizes(sources)
        kernel = foreign_view(query.name, layout, query.statistics.tables, known, query.buckets)
        root, required = kernel.chain.graph.root, analysed.catalyst.flat.root_required
        if required is not None and rows.sources[required].name != root:
            raise UnsupportedSQLError(
                f"view {query.name!r}: {analysed.plan.root_required} cannot be maintained: it is a condition on the "
                f"groups only if a row of {rows.sources[required].name} is joined once, but the root is {root}",
                way_out="make the subquery a view of its own, and combine the answers; or use refresh='full'",
            )
        choice = {"strategy": FOREIGN_KEY, "sizes": known, "why": chosen.get("why", "it was asked for")}
        return PlannedView(replace(query.definition, chosen=choice), analysed, kernel, layout)

    def suits(self, query: Query, refused: Mapping[str, HeadraceError]) -> str:
        """Why live tuples win over sums of products.

        Summing before a join pays where many rows become one sum. Rows as they are, and groups as fine as the rows of a
        table, leave nothing to sum, and then a tuple is cheaper to keep than the sums of its products.
        """
        if FACTORIZED in refused:
            said = refused[FACTORIZED].what.partition(": ")[2]
            return f"it follows foreign keys, and sums of products cannot keep it: {said}"
        plan = query.summed.plan
        assert plan.join is not None
        if plan.shape is Shape.ROWS:
            return "it follows foreign keys, and the joined rows themselves are wanted"
        for source in plan.join.sources:
            key = query.statistics.tables[source.table].key
            grouped = {str(e.value) for name, e in source.variables if e.op == "column" and name in plan.join.keys}
            if key and grouped.issuperset(key):
                return f"it follows foreign keys, and its groups are as fine as the rows of {source.name}"
        return ""

    def estimate(self, plan: PlannedView, statistics: Statistics) -> Cost:
        assert isinstance(plan.kernel, ForeignView)
        return chain_cost(plan.kernel.chain, plan.kernel.rows.sources, statistics)
