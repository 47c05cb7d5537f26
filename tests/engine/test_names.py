"""Names of tables and views are found in any case, as in SQL; columns that cannot be told apart are listed."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import headrace as hr
from headrace.engine.looking import Look
from headrace.errors import BadRowsError, SchemaError, UnsupportedSQLError


def test_names_in_any_case(spark: SparkSession, tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2], "x": [3, 4]})
    with hr.Engine(spark, tmp_path / "s", executor="inline", buckets=2, calibrate=False) as engine:
        engine.table("Orders", "id BIGINT, x BIGINT", key="id")
        view = engine.view("total", "SELECT SUM(x) AS x FROM ORDERS")
        engine.view("Above", "SELECT x + 1 AS y FROM TOTAL")
        assert engine.view("TOTAL", "SELECT SUM(x) AS x FROM ORDERS") is view
        engine.apply({"orders": rows})
        engine.expect({"ORDERS": 5})
        assert engine.views["Total"] is view
        assert engine.views["ABOVE"].to_arrow().to_pylist() == [{"y": 8}]
        assert ("TOTAL" in engine.views, "other" in engine.views, engine.views.get("other")) == (True, False, None)
        assert engine.tables["ORDERS"].name == "Orders"
        assert engine.quarantine("ORDERS").num_rows == engine.late("orders").num_rows == 0
        with pytest.raises(BadRowsError, match="table 'Orders' was given twice"):
            engine.apply({"orders": rows, "ORDERS": rows})
        with pytest.raises(SchemaError, match="view 'total' is read by Above"):
            engine.drop("Total")
        with pytest.raises(SchemaError, match="there is no table 'items'"):
            engine.apply({"items": rows})
        with pytest.raises(KeyError):
            engine.views["other"]
        view.goal = hr.Manual()
        engine.apply({"ORDERS": pa.table({"id": [3], "x": [1]})})
        engine.refresh("Total")
        assert view.to_arrow().to_pylist() == [{"x": 8}]
        with Look(tmp_path / "s") as look:
            assert look.views["TOTAL"].to_arrow().to_pylist() == [{"x": 8}]
        engine.drop("above")
        engine.drop("TOTAL")
        assert engine.views == {}


def test_columns_that_two_tables_have_are_listed(spark: SparkSession, tmp_path: Path) -> None:
    with hr.Engine(spark, tmp_path / "s", executor="inline", buckets=2, calibrate=False) as engine:
        engine.table("a", "id BIGINT, x BIGINT, y BIGINT", key="id")
        engine.table("b", "ID BIGINT, x BIGINT, z BIGINT", key="ID")
        with pytest.raises(UnsupportedSQLError, match=r"the column names 'ID', 'x' .* several columns have each"):
            engine.view("v", "SELECT * FROM a JOIN b ON a.id = b.ID")
        with pytest.raises(UnsupportedSQLError, match="the column name 'x' cannot be maintained: two columns have it"):
            engine.view("v", "SELECT a.*, b.x FROM a JOIN b ON a.id = b.ID")
