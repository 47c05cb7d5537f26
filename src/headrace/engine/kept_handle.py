"""What all handles of views, moments and models have in common."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from headrace.engine.access import Access
from headrace.engine.catalogue import Entry
from headrace.engine.definition import PlannedView
from headrace.thrifty.goal import Freshness, Goal, changed_goal
from headrace.thrifty.schedule import Progress, now

if TYPE_CHECKING:
    from headrace.engine.step import Step
    from headrace.explain.report import Report


class KeptHandle:
    """Something that is kept fresh, by every step or as its goal says."""

    def __init__(self, access: Access, entry: Entry) -> None:
        self._access = access
        self._entry = entry

    @property
    def name(self) -> str:
        return self._entry.name

    @property
    def sql(self) -> str:
        """The query."""
        return self._entry.planned.definition.sql

    @property
    def planned(self) -> PlannedView:
        """How the answer is kept; an internal object that may change between versions."""
        return self._entry.planned

    @property
    def goal(self) -> Freshness | None:
        """How fresh the answer has to be, and when; None if every step brings it up to date.

        Assign a goal, or a goal with its trigger (`hr.Freshness`), to change it; None to follow every step again.
        """
        return self.planned.definition.freshness

    @goal.setter
    def goal(self, goal: Goal | Freshness | None) -> None:
        self._entry.check_there()
        self._access.control.set_goal(self.name, changed_goal(self.goal, goal))

    @property
    def lag(self) -> timedelta:
        """How long the oldest row has been waiting that is not in the answer yet; 0 if none is."""
        first = self.progress.first
        return timedelta(0) if first is None else timedelta(microseconds=max(0, now() - first))

    @property
    def as_of(self) -> int:
        """The last step whose rows are all in the answer."""
        progress = self.progress
        return self._access.state.latest.step if self.goal is None or progress.first is None else progress.step

    @property
    def problem(self) -> str:
        """Why the last trigger gave no answer; empty if it did. The answer is then that of the trigger before."""
        return self.progress.failed

    def refresh(self) -> Step:
        """Bring the answer up to date now, whatever its goal is."""
        self._entry.check_there()
        return self._access.control.refresh(self.name)

    @property
    def progress(self) -> Progress:
        """How far the view is on its way to its next trigger; an internal object that may change between versions."""
        self._entry.check_there()
        return self._access.state.latest.progress(self.name)

    def explain(self, *, cost: bool = False) -> Report:
        """Say how the answer is kept, why so, and what it costs.

        Parameters
        ----------
        cost : say as well what each operator was estimated to cost, and what it has cost.
        """
        from headrace.engine.explain import explain

        self._entry.check_there()
        report = explain(self._access, self.name, self.planned)
        if not cost:
            return report
        from headrace.engine.operator_costs import with_costs

        return with_costs(self._access, self.name, self.planned, report)
