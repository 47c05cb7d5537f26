"""Which changes an engine expects: what its users say, what its sources announce, and what has come.

All of it is written down with the commits of steps, but for announcements: these are kept here too, because they end
with the engine in which their sources are played, and an engine that opens the location later must not believe them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.engine.catalogue import Catalogue
from headrace.engine.store import Store
from headrace.errors import SchemaError
from headrace.plan.assumptions import UNKNOWN_ROWS
from headrace.relation.change import ChangeBatch
from headrace.relation.product import ProductBatch
from headrace.thrifty.cost import UNITS
from headrace.thrifty.keep.change import Change, about_equal
from headrace.thrifty.keep.prediction import Announced, Prediction
from headrace.thrifty.statistics import Statistics

if TYPE_CHECKING:
    from headrace.engine.step_runner import Inputs


class Expectations:
    """The expectations of one engine."""

    def __init__(self, catalogue: Catalogue, store: Store) -> None:
        self._catalogue = catalogue
        self._store = store
        self._announced: Announced = {}
        self._since = 0

    @property
    def prediction(self) -> Prediction:
        """Which changes are expected."""
        written = Prediction.from_json(self._store.snapshot.memory.get("prediction", {}))
        return replace(written, announced=self._announced, since=self._since)

    def announce(self, source: str, changes: Mapping[str, Change | None] | None) -> bool:
        """Note what a source says of its next batch, or that it has ended (None); whether that is worth a new choice.

        Where a source does not know how many rows of a table come, it is as many as usual.
        """
        before, known = self.prediction, None
        if changes is not None:
            usual = self.usual() if None in changes.values() else {}
            # A table that is still empty will get some row.
            known = {t: max(usual[t], Change(1.0), key=_rows) if one is None else one for t, one in changes.items()}
        if before.announced.get(source) == known:
            return False
        after = before.announcing(source, known)
        self._announced, self._since = after.announced, after.since
        return before.announced.keys() != after.announced.keys() or not about_equal(before.next(), after.next())

    def forget_sources(self) -> bool:
        """Forget all announcements; whether there were any."""
        there = bool(self._announced)
        self._announced = {}
        return there

    def usual(self) -> dict[str, Change]:
        """How much steps change each table on average, or are assumed to."""
        statistics = self.statistics()
        return {t: Change(statistics.share(t) * statistics.size(t)) for t in self._catalogue.schemas}

    def statistics(self) -> Statistics:
        """The sizes of all tables, and how much of them steps change."""
        latest, schemas = self._store.latest, self._catalogue.schemas
        return Statistics(schemas, {table: latest.rows(table) for table in schemas}, latest.rates, UNITS)


def _rows(change: Change) -> float:
    return change.rows


def changes_of(inputs: Inputs, rows: Mapping[str, int] | None = None) -> dict[str, Change]:
    """The rows that a step inserts and deletes, per table; `rows` of a large DataFrame are known after the step."""
    found = {}
    for name, given in inputs.items():
        if isinstance(given, ChangeBatch):
            deleted = int(-given.diff[given.diff < 0].sum())
            found[name] = Change(float(given.diff[given.diff > 0].sum()), float(deleted))
        elif isinstance(given, ProductBatch):
            found[name] = Change(float(len(given)))  # no view over the table has state that could be dropped
        else:
            found[name] = Change(float(UNKNOWN_ROWS if rows is None else rows[name]))
    return found


def said_of(changes: Mapping[str, int | tuple[int, int]] | None, tables: Collection[str]) -> dict[str, Change] | None:
    """What a user says of the next changes, checked."""
    return None if changes is None else {name: _checked(name, rows, tables) for name, rows in changes.items()}


def announced_of(
    changes: Mapping[str, int | tuple[int, int] | None] | None, tables: Collection[str]
) -> dict[str, Change | None] | None:
    """What a source announces, checked; None for a table of which it cannot say how many rows come."""
    if changes is None:
        return None
    found = {name: _checked(name, 0 if rows is None else rows, tables) for name, rows in changes.items()}
    return {name: None if changes[name] is None else change for name, change in found.items()}


def _checked(name: str, rows: int | tuple[int, int], tables: Collection[str]) -> Change:
    inserted, deleted = rows if isinstance(rows, tuple) else (rows, 0)
    if name not in tables:
        raise SchemaError(f"there is no table {name!r}", way_out=f"known are: {', '.join(tables)}")
    if inserted < 0 or deleted < 0:
        raise SchemaError(f"{name} cannot change by {rows} rows", way_out="give rows, or (inserted, deleted)")
    return Change(float(inserted), float(deleted))
