"""GROUP BY window(ts, '10 minutes'): the window, a struct of two times, taken apart into its start and its end.

Spark's analyser replaces the function by a column of type STRUCT<start, end>, which no state could be keyed by. So
before a plan is optimized, a grouping by such a column becomes one by its two fields. Where the column itself is used
further up, it is put together again from the fields. Windows are also compared and sorted field by field.

The analyser marks the columns that it makes for windows, and the mark is how they are found. Columns of
`session_window` have another mark. No plan says what they mean: Spark merges sessions only while it runs the query.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import is_not
from typing import TYPE_CHECKING

from headrace.sql.jvm import Catalyst, Jvm, items, kind

if TYPE_CHECKING:
    from headrace.sql.refusals import Refusals

WAY_OUT = "SELECT window.start, window.end"
SLIDING = (
    "a window that slides",
    "one row belongs to several windows, and this strategy gives it to one group",
    'leave the strategy out, or ask for strategy="operators"',
)
_MARK, _SESSION_MARK = "spark.timeWindow", "spark.sessionWindow"
_GROUPING_ID = "spark_grouping_id"
_COMPARED = {"EqualTo", "EqualNullSafe"}


def mentions_window(sql: str) -> bool:
    """Whether a query may have windows of time in it: only functions with `window` in their names make them."""
    return "window" in sql.lower()


def check_sessions(analysed: Jvm, refusals: Refusals) -> None:
    """Refuse session windows."""
    if not mentions_window(refusals.sql):
        return
    for column in items(analysed.output()):
        if column.metadata().contains(_SESSION_MARK):
            refusals.refuse_for_now(
                "session_window",
                "one row can merge two sessions into one, which a view does not follow for now",
                "group by window(ts, '10 minutes'), whose bounds no row moves",
            )
    for child in items(analysed.children()):
        check_sessions(child, refusals)


def is_window(column: Jvm) -> bool:
    """Whether a column, or a field of a schema, is a window of time."""
    return bool(column.metadata().contains(_MARK))


def is_window_type(type: Jvm) -> bool:
    """Whether a type is that of windows."""
    return str(type.simpleString()).startswith("struct<start:timestamp")


def is_sliding(expand: Jvm) -> bool:
    """Whether rows are multiplied for windows that overlap, and not for GROUPING SETS."""
    first = items(items(expand.projections())[0])
    outputs = items(expand.output())
    return any(
        is_window(column) and kind(value) == "CreateNamedStruct" for column, value in zip(outputs, first, strict=True)
    )


@dataclass(frozen=True)
class WindowKeys:
    """Replaces windows by their start and end wherever an analysed plan groups, filters, sorts or joins by them."""

    catalyst: Catalyst

    def split(self, plan: Jvm) -> Jvm:
        """The plan with fields in place of windows; the same object if it has none."""
        children = items(plan.children())
        plan = self.catalyst.with_children(plan, children, [self.split(child) for child in children])
        if kind(plan) == "Aggregate":
            return self._aggregate(plan)
        if kind(plan) == "Filter":
            condition = plan.condition()
            made = self._compared(condition)
            return plan if made is condition else plan.copy(made, plan.child())
        if kind(plan) == "Join":
            return self._join(plan)
        return self._sort(plan) if kind(plan) == "Sort" else plan

    def _aggregate(self, plan: Jvm) -> Jvm:
        groups = items(plan.groupingExpressions())
        windows = [group for group in groups if _is_window(group)]
        if not windows:
            return plan
        keys = [key for group in groups for key in (self._fields(group) if _is_window(group) else [group])]
        old = items(plan.aggregateExpressions())
        outputs = [self._output(output, windows) for output in old]
        if any(map(is_not, old, outputs)) and _has_null_windows(plan):
            return plan  # put together again, a NULL window would not be NULL; left whole, it is refused as a struct
        return plan.copy(self.catalyst.seq(keys), self.catalyst.seq(outputs), plan.child(), plan.hint())

    def _output(self, named: Jvm, windows: Sequence[Jvm]) -> Jvm:
        """An output of an aggregate, with windows put together from its keys; number, name and mark are as before."""
        value = named.child() if kind(named) == "Alias" else named
        made = self._over_fields(value, windows)
        return named if made is value else self.catalyst.renumbered(made, named)

    def _over_fields(self, node: Jvm, windows: Sequence[Jvm]) -> Jvm:
        if kind(node) == "AggregateExpression" or (
            kind(node) == "GetStructField" and any(node.child().semanticEquals(window) for window in windows)
        ):
            return node  # an aggregate's argument reads rows, with whole windows; a window's field is a key itself
        if any(node.semanticEquals(window) for window in windows):
            return self._together(node)
        children = items(node.children())
        return self.catalyst.with_children(node, children, [self._over_fields(child, windows) for child in children])

    def _together(self, window: Jvm) -> Jvm:
        start, end = self._fields(window)
        parts = [self.catalyst.text("start"), start, self.catalyst.text("end"), end]
        return self.catalyst.expressions.CreateNamedStruct(self.catalyst.seq(parts))

    def _join(self, plan: Jvm) -> Jvm:
        if not plan.condition().isDefined():
            return plan
        condition = plan.condition().get()
        made = self._compared(condition)
        if made is condition:
            return plan
        some = self.catalyst.jvm.scala.Option.apply(made)
        return plan.copy(plan.left(), plan.right(), plan.joinType(), some, plan.hint())

    def _compared(self, node: Jvm) -> Jvm:
        """A condition in which windows that are compared are compared field by field."""
        children = items(node.children())
        if kind(node) in _COMPARED and all(map(_is_window, children)):
            pairs = zip(*map(self._fields, children), strict=True)
            return self.catalyst.conjunction([node.withNewChildren(self.catalyst.seq(pair)) for pair in pairs])
        return self.catalyst.with_children(node, children, [self._compared(child) for child in children])

    def _sort(self, plan: Jvm) -> Jvm:
        order = items(plan.order())
        if not any(_is_window(item.child()) for item in order):
            return plan
        made = []
        for item in order:
            fields = self._fields(item.child()) if _is_window(item.child()) else [item.child()]
            made += [item.copy(field, item.direction(), item.nullOrdering(), self.catalyst.seq([])) for field in fields]
        return plan.copy(self.catalyst.seq(made), getattr(plan, "global")(), plan.child(), plan.hint())

    def _fields(self, window: Jvm) -> list[Jvm]:
        nothing = self.catalyst.jvm.scala.Option.empty()
        return [self.catalyst.expressions.GetStructField(window, at, nothing) for at in (0, 1)]


def _is_window(node: Jvm) -> bool:
    return kind(node) == "AttributeReference" and is_window(node)


def _has_null_windows(plan: Jvm) -> bool:
    """Whether a plan may make windows NULL, as ROLLUP and outer joins do; windows are never NULL by themselves."""
    if kind(plan) == "Aggregate" and any(group.sql() == _GROUPING_ID for group in items(plan.groupingExpressions())):
        return True
    if kind(plan) == "Join" and "Outer" in kind(plan.joinType()):
        return True
    return any(map(_has_null_windows, items(plan.children())))
