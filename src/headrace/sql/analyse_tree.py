"""From SQL text to a view kept by operators: any query that `sql.tree_reader` can read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from headrace.plan.tree import Aggregation, Tree
from headrace.plan.view import Fed
from headrace.sql.catalyst import AnalysedView, plan_of
from headrace.sql.evaluate import CatalystView
from headrace.sql.jvm import Jvm, items, kind
from headrace.sql.query import SqlQuery
from headrace.sql.reads import check_query
from headrace.sql.refusals import Refusals
from headrace.sql.rings import IN_VIEWS, WAY_OUT
from headrace.sql.session import SqlSession
from headrace.sql.tree_reader import ReadView, TreeReader
from headrace.sql.windows import check_sessions


@dataclass(frozen=True)
class AnalysedTree:
    """A query as a tree of operators, with what every view has: plan, schema and Catalyst's expressions.

    Parameters
    ----------
    views : the operators that keep what a view keeps which the query reads, by number.
    """

    tree: Tree
    view: AnalysedView
    views: Mapping[int, str]


def analyse_tree(session: SqlSession, view_name: str, sql: str) -> AnalysedTree:
    """Read the SQL of a view over the tables registered in the session as a tree of operators."""
    return tree_of(SqlQuery(session, view_name, sql))


def tree_of(query: SqlQuery) -> AnalysedTree:
    """Read a view as a tree of operators.

    Raises
    ------
    UnsupportedSQLError : the query is not SQL, or has something in it that no operator can keep.
    SchemaError : the query names a table or a column that does not exist.
    """
    catalyst, refusals = query.session.catalyst, _checked(query)
    optimized, schema = query.reordered, query.schema
    read = TreeReader(catalyst, refusals, _ViewsRead(query)).read(optimized, is_ordered=_is_ordered(query.analysed))
    root = read.tree.root
    finish = plan_of(replace(read.flat, condition=None, keys=[], arguments=[]), schema)
    plan = replace(finish, over=Fed(read.tree.tables), keys=root.plan.keys, arguments=root.plan.arguments, limit=None)
    tree = Tree((*read.tree.nodes[:-1], Aggregation(root.port, plan)))
    not_null = (*(not nullable for _, _, nullable in schema), *[False] * read.flat.hidden)
    view = CatalystView(catalyst, plan, read.flat, read.sides, not_null, read.between)
    return AnalysedTree(tree, AnalysedView(plan, schema, view), read.views)


class _ViewsRead:
    """Finds the queries of the views that a query reads, each of them analysed once."""

    def __init__(self, query: SqlQuery) -> None:
        self._query = query
        self._found: dict[str, ReadView] = {}

    def __call__(self, name: str) -> ReadView | None:
        session = self._query.session
        if name not in session.views:
            return None
        if name not in self._found:
            known = session.views[name]
            inner = SqlQuery(session, name, known.sql)
            refusals = _checked(inner)
            self._found[name] = ReadView(inner.reordered, _is_ordered(inner.analysed), refusals, known.hands_on)
        return self._found[name]


def _checked(query: SqlQuery) -> Refusals:
    """Refuse what no tree of operators has; gives what refuses the rest."""
    analysed = query.analysed
    # Fresh, because query.refusals remembers the IN subqueries that it checked.
    refusals = Refusals(query.view, query.sql, query.refusals.ring_of)
    for name in query.rings:
        refusals.refuse_for_now(f"the aggregate {name}", f"{IN_VIEWS}, not by operators", WAY_OUT)
    check_query(analysed, refusals)
    check_sessions(analysed, refusals)
    _check_sorts(analysed, refusals)
    return refusals


def _is_ordered(analysed: Jvm) -> bool:
    """Whether a query ends in an ORDER BY. A Project above the Sort may drop columns that are only sorted by."""
    node = analysed
    while kind(node) in ("GlobalLimit", "LocalLimit", "Offset", "WithCTE", "Project"):
        node = node.children().last() if kind(node) == "WithCTE" else node.child()
    return kind(node) == "Sort"


def _check_sorts(node: Jvm, refusals: Refusals) -> None:
    """Refuse SORT BY, which arranges rows within partitions and does not change the answer."""
    if kind(node) == "Sort" and not getattr(node, "global")():
        refusals.refuse_sort_by()
    for child in items(node.children()):
        _check_sorts(child, refusals)
