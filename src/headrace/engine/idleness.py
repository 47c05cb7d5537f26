"""Which views are idle: nothing has come into their tables for as long as they say (`idle_after`), and nothing waits.

The log keeps, per such view, when rows last came and whether its state has been released since, so an engine that opens
the location again goes on counting where the last one was.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.engine.catalogue import Catalogue
from headrace.engine.store import Store
from headrace.relation.duration import Duration
from headrace.relation.from_log import from_log
from headrace.thrifty.schedule import now, progress_of


@dataclass(frozen=True)
class Activity:
    """When rows last came into the tables of each view that may get idle, and which of these views are idle."""

    last: Mapping[str, int] = field(default_factory=dict)  # microseconds since 1970
    idle: frozenset[str] = frozenset()

    def to_json(self) -> dict[str, Any]:
        """The activity as the log keeps it, among what it says of memory."""
        return {"active": dict(self.last), "idle": sorted(self.idle)}

    @classmethod
    @from_log("when tables have changed")
    def from_json(cls, memory: Mapping[str, Any]) -> Activity:
        return cls(memory.get("active", {}), frozenset(memory.get("idle", ())))


class Idleness:
    """The views of one engine that may get idle."""

    def __init__(self, catalogue: Catalogue, store: Store) -> None:
        self._catalogue = catalogue
        self._store = store

    @property
    def waits(self) -> dict[str, Duration]:
        """The views that may get idle, each with how long that takes."""
        found = {name: view.definition.idle_after for name, view in self._catalogue.views.items()}
        return {name: wait for name, wait in found.items() if wait is not None}

    @property
    def committed(self) -> Activity:
        """What the last commit says."""
        return Activity.from_json(self._store.snapshot.memory)

    @property
    def is_off(self) -> bool:
        """Whether no view may get idle, and the log knows of none."""
        return not self.committed.last and not self.waits

    def after(self, came: Collection[str] = ()) -> Activity:
        """The activity now, after rows of some tables have come; the time of a new view begins now."""
        at, known, waits = now(), self.committed.last, self.waits
        last = {}
        for name in waits:
            reached = not set(came).isdisjoint(self._catalogue.views[name].tables)
            last[name] = at if reached else known.get(name, at)
        idle = frozenset(
            name
            for name, since in last.items()
            if at - since >= waits[name].microseconds and not self._rows_wait(name, came)
        )
        return Activity(last, idle)

    def _rows_wait(self, name: str, came: Collection[str] = ()) -> bool:
        """Whether rows wait for the trigger of a view with a goal, so that its state is behind its tables."""
        view = self._catalogue.views[name]
        if view.definition.freshness is None:
            return False
        waiting = progress_of(self._store.snapshot.goals, name).first is not None
        return waiting or not set(came).isdisjoint(view.tables)

    def with_subplans(self, activity: Activity) -> frozenset[str]:
        """The idle views, and the shared subplans that only idle views read."""
        shared = self._catalogue.subplans.items()
        return activity.idle | {name for name, one in shared if one.views and activity.idle.issuperset(one.views)}

    def wakes_at(self) -> int | None:
        """When the next view gets idle; None if none will."""
        known = self.committed
        found = [
            known.last[name] + wait.microseconds
            for name, wait in self.waits.items()
            if name in known.last and name not in known.idle and not self._rows_wait(name)
        ]
        return min(found, default=None)

    def is_due(self) -> bool:
        """Whether a view has got idle since the last commit."""
        at = self.wakes_at()
        return at is not None and at <= now()
