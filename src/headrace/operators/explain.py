"""EXPLAIN for views kept by operators: which there are, where they run, and what went through them.

A user of such a view asks what is done with the rows, where that costs, and why it is done so. The tree answers the
first, the placement and the state the second, and every choice comes with its reason.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass
from functools import cached_property
from typing import Any

from headrace.operators.explain_places import Places
from headrace.operators.explain_state import SIDES, Sizes, Words, arrangements, not_kept
from headrace.operators.explained import (
    FeedExplained,
    OperatorExplained,
    OperatorsExplanation,
    Passing,
    PortExplained,
    SourceExplained,
)
from headrace.operators.feeds import why_catalyst
from headrace.operators.kernel import Passed, Traffic, ViewChange
from headrace.operators.naming import Naming, written
from headrace.operators.placement import Way
from headrace.operators.tree_view import TreeView
from headrace.plan.expression import Expression
from headrace.plan.lines import listed
from headrace.plan.tree import Aggregation, Feed, Join, JoinKind, Node, Top
from headrace.plan.view import Shape

STRATEGY = "operators"
_WAYS = {Way.STAY: "stays", Way.EXCHANGE: "exchanged", Way.EVERYWHERE: "everywhere"}

__all__ = ["OperatorsExplanation", "explain_operators", "traffic_numbers"]


def traffic_numbers(traffic: Mapping[str, Traffic], answer: ViewChange) -> dict[str, list[int]]:
    """What a step brought to each operator of a view, as numbers that the commit log can hold.

    They are those of `Passed`, of what was taken and of what was given. The answer gives nothing to anyone, so what
    the view changed stands in its place.
    """
    last = max(traffic, key=int, default="")
    changed = Passed(answer.inserted + answer.updated, answer.deleted + answer.updated, answer.updated)
    return {
        number: [*astuple(one.taken), *astuple(changed if number == last and answer else one.given)]
        for number, one in traffic.items()
    }


def explain_operators(
    name: str,
    sql: str,
    why: str,
    kernel: TreeView,
    rows: Mapping[str, int],
    sizes: Sizes,
    words: Words,
    last_step: Mapping[str, Any],
) -> OperatorsExplanation:
    """Explain a view kept by operators.

    Parameters
    ----------
    rows : how many rows each table has now.
    words : keys and payload of the arrangements of aggregates, in words.
    last_step : the summary of the last step, empty if there was none.
    """
    naming = Naming(kernel.tree)
    explainer = _Explainer(kernel, naming, _passing(name, last_step) if last_step else None)
    kept = arrangements(kernel, naming, sizes, words)
    plan, answer = kernel.layout.plan, len(kernel.tree.nodes) - 1
    stages = explainer.places.stages()
    exchanged = explainer.places.exchanged(stages)
    evaluated_by, evaluated_why = explainer.evaluated()
    return OperatorsExplanation(
        view=name,
        sql=sql,
        strategy=STRATEGY,
        why=why,
        operators=[explainer.operator(number) for number in reversed(range(answer + 1))],
        sources=[
            SourceExplained(feed.source, feed.table, rows.get(feed.table, 0), feed.table in kernel.static)
            for _, _, _, feed in kernel.tree.feeds()
            if feed.producer is None
        ],
        columns=tuple(
            _called(output.name, written(output.expression, lambda field: naming.given(answer, field)))
            for output in plan.outputs
        ),
        having=None
        if plan.having is None
        else written(plan.having, lambda field: naming.given(answer, field), longest=None),
        order=tuple(_ordered(item.column, item.descending, item.nulls_first) for item in plan.order),
        stages=stages,
        exchanges=len(exchanged),
        exchanged=exchanged,
        evaluated_by=evaluated_by,
        evaluated_why=evaluated_why,
        arrangements=kept,
        state_bytes=sum(arrangement.bytes for arrangement in kept),
        estimated=explainer.estimated(),
        buckets=kernel.buckets,
        last_step={key: value for key, value in last_step.items() if key != "operators"},
    )


def _passing(view: str, last_step: Mapping[str, Any]) -> dict[int, tuple[Passing, Passing]]:
    """What went through each operator of a view in the last step."""
    found = {}
    for number, numbers in last_step.get("operators", {}).get(view, {}).items():
        taken, given = (
            Passing(inserted - updated, deleted - updated, updated)
            for inserted, deleted, updated in (numbers[:3], numbers[3:])
        )
        found[int(number)] = (taken, given)
    return found


@dataclass(frozen=True)
class _Explainer:
    """Explains the operators of one view."""

    kernel: TreeView
    naming: Naming
    passing: Mapping[int, tuple[Passing, Passing]] | None

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        return self.kernel.tree.nodes

    @cached_property
    def places(self) -> Places:
        return Places(self.kernel, self.naming)

    def operator(self, number: int) -> OperatorExplained:
        """One operator."""
        node, place = self.nodes[number], self.kernel.placement.places[number]
        kind, text = self._said(number)
        nothing = None if self.passing is None else Passing()
        taken, given = (self.passing or {}).get(number, (nothing, nothing))
        return OperatorExplained(
            number=number,
            kind=kind,
            text=text,
            residual=self.naming.residual(number) if isinstance(node, Join) else None,
            ports=tuple(self._port(number, side) for side in range(len(node.ports))),
            stage=place.stage + 1,
            where=self.places.where(number),
            why=place.why,
            not_kept=tuple(not_kept(self.kernel, number)),
            takes=_takes(node),
            taken=taken,
            given=given,
        )

    # -- what it does ---------------------------------------------------------------------------------------------

    def _said(self, number: int) -> tuple[str, str]:
        """The kind of an operator, and what it does in particular."""
        node = self.nodes[number]
        names = self.naming.port(number, 0)
        if isinstance(node, Join):
            keys = " AND ".join(" ".join(key) for key in self.naming.keys(number))
            return node.kind.value, f"on {keys}" if keys else "of every row with every row"
        if isinstance(node, Top):
            order = ", ".join(_ordered(names[i], descending, first) for i, descending, first in node.order)
            return _first(node), f"by {order}" if order else "in no order that the query asks for"
        keys = ", ".join(names[: len(node.plan.keys)])
        aggregates = ", ".join(aggregate.sql for aggregate in node.plan.aggregates)
        is_answer = number == len(self.nodes) - 1
        if node.single:
            return "scalar subquery", f"its one row, {aggregates.split(', ')[0]}"
        if node.plan.shape is Shape.ROWS:
            return "answer", f"the rows ({keys})"
        if node.plan.shape is Shape.TOTAL:
            return "answer" if is_answer else "total", aggregates
        if not aggregates:
            return ("answer", f"DISTINCT {keys}") if is_answer else ("DISTINCT", keys)
        return "answer" if is_answer else "aggregate", f"{aggregates} by {keys}"

    def _port(self, number: int, side: int) -> PortExplained:
        node = self.nodes[number]
        port = node.ports[side]
        return PortExplained(
            side=SIDES[side] if len(node.ports) > 1 else "",
            columns=self.naming.port(number, side),
            feeds=tuple(self._feed(number, side, i, feed) for i, feed in enumerate(port.feeds)),
            rows=self.places.expected(number, side),
            everywhere=self.places.why_everywhere(number, side),
        )

    def _feed(self, number: int, side: int, i: int, feed: Feed) -> FeedExplained:
        route = self.kernel.placement.routes[number, side, i]
        reason = why_catalyst(feed) if feed.producer is None else route.catalyst
        return FeedExplained(
            producer=feed.producer,
            table=feed.table,
            source=feed.source,
            condition=self.naming.condition(feed),
            computes=tuple(self.naming.on_the_way(feed, e) for e in feed.outputs if e.op not in ("column", "literal")),
            times=None if feed.times is None else self.naming.on_the_way(feed, feed.times),
            way=_WAYS[route.way],
            moves=self.places.moves(number, side, i),
            catalyst=None if reason is None else self._readable(feed, reason),
        )

    def _readable(self, feed: Feed, reason: str) -> str:
        """Why Catalyst evaluates a feed, with the names of columns in it."""
        for expression in feed.expressions:
            for part in _parts(expression):
                if reason == f"{part.op} in {part.sql}":
                    return f"{part.op} in {self.naming.on_the_way(feed, part)}"
        return reason

    # -- what it costs --------------------------------------------------------------------------------------------

    def evaluated(self) -> tuple[str, str]:
        """What evaluates the expressions on the way, and why."""
        found = []
        for number in range(len(self.nodes)):
            for _, feed in self.operator(number).feeds:
                if feed.catalyst is not None:
                    rows = f"rows of {feed.source}" if feed.producer is None else f"what [{feed.producer}] gives"
                    found.append(f"{rows} on the way to [{number}]: {feed.catalyst}")
        if not found:
            return "the kernels on columns", "every expression is one whose result is known to equal Spark's"
        return "the kernels on columns, and Catalyst where only Spark can", "; ".join(found)

    def estimated(self) -> str:
        """What a step costs, in words."""
        said = ["costs in proportion to the rows that change and to those that match them, operator by operator"]
        joins = [(number, node) for number, node in enumerate(self.nodes) if isinstance(node, Join)]
        crossed = [f"[{number}]" for number, node in joins if not node.keys]
        if crossed:
            said.append(f"{listed(crossed)} compares every changed row with all rows of the other side")
        unknown = [f"[{number}]" for number, node in joins if node.kind is JoinKind.NULL_AWARE]
        if unknown:
            said.append(f"{listed(unknown)} asks all rows again when the first value or NULL comes, or the last leaves")
        first = [f"[{number}]" for number, node in enumerate(self.nodes) if isinstance(node, Top)]
        if first:
            said.append(f"{listed(first)} reads all its rows again when one of the first leaves")
        return "; ".join(said)


def _called(name: str, text: str) -> str:
    """A column of the answer: what it is, unless its name says that already."""
    return name if name == text or text.endswith(f".{name}") else f"{name} = {text}"


def _parts(expression: Expression) -> Iterator[Expression]:
    yield expression
    for arg in expression.args:
        yield from _parts(arg)


def _takes(node: Node) -> str:
    if not isinstance(node, Aggregation):
        return "rows"
    return "different rows" if node.plan.shape is Shape.ROWS else "groups"


def _first(node: Top) -> str:
    if node.count >= sys.maxsize:
        return f"all rows after the first {node.offset:,}"
    rows = f"the first {node.count:,} rows" if node.count != 1 else "the first row"
    return f"{rows} after {node.offset:,}" if node.offset else rows


def _ordered(name: str, descending: bool, nulls_first: bool) -> str:
    """One item of an order; where NULLs stand is said if it is not where Spark puts them by default."""
    nulls = "" if nulls_first is not descending else f" NULLS {'FIRST' if nulls_first else 'LAST'}"
    return f"{name}{' DESC' if descending else ''}{nulls}"
