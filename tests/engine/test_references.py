"""References of tables and the hint of their size, through the front door and a restart."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import headrace as hr
from headrace.errors import SchemaError

LINKS = {("part", "supplier"): "partsupp", "part": "parts"}


def test_references_of_several_columns_and_the_hint_survive_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    items = "id BIGINT, part BIGINT, supplier BIGINT"
    with hr.Engine(spark, tmp_path, executor="inline") as engine:
        engine.table("parts", "part BIGINT", key="part", expected_rows=200)
        engine.table("partsupp", "part BIGINT, supplier BIGINT", key=("part", "supplier"))
        engine.table("items", items, key="id", references=LINKS, expected_rows=6_000)
    with hr.Engine(spark, tmp_path, executor="inline") as engine:
        schema = engine.tables["items"].schema
        assert dict(schema.references) == LINKS
        assert {name: table.schema.expected_rows for name, table in engine.tables.items()} == {
            "parts": 200,
            "partsupp": None,
            "items": 6_000,
        }
        # The same definition; the hint is no part of it, and stays.
        assert engine.table("items", items, key="id", references=LINKS, expected_rows=1).schema.expected_rows == 6_000
        with pytest.raises(SchemaError, match="exists with another definition"):
            engine.table("items", items, key="id", references={"part": "parts"})
        for referred in ("partsupp", "parts"):
            with pytest.raises(SchemaError, match="is used by items"):
                engine.drop(referred)
        for name in ("items", "partsupp", "parts"):
            engine.drop(name)
        assert engine.tables == {}


def test_references_and_hints_that_cannot_be_right(spark: SparkSession, tmp_path: Path) -> None:
    with hr.Engine(spark, tmp_path, executor="inline") as engine:
        with pytest.raises(SchemaError, match="references column 'nope'"):
            engine.table("t", "id BIGINT", references={("id", "nope"): "u"})
        with pytest.raises(SchemaError, match="expected_rows=-1"):
            engine.table("t", "id BIGINT", expected_rows=-1)
        assert engine.tables == {}
