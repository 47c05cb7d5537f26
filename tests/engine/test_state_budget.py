"""A memory budget drops state and makes it again: an answer never depends on what is kept."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.engine.test_sharing import THREE, Changing, answer, opened, random_query
from tests.residences import misplaced
from tests.seeds import seeds

import headrace as hr

QUERIES = {
    "three": f"SELECT s.city, SUM(o.price) AS p, COUNT(*) AS n FROM {THREE} GROUP BY s.city",
    "extremes": f"SELECT i.what, MIN(o.price) AS low, COUNT(DISTINCT s.city) AS cities FROM {THREE} GROUP BY i.what",
    "outer": "SELECT o.day, COUNT(s.id) AS n, COUNT(*) AS m FROM orders o LEFT JOIN shops s ON o.shop = s.id "
    "GROUP BY o.day",
    "full": "SELECT o.day, s.city, COUNT(*) AS m FROM orders o FULL JOIN shops s ON o.shop = s.id GROUP BY 1, 2",
    "semi": "SELECT o.day, COUNT(*) AS n FROM orders o WHERE EXISTS (SELECT 1 FROM items i WHERE i.order_id = o.id) "
    "GROUP BY o.day",
    "anti": "SELECT o.day, COUNT(*) AS n FROM orders o LEFT ANTI JOIN items i ON i.order_id = o.id GROUP BY o.day",
    "nested": "SELECT n, COUNT(*) AS shops FROM (SELECT o.shop, COUNT(*) AS n FROM orders o JOIN items i "
    "ON i.order_id = o.id GROUP BY o.shop) GROUP BY n",
    "joined_sums": "SELECT s.city, SUM(t.n) AS n FROM shops s JOIN (SELECT shop, COUNT(*) AS n FROM orders "
    "GROUP BY shop) t ON t.shop = s.id GROUP BY s.city",
    "inner_distinct": "SELECT s.city, SUM(t.n) AS n, MAX(t.low) AS low FROM shops s JOIN (SELECT shop, COUNT(DISTINCT day) "
    "AS n, MIN(price) AS low FROM orders GROUP BY shop) t ON t.shop = s.id GROUP BY s.city",
    "doubles": "SELECT o.day, AVG(CAST(o.price AS DOUBLE) * i.units) AS a, STDDEV(i.units) AS d, "
    "COUNT(DISTINCT i.what) AS w FROM orders o JOIN items i ON i.order_id = o.id GROUP BY o.day",
    "total": "SELECT COUNT(*) AS n FROM orders o JOIN shops s ON o.shop = s.id "
    "WHERE o.price > (SELECT AVG(units) FROM items)",
    "first": "SELECT price, COUNT(*) AS n FROM (SELECT o.id, o.price FROM orders o JOIN shops s ON o.shop = s.id "
    "ORDER BY o.price DESC, o.id LIMIT 5) GROUP BY price",
    "not_in": "SELECT o.id FROM orders o WHERE o.shop NOT IN (SELECT order_id FROM items)",
}


def oracle(sql: str) -> str:
    return sql.replace("LEFT ANTI JOIN", "ANTI JOIN")


def kept_bytes(engine: hr.Engine) -> int:
    found = engine.status()["memory"]
    assert isinstance(found["kept_bytes"], int)
    return found["kept_bytes"]


@pytest.fixture
def engine(spark: SparkSession, tmp_path: Path) -> Iterator[hr.Engine]:
    with opened(spark, tmp_path / "state", sharing="off") as found:
        yield found


@pytest.mark.parametrize("name", QUERIES)
def test_any_budget_gives_the_answer(engine: hr.Engine, name: str) -> None:
    rng = random.Random(name)
    data = Changing(rng)
    view = engine.view(name, QUERIES[name], strategy="operators")
    for step in range(14):
        engine.memory_budget = rng.choice([0, 0, 1_000, 3_000, 10_000, None])
        engine.apply(data.change())
        assert answer(view) == data.answer(oracle(QUERIES[name])), step
        assert not misplaced(engine)
    assert engine.verify() == []


@seeds("state budget", 3, kept=[2552179051])
@pytest.mark.parametrize("sharing", ["off", "auto"])
def test_random_views_budgets_and_restarts(spark: SparkSession, tmp_path: Path, sharing: str, seed: int) -> None:
    rng = random.Random(seed)
    data = Changing(rng)
    location = tmp_path / "state"
    engine = opened(spark, location, sharing=sharing, memory_budget=0)
    queries: dict[str, str] = {}
    for step in range(16):
        if rng.random() < 0.4:
            name = f"v{step}"
            queries[name] = random_query(rng)
            engine.view(name, queries[name], strategy="operators")
        if queries and rng.random() < 0.15:
            name = rng.choice(list(queries))
            del queries[name]
            engine.drop(name)
        if rng.random() < 0.3:
            engine.close()
            engine = opened(
                spark, location, sharing=sharing, memory_budget=rng.choice([0, "5 KB", "20 KB", "1 GB", None])
            )
        engine.apply(data.change())
        for name, sql in queries.items():
            view = engine.views[name]
            assert isinstance(view, hr.View)
            assert answer(view) == data.answer(sql), (step, name, sql)
        budget = engine.memory_budget
        assert budget is None or kept_bytes(engine) <= budget
    engine.close()
