"""Make the tables, views and sources that a pipeline's statements name.

Each definition is compared with the one that the location already holds: equal definitions are left alone, so running
a pipeline again is harmless.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from headrace.errors import PipelineError
from headrace.sql.pipeline import Statement, TableStatement, ViewStatement, in_reading_order

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headrace import Engine

# Sources that bring their own schema, and refuse to be given one.
FIXED_SCHEMA = {"kafka", "rate", "rate-micro-batch", "socket"}
DIFF = "__diff"


def build(engine: Engine, statements: Iterable[Statement], pipeline: Path) -> None:
    """Create the tables, views and sources that the statements name."""
    statements = list(statements)
    tables = [statement for statement in statements if isinstance(statement, TableStatement)]
    # Sources first: a wrong path is the likeliest mistake, and is found before anything is created.
    sources = {table.name: _source(engine.spark, table, pipeline) for table in tables}
    for statement in in_reading_order(statements):
        if isinstance(statement, TableStatement):
            engine.table(
                statement.name,
                statement.columns_ddl,
                key=statement.key or None,
                references=statement.references or None,
            )
        else:
            _view(engine, statement)
    for table in tables:
        engine.stream(table.name, sources[table.name], name=table.name, **_meaning(table, pipeline).how)


def _view(engine: Engine, statement: ViewStatement) -> None:
    engine.view(
        statement.name, statement.sql, goal=statement.goal, idle_after=statement.idle_after, replace=statement.replace
    )


def _source(spark: SparkSession, table: TableStatement, pipeline: Path) -> DataFrame:
    options = dict(table.options)
    path = _pop(options, "path")
    for name in _MEANING:
        _pop(options, name)
    reader = spark.readStream.format(table.format).options(**options)
    meaning = _meaning(table, pipeline)
    try:
        schema = f"{table.columns_ddl}{meaning.more_columns(spark)}"
        if table.format.lower() in FIXED_SCHEMA:
            return _cast(reader.load(), schema)
        loaded = reader.schema(schema).load(_absolute(path, pipeline) if path is not None else None)
        _ = loaded.schema  # Spark looks at the path only now
    except (PySparkException, Py4JJavaError) as error:
        # Spark reports an unknown format as a bare Java error, whose text is a stack trace.
        text = error.java_exception.getMessage() if isinstance(error, Py4JJavaError) else error
        reason = str(text).split("\n", 1)[0]
        raise PipelineError(
            f"{pipeline}, line {table.line}: the source of table {table.name} cannot be opened.\n  {reason}",
            way_out="Check the format, the types, and the path (a relative one starts at the pipeline file).",
        ) from error
    return loaded


def _cast(loaded: DataFrame, schema: str) -> DataFrame:
    wanted = loaded.sparkSession.createDataFrame([], schema).schema
    return loaded.select(*(loaded[field.name].cast(field.dataType).alias(field.name) for field in wanted.fields))


def _absolute(path: str, pipeline: Path) -> str:
    """Return a path that does not depend on the working directory; URLs such as s3a://bucket stay as they are."""
    return path if "://" in path else str((pipeline.parent / path).absolute())


def _pop(options: dict[str, str], wanted: str) -> str | None:
    # Spark ignores the case of option names.
    return next((options.pop(name) for name in list(options) if name.lower() == wanted), None)


@dataclass(frozen=True)
class _Meaning:
    """What the rows of a source are: plain changes, or what becomes of the rows with their keys.

    Parameters
    ----------
    how : the options of the stream.
    sequence : the type of the column of `order_by`; empty if none was given.
    """

    table: TableStatement
    pipeline: Path
    with_diff: bool
    how: dict[str, Any]
    sequence: str = ""

    def more_columns(self, spark: SparkSession) -> str:
        """The columns that the source has beside those of the table, each after a comma."""
        more = f", {DIFF} BIGINT" if self.with_diff else ""
        op, place = self.how.get("op_column"), self.how.get("order_by")
        if op is None and place is None:
            return more
        own = [name.lower() for name in spark.createDataFrame([], self.table.columns_ddl).schema.names]
        if op is not None and op.lower() not in own:
            more += f", {_quoted(op)} STRING"
        if place is not None and place.lower() not in own and place != op:
            if not self.sequence:
                raise PipelineError(
                    f"{self.pipeline}, line {self.table.line}: order_by of table {self.table.name} is {place!r}, which "
                    "is none of its columns, and has no type.",
                    way_out=f"Give its type too, as in order_by '{place} BIGINT'.",
                )
            more += f", {_quoted(place)} {self.sequence}"
        return more


_MEANING = ("changes", "op_column", "order_by", "missing")


def _meaning(table: TableStatement, pipeline: Path) -> _Meaning:
    options = dict(table.options)
    given: dict[str, Any] = {name: value for name in _MEANING if (value := _pop(options, name)) is not None}
    changes = given.pop("changes", "false").lower()
    if changes not in ("true", "false", "upsert", "delete"):
        raise PipelineError(
            f"{pipeline}, line {table.line}: option changes of table {table.name} is {changes!r}.",
            way_out=f"Set it to 'true' when the files carry a {DIFF} column (+1 insert, -1 delete), to 'upsert' when "
            "rows replace those with their keys, to 'delete' when they delete these, or to 'false'.",
        )
    if changes in ("upsert", "delete"):
        given["mode"] = changes
    place, _, kind = given.get("order_by", "").strip().partition(" ")
    if place:
        given["order_by"] = place
    return _Meaning(table, pipeline, changes == "true", given, kind.strip())


def _quoted(name: str) -> str:
    escaped = name.replace("`", "``")
    return f"`{escaped}`"
