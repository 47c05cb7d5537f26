"""Runs case files: tables, changes of them, and for each query the rows that Spark answers after every step.

A case file is text, one theme a file, in `tests/logic/cases/*.test`. A line at the margin starts a section, the lines
indented by two spaces below it belong to it; blank lines separate, and `#` at the margin starts a comment.

    table l (id INT, k INT, name STRING NOT NULL) key id     `key` is optional: without it the table is a bag
      1, 10, 'Ann'                                           the rows it starts from: numbers, null, true, false,
      2, null, 'it''s'                                       2024-02-29, 2024-02-29 12:30:00, 'text'

    step Ann leaves                                          one step: rows that come (+, or +3x for three copies)
      - l: 1, 10, 'Ann'                                      and rows that leave (-), of any number of tables
      + r: 10, 5

    query by_name                                            a statement, whose answer is a bag of rows; with
      SELECT name, count(*) AS n FROM l GROUP BY name        `query by_name ordered` their order counts
    answer: name STRING, n BIGINT                            from here on it is written by `tests.logic.expect`:
      'Ann', 1                                               the rows after the load,
      'it''s', 1
    after 1:                                                 and what each step changes in them (the whole answer,
      - 'Ann', 1                                             if it is ordered); or `after 1: unchanged`

    refused ranks                                            a statement that no view can keep: the error has to
      SELECT rank() OVER (ORDER BY k) AS r FROM l            say what cannot be maintained, why, and the way out,
    says: a window function                                  and in particular this

    fails two_rows                                           a statement that fails on the rows of the load
      SELECT (SELECT id FROM l) AS x FROM l
    says: more than one row

All views of a file live in one engine, so that a file costs one pass over its steps. Every other query is there before
the load and sees it as a step; the others are filled from rows that are there. After every step each view is compared
with the file, and what `changes()` says with the difference of two answers.
"""

from __future__ import annotations

import os
import random
import traceback
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from tests.logic.case_file import CaseFile, Error, Query
from tests.logic.values import Row, in_order, row_text, same_rows
from tests.residences import misplaced

import headrace as hr
from headrace.errors import HeadraceError, UnsupportedSQLError
from headrace.relation.schema import DIFF
from headrace.testing.oracle import sql_name

STRATEGY = os.environ.get("HEADRACE_LOGIC_STRATEGY", "operators")  # another one for developing the suite itself


class Wrong(Exception):
    """A view that does not do what its case file says; the message says how."""


def run(
    spark: SparkSession,
    case: CaseFile,
    location: Path,
    *,
    strategy: str = STRATEGY,
    executor: str = "inline",
    restart: bool = False,
    paced: random.Random | None = None,
) -> dict[str, str]:
    """Run a case file, and say for each statement that went wrong what did.

    Parameters
    ----------
    restart : close the engine before the last step, and open its location again.
    paced : let views wait for triggers, which come after some of the steps, with paths flushed in between.
    """
    attempt = _Run(spark, case, location / "all", strategy, executor, restart, paced)
    try:
        return attempt.outcome()
    except _StepFailed as failed:
        if len(case.queries) == 1:
            return {case.queries[0].name: str(failed)}
    # A step is one for all views, so the view that broke it is found by giving each query an engine of its own.
    wrong = {name: text for name, text in attempt.wrong.items() if name in {error.name for error in case.errors}}
    for query in case.queries:
        alone = case.only(query.name)
        how = {"strategy": strategy, "executor": executor, "restart": restart, "paced": paced}
        wrong |= run(spark, alone, location / query.name, **how)
    return wrong


class _StepFailed(Exception):
    """A step that did not happen."""


class _Run:
    """One engine, its views, and what was wrong with each."""

    def __init__(
        self,
        spark: SparkSession,
        case: CaseFile,
        location: Path,
        strategy: str,
        executor: str,
        restart: bool,
        paced: random.Random | None,
    ) -> None:
        self.spark = spark
        self.case = case
        self.location = location
        self.strategy = strategy
        self.executor = executor
        self.restart = restart
        self.paced = paced
        self.queries = {query.name: query for query in case.queries}
        self.early = [query.name for query in case.queries[::2]]
        self.before: dict[str, list[Row]] = {}  # the last answer of each view
        self.wrong: dict[str, str] = {}

    def outcome(self) -> dict[str, str]:
        last = len(self.case.steps)
        with hr.Engine(self.spark, self.location, executor=self.executor, buckets=3) as engine:
            self._begin(engine)
            for step in range(1, last if self.restart else last + 1):
                self._step(engine, step)
            self.wrong |= {f"the bucket of {name}": "an entry is in a wrong bucket" for name in misplaced(engine)}
        if self.restart and last:
            with hr.Engine(self.spark, self.location, executor=self.executor) as engine:
                self._step(engine, last)
        return self.wrong

    def _begin(self, engine: hr.Engine) -> None:
        for table in self.case.tables:
            engine.table(table.name, table.schema, key=table.key or None)
        for name in self.early:
            self._create(engine, self.queries[name])
        self._apply(engine, 0)
        for query in self.case.queries[1::2]:
            self._create(engine, query)
        for error in self.case.errors:
            self._attempt(error.name, partial(self._check_error, engine, error))
        for name in list(self.before):
            is_early = name in self.early
            if self.paced is not None and is_early:
                self._attempt(name, partial(self._check_trigger, engine, name, 0))
            else:
                self._attempt(name, partial(self._check, engine, name, 0, changed=is_early))

    def _step(self, engine: hr.Engine, step: int) -> None:
        self._apply(engine, step)
        for name in [name for name in self.before if name not in self.wrong]:
            if self.paced is None:
                self._attempt(name, partial(self._check, engine, name, step))
            elif step == len(self.case.steps) or self.paced.random() < 0.4:
                self._attempt(name, partial(self._check_trigger, engine, name, step))
            else:
                self._attempt(name, partial(self._check_waiting, engine, name, step))

    def _apply(self, engine: hr.Engine, step: int) -> None:
        try:
            engine.apply(self.case.changes(step))
        except Exception as error:
            raise _StepFailed(f"{self._when(step)} failed: {_described(error)}") from error

    def _create(self, engine: hr.Engine, query: Query) -> None:
        def create() -> None:
            if len(query.answers) != len(self.case.steps) + 1:
                raise Wrong(f"not all answers are there: run python -m tests.logic.expect {self.case.name}")
            how = {"refresh": "full"} if self.strategy == "recompute" else {"strategy": self.strategy}
            if self.paced is not None:
                how |= {"goal": hr.FinalWork(0.5), "trigger": hr.OnRefresh()}
            view = engine.view(query.name, query.sql, **how)
            self._pace(engine, view)
            self.before[query.name] = _rows(view.to_arrow())

        self._attempt(query.name, create)

    def _attempt(self, name: str, action: Callable[[], None]) -> None:
        try:
            action()
        except Wrong as wrong:
            self.wrong.setdefault(name, str(wrong))
        except Exception as error:
            self.wrong.setdefault(name, _described(error))

    def _check(self, engine: hr.Engine, name: str, step: int, changed: bool = True) -> None:
        """The answer is the file's, and `changes()` is what happened to it."""
        view, query = engine.views[name], self.queries[name]
        assert isinstance(view, hr.View)
        assert query.columns is not None
        answer = view.to_arrow()
        kinds = ", ".join(f"{field.name} {sql_name(field.type).upper()}" for field in answer.schema)
        if kinds != str(query.columns):
            raise Wrong(f"{self._when(step)}: columns {kinds} instead of {query.columns}")
        expected, actual = list(query.answers[step]), _rows(answer)
        compared = (expected, actual) if query.ordered else (in_order(expected), in_order(actual))
        if not same_rows(*compared):
            raise Wrong(f"{self._when(step)}: {_difference(expected, actual, query.ordered)}\n{query.sql}")
        if changed:
            self._check_changes(view, self.before[name], actual, step)
        self.before[name] = actual

    def _pace(self, engine: hr.Engine, view: hr.View) -> None:
        """Let each path of a view be flushed some times, or only by the trigger."""
        if self.paced is not None and (paths := view.planned.kernel.holds):
            paces = {path: self.paced.choice([1, 1, 2, 3, 9]) for path in paths}
            engine._maintenance.goals.set_paces(view.name, paces, self.paced.randint(5, 40))

    def _check_trigger(self, engine: hr.Engine, name: str, step: int) -> None:
        view = engine.views[name]
        waits = view.progress.first is not None  # otherwise nothing is fired, and changes() stay those of before
        view.refresh()
        self._check(engine, name, step, changed=waits)
        if view.lag.total_seconds() or view.as_of != engine.step:
            raise Wrong(f"{self._when(step)}: a view that has just been refreshed is behind by {view.lag}")

    def _check_waiting(self, engine: hr.Engine, name: str, step: int) -> None:
        """Readers see what the last trigger has given them, and no mixture."""
        actual = _rows(engine.views[name].to_arrow())
        if not same_rows(in_order(self.before[name]), in_order(actual)):
            raise Wrong(f"{self._when(step)}: {_difference(self.before[name], actual, False)}\n(without a trigger)")

    def _check_changes(self, view: hr.View, before: list[Row], after: list[Row], step: int) -> None:
        sums = Counter(row_text(row) for row in before)
        for *row, times in _rows(view.changes()):
            sums[row_text(row)] += times
        sums.subtract(row_text(row) for row in after)
        if lines := [f"  {count:+d} {row}" for row, count in sums.items() if count]:
            text = "\n".join(lines)
            raise Wrong(
                f"{self._when(step)}: answer before + changes() - answer after is not empty:\n{text}\n{view.sql}"
            )

    def _check_error(self, engine: hr.Engine, expected: Error) -> None:
        try:
            engine.view(expected.name, expected.sql, strategy=self.strategy)
        except UnsupportedSQLError as error:
            if not expected.refused:
                raise
            what, _, why = error.what.partition(" cannot be maintained: ")
            if not (what.startswith(f"view {expected.name!r}: ") and why and error.way_out):
                raise Wrong(
                    f"the error does not say what cannot be maintained, why, and the way out: {error}"
                ) from error
            self._check_says(expected, error)
        except HeadraceError as error:
            if expected.refused:
                raise
            self._check_says(expected, error)
        else:
            engine.drop(expected.name)
            raise Wrong(f"no error, though it should say {' and '.join(map(repr, expected.says))}\n{expected.sql}")

    def _check_says(self, expected: Error, error: HeadraceError) -> None:
        missing = [text for text in expected.says if text.lower() not in str(error).lower()]
        if missing:
            raise Wrong(f"the error does not say {' and '.join(map(repr, missing))}: {error}")

    def _when(self, step: int) -> str:
        return f"step {step} ({self.case.steps[step - 1].title})" if step else "the load"


def _rows(table: pa.Table) -> list[Row]:
    names = table.column_names
    if DIFF in names:
        table = table.select([*(name for name in names if name != DIFF), DIFF])
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def _difference(expected: list[Row], actual: list[Row], ordered: bool) -> str:
    wanted, got = [row_text(row) for row in expected], [row_text(row) for row in actual]
    missing, extra = Counter(wanted) - Counter(got), Counter(got) - Counter(wanted)
    lines = [f"  missing    {text}" for text in missing.elements()] + [
        f"  unexpected {text}" for text in extra.elements()
    ]
    if ordered and not lines:
        lines = ["  expected   " + "; ".join(wanted), "  got        " + "; ".join(got)]
    return "\n".join(["wrong order" if ordered and not (missing or extra) else "wrong rows", *lines])


def _described(error: Exception) -> str:
    """An error that no one expected: what it says, and where in Headrace it came from."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "headrace" in f.filename]
    where = f"\n  at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    text = str(error) if isinstance(error, HeadraceError) else f"{type(error).__name__}: {str(error)[:1500]}"
    return f"{type(error).__name__}: {text}{where}" if isinstance(error, HeadraceError) else f"{text}{where}"
