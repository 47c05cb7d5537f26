"""What every data set promises, checked over all of them: types, keys, joins, features, order, seeds."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from headrace.datasets import DATASETS, Dataset, TableSpec, dataset, duplicated_ssb, duplicated_tpch
from headrace.errors import HeadraceError, SchemaError
from headrace.relation.types import SqlType

SMALL = {"housing": 0.02, "retailer": 0.01, "favorita": 0.01, "ssb": 0.001, "tpch": 0.001}
FEATURES = {"housing": 26, "retailer": 39, "favorita": 15, "ssb": 33, "tpch": 31}
JOINED_ON = {"housing": 1, "retailer": 4, "favorita": 3, "ssb": 4, "tpch": 6}

every = pytest.mark.parametrize("name", list(DATASETS))


@cache
def small(name: str) -> dict[str, pa.Table]:
    return DATASETS[name].generate(SMALL[name])


def joined(data: Dataset, tables: dict[str, pa.Table]) -> pa.Table:
    with duckdb.connect() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        return connection.sql(data.join).to_arrow_table()


@every
def test_tables_are_as_declared(name: str) -> None:
    data, tables = DATASETS[name], small(name)
    assert list(tables) == [table.name for table in data.tables]
    for spec in data.tables:
        table = tables[spec.name]
        assert table.schema.equals(spec.schema)
        assert table.num_rows > 0
        assert all(column.null_count == 0 for column in table.columns)
        # Read the DDL a second time, by the package's own rules.
        for column, text in zip(table.schema, re.split(r", (?=[a-z])", spec.ddl), strict=True):
            declared, kind = text.split(" ", 1)
            assert (column.name, column.type) == (declared, SqlType.parse(kind).arrow)
        names = [column.lower() for column in table.column_names]
        assert names == table.column_names


@every
def test_declared_keys_are_unique(name: str) -> None:
    for spec in DATASETS[name].tables:
        if spec.key:
            keys = small(name)[spec.name].select(list(spec.key))
            assert keys.group_by(list(spec.key)).aggregate([]).num_rows == keys.num_rows, spec.name


@every
def test_features_are_the_columns_that_are_not_joined_on(name: str) -> None:
    data = DATASETS[name]
    columns = [column for spec in data.tables for column in spec.schema.names]
    shared = {column for column in columns if columns.count(column) > 1}
    assert len(shared) == JOINED_ON[name]
    assert len(data.features) == len(set(data.features)) == FEATURES[name]
    assert not shared & set(data.features)
    assert data.label in data.features
    apart = set(columns) - shared - set(data.features)
    assert apart == ({"lo_orderkey"} if name == "ssb" else set())


@every
def test_the_order_has_every_relation_on_one_path(name: str) -> None:
    data = DATASETS[name]
    columns = [column for spec in data.tables for column in spec.schema.names]
    path: list[str] = []
    seen: list[str] = []
    for line in data.order.replace(" !stop", "").splitlines():
        variable, _, relations = line.strip().partition(":")
        depth = (len(line) - len(line.lstrip())) // 2
        path = [*path[:depth], variable]
        assert len(path) == depth + 1
        for relation in filter(None, (part.strip() for part in relations.split(","))):
            seen.append(relation)
            joins = {column for column in data.table(relation).schema.names if columns.count(column) > 1}
            assert joins <= set(path), relation
            assert variable in joins, "a relation stands under its lowest variable"
    assert sorted(seen) == sorted(spec.name for spec in data.tables)


@every
def test_the_same_seed_gives_the_same_rows(name: str) -> None:
    data = DATASETS[name]
    assert data.generate(SMALL[name], seed=0) == small(name)
    other = data.generate(SMALL[name], seed=1)
    assert all(other[spec.name] != small(name)[spec.name] for spec in data.tables if spec.name != "region")


@every
def test_the_smallest_data_sets_have_rows(name: str) -> None:
    tables = DATASETS[name].generate(1e-3 if name == "tpch" else 1e-6)
    assert all(table.num_rows for table in tables.values())


@every
@pytest.mark.parametrize("scale", [0, -1, float("nan"), float("inf")])
def test_scales_that_make_no_sense(name: str, scale: float) -> None:
    with pytest.raises(SchemaError, match="scale"):
        DATASETS[name].generate(scale)


@pytest.mark.parametrize("name", ["retailer", "favorita"])
def test_every_fact_finds_its_dimensions(name: str) -> None:
    data, tables = DATASETS[name], small(name)
    assert joined(data, tables).num_rows == tables[data.tables[0].name].num_rows


@pytest.mark.parametrize("duplicates", [1, 2, 3])
@pytest.mark.parametrize(("make", "dimensions"), [(duplicated_ssb, 4), (duplicated_tpch, 6)])
def test_duplicated_dimensions_multiply_the_join(
    make: Callable[[int], Dataset], dimensions: int, duplicates: int
) -> None:
    data = make(duplicates)
    tables = data.generate(0.001)
    facts = tables[data.tables[0].name].num_rows
    assert joined(data, tables).num_rows == facts * duplicates**dimensions
    keyed = sum(bool(spec.key) for spec in data.tables)
    assert keyed == (len(data.tables) if duplicates == 1 else len(data.tables) - dimensions)


@pytest.mark.parametrize("make", [duplicated_ssb, duplicated_tpch])
def test_no_copies_are_refused(make: Callable[[int], Dataset]) -> None:
    with pytest.raises(SchemaError, match="0 copies"):
        make(0)


@pytest.mark.parametrize(
    ("name", "least"), [("housing", 0.9), ("retailer", 0.6), ("favorita", 0.5), ("ssb", 0.5), ("tpch", 0.5)]
)
def test_there_is_something_to_learn(name: str, least: float) -> None:
    data = DATASETS[name]
    rows = joined(data, duplicated_ssb(1).generate(0.001) if name == "ssb" else small(name))
    label = rows[data.label].to_numpy()
    others = np.column_stack([rows[feature].to_numpy() for feature in data.features if feature != data.label])
    others = np.column_stack([np.ones(len(label)), others])
    weights = np.linalg.lstsq(others, label, rcond=None)[0]
    explained = 1 - np.var(label - others @ weights) / np.var(label)
    assert least < explained < 0.9999


def test_prices_of_houses_depend_on_other_tables() -> None:
    rows = joined(DATASETS["housing"], small("housing"))
    price, salary = rows["price"].to_numpy(), rows["averagesalary"].to_numpy()
    assert np.corrcoef(price, salary)[0, 1] > 0.1


@pytest.mark.parametrize(
    ("name", "scale", "rows"),
    [
        ("housing", 1, 150_000),
        ("housing", 20, 1_400_000),
        ("retailer", 0.1, 103_208),
        ("favorita", 0.1, 110_839),
        ("ssb", 0.1, 652_000),
    ],
)
def test_sizes(name: str, scale: float, rows: int) -> None:
    tables = DATASETS[name].generate(scale)
    assert sum(table.num_rows for table in tables.values()) == pytest.approx(rows, rel=0 if name != "ssb" else 0.01)


def test_housing_has_the_rows_of_its_scale_at_every_postcode() -> None:
    tables = DATASETS["housing"].generate(3)
    for name, rows in {"house": 3, "shop": 3, "restaurant": 2, "institution": 1}.items():
        postcodes, counts = np.unique(tables[name]["postcode"], return_counts=True)
        assert (len(postcodes), set(counts)) == (25_000, {rows})


def test_favorita_has_one_holiday_row_a_date() -> None:
    tables = small("favorita")
    assert sorted(tables["holiday"]["date"].to_pylist()) == sorted(tables["oil"]["date"].to_pylist())


def test_ssb_calendar() -> None:
    rows = {row["orderdate"]: row for row in duplicated_ssb(1).generate(0.001)["dates"].to_pylist()}
    assert (len(rows), min(rows), max(rows)) == (2_556, 19920101, 19981230)
    leap = rows[19960229]  # a Thursday
    assert (leap["d_year"], leap["d_monthnuminyear"], leap["d_daynuminmonth"]) == (1996, 2, 29)
    assert (leap["d_daynuminweek"], leap["d_weeknuminyear"], leap["d_sellingseason"]) == (5, 9, 0)
    assert (rows[19951225]["d_sellingseason"], rows[19951225]["d_holidayfl"]) == (4, 1)


def test_unknown_data_sets_are_refused_with_the_known_ones() -> None:
    with pytest.raises(HeadraceError, match="housing, retailer, favorita, ssb, tpch"):
        dataset("houses")


def test_columns_of_unknown_types_are_refused() -> None:
    with pytest.raises(SchemaError, match="x INTERVAL"):
        _ = TableSpec("t", "x INTERVAL").schema
