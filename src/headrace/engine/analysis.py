"""EXPLAIN ANALYZE: what a view cost in the last step, and what each strategy is estimated to cost at this moment.

The estimates are made anew, for tables as large as they are now and changing as they have of late, so they also tell
when a choice that was right for small tables no longer is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from headrace.engine.definition import Definition
from headrace.thrifty.cost import time_text

if TYPE_CHECKING:
    from headrace.engine.access import Access
    from headrace.engine.handles import View


class Explained(Protocol):
    """What EXPLAIN gives, whatever the strategy."""

    def to_dict(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Analysis:
    """An explanation with costs. `str()` is for people, `to_dict()` for programs."""

    explanation: Explained
    strategy: str
    why: str
    costs: list[dict[str, Any]]
    spent: float | None  # seconds in the view's kernels, in the last step
    state_bytes: int

    def to_dict(self) -> dict[str, Any]:
        """The explanation and its costs as plain values for JSON."""
        measured = {"kernel_seconds": self.spent, "state_bytes": self.state_bytes}
        return {**self.explanation.to_dict(), "chosen": self.strategy, "costs": self.costs, "measured": measured}

    def __str__(self) -> str:
        lines = [str(self.explanation), f"  strategies (a step, estimated; {self.why})"]
        for cost in self.costs:
            mark = "->" if cost["strategy"] == self.strategy else "  "
            if "refused" in cost:
                said = f"cannot keep it: {cost['refused']}"
            else:
                most = f", most of them for changes of {cost['most']}" if cost["most"] else ""
                said = f"{time_text(cost['seconds'])}: looks at {cost['rows']:,.0f} rows{most}"
            lines.append(f"    {mark} {cost['strategy']:<12} {said}")
        spent = "no step has touched it" if self.spent is None else f"{time_text(self.spent)} in its kernels"
        lines.append(f"  measured   {spent} in the last step; {self.state_bytes:,} bytes of state")
        return "\n".join(lines)


def analysed(access: Access, view: View, explanation: Explained) -> Analysis:
    """Add costs to the explanation of a view of SQL."""
    definition = view.planned.definition
    reader = access.state.latest
    anew = replace(definition, asked={"strategy": "auto"}, chosen={})
    choice = access.planner.considered(view.name, anew, access.statistics())
    size = reader.bytes(view.name, view.planned.kernel.arrangements)
    spent = reader.summary.get("spent", {}).get(view.name)
    return Analysis(explanation, _strategy(definition), _why(definition), choice.to_json(), spent, size)


def _strategy(definition: Definition) -> str:
    return str(definition.chosen.get("strategy") or "one table")


def _why(definition: Definition) -> str:
    asked = definition.asked.get("strategy", "auto")
    return "chosen by estimated cost" if asked == "auto" else f"strategy={asked!r} was asked for"
