"""What each operator of a view costs: rows and CPU as estimated, beside rows and CPU as measured.

Of a view with a goal, it is its last trigger that counts: the forecast was made by the cost model when the paces were
chosen. Of any other view it is the last step, beside an estimate for a step as the tables usually change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from headrace.engine.definition import PlannedView
from headrace.engine.freshness_report import learnt_of
from headrace.engine.reader import Reader
from headrace.explain.parts import Fact, Part, Section, Table
from headrace.explain.report import Report
from headrace.operators.traffic import cost_of
from headrace.operators.tree_view import TreeView
from headrace.thrifty.cost import time_text
from headrace.thrifty.tree_cost import rows_by_operator

if TYPE_CHECKING:
    from headrace.engine.access import Access
    from headrace.thrifty.statistics import Statistics


@dataclass(frozen=True)
class OperatorCost:
    """What one operator took.

    Parameters
    ----------
    operator : its number; -1 is what flushes cost beside their operators, to open what waits and to store the state.
    estimated_rows, rows : as estimated, and as counted; None if there is no estimate, or nothing was counted.
    estimated_seconds, seconds : the same for CPU.
    """

    operator: int
    estimated_rows: float | None
    rows: float | None
    estimated_seconds: float | None
    seconds: float | None


def with_costs(access: Access, name: str, view: PlannedView, report: Report) -> Report:
    """Add to a report what each operator was estimated to cost, and what it has cost."""
    found, said = access.state.read(lambda reader: _costs(name, view, reader, access.statistics()))
    named = {operator.number: f"{operator.name} {operator.kind}" for operator in report.values.get("operators", ())}
    parts: list[Part] = []
    if found:
        head = ("operator", "rows, estimated", "rows", "CPU, estimated", "CPU")
        parts.append(Table(head, tuple(_row(named.get(cost.operator), cost) for cost in reversed(found))))
    section = Section("cost by operator", (*parts, Fact("", said)))
    values: dict[str, Any] = {**report.values, "operator_costs": [asdict(cost) for cost in found]}
    return replace(report, sections=(*report.sections, section), values=values)


def _costs(name: str, view: PlannedView, reader: Reader, statistics: Statistics) -> tuple[Sequence[OperatorCost], str]:
    """The costs of operators, and in words what they are the costs of."""
    if not isinstance(view.kernel, TreeView):
        return (), "the view is not kept by operators, so there are none whose cost could be told apart"
    known = None if view.definition.freshness is None else learnt_of(name, reader)
    if known is not None and known.operators:
        found = [OperatorCost(int(number), *costs) for number, costs in known.operators.items()]
        first = "" if any(cost.estimated_rows is not None for cost in found) else "; nothing was known before it"
        return (
            sorted(found, key=lambda cost: cost.operator),
            f"all flushes of the last trigger, as forecast by the cost model and as measured{first}. Rows are those "
            "that an operator took, of an aggregate the groups that they belong to",
        )
    touched, measured = rows_by_operator(view.kernel.tree, statistics), cost_of(reader.summary, name)
    costs = []
    for number, rows in enumerate(touched):
        took, seconds = measured.get(number, (None, None))
        costs.append(OperatorCost(number, rows, took, 1e-6 * statistics.units.join * rows, seconds))
    return costs, "a step as the tables usually change, estimated, and the last step. Rows are those taken and given"


def _row(name: str | None, cost: OperatorCost) -> tuple[str, ...]:
    counted = (cost.estimated_rows, cost.rows) if name is not None else (None, None)
    rows = ("" if value is None else f"{value:,.0f}" for value in counted)
    seconds = ("" if value is None else time_text(value) for value in (cost.estimated_seconds, cost.seconds))
    return (name or "opening and storing", *rows, *seconds)
