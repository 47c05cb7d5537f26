"""Factorized results through the front door: listed = recomputed by Spark, lazily or eagerly, and after a restart."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.engine.test_oracle import register
from tests.seeds import seeds

import headrace as hr
from headrace.engine.looking import Look
from headrace.errors import HeadraceError, SchemaError, UnsupportedSQLError
from headrace.factorized.enumeration import Block, Enumeration
from headrace.testing.changes import TableModel
from headrace.testing.joins import random_join, random_join_query
from headrace.testing.oracle import Oracle, assert_same

JOIN = "SELECT r.a, b, s.c, d FROM r JOIN s ON r.a = s.a JOIN t ON s.c = t.c"


@seeds("factorized results", 4)
def test_random_rows_are_those_of_spark(seed: int, spark: SparkSession, tmp_path: Path) -> None:
    rng = random.Random(seed)
    join = random_join(rng)
    models = {schema.name: TableModel(schema, rng, spread=3) for schema in join.tables}
    oracle = Oracle(spark)
    sqls = [random_join_query(rng, join, ("rows", "rows", "distinct")) for _ in range(3)]
    with hr.Engine(spark, tmp_path / "state", executor="inline", buckets=3) as engine:
        for schema in join.tables:
            register(engine, schema)
        for i, sql in enumerate(sqls):
            refresh = rng.choice(["eager", "lazy", "auto"])
            engine.view(f"v{i}", sql, representation="factorized", refresh=refresh)
        for _ in range(4):
            chosen = rng.sample(list(models), rng.randint(1, len(models)))
            engine.apply({name: models[name].change(rng.randint(0, 25)) for name in chosen})
            oracle.set_rows({name: model.to_arrow() for name, model in models.items()})
            check(engine, oracle, sqls)
    with hr.Engine(spark, tmp_path / "state", executor="inline") as engine:
        check(engine, oracle, sqls)


def check(engine: hr.Engine, oracle: Oracle, sqls: list[str]) -> None:
    for i, expected in enumerate(oracle.answers(sqls)):
        view = engine.views[f"v{i}"]
        assert isinstance(view, hr.View)
        assert view.count() == expected.num_rows
        assert_same(view.to_arrow(), expected)
        assert_same(view.to_df().toArrow().cast(view.schema), expected)
        assert_same(pa.Table.from_pylist(list(view.enumerate()), view.schema), expected)
        counted: Counter[str] = Counter()
        for row, times in view.multiplicities():
            counted[repr(row)] += times
        assert counted == Counter(map(repr, view.to_arrow().to_pylist()))


def tables(engine: hr.Engine) -> None:
    engine.table("r", "a BIGINT, b STRING")
    engine.table("s", "a BIGINT, c BIGINT, e BIGINT")
    engine.table("t", "c BIGINT, d STRING")


# Figure 6 of the F-IVM paper.
ROWS = {
    "r": pa.table({"a": [1, 1, 2, 3], "b": ["b1", "b2", "b3", "b4"]}),
    "s": pa.table({"a": [1, 1, 1, 2], "c": [1, 1, 2, 2], "e": [1, 2, 3, 4]}),
    "t": pa.table({"c": [1, 2, 2, 3], "d": ["d1", "d2", "d3", "d4"]}),
}


@pytest.fixture
def engine(spark: SparkSession, tmp_path: Path) -> Iterator[hr.Engine]:
    with hr.Engine(spark, tmp_path / "state", executor="inline", buckets=2) as made:
        tables(made)
        yield made


def forbidden(self: object, *given: object) -> object:
    raise AssertionError("this lists rows")


def test_counting_lists_no_row(engine: hr.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    view = engine.view("q", JOIN, representation="factorized")
    some = engine.view("some", "SELECT DISTINCT b, d FROM r NATURAL JOIN s NATURAL JOIN t", representation="factorized")
    engine.apply(ROWS)
    monkeypatch.setattr(Enumeration, "blocks", forbidden)
    assert (view.count(), some.count()) == (10, 8)
    with pytest.raises(AssertionError, match="lists rows"):
        view.to_arrow()


def test_rows_are_listed_as_they_are_asked_for(engine: hr.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first row of a large result takes a few blocks; reading it all takes hundreds."""
    made: list[int] = []
    blocks = Enumeration.blocks

    def counted(self: Enumeration) -> Iterator[Block]:
        for block in blocks(self):
            made.append(len(block.times))
            yield block

    monkeypatch.setattr(Enumeration, "blocks", counted)
    n = np.arange(600)
    engine.apply(
        {
            "r": pa.table({"a": n * 0, "b": [f"b{i}" for i in n]}),
            "s": pa.table({"a": n * 0, "c": n % 4, "e": n}),
            "t": pa.table({"c": n % 4, "d": [f"d{i}" for i in n]}),
        }
    )
    view = engine.view("q", JOIN, representation="factorized")
    assert view.count() == 600 * 600 * 150
    next(view.enumerate())
    assert len(made) == 1
    batches = view.batches()
    assert len(made) == 1
    for _ in range(400):  # about a hundred of a block's rows, each of which occurs 150 times
        next(batches)
    assert 2 < len(made) < 10


def test_a_dataframe_does_not_list_its_rows_in_the_driver(engine: hr.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tasks do, one per bucket."""
    view = engine.view("q", JOIN, representation="factorized")
    engine.apply(ROWS)
    with monkeypatch.context() as patched:
        patched.setattr(Enumeration, "blocks", forbidden)  # in this process; tasks run in others
        frame = view.to_df()
        assert frame.rdd.getNumPartitions() == 2
        assert frame.count() == 10
    assert_same(frame.toArrow().cast(view.schema), view.to_arrow())


def test_the_four_variants_agree(engine: hr.Engine) -> None:
    views = [
        engine.view(f"{representation}_{refresh}", JOIN, representation=representation, refresh=refresh)
        for representation in ("factorized", "listing")
        for refresh in ("eager", "lazy")
    ]
    engine.apply(ROWS)
    for view in views:
        assert (view.as_of == 1) == view.name.endswith("eager")
    for view in views:
        assert view.count() == 10
        assert_same(view.to_arrow(), views[0].to_arrow())
    engine.apply({"s": pa.table({"a": [1, 1], "c": [1, 1], "e": [1, 2], "__diff": [-1, -1]})})
    for view in views:
        assert view.count() == 6


def test_a_row_of_the_join_is_listed_once_with_its_multiplicity(engine: hr.Engine) -> None:
    view = engine.view("q", JOIN, representation="factorized")
    engine.apply(ROWS)
    found = {(row["a"], row["b"], row["c"], row["d"]): times for row, times in view.multiplicities()}
    assert found == {  # Figure 18, on the right
        (1, "b1", 1, "d1"): 2,
        (1, "b1", 2, "d2"): 1,
        (1, "b1", 2, "d3"): 1,
        (1, "b2", 1, "d1"): 2,
        (1, "b2", 2, "d2"): 1,
        (1, "b2", 2, "d3"): 1,
        (2, "b3", 2, "d2"): 1,
        (2, "b3", 2, "d3"): 1,
    }
    assert list(engine.view("l", JOIN).multiplicities()) == [(row, 1) for row in engine.views["l"].enumerate()]  # type: ignore[union-attr]


def test_explain_says_how_large_it_is_and_what_is_promised(engine: hr.Engine) -> None:
    view = engine.view("q", JOIN, representation="factorized")
    some = engine.view("some", "SELECT DISTINCT b, d FROM r NATURAL JOIN s NATURAL JOIN t", representation="factorized")
    engine.apply(ROWS)
    said = view.explain()
    sizes = {one["name"]: one for one in said.to_dict()["values"]["views"]}
    kept = [one for one in sizes.values() if one["kept"] and one["keys"]]
    assert said["result"]["rows"] == 10
    assert said["result"]["listing_values"] == 40
    assert said["result"]["kept_entries"] == sum(one["entries"] for one in kept)
    assert said["result"]["kept_values"] == sum(one["entries"] * len(one["keys"]) for one in kept)
    assert said["result"]["classes"] == ("acyclic", "free-connex")
    assert (said["result"]["update"], said["result"]["delay"]) == ("O(N)", "O(1)")
    assert "top down, level by level" in str(said)
    text = " ".join(str(some.explain()).split())
    assert "at most 10 of 2 columns" in text
    assert "the class promises nothing" in text
    assert some.count() == some.to_arrow().num_rows == 8


def test_order_and_limit_are_applied_to_what_a_reader_gets(engine: hr.Engine) -> None:
    sql = f"{JOIN} ORDER BY d DESC, b LIMIT 3"
    factorized, listing = (engine.view(n, sql, representation=n) for n in ("factorized", "listing"))
    engine.apply(ROWS)
    assert factorized.to_arrow().equals(listing.to_arrow())
    assert factorized.count() == 3


def test_a_lazy_view_is_brought_up_to_date_by_its_readers_only(engine: hr.Engine) -> None:
    view = engine.view("q", JOIN, representation="factorized", refresh="lazy")
    engine.apply(ROWS)
    assert view.as_of == 0
    with Look(engine.location) as look:  # which cannot write, so it shows what there was
        assert look.views["q"].count() == 0  # type: ignore[union-attr]
    assert view.to_df().count() == 10
    assert view.as_of == engine.step


def test_changes_are_refused_with_a_way_out(engine: hr.Engine) -> None:
    view = engine.view("q", JOIN, representation="factorized")
    with pytest.raises(UnsupportedSQLError, match="representation='listing'"):
        view.changes()


@pytest.mark.parametrize(
    ("sql", "options", "said"),
    [
        ("SELECT r.a, COUNT(*) AS n FROM r JOIN s ON r.a = s.a GROUP BY r.a", {}, "aggregates"),
        ("SELECT a, b FROM r", {}, "one table"),
        (JOIN, {"strategy": "operators"}, "has no representation"),
        (JOIN, {"strategy": "recursive"}, "keeps no factorized result"),
        (JOIN, {"refresh": "full"}, "refresh='full'"),
        (JOIN, {"refresh": "lazy", "goal": hr.Manual()}, "both say when"),
        (JOIN, {"refresh": "sometimes"}, "not known"),
    ],
)
def test_what_makes_no_sense_is_refused(sql: str, options: dict[str, object], said: str, engine: hr.Engine) -> None:
    with pytest.raises(HeadraceError, match=said):
        engine.view("q", sql, representation="factorized", **options)  # type: ignore[arg-type]
    assert not engine.views


def test_an_unknown_representation_is_refused(engine: hr.Engine) -> None:
    with pytest.raises(SchemaError, match="'listing', 'factorized'"):
        engine.view("q", JOIN, representation="compressed")
