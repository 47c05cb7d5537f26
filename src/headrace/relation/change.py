"""Change batches: what a user hands in, brought to the exact types of the table or refused with a reason.

There are two kinds of bad input. A batch whose columns do not fit the table is wrong as a whole and always
refused. A row that breaks a rule of the table (NULL where none may be, duplicate key, deletion of what is not there)
is a *bad row*: by default the step is refused too, but it can be set aside in the table's quarantine while the good
rows go on.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.errors import BadRowsError
from headrace.relation.columns import positions_of, take_rows, whole
from headrace.relation.keys import validity
from headrace.relation.schema import DIFF, Column, TableSchema
from headrace.relation.types import SqlType

REASON = "__reason"
APPEND_ONLY = "deletes a row of a table that is append-only"
SHOWN = 5  # bad rows that an error shows
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
    """Bring Arrow or pandas data to the exact types of a table.

    >>> schema = TableSchema.of("t", [Column("id", SqlType("bigint"))], key="id")
    >>> change_batch(schema, pa.table({"id": [1, 2], "__diff": [1, -1]})).diff
    array([ 1, -1])
    """
    table = arrow_of(schema.name, changes)
    check_columns(schema, table.column_names)
    columns = [_cast(schema.name, column, whole(table.column(column.name))) for column in schema.columns]
    rows = pa.table(columns, schema=pa.schema([pa.field(c.name, c.type.arrow) for c in schema.columns]))
    diff = _diff(schema, table)
    batch = ChangeBatch(rows, diff)
    return batch.take(diff != 0) if (diff == 0).any() else batch


def arrow_of(table: str, changes: object) -> pa.Table:
    """What a user gave as rows of a table, as Arrow."""
    # Loading pandas takes a quarter of a second, and whoever has a DataFrame has loaded it.
    if (pandas := sys.modules.get("pandas")) is not None and isinstance(changes, pandas.DataFrame):
        try:
            return pa.Table.from_pandas(changes, preserve_index=False)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
            raise BadRowsError(
                f"table {table!r}: the pandas DataFrame has a column that no one type can hold: {error}",
                way_out="give every column one type (astype) before applying it",
            ) from error
    if isinstance(changes, pa.RecordBatch):
        return pa.Table.from_batches([changes])
    if isinstance(changes, pa.Table):
        return changes
    raise BadRowsError(
        f"table {table!r}: changes are a {type(changes).__name__}",
        way_out="pass an Arrow table, a pandas DataFrame or a Spark DataFrame",
    )


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


def check_columns(schema: TableSchema, names: Sequence[str]) -> None:
    """Refuse a batch whose columns are not exactly those of the table."""
    wanted = schema.names
    missing = [name for name in wanted if name not in names]
    extra = [name for name in names if name not in wanted and name != DIFF]
    doubled = sorted({name for name in names if list(names).count(name) > 1})
    problems = [
        f"{what}: {', '.join(map(repr, found))}"
        for what, found in (("missing", missing), ("not in the table", extra), ("given twice", doubled))
        if found
    ]
    if problems:
        raise BadRowsError(
            f"table {schema.name!r}: the columns of the change batch do not fit; {'; '.join(problems)}",
            way_out=f"give exactly {', '.join(wanted)} and, if you like, {DIFF}",
        )


def _diff(schema: TableSchema, changes: pa.Table) -> NDArray[np.int64]:
    if DIFF not in changes.column_names:
        return np.ones(changes.num_rows, np.int64)
    column = whole(changes.column(DIFF))
    if not pa.types.is_integer(column.type) or column.null_count:
        raise BadRowsError(
            f"table {schema.name!r}: column {DIFF!r} is {column.type} with {column.null_count} NULLs",
            way_out="give whole numbers: +1 inserts a row, -1 deletes it; leave the column out to insert",
        )
    try:
        return np.array(column.cast(pa.int64()).to_numpy(zero_copy_only=False), np.int64)
    except pa.ArrowInvalid as error:
        raise BadRowsError(
            f"table {schema.name!r}: column {DIFF!r}: {error}", way_out="give multiplicities that fit 64 bits, signed"
        ) from error


def _cast(table: str, column: Column, array: pa.Array) -> pa.Array:
    target = column.type.arrow
    if pa.types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    if array.type == target:
        return array
    if not _compatible(array.type, column.type):
        raise BadRowsError(
            f"table {table!r}, column {column.name!r}: {array.type} given, {str(column.type).upper()} wanted",
            way_out="cast the column yourself: Headrace only converts where no value can change",
        )
    try:
        if column.type.is_decimal and pa.types.is_integer(array.type):
            # Arrow judges by the integer's width, not by its values, so go by way of the widest decimal.
            array = array.cast(pa.decimal128(38, 0))
        return _exact_cast(array, target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        samples = ", ".join(repr(value) for value in _offending(array, target))
        raise BadRowsError(
            f"table {table!r}, column {column.name!r}: "
            f"values do not fit {str(column.type).upper()}: {samples or error}",
            way_out="round or widen them first: Headrace only converts where no value can change",
        ) from error


def _exact_cast(array: pa.Array, target: pa.DataType) -> pa.Array:
    out = array.cast(target, safe=True)
    if pa.types.is_float32(target) and pa.types.is_float64(array.type):  # the one loss that Arrow calls safe
        lost = pc.and_(pc.not_equal(out.cast(array.type), array), pc.invert(pc.is_nan(array)))
        if pc.any(lost).as_py():
            raise pa.ArrowInvalid("doubles that no float equals")
    return out


def cancelled(changes: pa.Table) -> pa.Table:
    """Add up the changes of equal rows; a row that was deleted and inserted again did not change."""
    if not changes.num_rows:
        return changes
    names = [name for name in changes.column_names if name != DIFF]
    order = changes.column_names
    summed = changes.group_by(names, use_threads=False).aggregate([(DIFF, "sum")]).rename_columns([*names, DIFF])
    kept = summed.filter(pc.not_equal(summed.column(DIFF), 0)).select(order)
    return kept.cast(changes.schema)


def _compatible(given: pa.DataType, wanted: SqlType) -> bool:
    t = pa.types
    if t.is_null(given):
        return True
    if wanted.is_integer:
        return bool(t.is_integer(given) or t.is_floating(given))  # pandas turns integers with NULLs into doubles
    if wanted.is_floating:
        return bool(t.is_floating(given) or t.is_integer(given))
    if wanted.is_decimal:
        return bool(t.is_decimal(given) or t.is_integer(given))
    if wanted.kind == "string":
        return bool(t.is_string(given) or t.is_large_string(given) or t.is_string_view(given))
    if wanted.kind == "date":
        return bool(t.is_date(given))
    if wanted.kind == "timestamp":
        return bool(t.is_timestamp(given))
    if wanted.kind == "timestamp_ntz":
        return bool(t.is_timestamp(given) and given.tz is None)
    return bool(t.is_boolean(given) and wanted.kind == "boolean")


def _offending(array: pa.Array, target: pa.DataType) -> list[Any]:
    found: list[Any] = []
    for value in pc.unique(array):
        try:
            _exact_cast(pa.array([value], array.type), target)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            found.append(_shown(value))
            if len(found) == SHOWN:
                break
    return found


def _shown(value: pa.Scalar) -> Any:
    try:
        return value.as_py()
    except (OverflowError, ValueError):  # a timestamp beyond the year 9999
        return str(value.cast(pa.int64()))
