"""Refresh streams of TPC-H, against a simulation that goes row by row and what TPC-H says of its rows."""

from __future__ import annotations

from collections import Counter
from decimal import ROUND_DOWN, Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from numpy.typing import NDArray

from headrace.datasets import TPCH_SCHEMAS, refresh_steps, rows_after, tpch_tables, undo_steps
from headrace.errors import SchemaError

Tables = dict[str, pa.Table]
Rows = dict[str, dict[tuple[Any, ...], dict[str, Any]]]  # by table and key


@pytest.fixture(scope="module")
def tables() -> Tables:
    return tpch_tables(0.001)


@pytest.fixture(scope="module")
def mixed(tables: Tables) -> list[Tables]:
    return list(refresh_steps(tables, 25, share=0.01, seed=3))


@pytest.fixture(scope="module")
def facts(tables: Tables) -> list[Tables]:
    return list(refresh_steps(tables, 8, share=0.01, tables_changed="facts", seed=3))


def key_of(name: str, row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[column] for column in TPCH_SCHEMAS[name].key)


def simulated(tables: Tables, steps: list[Tables]) -> list[Rows]:
    """The rows after each step, and before the first; a row that leaves must be there as it stands."""
    rows = {name: {key_of(name, row): row for row in table.to_pylist()} for name, table in tables.items()}
    found = [{name: dict(there) for name, there in rows.items()}]
    for changes in steps:
        for name, changed in changes.items():
            assert changed.schema.equals(TPCH_SCHEMAS[name].schema.append(pa.field("__diff", pa.int64())))
            given = changed.to_pylist()
            for row in given:
                if row.pop("__diff") == -1:
                    assert rows[name].pop(key_of(name, row)) == row
                else:
                    assert key_of(name, row) not in rows[name], f"{name}: a key comes that is there"
                    rows[name][key_of(name, row)] = row
            signs = changed["__diff"].to_pylist()
            keys = Counter((key_of(name, row), sign) for row, sign in zip(given, signs, strict=True))
            assert set(signs) <= {-1, 1}
            assert keys.most_common(1)[0][1] == 1, f"{name}: a key changes twice in a step"
        found.append({name: dict(there) for name, there in rows.items()})
    return found


def as_rows(tables: Tables) -> Rows:
    return {name: {key_of(name, row): row for row in table.to_pylist()} for name, table in tables.items()}


@pytest.mark.parametrize("kind", ["mixed", "facts"])
def test_only_rows_that_are_there_leave_and_keys_stay_unique(
    kind: str, tables: Tables, request: pytest.FixtureRequest
) -> None:
    steps = request.getfixturevalue(kind)
    states = simulated(tables, steps)
    after = rows_after(tables, steps)
    assert as_rows(after) == states[-1]
    assert all(after[name].num_rows == len(states[-1][name]) for name in tables)
    assert as_rows(rows_after(after, undo_steps(steps))) == states[0]
    halfway = rows_after(tables, steps[:5])
    assert as_rows(rows_after(halfway, steps[5:])) == states[-1]


def test_streams_are_a_function_of_their_seed(tables: Tables, mixed: list[Tables]) -> None:
    assert list(refresh_steps(tables, 25, share=0.01, seed=3)) == mixed
    assert list(refresh_steps(tables, 6, share=0.01, seed=3)) == mixed[:6]
    assert list(refresh_steps(tables, 6, share=0.01, seed=4)) != mixed[:6]


def test_a_stream_goes_on_where_another_ended(tables: Tables, mixed: list[Tables]) -> None:
    others = list(refresh_steps(rows_after(tables, mixed), 10, share=0.01, seed=5))
    states = simulated(tables, [*mixed, *others])
    assert len(states[-1]["orders"]) > 1_000


def test_refresh_functions_insert_and_delete_whole_orders(tables: Tables, facts: list[Tables]) -> None:
    states = simulated(tables, facts)
    oldest = iter(tables["orders"]["o_orderkey"].to_pylist())
    for (before, after), changes in zip(pairwise(states), facts, strict=True):
        assert list(changes) == ["orders", "lineitem"]
        came, left = after["orders"].keys() - before["orders"].keys(), before["orders"].keys() - after["orders"].keys()
        assert (len(came), len(left)) == (15, 15)  # one in a hundred of each
        assert all(key % 32 >= 8 for (key,) in came), "dbgen has the first eight of 32 keys"
        assert left == {(next(oldest),) for _ in left}
        for one, other, orders in ((after, before, came), (before, after, left)):
            moved = one["lineitem"].keys() - other["lineitem"].keys()
            assert {(order,) for order, _ in moved} == orders
        assert {(order,) for order, _ in after["lineitem"]} == after["orders"].keys()
    assert {row["o_custkey"] for row in states[-1]["orders"].values()} <= {key for (key,) in states[-1]["customer"]}


def test_new_orders_are_as_dbgen_would_have_them(tables: Tables, facts: list[Tables]) -> None:
    first, last = simulated(tables, facts)[:: len(facts)]
    pieces = {row["l_partkey"]: row["l_extendedprice"] / row["l_quantity"] for row in first["lineitem"].values()}
    items: dict[int, list[dict[str, Any]]] = {}
    for (order, _), row in last["lineitem"].items():
        items.setdefault(order, []).append(row)
    flags = set()
    for (key,), order in last["orders"].items():
        for item in items[key]:
            shipped, received = item["l_shipdate"], item["l_receiptdate"]
            assert 1 <= (shipped - order["o_orderdate"]).days <= 121
            assert 30 <= (item["l_commitdate"] - order["o_orderdate"]).days <= 90
            assert 1 <= (received - shipped).days <= 30
            assert (item["l_linestatus"] == "O") == (shipped.isoformat() > "1995-06-17")
            assert (item["l_returnflag"] == "N") == (received.isoformat() > "1995-06-17")
            assert 1 <= item["l_quantity"] <= 50
            assert item["l_extendedprice"] == item["l_quantity"] * pieces[item["l_partkey"]]
            flags.add(item["l_returnflag"])
        states = {item["l_linestatus"] for item in items[key]}
        assert order["o_orderstatus"] == (states.pop() if len(states) == 1 else "P")
        if (key,) not in first["orders"]:
            prices = [
                (item["l_extendedprice"] * (1 - item["l_discount"]) * (1 + item["l_tax"])).quantize(
                    Decimal("0.01"), ROUND_DOWN
                )
                for item in items[key]
            ]
            assert order["o_totalprice"] == sum(prices)
    assert flags == {"A", "N", "R"}


def test_rows_of_every_table_come_and_leave_and_most_change(tables: Tables, mixed: list[Tables]) -> None:
    came, left, changed = Counter[str](), Counter[str](), Counter[str]()
    for before, after in pairwise(simulated(tables, mixed)):
        for name in tables:
            came[name] += len(after[name].keys() - before[name].keys())
            left[name] += len(before[name].keys() - after[name].keys())
            both = after[name].keys() & before[name].keys()
            changed[name] += sum(before[name][key] != after[name][key] for key in both)
    for counted in (came, left, changed):
        assert all(counted[name] for name in tables), counted


def test_refresh_functions_are_among_the_mixed_steps(mixed: list[Tables]) -> None:
    for number, sign in ((0, 1), (1, -1)):
        for step in mixed[number::5]:
            assert step.keys() == {"orders", "lineitem"}
            assert {s for rows in step.values() for s in rows["__diff"].to_pylist()} == {sign}


@pytest.fixture(scope="module")
def larger() -> tuple[Tables, list[Tables]]:
    """A scale at which every nation has a supplier, and enough parts change to be of all kinds."""
    tables = tpch_tables(0.01)
    return tables, list(refresh_steps(tables, 20, share=0.01, seed=3))


def test_references_dangle_and_recover(larger: tuple[Tables, list[Tables]]) -> None:
    rows, steps = larger
    waiting, met = {}, Counter[Any]()
    for changes in steps:
        rows = rows_after(rows, [changes])
        for name, spec in TPCH_SCHEMAS.items():
            for own, target in dict(spec.references).items():
                referring = numbers_of(rows[name], *([own] if isinstance(own, str) else own))
                there = np.isin(referring, numbers_of(rows[target], *TPCH_SCHEMAS[target].key))
                keys = numbers_of(rows[name], *spec.key)
                met[name, own] += len(np.intersect1d(waiting.get((name, own), keys[:0]), keys[there]))
                waiting[name, own] = keys[~there]
    assert min(met.values()) > 0, f"no row waited for what it refers to and met it: {met}"


def numbers_of(table: pa.Table, *columns: str) -> NDArray[np.int64]:
    first, *others = (table[column].to_numpy() for column in columns)
    return first * 1_000_000 + others[0] if others else first


def test_what_queries_look_for_comes_up(larger: tuple[Tables, list[Tables]]) -> None:
    came = {
        name: pa.concat_tables([step[name].filter(pc.field("__diff") == 1) for step in larger[1] if name in step])
        for name in larger[0]
    }

    def some(name: str, column: str, pattern: str) -> bool:
        return pc.any(pc.match_like(came[name][column], pattern)).as_py()

    assert some("orders", "o_comment", "%special%requests%")
    assert some("supplier", "s_comment", "%Customer%Complaints%")
    for column, pattern in {"p_brand": "Brand#23", "p_container": "MED BOX", "p_name": "forest%"}.items():
        assert some("part", column, pattern)
    sums = came["lineitem"].group_by("l_orderkey").aggregate([("l_quantity", "sum")])
    assert pc.any(pc.greater(sums["l_quantity_sum"], 300)).as_py()


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({}, {"tables_changed": "some"}, "tables_changed='some' is not known"),
        ({}, {"share": 0.0}, "the share 0.0"),
        ({}, {"share": 0.5}, "the share 0.5"),
        ({}, {"steps": -1}, "a stream of -1 steps"),
        ({"part": None}, {}, "'part' is missing"),
        ({"orders": pa.table({"o_orderkey": [1]})}, {"tables_changed": "facts"}, "'orders' is not as TPCH_SCHEMAS"),
        ({"nation": TPCH_SCHEMAS["nation"].schema.empty_table()}, {}, "'nation' is empty"),
    ],
)
def test_what_cannot_be_right_is_refused(
    tables: Tables, change: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    given = {name: table for name, table in (tables | change).items() if table is not None}
    with pytest.raises(SchemaError, match=message) as caught:
        refresh_steps(given, **{"steps": 3} | options)
    assert caught.value.way_out


def test_facts_need_no_other_tables(tables: Tables, facts: list[Tables]) -> None:
    only = {name: tables[name] for name in ("orders", "lineitem")}
    assert list(refresh_steps(only, 8, share=0.01, tables_changed="facts", seed=3)) == facts


def test_a_step_over_other_rows_is_refused(tables: Tables, facts: list[Tables]) -> None:
    with pytest.raises(SchemaError, match="rows of 'orders' that are not there"):
        rows_after(tables, [facts[0], facts[0]])
