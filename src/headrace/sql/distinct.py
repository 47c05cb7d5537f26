"""COUNT(DISTINCT x), SUM(DISTINCT x) and AVG(DISTINCT x), brought unharmed through the optimizer.

Spark computes several of them, or one with a FILTER, by multiplying the rows, a rewriting that no setting turns off. A
view keeps each of them by itself. So before a plan is optimized, they are replaced by aggregates that have the same
type and mean nothing to the optimizer: the approximate count of distinct values, and MAX_BY and MIN_BY of a constant.
What stands in is marked as one half of a split aggregate, which no query can say, so it is never taken for the user's.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.sql.jvm import Catalyst, Jvm, items, kind

_STAND_INS = {"HyperLogLogPlusPlus": "count_distinct", "MaxBy": "sum_distinct", "MinBy": "avg_distinct"}
_ERRORS = (0.05, 0.04)  # of the approximation, which is never computed: for one expression, and for several
_MARK = "Partial"


def is_kept_distinct(call: Jvm) -> bool:
    """Whether an aggregate is a COUNT, SUM or AVG of DISTINCT values."""
    function = call.aggregateFunction()
    kept = kind(function) in ("Count", "Sum", "Average") and not str(function.prettyName()).startswith("try_")
    return kept and bool(call.isDistinct())


def stands_for(call: Jvm) -> str | None:
    """The aggregate that a stand-in stands for; None where it is what it says."""
    return _STAND_INS.get(kind(call.aggregateFunction())) if kind(call.mode()) == f"{_MARK}$" else None


def hidden_values(function: Jvm) -> list[Jvm] | None:
    """What the aggregate that a function stands for has as its arguments; None if they were constants, all of them."""
    if kind(function) != "HyperLogLogPlusPlus":
        return [function.orderingExpr()]
    if function.relativeSD() == _ERRORS[0]:
        return [function.child()]
    return items(function.child().valExprs()) if kind(function.child()) == "CreateNamedStruct" else None


@dataclass(frozen=True)
class DistinctCounts:
    """Hides what an analysed plan counts, sums or averages of DISTINCT values."""

    catalyst: Catalyst

    def hide(self, plan: Jvm) -> Jvm:
        """The plan with the stand-ins; itself where it has nothing to hide."""
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
