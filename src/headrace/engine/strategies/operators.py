"""Trees of operators: any query that can be kept at all."""

from __future__ import annotations

import hashlib

from headrace.engine.definition import ASKED_FOR, PlannedView, SqlAnswer, TreeChoice
from headrace.engine.explain import Known
from headrace.engine.strategies.kept import Kept
from headrace.engine.strategies.query import Query
from headrace.errors import SchemaError
from headrace.explain.report import Report
from headrace.operators import report
from headrace.operators.tree_view import TreeView
from headrace.plan.tree import Tree
from headrace.thrifty.cost import Cost
from headrace.thrifty.statistics import Statistics
from headrace.thrifty.strategy import OPERATORS
from headrace.thrifty.tree_cost import tree_cost


class Operators(Kept[TreeView, SqlAnswer]):
    """Joins, aggregates and limits as the query's plan has them, each kept up to date."""

    name = OPERATORS

    def offers(self, query: Query) -> bool:
        return query.is_sql and not query.is_of_one_table

    def planned(self, query: Query) -> PlannedView[TreeView, SqlAnswer]:
        query.refuse_factorizing(OPERATORS, "tables are joined as the query's plan says")
        tree, chosen, statistics = query.tree.tree, query.definition.tree, query.statistics
        sources = {feed.source: feed.table for _, _, _, feed in tree.feeds() if feed.producer is None}
        # Sizes that led to the plan lead to it again.
        known = chosen.sizes if chosen else statistics.sizes(sources)
        fingerprint = _fingerprint(tree)
        if chosen and chosen.fingerprint != fingerprint:
            raise SchemaError(
                f"view {query.name!r} was planned otherwise: this version of Spark, or of Headrace, reads its query as "
                "another tree of operators, which the stored state does not fit",
                way_out="open the location with the version that made the view, or drop the view and create it again",
            )
        tables = [statistics.tables[table] for table in sources.values()]
        static = frozenset(table.name for table in tables if table.static)
        growing = frozenset(table.name for table in tables if table.append_only)
        kernel = TreeView(tree, query.seed, query.buckets, known, static, growing)
        plan = TreeChoice(dict(known), fingerprint)
        definition = query.definition.with_choice(OPERATORS, plan=plan, why=query.definition.why or ASKED_FOR)
        return PlannedView(definition, kernel, tree.tables, SqlAnswer(query.tree.view, kernel.layout))

    def estimate(self, plan: PlannedView[TreeView, SqlAnswer], statistics: Statistics) -> Cost:
        return tree_cost(plan.kernel.tree, statistics)

    def explain(self, plan: PlannedView[TreeView, SqlAnswer], known: Known) -> Report:
        return report.report(plan.kernel, known.subject)


def _fingerprint(tree: Tree) -> str:
    """A fingerprint of all that the layout of the state follows from."""
    return hashlib.sha256(repr(tree.nodes).encode()).hexdigest()[:16]
