"""The sources of a pipeline, on Spark itself: only it knows which readers take a schema and which paths exist."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.cli.build import build
from headrace.errors import PipelineError
from headrace.sql.pipeline import parse_pipeline


def built(fake: Any, spark: SparkSession, folder: Path, text: str) -> Any:
    fake.spark = spark
    build(fake, parse_pipeline(text, "p.sql"), folder / "p.sql")
    return fake.streams["t"][0]


def test_files_beside_the_pipeline(fake: Any, spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in put").mkdir()
    source = built(
        fake,
        spark,
        tmp_path,
        "CREATE TABLE t (id BIGINT NOT NULL, `a b` DECIMAL(5,2)) USING json OPTIONS (path 'in put', Changes 'TRUE')",
    )
    assert source.isStreaming
    assert [(field.name, field.dataType.simpleString()) for field in source.schema] == [
        ("id", "bigint"),
        ("a b", "decimal(5,2)"),
        ("__diff", "bigint"),
    ]


def test_a_source_with_a_schema_of_its_own_is_cast(fake: Any, spark: SparkSession, tmp_path: Path) -> None:
    source = built(fake, spark, tmp_path, "CREATE TABLE t (value INT) USING rate OPTIONS (rowsPerSecond 5)")
    assert source.schema.simpleString() == "struct<value:int>"


@pytest.mark.parametrize(
    "text",
    [
        "CREATE TABLE t (a INT) USING csv OPTIONS (path 'nowhere')",
        "CREATE TABLE t (a INT) USING nonsense OPTIONS (path '.')",
        "CREATE TABLE t (a NONSENSE) USING csv OPTIONS (path '.')",
        "CREATE TABLE t (a INT) USING csv",
        "CREATE TABLE t (nothing INT) USING rate",
    ],
)
def test_a_source_that_cannot_be_opened(text: str, fake: Any, spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"p\.sql, line 1: the source of table t") as caught:
        built(fake, spark, tmp_path, text)
    assert fake.tables == {}, "nothing is created when a source is wrong"
    assert "JVM stacktrace" not in caught.value.what


def test_what_the_rows_of_a_source_are(fake: Any, spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    source = built(
        fake,
        spark,
        tmp_path,
        "CREATE TABLE t (id BIGINT PRIMARY KEY, x INT) USING json "
        "OPTIONS (path 'in', changes 'Upsert', op_column 'op', order_by 'seq BIGINT', missing 'ignore')",
    )
    assert source.schema.simpleString() == "struct<id:bigint,x:int,op:string,seq:bigint>"
    assert fake.how["t"] == {"mode": "upsert", "op_column": "op", "order_by": "seq", "missing": "ignore"}
    own = "CREATE TABLE t (id BIGINT PRIMARY KEY, op STRING, x INT) USING json"
    own += " OPTIONS (path 'in', op_column 'op', order_by 'X')"
    assert built(fake, spark, tmp_path, own).schema.simpleString() == "struct<id:bigint,op:string,x:int>"
    assert fake.how["t"] == {"op_column": "op", "order_by": "X"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("changes 'merge'", r"p\.sql, line 1: option changes of table t is 'merge'"),
        (
            "op_column 'op', order_by 'seq'",
            r"p\.sql, line 1: order_by of table t is 'seq', which is none of its columns",
        ),
    ],
)
def test_what_rows_cannot_be(options: str, message: str, fake: Any, spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=message):
        built(fake, spark, tmp_path, f"CREATE TABLE t (a INT) USING json OPTIONS (path '.', {options})")
