"""What a memory budget keeps and drops at one commit, from the choice to the record of the log."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from headrace.operators.dropping import Holding
from headrace.operators.tree_view import TreeView
from headrace.runtime.program import arrangements_kept, view_arrangement
from headrace.runtime.record import Arrangements
from headrace.thrifty.keep.actions import Op
from headrace.thrifty.keep.change import Change
from headrace.thrifty.keep.selection import Key, cost_of, states_of
from headrace.thrifty.keep.view_plan import Measured, ViewPlan
from headrace.thrifty.statistics import Statistics

Unkept = Mapping[str, Mapping[str, list[int]]]
"""Per view and part that is dropped: the entries and bytes that it had."""


@dataclass(frozen=True)
class Settled:
    """What a commit keeps.

    Parameters
    ----------
    again : arrangements that were made again for the step.
    dropped : arrangements that go.
    unkept : all that is dropped then; None if that is as before.
    before : all that was dropped before.
    memory : what is written down of the budget.
    written : the files that were written for the step.
    """

    again: Arrangements = field(default_factory=dict)
    dropped: frozenset[str] = frozenset()
    unkept: Unkept | None = None
    before: Unkept = field(default_factory=dict)
    memory: Mapping[str, Any] | None = None
    written: frozenset[str] = frozenset()

    def stored(self, changed: Arrangements) -> Arrangements:
        """What the record says of arrangements, given what the step changed."""
        if not (self.again or self.dropped):
            return changed
        names = [name for name in {**self.again, **changed} if name not in self.dropped]
        return {name: self.again.get(name, {}) | changed.get(name, {}) for name in names}

    def record(self) -> dict[str, Any]:
        """The rest of what the record says."""
        if self.unkept is None:
            return {} if self.memory is None else {"memory": dict(self.memory)}
        unkept: Unkept = {name: {} for name in self.before} | dict(self.unkept)
        return {"dropped": tuple(sorted(self.dropped)), "unkept": unkept, "memory": dict(self.memory or {})}


@dataclass(frozen=True)
class Chosen:
    """A choice of what is kept.

    Parameters
    ----------
    plans : what there was to choose from, by view and shared subplan.
    made : the same, as plans of operators.
    kept : the states that are wanted, whether they are there or not.
    before : all that was dropped before.
    about : what else the log says of memory.
    """

    plans: Mapping[str, ViewPlan]
    made: Sequence[Op]
    kept: frozenset[Key]
    again: Arrangements
    written: frozenset[str]
    before: Unkept
    about: Mapping[str, Any]

    def missing(self) -> dict[str, set[str]]:
        """The parts that are wanted and dropped."""
        found: dict[str, set[str]] = {name: set() for name in self.plans}
        for name, at, one in self._holdings():
            if (name, at) in self.kept:
                found[name] |= set(one.parts) & self.plans[name].kernel.unkept
        return found

    def _holdings(self) -> list[tuple[str, int, Holding]]:
        return [(name, at, one) for name, plan in self.plans.items() for at, one in enumerate(plan.holdings)]

    @cached_property
    def _present(self) -> frozenset[Key]:
        """The states that are wanted and there: what is wanted and dropped is made again at the first need."""
        return frozenset(
            (name, at)
            for name, at, one in self._holdings()
            if (name, at) in self.kept and self.plans[name].kernel.unkept.isdisjoint(one.parts)
        )

    @cached_property
    def settled(self) -> Settled:
        """What a commit with this choice keeps."""
        unkept: dict[str, dict[str, list[int]]] = {}
        dropped = set()
        for name, at, one in self._holdings():
            if (name, at) in self._present:
                continue
            plan = self.plans[name]
            for part in one.parts:
                size = plan.measured.get(part, Measured(0, 0))
                unkept.setdefault(name, {})[part] = [size.entries, size.bytes]
                if part not in plan.kernel.unkept:
                    dropped.add(view_arrangement(name, part))
        for name, parts in self.before.items():
            if name not in self.plans:
                # A view that may drop nothing now had all of it made again, before rows began to wait for it.
                left = {
                    part: list(size) for part, size in parts.items() if view_arrangement(name, part) not in self.again
                }
                unkept |= {name: left} if left else {}
        memory = {
            **self.about,
            "missing": sum(
                map(len, self.missing().values())
            ),  # parts that are wanted, and made again at the first need
            "next_step": cost_of(self.made, self._present) / 1e6,
            "planned_bytes": sum(
                state.bytes for op in self.made for _, state in states_of(op) if state.key in self._present
            ),
            "all_kept": cost_of(self.made, frozenset((name, at) for name, at, _ in self._holdings())) / 1e6,
        }
        return Settled(self.again, frozenset(dropped), unkept, self.before, memory, self.written)


def present(plan: ViewPlan) -> frozenset[Key]:
    """The states of a view that are there."""
    return frozenset(
        (plan.name, at) for at, one in enumerate(plan.holdings) if plan.kernel.unkept.isdisjoint(one.parts)
    )


def plans_of(
    holders: Mapping[str, TreeView],
    states: Arrangements,
    unkept: Unkept,
    expected: Mapping[str, Change],
    statistics: Statistics,
    recomputable: Collection[str],
) -> dict[str, ViewPlan]:
    """What there is to choose from, given all arrangements and the change that is expected next."""
    return {
        name: ViewPlan(
            name,
            kernel,
            measured(name, kernel, states, unkept.get(name, {})),
            expected,
            statistics,
            name in recomputable,
        )
        for name, kernel in holders.items()
    }


def measured(name: str, kernel: TreeView, states: Arrangements, unkept: Mapping[str, list[int]]) -> dict[str, Measured]:
    """How large the parts of a view are, or were when they were dropped."""
    found = {part: Measured(*size) for part, size in unkept.items()}
    for part, arrangement in zip(kernel.arrangements, arrangements_kept(name, kernel), strict=True):
        buckets = states.get(arrangement, {}).values()
        found[part] = Measured(
            sum(state.live for state in buckets), sum(run.bytes for state in buckets for run in state.runs)
        )
    return found
