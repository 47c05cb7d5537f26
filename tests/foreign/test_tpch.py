"""TPC-H's queries along foreign keys: after every step of a stream, each equals what is computed from the rows.

DuckDB answers after every step, because it takes milliseconds, and Spark after the last, because its types and its
rounding are the ones that count. All views of a stream are in one engine, so a step is applied once for all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.foreign.tpch_queries import FOLDER, LIMITED, QUERIES, Query, Row, answers_by_duckdb, query_text, rows_of
from tests.foreign.tpch_streams import Stream, Tables, dangling, inserts, sample, sliding, undone

import headrace as hr
from headrace.datasets import TPCH_SCHEMAS
from headrace.errors import HeadraceError
from headrace.relation.schema import DIFF
from headrace.relation.types import sql_type
from headrace.testing.oracle import Oracle, assert_same

pytestmark = pytest.mark.timeout(900)  # the first test of a run waits for all its steps

STRATEGY = "foreign-key"
ONE_TABLE = (1, 6)  # nothing to join, so no strategy for joins


@dataclass(frozen=True)
class Run:
    """A stream, and how it is run.

    Parameters
    ----------
    late : the views are made after the first step. They are filled from rows then, and planned for tables whose sizes
        are known, of which the small ones are in every bucket.
    by_spark : Spark checks the last answers. It takes seconds, so one run of each kind of stream is checked so.
    """

    stream: Stream
    executor: str = "inline"
    late: bool = False
    by_spark: bool = True


RUNS = {
    "inserts": Run(inserts),
    "undone": Run(undone, executor="auto"),
    "sliding": Run(partial(sliding, steps=6), late=True, by_spark=False),
    "sliding-on-spark": Run(partial(sliding, steps=2), executor="spark"),
    "dangling": Run(dangling),
}


@dataclass
class Recording:
    """What the views of one engine said after every step of a stream, and what they should have said."""

    expected: dict[int, list[list[Row]]] = field(default_factory=lambda: {number: [] for number in QUERIES})
    by_spark: dict[int, pa.Table] = field(default_factory=dict)
    refused: dict[str, HeadraceError] = field(default_factory=dict)
    strategies: dict[str, str | None] = field(default_factory=dict)
    before: dict[str, pa.Table] = field(default_factory=dict)
    answers: dict[str, list[pa.Table]] = field(default_factory=dict)
    changes: dict[str, list[pa.Table]] = field(default_factory=dict)
    damage: list[str] = field(default_factory=list)

    def of(self, view: str) -> list[pa.Table]:
        """The answers of a view; a view that could not be made fails its own tests only."""
        if view in self.refused:
            raise self.refused[view]
        return self.answers[view]


@pytest.fixture(scope="module", params=RUNS)
def recording(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Recording:
    run = RUNS[request.param]
    with hr.Engine(spark, tmp_path_factory.mktemp("tpch") / "s", executor=run.executor, buckets=3) as engine:
        return record(engine, run)


def record(engine: hr.Engine, run: Run) -> Recording:
    recording = Recording()
    register(engine)
    steps = run.stream(sample())
    if run.late:
        engine.apply(next(steps).changes)
    for query in map(Query, QUERIES):
        make_view(engine, recording, query.view, query.unlimited, strategy_of(query))
        if query.number in LIMITED:
            make_view(engine, recording, f"{query.view}_limited", query_text(query.number), strategy_of(query))
    rows: Tables = {}
    for step in steps:
        engine.apply(step.changes)
        rows = step.rows
        for number, answer in answers_by_duckdb(rows).items():
            recording.expected[number].append(answer)
        for name, view in engine.views.items():
            assert isinstance(view, hr.View)
            recording.answers[name].append(view.to_arrow())
            if name in recording.changes:
                recording.changes[name].append(view.changes())
    if run.by_spark:
        oracle = Oracle(engine.spark)
        oracle.set_rows(rows)
        recording.by_spark = {number: oracle.answer(Query(number).unlimited) for number in QUERIES}
    recording.damage = engine.verify()
    return recording


def register(engine: hr.Engine) -> None:
    for name, spec in TPCH_SCHEMAS.items():
        engine.table(name, spec.ddl, key=spec.key, references=dict(spec.references))


def strategy_of(query: Query) -> str:
    return "auto" if query.number in ONE_TABLE else STRATEGY


def make_view(engine: hr.Engine, recording: Recording, name: str, sql: str, strategy: str) -> None:
    try:
        view = engine.view(name, sql, strategy=strategy)
    except HeadraceError as error:
        recording.refused[name] = error
    else:
        recording.before[name] = view.to_arrow()
        recording.strategies[name] = view.planned.definition.strategy
        recording.answers[name] = []
        if not name.endswith("_limited"):
            recording.changes[name] = []


def check(query: Query, step: int, answer: pa.Table, expected: list[Row], limit: int | None = None) -> None:
    """An answer has the expected rows in the order of ORDER BY; cut off by a LIMIT, any of those that tie."""
    names, rows = answer.column_names, rows_of(answer)
    surplus, missing = Counter(rows) - Counter(expected), Counter(expected) - Counter(rows)
    assert not surplus, f"step {step}: rows {list(surplus.items())[:3]}, and not {list(missing.items())[:3]}"
    assert limit is not None or not missing, f"step {step}: no rows {list(missing.items())[:3]}"
    wanted = query.in_order(names, expected)[:limit]
    assert query.order_values(names, rows) == query.order_values(names, wanted), f"step {step}: not in order"


def every(numbers: Any = QUERIES) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("query", [pytest.param(Query(number), id=f"q{number}") for number in numbers])


@every()
def test_answers_after_every_step(recording: Recording, query: Query) -> None:
    answers = recording.of(query.view)
    for step, (answer, expected) in enumerate(zip(answers, recording.expected[query.number], strict=True)):
        check(query, step, answer, expected)
    if recording.by_spark:
        last, by_spark = answers[-1], recording.by_spark[query.number]
        assert [sql_type(kind) for kind in last.schema.types] == [sql_type(kind) for kind in by_spark.schema.types]
        assert_same(last, by_spark)


@every(LIMITED)
def test_limited_answers_after_every_step(recording: Recording, query: Query) -> None:
    answers = recording.of(f"{query.view}_limited")
    for step, (answer, expected) in enumerate(zip(answers, recording.expected[query.number], strict=True)):
        check(query, step, answer, expected, LIMITED[query.number])


@every()
def test_changes_add_up_to_the_answer(recording: Recording, query: Query) -> None:
    answers = recording.of(query.view)
    total = Counter(rows_of(recording.before[query.view]))
    for step, (answer, changes) in enumerate(zip(answers, recording.changes[query.view], strict=True)):
        for *row, times in rows_of(changes.select([*answer.column_names, DIFF])):
            total[tuple(row)] += times
        there = Counter(rows_of(answer))
        surplus, missing = total - there, there - total
        assert not surplus | missing, f"step {step}: changes add {list(surplus)[:3]} and lack {list(missing)[:3]}"


@every()
def test_streams_are_no_empty_exercise(recording: Recording, query: Query, request: pytest.FixtureRequest) -> None:
    expected = recording.expected[query.number]
    some = [answer for answer in expected if any(value is not None for row in answer for value in row)]
    assert some, "no step gives an answer"
    if request.node.callspec.params["recording"] == "inserts":
        assert expected[-1] in some
        assert len(expected[-1]) > LIMITED.get(query.number, 0)
    if request.node.callspec.params["recording"] == "undone":
        assert expected[2] in some
        assert Counter(expected[0]) == Counter(expected[-1]) != Counter(expected[2])


def test_views_go_on_when_their_engine_is_opened_again(spark: SparkSession, tmp_path: Path) -> None:
    """What was planned over empty tables must stay as planned, though they have rows by now."""
    first, *others = inserts(sample(), steps=3)
    with hr.Engine(spark, tmp_path / "state", executor="inline", buckets=3) as engine:
        register(engine)
        for query in map(Query, QUERIES):
            engine.view(query.view, query.unlimited, strategy=strategy_of(query))
        engine.apply(first.changes)
    with hr.Engine(spark, tmp_path / "state", executor="inline") as engine:
        for step in others:
            engine.apply(step.changes)
        answers = {name: rows_of(view.to_arrow()) for name, view in engine.views.items() if isinstance(view, hr.View)}
    expected = answers_by_duckdb(others[-1].rows)
    wrong = [f"q{number}" for number in QUERIES if Counter(answers[f"q{number}"]) != Counter(expected[number])]
    assert not wrong


def test_every_foreign_key_dangles() -> None:
    steps = list(dangling(sample()))
    for name, spec in TPCH_SCHEMAS.items():
        for own, target in dict(spec.references).items():
            columns = [own] if isinstance(own, str) else list(own)
            key = list(TPCH_SCHEMAS[target].key)
            missing = [len(keys_of(step.rows[name], columns) - keys_of(step.rows[target], key)) for step in steps]
            assert sum(count > 0 for count in missing) >= 3, f"{name}.{own}"


def keys_of(table: pa.Table, columns: list[str]) -> set[Row]:
    return set(rows_of(table.select(columns)))


def test_no_view_is_kept_in_another_way(recording: Recording) -> None:
    """A view that fell back on recomputation would be right, and prove nothing."""
    joins = [f"q{number}" for number in QUERIES if number not in ONE_TABLE]
    for name in [*joins, *(f"q{number}_limited" for number in LIMITED)]:
        assert name in recording.refused or recording.strategies[name] == STRATEGY


def test_no_file_is_damaged(recording: Recording) -> None:
    assert recording.damage == []


@pytest.fixture(scope="module")
def catalog(spark: SparkSession) -> Iterator[SparkSession]:
    session = spark.newSession()
    for name, spec in TPCH_SCHEMAS.items():
        session.createDataFrame([], spec.ddl).createOrReplaceTempView(name)
    yield session
    for name in TPCH_SCHEMAS:
        session.catalog.dropTempView(name)


@pytest.mark.parametrize("number", range(1, 23))
def test_every_fixture_is_one_statement_of_spark(catalog: SparkSession, number: int) -> None:
    text = (FOLDER / f"q{number}.sql").read_text()
    assert ";" not in text
    assert catalog.sql(text).schema.names
