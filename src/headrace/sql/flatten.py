"""Flatten an optimized plan of projections, filters, joins and at most one aggregate into the three parts of a view.

Operators are folded from the tables upwards, and each column becomes an expression over the layer below: over the
tables' own columns (the map side), or, above the aggregate, over its keys and aggregates (the finish). All joins are
inner ones, so a join is its conditions and nothing else; `sql.equalities` gives each condition to a table.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace

from headrace.operators.asked import SQUARED
from headrace.plan.view import IN_RING, Aggregate, Shape
from headrace.rings.named import NamedRing
from headrace.sql.arguments import arguments_of
from headrace.sql.distinct import hidden_values, is_kept_distinct, is_marked, stands_for
from headrace.sql.functions import DUPLICATES_DO_NOT_MATTER, KEPT, NULL_FOR_ONE
from headrace.sql.jvm import Catalyst, Jvm, conjuncts, identity, items, kind, option
from headrace.sql.membership import Copy, Membership
from headrace.sql.pivot import is_pivot, pivoted
from headrace.sql.refusals import Refusals
from headrace.sql.rings import check_arguments, refuse_rings
from headrace.sql.scalars import to_type
from headrace.sql.session import TABLE_MARK

_TRANSPARENT = {"SubqueryAlias", "View", "ResolvedHint"}


@dataclass
class Flat:
    """A view in Catalyst's expressions: the map side over the leaves' attributes, the finish over k0.. and a0.."""

    leaves: list[tuple[str, Jvm]] = field(default_factory=list)  # each table with its leaf, in the query's order
    products: int = 0  # how often the query says CROSS JOIN
    shape: Shape = Shape.ROWS
    condition: Jvm | None = None
    keys: list[Jvm] = field(default_factory=list)
    arguments: list[Jvm] = field(default_factory=list)
    aggregates: list[Aggregate] = field(default_factory=list)
    slots: list[Jvm] = field(default_factory=list)  # the attributes k0.., a0.. that the finish reads
    having: Jvm | None = None
    outputs: list[Jvm] = field(default_factory=list)
    hidden: int = 0  # how many of the last outputs the answer is only sorted by
    order: list[tuple[int, bool, bool]] = field(default_factory=list)  # output, descending, nulls first
    limit: int | None = None
    membership: str = ""  # the text of an `x IN (SELECT ...)` that became a part of `having`
    root_required: int | None = None  # the leaf of which no row may meet several others: `membership` rests on it

    @property
    def leaf(self) -> Jvm:
        return self.leaves[0][1]


class Flattener:
    """Folds one optimized plan into a `Flat`."""

    def __init__(self, catalyst: Catalyst, refusals: Refusals) -> None:
        self.catalyst = catalyst
        self.refusals = refusals
        self.flat = Flat()
        self._meaning: dict[int, Jvm] = {}
        self._filters: list[Jvm] = []
        self._sort: list[tuple[Jvm, bool, bool]] = []
        self._memberships: list[Membership] = []

    def flatten(self, plan: Jvm) -> Flat:
        self._fold(self._below_limit(plan))
        flat = self.flat
        outputs = [self._meaning[identity(attribute)] for attribute in items(plan.output())]
        flat.order = [(self._sorted_output(key, outputs), desc, first) for key, desc, first in self._sort]
        for membership in self._memberships:
            membership.refuse("the query around it does not group")
        if flat.shape is Shape.ROWS:
            flat.condition = self.catalyst.conjunction(self._filters)
            flat.keys = outputs
            flat.outputs = [self._slot(f"k{i}", key) for i, key in enumerate(outputs)]
        else:
            flat.having = self.catalyst.conjunction(self._filters)
            flat.outputs = outputs
        return flat

    def _below_limit(self, node: Jvm) -> Jvm:
        """Take the query's LIMIT off its plan, where Catalyst writes it twice: for all rows, and per task."""
        while kind(node) in ("GlobalLimit", "LocalLimit"):
            if kind(node.limitExpr()) != "Literal":
                self.refusals.refuse_operator(node)
            self.flat.limit = int(node.limitExpr().value())
            node = node.child()
        return node

    def _fold(self, node: Jvm) -> None:
        fold = {
            "Project": self._fold_project,
            "Filter": self._fold_filter,
            "Sort": self._fold_sort,
            "Aggregate": self._fold_aggregate,
        }.get(kind(node))
        if kind(node) == "LogicalRDD":
            self._fold_leaf(node)
        elif kind(node) in _TRANSPARENT:
            self._fold(node.child())
        elif kind(node) == "Join":
            self._fold_join(node)
        elif fold is None:
            self.refusals.refuse_operator(node)
        else:
            self._fold(node.child())
            fold(node)

    def _fold_leaf(self, node: Jvm) -> None:
        columns = items(node.output())
        marks = [json.loads(column.metadata().json()).get(TABLE_MARK) for column in columns]
        if not marks or marks[0] is None:
            self.refusals.refuse_operator(node)
        self.flat.leaves.append((marks[0], node))
        self._meaning = {identity(column): column for column in columns}

    def _fold_join(self, node: Jvm) -> None:
        if kind(node.joinType()) == "LeftSemi$" and self.refusals.memberships:
            self._fold(node.left())
            self._fold_membership(node)
            return
        self.refusals.check_join(node)
        both = {}
        for side in (node.left(), node.right()):
            self._fold(side)
            both.update(self._meaning)
        if self.flat.shape is not Shape.ROWS:
            self.refusals.refuse_for_now(
                "a join with the answer of an aggregate (or DISTINCT)",
                "a view groups after it joins, for now",
                "make the inner query a view of its own, and join the answers when you read them",
            )
        self.flat.products += kind(node.joinType()) == "Cross$"
        self._meaning = both
        self._sort = []  # the order of what is joined means nothing
        if (condition := option(node.condition())) is not None:
            self._filters.append(self._resolve(condition))

    def _fold_membership(self, node: Jvm) -> None:
        """Set a semi join aside until the groups are known; an inner join above it changes nothing."""
        subquery = Flattener(self.catalyst, self.refusals).flatten(node.right())
        found = Membership(self.refusals, node, subquery)
        if self.flat.shape is not Shape.ROWS:
            found.refuse("it is a condition on the groups of the query, not on its rows")
        self._memberships.append(replace(found, key=self._resolve(found.compared())))

    def _fold_project(self, node: Jvm) -> None:
        self._meaning = {identity(named): self._resolve(named) for named in items(node.projectList())}

    def _fold_filter(self, node: Jvm) -> None:
        self._filters.append(self._resolve(node.condition()))

    def _fold_sort(self, node: Jvm) -> None:
        self._sort = [
            (
                self._resolve(item.child()),
                kind(item.direction()).startswith("Descending"),
                kind(item.nullOrdering()).startswith("NullsFirst"),
            )
            for item in items(node.order())
        ]

    def _fold_aggregate(self, node: Jvm) -> None:
        flat = self.flat
        if flat.shape is not Shape.ROWS:
            self.refusals.refuse_for_now(
                "an aggregate (or DISTINCT) over an aggregate",
                "a view has one level of grouping for now",
                "make the inner query a view, and aggregate its answer",
            )
        flat.condition = self.catalyst.conjunction(self._filters)
        terms = [term for condition in self._filters for term in conjuncts(condition)]
        self._filters, self._sort = [], []  # the order of a subquery means nothing to an aggregate
        self._meaning = self.groups(node)
        for membership in self._memberships:
            self._filters += self._having(membership, membership.copy_in(flat, terms))
        self._memberships = []

    def groups(self, node: Jvm) -> dict[int, Jvm]:
        """Read the keys and aggregates of an Aggregate node, and return its columns as expressions over them."""
        groups = items(node.groupingExpressions())
        self.flat.shape = Shape.GROUPS if groups else Shape.TOTAL
        self.flat.keys = [self._normalised(self._resolve(group)) for group in groups]
        keys = [(group, self._slot(f"k{i}", self.flat.keys[i])) for i, group in enumerate(groups)]
        return {identity(n): self._over_groups(_unnamed(n), keys) for n in items(node.aggregateExpressions())}

    def _having(self, membership: Membership, copy: Copy) -> list[Jvm]:
        """A membership as conditions on the groups; aggregates that the query has too are kept once."""
        flat, inner = self.flat, membership.subquery
        refuse_rings(inner.aggregates, self.refusals, "it is a condition on groups, which are kept by other operators")
        key = flat.slots[copy.key]
        meaning = {identity(inner.slots[0]): key, identity(inner.keys[0]): key}
        arguments = [self.catalyst.substitute(argument, copy.columns) for argument in inner.arguments]
        for aggregate, slot in zip(inner.aggregates, inner.slots[1:], strict=True):
            argument = None if aggregate.argument is None else arguments[aggregate.argument]
            index = None if argument is None else self._argument_index(argument, slot)
            others = tuple(self._argument_index(arguments[i], slot) for i in aggregate.others)
            meaning[identity(slot)] = self._aggregate_slot(replace(aggregate, argument=index, others=others), slot)
        flat.membership = membership.text
        if len(flat.leaves) > 1:
            flat.root_required = copy.leaf
        terms = [self.catalyst.expressions.IsNotNull(key)] if key.nullable() else []  # NULL is IN nothing
        terms += [part for part in (inner.condition, inner.having) if part is not None]
        return [self.catalyst.substitute(term, meaning) for term in terms]

    def _over_groups(self, node: Jvm, keys: list[tuple[Jvm, Jvm]]) -> Jvm:
        """An output of the aggregate, in terms of its keys and aggregates."""
        for group, slot in keys:
            if node.semanticEquals(group):
                return slot
        if kind(node) == "AggregateExpression":
            if is_pivot(node):
                return pivoted(self.catalyst, node.aggregateFunction(), self._aggregate)
            return self._aggregate(node)
        children = items(node.children())
        return self.catalyst.with_children(node, children, [self._over_groups(child, keys) for child in children])

    def _aggregate(self, call: Jvm) -> Jvm:
        function = call.aggregateFunction()
        ring = self.refusals.ring_of(function)
        if ring is not None:
            return self._in_ring(call, ring)
        hidden = stands_for(call)
        name = hidden or KEPT.get(kind(function))
        if name is None or str(function.prettyName()).startswith("try_"):
            self.refusals.refuse_function(call)
        type = to_type(call.dataType())
        if type is None:
            self.refusals.refuse_type(call)
        if name in NULL_FOR_ONE and not function.nullOnDivideByZero():
            self.refusals.refuse_for_now(
                self.refusals.text(call),
                "spark.sql.legacy.statisticalAggregate makes it NaN for a single row, and a view keeps NULL there",
                "leave that setting off when the session starts",
            )
        found, options = arguments_of(name, call, self.refusals)
        if hidden:
            found = hidden_values(function, self.catalyst)
        elif is_marked(call) or is_kept_distinct(call):  # the second in a subquery of an expression
            name = f"{name}_distinct"
        elif call.isDistinct() and kind(function) not in DUPLICATES_DO_NOT_MATTER:
            self.refusals.refuse_distinct(call)
        arguments = self._arguments([self._resolve(value) for value in found], option(call.filter()), name)
        indices = [self._argument_index(argument, call) for argument in arguments]
        if name in ("count", "count_distinct"):
            # Order and repetition do not matter: COUNT(DISTINCT a, b) is COUNT(DISTINCT b, a, a).
            indices = sorted(set(indices))
        first, others = indices[0] if indices else None, tuple(indices[1:])
        text = self.refusals.text(call)
        return self._aggregate_slot(Aggregate(name, first, type, text, others, options=options), call)

    def _in_ring(self, call: Jvm, ring: NamedRing) -> Jvm:
        """The slot of a sum of products in a ring of the user."""
        values = [self._resolve(value) for value in items(call.aggregateFunction().children())]
        types = [to_type(value.dataType()) for value in values]
        check_arguments(values, types, call, self.refusals)
        # Multiplication commutes, so the order of the arguments means nothing; each may come several times.
        first, *others = sorted(self._argument_index(value, call) for value in values)
        type = to_type(call.dataType())
        assert type is not None, "the type in which a ring is shown is checked when it is registered"
        text = self.refusals.text(call)
        return self._aggregate_slot(Aggregate(IN_RING, first, type, text, tuple(others), ring), call)

    def _aggregate_slot(self, aggregate: Aggregate, source: Jvm) -> Jvm:
        """The slot of an aggregate: one that is there already, or a new one."""
        flat = self.flat
        slots = flat.slots[len(flat.keys) :]
        for known, slot in zip(flat.aggregates, slots, strict=True):
            if replace(known, sql="", type=aggregate.type) == replace(aggregate, sql=""):
                return slot
        flat.aggregates.append(aggregate)
        return self._slot(f"a{len(slots)}", source)

    def _arguments(self, values: list[Jvm], condition: Jvm | None, name: str) -> list[Jvm]:
        """The arguments of an aggregate, with its FILTER inside; empty where every row counts, as in COUNT(*)."""
        build = self.catalyst.expressions
        terms = [] if condition is None else [self._resolve(condition)]
        if name in SQUARED:  # of rows that have both numbers
            terms += [build.IsNotNull(value) for value in values if value.nullable()]
            both = self.catalyst.conjunction(terms)
            return values if both is None else [self.catalyst.when(both, value) for value in values]
        if name != "count":  # count_distinct too: it needs the values, not only whether there is one
            return [self.catalyst.when(terms[0], values[0]), *values[1:]] if terms else values
        one = self.catalyst.literal(1, self.catalyst.type("integer"))
        if len(values) == 1 and (condition := _counted_condition(values[0])) is not None:
            values = [self.catalyst.when(condition, one)]
        values = [value for value in values if value.nullable()]
        if len(values) == 1 and not terms and to_type(values[0].dataType()):
            return values
        present = self.catalyst.conjunction(terms + [build.IsNotNull(value) for value in values])
        if present is None:
            return []
        return [self.catalyst.when(present, one)]

    def _argument_index(self, argument: Jvm, call: Jvm) -> int:
        if to_type(argument.dataType()) is None:
            self.refusals.refuse_type(argument, call)
        for i, known in enumerate(self.flat.arguments):
            if argument.semanticEquals(known):
                return i
        self.flat.arguments.append(argument)
        return len(self.flat.arguments) - 1

    def _normalised(self, key: Jvm) -> Jvm:
        """A key with one zero and one NaN, as Spark groups floats; Spark itself adds this only to its physical plan."""
        if to_type(key.dataType()) is None:
            self.refusals.refuse_type(key)
        if key.dataType().simpleString() not in ("float", "double"):
            return key
        return self.catalyst.normalised_float(key)

    def _slot(self, name: str, source: Jvm) -> Jvm:
        slot = self.catalyst.attribute(name, source.dataType(), source.nullable())
        self.flat.slots.append(slot)
        return slot

    def _resolve(self, node: Jvm) -> Jvm:
        return self.catalyst.substitute(_unnamed(node), self._meaning)

    def _sorted_output(self, key: Jvm, outputs: list[Jvm]) -> int:
        """The output that rows are sorted by; what is no column of the answer becomes an output that is hidden."""
        for i, output in enumerate(outputs):
            if key.semanticEquals(output):
                return i
        if to_type(key.dataType()) is None:
            self.refusals.refuse_type(key)
        outputs.append(key)
        self.flat.hidden += 1
        return len(outputs) - 1


def _unnamed(node: Jvm) -> Jvm:
    return node.child() if kind(node) == "Alias" else node


def _counted_condition(value: Jvm) -> Jvm | None:
    """The condition of COUNT_IF, which comes as COUNT(IF(NOT condition, NULL, condition)); else None."""
    if kind(value) != "If" or kind(value.predicate()) != "Not" or kind(value.trueValue()) != "Literal":
        return None
    condition = value.falseValue()
    is_it = value.trueValue().value() is None and condition.semanticEquals(value.predicate().child())
    return condition if is_it else None
