"""The top of a query: what is applied when its answer is read, down to the rows or groups that are kept.

A view keeps the topmost aggregate of its query, or the rows if there is none. Projections and conditions above that are
the *finish*, evaluated when somebody reads the answer. A LIMIT, or an expression with a scalar subquery, is no part of
the finish: it becomes an operator.
"""

from __future__ import annotations

from headrace.plan.view import Shape
from headrace.sql.flatten import Flattener
from headrace.sql.jvm import Catalyst, Jvm, identity, items, kind
from headrace.sql.refusals import Refusals
from headrace.sql.tree_limits import LIMITS, cut, direction
from headrace.sql.tree_streams import subqueries, unnamed

_FINISH = {"Project", "Filter", "Sort", "SubqueryAlias", "View", "ResolvedHint"}


class Root(Flattener):
    """Reads the top of one query."""

    def __init__(self, catalyst: Catalyst, refusals: Refusals, plan: Jvm, *, is_ordered: bool) -> None:
        super().__init__(catalyst, refusals)
        self.base: Jvm = None
        self.conditions: list[Jvm] = []
        self._lowest = _topmost_with_subquery(plan)
        self._fold(plan)
        outputs = [self._meaning[identity(attribute)] for attribute in items(plan.output())]
        if kind(plan) in LIMITS:
            self._sort = self._sorted_below(plan) if is_ordered else []
        self.flat.order = [(self._sorted_output(key, outputs), desc, first) for key, desc, first in self._sort]
        if self.flat.shape is Shape.ROWS:
            self.conditions = self._filters
            self.flat.keys = outputs
            self.flat.outputs = [self._slot(f"k{i}", key) for i, key in enumerate(outputs)]
        else:
            self.flat.having = self.catalyst.conjunction(self._filters)
            self.flat.outputs = outputs

    def _fold(self, node: Jvm) -> None:
        if kind(node) == "Aggregate" and not self._is_lowest(node):
            self._start_at(node.child())
            self._meaning = self.groups(node)
            return
        if kind(node) not in _FINISH or self._is_lowest(node):
            self._start_at(node)
            return
        self._fold(node.child())
        fold = {"Project": self._fold_project, "Filter": self._fold_filter, "Sort": self._fold_sort}
        if kind(node) in fold:
            fold[kind(node)](node)

    def _is_lowest(self, node: Jvm) -> bool:
        return self._lowest is not None and bool(node.equals(self._lowest))

    def _start_at(self, node: Jvm) -> None:
        self.base = node
        self._meaning = {identity(attribute): attribute for attribute in items(node.output())}

    def _sorted_below(self, plan: Jvm) -> list[tuple[Jvm, bool, bool]]:
        """The order of the rows that a LIMIT leaves, in terms of the columns of the query."""
        top = cut(plan, self.refusals)
        if top.limit <= 1:
            return []  # one row has no order; this one may be that of a subquery, where the query's own is left out
        meaning = {identity(attribute): attribute for attribute in items(top.base.output())}
        for project in reversed(top.projects):
            meaning = {identity(n): self.catalyst.substitute(unnamed(n), meaning) for n in items(project.projectList())}
        found = []
        for item in top.order:
            attribute = next(
                (a for a in items(plan.output()) if meaning[identity(a)].semanticEquals(item.child())), None
            )
            if attribute is None:
                self.refusals.refuse_for_now(
                    f"ORDER BY {self.refusals.text(item.child())} with LIMIT over this query",
                    "the first rows are kept without what they are sorted by",
                    "add it to the SELECT list and order by its name",
                )
            found.append((attribute, *direction(item)))
        return found


def _topmost_with_subquery(node: Jvm) -> Jvm | None:
    """The first operator, from the top of the finish, that has a scalar subquery in it."""
    while kind(node) in _FINISH or kind(node) == "Aggregate":
        if any(subqueries(expression) for expression in items(node.expressions())):
            return node
        if kind(node) == "Aggregate":
            return None
        node = node.child()
    return None
