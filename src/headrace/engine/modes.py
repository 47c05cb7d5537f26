"""How the rows that a user hands in are meant: as plain changes, or as what becomes of the rows with their keys.

Plain changes say what goes and what comes (`__diff`). With a mode, rows name other rows by their keys, and what is
there now is found by Headrace (`relation/by_key`). A mode is checked here, once, against the table that it is for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, NullType

from headrace.engine.inputs import check_frame
from headrace.engine.opening import check_classic, one_of
from headrace.errors import BadRowsError, SchemaError
from headrace.relation.by_key import DELETE, OP, REPLACE, SEQUENCE, Wanted
from headrace.relation.columns import whole
from headrace.relation.given import arrow_of, found_columns, rows_of
from headrace.relation.schema import DIFF, TableSchema
from headrace.relation.types import SqlType, sql_type

CHANGES, UPSERT, DELETES, SYNC = "changes", "upsert", "delete", "sync"
MODES = (CHANGES, UPSERT, DELETES, SYNC)
MISSING = ("error", "ignore")

PerTable = str | Mapping[str, str] | None
"""An option of a step: for all of its tables, or {table: option}."""


@dataclass(frozen=True)
class Mode:
    """How the rows of one table are meant.

    Parameters
    ----------
    kind : one of MODES.
    op_column : the column that says of each row whether it is inserted, updated or deleted.
    order_by : the column by which several changes of one key follow each other.
    missing : what becomes of updates and deletions of rows that are not there: one of MISSING.
    """

    kind: str = CHANGES
    op_column: str | None = None
    order_by: str | None = None
    missing: str = MISSING[0]

    @property
    def is_plain(self) -> bool:
        """Whether the rows say themselves what goes and what comes."""
        return self.kind == CHANGES and self.op_column is None

    @property
    def wanted(self) -> Wanted:
        """What each row asks for."""
        return Wanted(
            op=DELETE if self.kind == DELETES else REPLACE,
            has_op=self.op_column is not None,
            replaces=self.kind == UPSERT,
            has_sequence=self.order_by is not None,
            ignores_missing=self.missing == "ignore",
            is_whole=self.kind == SYNC,
        )

    def __str__(self) -> str:
        return f"op_column={self.op_column!r}" if self.kind == CHANGES else f"mode={self.kind!r}"


@dataclass(frozen=True)
class ByKey:
    """Rows of a table that are to be resolved: its columns, and those of `relation.by_key`, in the types they have.

    Parameters
    ----------
    columns : what `rows` has, as tasks see it.
    """

    mode: Mode
    rows: pa.Table | DataFrame
    columns: pa.Schema


def modes_of(
    schemas: Mapping[str, TableSchema],
    mode: PerTable = None,
    op_column: PerTable = None,
    order_by: PerTable = None,
    missing: PerTable = None,
) -> dict[str, Mode]:
    """The modes of the tables of a step; refuses what a table cannot have."""
    options = {"mode": mode, "op_column": op_column, "order_by": order_by, "missing": missing}
    for what, given in options.items():
        _check_option(what, given, schemas)
    return {
        name: _mode_of(schema, {what: _for(name, given) for what, given in options.items()})
        for name, schema in schemas.items()
    }


def check_stream(
    schema: TableSchema,
    frame: DataFrame,
    mode: str | None,
    op_column: str | None,
    order_by: str | None,
    missing: str | None,
) -> dict[str, str]:
    """Refuse what the micro-batches of a stream cannot be; returns what `apply` is to be told of each of them."""
    found = modes_of({schema.name: schema}, mode, op_column, order_by, missing)[schema.name]
    if found.kind == SYNC:
        raise SchemaError(
            f"table {schema.name!r}: a micro-batch is a part of the rows, and mode='sync' takes them for all there are",
            way_out="use mode='upsert', with an op_column if rows are deleted too",
        )
    if not found.is_plain:
        by_key(schema, found, frame)  # whether the columns fit
    options = {"mode": mode, "op_column": op_column, "order_by": order_by, "missing": missing}
    return {what: given for what, given in options.items() if given is not None}


def _check_option(what: str, given: PerTable, schemas: Mapping[str, TableSchema]) -> None:
    if given is None or isinstance(given, str):
        return
    if not isinstance(given, Mapping) or not all(isinstance(one, str) for one in given.values()):
        raise SchemaError(
            f"{what}={given!r} is neither a text nor {{table: text}}",
            way_out=f"give it for all tables of the step, or as in {what}={{'orders': ...}}",
        )
    if unknown := [name for name in given if name not in schemas]:
        raise SchemaError(
            f"{what} names {', '.join(map(repr, unknown))}, and the step changes {', '.join(schemas) or 'no table'}",
            way_out="name tables that the step gives changes for",
        )


def _for(table: str, given: PerTable) -> str | None:
    return given.get(table) if isinstance(given, Mapping) else given


def _mode_of(schema: TableSchema, options: Mapping[str, str | None]) -> Mode:
    found = Mode(
        options["mode"] or CHANGES, options["op_column"], options["order_by"], options["missing"] or MISSING[0]
    )
    where = f"table {schema.name!r}"
    one_of(f"{where}: mode", found.kind, MODES)
    one_of(f"{where}: missing", found.missing, MISSING)
    if found.op_column is not None and found.kind not in (CHANGES, UPSERT):
        raise SchemaError(
            f"{where}: mode={found.kind!r} says what all rows are, and op_column={found.op_column!r} what each one is",
            way_out="leave one of the two out; mode='upsert' takes an op_column, and then inserts replace rows too",
        )
    if found.order_by is not None and found.op_column is None and found.kind != UPSERT:
        raise SchemaError(
            f"{where}: order_by={found.order_by!r} orders several changes of one key, and {found} has no use for that",
            way_out="leave it out, or give op_column or mode='upsert'",
        )
    if not found.is_plain and not schema.kept:
        raise SchemaError(
            f"{where} keeps no rows, so {found} finds none to compare with", way_out="give rows with __diff"
        )
    if not found.is_plain and not schema.key and found.kind != SYNC:
        raise SchemaError(
            f"{where} has no key, and {found} finds rows by their keys",
            way_out="make the table with key='...' (PRIMARY KEY in a pipeline file), or give rows with __diff",
        )
    return found


def by_key(schema: TableSchema, mode: Mode, given: object) -> ByKey:
    """Bring what a user gave with a mode to the columns and types of the table."""
    check_classic(f"the DataFrame for table {schema.name!r}", given)
    return _frame(schema, mode, given) if isinstance(given, DataFrame) else _rows(schema, mode, given)


def _rows(schema: TableSchema, mode: Mode, given: object) -> ByKey:
    table = arrow_of(schema.name, given)
    own, found, extra = _columns(schema, mode, table.column_names)
    ops = pa.nulls(0)
    if OP in extra:
        ops = whole(table.column(extra[OP]))
        ops = ops.cast(ops.type.value_type) if pa.types.is_dictionary(ops.type) else ops
        _check_op(schema, mode, str(ops.type))
    rows = rows_of(own, table, found)
    for column in schema.columns:
        if column not in own.columns:
            rows = rows.append_column(column.name, pa.nulls(table.num_rows, column.type.arrow))
    rows = rows.select(schema.names)
    if OP in extra:
        rows = rows.append_column(OP, ops.cast(pa.large_string()))
    if SEQUENCE in extra:
        places = whole(table.column(extra[SEQUENCE]))
        places = places.cast(places.type.value_type) if pa.types.is_dictionary(places.type) else places
        rows = rows.append_column(SEQUENCE, places.cast(_sequence_type(schema, mode, places.type)))
    return ByKey(mode, rows, rows.schema)


def _frame(schema: TableSchema, mode: Mode, given: DataFrame) -> ByKey:
    own, found, extra = _columns(schema, mode, given.columns)
    if OP in extra:
        _check_op(schema, mode, given.schema[extra[OP]].dataType.simpleString())
    own_columns = [F.col(f"`{column}`").alias(name) for name, column in found.items()]
    frame = given.select(*own_columns, *[F.col(f"`{column}`").alias(name) for name, column in extra.items()])
    frame = check_frame(own, frame, also=list(extra))
    for column in schema.columns:
        if column not in own.columns:
            frame = frame.withColumn(column.name, F.lit(None).cast(str(column.type)))
    fields = [pa.field(column.name, column.type.arrow) for column in schema.columns]
    if OP in extra:
        fields.append(pa.field(OP, pa.large_string()))
    if SEQUENCE in extra:
        fields.append(pa.field(SEQUENCE, _sequence_type(schema, mode, frame.schema[SEQUENCE].dataType)))
    columns = pa.schema(fields)
    return ByKey(mode, frame.select(*[F.col(f"`{name}`") for name in columns.names]), columns)


def _columns(schema: TableSchema, mode: Mode, names: list[str]) -> tuple[TableSchema, dict[str, str], dict[str, str]]:
    """What a batch has: the table as far as its columns are there, their names in the batch, and those of the mode.

    A deletion needs the columns of the key, and may have others. The column of a mode may be one of the table's.
    """
    where = f"table {schema.name!r}"
    if DIFF in map(str.lower, names):
        raise BadRowsError(
            f"{where}: with {mode} there is no column {DIFF!r}: what becomes of the rows is said already",
            way_out=f"drop the column, or leave out {mode}",
        )
    extra = {}
    for option, own_name, column in (("op_column", OP, mode.op_column), ("order_by", SEQUENCE, mode.order_by)):
        if column is not None:
            named = [name for name in names if name == column] or [n for n in names if n.lower() == column.lower()]
            if len(named) != 1:
                raise BadRowsError(
                    f"{where}: {option}={column!r} is not among the columns {', '.join(map(repr, names))}",
                    way_out="name a column of the rows that you give",
                )
            extra[own_name] = named[0]
    folded = [name.lower() for name in names]
    own = schema
    if mode.kind == DELETES:
        there = [c for c in schema.columns if c.name.lower() in folded or c.name in schema.key]
        own = replace(schema, columns=tuple(there))
    others = {name for name in extra.values() if name.lower() not in map(str.lower, own.names)}
    return own, found_columns(own, names, also=sorted(others)), extra


def _check_op(schema: TableSchema, mode: Mode, kind: str) -> None:
    if kind not in ("string", "large_string", "string_view", "null", "void"):
        raise BadRowsError(
            f"table {schema.name!r}: op_column={mode.op_column!r} is {kind}",
            way_out="give texts: I, U and D, or insert, update and delete",
        )


def _sequence_type(schema: TableSchema, mode: Mode, given: pa.DataType | DataType) -> pa.DataType:
    """The type of the column that orders changes: any that a table may have."""
    if given in (pa.null(), NullType()):
        return pa.int64()
    try:
        kind = SqlType.parse(given.simpleString()) if isinstance(given, DataType) else sql_type(given)
    except SchemaError as error:
        raise BadRowsError(
            f"table {schema.name!r}: order_by={mode.order_by!r} is {given}, which has no order here",
            way_out="give numbers, times or texts",
        ) from error
    return given if isinstance(given, pa.DataType) else kind.arrow


def wanted_here(given: ByKey, collected: Any) -> pa.Table:
    """Rows that Spark sent as Arrow, in the types that tasks would see."""
    return collected.select(given.columns.names).cast(given.columns).combine_chunks()
