"""Views that a location has and that this engine could not open: a ring that is missing, another Spark, damage.

Such a view keeps nobody from the others. It is there with its reason, and can be dropped. Steps do not follow it, so
with the first step its state is out of date: the commit of that step drops the state and says so in the view's
definition (`stale`); so does one that changes what views share. When the view can be opened again, it is filled again
from its tables.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headrace.engine.stacking import check_unread, views_of
from headrace.errors import HeadraceError, SchemaError, StorageError
from headrace.runtime.log import Snapshot
from headrace.runtime.program import final_arrangement, view_arrangement
from headrace.runtime.record import PENDING, Record

if TYPE_CHECKING:
    from headrace.engine.definition import PlannedView
    from headrace.relation.schema import TableSchema

_STALE = "stale"


class FailedView:
    """The handle of a view that could not be opened: to read anything else of it raises the reason."""

    def __init__(self, name: str, why: HeadraceError) -> None:
        self._name = name
        self._why = why

    @property
    def name(self) -> str:
        return self._name

    @property
    def problem(self) -> str:
        """Why it could not be opened, and what to do."""
        return str(self._why)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise StorageError(
            f"view {self._name!r} could not be opened: {self._why.what}",
            way_out=f"{self._why.way_out}; or drop it: engine.drop({self._name!r})",
        )

    def __repr__(self) -> str:
        return f"<view {self._name!r} could not be opened: {self._why.what}>"


class FailedViews:
    """The views that one engine could not open."""

    def __init__(self) -> None:
        self._found: dict[
            str, tuple[Mapping[str, Any], FailedView]
        ] = {}  # definitions, as the log has them, and handles

    def __contains__(self, name: str) -> bool:
        return name in self._found

    @property
    def handles(self) -> dict[str, FailedView]:
        """The handle of each."""
        return {name: handle for name, (_, handle) in self._found.items()}

    def reasons(self) -> dict[str, str]:
        """Why each of them could not be opened."""
        return {name: handle.problem for name, handle in self.handles.items()}

    def add(self, name: str, definition: Mapping[str, Any], why: HeadraceError) -> None:
        """Take note of a view that could not be opened."""
        self._found[name] = definition, FailedView(name, why)

    def remove(self, name: str) -> None:
        """Forget a view that has been dropped."""
        self._found.pop(name, None)

    def check_free(self, name: str) -> None:
        """Refuse a new table or view with the name of one that could not be opened."""
        taken = {other.lower(): other for other in self._found}
        if name.lower() in taken:
            raise SchemaError(
                f"view {taken[name.lower()]!r} exists, and could not be opened",
                way_out=f"see engine.views[{name!r}].problem; or drop it first: engine.drop({name!r})",
            )

    def check_none(self, because: str) -> None:
        """Refuse what takes all views, if one of them could not be opened."""
        for name in self._found:
            raise SchemaError(
                f"view {name!r} could not be opened, and {because}",
                way_out=f"see engine.views[{name!r}].problem; or drop it first: engine.drop({name!r})",
            )

    def check_unused(self, table: str) -> None:
        """Refuse to drop a table that one of them reads, as far as the text of its definition tells; or a view."""
        check_unread(table, [name for name, (said, _) in self._found.items() if table in views_of(said)])
        if table in self:
            return  # it is one of them, and no table
        word = re.compile(rf"\b{re.escape(table)}\b", re.IGNORECASE)
        users = [name for name, (said, _) in self._found.items() if word.search(json.dumps(said))]
        if users:
            raise SchemaError(f"table {table!r} is used by {', '.join(users)}", way_out="drop these first")

    def out_of_date(self, record: Record, before: Snapshot, shared: Callable[[], dict[str, Any]]) -> Record:
        """A record that says of these views that it does not follow them: if it is a step, or changes what is shared.

        Parameters
        ----------
        shared : makes the subplans that views share, without these views, as the log has them.
        """
        fresh = [name for name in self._found if not is_stale(before.views[name])]
        if not fresh or (record.step <= before.step and record.shared is None):
            return record
        marked = {name: {**self._found[name][0], _STALE: True} for name in fresh}
        gone = [part for name in fresh for part in state_of(name, before)]
        return replace(
            record,
            views=record.views | marked,
            dropped=(*record.dropped, *gone),
            unkept=record.unkept | {name: {} for name in fresh},
            shared=shared() if record.shared is None else record.shared,
        )


def is_stale(definition: Mapping[str, Any]) -> bool:
    """Whether steps have gone on without a view."""
    return bool(definition.get(_STALE, False))


def state_of(view: str, snapshot: Snapshot) -> tuple[str, ...]:
    """The arrangements of a view, by their names alone."""
    begins = (view_arrangement(view, ""), f"{PENDING}{view}/")
    return tuple(n for n in snapshot.arrangements if n.startswith(begins) or n == final_arrangement(view))


def check_fillable_again(name: str, view: PlannedView, tables: Mapping[str, TableSchema]) -> None:
    """Refuse to fill a view again whose tables do not have all that it has seen."""
    unkept = [table for table in view.tables if not tables[table].kept]
    if unkept or view.is_final:
        why = f"table {unkept[0]} keeps no rows" if unkept else "what is final does not follow from its tables"
        raise StorageError(
            f"steps have gone on while it could not be opened, so its state is out of date, and {why}",
            way_out="drop it, and create it again",
        )


def stale_while_reading() -> StorageError:
    """The error for a view that only an engine that writes can fill again."""
    return StorageError(
        "steps have gone on while it could not be opened, so its state is out of date",
        way_out="open the location for writing once: then it is filled again from its tables",
    )
