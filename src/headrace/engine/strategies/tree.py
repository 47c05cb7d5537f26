"""From a tree of operators to a planned view, for all strategies that end in a tree.

The sizes that led to a tree are written down, because they lead to the same tree again. A fingerprint of the tree is
written down too: state that was written for one tree must never be read by another.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.engine.definition import ASKED_FOR, PlannedView, SqlAnswer, TreeChoice
from headrace.errors import SchemaError
from headrace.operators.tree_view import TreeView
from headrace.plan.tree import Tree
from headrace.plan.view import Fed

if TYPE_CHECKING:
    from headrace.engine.strategies.query import Query
    from headrace.sql.catalyst import AnalysedView


def sources_of(tree: Tree) -> dict[str, str]:
    """The table of each source that a tree reads."""
    return {feed.source: feed.table for _, _, _, feed in tree.feeds() if feed.producer is None}


def kept_by(
    tree: Tree,
    query: Query,
    strategy: str,
    analysed: AnalysedView,
    sizes: Mapping[str, int],
    feeds: Mapping[str, int] | None = None,
) -> PlannedView[TreeView, SqlAnswer]:
    """Plan a view that is kept by a tree of operators.

    Parameters
    ----------
    sizes : rows of the sources of the query, as far as they were known when the tree was chosen.
    feeds : rows of the sources of the tree, if their names differ from those of the query.
    """
    chosen, fingerprint = query.definition.tree, _fingerprint(tree)
    if chosen and chosen.fingerprint != fingerprint:
        raise SchemaError(
            f"view {query.name!r} was planned otherwise: this version of Spark, or of Headrace, reads its query as "
            "another tree of operators, which the stored state does not fit",
            way_out="open the location with the version that made the view, or drop the view and create it again",
        )
    tables = [query.statistics.tables[table] for table in tree.tables]
    static = frozenset(table.name for table in tables if table.static)
    growing = frozenset(table.name for table in tables if table.append_only)
    kernel = TreeView(tree, query.seed, query.buckets, sizes if feeds is None else feeds, static, growing)
    plan = TreeChoice(dict(sizes), fingerprint)
    if chosen and chosen.placed_for:
        kernel, plan = replace(kernel, placed_for=chosen.placed_for), replace(plan, placed_for=chosen.placed_for)
    definition = query.definition.with_choice(strategy, plan=plan, why=query.definition.why or ASKED_FOR)
    return PlannedView(definition, kernel, tree.tables, SqlAnswer(analysed, kernel.layout))


def _fingerprint(tree: Tree) -> str:
    """A fingerprint of the nodes of a tree, which alone decide the layout of its state."""
    root = replace(tree.root, plan=replace(tree.root.plan, over=Fed(tree.tables)))
    return hashlib.sha256(repr((*tree.nodes[:-1], root)).encode()).hexdigest()[:16]
