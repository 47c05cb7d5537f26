"""EXPLAIN ANALYZE: what a view cost in the last step, and what each strategy is estimated to cost at this moment.

The estimates use the current sizes of the tables and their recent rates of change. So they also show when a choice that
was right for small tables no longer is.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headrace.engine.definition import AUTO, Definition, SqlRequest
from headrace.engine.operator_costs import with_costs
from headrace.explain.parts import Fact, Section, Table
from headrace.explain.report import Report
from headrace.thrifty.cost import time_text

if TYPE_CHECKING:
    from headrace.engine.access import Access
    from headrace.engine.handles import View


def analysed(access: Access, view: View, report: Report) -> Report:
    """Add costs to the report on a SQL view: `costs` per strategy, `spent`, its CPU seconds in the last step, and
    `operator_costs`.
    """
    definition = view.planned.definition
    anew = Definition(SqlRequest(definition.sql))
    planner = access.needing("EXPLAIN ANALYZE plans the query by every strategy").planner
    costs = planner.considered(view.name, anew, access.statistics()).to_json()
    spent = access.state.latest.summary.get("spent", {}).get(view.name)
    said = "no step has touched it" if spent is None else f"{time_text(spent)} of CPU"
    section = Section(
        "strategies",
        (
            Fact("chosen", f"{report.strategy}: {_why(definition)}"),
            Table(
                ("", "strategy", "a step, estimated"),
                tuple(
                    ("->" if cost["strategy"] == report.strategy else "", cost["strategy"], _said(cost))
                    for cost in costs
                ),
            ),
            Fact("measured", f"{said} in the last step; {report.state_bytes:,} bytes of state"),
        ),
    )
    values = {**report.values, "costs": costs, "spent": spent}
    report = replace(report, sections=(section, *report.sections), values=values)
    return with_costs(access, view.name, view.planned, report)


def _said(cost: dict[str, Any]) -> str:
    if "refused" in cost:
        return f"cannot keep it: {cost['refused']}"
    most = f", most of them for changes of {cost['most']}" if cost["most"] else ""
    return f"{time_text(cost['seconds'])}: looks at {cost['rows']:,.0f} rows{most}"


def _why(definition: Definition) -> str:
    asked = definition.request.wishes.strategy
    return "chosen by estimated cost" if asked == AUTO else f"strategy={asked!r} was asked for"
