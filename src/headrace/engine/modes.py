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
from pyspark.sql.pandas.types import to_arrow_type

from headrace.engine.inputs import check_frame
from headrace.engine.opening import check_classic, one_of
from headrace.errors import BadRowsError, SchemaError
from headrace.relation.by_key import DELETE, OP, REPLACE, SEQUENCE, Wanted
from headrace.relation.change import arrow_of, change_batch
from headrace.relation.columns import whole
from headrace.relation.schema import DIFF, TableSchema

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
    own = _own_columns(schema, mode, table.column_names)
    if mode.op_column is not None:
        ops = whole(table.column(mode.op_column))
        ops = ops.cast(ops.type.value_type) if pa.types.is_dictionary(ops.type) else ops
        _check_op(schema, mode, str(ops.type))
    rows = change_batch(own, table.select(_given_columns(own, mode, table.column_names))).rows
    for column in schema.columns:
        if column.name not in rows.column_names:
            rows = rows.append_column(column.name, pa.nulls(table.num_rows, column.type.arrow))
    rows = rows.select(schema.names)
    if mode.op_column is not None:
        rows = rows.append_column(OP, ops.cast(pa.large_string()))
    if mode.order_by is not None:
        rows = rows.append_column(SEQUENCE, whole(table.column(mode.order_by)))
    return ByKey(mode, rows, rows.schema)


def _frame(schema: TableSchema, mode: Mode, given: DataFrame) -> ByKey:
    own = _own_columns(schema, mode, given.columns)
    more = {OP: mode.op_column, SEQUENCE: mode.order_by}
    extra = {name: column for name, column in more.items() if column is not None}
    if mode.op_column is not None:
        _check_op(schema, mode, given.schema[mode.op_column].dataType.simpleString())
    frame = given.select(
        *[F.col(f"`{name}`") for name in _given_columns(own, mode, given.columns)],
        *[F.col(f"`{column}`").alias(name) for name, column in extra.items()],
    )
    frame = check_frame(own, frame, also=list(extra))
    missing = [column for column in schema.columns if column not in own.columns]
    for column in missing:
        frame = frame.withColumn(column.name, F.lit(None).cast(str(column.type)))
    fields = [pa.field(column.name, column.type.arrow) for column in schema.columns]
    fields += [pa.field(name, to_arrow_type(frame.schema[name].dataType)) for name in extra]
    columns = pa.schema(fields)
    return ByKey(mode, frame.select(*[F.col(f"`{name}`") for name in columns.names]), columns)


def _own_columns(schema: TableSchema, mode: Mode, names: list[str]) -> TableSchema:
    """The table as far as a batch has to have its columns: a deletion needs the key, and may have others."""
    if DIFF in names:
        raise BadRowsError(
            f"table {schema.name!r}: with {mode} there is no column {DIFF!r}: what becomes of the rows is said already",
            way_out=f"drop the column, or leave out {mode}",
        )
    for what, column in (("op_column", mode.op_column), ("order_by", mode.order_by)):
        if column is not None and column not in names:
            raise BadRowsError(
                f"table {schema.name!r}: {what}={column!r} is not among the columns {', '.join(map(repr, names))}",
                way_out="name a column of the rows that you give",
            )
    if mode.kind != DELETES:
        return schema
    return replace(schema, columns=tuple(c for c in schema.columns if c.name in names or c.name in schema.key))


def _given_columns(own: TableSchema, mode: Mode, names: list[str]) -> list[str]:
    """The columns of a batch that are the table's, or should be: all but those that the mode names."""
    extra = {mode.op_column, mode.order_by} - set(own.names)
    return [name for name in names if name not in extra]


def _check_op(schema: TableSchema, mode: Mode, kind: str) -> None:
    if kind not in ("string", "large_string", "string_view", "null", "void"):
        raise BadRowsError(
            f"table {schema.name!r}: op_column={mode.op_column!r} is {kind}",
            way_out="give texts: I, U and D, or insert, update and delete",
        )


def wanted_here(given: ByKey, collected: Any) -> pa.Table:
    """Rows that Spark sent as Arrow, in the types that tasks would see."""
    return collected.select(given.columns.names).cast(given.columns).combine_chunks()
