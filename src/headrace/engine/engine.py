"""The front door: an engine holds tables that change and views that follow them.

It turns calls into programs, runs them (`step_runner`), and commits their results (`store`). All state is in the
location; closing an engine, killing it, or opening the location elsewhere loses nothing that a step has committed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar, cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from headrace.engine import quarantine, stored_plans
from headrace.engine.access import Access, SparkSide
from headrace.engine.by_name import ByName, all_spelled, spelled
from headrace.engine.calibrating import Calibration
from headrace.engine.catalogue import Catalogue
from headrace.engine.definition import Definition, PlannedView
from headrace.engine.definitions import Definitions
from headrace.engine.expectations import announced_of, said_of
from headrace.engine.failed import state_of
from headrace.engine.goals import check_goal
from headrace.engine.handles import Table, View
from headrace.engine.inputs import columns_of
from headrace.engine.maintenance import Maintenance
from headrace.engine.matrix_chains import MatrixChain, SparseChain, chain_definition, chain_sql, matrix_columns
from headrace.engine.merging_views import MergingViews
from headrace.engine.model_handle import Model
from headrace.engine.models import Covariance
from headrace.engine.modes import PerTable, check_stream, modes_of
from headrace.engine.opening import (
    AUTO,
    BAD_ROWS,
    OFF,
    PROCESS,
    check_buckets,
    check_classic,
    check_options,
    location_at,
    one_of,
)
from headrace.engine.planning import Planner
from headrace.engine.products import inputs_of
from headrace.engine.rebucketing import Rebucketed, Rebucketer
from headrace.engine.recompute import Recomputer
from headrace.engine.requests import covariance_request, idle, model_request, refreshed, view_request
from headrace.engine.scheduler import Scheduler
from headrace.engine.sharing import Sharing, shared_to_json
from headrace.engine.sharing_report import engine_report
from headrace.engine.stacking import check_not_itself
from headrace.engine.status import status_of
from headrace.engine.step import Step
from headrace.engine.step_runner import StepRunner
from headrace.engine.store import Store
from headrace.engine.upkeep import Upkeep
from headrace.engine.window_joins import WindowJoinView, definition_of
from headrace.errors import BadRowsError, HeadraceError, StorageError
from headrace.explain.report import Report
from headrace.learn.learner import Learner
from headrace.relation.duration import Duration
from headrace.relation.schema import Dependencies, References, TableSchema, check_name
from headrace.rings import registry
from headrace.runtime.location import SQL_SETTINGS
from headrace.runtime.log import Snapshot
from headrace.sql.session import SqlSession
from headrace.thrifty.goal import Freshness, Goal, OnRefresh, Trigger, freshness_of
from headrace.thrifty.keep.sizes import bytes_of

_LOG = logging.getLogger("headrace")
V = TypeVar("V")
Handle = View | Covariance | Model | WindowJoinView | MatrixChain


class Engine:
    """Keeps answers over changing tables fresh.

    Parameters
    ----------
    spark : the session to run on; it is never stopped by the engine.
    location : a folder for all state, created if it does not exist. On a cluster, a folder that all nodes see, or a URL
        of an object store or of HDFS, such as "s3a://bucket/state".
    buckets : hash partitions of all state (default: twice the cores, at least 4); `rebucket` changes their number.
    executor : "auto" lets the size of a change decide; "inline" and "spark" force the place.
    driver_rows : "auto" runs a step with at most this many changed rows in the driver, by threads, without a Spark job
        (default: 1,000,000 on a cluster; 2,000,000 on a local master, where a job has the same cores); 0 for none.
    on_bad_rows : "fail" refuses a step with bad rows; "quarantine" applies the good rows and sets the bad ones aside.
    durability : what a step survives once `apply` has returned. "disk": a crash of the machine; every step waits for
        the disk. "process", the default: a crash of the process at once, and of the machine a moment later. A thread
        begins to sync whatever was committed at most a second after the commit, and steps wait for it once five have
        passed, so a power cut can cost the last moments, and never more.
    read_only : read views and status while another engine writes.
    calibrate : measure in the background, once, what work costs on this machine, which decides how later views are
        kept. The environment variable HEADRACE_CALIBRATE=0 switches it off too.
    sharing : what views have in common is kept once. "exact" shares joins that are the same but for the columns that
        views read; "auto" also those that differ in their filters, if that is estimated to be less work; "off" none.
    memory_budget : how much the arrangements of operators may take, as in "2 GB"; those that the next change is least
        likely to need are dropped, and made again when one needs them. None keeps everything.
    """

    def __init__(
        self,
        spark: SparkSession,
        location: str | Path,
        *,
        buckets: int | None = None,
        executor: str = "auto",
        on_bad_rows: str = "fail",
        driver_rows: int | None = None,
        durability: str = PROCESS,
        read_only: bool = False,
        calibrate: bool = True,
        sharing: str = AUTO,
        memory_budget: str | int | None = None,
    ) -> None:
        check_options(buckets, executor, on_bad_rows, driver_rows, sharing, memory_budget, durability)
        check_classic("the session", spark)
        self._spark = spark
        self._on_bad_rows = on_bad_rows
        self._lock = threading.RLock()
        self._owns_session = False
        there = location_at(location, partial(spark.conf.get, default=None))
        self._store = Store(there, durability=durability, read_only=read_only)
        sql = {name: str(spark.conf.get(name)) for name in SQL_SETTINGS}
        self._store.open(buckets, max(4, 2 * spark.sparkContext.defaultParallelism), sql)
        try:
            self._sql = SqlSession(spark, self._store.settings.sql)
            self._catalogue = Catalogue(self._store.settings.seed, self._store.follow)
            recomputer = Recomputer(spark, self._store.settings.sql, self._store)
            step_runner = StepRunner(self._sql.spark, executor, driver_rows)
            self._maintenance = Maintenance(self._catalogue, self._store, step_runner, recomputer)
            self._planner = Planner(self._sql, self._store.settings.seed, self.buckets)
            self._calibration = Calibration(self._store.location.root, spark)
            with_spark = SparkSide(spark, self._sql.spark, self._planner, self._calibration)
            self._access = Access(self._catalogue, self._store, with_spark, self)
            self._streams: Any = None
            self._definitions = Definitions(self._catalogue, self._store, self._sql, self._planner, self._access)
            self._failed = self._definitions.failed
            stale = self._definitions.open()
            self._maintenance.memory.budget = bytes_of(memory_budget)
            know = self._access.statistics
            self._sharing = Sharing(self._catalogue, self._store, self._maintenance, know, sharing)
        except BaseException:
            self._store.close()
            raise
        self._store.before_commit = self._definitions.marked
        self._store.followed = self._followed
        registry.watch(self._catalogue)  # the rings of its views keep their names while it is open
        self._upkeep = Upkeep(self._store, lambda name: self._catalogue.kind_of(name, self.buckets), self._lock)
        self._scheduler = Scheduler(self._next_due, self._lock, self._fire_due)
        self._rebucketer = Rebucketer(
            self._catalogue, self._store, self._planner, know, self._maintenance, step_runner, recomputer
        )
        self._merging = MergingViews(self._sharing, self._store, self._maintenance, self._lock, self._after_merging)
        if not read_only:
            for name, planned in stale.items():
                self._fill_again(name, planned)
            if sharing == OFF:
                self._sharing.update()
            self._maintenance.memory.rebalance()
            self._upkeep.start()
            self._scheduler.wake()
            self._merging.wake()
        if calibrate and not read_only:
            self._calibration.start()

    # -- what there is ------------------------------------------------------------------------------------------

    @property
    def spark(self) -> SparkSession:
        """The Spark session that the engine runs on."""
        return self._spark

    @property
    def on_bad_rows(self) -> str:
        """What happens to bad rows, unless a step says otherwise."""
        return self._on_bad_rows

    @property
    def location(self) -> Path | str:
        """The folder with all state, or its URL."""
        there = self._store.location
        return there.root if there.remote is None else there.shown

    @property
    def buckets(self) -> int:
        """Number of hash partitions of all state."""
        return self._store.settings.buckets

    @property
    def step(self) -> int:
        """Number of the last step."""
        self._store.follow()
        return self._store.snapshot.step

    @property
    def tables(self) -> dict[str, Table]:
        """All tables, by name in any case."""
        self._store.follow()
        return ByName(self._catalogue.table_handles)

    @property
    def views(self) -> dict[str, Handle]:
        """All views, by name in any case: of SQL, moments and models. One that could not be opened has a `problem`."""
        self._store.follow()
        # A failed view says so whatever it is asked, so it may stand wherever a view may.
        return ByName(self._catalogue.handles | cast("dict[str, Handle]", self._failed.handles))

    @property
    def memory_budget(self) -> int | None:
        """The bytes that the arrangements of operators may take; None if all of them are kept.

        Setting it, as in `engine.memory_budget = "2 GB"`, drops at once what does not fit.
        """
        return self._maintenance.memory.budget

    @memory_budget.setter
    def memory_budget(self, size: str | int | None) -> None:
        budget = bytes_of(size)
        with self._lock:
            self._maintenance.memory.budget = budget
            self._maintenance.memory.rebalance()

    # -- definitions --------------------------------------------------------------------------------------------

    def table(
        self,
        name: str,
        schema: str | StructType | pa.Schema,
        *,
        key: str | tuple[str, ...] | list[str] | None = None,
        references: References | None = None,
        static: bool = False,
        keep_rows: bool = True,
        append_only: bool = False,
        watermark: tuple[str, str | timedelta] | None = None,
        expected_rows: int | None = None,
        fds: Dependencies | None = None,
    ) -> Table:
        """Register a table that changes.

        Parameters
        ----------
        schema : Spark DDL ("id BIGINT, price DECIMAL(10, 2) NOT NULL"), a StructType or an Arrow schema.
        key : column or columns that identify a row; without a key the table is a bag.
        references : foreign keys, as {column: table}; a key of several columns as {(column, column): table}, in the
            order of that table's key.
        static : the table is loaded before views are made over it and never changes after that, which saves views
            over joins part of their state.
        keep_rows : False for a stream whose rows only go into the existing views: no row is stored, so views made later
            start empty, and deletions are not checked.
        append_only : rows are only inserted. A deletion is a bad row, and views may keep less.
        watermark : (column, delay), as in ("ts", "10 minutes"): the time of a row may be this much before the latest
            time in the column of earlier steps. Older rows are set aside (`late`), and windows of time can close.
        expected_rows : about how many rows the table will hold: a hint for planning views while the table is empty.
            Answers do not depend on it.
        fds : functional dependencies, as {column: [columns]}: rows with the same value on the left have the same values
            on the right. {"zip": ["city"]} says that a zip determines its city; several columns on the left are a
            tuple. A row that would break one is a bad row; NULL on the left determines nothing. A key determines its
            row without being named here. Queries may then be kept with less work (docs/factorized.md).

        Registering the same definition again returns the existing table, with its first hint.
        """
        with self._lock:
            columns = columns_of(name, schema)
            definition = TableSchema.of(
                name,
                columns,
                key,
                references,
                static=static,
                kept=keep_rows,
                expected_rows=expected_rows,
                watermark=watermark,
                append_only=append_only,
                fds=fds,
            )
            if not self._catalogue.same_table(definition):
                self._failed.check_free(name)
                self._store.commit(self._store.next_record(tables={name: definition.to_json()}))
                self._definitions.add_table(definition)
            return self._catalogue.table(name)

    def view(
        self,
        name: str,
        sql: str,
        *,
        strategy: str = "auto",
        refresh: str = "auto",
        order: str | Mapping[str, Any] | None = None,
        partition: str | None = None,
        representation: str = "listing",
        final: bool = False,
        goal: Goal | Freshness | None = None,
        trigger: Trigger | None = None,
        infeasible: str = "best",
        idle_after: str | timedelta | Duration | None = None,
        replace: bool = False,
    ) -> View:
        """Create a view and fill it from its tables; from then on it is kept fresh, by every step or as its goal says.

        Unsupported SQL is refused here. Creating the same view again returns the existing view. The query reads tables
        and views.

        Parameters
        ----------
        strategy : how the view is kept: "auto" chooses the one whose steps are estimated cheapest. "operators" keeps
            all supported SQL by incremental operators; "factorized" sums before it joins; "foreign-key" keeps live
            tuples, where the join follows declared keys to one root; "recursive" and "first-order" are for comparison.
        refresh : "full" has Spark run the query in every step that changes a table it reads; "incremental" never does
            so; "auto" does so where it is cheaper. Or, of when: "lazy" lets changes wait until the view is read (as
            `goal=hr.Manual()` does, with `refresh()` called by every read); "eager" has every step bring it up to date.
        order : a variable order for the join, as indented text, JSON or F-IVM's own form.
        partition : the variable by whose values the work is spread over buckets.
        representation : "factorized" keeps the rows of a SELECT without aggregates over a join as a hierarchy of views,
            from which they are listed when the view is read; "listing" keeps every row.
        final : windows of time that are over by the table's watermark leave the state, and their rows become final
            (`View.finals`). The view groups by a window of the watermark column, as in `GROUP BY window(ts, '1 hour')`.
        goal : how fresh the answer has to be: `hr.TargetLag("5 s")`, `hr.FinalWork(0.2)`, `hr.Manual()` or
            `hr.Budget("10 cpu seconds per minute")`. Without a goal, every step brings it up to date.
        trigger : when an answer is wanted: `hr.EveryRows(100_000)`, `hr.Every("1 minute")`, `hr.AtWindowEnd()` or
            `hr.OnRefresh()`. Without a trigger, as soon as the goal allows it.
        infeasible : a goal that no plan can reach is approached ("best") or refused ("fail").
        idle_after : after so long without rows in its tables, as in "10 minutes", the view keeps only the arrangements
            that the next change is expected to need. None keeps everything, if the memory budget allows it.
        replace : takes the place of a view of this name that has another definition. That one answers until the new
            one is filled; one commit exchanges them. It is refused if other views read it. Where only the goal or
            `idle_after` is another one, all state stays.
        """
        definition = view_request(
            name,
            sql,
            strategy=strategy,
            refresh=refresh,
            order=order,
            partition=partition,
            final=final,
            representation=representation,
        )
        definition = idle(definition, idle_after)
        freshness = refreshed(name, refresh, freshness_of(name, goal, trigger, infeasible))
        handle = self._create(name, definition, freshness, may_replace=replace)
        assert isinstance(handle, View)
        return handle

    def covariance(
        self,
        name: str,
        over: str,
        features: Sequence[str] | None = None,
        *,
        categorical: Sequence[str] = (),
        strategy: str = "auto",
        refresh: str = "auto",
        order: str | Mapping[str, Any] | None = None,
        partition: str | None = None,
        goal: Goal | None = None,
        trigger: Trigger | None = None,
        infeasible: str = "best",
    ) -> Covariance:
        """Keep the count, the sums and the sums of products of some columns of a query: what regression needs.

        Rows in which a feature is NULL are left out.

        Parameters
        ----------
        over : the rows, as a SELECT over one table or a join. `GROUP BY column, ...` at its end keeps one set of
            moments per group.
        features : columns of the query, all numbers and texts by default. Texts (and dates, if you name them) are
            categories: sums are kept by level, and counts by pair of levels, for `mixed_moments`.
        categorical : features that are categories although they are numbers, such as codes.
        strategy, refresh, order, partition, goal, trigger, infeasible : as for `view`.
        """
        definition = covariance_request(
            name, over, features, categorical, strategy=strategy, refresh=refresh, order=order, partition=partition
        )
        handle = self._create(name, definition, freshness_of(name, goal, trigger, infeasible))
        assert isinstance(handle, Covariance)
        return handle

    def model(
        self,
        name: str,
        model: Learner,
        over: str,
        *,
        categorical: Sequence[str] = (),
        strategy: str = "auto",
        refresh: str = "auto",
        order: str | Mapping[str, Any] | None = None,
        partition: str | None = None,
        goal: Goal | None = None,
        trigger: Trigger | None = None,
        infeasible: str = "best",
    ) -> Model:
        """Keep a model that follows the data: whenever it is read, it is the model of the data as of the last step.

        Parameters
        ----------
        model : what to fit, as in `hr.LinearRegression(label="price")`.
        over : the training rows, as for `covariance`; with GROUP BY there is one model per group.
        categorical : as for `covariance`.
        strategy, refresh, order, partition, goal, trigger, infeasible : as for `view`.
        """
        definition = model_request(
            name, model, over, categorical, strategy=strategy, refresh=refresh, order=order, partition=partition
        )
        handle = self._create(name, definition, freshness_of(name, goal, trigger, infeasible))
        assert isinstance(handle, Model)
        return handle

    def window_join(
        self,
        name: str,
        left: str,
        right: str,
        *,
        on: str | Sequence[str],
        time: str,
        arrival: str,
        window: object,
        slide: object = None,
        emit_after: object = None,
        horizon: object = None,
        within: object = None,
        agg: str = "count",
        estimator: str = "auto",
        interval: float = 0.95,
        revisions: str = "estimate",
        by_key: bool = False,
        only: tuple[str, str] | None = None,
    ) -> WindowJoinView:
        """Join two append-only tables by windows of time, and answer each window before all of its rows have come.

        Parameters
        ----------
        on : the columns whose values must be equal; they have the same names in both tables.
        time, arrival : the columns with the time of the event and the time of its arrival. The clock of the join is the
            arrival times, so rows of both tables that arrive together belong into one step.
        window, slide : the length of windows, and the distance between their starts (default: tumbling windows).
        emit_after : how long after its start a window is answered (default: at its end).
        horizon : how late rows may be (default: ten windows); later ones are in `late()`, and in no answer.
        within : for an interval join, how far apart the times of two rows may be; a pair belongs to the window of its
            left row. By default, all rows of a window meet.
        agg : "count", "sum(v)" or "avg(v)", of a column of the left table, or of the right one as in "sum(right.v)".
        estimator : "auto", "delay", "aema", "svi", "mlp" or "observed".
        interval : how often the answer should be between `low` and `high`.
        revisions : "estimate" answers each window once, when it is due; "final" answers it once, when it is complete;
            "all" answers it when due, and replaces the answer by every correction until the final one.
        by_key : whether to keep the result per key of each window as well, which `by_key()` reads.
        only : if one table has the rows of both sides, the BOOLEAN columns that mark rows of the left and of the right
            side.
        """
        asked = {"on": on, "time": time, "arrival": arrival, "window": window, "slide": slide, "horizon": horizon}
        asked |= {"emit_after": emit_after, "within": within, "agg": agg, "estimator": estimator}
        asked |= {"interval": interval, "revisions": revisions, "by_key": by_key, "only": only}
        handle = self._create(name, definition_of(left, right, asked))
        assert isinstance(handle, WindowJoinView)
        return handle

    def matrix_chain(
        self, name: str, matrices: Mapping[str, tuple[int, int]] | Sequence[str]
    ) -> MatrixChain | SparseChain:
        """Keep the product of a chain of matrices fresh, as views in the cheapest order.

        Parameters
        ----------
        matrices : for dense matrices {name: (rows, columns)}, in the order of the product: each becomes a table
            (i BIGINT, j BIGINT, value DOUBLE, term BIGINT), unless it is one, whose content is kept by the chain alone.
            It takes entries, and outer products: `engine.apply({"A2": hr.outer(u, v)})`. For sparse matrices the names
            of existing tables with columns i, j and value, which keep their rows: the product is then a view in SQL.
        """
        if not isinstance(matrices, Mapping):
            return SparseChain(self.view(name, chain_sql(name, matrices), strategy="factorized"))
        definition = chain_definition(name, matrices)
        for table in matrices:
            self.table(table, matrix_columns(), keep_rows=False)
        handle = self._create(name, definition)
        assert isinstance(handle, MatrixChain)
        return handle

    def _create(
        self, name: str, definition: Definition, freshness: Freshness | None = None, *, may_replace: bool = False
    ) -> Handle:
        definition = replace(definition, freshness=freshness)
        with self._merging.making(), self._lock:
            check_name(name, "view")
            name = spelled(name, self._catalogue.views)
            is_there = may_replace and (name in self._catalogue.views or name in self._failed)
            if is_there and self._keeps_state(name, definition):
                return self._catalogue.handles[name]
            if is_there:
                self._check_unread(name)
            else:
                self._failed.check_free(name)
                if self._catalogue.same_view(name, definition):
                    return self._catalogue.handles[name]
            planned = self._definitions.plan(name, definition)
            check_not_itself(name, planned)
            if freshness is not None:
                check_goal(name, planned, freshness, self._catalogue)
            return self._filled(name, planned, replacing=is_there)

    def _keeps_state(self, name: str, definition: Definition) -> bool:
        """Whether a view has this definition but for when it is brought up to date, which is then changed."""
        if name in self._failed or self._catalogue.views[name].definition.request != definition.request:
            return False
        now = self._catalogue.views[name].definition
        if now.freshness != definition.freshness:
            self.set_goal(name, definition.freshness)
        if now.idle_after != definition.idle_after:
            self.set_idle_after(name, definition.idle_after)
        return True

    def _spelled(self, name: str) -> str:
        """The name of a table or a view as it was given when that was made."""
        return spelled(name, (*self._catalogue.schemas, *self._catalogue.views, *self._failed.handles))

    def _by_table(self, changes: Mapping[str, V] | None) -> dict[str, V] | None:
        return None if changes is None else all_spelled(changes, self._catalogue.schemas)

    def _check_unread(self, name: str) -> None:
        """Refuse to take a view from others that read it."""
        self._failed.check_unused(name)
        if name not in self._failed:
            self._catalogue.check_unused(name)

    def _parts(self, name: str) -> tuple[str, ...]:
        """The arrangements of a table or a view, also of a view that could not be opened."""
        if name in self._failed:
            return state_of(name, self._store.snapshot)
        return self._catalogue.arrangements_of(name)

    def _filled(self, name: str, planned: PlannedView, *, replacing: bool = False) -> Handle:
        """Fill a view that has been planned, and commit it; it may take the place of the one that has its name."""
        states = self._maintenance.states
        planned, filled = states.fill_beside(name, planned) if replacing else states.fill(name, planned)
        freshness, goals = planned.definition.freshness, {}
        if freshness is not None:
            goals[name] = self._maintenance.goals.begun(planned, freshness).to_json()
        later = self._merging.postponed(name, planned)
        stored = {name: planned.definition.to_json()}
        record = self._store.next_record(views=stored, buckets=filled, goals=goals, unmerged=later)
        if replacing:
            self._store.commit(
                replace(
                    record,
                    removed=(name,),
                    dropped=self._parts(name),
                    shared=shared_to_json(self._catalogue.shared_without(name)),
                    changes={view: runs for view, runs in record.changes.items() if view != name},
                    unshown={view: runs for view, runs in record.unshown.items() if view != name},
                )
            )
            self._definitions.forget(name)
            self._maintenance.goals.pacing.forget(name)
            self._sharing.forget(name)
        else:
            self._store.commit(record)
        handle = self._definitions.add_view(name, planned)
        if later is None:
            self._then(lambda: self._merging.update(fresh=[name]))
        self._then(self._maintenance.memory.rebalance)
        self._merging.wake()
        self._scheduler.wake()
        return handle

    def drop(self, name: str) -> None:
        """Drop a view, or a table that no view and no reference needs."""
        with self._lock:
            name = self._spelled(name)
            self._check_unread(name)
            parts = self._parts(name)
            self._store.commit(
                self._store.next_record(
                    removed=(name,),
                    dropped=parts,
                    quarantine={name: []},
                    late={name: []},
                    shared=shared_to_json(self._catalogue.shared_without(name)),
                )
            )
            self._definitions.forget(name)
            stored_plans.remove(self._store, name)
            self._sharing.forget(name)
            self._then(lambda: self._merging.update(fresh=()))
            self._then(self._maintenance.memory.rebalance)

    # -- steps --------------------------------------------------------------------------------------------------

    def apply(
        self,
        changes: Mapping[str, Any],
        *,
        mode: PerTable = None,
        op_column: PerTable = None,
        order_by: PerTable = None,
        missing: PerTable = None,
        on_bad_rows: str | None = None,
        source: tuple[str, int] | None = None,
    ) -> Step:
        """Apply changes to one or more tables as one atomic step, and bring every view without a goal up to date.

        The changes of views with goals wait, or are part of the same step if a trigger is due.

        Parameters
        ----------
        changes : {table: Spark DataFrame, Arrow table, pandas DataFrame, list of dicts or dict of lists}, with an
            optional `__diff` column (+1 inserts, -1 deletes, any integer; default +1), unless a mode says otherwise.
            An update is a deletion and an insertion. A table that
            keeps no rows also takes products of parts (`hr.product`); a matrix of a chain takes outer products
            (`hr.outer`).
        mode : what the rows are, for all tables or as {table: mode}. "changes" (the default): what goes and what comes,
            by `__diff`. "upsert": new rows, each of which replaces the row with its key. "delete": rows to delete, of
            which only the key counts. "sync": the whole table; what differs is applied. See docs/changes.md.
        op_column : a column that says of each row whether it is inserted, updated or deleted: I, U, D, or these words.
        order_by : a column that orders several changes of one key; the last one counts. Without it they are bad rows.
        missing : "error" (the default) makes an update or a deletion of a row that is not there a bad row; "ignore"
            leaves it out.
        on_bad_rows : overrides the engine's setting for this step.
        source : (name, number) of a micro-batch; a micro-batch that was committed before is skipped.
        """
        start = time.perf_counter()
        if not isinstance(changes, Mapping):
            raise BadRowsError(
                f"apply was given a {type(changes).__name__}", way_out="pass {table: changes}, as in {'orders': frame}"
            )
        bad_rows = on_bad_rows or self._on_bad_rows
        one_of("on_bad_rows", bad_rows, BAD_ROWS)
        with self._lock:
            changes = all_spelled(changes, self._catalogue.schemas)
            self._catalogue.check_changeable(changes)
            if source is not None and self._maintenance.committed_before(source):
                snapshot = self._store.snapshot
                return Step(snapshot.step, {}, 0.0, snapshot.bytes(), {}, "driver", "committed before", skipped=True)
            schemas = {name: self._catalogue.table(name).schema for name in changes}
            inputs = inputs_of(schemas, changes, modes_of(schemas, mode, op_column, order_by, missing))
            self._upkeep.make_room()
            step = self._maintenance.step(inputs, bad_rows, source, start)
            self._unshare()
            self._merging.grown(sum(step.rows.values()))
            self._scheduler.wake()
            return step

    def refresh(self, *names: str) -> Step:
        """Bring views with goals up to date now, as a step without rows: the ones named, or all of them."""
        start, goals = time.perf_counter(), self._maintenance.goals
        with self._lock:
            waiting = goals.waiting
            names = tuple(spelled(name, self._catalogue.views) for name in names)
            for name in names:
                self._catalogue.view(name)
            step = self._maintenance.fire(names or waiting, start)
            self._unshare()
            self._scheduler.wake()
            goals.check_answered(name for name in names or waiting if name in waiting)
        return step

    def set_goal(self, name: str, freshness: Freshness | None) -> None:
        """Change how fresh a view has to be, or when; None lets it follow every step. As `View.goal = ...`."""
        with self._lock:
            self._catalogue.view(name)
            planned = self._catalogue.views[name]
            if freshness is not None:
                check_goal(name, planned, freshness, self._catalogue)
            if planned.definition.freshness is not None and freshness is None:
                self.refresh(name)  # from now on nothing may wait
                self._maintenance.settle(self._catalogue.shared_by(name), {})
            definition = replace(planned.definition, freshness=freshness)
            gives = freshness is not None and name in self._catalogue.answering
            if gives or not self._sharing.can_go_on(replace(planned, definition=definition)):
                # Before it waits, as its rows cannot wait where they are given.
                self._sharing.update(without=[name], fresh=())
            if freshness is not None:
                self._maintenance.memory.restore(name, *self._catalogue.shared_by(name))
            changed = replace(self._catalogue.views[name], definition=definition)
            progress = self._maintenance.goals.changed(name, changed, freshness).to_json()
            record = self._store.next_record(views={name: changed.definition.to_json()}, goals={name: progress})
            self._store.commit(record)
            self._catalogue.replan({name: changed})
            self._sharing.forget(name)
            self._merging.update(fresh=[name])
            self._maintenance.memory.rebalance()
            self._scheduler.wake()

    def set_idle_after(self, name: str, idle_after: Duration | None) -> None:
        """Change after how long without rows a view lets go of state; None for never. As `View.idle_after = ...`."""
        with self._lock:
            self._catalogue.view(name)
            planned = self._catalogue.views[name]
            changed = replace(planned, definition=replace(planned.definition, idle_after=idle_after))
            self._store.commit(self._store.next_record(views={name: changed.definition.to_json()}))
            self._catalogue.replan({name: changed})
            self._maintenance.memory.rebalance()
            self._scheduler.wake()

    def expect(self, changes: Mapping[str, int | tuple[int, int]] | None) -> None:
        """Say which changes come next, so that a memory budget keeps what they need.

        Parameters
        ----------
        changes : rows per table, or (inserted, deleted); other tables are expected to stay. It holds until something
            else is said. None leaves it to the engine, which expects what has come lately.
        """
        with self._lock:
            self._maintenance.memory.expect(said_of(self._by_table(changes), self._catalogue.schemas))

    def announce(self, source: str, changes: Mapping[str, int | tuple[int, int] | None] | None) -> None:
        """Say which changes a source will bring per step from now on, so that a memory budget keeps what they need.

        Streams and replayed files of updates do so themselves. A loop of your own does it before its first step, and
        again if its batches change. An announcement ends with the engine at the latest.

        Parameters
        ----------
        source : a name for it, as EXPLAIN shall show it.
        changes : rows per table, (inserted, deleted), or None for as many as usual. None in place of all of them says
            that the source has ended. What `expect` says takes precedence.
        """
        with self._lock:
            self._maintenance.memory.announce(source, announced_of(self._by_table(changes), self._catalogue.schemas))

    def quarantine(self, table: str) -> pa.Table:
        """Bad rows of a table that were set aside, with `__diff`, `__reason` and `__step`; fix and re-apply them."""
        self._store.follow()
        schema = self._catalogue.table(table).schema
        table = schema.name
        return self._store.read(lambda reader: quarantine.read(schema, reader.quarantine.get(table, [])))

    def discard_quarantine(self, table: str) -> None:
        """Forget the bad rows of a table, once they have been dealt with."""
        self._discard("quarantine", table)

    def late(self, table: str) -> pa.Table:
        """Late rows of a table, by its watermark, with `__diff`, `__reason` and `__step`; they changed nothing."""
        self._store.follow()
        schema = self._catalogue.table(table).schema
        table = schema.name
        return self._store.read(lambda reader: quarantine.read(schema, reader.late.get(table, [])))

    def discard_late(self, table: str) -> None:
        """Forget the late rows of a table, once they have been dealt with."""
        self._discard("late", table)

    # -- streams ------------------------------------------------------------------------------------------------

    def stream(
        self,
        table: str,
        frame: DataFrame,
        *,
        name: str | None = None,
        rows_per_batch: int | None = None,
        checkpoint: str | Path | None = None,
        mode: str | None = None,
        op_column: str | None = None,
        order_by: str | None = None,
        missing: str | None = None,
    ) -> None:
        """Feed a table from a streaming DataFrame: one step per micro-batch, each exactly once.

        Parameters
        ----------
        name : of the stream, by which its offsets are known; that of the table by default.
        rows_per_batch : about how many rows a micro-batch brings, by default as many as the last ones did. While it
            runs, the stream announces them (`announce`).
        checkpoint : a folder for Spark's offsets, or a URL that Spark can write to; one in the location by default.
        mode, op_column, order_by, missing : what the rows of each micro-batch are, as for `apply`.
        """
        schema = self._catalogue.table(table).schema
        how = check_stream(schema, frame, mode, op_column, order_by, missing)
        self._sources().add(schema.name, frame, name or table, rows_per_batch, checkpoint, how)

    def start(self) -> None:
        """Start all streams; steps happen in the background until `stop`."""
        self._sources().start()

    def stop(self) -> None:
        """Stop all streams after their current step; what went wrong beside them is raised here."""
        self._sources().stop()
        self._scheduler.raise_trouble()

    def process_available(self) -> None:
        """Process the data that all streams have now, then return.

        With that the data is complete: views with goals are brought up to date, but for those that wait for `refresh`.
        """
        self._sources().process_available()
        with self._lock:
            waiting = self._maintenance.goals.waiting
            complete = [name for name, fresh in waiting.items() if not isinstance(fresh.trigger, OnRefresh)]
            if any(self._maintenance.goals.progress(name).first is not None for name in complete):
                self._maintenance.fire(complete, time.perf_counter())

    # -- care ---------------------------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """Tables, views, sources and sizes, as plain values."""
        self._store.follow()
        found = self._store.read(lambda reader: status_of(self._catalogue, reader))
        trouble = {} if self._scheduler.trouble is None else {"scheduler": str(self._scheduler.trouble)}
        if self._store.lost is not None:
            trouble["lost"] = self._store.lost
        if failed := self._failed.reasons():
            found["failed"] = failed
        return found | self._merging.status() | self._upkeep.trouble() | trouble

    def explain(self) -> Report:
        """Report on all views together: which subplans they share, what that saves, and which share nothing and why.

        As the report on a view, it prints as text, and has `to_dict()` and `to_svg()`.
        """
        self._store.follow()
        return self._store.read(lambda reader: engine_report(self._catalogue, reader, self._sharing.mode))

    def compact(self) -> None:
        """Do all merges that steps owe, and those of views (`settle`), and wait for them.

        Steps need no such call: an engine merges beside them. It makes later reads a little faster, and the state as
        small as merges make it, for instance before the location is copied.
        """
        self.settle()
        with self._lock:
            self._upkeep.finish()

    def rebucket(self, buckets: int) -> Rebucketed:
        """Lay all state out for another number of buckets, so that as many tasks can share the work of a step.

        It waits for the step that is under way, and later steps wait for it; readers go on. All of it is one commit: a
        crash before that leaves the old buckets. Nothing is computed again, except for views over joins that keep sums
        which do not tell their bucket: those are filled again, unless the new number divides the old one.
        """
        check_buckets(buckets)
        with self._merging.resting(), self._lock:
            self._store.check_writes()
            self._failed.check_none("nothing tells in which buckets its state belongs")
            if behind := self._rebucketer.waiting(buckets):
                self.refresh(*behind)
            done = self._rebucketer.rebucket(buckets)
            self._then(self._maintenance.memory.rebalance)
            self._scheduler.wake()
            return done

    def settle(self) -> None:
        """Wait until all views share what they have in common with others.

        A new view over large tables answers as soon as it is filled, and is merged with others in the background. No
        answer depends on that, so nobody needs to wait. What went wrong in the background is raised here.
        """
        self._merging.settle()

    def sync(self) -> None:
        """Wait until all steps so far are safe from a power cut; with `durability="disk"` they always are."""
        self._store.sync()

    def verify(self) -> list[str]:
        """Read all state and check every checksum; returns one line per problem."""
        self._store.follow()
        with self._store.reader() as reader:
            return reader.damage()

    def close(self) -> None:
        """Stop streams and release the location; a session that `connect` started is stopped too."""
        try:
            if self._streams is not None:
                self._streams.stop()
            with self._lock:
                self._maintenance.memory.forget_sources()
        finally:
            self._scheduler.stop()
            self._merging.stop()
            self._calibration.stop()
            self._upkeep.stop()
            registry.unwatch(self._catalogue)
            try:
                self._store.close()
            finally:
                if self._owns_session:
                    self._spark.stop()

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- inside -------------------------------------------------------------------------------------------------

    def _followed(self, before: Snapshot, after: Snapshot) -> None:
        with self._lock:
            self._definitions.follow(before, after)

    def _fill_again(self, name: str, planned: PlannedView) -> None:
        try:
            self._filled(name, planned)
        except HeadraceError as error:
            self._failed.add(name, self._store.snapshot.views[name], error)

    def _discard(self, what: str, table: str) -> None:
        with self._lock:
            table = self._catalogue.table(table).name
            self._store.commit(self._store.next_record(**{what: {table: []}}))
            self._store.remove_orphans()

    def _unshare(self) -> None:
        """Take subplans apart that the last trigger has shown to be better apart; between steps, never in one."""
        apart = self._sharing.better_apart()
        if apart is None:
            return
        try:
            self._merging.update(fresh=(), apart=apart)
        except HeadraceError:
            return  # the step is committed, so it has not failed: the plan stays as it is until the next trigger
        self._then(self._maintenance.memory.rebalance)

    @staticmethod
    def _then(work: Callable[[], object]) -> None:
        """Do what follows something that has happened: if this fails, that has not, and a later change tries again."""
        try:
            work()
        except StorageError as error:
            _LOG.warning("the state was left as it is: %s", error)

    def _after_merging(self) -> None:
        self._maintenance.memory.rebalance()
        self._scheduler.wake()

    def _next_due(self) -> int | None:
        """When a trigger fires, or a view gets idle; None if neither will be by the clock alone."""
        times = (self._maintenance.goals.wakes_at(), self._maintenance.memory.idleness.wakes_at())
        return min((at for at in times if at is not None), default=None)

    def _fire_due(self) -> None:
        self._upkeep.make_room()
        if self._maintenance.goals.is_due():
            self._maintenance.fire((), time.perf_counter())
            self._unshare()
        if self._maintenance.memory.idleness.is_due():
            self._maintenance.memory.rebalance()

    def _sources(self) -> Any:
        if self._streams is None:
            from headrace.engine.streams import Streams

            self._streams = Streams(self.apply, self.sync, self.announce, self._lock, self._store.location)
        return self._streams
