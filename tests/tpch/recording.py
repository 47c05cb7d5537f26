"""One engine with the views of all queries goes through a stream; after every step each is held against Spark.

Everything is run once, and what was wrong is noted by view, so that each test can report its own query.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession
from tests.tpch.oracles import DuckOracle, SparkOracle
from tests.tpch.queries import QUERIES, Expected, Query, Row, rows_of

import headrace as hr
from headrace.datasets import TPCH_SCHEMAS, refresh_steps, rows_after, tpch_tables, undo_steps
from headrace.errors import HeadraceError
from headrace.relation.schema import DIFF

Notes = dict[str, list[str]]  # by view


@dataclass(frozen=True)
class Run:
    """A scale of TPC-H, and how its views are made.

    Parameters
    ----------
    share : how much of a table a change touches.
    strategies : each query has a view for each of them.
    by_spark : Spark gives the answers after every so many steps, the last among them; DuckDB after the others.
    late : tables are loaded before the views are made, which are filled from rows then, instead of by a step.

    At last the engine is opened again, and all steps are undone.
    """

    scale: float
    share: float
    strategies: tuple[str, ...]
    steps: int = 20
    by_spark: int = 1
    late: bool = False

    def views(self, query: Query) -> list[str]:
        return [f"{query.name}_{strategy}" for strategy in self.strategies]


@dataclass
class Recording:
    """What was wrong with the views of one engine, and how much Spark's answers have changed meanwhile."""

    run: Run
    refused: dict[str, HeadraceError] = field(default_factory=dict)
    kept_by: dict[str, str | None] = field(default_factory=dict)
    wrong_answers: Notes = field(default_factory=dict)
    wrong_changes: Notes = field(default_factory=dict)
    wrong_when_undone: Notes = field(default_factory=dict)
    answers_changed: Counter[str] = field(default_factory=Counter)
    damage: list[str] = field(default_factory=list)


def register(engine: hr.Engine) -> None:
    for name, spec in TPCH_SCHEMAS.items():
        engine.table(name, spec.ddl, key=spec.key, references=dict(spec.references))


def record(spark: SparkSession, folder: Path, run: Run) -> Recording:
    recording = Recording(run)
    rows = tpch_tables(run.scale)
    steps = list(refresh_steps(rows, run.steps, share=run.share, seed=2))
    with hr.Engine(spark, folder / "state", buckets=4) as engine:
        register(engine)
        if run.late:
            engine.apply(rows)
            make_views(engine, recording)
        else:
            make_views(engine, recording)
            engine.apply(rows)
        views = _Views(engine, recording)
        spark_oracle, duck_oracle = SparkOracle(spark, folder), DuckOracle()
        first = spark_oracle.answers(rows)
        views.compare("loaded", first, recording.wrong_answers)
        last = dict(first)
        for number, changes in enumerate(steps):
            engine.apply(changes)
            rows |= rows_after({name: rows[name] for name in changes}, [changes])
            oracle = duck_oracle if (number + 1) % run.by_spark else spark_oracle
            expected = oracle.answers(rows)
            changed = (name for name in expected if Counter(expected[name].rows) != Counter(last[name].rows))
            recording.answers_changed.update(changed)
            last |= expected
            views.compare(f"step {number}", expected, recording.wrong_answers)
            views.add_up(f"step {number}")
        recording.damage += engine.verify()
    with hr.Engine(spark, folder / "state") as engine:
        for changes in undo_steps(steps):
            engine.apply(changes)
        _Views(engine, recording).compare("undone", first, recording.wrong_when_undone)
        recording.damage += engine.verify()
    return recording


def make_views(engine: hr.Engine, recording: Recording) -> None:
    """Make the views of all queries; one that cannot be made fails its own tests only."""
    for query in QUERIES:
        for strategy, name in zip(recording.run.strategies, recording.run.views(query), strict=True):
            try:
                view = engine.view(name, query.sql, strategy=strategy)
            except HeadraceError as error:
                recording.refused[name] = error
            else:
                recording.kept_by[name] = view.planned.definition.strategy


class _Views:
    """The views of an engine, and what they said last."""

    def __init__(self, engine: hr.Engine, recording: Recording) -> None:
        self.recording = recording
        self.of = {
            view: (query, engine.views[view])
            for query in QUERIES
            for view in recording.run.views(query)
            if view not in recording.refused
        }
        self.rows: dict[str, Counter[Row]] = {}
        self.names: dict[str, list[str]] = {}
        self.before: dict[str, Counter[Row]] = {}

    def compare(self, when: str, expected: dict[str, Expected], notes: Notes) -> None:
        """Hold the answer of every view against the expected one, if there is one."""
        self.before, self.rows = self.rows, {}
        for name, (query, view) in self.of.items():
            assert isinstance(view, hr.View)
            with _noting(when, notes, name):
                answer = view.to_arrow()
                self.rows[name], self.names[name] = Counter(rows_of(answer)), answer.column_names
                if query.name in expected and (difference := query.difference(answer, expected[query.name])):
                    notes.setdefault(name, []).append(f"{when}: {difference}")

    def add_up(self, when: str) -> None:
        """Check that the last answer of every view is the one before and the changes of the step."""
        for name, (_, view) in self.of.items():
            assert isinstance(view, hr.View)
            if name not in self.before or name not in self.rows:
                continue
            with _noting(when, self.recording.wrong_changes, name):
                total = Counter(self.before[name])
                for *row, times in rows_of(view.changes().select([*self.names[name], DIFF])):
                    total[tuple(row)] += times
                surplus, missing = total - self.rows[name], self.rows[name] - total
                below = [row for row, times in total.items() if times < 0]
                if surplus or missing or below:
                    problem = (
                        f"{when}: changes add {list(surplus)[:2]} and lack {list(missing)[:2]}, below 0: {below[:2]}"
                    )
                    self.recording.wrong_changes.setdefault(name, []).append(problem)


@contextmanager
def _noting(when: str, notes: Notes, name: str) -> Iterator[None]:
    try:
        yield
    except HeadraceError as error:
        notes.setdefault(name, []).append(f"{when}: {error}")
