"""Views that Spark computes anew in every step that changes one of their tables.

They are the baseline of maintained views, and a way to keep queries that cannot be maintained yet. A recomputed view
has no map side, so the runtime has nothing to do for it. Its new answer is part of the same commit that changes its
tables, so it is never behind them.

The rows of a SQL view never come to the driver: tasks compare them with the old ones, bucket by bucket, and store them.
That goes for few rows too, because the exchange that they could be spared is a small part of such a step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.engine import frames
from headrace.factorized.answers import MOMENTS, MomentsAnswer
from headrace.factorized.fsql import over_rows, rewrite
from headrace.factorized.join_view import JoinView
from headrace.factorized.moments import MomentsAlgebra
from headrace.operators.kernel import Evaluated, Incoming, Lifted, MapSide, Reduced, State, ViewChange, ViewKernel
from headrace.relation.arrangement import scan
from headrace.relation.columns import whole
from headrace.relation.layout import TableLayout
from headrace.relation.residence import Residence
from headrace.relation.run import Run, consolidate
from headrace.relation.runset import AnyRun
from headrace.relation.schema import Column
from headrace.relation.types import SqlType
from headrace.rings import COUNT, Group
from headrace.rings.covariance import Covariance
from headrace.runtime.openruns import OPEN
from headrace.runtime.program import BucketResult, table_arrangement, view_arrangement
from headrace.runtime.record import Arrangements, BucketState
from headrace.runtime.replacing import NUMBER, Replacing, numbered_rows
from headrace.runtime.runwriter import RunWriter
from headrace.thrifty.strategy import F_SQL

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headrace.engine.store import Store
    from headrace.sql.query import Schema
    from headrace.sql.rings import SqlRings

ANSWER = "answer"
_LOST_WORKER = "Python worker exited unexpectedly"


# Moments have hundreds of columns; from 100 columns on Spark would interpret their sums, several times slower.
_COMPILED = {"spark.sql.codegen.maxFields": "10000"}


class Recomputed(ViewKernel, ABC):
    """A view without map sides and stages: no change reaches it, and its answer is computed from whole tables."""

    sides: tuple[MapSide, ...] = ()
    stages: tuple[tuple[str, ...], ...] = ()
    part: str  # its one arrangement
    views: tuple[tuple[str, str], ...] = ()  # those that the statement names, with their queries, each after its own

    @property
    @abstractmethod
    def arrangements(self) -> Mapping[str, Group]: ...

    @property
    @abstractmethod
    def reads(self) -> Mapping[str, Collection[str]]:
        """The tables that it reads, each with the columns that the answer depends on."""

    @property
    @abstractmethod
    def statement(self) -> str:
        """The query that Spark runs."""

    @property
    def tables(self) -> tuple[str, ...]:
        return tuple(self.reads)

    def refused(self, source: str, rows: Evaluated) -> dict[int, str]:
        return {}

    def lift(self, source: str, rows: Evaluated, buckets: int) -> Lifted:
        return {}

    def reduce(
        self, stage: int, bucket: int, state: State, incoming: Incoming, waiting: Collection[str] = ()
    ) -> Reduced:
        return Reduced()


@dataclass(frozen=True)
class RecomputedQuery(Recomputed):
    """A SQL view: the rows of its answer, numbered in the order of the query, each in the bucket of its hash."""

    sql: str
    columns_read: Mapping[str, tuple[str, ...]]
    schema: Schema
    views: tuple[tuple[str, str], ...] = ()

    part = ANSWER

    @property
    def starts_empty(self) -> bool:
        return False  # a query may have an answer over empty tables

    @property
    def arrangements(self) -> Mapping[str, Group]:
        return {ANSWER: COUNT}

    @property
    def reads(self) -> Mapping[str, Collection[str]]:
        return self.columns_read

    @property
    def statement(self) -> str:
        return self.sql

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """The columns of the answer as stored: named by position, because their names in the query may be anything."""
        return tuple(Column(f"o{i}", kind) for i, (_, kind, _) in enumerate(self.schema))

    def home(self, part: str, bucket: int) -> int:
        return bucket


@dataclass(frozen=True)
class RecomputedMoments(Recomputed):
    """Moments, stored as a maintained view stores them, with the features in the requested order.

    They are wholly in bucket 0, and come there by way of the driver: an answer is one row of sums, or one per group,
    however many rows it sums up.

    Parameters
    ----------
    view : the maintained view of the same moments; its answer, its tree (for F/SQL) and its shifts are used.
    names, group_names : the columns of the query that are features and groups; `features` and `groups` are their
        variables.
    """

    view: JoinView
    strategy: str
    body: str
    names: tuple[str, ...]
    group_names: tuple[str, ...]
    features: tuple[str, ...]
    groups: tuple[str, ...]
    views: tuple[tuple[str, str], ...] = ()

    part = MOMENTS

    @property
    def answer(self) -> MomentsAnswer:
        assert isinstance(self.view.answer, MomentsAnswer)
        return self.view.answer

    @property
    def arrangements(self) -> Mapping[str, Group]:
        return self.answer.arrangements

    @property
    def shifts(self) -> Mapping[str, float]:
        assert isinstance(self.view.algebra, MomentsAlgebra)
        return self.view.algebra.shifts

    @property
    def sources(self) -> Sequence[tuple[MapSide, tuple[str, ...]]]:
        """Per source: the expressions evaluated on its rows, and the variables that they give."""
        return self.view.sources

    def with_shifts(self, shifts: Mapping[str, float]) -> RecomputedMoments:
        """The same kernel, with a shift subtracted from each feature."""
        return replace(self, view=self.view.with_shifts(shifts))

    @cached_property
    def reads(self) -> Mapping[str, Collection[str]]:
        wanted = {name for relation in self.view.plan.views for name in relation.keys} | {*self.features}
        found: dict[str, set[str]] = {source.table: set() for source in self.view.join.sources}
        for source in self.view.join.sources:
            expressions = [expression for name, expression in source.variables if name in wanted]
            expressions += [] if source.condition is None else [source.condition]
            found[source.table].update(column for expression in expressions for column in expression.columns)
        return found

    @property
    def statement(self) -> str:
        if self.strategy == F_SQL:
            return rewrite(self.view.plan, self.view.join, self.features, self.groups, self.shifts)
        return over_rows(self.body, self.names, self.group_names, [self.shifts.get(f, 0.0) for f in self.features])

    def home(self, part: str, bucket: int) -> int:
        return 0

    def residences(self, buckets: int) -> Mapping[str, Residence]:
        return {self.part: Residence(buckets, None)}

    def run_of(self, answer: pa.Table) -> Run:
        """Make a run of the sums that the statement returned."""
        there = np.nan_to_num(_doubles(answer.column("c"))) != 0
        answer = answer.filter(pa.array(there))
        layout = self.answer.keys
        keys = [whole(answer.column(f"g{i}").cast(kind.arrow)) for i, kind in enumerate(layout.types)]
        words = layout.encode(keys) if keys else layout.encode_empty(answer.num_rows)
        numbers = [_doubles(column) for column in answer.columns[len(keys) :]]
        payload = np.ascontiguousarray(np.column_stack(numbers)) if answer.num_rows else np.zeros((0, len(numbers)))
        return consolidate(Covariance(self.answer.degree), words, (payload,), {f"k{i}": keys[i] for i in layout.stored})

    def change(self, before: AnyRun | None, after: Run) -> ViewChange:
        """Count the groups that changed."""
        was = _by_key(before)
        now = _by_key(after)
        both = [key for key in now if key in was]
        updated = sum(now[key] != was[key] for key in both)
        inserted, deleted = len(now) - len(both), len(was) - len(both)
        if not self.groups:
            return ViewChange(updated=min(1, inserted + deleted + updated))
        return ViewChange(inserted, deleted, updated)


def recomputed(views: Mapping[str, ViewKernel]) -> dict[str, Recomputed]:
    """The views that Spark recomputes, among the given ones."""
    return {name: view for name, view in views.items() if isinstance(view, Recomputed)}


class Recomputer:
    """Recomputes views by Spark, in a session whose only tables are those of the engine, as they are after a step."""

    def __init__(self, spark: SparkSession, settings: Mapping[str, str], store: Store) -> None:
        self._spark = spark
        self._settings = settings
        self._store = store

    @cached_property
    def _session(self) -> SparkSession:
        session = self._spark.newSession()
        partitions = "spark.sql.shuffle.partitions"
        settings = {partitions: str(self._spark.conf.get(partitions)), **_COMPILED, **self._settings}
        for name, value in settings.items():
            session.conf.set(name, value)
        return session

    @cached_property
    def _rings(self) -> SqlRings:
        from headrace.sql.rings import SqlRings  # here, so that whoever only looks at a location loads no Spark

        return SqlRings(self._session)

    def run(
        self, views: Mapping[str, Recomputed], tables: Mapping[str, TableLayout], changed: Arrangements
    ) -> BucketResult:
        """Recompute views in a step that is not committed yet; `changed` holds the new state of changed buckets."""
        result = BucketResult()
        before = self._store.snapshot.arrangements
        for name, view in views.items():
            reads = map(table_arrangement, view.tables)
            state = {table: before.get(table, {}) | changed.get(table, {}) for table in reads}
            result.add(self._over_tables(view, tables, state, partial(self._stored, name, view)))
        return result

    def laid_out(
        self, name: str, view: RecomputedQuery, states: Mapping[int, BucketState], buckets: int
    ) -> BucketResult:
        """The rows of a stored answer in another number of buckets, in their order."""
        from headrace.engine.step_runner import translating_spark_errors

        root, columns = self._store.location.path, view.columns
        stored = frames.bucket_frame(
            self._session,
            [*columns, Column(NUMBER, SqlType("bigint"))],
            self._store.settings.buckets,
            lambda bucket: [numbered_rows(columns, OPEN.of(root, states, bucket))],
        )
        rows = stored.orderBy(NUMBER).drop(NUMBER)
        return translating_spark_errors(lambda: self._replaced(name, view, rows, {}, buckets))

    def _over_tables(
        self,
        view: Recomputed,
        tables: Mapping[str, TableLayout],
        state: Arrangements,
        store: Callable[[DataFrame], BucketResult],
    ) -> BucketResult:
        """Have a view's statement answered over its tables, and the answer stored."""
        from pyspark.errors import PySparkException

        from headrace.engine.step_runner import translating_spark_errors
        from headrace.sql.session import quote

        root, buckets = self._store.location.path, self._store.settings.buckets

        def run() -> BucketResult:
            for table, columns in view.reads.items():
                frame = frames.rows_frame(self._session, root, tables[table], state, buckets, columns)
                frame.createOrReplaceTempView(table)
            for name, sql in view.views:
                self._session.sql(sql).createOrReplaceTempView(quote(name))
            answer = self._session.sql(view.statement)
            try:
                return store(answer)
            except PySparkException as error:
                if _LOST_WORKER not in str(error):
                    raise
                # An expression that fails ends the worker that reads rows for it, and of the two Spark names the last.
                answer.write.format("noop").mode("overwrite").save()
                raise

        for sql in (view.statement, *(sql for _, sql in view.views)):
            self._rings.make_known(sql)
        try:
            return translating_spark_errors(run)
        finally:
            for name in (*view.tables, *(name for name, _ in view.views)):
                self._session.catalog.dropTempView(name)

    def _stored(self, name: str, view: Recomputed, answer: DataFrame) -> BucketResult:
        if isinstance(view, RecomputedMoments):
            return self._moments(name, view, answer)
        assert isinstance(view, RecomputedQuery)
        return self._rows(name, view, answer)

    def _rows(self, name: str, view: RecomputedQuery, answer: DataFrame) -> BucketResult:
        states = self._store.snapshot.arrangements.get(view_arrangement(name, view.part), {})
        return self._replaced(name, view, answer, states, self._store.settings.buckets)

    def _replaced(
        self, name: str, view: RecomputedQuery, answer: DataFrame, states: Mapping[int, BucketState], buckets: int
    ) -> BucketResult:
        from headrace.runtime.replacing_job import replace_rows

        store = self._store
        replacing = Replacing(
            view=name,
            part=view.part,
            columns=view.columns,
            states=states,
            buckets=buckets,
            root=store.location.path,
            version=store.snapshot.version + 1,
            fsync=store.fsync,
        )
        return replace_rows(replacing, answer, self._spark.sparkContext.defaultParallelism)

    def _moments(self, name: str, view: RecomputedMoments, answer: DataFrame) -> BucketResult:
        store, arrangement = self._store, view_arrangement(name, view.part)
        after = view.run_of(answer.toArrow())
        old = OPEN.of(store.location.path, store.snapshot.arrangements.get(arrangement, {}), 0)
        summary = view.change(scan(view.arrangements[view.part], old), after)
        with RunWriter(store.location, store.snapshot.version + 1, fsync=store.fsync) as writer:
            runs = (writer.add(after),) if after.rows else ()
        return BucketResult({arrangement: {0: BucketState(runs, after.rows)}}, summaries={name: summary})


def _by_key(run: AnyRun | None) -> dict[bytes, bytes]:
    """The payload of each key, both as bytes."""
    if run is None:
        return {}
    pairs = zip(np.ascontiguousarray(run.words.T), run.payload[0], strict=True)
    return {key.tobytes(): payload.tobytes() for key, payload in pairs}


def _doubles(column: pa.ChunkedArray) -> NDArray[np.float64]:
    return np.asarray(whole(column).cast(pa.float64()).to_numpy(zero_copy_only=False), np.float64)
