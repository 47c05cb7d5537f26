"""The plain tables of TPC-H: schemas, references, and what happens without the generator."""

from __future__ import annotations

import os
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from headrace.datasets import TPCH_SCHEMAS, duplicated_tpch, tpch_tables
from headrace.errors import HeadraceError, SchemaError


@pytest.fixture(scope="module")
def tables() -> dict[str, pa.Table]:
    return tpch_tables(0.001)


def test_plain_tables_are_as_declared(tables: dict[str, pa.Table]) -> None:
    assert {name: table.num_rows for name, table in tables.items()} == {
        "region": 5,
        "nation": 25,
        "supplier": 10,
        "customer": 150,
        "part": 200,
        "partsupp": 700,  # dbgen makes 800, of which 100 repeat a key
        "orders": 1_500,
        "lineitem": 6_005,
    }
    for name, spec in TPCH_SCHEMAS.items():
        assert tables[name].schema.equals(spec.schema)
        assert "NOT NULL" in spec.ddl
    assert "l_quantity DECIMAL(15, 2) NOT NULL" in TPCH_SCHEMAS["lineitem"].ddl


def test_keys_and_references_hold(tables: dict[str, pa.Table]) -> None:
    earlier: set[str] = set()
    for name, spec in TPCH_SCHEMAS.items():
        keys = tables[name].select(list(spec.key))
        assert keys.group_by(list(spec.key)).aggregate([]).num_rows == keys.num_rows
        for own, target in dict(spec.references).items():
            assert target in earlier, "referenced tables come first"
            columns, theirs = [own] if isinstance(own, str) else list(own), list(TPCH_SCHEMAS[target].key)
            referring, referred = tables[name].select(columns), tables[target].select(theirs)
            assert referring.join(referred, columns, theirs, join_type="left anti").num_rows == 0
        earlier.add(name)
    assert dict(TPCH_SCHEMAS["lineitem"].references)["l_partkey", "l_suppkey"] == "partsupp"


def test_the_numeric_variant_says_the_same_as_the_plain_tables(tables: dict[str, pa.Table]) -> None:
    with duckdb.connect() as connection:
        for name, table in (
            tables | {f"n_{name}": table for name, table in duplicated_tpch(1).generate(0.001).items()}
        ).items():
            connection.register(name, table)
        plain = """
            SELECT o_orderkey, CAST(o_totalprice AS DOUBLE), o_orderdate - DATE '1992-01-01',
                DENSE_RANK() OVER (ORDER BY o_orderpriority) - 1, CAST(SUBSTR(o_clerk, 7) AS INT), c_mktsegment
            FROM orders JOIN customer ON o_custkey = c_custkey ORDER BY 1"""
        numeric = """
            SELECT orderkey, o_totalprice, o_orderdate, o_orderpriority, o_clerk, c_mktsegment
            FROM n_orders NATURAL JOIN n_customer ORDER BY 1"""
        expected, found = connection.sql(plain).fetchall(), connection.sql(numeric).fetchall()
        assert [row[:-1] for row in found] == [row[:-1] for row in expected]
        names = sorted({row[-1] for row in expected})
        assert [names[row[-1]] for row in found] == [row[-1] for row in expected]


def test_without_the_generator_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name, path: None)
    with pytest.raises(HeadraceError, match=r"headrace\[datasets\]"):
        tpch_tables(0.001)


@pytest.mark.skipif(os.name == "nt", reason="makes a shell script")
def test_a_failure_of_the_generator_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "tpchgen-cli"
    broken.write_text("#!/bin/sh\necho 'no space left' >&2\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setattr("shutil.which", lambda name, path: str(broken))
    with pytest.raises(HeadraceError, match=r"exit code 3.\s+no space left"):
        tpch_tables(0.001)


def test_scales_that_make_no_sense() -> None:
    with pytest.raises(SchemaError, match="scale"):
        tpch_tables(0)
