"""Joins along declared keys to one root: live tuples, at constant cost per changed row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from headrace.engine.definition import PlannedView, SqlAnswer
from headrace.engine.explain import Known
from headrace.engine.reader import Reader
from headrace.engine.strategies.kept import Kept
from headrace.engine.strategies.tree import kept_by
from headrace.errors import HeadraceError, UnsupportedSQLError
from headrace.explain.report import Report
from headrace.operators import report
from headrace.operators.alive import alive
from headrace.operators.tree_view import TreeView
from headrace.plan.foreign_graph import NotForeign
from headrace.plan.foreign_tree import foreign_tree, graph_of
from headrace.plan.join import JoinPlan
from headrace.plan.rows import JoinedRows
from headrace.plan.view import Shape
from headrace.relation.arrangement import counts
from headrace.thrifty.cost import Cost
from headrace.thrifty.statistics import Statistics
from headrace.thrifty.strategy import FACTORIZED, FOREIGN_KEY
from headrace.thrifty.tree_cost import tree_cost

if TYPE_CHECKING:
    from headrace.engine.strategies.query import Query


class ForeignKey(Kept[TreeView, SqlAnswer]):
    """Tables joined along their foreign keys."""

    name = FOREIGN_KEY
    # A row meets one row of each table that it refers to, for sure. What other strategies meet is a guess, so they are
    # believed only if they are estimated well below.
    margin: ClassVar[float] = 0.6

    def offers(self, query: Query) -> bool:
        return query.is_sql and not query.is_of_one_table and not query.rings

    def planned(self, query: Query) -> PlannedView[TreeView, SqlAnswer]:
        query.refuse_factorizing(FOREIGN_KEY, "tables are joined along their foreign keys")
        plan, chosen = query.joined_rows.view.plan, query.definition.tree
        query.check_sums(plan)
        rows, tables = plan.over, query.statistics.tables
        assert isinstance(rows, JoinedRows)
        graph = graph_of(rows, tables)
        if isinstance(graph, NotForeign):
            raise UnsupportedSQLError(
                f"view {query.name!r} is no foreign-key join: {graph.why}",
                way_out=f"{graph.way_out}; or leave the strategy out",
            )
        # The sizes that led to the plan lead to it again, even where they are unknown.
        sources = {source.name: source.table for source in rows.sources}
        known = chosen.sizes if chosen else query.statistics.sizes(sources)
        made = foreign_tree(plan, graph, known, (chosen and chosen.placed_for) or query.buckets)
        analysed = query.joined_rows.along(made)
        required = analysed.catalyst.flat.root_required
        if required is not None and rows.sources[required].name != graph.root:
            raise UnsupportedSQLError(
                f"view {query.name!r}: {plan.root_required} cannot be maintained: it is a condition on the groups "
                f"only if a row of {rows.sources[required].name} is joined once, but the root is {graph.root}",
                way_out="make the subquery a view of its own, and combine the answers; or use refresh='full'",
            )
        counts = {own: known[source] for own, (source, _) in made.reads.items() if source in known}
        return kept_by(made.tree, query, FOREIGN_KEY, analysed, known, counts)

    def suits(self, query: Query, refused: Mapping[str, HeadraceError]) -> str:
        """Why live tuples are better than sums of products for a query.

        Summing before a join pays where many rows become one sum. A query for plain rows, or with groups as fine as the
        rows of a table, leaves nothing to sum; then a tuple is cheaper to keep than the sums of its products.
        """
        if FACTORIZED in refused:
            said = refused[FACTORIZED].what.partition(": ")[2]
            return f"it follows foreign keys, and sums of products cannot keep it: {said}"
        plan = query.summed.plan
        assert isinstance(plan.over, JoinPlan)
        if plan.shape is Shape.ROWS:
            return "it follows foreign keys, and the joined rows themselves are wanted"
        for source in plan.over.sources:
            key = query.statistics.tables[source.table].key
            grouped = {str(e.value) for name, e in source.variables if e.op == "column" and name in plan.over.keys}
            if key and grouped.issuperset(key):
                return f"it follows foreign keys, and its groups are as fine as the rows of {source.name}"
        return ""

    def estimate(self, plan: PlannedView[TreeView, SqlAnswer], statistics: Statistics) -> Cost:
        return tree_cost(plan.kernel.tree, statistics)

    def explain(self, plan: PlannedView[TreeView, SqlAnswer], known: Known) -> Report:
        kernel, subject = plan.kernel, known.subject
        rows = {part: _rows_in(subject.name, part, known.reader) for part in kernel.arrangements}
        extra = {number: {"alive": found} for number, found in alive(kernel, rows).items()}
        return report.report(kernel, subject, extra=extra)


def _rows_in(view: str, part: str, reader: Reader) -> int:
    """How many rows an arrangement holds, copies counted: the sum of all counts in its runs."""
    total = 0
    for run in reader.runs(view, part):
        run.check(np.arange(run.rows))
        total += int(counts(run.payload).sum())
    return total
