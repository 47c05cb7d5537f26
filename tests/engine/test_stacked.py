"""Views over views: they answer as one nested query would, whatever changes, and nobody loses what others read."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.engine.test_oracle import assert_changes
from tests.engine.test_sharing import Changing, opened
from tests.seeds import seeds

import headrace as hr
from headrace.engine.looking import Look
from headrace.engine.planning import Planner
from headrace.errors import SchemaError, StorageError, UnsupportedSQLError
from headrace.testing.oracle import Oracle

# Of the first layer, which reads tables; then of views over views, each kind of operator on both sides of the border.
LOWER = {
    "daily": "SELECT shop, day, SUM(price) AS total, COUNT(*) AS n FROM orders GROUP BY shop, day",
    "extremes": "SELECT shop, MIN(price) AS least, MAX(price) AS most FROM orders GROUP BY shop HAVING COUNT(*) > 1",
    "joined": "SELECT o.id, o.shop, o.price, s.city FROM orders o JOIN shops s ON o.shop = s.id",
    "outer_joined": "SELECT o.id, o.price, s.city, s.size FROM orders o LEFT JOIN shops s ON o.shop = s.id",
    "cheap": "SELECT id, shop, price FROM orders WHERE price < 5",
    "first": "SELECT id, shop, price FROM orders ORDER BY price DESC, id LIMIT 5",
    "kinds": "SELECT DISTINCT day, note FROM orders",
    "all_of_it": "SELECT COUNT(*) AS n, SUM(price) AS s, COUNT(DISTINCT shop) AS shops FROM orders",
    "either": "SELECT shop AS a, price AS b FROM orders UNION ALL SELECT id, size FROM shops",
    "never": "SELECT id FROM orders WHERE shop NOT IN (SELECT id FROM shops WHERE size > 2)",
}
UPPER = {
    "busiest": "SELECT shop, MAX(total) AS best, SUM(n) AS n FROM daily GROUP BY shop",
    "by_city": "SELECT city, SUM(total) AS s FROM daily d JOIN shops s ON d.shop = s.id GROUP BY city",
    "large": "SELECT * FROM daily WHERE total > 6",
    "of_one": "SELECT day, n FROM daily WHERE shop = 3",
    "twice": "SELECT a.shop, a.n, b.n AS m FROM daily a JOIN daily b ON a.shop = b.shop AND a.day < b.day",
    "spread": "SELECT least, COUNT(*) AS c, MAX(most - least) AS w FROM extremes GROUP BY least",
    "cities": "SELECT city, COUNT(*) AS n, MIN(price) AS p FROM joined GROUP BY city",
    "lonely": "SELECT COUNT(*) AS n FROM outer_joined WHERE city IS NULL",
    "cheap_cities": "SELECT s.city, COUNT(*) AS n FROM cheap c JOIN shops s ON c.shop = s.id GROUP BY s.city",
    "first_sum": "SELECT SUM(price) AS s, COUNT(*) AS n FROM first",
    "kinds_a_day": "SELECT day, COUNT(*) AS n FROM kinds GROUP BY day",
    "share": "SELECT d.shop, d.day, d.total, a.s FROM daily d CROSS JOIN all_of_it a",
    "either_twice": "SELECT a, COUNT(*) AS n, SUM(b) AS s FROM either GROUP BY a",
    "nevers": "SELECT o.day, COUNT(*) AS n FROM orders o JOIN never n ON o.id = n.id GROUP BY o.day",
    "is_large": "SELECT id, price FROM cheap WHERE shop IN (SELECT shop FROM daily WHERE n > 1)",
    "above": "SELECT shop, total FROM daily WHERE total > (SELECT AVG(most) FROM extremes)",
}
TOP = {
    "best_of_all": "SELECT MAX(best) AS b, COUNT(*) AS n FROM busiest",
    "large_cities": "SELECT c.city, l.total FROM large l JOIN cities c ON c.n = l.n",
    "of_both": "SELECT b.shop, b.n, s.total FROM busiest b LEFT JOIN share s ON b.shop = s.shop AND s.day = 1",
    "in_words": "SELECT upper(city) AS city, p * 2 AS p FROM cities WHERE length(city) > 3",
}
QUERIES = LOWER | UPPER | TOP


def read_by(sql: str) -> list[str]:
    """The views that a query names."""
    return [name for name in QUERIES if re.search(rf"(FROM|JOIN) {name}\b", sql)]


def below(names: Iterable[str]) -> list[str]:
    """Some views and all that they read, each after those."""
    found: dict[str, None] = {}
    for name in names:
        found |= dict.fromkeys(below(read_by(QUERIES[name])))
        found[name] = None
    return list(found)


def nested(name: str) -> str:
    """The query of a view as one query over tables."""
    inner = [f"{one} AS ({QUERIES[one]})" for one in below([name])]
    return f"WITH {', '.join(inner)} SELECT * FROM {name}"


def shown(view: Any) -> Counter[str]:
    return counted(row.values() for row in view.to_arrow().to_pylist())


def counted(rows: Iterable[Iterable[Any]]) -> Counter[str]:
    return Counter(repr(tuple(map(_plain, row))) for row in rows)


def _plain(value: Any) -> Any:
    return str(value.normalize()) if isinstance(value, Decimal) else value


def check(engine: hr.Engine, tables: Changing, oracle: Oracle | None, names: Iterable[str]) -> None:
    """Every view answers as its nested query does: by Spark, or by DuckDB, which is faster, if there is no oracle."""
    names = list(names)
    if oracle is None:
        for name in names:
            assert shown(engine.views[name]) == counted(tables.rows_of(nested(name))), name
        return
    oracle.set_rows({name: tables.table(name, rows) for name, rows in tables.rows.items()})
    for name, expected in zip(names, oracle.answers([nested(name) for name in names]), strict=True):
        assert shown(engine.views[name]) == counted(row.values() for row in expected.to_pylist()), name


def make(engine: hr.Engine, names: Iterable[str], **options: Any) -> None:
    for name in names:
        engine.view(name, QUERIES[name], **options)


def test_every_stack_answers_as_one_query(spark: SparkSession, tmp_path: Path) -> None:
    tables = Changing(random.Random(7))
    with opened(spark, tmp_path / "s", executor="inline") as engine:
        engine.apply(tables.change())
        make(engine, QUERIES)
        for _ in range(3):
            before = {name: engine.views[name].to_arrow() for name in QUERIES}
            engine.apply(tables.change())
            for name in QUERIES:
                assert_changes(before[name], engine.views[name].changes(), engine.views[name].to_arrow())
        check(engine, tables, None, QUERIES)
    with opened(spark, tmp_path / "s", executor="inline") as engine:
        assert "failed" not in engine.status()
        engine.apply(tables.change())
        check(engine, tables, None, QUERIES)


@seeds("stacked views", 3)
def test_random_stacks(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    """Some views, in a random order of definition and among steps, in the driver and as jobs, opened again between."""
    rng = random.Random(seed)
    tables, oracle, made = Changing(rng), Oracle(spark), list[str]()
    wanted = below(rng.sample([*UPPER, *TOP], 4))
    for _ in range(3):
        executor = rng.choice(["inline", "inline", "spark"])
        with opened(spark, tmp_path / "s", executor=executor, sharing=rng.choice(["auto", "exact"])) as engine:
            for name in wanted[len(made) : len(made) + rng.randint(1, len(wanted))]:
                make(engine, [name])
                made.append(name)
            for _ in range(2):
                engine.apply(tables.change())
            check(engine, tables, oracle, made)


def bytes_of(engine: hr.Engine, name: str) -> int:
    """The bytes of a view's own state."""
    report = engine.views[name].explain()
    return sum(one.bytes for one in report.arrangements)


# Per case: an inner view, a view over it, and the operators of the outer view that keep something of their own.
CASES = {
    "an aggregate of an aggregate": ("daily", "busiest", {"[1]"}),
    "a join of a view with a table": ("daily", "by_city", {"[1]", "[2]"}),
    "a filter of a view": ("daily", "large", {"[1]"}),
    "outer joined rows": ("outer_joined", "lonely", {"[2]"}),
    "a total": ("all_of_it", "share", {"[2]", "[3]"}),
}


@pytest.mark.parametrize(("inner", "outer", "own"), CASES.values(), ids=CASES)
def test_nothing_is_stored_twice(spark: SparkSession, tmp_path: Path, inner: str, outer: str, own: set[str]) -> None:
    """The outer view keeps nothing of what the inner one keeps: its state is that of the operators above it alone."""
    tables = Changing(random.Random(3))
    with opened(spark, tmp_path / "s", executor="inline") as engine:
        engine.apply({name: tables.table(name, tables.come(name, 300)) for name in ("orders", "shops")})
        make(engine, below([inner]))
        before = engine.status()["state_bytes"]
        make(engine, [name for name in below([outer]) if name not in below([inner])])
        report = engine.views[outer].explain()
        assert {one.owner for one in report.arrangements if one.entries} <= own
        assert engine.status()["state_bytes"] - before == sum(
            bytes_of(engine, name) for name in below([outer]) if name not in below([inner])
        )
        assert engine.status()["shared"] == []
        assert f"{inner}: what it keeps is kept once" in str(report)


def test_live_tuples_hand_on_what_they_keep(spark: SparkSession, tmp_path: Path) -> None:
    """A view that follows foreign keys joins otherwise than its readers would, and keeps the same groups."""
    rng, n = random.Random(29), 60
    with hr.Engine(spark, tmp_path / "s", executor="inline", buckets=3, calibrate=False) as engine:
        engine.table("shops", "id BIGINT NOT NULL, city STRING", key="id")
        engine.table("orders", "id BIGINT NOT NULL, shop BIGINT, price INT", key="id", references={"shop": "shops"})
        sql = "SELECT s.city, SUM(o.price) AS p FROM orders o JOIN shops s ON o.shop = s.id GROUP BY s.city"
        engine.view("sums", sql, strategy="foreign-key")
        engine.view("best", "SELECT MAX(p) AS best, COUNT(*) AS n FROM sums WHERE p > 10")
        shops = {"id": range(9), "city": [f"c{i % 4}" for i in range(9)]}
        prices, of = [rng.randint(0, 9) for _ in range(n)], [rng.randrange(12) for _ in range(n)]
        orders = {"id": list(range(n)), "shop": of, "price": prices}
        engine.apply({"orders": pa.table(orders), "shops": pa.table(shops)})
        engine.apply({"orders": pa.table({k: v[:20] for k, v in orders.items()} | {"__diff": [-1] * 20})})
        sums = [0] * 4
        for shop, price in list(zip(of, prices, strict=True))[20:]:
            sums[shop % 4] += price if shop < 9 else 0
        large = [one for one in sums if one > 10]
        assert engine.views["best"].to_arrow().to_pylist() == [{"best": max(large), "n": len(large)}]
        assert {one.owner for one in engine.views["best"].explain().arrangements} == {"[2]"}


def test_an_aggregate_of_a_view_costs_what_the_nested_query_costs(spark: SparkSession, tmp_path: Path) -> None:
    """The operators of both views see as many rows in a step as those of the one nested query."""
    tables, seen = Changing(random.Random(11)), []
    first = {"orders": tables.table("orders", tables.come("orders", 400))}
    second = {"orders": tables.table("orders", tables.come("orders", 50))}
    for name, views in {"stacked": ["daily", "busiest"], "nested": ["one"]}.items():
        with opened(spark, tmp_path / name, executor="inline") as engine:
            for view in views:
                engine.view(view, QUERIES.get(view) or nested("busiest"))
            engine.apply(first)
            engine.apply(second)
            operators = engine.status()["last_step"]["operators"]
            seen.append(sum(abs(n) for of in operators.values() for one in of.values() for n in one[:3]))
    assert seen[0] <= seen[1]


def test_what_others_read_stays(spark: SparkSession, tmp_path: Path) -> None:
    with opened(spark, tmp_path / "s", executor="inline") as engine:
        make(engine, ["daily", "busiest", "by_city", "best_of_all"])
        with pytest.raises(SchemaError, match="view 'daily' is read by busiest, by_city"):
            engine.drop("daily")
        with pytest.raises(SchemaError, match="table 'shops' is used by by_city"):
            engine.drop("shops")
        said = str(engine.views["busiest"].explain())
        assert "reads      daily" in said
        assert "read by    best_of_all" in said
        assert re.search(r"busiest +daily +daily\n +by_city +daily +daily", str(engine.explain()))
        seen = {one["name"]: (one.get("reads"), one.get("read_by")) for one in engine.status()["views"]}
        assert seen["busiest"] == (["daily"], ["best_of_all"])
        assert seen["daily"] == (None, ["busiest", "by_city"])
        for name in ("best_of_all", "by_city", "busiest", "daily"):
            engine.drop(name)
        assert engine.status()["state_bytes"] == 0


def test_what_cannot_be_read_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with opened(spark, tmp_path / "s", executor="inline") as engine:
        engine.table("events", "at TIMESTAMP, x DOUBLE", watermark=("at", "1 hour"))
        engine.view("hours", "SELECT window(at, '1 hour').start AS h, COUNT(*) AS n FROM events GROUP BY 1", final=True)
        engine.covariance("moments", "SELECT price, shop FROM orders")
        engine.view(
            "random",
            "SELECT shop, covar_pop(price, price) OVER (PARTITION BY shop ORDER BY price) AS p FROM orders",
            refresh="full",
        )
        for name, sql, why in [
            ("itself", "SELECT * FROM itself", "view 'itself' reads itself"),
            ("h", "SELECT SUM(n) AS n FROM hours", "reads 'hours', whose windows close"),
            ("m", "SELECT * FROM moments", "reads 'moments', which is no table"),
            ("r", "SELECT MAX(p) AS p FROM random", "reads view 'random', which operators cannot keep"),
            ("orders", "SELECT shop FROM shops", "the name 'orders' is taken"),
        ]:
            with pytest.raises((SchemaError, UnsupportedSQLError), match=re.escape(why)):
                engine.view(name, sql)
        engine.view("r", "SELECT MAX(p) AS p FROM random", refresh="full")
        tables = Changing(random.Random(2))
        engine.apply({"orders": tables.table("orders", tables.come("orders", 30))})
        assert shown(engine.views["r"]) == Counter(
            [repr((max(row["p"] for row in engine.views["random"].to_arrow().to_pylist()),))]
        )


def test_models_and_other_strategies_read_the_query_of_a_view(spark: SparkSession, tmp_path: Path) -> None:
    tables, oracle = Changing(random.Random(5)), None
    with opened(spark, tmp_path / "s", executor="inline") as engine:
        make(engine, ["joined"])
        engine.covariance("moments", "SELECT id, price FROM joined WHERE city IS NOT NULL")
        engine.view("cities", QUERIES["cities"].replace(", MIN(price) AS p", ", MIN(price) AS p"), refresh="full")
        engine.view("sums", "SELECT city, SUM(price) AS s FROM joined GROUP BY city", strategy="factorized")
        for _ in range(4):
            engine.apply(tables.change())
        check(engine, tables, oracle, ["joined", "cities"])
        rows = [row for row in engine.views["joined"].to_arrow().to_pylist() if row["city"] is not None]
        assert engine.views["moments"].to_arrow().column("count").to_pylist() == [len(rows)]
        assert sum(row["s"] for row in engine.views["sums"].to_arrow().to_pylist()) == sum(
            row["price"] for row in engine.views["joined"].to_arrow().to_pylist()
        )


def test_goals_of_inner_and_outer_views(spark: SparkSession, tmp_path: Path) -> None:
    """A view is as new as its tables, whatever the views that it reads wait for; what waits is only its own."""
    tables, oracle = Changing(random.Random(13)), None
    with opened(spark, tmp_path / "s", executor="inline") as engine:
        make(engine, ["daily"])
        make(engine, ["busiest", "large"])
        engine.view("kinds", QUERIES["kinds"], goal=hr.Manual())
        engine.view("kinds_a_day", QUERIES["kinds_a_day"])
        engine.view("cheap", QUERIES["cheap"])
        engine.view("all_of_it", QUERIES["all_of_it"])
        engine.view("later", "SELECT MAX(n) AS n FROM daily", goal=hr.Manual())
        for _ in range(3):
            engine.apply(tables.change())
        check(engine, tables, oracle, ["daily", "busiest", "large", "kinds_a_day"])
        assert engine.views["kinds"].rows == 0 < len(tables.rows["orders"])
        engine.views["daily"].goal = hr.Manual()  # from now on it hands nothing on
        for _ in range(2):
            engine.apply(tables.change())
        check(engine, tables, oracle, ["busiest", "large", "kinds_a_day"])
        engine.views["daily"].goal = None
        engine.apply(tables.change())
        engine.refresh()
        check(engine, tables, oracle, ["daily", "busiest", "large", "kinds", "kinds_a_day"])
        most = max(row["n"] for row in engine.views["daily"].to_arrow().to_pylist())
        assert engine.views["later"].to_arrow().to_pylist() == [{"n": most}]


def test_a_view_that_cannot_be_opened_takes_its_readers_along(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables, oracle = Changing(random.Random(17)), None
    names = ["daily", "busiest", "best_of_all", "cheap"]
    with opened(spark, tmp_path / "s", executor="inline") as engine:
        make(engine, names)
        engine.apply(tables.change())
    plan = Planner.plan

    def broken(self: Planner, name: str, *rest: Any) -> Any:
        if name == "daily":
            raise UnsupportedSQLError("view 'daily': its plan is another one now", way_out="use the Spark of before")
        return plan(self, name, *rest)

    monkeypatch.setattr(Planner, "plan", broken)
    with opened(spark, tmp_path / "s", executor="inline") as engine:
        assert list(engine.status()["failed"]) == ["daily", "busiest", "best_of_all"]
        with pytest.raises(StorageError, match="it reads view 'busiest', which could not be opened: it reads view 'da"):
            engine.views["best_of_all"].to_arrow()
        with pytest.raises(SchemaError, match="view 'daily' is read by busiest"):
            engine.drop("daily")
        engine.apply(tables.change())
    monkeypatch.setattr(Planner, "plan", plan)
    with opened(spark, tmp_path / "s", executor="inline") as engine:
        engine.apply(tables.change())
        check(engine, tables, oracle, names)


def test_readers_elsewhere_see_the_same(spark: SparkSession, tmp_path: Path) -> None:
    tables, oracle, names = Changing(random.Random(19)), None, ["daily", "busiest", "large", "best_of_all"]
    with (
        opened(spark, tmp_path / "s", executor="inline") as engine,
        hr.Engine(spark, tmp_path / "s", read_only=True) as reader,
    ):
        make(engine, names)
        engine.apply(tables.change())
        check(reader, tables, oracle, names)
        make(engine, ["extremes", "spread"])
        engine.apply(tables.change())
        check(reader, tables, oracle, [*names, "spread"])
        report = str(engine.views["best_of_all"].explain())
        with Look(tmp_path / "s") as look:
            assert str(look.views["best_of_all"].explain()) == report
            assert sorted(map(repr, look.status()["views"])) == sorted(map(repr, engine.status()["views"]))
        engine.rebucket(5)
        engine.apply(tables.change())
        check(engine, tables, oracle, [*names, "spread"])
        check(reader, tables, oracle, [*names, "spread"])


def test_little_memory(spark: SparkSession, tmp_path: Path) -> None:
    tables, oracle = Changing(random.Random(23)), None
    names = below(["busiest", "by_city", "of_both", "spread", "best_of_all"])
    with opened(spark, tmp_path / "s", executor="inline", memory_budget=3000) as engine:
        make(engine, names)
        for _ in range(4):
            engine.apply(tables.change())
        check(engine, tables, oracle, names)
