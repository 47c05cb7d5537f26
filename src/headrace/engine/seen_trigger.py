"""What has been seen of a trigger: its flushes, and what they did to operators. Paces are learnt from it (`pacing`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from headrace.operators.group import GroupLayout
from headrace.operators.join import JoinLayout
from headrace.operators.kernel import Traffic, ViewChange
from headrace.operators.layout import GROUPS
from headrace.operators.over import OverLayout
from headrace.operators.top import TopLayout
from headrace.operators.tree_view import TreeView
from headrace.runtime.program import view_arrangement
from headrace.runtime.record import Arrangements
from headrace.thrifty.observed import Base, Flow, Flushed, OperatorFlow


@dataclass
class Trigger:
    """What has been seen of a trigger so far."""

    base: Base = field(default_factory=dict)
    flushes: list[Flushed] = field(default_factory=list)
    rows: dict[int, float] = field(default_factory=dict)  # rows that wait before operators, by operator
    below: dict[str, Trigger] = field(default_factory=dict)  # the same of the shared subplans that wait with the view
    held: float = 0.0  # CPU seconds of holding the rows of a shared subplan
    kernel: TreeView | None = None  # of a shared subplan

    def saw(
        self,
        name: str,
        kernel: TreeView,
        before: Arrangements,
        traffic: Mapping[str, Traffic],
        cpu: float,
        *,
        is_last: bool,
    ) -> None:
        """Note what a flush did; `before` is the state that it found."""
        if not self.flushes:
            self.kernel, self.base = kernel, _base(name, kernel, before)
        flows = {}
        for number, one in traffic.items():
            flow, n = _flow(one), int(number)
            if flow.fed:
                self.rows[n] = self.rows.get(n, 0.0) + flow.fed
            if one.taken or flow.groups:  # otherwise what was given waits before it
                flows[n] = replace(flow, fed=self.rows.pop(n, 0.0))
        self.flushes.append(Flushed(flows, cpu, is_last))


def _flow(traffic: Traffic) -> OperatorFlow:
    right = traffic.right
    left = ViewChange(
        traffic.taken.inserted - right.inserted,
        traffic.taken.deleted - right.deleted,
        traffic.taken.updated - right.updated,
    )
    return OperatorFlow(
        _as_flow(left),
        _as_flow(right),
        _as_flow(traffic.given),
        float(traffic.fed),
        float(traffic.groups),
        traffic.cpu,
    )


def _as_flow(change: ViewChange) -> Flow:
    return float(change.inserted), float(change.updated), float(change.deleted)


def _base(name: str, kernel: TreeView, state: Arrangements) -> Base:
    """The rows or groups that operators have before the first flush of a trigger."""
    out = {}
    for number, layout in enumerate(kernel.layouts):
        parts: tuple[str, ...] = layout.parts if isinstance(layout, JoinLayout) else ()
        if isinstance(layout, TopLayout | OverLayout):
            parts = (layout.rows_part,)
        elif isinstance(layout, GroupLayout):
            parts = (layout.part(GROUPS),)
        for side, part in enumerate(parts):
            states = state.get(view_arrangement(name, part), {})
            out[number, side] = float(sum(own.live for own in states.values()))
    return out
