import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.foreign.explained import DIAMOND, TPCH_Q5, explained, ladder, more_than, path

import headrace as hr
from headrace.explain.report import Report
from headrace.operators.alive import Alive
from headrace.relation.schema import DIFF

TABLES: dict[str, tuple[str, str]] = {
    "country": ("country_id BIGINT, area STRING", "country_id"),
    "town": ("town_id BIGINT, country_id BIGINT, name STRING", "town_id"),
    "shop": ("shop_id BIGINT, shop_town BIGINT", "shop_id"),
    "buyer": ("buyer_id BIGINT, buyer_town BIGINT, limit_price BIGINT", "buyer_id"),
    "sale": ("sale_id BIGINT, shop_id BIGINT, buyer_id BIGINT, price BIGINT", "sale_id"),
}
JOIN = """
FROM sale
JOIN shop ON sale.shop_id = shop.shop_id
JOIN buyer ON sale.buyer_id = buyer.buyer_id
JOIN town ON shop_town = town_id AND buyer_town = town_id
JOIN country ON town.country_id = country.country_id
WHERE area = 'EU'
"""
LOCAL = f"SELECT name, count(*) AS n, sum(price) AS total {JOIN} GROUP BY name"
CAREFUL = f"SELECT name, max(price) AS most {JOIN} AND price < limit_price GROUP BY name HAVING max(price) > 1"

Rows = list[tuple[Any, ...]]


def batch(table: str, rows: Rows, diff: int = 1) -> pa.Table:
    names = [part.split()[0] for part in TABLES[table][0].split(", ")]
    return pa.table([list(c) for c in zip(*rows, strict=True)] + [[diff] * len(rows)], names=[*names, DIFF])


SALES = [
    (1, 100, 200, 5),  # alive
    (2, 100, 200, 7),  # alive
    (3, 101, 201, 1),  # alive
    (4, 100, 201, 2),  # both are alive, in different towns
    (5, 102, 200, 3),  # the shop is dead
    (6, 100, 202, 3),  # the buyer is dead
    (7, 555, 200, 3),  # there is no such shop
    (8, 100, 777, 3),  # there is no such buyer
    (9, 102, 203, 3),  # both are dead
    (10, 100, 200, 5),  # alive, and the same as the first without its key
]


def new_engine(spark: SparkSession, location: Path) -> hr.Engine:
    engine = hr.Engine(spark, location, executor="inline", buckets=2, sharing="off")
    for name, (columns, key) in TABLES.items():
        engine.table(name, columns, key=key)
    return engine


def explain(engine: hr.Engine, view: str) -> Report:
    explanation = engine.views[view].explain()
    assert isinstance(explanation, Report)
    return explanation


@pytest.fixture(scope="module")
def filled(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[hr.Engine]:
    """Three steps: sales come first and dangle, then what they refer to, and then a country leaves again."""
    with new_engine(spark, tmp_path_factory.mktemp("foreign") / "s") as engine:
        engine.view("local", LOCAL, strategy="foreign-key")
        engine.view("careful", CAREFUL, strategy="foreign-key")
        engine.apply({"sale": batch("sale", [*SALES, (11, 102, 204, 4)])})
        engine.apply(
            {
                "country": batch("country", [(1, "EU"), (2, "EU"), (3, "US"), (9, "EU")]),
                "town": batch("town", [(10, 1, "Bree"), (11, 2, "Dale"), (12, 3, "Esgaroth"), (13, 9, "Tharbad")]),
                "shop": batch("shop", [(100, 10), (101, 11), (102, 13), (103, None)]),
                "buyer": batch("buyer", [(200, 10, 6), (201, 11, 6), (202, 12, 6), (203, 99, 6), (204, 13, 6)]),
            }
        )
        found = at_joins(explain(engine, "local"))
        assert [found[key].alive for key in (("town", "country"), ("shop", "town"), ("buyer", "town"))] == [3, 3, 3]
        assert min(found["sale", name].alive or 0 for name in ("shop", "buyer")) == 5
        engine.apply({"country": batch("country", [(9, "EU")], -1), "sale": batch("sale", [(11, 102, 204, 4)], -1)})
        yield engine


def at_joins(explanation: Report) -> dict[tuple[str, str], Alive]:
    """The rows at each join, by the two sources that meet there."""
    found = [operator.extra["alive"] for operator in explanation["operators"] if "alive" in operator.extra]
    return {(alive.source, alive.refers_to): alive for alive in found}


def test_counts_of_a_small_example(filled: hr.Engine) -> None:
    found = at_joins(explain(filled, "local"))
    assert {key: (alive.rows, alive.rows - (alive.alive or 0)) for key, alive in found.items()} == {
        ("sale", "shop"): (10, 3),  # 5, 7 and 9 wait
        ("sale", "buyer"): (7, 3),  # 4, 6 and 8 wait
        ("shop", "town"): (3, 1),  # that of no town takes no part
        ("buyer", "town"): (5, 3),
        ("town", "country"): (4, 2),
    }
    text = " ".join(str(explain(filled, "local")).split())
    assert "alive: 3 of 10 rows of sale wait for shop" in text


def test_a_condition_on_joined_rows_hides_how_many_are_alive(filled: hr.Engine) -> None:
    found = at_joins(explain(filled, "careful"))
    assert found["sale", "shop"].alive == 7
    # Of the four that are alive, the second costs more than its buyer wants to pay.
    assert (found["sale", "buyer"].rows, found["sale", "buyer"].alive) == (7, None)
    assert "7 rows of sale look for buyer" in " ".join(str(explain(filled, "careful")).split())


def test_the_explanation_is_that_of_the_committed_state(spark: SparkSession, filled: hr.Engine) -> None:
    with hr.Engine(spark, filled.location, read_only=True) as reader:
        assert explain(reader, "local") == explain(filled, "local")


def test_counts_under_random_changes(spark: SparkSession, tmp_path: Path) -> None:
    """Every count equals what DuckDB counts: a row is alive if it joins with a row of each source below it."""
    random = np.random.default_rng(5)
    there: dict[str, dict[int, tuple[Any, ...]]] = {name: {} for name in TABLES}
    with new_engine(spark, tmp_path / "s") as engine:
        engine.view("v", LOCAL, strategy="foreign-key")
        for _ in range(6):
            engine.apply(random_changes(there, random))
            expected = counted_by_duckdb({name: list(rows.values()) for name, rows in there.items()})
            chains: dict[str, list[Alive]] = {}
            for (source, _), found in at_joins(explain(engine, "v")).items():
                chains.setdefault(source, []).append(found)
            for source, chain in chains.items():
                # A row is alive if none of the joins of its source makes it wait.
                rows = max(found.rows for found in chain)
                waiting = sum(found.rows - (found.alive or 0) for found in chain)
                assert (rows, rows - waiting) == expected[source]


def random_changes(there: dict[str, dict[int, tuple[Any, ...]]], random: np.random.Generator) -> dict[str, pa.Table]:
    changes = {}
    for name, rows in there.items():
        gone = [rows.pop(key) for key in list(rows) if random.random() < 0.3]
        keys = range(400) if name == "sale" else range(12)
        come = [random_row(name, key, random) for key in keys if key not in rows and random.random() < 0.5]
        rows.update({row[0]: row for row in come})
        parts = [batch(name, some, diff) for some, diff in ((gone, -1), (come, 1)) if some]
        if parts:
            changes[name] = pa.concat_tables(parts)
    return changes


def random_row(table: str, key: int, random: np.random.Generator) -> tuple[Any, ...]:
    other = [int(i) for i in random.integers(0, 14, 3)]  # more than there are, so that some dangle
    return {
        "country": (key, str(random.choice(["EU", "EU", "US"]))),
        "town": (key, other[0], f"town {key % 3}"),
        "shop": (key, other[0] if other[1] else None),
        "buyer": (key, other[0], 6),
        "sale": (key, other[0], other[1], other[2] % 3),
    }[table]


def counted_by_duckdb(rows: dict[str, Rows]) -> dict[str, tuple[int, int]]:
    queries = {
        "country": ("area = 'EU'", "country WHERE area = 'EU'"),
        "town": ("true", "town JOIN country USING (country_id) WHERE area = 'EU'"),
        "shop": (
            "shop_town IS NOT NULL",
            "shop JOIN town ON shop_town = town_id JOIN country USING (country_id) WHERE area = 'EU'",
        ),
        "buyer": ("true", "buyer JOIN town ON buyer_town = town_id JOIN country USING (country_id) WHERE area = 'EU'"),
        "sale": ("true", JOIN.strip().removeprefix("FROM ")),
    }
    with duckdb.connect() as connection:
        for name, some in rows.items():
            connection.execute(f"CREATE TABLE {name} ({TABLES[name][0]})")
            if some:
                connection.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(some[0]))})", some)

        def count(what: str) -> int:
            found = connection.execute(f"SELECT count(*) FROM {what}").fetchone()
            assert found is not None
            return int(found[0])

        return {name: (count(f"{name} WHERE {own}"), count(alive)) for name, (own, alive) in queries.items()}


def test_plain_values_survive_json(filled: hr.Engine) -> None:
    data = explain(filled, "careful").to_dict()
    assert json.loads(json.dumps(data)) == data
    assert (data["name"], data["sql"], data["strategy"]) == ("careful", CAREFUL, "foreign-key")
    assert data["why"] == "it was asked for"
    assert sorted({source["table"] for source in data["values"]["sources"]}) == sorted(TABLES)
    alive = [o["extra"]["alive"] for o in data["values"]["operators"] if o["extra"]]
    assert {"source": "sale", "refers_to": "shop", "rows": 10, "alive": 7} in alive
    assert data["last_step"]["text"].startswith("step 3: ")
    assert "max(price) > 1" in data["values"]["having"]


EXPLAINED: dict[str, Callable[[], Report]] = {
    "diamond": lambda: explained(DIAMOND, ("town",), condition=more_than("price", "people")),
    "ladder": lambda: explained(ladder(6)),
    "path": lambda: explained(path(30)),
    "long names": lambda: explained({"r" * 90: (("a" * 80, "b" * 70), ("a" * 80,)), "s": (("b" * 70,), ("b" * 70,))}),
    "nothing in it": lambda: explained(DIAMOND, empty=DIAMOND),
}


@pytest.mark.parametrize("make", EXPLAINED.values(), ids=EXPLAINED.keys())
def test_text_fits_a_terminal(make: Callable[[], Report]) -> None:
    assert max(map(len, str(make()).splitlines())) <= 120


def test_small_tables_are_everywhere_and_say_why() -> None:
    sizes = {"sale": 10**6, "shop": 10**6, "buyer": 10**6, "town": 100, "country": 5}
    explanation = explained(DIAMOND, ("shop",), sizes)
    ports = [port for operator in explanation["operators"] for port in operator.ports]
    everywhere = {feed.name for port in ports if port.everywhere for feed in port.feeds}
    assert "country" in everywhere
    assert "everywhere" in str(explanation)


def test_groups_stay_where_their_key_is() -> None:
    def way(explanation: Report) -> str:
        (port,) = explanation["operators"][0].ports
        return str(port.feeds[0].way)

    assert way(explained(path(3), ("x1",))) == "stays"
    assert way(explained(path(3), ("x2",))) == "exchanged"


def test_assertion_keys_are_said_where_they_are_compared() -> None:
    explanation = explained(TPCH_Q5, ("n_name",))
    residual = [operator for operator in explanation["operators"] if operator.residual]
    assert len(residual) == 1
    assert "nationkey" in residual[0].residual
    assert not any(operator.residual for operator in explained(path(3))["operators"])


def test_terminals_get_no_control_characters() -> None:
    explanation = explained({"R\x1b[31m": (("A\nB", "C"), ("C",)), "S": (("A\nB",), ("A\nB",))})
    assert "\x1b" not in str(explanation)
    assert all(line.isprintable() for line in str(explanation).splitlines())
