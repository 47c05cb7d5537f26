"""Make the tables, views and sources that a pipeline's statements name.

Each definition is compared with the one that the location already holds: equal definitions are left alone, so running
a pipeline again is harmless.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

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
    for name, source in sources.items():
        engine.stream(name, source, name=name)


def _view(engine: Engine, statement: ViewStatement) -> None:
    engine.view(
        statement.name, statement.sql, goal=statement.goal, idle_after=statement.idle_after, replace=statement.replace
    )


def _source(spark: SparkSession, table: TableStatement, pipeline: Path) -> DataFrame:
    options = dict(table.options)
    path = _pop(options, "path")
    with_diff = _flag(_pop(options, "changes"), table, pipeline)
    schema = f"{table.columns_ddl}, {DIFF} BIGINT" if with_diff else table.columns_ddl
    reader = spark.readStream.format(table.format).options(**options)
    try:
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


def _flag(value: str | None, table: TableStatement, pipeline: Path) -> bool:
    known = {None: False, "false": False, "true": True}
    lowered = value.lower() if value is not None else None
    if lowered not in known:
        raise PipelineError(
            f"{pipeline}, line {table.line}: option changes of table {table.name} is {value!r}.",
            way_out=f"Set it to 'true' when the files carry a {DIFF} column (+1 insert, -1 delete), or to 'false'.",
        )
    return known[lowered]
