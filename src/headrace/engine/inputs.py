"""Input in Spark's terms: schemas of tables, and DataFrames of changes, which are checked, cast and evaluated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from headrace.engine.opening import check_classic
from headrace.errors import BadRowsError, HeadraceError, SchemaError
from headrace.relation.change import ChangeBatch, change_batch
from headrace.relation.given import found_columns
from headrace.relation.schema import DIFF, Column, TableSchema
from headrace.relation.types import SqlType, sql_type
from headrace.runtime.program import TableTask, catalyst_columns
from headrace.sql.catalyst import AnalysedView


def columns_of(table: str, schema: str | StructType | pa.Schema) -> list[Column]:
    """Read the columns of a table from Spark DDL, a StructType or an Arrow schema."""
    try:
        if isinstance(schema, pa.Schema):
            return [Column(field.name, sql_type(field.type), field.nullable) for field in schema]
        if isinstance(schema, str):
            schema = cast(StructType, StructType.fromDDL(schema))
        if not isinstance(schema, StructType):
            raise SchemaError(
                f"the schema is a {type(schema).__name__}", way_out="give Spark DDL, a StructType or an Arrow schema"
            )
        return [Column(f.name, SqlType.parse(f.dataType.simpleString()), f.nullable) for f in schema.fields]
    except PySparkException as error:
        said = next(filter(str.strip, str(error).splitlines()), "").strip()
        raise SchemaError(
            f"table {table!r}: the schema is not Spark DDL: {said}",
            way_out="write columns as in 'id BIGINT, price DECIMAL(10, 2) NOT NULL'",
        ) from error
    except SchemaError as error:
        raise SchemaError(f"table {table!r}: {error.what}", way_out=error.way_out) from error


def input_of(schema: TableSchema, given: object) -> ChangeBatch | DataFrame:
    """Check the changes of a table that a user gave."""
    check_classic(f"the DataFrame for table {schema.name!r}", given)
    return check_frame(schema, given) if isinstance(given, DataFrame) else change_batch(schema, given)


def check_frame(schema: TableSchema, frame: DataFrame, also: Sequence[str] = ()) -> DataFrame:
    """Bring a DataFrame to the columns and types of a table, in Spark; nothing runs yet.

    Parameters
    ----------
    also : columns that stay as they are; a DataFrame with such columns has no `__diff`.
    """
    found = found_columns(schema, frame.columns, also)
    given = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    columns = []
    for column in schema.columns:
        name = found[column.name]
        if not _fits(given[name], column.type):
            raise BadRowsError(
                f"table {schema.name!r}, column {column.name!r}: "
                f"{given[name]} given, {str(column.type).upper()} wanted",
                way_out="cast the column yourself: Headrace only converts where no value can change",
            )
        columns.append(_exact(schema.name, column, F.col(f"`{name}`"), given[name]).alias(column.name))
    if DIFF not in found:
        diff = F.lit(1).cast("bigint")
    elif given[found[DIFF]] in _NUMBERS or given[found[DIFF]].startswith("decimal"):
        own = F.col(f"`{found[DIFF]}`")
        whole = _exact(schema.name, Column(DIFF, SqlType("bigint")), own, given[found[DIFF]])
        diff = F.coalesce(whole, F.raise_error(F.lit(f"NULL in {DIFF}")).cast("bigint"))
    else:
        raise BadRowsError(
            f"table {schema.name!r}: column {DIFF!r} is {given[found[DIFF]]}",
            way_out="give whole numbers: +1 inserts a row, -1 deletes it; leave the column out to insert",
        )
    selected = frame.select(*columns, *[F.col(name) for name in also], diff.alias(DIFF))
    return selected.where(F.col(DIFF) != 0) if DIFF in found else selected


_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double")


def _exact(table: str, column: Column, given: SparkColumn, kind: str) -> SparkColumn:
    """A column in the type of a table's, where a value that would change ends the step."""
    wanted = str(column.type)
    if kind == wanted or kind in ("void", "null"):
        return given.cast(wanted)
    # Not CAST, which cuts off fractions and times of day, and whose errors do not name the column.
    cast = given.try_cast(wanted)
    where = f"table '{table}', column '{column.name}': the value "
    refused = F.concat(
        F.lit(where), given.cast("string"), F.lit(f" does not fit {wanted.upper()} (from {kind} to {wanted.upper()})")
    )
    fits = given.isNull() | F.coalesce(cast.try_cast(kind) == given, F.lit(False))
    if kind == "float" and wanted == "double":
        return cast
    return F.when(fits, cast).otherwise(F.raise_error(refused).cast(wanted))


def with_catalyst(task: TableTask, frame: DataFrame, views: Mapping[str, AnalysedView]) -> DataFrame:
    """Add the columns that Catalyst evaluates for the views of a table."""
    extra = []
    for view in task.views:
        if view.prefix is not None:
            extra += views[view.name].catalyst.map_columns(frame, view.prefix, source=view.side.source)
    return frame.select("*", *extra) if extra else frame


def with_catalyst_here(task: TableTask, changes: ChangeBatch, views: Mapping[str, AnalysedView]) -> ChangeBatch:
    """Do what `with_catalyst` does to rows that the driver has, without a job."""
    rows = changes.rows
    for view in task.views:
        if view.prefix is not None:
            values = views[view.name].catalyst.map_values(changes.rows, view.side.source)
            for column in catalyst_columns(view):
                value = values[column.name.removeprefix(view.prefix)]
                rows = rows.append_column(column.name, value.cast(column.type.arrow))
    return ChangeBatch(rows, changes.diff)


def _fits(given: str, wanted: SqlType) -> bool:
    if given in ("void", "null"):
        return True
    try:
        kind = SqlType.parse(given)
    except HeadraceError:
        return False
    if kind == wanted:
        return True
    if wanted.is_decimal:
        return kind.is_integer or (
            kind.is_decimal
            and kind.scale <= wanted.scale
            and kind.precision - kind.scale <= wanted.precision - wanted.scale
        )
    if wanted.is_integer:
        return kind.is_numeric
    if wanted.kind == "date":
        return kind.kind in ("timestamp", "timestamp_ntz")
    return wanted.is_floating and (kind.is_floating or kind.is_integer)
