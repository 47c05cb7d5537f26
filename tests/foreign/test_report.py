import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.foreign.explained import DIAMOND, LAST_STEP, TPCH_Q5, explained, ladder, more_than, path, positive

import headrace as hr
from headrace.engine.explain import known, report_of
from headrace.explain.report import Report
from headrace.foreign.report import ReferenceExplained, SourceExplained
from headrace.plan.expression import Expression, column
from headrace.plan.rows import written
from headrace.relation.schema import DIFF
from headrace.relation.types import SqlType

FIXTURES = Path(__file__).parents[1] / "fixtures" / "explain"
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
    engine = hr.Engine(spark, location, executor="inline", buckets=2)
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
        alive = {source.name: source.live for source in explain(engine, "local")["sources"]}
        assert alive == {"country": 3, "town": 3, "shop": 3, "buyer": 3, "sale": 5}
        engine.apply({"country": batch("country", [(9, "EU")], -1), "sale": batch("sale", [(11, 102, 204, 4)], -1)})
        yield engine


def source(explanation: Report, name: str) -> SourceExplained:
    return next(found for found in explanation["sources"] if found.name == name)


def children(explanation: Report, name: str) -> list[ReferenceExplained]:
    return [reference for reference in explanation["references"] if reference.parent == name]


def normalised(engine: hr.Engine, view: str) -> Report:
    """What hashing and clocks decide is made the same."""
    planned, schemas = engine.views[view].planned, {name: table.schema for name, table in engine.tables.items()}
    with engine._store.reader() as reader:
        found = known(view, planned, reader, schemas)
        sizes = {part: replace(size, runs=2, bytes=100) for part, size in found.subject.sizes.items()}
        subject = replace(found.subject, sizes=sizes, last_step=LAST_STEP)
        return report_of(planned.kernel, replace(found, subject=subject))


def test_counts_of_a_small_example(filled: hr.Engine) -> None:
    explanation = explain(filled, "local")
    counts = {s.name: (s.rows, s.live, s.dead) for s in explanation["sources"]}
    assert counts == {
        "sale": (10, 4, 6),
        "shop": (3, 2, 1),  # that of no town takes no part
        "buyer": (5, 2, 3),
        "town": (4, 2, 2),
        "country": (2, 2, 0),  # that of another area takes no part
    }
    assert {(r.parent, r.child): r.waiting for r in explanation["references"]} == {
        ("sale", "shop"): 3,  # 5, 7 and 9
        ("sale", "buyer"): 3,  # 4, 6 and 8
        ("shop", "town"): 1,
        ("buyer", "town"): 3,
        ("town", "country"): 2,
    }
    assert (explanation["answer_rows"], explanation["groups"], explanation["live_rows"]) == (4, 2, 12)
    kept = {a.name: a for a in explanation.arrangements}
    assert kept["I(sale, shop)"].keys == "(shop_id, buyer_id, price)"
    assert explanation.state_bytes == sum(a.bytes for a in explanation.arrangements) > 0
    assert explanation["bytes_per_live_row"] == explanation.state_bytes / 12


@pytest.mark.parametrize("view", ["local", "careful"])
def test_text_of_a_small_example(filled: hr.Engine, view: str) -> None:
    assert str(normalised(filled, view)) + "\n" == (FIXTURES / f"foreign_{view}.txt").read_text()


def test_a_condition_on_joined_rows_hides_how_many_are_alive(filled: hr.Engine) -> None:
    explanation = explain(filled, "careful")
    sale = source(explanation, "sale")
    assert (sale.rows, sale.live, sale.dead) == (10, None, None)
    # Of the four that are alive, the second costs more than its buyer wants to pay.
    assert explanation["answer_rows"] == 3
    assert {r.child: r.waiting for r in children(explanation, "sale")} == {"shop": 3, "buyer": None}
    assert explanation["condition"] == "(price < limit_price)"
    assert "3 to 7 rows are alive" in " ".join(str(explanation).split())


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
            explanation = explain(engine, "v")
            counts = {s.name: (s.rows, s.live) for s in explanation["sources"]}
            assert counts == counted_by_duckdb({name: list(rows.values()) for name, rows in there.items()})
            for found in explanation["sources"]:
                waiting = [child.waiting for child in children(explanation, found.name)]
                assert sum(count or 0 for count in waiting) == found.dead


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
    values = data["values"]
    assert values["root"] == "sale"
    assert data["why"] == "it was asked for"
    names = [source["name"] for source in values["sources"]]
    assert names[0] == "sale"
    assert sorted(names) == sorted(TABLES)
    assert {(r["parent"], r["child"]) for r in values["references"]} <= {(a, b) for a in names for b in names}
    assert data["last_step"]["text"].startswith("step 3: ")
    assert values["having"] == "(max(price) > 1L)"


EXPLAINED = {
    "diamond": lambda: explained(DIAMOND, ("town",), condition=more_than("price", "people")),
    "ladder": lambda: explained(ladder(6)),
    "path": lambda: explained(path(30)),
    "long names": lambda: explained({"r" * 90: (("a" * 80, "b" * 70), ("a" * 80,)), "s": (("b" * 70,), ("b" * 70,))}),
}


@pytest.mark.parametrize("make", EXPLAINED.values(), ids=EXPLAINED.keys())
def test_text_fits_a_terminal_and_writes_every_source_out_once(make: Callable[[], Report]) -> None:
    explanation = make()
    lines = str(explanation).splitlines()
    assert max(map(len, lines)) <= 120
    start = next(i for i, line in enumerate(lines) if line.split()[:2] == ["source", "key"]) + 1
    graph = [line.split() for line in lines[start : start + len(explanation["references"]) + 1]]
    written_out = [words[0].removesuffix("...") for words in graph if words[1] != "^"]
    assert len(written_out) == len(explanation["sources"])
    assert all(any(source.name.startswith(name) for name in written_out) for source in explanation["sources"])
    # Wherever else a source is reached, it is marked.
    assert all(words[-3:] == ["^", "as", "above"] for words in graph if words[1] == "^")


def test_small_tables_are_everywhere_and_say_why() -> None:
    sizes = {"sale": 10**6, "shop": 10**6, "buyer": 10**6, "town": 100, "country": 5}
    explanation = explained(DIAMOND, ("shop",), sizes)
    assert explanation["replicated"] == ("town", "country")
    for name in ("town", "country"):
        assert source(explanation, name).replicated
        assert source(explanation, name).why
    text = str(explanation)
    assert "stored once, and read by every bucket" in text
    assert "town with country, in every bucket" in text
    assert "to every bucket)" in explanation["exchange"]


def test_groups_stay_where_their_key_is() -> None:
    stays = explained(path(3), ("x1",))
    assert stays["groups_stay"]
    assert stays["exchanges"] == 2
    assert "x1 is among their keys" in stays["groups_where"]
    moves = explained(path(3), ("x2",))
    assert not moves["groups_stay"]
    assert moves["exchanges"] == 3
    assert "groups, by hash of their keys" in str(moves)


def test_assertion_keys_are_said_where_they_are_compared() -> None:
    explanation = explained(TPCH_Q5, ("n_name",))
    assert {s.name: s.asserted for s in explanation["sources"] if s.asserted} == {"lineitem": ("nationkey",)}
    assert [r.asserted for r in children(explanation, "lineitem")] == [(), ("nationkey",)]
    assert "asserted   nationkey must be the same by every way to lineitem: compared when lineitem meets orders" in str(
        explanation
    )
    assert "asserted" not in str(explained(path(3)))


def test_nothing_in_it() -> None:
    explanation = explained(DIAMOND, empty=DIAMOND)
    assert explanation["live_rows"] == 0
    assert explanation["bytes_per_live_row"] is None
    assert "a live row" not in explanation.kept


def test_terminals_get_no_control_characters() -> None:
    explanation = explained({"R\x1b[31m": (("A\nB", "C"), ("C",)), "S": (("A\nB",), ("A\nB",))})
    assert "\x1b" not in str(explanation)
    assert all(line.isprintable() for line in str(explanation).splitlines())


def test_expressions_over_joined_rows_get_their_names_back() -> None:
    text, boolean = SqlType("string"), SqlType("boolean")
    literal = Expression("literal", text, "'a variable'", value="a variable", nullable=False)
    left = Expression("EqualTo", boolean, "('a variable' = variable)", (literal, column("x", text)))
    both = Expression("And", boolean, "(('a variable' = variable) AND variable)", (left, column("y", boolean)))
    assert written(both) == "(('a variable' = x) AND y)"
    assert written(column("z", text)) == "z"
    assert written(positive("price")) == "(price > 0L)"
    odd = Expression("Odd", boolean, "odd()", (column("x", text),))
    assert written(odd) == "odd()"
