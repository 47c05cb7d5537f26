"""Views that share subplans: their answers are those of views that share nothing, whatever comes and goes."""

from __future__ import annotations

import random
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.residences import misplaced
from tests.seeds import seeds
from typer.testing import CliRunner

import headrace as hr
from headrace.cli.main import app
from headrace.engine import merging_views
from headrace.engine.looking import Look
from headrace.engine.sharing import Sharing
from headrace.errors import SchemaError, StepFailedError
from headrace.testing.oracle import Oracle
from headrace.thrifty.share.blocks import Block
from headrace.thrifty.share.orders import Manner

TABLES = {
    "orders": ("id BIGINT NOT NULL, shop BIGINT, day INT, price DECIMAL(10, 2), note STRING", "id"),
    "shops": ("id BIGINT NOT NULL, city STRING, size INT", "id"),
    "items": ("order_id BIGINT, what STRING, units INT", None),
}
JOIN = "orders o JOIN shops s ON o.shop = s.id"
THREE = f"{JOIN} JOIN items i ON i.order_id = o.id"
BOARD = {
    "by_city": f"SELECT s.city, COUNT(*) AS n, SUM(o.price) AS price FROM {JOIN} GROUP BY s.city",
    "by_day": f"SELECT o.day, MAX(o.price) AS most FROM {JOIN} GROUP BY o.day",
    "rows": f"SELECT o.id, s.city, s.size FROM {JOIN}",
}


def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let views share whatever can be shared, worth it or not."""

    def work(blocks: Sequence[Block], manner: Manner) -> float:
        """The more freely they share, the better: with masks, and in orders that are not their own."""
        return 1.0 + 0.1 * manner.exact + 0.01 * manner.own_orders

    monkeypatch.setattr(Sharing, "_work", lambda self, views: work)
    monkeypatch.setattr(Sharing, "_known", lambda self, views: {*TABLES})


def always_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let views be merged in the background, beside steps, however few rows their tables have."""
    monkeypatch.setattr(merging_views, "FEW_ROWS", -1)
    monkeypatch.setattr(merging_views, "QUIET", 0.0)
    monkeypatch.setattr(merging_views, "_LITTLE", 0)


def opened(spark: SparkSession, location: Path, **options: Any) -> hr.Engine:
    new = {} if location.exists() else {"buckets": 3}
    engine = hr.Engine(spark, location, calibrate=False, **new, **options)
    for name, (schema, key) in TABLES.items():
        engine.table(name, schema, key=key)
    return engine


@pytest.fixture
def engine(spark: SparkSession, tmp_path: Path) -> Iterator[hr.Engine]:
    with opened(spark, tmp_path / "state") as found:
        yield found


class Changing:
    """Tables that change at random; their rows are known."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.rows: dict[str, list[tuple[Any, ...]]] = {name: [] for name in TABLES}
        self.next = 0

    def change(self) -> dict[str, pa.Table]:
        out = {}
        for name in self.rng.sample(list(TABLES), self.rng.randint(1, 3)):
            gone = self.rng.sample(self.rows[name], min(len(self.rows[name]), self.rng.choice([0, 0, 2, 9])))
            for row in gone:
                self.rows[name].remove(row)
            come = self.come(name, self.rng.choice([0, 1, 5, 40]))
            diff = [-1] * len(gone) + [1] * len(come)
            out[name] = self.table(name, [*gone, *come]).append_column("__diff", pa.array(diff, pa.int64()))
        return out

    def come(self, name: str, count: int) -> list[tuple[Any, ...]]:
        """New rows of a table."""
        out = []
        for _ in range(count):
            out.append(self.row(name))
            self.rows[name].append(out[-1])
        return out

    def row(self, name: str) -> tuple[Any, ...]:
        rng = self.rng
        self.next += 1
        if name == "orders":
            return (
                self.next,
                rng.choice([None, *range(9)]),
                rng.choice([None, 1, 2, 3, 4]),
                rng.randint(0, 9),
                rng.choice(["a", None]),
            )
        if name == "shops":
            free = min({*range(500)} - {row[0] for row in self.rows[name]})
            return (free, rng.choice(["Rome", "Oslo", None]), rng.randint(0, 4))
        return (rng.choice([None, rng.randint(1, max(2, self.next))]), rng.choice(["nut", "bolt"]), rng.randint(0, 4))

    def table(self, name: str, rows: list[tuple[Any, ...]]) -> pa.Table:
        kinds = {
            "orders": [
                ("id", pa.int64()),
                ("shop", pa.int64()),
                ("day", pa.int32()),
                ("price", pa.decimal128(10, 2)),
                ("note", pa.string()),
            ],
            "shops": [("id", pa.int64()), ("city", pa.string()), ("size", pa.int32())],
            "items": [("order_id", pa.int64()), ("what", pa.string()), ("units", pa.int32())],
        }[name]
        return pa.table({c: pa.array([row[i] for row in rows], kind) for i, (c, kind) in enumerate(kinds)})

    def answer(self, sql: str) -> Counter[str]:
        return Counter(map(_text, self.rows_of(sql)))

    def rows_of(self, sql: str) -> list[tuple[Any, ...]]:
        """What DuckDB answers to a query."""
        with duckdb.connect(config={"threads": 1}) as oracle:
            for name, rows in self.rows.items():
                oracle.register(name, self.table(name, rows))
            return oracle.execute(sql).fetchall()

    def answers_of_spark(self, oracle: Oracle, queries: Sequence[str]) -> list[Counter[str]]:
        """The same of several queries, as Spark sees it."""
        oracle.set_rows({name: self.table(name, rows) for name, rows in self.rows.items()})
        found = oracle.answers(queries)
        return [Counter(_text(tuple(row.values())) for row in table.to_pylist()) for table in found]


def _text(row: tuple[Any, ...]) -> str:
    return "|".join("NULL" if v is None else f"{v:.2f}" if not isinstance(v, int | str) else str(v) for v in row)


def answer(view: hr.View) -> Counter[str]:
    return Counter(_text(tuple(row.values())) for row in view.to_arrow().to_pylist())


# The same tables in other orders, and some of them only: (orders, shops, items) by their letters.
JOINS = {
    "os": JOIN,
    "so": "shops s JOIN orders o ON o.shop = s.id",
    "oi": "orders o JOIN items i ON i.order_id = o.id",
    "osi": THREE,
    "ios": "items i JOIN orders o ON i.order_id = o.id JOIN shops s ON o.shop = s.id",
    "osio": f"{THREE} JOIN orders p ON p.id = i.units",
    "osis": f"{THREE} JOIN shops t ON t.id = i.units",
}


def random_query(rng: random.Random) -> str:
    """A query over a join of some tables in some order, or over groups, with filters and columns of its own."""
    return _query_over_groups(rng) if rng.random() < 0.4 else _query_over_joins(rng)


def _query_over_groups(rng: random.Random) -> str:
    """A query over groups that others may have as well: of a table, of a join, of groups, or DISTINCT rows."""

    def where(*able: str) -> str:
        return rng.choice(["", "", *(f" WHERE {text}" for text in able)])

    orders, groups = where("day < 3", "price >= 4", "note IS NOT NULL"), where("g.n > 1", "g.p > 5", "g.p < 20")
    by_shop = f"(SELECT shop, SUM(price) AS p, COUNT(*) AS n FROM orders{orders} GROUP BY shop) g"
    by_city = (
        f"(SELECT s.city, o.day, SUM(o.price) AS p, COUNT(*) AS n FROM {rng.choice([JOIN, JOINS['so']])}"
        f"{where('o.day < 3', 's.size IN (1, 2)')} GROUP BY s.city, o.day) g"
    )
    by_number = f"(SELECT n, MAX(p) AS p, COUNT(*) AS shops FROM {by_shop}{groups} GROUP BY n) h"
    shops = where("s.size <> 2", "s.city = 'Rome'", "g.n > 1", "g.p > 5 AND s.size < 3")
    days = f"(SELECT DISTINCT shop, day FROM orders{orders}) d"
    return rng.choice(
        [
            f"SELECT s.city, SUM(g.p) AS p, MAX(g.n) AS n FROM {by_shop} JOIN shops s ON g.shop = s.id{shops} "
            "GROUP BY s.city",
            f"SELECT s.size, s.city, g.p FROM shops s JOIN {by_shop} ON g.shop = s.id{shops}",
            f"SELECT g.city, MAX(g.p) AS p, COUNT(*) AS days FROM {by_city}{groups} GROUP BY g.city",
            f"SELECT h.shops, SUM(h.p) AS p FROM {by_number} GROUP BY h.shops",
            f"SELECT i.what, COUNT(*) AS n, MIN(h.p) AS p FROM {by_number} JOIN items i ON i.units = h.shops "
            "GROUP BY i.what",
            f"SELECT s.city, COUNT(*) AS n FROM {days} JOIN shops s ON d.shop = s.id GROUP BY s.city",
        ]
    )


def _query_over_joins(rng: random.Random) -> str:
    tables = rng.choice(list(JOINS))
    filters = {
        "o": ["o.day < 3", "o.price >= 4", "o.note IS NOT NULL"],
        "s": ["s.city = 'Rome'", "s.size IN (1, 2)", "s.size <> 2"],
        "i": ["i.what = 'nut'", "i.units > 1"],
    }
    able = [text for table in {*tables} for text in filters[table]]
    chosen = rng.sample(sorted(able), rng.choice([0, 1, 1, 2]))
    where = f" WHERE {' AND '.join(chosen)}" if chosen else ""
    columns = {"o": ["o.day", "o.note"], "s": ["s.city", "s.size"], "i": ["i.what"]}
    keys = rng.sample(sorted({text for table in {*tables} for text in columns[table]}), rng.randint(1, 2))
    if rng.random() < 0.25:
        return f"SELECT {', '.join(['o.id', *keys])} FROM {JOINS[tables]}{where}"
    values = ["COUNT(*) AS n", "SUM(o.price) AS p", "MIN(o.price) AS low", "COUNT(DISTINCT o.shop) AS shops"]
    values += [f"PERCENTILE_CONT({p}) WITHIN GROUP (ORDER BY o.day) AS q{i}" for i, p in enumerate((0.25, 0.5))]
    named = ", ".join([*(f"{key} AS k{i}" for i, key in enumerate(keys)), *rng.sample(values, rng.randint(1, 2))])
    return f"SELECT {named} FROM {JOINS[tables]}{where} GROUP BY {', '.join(keys)}"


@pytest.mark.parametrize("executor", ["inline", "auto"])
@seeds("shared subplans", 4, check=1)
def test_any_views_that_share_equal_recomputed_ones(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, executor: str, seed: int
) -> None:
    rng = random.Random(seed)
    if forced := rng.random() < 0.8:
        always(monkeypatch)
    if rng.random() < 0.6:
        always_later(monkeypatch)
    changing, queries, shared = Changing(rng), dict[str, str](), 0
    engine = opened(spark, tmp_path / "state", executor=executor)
    try:
        for step in range(14):
            for _ in range(rng.choice([0, 1, 2])):
                name = f"v{len(queries)}"
                queries[name] = random_query(rng)
                engine.view(name, queries[name], strategy=rng.choice(["operators", "operators", "auto"]))
            if rng.random() < 0.15 and engine.views:
                engine.drop(rng.choice(list(engine.views)))
            if rng.random() < 0.15 and engine.views:
                view = engine.views[rng.choice(list(engine.views))]
                view.goal = hr.Manual() if view.goal is None else None
            if rng.random() < 0.2:
                engine.close()
                engine = opened(spark, tmp_path / "state", executor=executor)
            if rng.random() < 0.1:
                engine.compact()
            if rng.random() < 0.3 or step == 13:
                engine.settle()
            before = {name: answer(view) for name, view in engine.views.items()}
            engine.apply(changing.change())
            engine.refresh()
            shared += len(engine._catalogue.shared)
            for name, view in engine.views.items():
                found = answer(view)
                assert found == changing.answer(queries[name]), (step, name, queries[name])
                if view.goal is None:
                    told = _changes(view)
                    told.update(before[name])
                    assert {row: n for row, n in told.items() if n} == dict(found), (step, name, queries[name])
            assert not misplaced(engine)
    finally:
        engine.close()
    assert shared or not forced  # by its own estimates the engine may find nothing worth sharing


def _changes(view: hr.View) -> Counter[str]:
    out: Counter[str] = Counter()
    for row in view.changes().to_pylist():
        times = row.pop("__diff")
        out[_text(tuple(row.values()))] += times
    return out


@pytest.mark.check
def test_a_board_shares_one_join(engine: hr.Engine) -> None:
    changing = Changing(random.Random(1))
    for name, sql in BOARD.items():
        engine.view(name, sql, strategy="operators")
    (shared,) = engine._catalogue.shared.values()
    assert shared.views == tuple(BOARD)
    for _ in range(5):
        engine.apply(changing.change())
    for name, sql in BOARD.items():
        assert answer(engine.views[name]) == changing.answer(sql)
    kept = engine._store.snapshot.arrangements
    assert not any(name.startswith(tuple(f"view/{view}/0." for view in BOARD)) for name in kept)
    (name,) = engine._catalogue.shared
    assert {f"view/{name}/0.left", f"view/{name}/0.right"} <= kept.keys()


def rows_taken(engine: hr.Engine) -> int:
    """Rows that joins took and gave in the last step."""
    operators = engine._store.snapshot.summary["operators"]
    return sum(sum(numbers[:6]) for view in operators.values() for n, numbers in view.items() if n == "0")


def test_a_shared_join_takes_rows_once(spark: SparkSession, tmp_path: Path) -> None:
    taken = {}
    for mode in ("off", "exact"):
        changing = Changing(random.Random(2))
        with opened(spark, tmp_path / mode, sharing=mode) as engine:
            for name, sql in BOARD.items():
                engine.view(name, sql, strategy="operators")
            for _ in range(6):
                engine.apply(changing.change())
            changes = {"orders": changing.table("orders", [changing.row("orders") for _ in range(50)])}
            engine.apply(changes)
            taken[mode] = rows_taken(engine)
    assert taken["off"] == 3 * taken["exact"] > 0


def test_more_queries_than_a_word_has_bits(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    always(monkeypatch)
    changing = Changing(random.Random(3))
    queries = {
        f"q{i}": f"SELECT s.city, COUNT(*) AS n FROM {JOIN} WHERE o.price * 10 < {i} GROUP BY s.city" for i in range(66)
    }
    with opened(spark, tmp_path / "state") as engine:
        update = engine._sharing.update
        monkeypatch.setattr(engine._sharing, "update", lambda **given: None)  # once, when all views are there
        for name, sql in queries.items():
            engine.view(name, sql, strategy="operators")
        engine.apply(changing.change())
        update()
        (shared,) = engine._catalogue.shared.values()
        assert len(shared.members) == 66
        for _ in range(6):
            engine.apply(changing.change())
        for name, sql in queries.items():
            assert answer(engine.views[name]) == changing.answer(sql), name


def test_more_clusters_of_groups_than_a_word_has_bits(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shared groups have a mask as one more key, a value per cluster of views that want the same rows."""
    always(monkeypatch)
    changing = Changing(random.Random(4))
    queries = {
        f"q{i}": "SELECT n, COUNT(*) AS shops FROM "
        f"(SELECT shop, COUNT(*) AS n FROM orders WHERE price * 10 < {i} GROUP BY shop) GROUP BY n"
        for i in range(64)
    }
    with opened(spark, tmp_path / "state") as engine:
        update = engine._sharing.update
        monkeypatch.setattr(engine._sharing, "update", lambda **given: None)  # once, when all views are there
        for name, sql in queries.items():
            engine.view(name, sql, strategy="operators")
        engine.apply({"orders": changing.table("orders", changing.come("orders", 50))})
        update()
        (shared,) = engine._catalogue.shared.values()
        (groups,) = shared.kernel.tree.nodes
        assert len(shared.members) == len(groups.ports[0].feeds) == 64
        for _ in range(4):
            engine.apply(changing.change())
        for name, sql in queries.items():
            assert answer(engine.views[name]) == changing.answer(sql), name


def test_exact_shares_equal_rows_and_auto_others_too(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both take whatever they may; with "exact", that is what has the same conditions, whatever columns it reads."""
    monkeypatch.setattr(Sharing, "_work", lambda self, views: lambda blocks, manner: 1.0 + 0.1 * manner.exact)
    queries = {
        "cheap": f"SELECT o.id FROM {JOIN} WHERE o.price < 3",
        "cities": f"SELECT s.city, MAX(o.day) AS last FROM {JOIN} WHERE o.price < 3 GROUP BY s.city",
        "early": f"SELECT o.id FROM {JOIN} WHERE o.day < 3",
    }
    for mode, parts, masked in (("exact", [("cheap", "cities")], ()), ("auto", [tuple(queries)], ("orders",))):
        changing = Changing(random.Random(5))
        with opened(spark, tmp_path / mode, sharing=mode) as engine:
            for table in ("orders", "shops"):  # where a table is empty, nothing is known of conditions on its rows
                engine.apply({table: changing.table(table, changing.come(table, 9))})
            for name, sql in queries.items():
                engine.view(name, sql, strategy="operators")
            engine.settle()
            assert [one.views for one in engine._catalogue.shared.values()] == parts, mode
            assert all(one.manner.exact == (mode == "exact") for one in engine._catalogue.shared.values())
            (said,) = engine.status()["shared"]
            assert tuple(said["differ_on"]) == masked
            for _ in range(4):
                engine.apply(changing.change())
            for name, sql in queries.items():
                assert answer(engine.views[name]) == changing.answer(sql), (mode, name)


def test_catalyst_above_a_shared_subplan(engine: hr.Engine) -> None:
    """One view needs Catalyst after the join, and one overflows there: the error is Spark's, and nothing is lost."""
    sql = f"SELECT soundex(s.city) AS sound, COUNT(*) AS n FROM {JOIN} GROUP BY soundex(s.city)"
    sound = engine.view("sound", sql, strategy="operators")
    product = engine.view(
        "product",
        f"SELECT s.size * o.day AS area, COUNT(*) AS n FROM {JOIN} GROUP BY s.size * o.day",
        strategy="operators",
    )
    assert len(engine._catalogue.shared) == 1
    shops = pa.table({"id": [1, 2], "city": ["Rome", "Oslo"], "size": pa.array([3, 2_000_000_000], pa.int32())})
    one = {"orders": pa.table({"id": [1], "shop": [1], "day": pa.array([4], pa.int32()), "price": [1], "note": ["x"]})}
    engine.apply({"shops": shops, **one})
    assert sound.to_arrow().to_pylist() == [{"sound": "R500", "n": 1}]
    assert product.to_arrow().to_pylist() == [{"area": 12, "n": 1}]
    much = {"orders": pa.table({"id": [2], "shop": [2], "day": pa.array([4], pa.int32()), "price": [1], "note": ["x"]})}
    with pytest.raises(StepFailedError, match=r"(?i)overflow"):
        engine.apply(much)
    assert engine.tables["orders"].rows == 1
    assert product.to_arrow().to_pylist() == [{"area": 12, "n": 1}]


def test_sharing_can_be_switched_off_and_on(spark: SparkSession, tmp_path: Path) -> None:
    changing, location = Changing(random.Random(4)), tmp_path / "state"
    for mode in ("exact", "off", "auto", "exact"):
        with opened(spark, location, sharing=mode) as engine:
            for name, sql in BOARD.items():
                engine.view(name, sql, strategy="operators")
            engine._sharing.update()
            assert len(engine._catalogue.shared) == (mode != "off")
            engine.apply(changing.change())
            for name, sql in BOARD.items():
                assert answer(engine.views[name]) == changing.answer(sql)
    with pytest.raises(SchemaError, match="sharing"):
        hr.Engine(spark, location, sharing="some")


def test_a_view_that_leaves_takes_nothing_from_others(engine: hr.Engine) -> None:
    changing = Changing(random.Random(5))
    for name, sql in BOARD.items():
        engine.view(name, sql, strategy="operators")
    for _ in range(4):
        engine.apply(changing.change())
    files = {
        run.name
        for part, buckets in engine._store.snapshot.arrangements.items()
        if part.startswith("view/~")
        for s in buckets.values()
        for run in s.runs
    }
    engine.drop("by_day")
    assert files <= engine._store.snapshot.files()  # the others read the same state as before
    engine.apply(changing.change())
    engine.drop("by_city")
    assert [one.views for one in engine._catalogue.shared.values()] == [("rows",)]  # nothing had to be filled for it
    engine.apply(changing.change())
    assert answer(engine.views["rows"]) == changing.answer(BOARD["rows"])
    engine.drop("rows")
    assert not engine._catalogue.shared
    assert not any(part.startswith("view/") for part in engine._store.snapshot.arrangements)
    engine.verify()


def test_explain_says_who_shares_what(engine: hr.Engine, tmp_path: Path) -> None:
    changing = Changing(random.Random(6))
    for _ in range(6):
        engine.apply(changing.change())
    for name, sql in BOARD.items():
        engine.view(name, sql, strategy="operators")
    product = f"SELECT s.size * o.day AS area, COUNT(*) AS n FROM {JOIN} GROUP BY s.size * o.day"
    engine.view("late", product, strategy="operators", goal=hr.Manual())
    engine.view("alone", "SELECT what, SUM(units) AS units FROM items GROUP BY what")
    engine.view("left", f"SELECT o.id, s.city FROM {JOIN.replace('JOIN', 'LEFT JOIN')}", strategy="operators")
    engine.apply(changing.change())
    text = str(engine.explain())
    assert "engine: 6 views, 1 shared subplan" in text
    assert "1 join over orders and shops in place of 3, for by_city, by_day and rows" in text.replace(
        "\n             ", " "
    )
    assert "late   it has a goal, and rows that a shared subplan gave could not wait for it" in text
    assert "alone  it has no inner join by equal keys alone, and no groups below its answer" in text
    report = engine.explain().to_dict()
    assert report["values"]["shared"][0]["views"] == ["by_city", "by_day", "rows"]
    ElementTree.fromstring(engine.explain().to_svg())
    view = str(engine.views["by_city"].explain())
    assert view.startswith("view by_city: kept by 1 operator and shared subplan ~2 over 2 tables")
    assert "[0] inner join on shop = id (by shared subplan ~2)" in view
    ElementTree.fromstring(engine.views["by_city"].explain().to_svg())
    (status,) = engine.status()["shared"]
    assert (status["name"], status["operators"], status["instead_of"]) == ("~2", 1, 3)
    with Look(engine.location) as look:  # without Spark
        assert str(look.views["by_city"].explain()) == view
        assert look.status()["shared"] == engine.status()["shared"]
        assert str(look.explain()) == text


def test_masks_are_told_of(engine: hr.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    always(monkeypatch)
    engine.view("cheap", f"SELECT o.id FROM {JOIN} WHERE o.price < 3", strategy="operators")
    engine.view("early", f"SELECT o.id FROM {JOIN} WHERE o.day < 3", strategy="operators")
    said = str(engine.explain()).replace("\n             ", " ")
    assert "conditions on orders differ, so rows carry a mask of the views that want them" in said
    assert "(price < 3" in said


def test_groups_that_differ_in_filters_are_told_of(engine: hr.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    always(monkeypatch)
    engine.apply(Changing(random.Random(8)).change())
    groups = "(SELECT shop, SUM(price) AS p, COUNT(*) AS n FROM orders WHERE {} GROUP BY shop)"
    for name, where in (("cheap", "price < 3"), ("early", "day < 3")):
        engine.view(name, f"SELECT n, MAX(p) AS p FROM {groups.format(where)} GROUP BY n")
    said = str(engine.explain()).replace("\n             ", " ")
    assert "1 aggregate over orders in place of 2, for cheap and early" in said
    assert "conditions on orders differ, so rows carry a mask of the views that want them" in said
    assert "[0] groups of orders: SUM(price), COUNT(*) by shop" in said


def test_a_failing_update_leaves_everything_as_it_was(engine: hr.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    changing = Changing(random.Random(7))
    engine.view("by_city", BOARD["by_city"], strategy="operators")
    for _ in range(4):
        engine.apply(changing.change())

    def full(*given: Any) -> Any:
        raise OSError("the disk is full")

    fill: Callable[..., Any] = engine._maintenance.states.fill_parts
    monkeypatch.setattr(engine._maintenance.states, "fill_parts", full)
    with pytest.raises(OSError, match="full"):
        engine.view("by_day", BOARD["by_day"], strategy="operators")
    assert not engine._catalogue.shared
    monkeypatch.setattr(engine._maintenance.states, "fill_parts", fill)
    engine.apply(changing.change())
    assert engine.view("by_day", BOARD["by_day"], strategy="operators") is engine.views["by_day"]
    engine.view("rows", BOARD["rows"], strategy="operators")
    assert len(engine._catalogue.shared) == 1
    engine.apply(changing.change())
    for name, sql in BOARD.items():
        assert answer(engine.views[name]) == changing.answer(sql)


def test_jobs_of_spark_share_too(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    always(monkeypatch)
    changing = Changing(random.Random(8))
    queries = BOARD | {"early": f"SELECT s.city, COUNT(*) AS n FROM {JOIN} WHERE o.day < 3 GROUP BY s.city"}
    with opened(spark, tmp_path / "state", executor="spark") as engine:
        engine.apply(changing.change())
        for name, sql in queries.items():
            engine.view(name, sql, strategy="operators")
        assert len(engine._catalogue.shared) == 1
        for _ in range(3):
            assert engine.apply(changing.change()).ran == "job"
        for name, sql in queries.items():
            assert answer(engine.views[name]) == changing.answer(sql)
        assert not misplaced(engine)


def test_headrace_status_lists_shared_subplans(spark: SparkSession, tmp_path: Path) -> None:
    with opened(spark, tmp_path / "state") as engine:
        for name, sql in BOARD.items():
            engine.view(name, sql, strategy="operators")
    shown = CliRunner().invoke(app, ["status", str(tmp_path / "state")]).output
    assert " ".join(shown.split()).count("by_city, by_day, rows 1 3 0.0") == 1


def test_the_first_rows_of_an_order_keep_more_than_they_are_given(engine: hr.Engine) -> None:
    """What a view keeps is recognized part by part, also where a part follows from another one."""
    changing = Changing(random.Random(9))
    first = f"SELECT id, price FROM (SELECT o.id, o.price FROM {JOIN} ORDER BY o.price DESC, o.id LIMIT 3)"
    engine.view("first", first, strategy="operators")
    engine.view("by_city", BOARD["by_city"], strategy="operators")
    (shared,) = engine._catalogue.shared.values()
    assert shared.views == ("first", "by_city")
    for _ in range(3):
        engine.apply(changing.change())
    assert answer(engine.views["first"]) == changing.answer(first)
