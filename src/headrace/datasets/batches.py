"""Turn finished tables into a stream of change batches, as the papers do to measure maintenance.

All tables grow at the same pace and finish together, so that each batch joins with partly filled tables; a deletion is
of a row that is there at that moment. Only row numbers are kept for this, so a stream costs little beside its tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.errors import SchemaError

DIFF = "__diff"
Numbers = NDArray[np.int64]


def stream(
    tables: Mapping[str, pa.Table], batch: int, deletes: float = 0.0, seed: int = 0
) -> Iterator[dict[str, pa.Table]]:
    """Yield change batches of `batch` rows that insert every row of the tables once.

    Rows keep their order within a table and are interleaved over the tables in proportion to their sizes. In each
    batch after the first, the fraction `deletes` deletes rows (exact copies, `__diff` = -1) of earlier batches, chosen
    uniformly from those not deleted yet; they do not come back, so at 1/2 and above next to nothing is left, and a
    batch deletes only what there is. Tables without a change in a batch are not in it.

    >>> tables = {"r": pa.table({"x": range(4)}), "s": pa.table({"y": range(2)})}
    >>> [{name: rows.num_rows for name, rows in changes.items()} for changes in stream(tables, 3)]
    [{'r': 2, 's': 1}, {'r': 2, 's': 1}]
    """
    if batch < 1:
        raise SchemaError(f"a batch of {batch} rows holds nothing", way_out="give a batch of 1 row or more")
    if not 0 <= deletes < 1:
        raise SchemaError(
            f"a stream cannot delete the fraction {deletes} of each batch", way_out="give deletes from 0 to below 1"
        )
    return _batches({name: table.combine_chunks() for name, table in tables.items()}, batch, deletes, seed)


def _batches(tables: Mapping[str, pa.Table], batch: int, deletes: float, seed: int) -> Iterator[dict[str, pa.Table]]:
    starts = np.cumsum([0, *(table.num_rows for table in tables.values())])
    order = _interleaved([table.num_rows for table in tables.values()])
    live = _Live(len(order) if deletes else 0, np.random.default_rng(seed))
    done, owed = 0, 0.0
    while done < len(order):
        # What does not make a whole row is carried on, so that small batches delete too.
        owed += batch * deletes if done else 0.0
        gone = min(int(owed), live.count)
        new = batch - gone
        if new > len(order) - done:
            new = len(order) - done
            gone = min(gone, int(new * deletes / (1 - deletes)))
        owed -= int(owed)
        inserted, deleted = order[done : done + new], live.take(gone)
        done += new
        if deletes:
            live.add(inserted)
        yield {
            name: rows
            for (name, table), start, end in zip(tables.items(), starts[:-1], starts[1:], strict=True)
            if (rows := _changes(table, _within(inserted, start, end), _within(deleted, start, end))).num_rows
        }


def _interleaved(sizes: list[int]) -> Numbers:
    """Number the rows of all tables through, and order the numbers by how far into its own table each row is."""
    depths = [(np.arange(size) + 0.5) / size for size in sizes if size]
    # Stable sorting merges runs that are sorted already, which takes one pass a doubling of the tables.
    return np.argsort(np.concatenate([np.empty(0), *depths]), kind="stable")


def _within(numbers: Numbers, start: int, end: int) -> Numbers:
    return numbers[(numbers >= start) & (numbers < end)] - start


def _changes(table: pa.Table, inserted: Numbers, deleted: Numbers) -> pa.Table:
    # Rows are inserted in the order of the table, so those of a batch are a slice.
    new = table.slice(int(inserted[0]) if len(inserted) else 0, len(inserted))
    rows = pa.concat_tables([new, table.take(deleted)]) if len(deleted) else new
    diff = np.repeat(np.array([1, -1], np.int64), [len(inserted), len(deleted)])
    return rows.append_column(DIFF, pa.array(diff))


class _Live:
    """The rows that are inserted and not deleted, by number, in an array without holes and in no order."""

    def __init__(self, room: int, random: np.random.Generator) -> None:
        self._slots = np.empty(room, np.int64)
        self._random = random
        self.count = 0

    def add(self, numbers: Numbers) -> None:
        self._slots[self.count : self.count + len(numbers)] = numbers
        self.count += len(numbers)

    def take(self, count: int) -> Numbers:
        chosen = self._random.choice(self.count, count, replace=False, shuffle=False) if count else np.empty(0, int)
        taken = self._slots[chosen]
        left = self.count - count
        # The last rows move into the holes before them.
        stays = np.ones(count, bool)
        stays[chosen[chosen >= left] - left] = False
        self._slots[chosen[chosen < left]] = self._slots[left : self.count][stays]
        self.count = left
        return taken
