"""What all handles of views, moments and models have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.engine.access import Access
from headrace.engine.catalogue import Entry
from headrace.engine.definition import PlannedView

if TYPE_CHECKING:
    from headrace.explain.report import Report


class KeptHandle:
    """Something that every step keeps fresh."""

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

    def explain(self) -> Report:
        """Say how the answer is kept, why so, and what it costs."""
        from headrace.engine.explain import explain

        self._entry.check_there()
        return explain(self._access, self.name, self.planned)
