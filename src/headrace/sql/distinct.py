"""Carry COUNT(DISTINCT x), SUM(DISTINCT x) and AVG(DISTINCT x) unharmed through Spark's optimizer.

Spark computes several such aggregates, or one with a FILTER, by multiplying the rows, and no setting turns that off. A
view keeps each of them by itself. So before a plan is optimized, each is replaced by a stand-in that has the same type
and means nothing to the optimizer: the approximate count of distinct values, or MAX_BY or MIN_BY of a constant. A
stand-in is marked as one half of a split aggregate. No query can say that, so it is never taken for the user's own.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.sql.jvm import Catalyst, Jvm, items, kind

_STAND_INS = {"HyperLogLogPlusPlus": "count_distinct", "MaxBy": "sum_distinct", "MinBy": "avg_distinct"}
_ERRORS = (0.05, 0.04)  # tell COUNT(DISTINCT x) from that of several expressions; nothing is approximated
_MARK = "Partial"


def is_kept_distinct(call: Jvm) -> bool:
    """Whether an aggregate is a COUNT, SUM or AVG of DISTINCT values."""
    function = call.aggregateFunction()
    kept = kind(function) in ("Count", "Sum", "Average") and not str(function.prettyName()).startswith("try_")
    return kept and bool(call.isDistinct())


def stands_for(call: Jvm) -> str | None:
    """The DISTINCT aggregate that a stand-in replaces; None for an aggregate that is no stand-in."""
    return _STAND_INS.get(kind(call.aggregateFunction())) if kind(call.mode()) == f"{_MARK}$" else None


def hidden_values(function: Jvm) -> list[Jvm] | None:
    """The arguments of the DISTINCT aggregate that a stand-in replaces; None if all of them were constants."""
    if kind(function) != "HyperLogLogPlusPlus":
        return [function.orderingExpr()]
    if function.relativeSD() == _ERRORS[0]:
        return [function.child()]
    return items(function.child().valExprs()) if kind(function.child()) == "CreateNamedStruct" else None


@dataclass(frozen=True)
class DistinctCounts:
    """Replaces the counts, sums and averages of DISTINCT values in an analysed plan by stand-ins."""

    catalyst: Catalyst

    def hide(self, plan: Jvm) -> Jvm:
        """The plan with stand-ins; the same object if it has no such aggregate."""
        children = items(plan.children())
        hidden = self.catalyst.with_children(plan, children, [self.hide(child) for child in children])
        if kind(hidden) != "Aggregate":
            return hidden
        outputs = items(hidden.aggregateExpressions())
        standing_in = [self._replaced(output) for output in outputs]
        if all(old is new for old, new in zip(outputs, standing_in, strict=True)):
            return hidden
        grouping, sequence = hidden.groupingExpressions(), self.catalyst.seq(standing_in)
        return hidden.copy(grouping, sequence, hidden.child(), hidden.hint())

    def _replaced(self, node: Jvm) -> Jvm:
        if kind(node) == "AggregateExpression":
            return self._stand_in(node) if is_kept_distinct(node) else node
        children = items(node.children())
        return self.catalyst.with_children(node, children, [self._replaced(child) for child in children])

    def _stand_in(self, call: Jvm) -> Jvm:
        build = self.catalyst.expressions.aggregate
        mark = getattr(getattr(build, f"{_MARK}$"), "MODULE$")
        origin = self.catalyst.jvm.org.apache.spark.sql.catalyst.trees.CurrentOrigin
        before = origin.get()
        origin.set(call.origin())  # so that messages still quote the query
        try:
            return build.AggregateExpression(self._function(call), mark, False, call.filter(), call.resultId())
        finally:
            origin.set(before)

    def _function(self, call: Jvm) -> Jvm:
        expressions = self.catalyst.expressions
        function = call.aggregateFunction()
        values = items(function.children())
        if kind(function) == "Count":
            one = len(values) == 1
            child = values[0] if one else expressions.CreateStruct.create(self.catalyst.seq(values))
            return expressions.aggregate.HyperLogLogPlusPlus(child, _ERRORS[not one], 0, 0)
        nothing = self.catalyst.literal(None, call.dataType())
        by = expressions.aggregate.MaxBy if kind(function) == "Sum" else expressions.aggregate.MinBy
        return by(nothing, values[0])
