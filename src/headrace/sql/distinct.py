"""Carry aggregates that are not what Spark takes them for unharmed through its optimizer: those of DISTINCT values.

Spark computes several such aggregates, or one with a FILTER, by multiplying the rows, and no setting turns that off. A
view keeps each of them by itself. What is more, the order in which Spark numbers the copies of a row may change from
one reading of a query to the next, and a view would not find its own plan again. So before a plan is optimized, each
is replaced by a stand-in that has the same type and means nothing to the optimizer: the approximate count of distinct
values, or MAX_BY or MIN_BY of a constant. A stand-in is marked as one half of a split aggregate. No query can say that,
so it is never taken for the user's own.

Other aggregates of DISTINCT values stand for themselves, as half of a split aggregate, and without the DISTINCT.

Two kinds of functions are replaced for good. APPROX_COUNT_DISTINCT is kept as COUNT(DISTINCT x). FIRST, LAST and
ANY_VALUE, which may take any row, are MIN and MAX.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.sql.functions import CHOSEN, DUPLICATES_DO_NOT_MATTER, MARKED_DISTINCT
from headrace.sql.jvm import Catalyst, Jvm, items, kind, option

_STAND_INS = {"HyperLogLogPlusPlus": "count_distinct", "MaxBy": "sum_distinct", "MinBy": "avg_distinct"}
_ERRORS = (0.05, 0.04)  # tell COUNT(DISTINCT x) from that of several expressions; nothing is approximated
_MARK = "Partial"
_SUBQUERIES = ("ScalarSubquery", "Exists", "ListQuery", "LateralSubquery")


def is_kept_distinct(call: Jvm) -> bool:
    """Whether an aggregate is one of DISTINCT values that are kept."""
    function = call.aggregateFunction()
    kept = kind(function) in MARKED_DISTINCT or kind(function) in ("Count", "Sum", "Average")
    return kept and bool(call.isDistinct()) and not str(function.prettyName()).startswith("try_")


def is_marked(call: Jvm) -> bool:
    """Whether an aggregate was written with DISTINCT, which its mark now stands for."""
    return kind(call.mode()) == f"{_MARK}$"


def stands_for(call: Jvm) -> str | None:
    """The DISTINCT aggregate that a stand-in replaces; None for an aggregate that is no stand-in."""
    return _STAND_INS.get(kind(call.aggregateFunction())) if is_marked(call) else None


def hidden_values(function: Jvm, catalyst: Catalyst) -> list[Jvm]:
    """The arguments of the DISTINCT aggregate that a stand-in replaces."""
    if kind(function) != "HyperLogLogPlusPlus":
        return [function.orderingExpr()]
    child, integer = function.child(), catalyst.type("integer")
    if function.relativeSD() == _ERRORS[0]:
        values = [child]
    elif kind(child) == "CreateNamedStruct":
        values = items(child.valExprs())
    else:  # all of them were constants, which the optimizer has made one of: they have one combination
        values = [catalyst.literal(None if child.value().anyNull() else 1, integer)]
    is_null = any(kind(value) == "Literal" and value.value() is None for value in values)
    return [catalyst.literal(None, integer)] if is_null else values


def _has_subquery(plan: Jvm) -> bool:
    return bool(items(plan.subqueries()))


@dataclass(frozen=True)
class DistinctCounts:
    """Replaces such aggregates in an analysed plan."""

    catalyst: Catalyst

    def hide(self, plan: Jvm) -> Jvm:
        """The plan with stand-ins, in its subqueries too; the same object if it has no such aggregate."""
        children = items(plan.children())
        hidden = self.catalyst.with_children(plan, children, [self.hide(child) for child in children])
        return self._with_expressions(hidden) if kind(plan) == "Aggregate" or _has_subquery(plan) else hidden

    def _with_expressions(self, plan: Jvm) -> Jvm:
        """The plan with stand-ins in its own expressions; other nodes than these have no subquery with an aggregate."""
        match kind(plan):
            case "Aggregate":
                if (outputs := self._all_replaced(plan.aggregateExpressions())) is not None:
                    return plan.copy(plan.groupingExpressions(), outputs, plan.child(), plan.hint())
            case "Project":
                if (columns := self._all_replaced(plan.projectList())) is not None:
                    return plan.copy(columns, plan.child())
            case "Filter":
                condition = plan.condition()
                if (replaced := self._replaced(condition)) is not condition:
                    return plan.copy(replaced, plan.child())
            case "Join" if (on := option(plan.condition())) is not None and (replaced := self._replaced(on)) is not on:
                some = self.catalyst.jvm.scala.Some(replaced)
                return plan.copy(plan.left(), plan.right(), plan.joinType(), some, plan.hint())
            case "LateralJoin" if (replaced := self._replaced(plan.right())) is not plan.right():
                return plan.copy(plan.left(), replaced, plan.joinType(), plan.condition())
        return plan

    def _all_replaced(self, sequence: Jvm) -> Jvm | None:
        """A sequence of expressions with stand-ins; None if it has none."""
        nodes = items(sequence)
        replaced = [self._replaced(node) for node in nodes]
        return self.catalyst.seq(replaced) if any(a is not b for a, b in zip(nodes, replaced, strict=True)) else None

    def _replaced(self, node: Jvm) -> Jvm:
        if kind(node) == "AggregateExpression":
            return self._replaced_aggregate(node)
        children = items(node.children())
        replaced = self.catalyst.with_children(node, children, [self._replaced(child) for child in children])
        if kind(node) not in _SUBQUERIES:
            return replaced
        plan = node.plan()
        hidden = self.hide(plan)
        return replaced if hidden is plan else replaced.withNewPlan(hidden)

    def _replaced_aggregate(self, call: Jvm) -> Jvm:
        build = self.catalyst.expressions.aggregate
        function = call.aggregateFunction()
        name = kind(function)
        if name in CHOSEN:
            return self._call(getattr(build, CHOSEN[name])(function.child()), "Complete", call)
        if name == "HyperLogLogPlusPlus":
            return self._call(build.HyperLogLogPlusPlus(function.child(), _ERRORS[0], 0, 0), _MARK, call)
        if not call.isDistinct():
            return call
        if name in DUPLICATES_DO_NOT_MATTER:
            return self._call(function, "Complete", call)
        return self._call(self._function(call), _MARK, call) if is_kept_distinct(call) else call

    def _call(self, function: Jvm, mode: str, call: Jvm) -> Jvm:
        """A call of a function in place of another."""
        build = self.catalyst.expressions.aggregate
        mark = getattr(getattr(build, f"{mode}$"), "MODULE$")
        origin = self.catalyst.jvm.org.apache.spark.sql.catalyst.trees.CurrentOrigin
        before = origin.get()
        origin.set(call.origin())  # so that messages still quote the query
        try:
            return build.AggregateExpression(function, mark, False, call.filter(), call.resultId())
        finally:
            origin.set(before)

    def _function(self, call: Jvm) -> Jvm:
        expressions = self.catalyst.expressions
        function = call.aggregateFunction()
        if kind(function) in MARKED_DISTINCT:
            return function
        values = items(function.children())
        if kind(function) == "Count":
            one = len(values) == 1
            child = values[0] if one else expressions.CreateStruct.create(self.catalyst.seq(values))
            return expressions.aggregate.HyperLogLogPlusPlus(child, _ERRORS[not one], 0, 0)
        nothing = self.catalyst.literal(None, call.dataType())
        by = expressions.aggregate.MaxBy if kind(function) == "Sum" else expressions.aggregate.MinBy
        return by(nothing, values[0])
