"""Change batches: what a user hands in, brought to the exact types of the table or refused with a reason.

There are two kinds of bad input. A batch whose columns do not fit the table is wrong as a whole and always
refused. A row that breaks a rule of the table (NULL where none may be, duplicate key, deletion of what is not there)
is a *bad row*: by default the step is refused too, but it can be set aside in the table's quarantine while the good
rows go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.errors import BadRowsError
from headrace.relation.columns import positions_of, take_rows, whole
from headrace.relation.given import SHOWN, arrow_of, diff_of, found_columns, rows_of
from headrace.relation.keys import validity
from headrace.relation.schema import DIFF, TableSchema

REASON = "__reason"
APPEND_ONLY = "deletes a row of a table that is append-only"
_MOST_COPIES = 2**31  # so that sums of multiplicities stay far from 64 bits


@dataclass(frozen=True)
class ChangeBatch:
    """Rows of one table with the multiplicity of each: +1 inserts, -1 deletes, any integer."""

    rows: pa.Table
    diff: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.diff)

    def to_arrow(self) -> pa.Table:
        """The rows with their multiplicity as a column, as a batch travels and is stored."""
        return self.rows.append_column(DIFF, pa.array(self.diff))

    @classmethod
    def from_arrow(cls, table: pa.Table) -> ChangeBatch:
        """Invert `to_arrow`."""
        return cls(table.drop_columns([DIFF]), whole(table.column(DIFF)).to_numpy())

    def take(self, positions: NDArray[np.integer] | NDArray[np.bool_]) -> ChangeBatch:
        """Pick rows by position or mask."""
        at = positions_of(positions)
        return ChangeBatch(take_rows(self.rows, at), self.diff[at])


@dataclass(frozen=True)
class BadRows:
    """Rows that break a rule of their table, with one reason per row."""

    table: str
    rows: pa.Table
    diff: NDArray[np.int64]
    reasons: Sequence[str]
    judge: str = ""  # the view whose rules they break; empty for the table's own

    def __len__(self) -> int:
        return len(self.reasons)

    def error(self, count: int | None = None) -> BadRowsError:
        """Return an error that says which rows are bad and why, with up to five samples.

        `count` says how many are bad if these are only the first of them.
        """
        lines = []
        for i, row in enumerate(self.rows.slice(0, SHOWN).to_pylist()):
            shown = ", ".join(f"{name}={value!r}" for name, value in row.items())
            lines.append(f"\n    {self.diff[i]:+d} ({shown}): {self.reasons[i]}")
        count = len(self) if count is None else count
        more = f"\n    ... and {count - SHOWN} more" if count > SHOWN else ""
        error = BadRowsError(
            f"table {self.table!r}: {count} bad row{'s' if count != 1 else ''} in the change batch; nothing was applied"
            + "".join(lines)
            + more,
            way_out='fix these rows, or pass on_bad_rows="quarantine" to apply the good rows and set these aside',
        )
        error.bad_rows = self  # type: ignore[attr-defined]
        return error

    def take(self, positions: NDArray[np.integer] | NDArray[np.bool_]) -> BadRows:
        """Pick rows by position or mask."""
        at = positions_of(positions)
        reasons = [self.reasons[i] for i in at.tolist()]
        return replace(self, rows=take_rows(self.rows, at), diff=self.diff[at], reasons=reasons)

    def to_arrow(self) -> pa.Table:
        """The bad rows as a table with `__diff` and `__reason`."""
        table = ChangeBatch(self.rows, self.diff).to_arrow()
        return table.append_column(REASON, pa.array(list(self.reasons), pa.large_string()))

    @classmethod
    def from_arrow(cls, name: str, table: pa.Table, judge: str) -> BadRows:
        """Invert `to_arrow`."""
        batch = ChangeBatch.from_arrow(table.drop_columns([REASON]))
        return cls(name, batch.rows, batch.diff, table.column(REASON).to_pylist(), judge)


def combine_bad_rows(parts: Sequence[BadRows]) -> BadRows:
    """Concatenate bad rows of one table."""
    return BadRows(
        parts[0].table,
        pa.concat_tables([part.rows for part in parts]),
        np.concatenate([part.diff for part in parts]),
        [reason for part in parts for reason in part.reasons],
    )


def change_batch(schema: TableSchema, changes: object) -> ChangeBatch:
    """Bring rows in any form but that of Spark to the exact types of a table.

    >>> from headrace.relation.schema import Column
    >>> from headrace.relation.types import SqlType
    >>> schema = TableSchema.of("t", [Column("id", SqlType("bigint"))], key="id")
    >>> change_batch(schema, pa.table({"id": [1, 2], "__diff": [1, -1]})).diff
    array([ 1, -1])
    """
    given = arrow_of(schema.name, changes)
    found = found_columns(schema, given.column_names)
    rows, diff = rows_of(schema, given, found), diff_of(schema, given, found)
    batch = ChangeBatch(rows, diff)
    return batch.take(diff != 0) if (diff == 0).any() else batch


def set_apart(schema: TableSchema, batch: ChangeBatch) -> tuple[ChangeBatch, BadRows | None]:
    """Set apart rows that are bad by themselves: NULL where none may be, multiplicities that no table could have."""
    bad = np.abs(batch.diff) > _MOST_COPIES
    reasons = {int(i): f"multiplicity {batch.diff[i]} is beyond {_MOST_COPIES:,}" for i in np.flatnonzero(bad)}
    if schema.append_only:
        deletes = batch.diff < 0
        reasons |= {int(i): APPEND_ONLY for i in np.flatnonzero(deletes & ~bad)}
        bad |= deletes
    for column in schema.columns:
        array = whole(batch.rows.column(column.name))
        if not column.nullable and array.null_count:
            missing = ~validity(array)
            what = "key column" if column.name in schema.key else "NOT NULL column"
            for i in np.flatnonzero(missing & ~bad):
                reasons[int(i)] = f"NULL in {what} {column.name!r}"
            bad |= missing
    if not bad.any():
        return batch, None
    chosen = batch.take(bad)
    found = BadRows(schema.name, chosen.rows, chosen.diff, [reasons[int(i)] for i in np.flatnonzero(bad)])
    return batch.take(~bad), found


def cancelled(changes: pa.Table) -> pa.Table:
    """Add up the changes of equal rows; a row that was deleted and inserted again did not change."""
    if not changes.num_rows:
        return changes
    names = [name for name in changes.column_names if name != DIFF]
    order = changes.column_names
    summed = changes.group_by(names, use_threads=False).aggregate([(DIFF, "sum")]).rename_columns([*names, DIFF])
    kept = summed.filter(pc.not_equal(summed.column(DIFF), 0)).select(order)
    return kept.cast(changes.schema)
