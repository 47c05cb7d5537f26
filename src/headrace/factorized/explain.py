"""EXPLAIN for views over joins: the plan and its reasons as plain values.

A plan is numbers that point at each other, made for what executes it. Here it gets names, sizes and the reasons it was
chosen for, in values that JSON can hold; the text and the drawing are made of these values and of nothing else.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headrace.errors import VariableOrderError
from headrace.factorized import drawing, explain_text
from headrace.factorized.algebra import Algebra
from headrace.factorized.bucket import part_name
from headrace.factorized.maintenance import MaintenancePlan, Probe, Stage, Statement, Trigger
from headrace.factorized.order import Node, VariableOrder, rebuilt
from headrace.factorized.order_text import to_json, to_text
from headrace.factorized.planner import Planned
from headrace.plan.classes import classes
from headrace.plan.explained import Explained
from headrace.plan.hypergraph import Hypergraph

Sizes = Mapping[str, Sequence[tuple[int, int, int]]]
"""For each arrangement: (runs, entries, bytes) of each bucket."""

CONSTANT, MATCHES = "constant a key", "as many as match"
_WHY = {
    "factorized": "one tree of views serves changes of all its relations",
    "recursive": "it was asked for: what a change of a relation is joined with is a view, maintained the same way",
    "first-order": "it was asked for: a change is joined with the other relations as they are",
}


@dataclass(frozen=True)
class ViewExplained:
    """One view of a plan: what it maps to what, whether it is kept and why, and its size."""

    name: str
    keys: tuple[str, ...]
    payload: str
    degree: int  # the number of features, or of sums
    kept: bool
    why: str
    where: str
    replicated: bool
    arrangements: list[tuple[str, ...]]  # the orders of its keys in which it is stored
    entries: int
    bytes: int
    relation: str | None  # a leaf: the relation it sums
    children: list[str]  # the views that it is a join of
    read_by: list[str]  # the relations whose changes are joined with it
    changes: dict[str, str]  # relation -> what a change of it adds to this view


@dataclass(frozen=True)
class JoinExplanation(Explained):
    """How a view over a join is kept. `str()` is for people, `to_dict()` for programs, `to_svg()` for pages."""

    view: str
    sql: str
    kind: str  # view | covariance | model
    strategy: str
    why: str
    relations: dict[str, tuple[str, ...]]  # each with its variables
    keys: tuple[str, ...]  # the variables of the answer's key
    classes: tuple[str, ...]
    order: str  # without what need not be written: local variables at the bottom
    order_why: str
    proposal: str  # what would make the state smaller
    partition: str | None  # of the last stage
    partition_why: str
    stages: list[dict[str, Any]]  # what each computes, from what, partitioned by what, and why
    replicated: tuple[str, ...]
    static: tuple[str, ...]
    views: list[ViewExplained]  # the answer first
    triggers: list[dict[str, Any]]
    exchanges: str
    estimated: str
    state_bytes: int
    buckets: int
    evaluated_by: str
    evaluated_why: str
    last_step: dict[str, Any]

    def __str__(self) -> str:
        return explain_text.to_text(self)

    def to_svg(self) -> str:
        """The views as a drawing, for a page or a file of its own."""
        return drawing.to_svg(self)


def explain_join(
    name: str,
    sql: str,
    kind: str,
    planned: Planned,
    algebra: Algebra,
    sizes: Sizes,
    buckets: int,
    evaluated: tuple[str, str],
    last_step: Mapping[str, Any],
    proposal: str = "",
) -> JoinExplanation:
    """Explain a view over a join.

    Parameters
    ----------
    sizes : by arrangement; those that no view of the plan has are the answer's.
    evaluated : what evaluates expressions over rows, and why.
    last_step : the summary of the last step, empty if there was none.
    """
    plan, query = planned.plan, planned.query
    words = _Words(plan)
    views = _views(plan, algebra, words, sizes)
    triggers = [words.trigger(trigger) for trigger in plan.triggers]
    return JoinExplanation(
        view=name,
        sql=sql,
        kind=kind,
        strategy=plan.strategy,
        why=_WHY.get(plan.strategy, "it was asked for"),
        relations={relation.name: relation.variables for relation in query.relations},
        keys=plan.views[plan.root].keys,
        classes=classes(query),
        order="" if planned.order is None else _written(shortened(planned.order, query)),
        order_why=planned.order_why,
        proposal=proposal,
        partition=plan.partition,
        partition_why=plan.stages[-1].why,
        stages=[_stage(plan, stage) for stage in plan.stages],
        replicated=plan.replicated_relations,
        static=tuple(relation.name for relation in query.relations if relation.name in plan.static),
        views=views,
        triggers=triggers,
        exchanges=_exchanges(plan),
        estimated=_estimated([trigger for trigger in triggers if not trigger["static"]]),
        state_bytes=sum(size for parts in sizes.values() for _, _, size in parts),
        buckets=buckets,
        evaluated_by=evaluated[0],
        evaluated_why=evaluated[1],
        last_step=dict(last_step),
    )


def shortened(order: VariableOrder, query: Hypergraph) -> VariableOrder:
    """The order without the chains of local variables at its bottom: they find their place again when it is read."""
    local = frozenset(query.local_variables)

    def only_local(node: Node) -> bool:
        return node.variable in local and not node.children and not node.stop_pushdown

    def shorten(node: Node) -> Node:
        # Children come first, so a chain is taken off from its end, and its relation moves up with each step.
        gone = [child for child in node.children if only_local(child)]
        stay = tuple(child for child in node.children if not only_local(child))
        relations = {*node.relations, *(name for child in gone for name in child.relations)}
        return replace(node, children=stay, relations=tuple(r.name for r in query.relations if r.name in relations))

    return rebuilt(order, shorten)


def _written(order: VariableOrder) -> str:
    try:
        return to_text(order)
    except VariableOrderError:  # a name that fits no line; the JSON can be read back too
        return json.dumps(to_json(order))


def _views(plan: MaintenancePlan, algebra: Algebra, words: _Words, sizes: Sizes) -> list[ViewExplained]:
    of_tree = {part_name(i, order) for i, view in enumerate(plan.views) for order in range(len(view.orders))}
    answer = [part for part in sizes if part not in of_tree]
    out = []
    for i in sorted(range(len(plan.views)), key=lambda i: i != plan.root):
        view = plan.views[i]
        parts = answer if i == plan.root else [part_name(i, order) for order in range(len(view.orders))]
        # Arrangements of a view hold the same entries in other orders, so only one of them is counted.
        entries = sum(count for _, count, _ in sizes.get(parts[0], ())) if parts else 0
        out.append(
            ViewExplained(
                name=words.names[i],
                keys=view.keys,
                payload=algebra.describe(i),
                degree=algebra.degree(i),
                kept=view.kept,
                why=view.why,
                where=_where(plan, i),
                replicated=view.replicated and i != plan.root,
                arrangements=list(view.orders) if view.kept else [],
                entries=entries,
                bytes=sum(size for part in parts for _, _, size in sizes.get(part, ())),
                relation=view.relation,
                children=[words.names[child] for child in words.children[i]],
                read_by=_readers(plan, i),
                changes=words.changes(i),
            )
        )
    return out


def _stage(plan: MaintenancePlan, stage: Stage) -> dict[str, Any]:
    inputs = [plan.views[trigger.leaf] for trigger in stage.triggers]
    return {
        "computes": plan.views[stage.root].name,
        "from": [view.relation or view.name for view in inputs],
        "partition": stage.partition,
        "replicated": [view.relation or view.name for view in inputs if view.replicated],
        "why": stage.why,
    }


def _where(plan: MaintenancePlan, number: int) -> str:
    view = plan.views[number]
    partition = plan.stages[view.stage].partition
    if number == plan.root:
        return "answer: summed over buckets"
    if view.replicated:
        return "replicated: stored once, read by every bucket"
    if partition is None:
        return "a share of the rows in every bucket"
    if partition in view.keys:
        return f"partitioned by {partition}"
    return f"partitioned by {partition}, which is summed away: a part in every bucket"


def _readers(plan: MaintenancePlan, number: int) -> list[str]:
    return [
        trigger.relation
        for trigger in plan.triggers
        if trigger.relation not in plan.static
        and any(s.factors[probe.slot] == number for s in trigger.statements for probe in s.probes)
    ]


def _exchanges(plan: MaintenancePlan) -> str:
    variables = " and ".join(dict.fromkeys(str(stage.partition) for stage in plan.stages if stage.partition))
    by = f"by {variables}" if variables else "by bucket"
    to_all = f" (those of {', '.join(plan.replicated_relations)} to every bucket)" if plan.replicated_relations else ""
    more = plan.levels - 1
    between = f"; {more} more, of changes of views between stages" if more else ""
    return (
        f"none for batches that the driver has and native expressions; else one, of leaf changes {by}{to_all}, summed "
        f"before it{between}; then each bucket's share of the answer's change is added up, one row a group and bucket"
    )


def _estimated(triggers: Sequence[Mapping[str, Any]]) -> str:
    by_cost = {cost: [t["relation"] for t in triggers if t["cost"] == cost] for cost in (CONSTANT, MATCHES)}
    if not triggers:
        return "no relation changes, so there is nothing to do"
    said = []
    if by_cost[CONSTANT]:
        said.append(f"a changed key of {', '.join(by_cost[CONSTANT])} takes a constant number of lookups")
    if by_cost[MATCHES]:
        said.append(f"a changed key of {', '.join(by_cost[MATCHES])} takes as many lookups as keys match it")
    return "; ".join(said)


class _Words:
    """Names for the views of a plan, and its statements in these names."""

    def __init__(self, plan: MaintenancePlan) -> None:
        self.plan = plan
        seen: Counter[str] = Counter()
        self.names: list[str] = []
        for view in plan.views:  # names of relations can make two views' names the same
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
            "relation": trigger.relation,
            "static": trigger.relation in self.plan.static,
            "cost": CONSTANT if all(self._by_key(s, p) for s in trigger.statements for p in s.probes) else MATCHES,
            "statements": [self._statement(statement) for statement in trigger.statements],
        }

    def _statement(self, statement: Statement) -> dict[str, Any]:
        return {
            "text": f"{explain_text.change_of(self.names[statement.target])} += {self._product(statement)}",
            "target": self.names[statement.target],
            "changed": self.names[statement.source],
            "found": {self.names[statement.factors[p.slot]]: self._found(statement, p) for p in statement.probes},
        }

    def _product(self, statement: Statement) -> str:
        # Factors stand in the order in which they are looked up.
        others = [self.names[statement.factors[probe.slot]] for probe in statement.probes]
        return " * ".join([explain_text.change_of(self.names[statement.source]), *others])

    def _by_key(self, statement: Statement, probe: Probe) -> bool:
        return probe.bound == len(self.plan.views[statement.factors[probe.slot]].keys)

    def _found(self, statement: Statement, probe: Probe) -> str:
        if self._by_key(statement, probe):
            return explain_text.BY_KEY
        if not probe.bound:
            return "all of it"
        order = self.plan.views[statement.factors[probe.slot]].orders[probe.order]
        return f"by {', '.join(order[: probe.bound])}, all matches"

    def changes(self, number: int) -> dict[str, str]:
        """For each relation below a view, what a change of it adds to the view."""
        view, out = self.plan.views[number], {}
        for trigger in self.plan.triggers:
            if trigger.leaf == number:
                out[trigger.relation] = f"its rows, summed by {', '.join(view.keys) or 'nothing: one total'}"
            for statement in trigger.statements:
                if statement.target == number:
                    out[trigger.relation] = self._product(statement)
        return out
