"""COUNT(DISTINCT x), brought unharmed through the optimizer.

Spark computes several of them, or one with a FILTER, by multiplying the rows, a rewriting that no setting turns off. A
view keeps each of them by itself. So before a plan is optimized, they are replaced by the one aggregate that looks the
same to the optimizer and means nothing to it, the approximate count of distinct values.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.sql.jvm import Catalyst, Jvm, items, kind

HIDDEN = "HyperLogLogPlusPlus"  # what stands for COUNT(DISTINCT x) in an optimized plan

_ERROR = 0.05  # of the approximation, which is never computed


def is_distinct_count(call: Jvm) -> bool:
    """Whether an aggregate is COUNT(DISTINCT x) of one expression."""
    function = call.aggregateFunction()
    return bool(call.isDistinct()) and kind(function) == "Count" and function.children().size() == 1


@dataclass(frozen=True)
class DistinctCounts:
    """Hides the COUNT(DISTINCT x) of an analysed plan."""

    catalyst: Catalyst

    def hide(self, plan: Jvm) -> Jvm:
        """The plan with the stand-ins; itself where it has no COUNT(DISTINCT x)."""
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
            return self._stand_in(node) if is_distinct_count(node) else node
        children = items(node.children())
        return self.catalyst.with_children(node, children, [self._replaced(child) for child in children])

    def _stand_in(self, call: Jvm) -> Jvm:
        build = self.catalyst.expressions.aggregate
        origin = self.catalyst.jvm.org.apache.spark.sql.catalyst.trees.CurrentOrigin
        before = origin.get()
        origin.set(call.origin())  # so that messages still quote the query
        try:
            function = getattr(build, HIDDEN)(call.aggregateFunction().children().head(), _ERROR, 0, 0)
            return build.AggregateExpression(function, call.mode(), False, call.filter(), call.resultId())
        finally:
            origin.set(before)
