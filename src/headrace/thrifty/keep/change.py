"""Rows that come into tables: of one step, and on average of the batches of one source."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_RECENT = 4  # batches whose average is the rate of a source: tables that take turns are all in it


@dataclass(frozen=True)
class Change:
    """Rows of one table that a step inserts and deletes."""

    inserted: float = 0.0
    deleted: float = 0.0

    @property
    def rows(self) -> float:
        return self.inserted + self.deleted

    def times(self, factor: float) -> Change:
        return Change(self.inserted * factor, self.deleted * factor)

    def __add__(self, other: Change) -> Change:
        return Change(self.inserted + other.inserted, self.deleted + other.deleted)


@dataclass(frozen=True)
class Rate:
    """What a source brings per batch, as far as its last batches say it.

    A table has the average over those batches that change it. So a table that changes in every second batch counts with
    all of its rows, because the step that changes it will bring as many.

    >>> Rate().after({"orders": Change(90.0)}).after({"orders": Change(110.0), "shops": Change(1.0)}).per_batch()
    {'orders': Change(inserted=100.0, deleted=0.0), 'shops': Change(inserted=1.0, deleted=0.0)}
    """

    batches: tuple[Mapping[str, Change], ...] = ()

    def after(self, came: Mapping[str, Change]) -> Rate:
        """The rate with one more batch."""
        return Rate((*self.batches, came)[-_RECENT:])

    def per_batch(self) -> dict[str, Change]:
        """The rows per table."""
        tables = dict.fromkeys(table for batch in self.batches for table in batch)
        return {table: _mean(batch[table] for batch in self.batches if table in batch) for table in tables}


def _mean(changes: Iterable[Change]) -> Change:
    found = list(changes)
    return sum(found, Change()).times(1 / len(found))


def about_equal(one: Mapping[str, Change], other: Mapping[str, Change]) -> bool:
    """Whether two expectations name the same tables, with numbers of rows at most a factor of two apart."""
    if one.keys() != other.keys():
        return False
    return all(change.rows <= 2 * other[table].rows <= 4 * change.rows for table, change in one.items())
