"""What users hand in as rows of a table, brought to its columns and their exact types, or refused with the reason.

What fits is taken, in whatever shape it comes: midnights into a DATE, 1.0 into an integer, names in another case. What
would change a value is refused, with the column, the values and the types of the conversion.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.errors import BadRowsError
from headrace.relation.columns import whole
from headrace.relation.schema import DIFF, Column, TableSchema
from headrace.relation.types import SqlType

SHOWN = 5  # bad rows, or values, that an error shows
_WAY_OUT = (
    "pass a Spark DataFrame, an Arrow table, a pandas DataFrame, a list of dicts (rows) or a dict of lists (columns)"
)


def arrow_of(table: str, changes: object) -> pa.Table:
    """What a user gave as rows of a table, as Arrow.

    >>> arrow_of("t", [{"id": 1, "x": None}, {"id": 2, "x": 0.5}]).to_pydict()
    {'id': [1, 2], 'x': [None, 0.5]}
    """
    if isinstance(changes, pa.RecordBatch):
        return pa.Table.from_batches([changes])
    if isinstance(changes, pa.Table):
        return changes
    # Loading pandas takes a quarter of a second, and whoever has a DataFrame has loaded it.
    if (pandas := sys.modules.get("pandas")) is not None and isinstance(changes, pandas.DataFrame):
        series = [(str(name), changes.iloc[:, at]) for at, name in enumerate(changes.columns)]
        return _table(table, series, "pandas DataFrame")
    if isinstance(changes, Mapping):
        return _table(table, [(str(name), values) for name, values in changes.items()], "dict of lists")
    if isinstance(changes, list | tuple) and all(isinstance(row, Mapping) for row in changes):
        return _table(table, _columns(table, changes), "list of dicts")
    what = f"a {type(changes).__name__}"
    if isinstance(changes, list | tuple):
        other = next(row for row in changes if not isinstance(row, Mapping))
        what += f" with a {type(other).__name__}, {other!r}"
    raise BadRowsError(f"table {table!r}: changes are {what}", way_out=_WAY_OUT)


def _columns(table: str, rows: Sequence[Mapping[Any, Any]]) -> list[tuple[str, list[Any]]]:
    """Rows as columns; a name that a row lacks could mean NULL or a mistake, so it is refused."""
    names = dict.fromkeys(str(name) for row in rows for name in row)
    for number, row in enumerate(rows):
        if len(row) < len(names):
            lacks = ", ".join(repr(name) for name in names if name not in map(str, row))
            raise _unfit(
                table, f"row {number} lacks {lacks}: {dict(row)!r}", "give every row all columns, None for NULL"
            )
    texts = [{str(name): value for name, value in row.items()} for row in rows]
    return [(name, [row[name] for row in texts]) for name in names]


def _table(table: str, columns: Sequence[tuple[str, Any]], what: str) -> pa.Table:
    """Columns of any kind as Arrow: each gets the one type that holds all of its values."""
    arrays = []
    for name, values in columns:
        if isinstance(values, str | bytes) or not hasattr(values, "__len__"):
            raise _unfit(table, f"column {name!r} is {values!r}", "give each column as a list of its values")
        try:
            arrays.append(pa.array(values, from_pandas=what == "pandas DataFrame"))
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError) as error:
            raise BadRowsError(
                f"table {table!r}: the {what} has a column that no one type can hold: {name!r}: {error}",
                way_out="give every column one type (with pandas: astype) before applying it",
            ) from error
    if len({len(array) for array in arrays}) > 1:
        lengths = ", ".join(f"{name!r} has {len(array)}" for (name, _), array in zip(columns, arrays, strict=True))
        raise _unfit(table, f"not all columns are of one length: {lengths}", "give a value per row and column")
    return pa.table(arrays, names=[name for name, _ in columns])


def _unfit(table: str, problem: str, way_out: str) -> BadRowsError:
    return BadRowsError(f"table {table!r}: the columns of the change batch do not fit; {problem}", way_out=way_out)


def found_columns(schema: TableSchema, names: Sequence[str], also: Sequence[str] = ()) -> dict[str, str]:
    """How the columns of a table are called in a batch, and `__diff`, if it has that; a batch of others is refused.

    Names of SQL ignore case, so a name in another case is found, unless there is one in the very case.

    >>> schema = TableSchema.of("t", [Column("id", SqlType("bigint")), Column("x", SqlType("double"))])
    >>> found_columns(schema, ["X", "ID"])
    {'id': 'ID', 'x': 'X'}
    """
    wanted = [*schema.names, DIFF]
    found = {name: name for name in wanted if name in names}
    taken = {*found.values(), *also}
    folded = {name.lower(): name for name in names if name not in taken}
    found |= {name: folded[name.lower()] for name in wanted if name not in found and name.lower() in folded}
    missing = [name for name in schema.names if name not in found]
    extra = [name for name in names if name not in found.values() and name not in also]
    doubled = sorted({name for name in names if list(names).count(name) > 1 or (name in extra and _is_in(name, found))})
    extra = [name for name in extra if name not in doubled]
    problems = [
        f"{what}: {', '.join(map(repr, these))}"
        for what, these in (("missing", missing), ("not in the table", extra), ("given twice", doubled))
        if these
    ]
    if problems:
        raise _unfit(
            schema.name, "; ".join(problems), f"give exactly {', '.join(schema.names)} and, if you like, {DIFF}"
        )
    return {name: found[name] for name in wanted if name in found}


def _is_in(name: str, found: Mapping[str, str]) -> bool:
    return name.lower() in [own.lower() for own in found]


def rows_of(schema: TableSchema, given: pa.Table, found: Mapping[str, str]) -> pa.Table:
    """Rows in the types of a table's columns, which are called in the batch as `found_columns` says."""
    columns = [_cast(schema.name, column, whole(given.column(found[column.name]))) for column in schema.columns]
    return pa.table(columns, schema=pa.schema([pa.field(c.name, c.type.arrow) for c in schema.columns]))


def diff_of(schema: TableSchema, given: pa.Table, found: Mapping[str, str]) -> NDArray[np.int64]:
    """The multiplicity of each row: whole numbers of any type."""
    if DIFF not in found:
        return np.ones(given.num_rows, np.int64)
    column = whole(given.column(found[DIFF]))
    kind = column.type
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    if column.null_count or not (is_number or not len(column)):
        raise BadRowsError(
            f"table {schema.name!r}: column {DIFF!r} is {kind} with {column.null_count} NULLs",
            way_out="give whole numbers: +1 inserts a row, -1 deletes it; leave the column out to insert",
        )
    numbers = _cast(schema.name, Column(DIFF, SqlType("bigint")), column)
    return np.array(numbers.to_numpy(zero_copy_only=False), np.int64)


def _cast(table: str, column: Column, array: pa.Array) -> pa.Array:
    target = column.type.arrow
    if pa.types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    if array.type == target:
        return array
    if not len(array):  # a frame without rows often has no types either
        return pa.array([], target)
    wanted, kind = str(column.type).upper(), array.type
    if not _compatible(array.type, column.type):
        sample = next((_shown(value) for value in array if value.is_valid), None)
        shown = "" if sample is None else f" ({sample!r}, say)"
        raise BadRowsError(
            f"table {table!r}, column {column.name!r}: {array.type} given, {wanted} wanted{shown}",
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
            f"table {table!r}, column {column.name!r}: values do not fit {wanted}: {samples or error} "
            f"(from {kind} to {wanted})",
            way_out="round or widen them first: Headrace only converts where no value can change",
        ) from error


def _exact_cast(array: pa.Array, target: pa.DataType) -> pa.Array:
    if pa.types.is_date32(target) and pa.types.is_timestamp(array.type):
        return _midnights(array)
    out = array.cast(target, safe=True)
    if pa.types.is_float32(target) and pa.types.is_float64(array.type):  # the one loss that Arrow calls safe
        lost = pc.and_(pc.not_equal(out.cast(array.type), array), pc.invert(pc.is_nan(array)))
        if pc.any(lost).as_py():
            raise pa.ArrowInvalid("doubles that no float equals")
    return out


def _midnights(array: pa.Array) -> pa.Array:
    """The dates of times that are midnights, on the clock of their time zone if they have one."""
    local = array if array.type.tz is None else pc.local_timestamp(array)
    dates = local.cast(pa.date32())
    if pc.any(pc.not_equal(dates.cast(local.type), local)).as_py():
        raise pa.ArrowInvalid("times that are no midnights")
    return dates


def _compatible(given: pa.DataType, wanted: SqlType) -> bool:
    t = pa.types
    if t.is_null(given):
        return True
    if wanted.is_integer:
        # pandas turns integers with NULLs into doubles, and whoever reads a database may get decimals.
        return bool(t.is_integer(given) or t.is_floating(given) or t.is_decimal(given))
    if wanted.is_floating:
        return bool(t.is_floating(given) or t.is_integer(given))
    if wanted.is_decimal:
        return bool(t.is_decimal(given) or t.is_integer(given))
    if wanted.kind == "string":
        return bool(t.is_string(given) or t.is_large_string(given) or t.is_string_view(given))
    if wanted.kind == "date":
        return bool(t.is_date(given) or t.is_timestamp(given))
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
