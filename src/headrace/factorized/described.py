"""The views of a join's plan in words: names, sizes, why each is kept, and what a change adds to it.

A plan is written for the executor, as numbers that point at each other. Here its views get names and reasons, as values
that JSON can hold; the report is made of these alone.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from headrace.errors import VariableOrderError
from headrace.explain.report import Arrangement, Subject
from headrace.factorized.algebra import Algebra
from headrace.factorized.bucket import part_name
from headrace.factorized.maintenance import MaintenancePlan, Probe, Statement, Trigger
from headrace.factorized.order import Node, VariableOrder, rebuilt
from headrace.factorized.order_text import to_json, to_text
from headrace.plan.hypergraph import Hypergraph

CONSTANT, MATCHES, BY_KEY = "constant a key", "as many as match", "by its whole key"
SMALLER = "as many as match on the smaller side"
ANY_SMALLER = "of these, the one with the fewest matches is listed, and the others are looked up"


@dataclass(frozen=True)
class DescribedView:
    """One view of a plan: its keys and payload, whether it is kept and why, and its size."""

    name: str
    keys: tuple[str, ...]
    payload: str
    degree: int  # the number of features, or of sums
    kept: bool
    why: str
    where: str
    replicated: bool
    arrangements: tuple[tuple[str, ...], ...]  # the orders of its keys in which it is stored
    entries: int
    bytes: int
    relation: str | None  # for a leaf, the relation that it sums
    children: tuple[str, ...]  # the views that it is a join of
    read_by: tuple[str, ...]  # the relations whose changes are joined with it
    changes: dict[str, str]  # relation -> what a change of it adds to this view


def described_views(plan: MaintenancePlan, algebra: Algebra, words: Words, subject: Subject) -> Iterator[DescribedView]:
    """The views of a plan, the answer first."""
    for i in sorted(range(len(plan.views)), key=lambda i: i != plan.root):
        view, sizes = plan.views[i], [subject.size(part) for part in _parts(plan, i, subject)]
        yield DescribedView(
            name=words.names[i],
            keys=view.keys,
            payload=algebra.describe(i),
            degree=algebra.degree(i),
            kept=view.kept,
            why=view.why,
            where=_where(plan, i),
            replicated=view.replicated and i != plan.root,
            arrangements=view.orders if view.kept else (),
            # Arrangements of a view hold the same entries in other orders, so only one of them is counted.
            entries=sizes[0].entries if sizes else 0,
            bytes=sum(size.bytes for size in sizes),
            relation=view.relation,
            children=tuple(words.names[child] for child in words.children[i]),
            read_by=_read_by(plan, i),
            changes=words.changes(i),
        )


def _parts(plan: MaintenancePlan, number: int, subject: Subject) -> list[str]:
    """The names of a view's arrangements; those that belong to no view of the plan are the answer's."""
    if number != plan.root:
        return [part_name(number, order) for order in range(len(plan.views[number].orders))]
    of_tree = {part_name(i, order) for i, view in enumerate(plan.views) for order in range(len(view.orders))}
    return [part for part in subject.sizes if part not in of_tree]


def arrangements(
    plan: MaintenancePlan, words: Words, views: tuple[DescribedView, ...], subject: Subject
) -> Iterator[Arrangement]:
    """All arrangements of the views, one per order of keys."""
    described = {view.name: view for view in views}
    for i, name in enumerate(words.names):
        view = described[name]
        orders = [f"by {', '.join(order)}" for order in plan.views[i].orders]
        for at, part in enumerate(_parts(plan, i, subject)):
            if part in subject.sizes:
                called = part if i == plan.root or at >= len(orders) else orders[at]
                keys = f"({', '.join(view.keys)})"
                yield Arrangement.of(name, called, keys, view.payload, view.why, subject.size(part))


def _where(plan: MaintenancePlan, number: int) -> str:
    view = plan.views[number]
    partition = plan.stages[view.stage].partition
    if number == plan.root:
        return "answer: summed over buckets"
    if partition is None:
        return "in one bucket" if view.replicated else "a share of the rows in every bucket"
    if view.replicated:
        return "replicated: stored once, read by every bucket"
    if partition in view.keys:
        return f"partitioned by {partition}"
    return f"partitioned by {partition}, which is summed away: a part in every bucket"


def _read_by(plan: MaintenancePlan, number: int) -> tuple[str, ...]:
    return tuple(
        called(plan, trigger)
        for trigger in plan.triggers
        if trigger.relation not in plan.static
        and any(s.factors[probe.slot] == number for s in trigger.statements for probe in s.every_probe)
    )


def called(plan: MaintenancePlan, trigger: Trigger) -> str:
    """What a trigger is for: a relation, or an indicator projection."""
    leaf = plan.views[trigger.leaf]
    return leaf.name if leaf.indicator else trigger.relation


def change_of(name: str) -> str:
    """The name of the change of a view."""
    return f"d{name}" if name.startswith(("V_", "H_")) else f"d({name})"


class Words:
    """Names for the views of a plan, and its statements in these names."""

    def __init__(self, plan: MaintenancePlan) -> None:
        self.plan = plan
        seen: Counter[str] = Counter()
        self.names: list[str] = []
        for view in plan.views:  # two views may get the same name, depending on the names of relations
            seen[view.name] += 1
            self.names.append(view.name if seen[view.name] == 1 else f"{view.name} ({seen[view.name]})")
        joined: dict[int, dict[int, None]] = {i: {} for i in range(len(plan.views))}
        for trigger in plan.triggers:
            for statement in trigger.statements:
                joined[statement.target].update(dict.fromkeys(statement.factors))
        self.children = {i: list(factors) for i, factors in joined.items()}

    def trigger(self, trigger: Trigger) -> dict[str, Any]:
        """What a change of one relation does, in words."""
        return {
            "relation": called(self.plan, trigger),
            "static": trigger.relation in self.plan.static,
            "cost": self._cost(trigger),
            "statements": [self._statement(statement) for statement in trigger.statements],
        }

    def _cost(self, trigger: Trigger) -> str:
        probes = [(s, probe) for s in trigger.statements for probe in s.probes]
        listed = [probe for s, probe in probes if not self._by_key(s, probe)]
        return CONSTANT if not listed else SMALLER if all(probe.beside for probe in listed) else MATCHES

    def _statement(self, statement: Statement) -> dict[str, Any]:
        return {
            "text": f"{change_of(self.names[statement.target])} += {self._product(statement)}",
            "target": self.names[statement.target],
            "changed": self.names[statement.source],
            "found": {self.names[statement.factors[p.slot]]: self._found(statement, p) for p in statement.every_probe},
        }

    def _product(self, statement: Statement) -> str:
        # Factors stand in the order in which they are looked up.
        others = [self.names[statement.factors[probe.slot]] for probe in statement.every_probe]
        return " * ".join([change_of(self.names[statement.source]), *others])

    def _by_key(self, statement: Statement, probe: Probe) -> bool:
        return probe.bound == len(self.plan.views[statement.factors[probe.slot]].keys)

    def _found(self, statement: Statement, probe: Probe) -> str:
        if self._by_key(statement, probe):
            return BY_KEY
        if not probe.bound:
            return "all of it"
        order = self.plan.views[statement.factors[probe.slot]].orders[probe.order]
        if any(one.beside and probe in one.all for one in statement.probes):
            return f"by {', '.join(order[: probe.bound])}: {ANY_SMALLER}"
        return f"by {', '.join(order[: probe.bound])}, all matches"

    def changes(self, number: int) -> dict[str, str]:
        """Per relation below a view, what a change of that relation adds to the view."""
        view, out = self.plan.views[number], {}
        for trigger in self.plan.triggers:
            if trigger.leaf == number:
                what = "counted" if view.indicator else "summed"
                out[called(self.plan, trigger)] = f"its rows, {what} by {', '.join(view.keys) or 'nothing: one total'}"
            for statement in trigger.statements:
                if statement.target == number:
                    out[called(self.plan, trigger)] = self._product(statement)
        return out


def shortened(order: VariableOrder, query: Hypergraph) -> VariableOrder:
    """The order without the chains of local variables at its bottom, which are restored when it is read again."""
    local = frozenset(query.local_variables)

    def only_local(node: Node) -> bool:
        return node.variable in local and not node.children and not node.stop_pushdown

    def shorten(node: Node) -> Node:
        # Children come first, so a chain is removed from its end, and its relation moves up by one node each time.
        gone = [child for child in node.children if only_local(child)]
        stay = tuple(child for child in node.children if not only_local(child))
        relations = {*node.relations, *(name for child in gone for name in child.relations)}
        return replace(node, children=stay, relations=tuple(r.name for r in query.relations if r.name in relations))

    return rebuilt(order, shorten)


def written_order(order: VariableOrder) -> str:
    """An order in a form that users can pass to a view again."""
    try:
        return to_text(order)
    except VariableOrderError:  # a name that the text form cannot hold; JSON can be read back too
        return json.dumps(to_json(order))
