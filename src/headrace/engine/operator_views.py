"""When a view is kept by operators, and how it is planned then: any query that can be kept at all."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from headrace.engine.definition import Definition, PlannedView, refuse_factorizing
from headrace.errors import SchemaError
from headrace.operators.tree_view import TreeView
from headrace.plan.tree import Tree
from headrace.sql.analyse_tree import analyse_tree
from headrace.sql.session import SqlSession
from headrace.thrifty.statistics import Statistics

OPERATORS = "operators"


@dataclass(frozen=True)
class OperatorsPlanner:
    """Plans views as trees of operators for one engine."""

    sql: SqlSession
    seed: int
    buckets: int

    def plan(self, name: str, definition: Definition, statistics: Statistics) -> PlannedView:
        """Plan a view by operators."""
        refuse_factorizing(name, definition, OPERATORS, "tables are joined as the query's plan says")
        analysed = analyse_tree(self.sql, name, definition.sql)
        tree, chosen = analysed.tree, definition.chosen
        sources = {feed.source: feed.table for _, _, _, feed in tree.feeds() if feed.producer is None}
        # Sizes that led to the plan lead to it again.
        known = chosen["sizes"] if "sizes" in chosen else statistics.sizes(sources)
        digest = _digest(tree)
        if chosen.get("tree", digest) != digest:
            raise SchemaError(
                f"view {name!r} was planned otherwise: this version of Spark, or of Headrace, reads its query as "
                "another tree of operators, which the stored state does not fit",
                way_out="open the location with the version that made the view, or drop the view and create it again",
            )
        static = frozenset(table for table in sources.values() if statistics.tables[table].static)
        growing = frozenset(table for table in sources.values() if statistics.tables[table].append_only)
        kernel = TreeView(tree, self.seed, self.buckets, known, static, growing)
        choice = {
            "strategy": OPERATORS,
            "sizes": dict(known),
            "tree": digest,
            "why": chosen.get("why", "it was asked for"),
        }
        return PlannedView(replace(definition, chosen=choice), analysed.view, kernel, kernel.layout)


def _digest(tree: Tree) -> str:
    """A fingerprint of all that the layout of the state follows from."""
    return hashlib.sha256(repr(tree.nodes).encode()).hexdigest()[:16]
