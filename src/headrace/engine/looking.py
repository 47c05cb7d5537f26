"""Look at a location without Spark: its status, the reports of EXPLAIN, and answers.

Definitions, the commit log and run files need no Spark, and the plans of views are stored beside them (`stored_plans`).
What only Spark knows raises SparkNeeded: a plan that was not stored, or an answer with an expression that Catalyst
evaluates. All else is said by the same code as in an engine, so it is the same, to the letter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from headrace.engine import stored_plans
from headrace.engine.access import Access
from headrace.engine.by_name import spelled
from headrace.engine.catalogue import Catalogue
from headrace.engine.failed import is_stale, stale_while_reading
from headrace.engine.handles import Table
from headrace.engine.kinds import handle_class
from headrace.engine.opening import AUTO, location_at
from headrace.engine.sharing import shared_from_json
from headrace.engine.sharing_report import engine_report
from headrace.engine.status import status_of
from headrace.engine.store import Store
from headrace.engine.stored_definitions import table_of, view_of
from headrace.errors import HeadraceError, StorageError
from headrace.thrifty.share.plan import shared_without

if TYPE_CHECKING:
    from headrace.engine.engine import Handle
    from headrace.explain.report import Report


class Look:
    """What a read-only engine can say without Spark; the names are those of `Engine`."""

    def __init__(self, location: str | Path) -> None:
        self._store = Store(location_at(location), read_only=True)
        self._store.open_existing()
        self._catalogue = Catalogue(self._store.settings.seed)
        self._access = Access(self._catalogue, self._store)
        try:
            for name, definition in self._store.snapshot.tables.items():
                self._catalogue.add_table(table_of(name, definition), lambda layout: Table(self._access, layout))
        except BaseException:
            self._store.close()
            raise
        self.views: Mapping[str, Handle] = _Views(self._store, self._access)

    def status(self) -> dict[str, Any]:
        """Tables, views, sources and sizes, as plain values."""
        failed = self._opened()
        found = self._store.read(lambda reader: status_of(self._catalogue, reader))
        found |= {"failed": failed} if failed else {}
        return found | ({"lost": self._store.lost} if self._store.lost else {})

    def explain(self) -> Report:
        """Report on all views together; as whoever opens the location without wishes of their own would share."""
        self._opened()
        return self._store.read(lambda reader: engine_report(self._catalogue, reader, AUTO))

    def _opened(self) -> dict[str, str]:
        """Have all views in the catalogue; returns why some could not be opened."""
        failed = {}
        for name in self.views:
            try:
                self.views[name]
            except HeadraceError as error:
                failed[name] = str(error)
        if failed:
            self._catalogue.share(shared_without(shared_from_json(self._store.snapshot.shared), failed))
        return failed

    def verify(self) -> list[str]:
        """Read all state and check every checksum; returns one line per problem."""
        with self._store.reader() as reader:
            return reader.damage()

    def close(self) -> None:
        """Let go of the location."""
        self._store.close()

    def __enter__(self) -> Look:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Views(Mapping[str, "Handle"]):
    """All views, by name; the plan of one is read when the view is asked for."""

    def __init__(self, store: Store, access: Access) -> None:
        self._store = store
        self._access = access

    def __getitem__(self, name: str) -> Handle:
        known, name = self._access.catalogue.handles, spelled(name, self._store.snapshot.views)
        if name in known:
            return known[name]
        said = self._store.snapshot.views[name]
        definition = view_of(name, said)
        for inner in definition.views:
            _ = self[inner]  # what it is given decides where its own operators run
        if is_stale(said):
            stale = stale_while_reading()
            raise StorageError(f"view {name!r} is out of date: {stale.what}", way_out=stale.way_out)
        planned = stored_plans.read(self._store, name, definition)
        kind = handle_class(definition.kind)
        handle = self._access.catalogue.add_view(name, planned, lambda entry: kind(self._access, entry))
        self._access.catalogue.share(shared_from_json(self._store.snapshot.shared))
        self._access.catalogue.leave_out(self._store.snapshot.unkept)
        return handle

    def __iter__(self) -> Iterator[str]:
        return iter(self._store.snapshot.views)

    def __len__(self) -> int:
        return len(self._store.snapshot.views)
