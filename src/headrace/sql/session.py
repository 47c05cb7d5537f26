"""A Spark session of Headrace's own, in which the SQL of views is read.

A view must mean the same after a restart, whatever its user has since set or registered in a session of their own. So
SQL is analysed in an isolated session, with settings that are written down beside the view. Only registered tables have
a mark there: they are empty, typed leaves that Catalyst can plan over but has nothing to compute from.

A view that other views read is such a leaf too, so that Catalyst plans nothing across it: what is kept of the view is
then found in the plans of its readers as it is. A second session (`inlined`) has the queries of views in their place,
for those who need one query over tables.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.sql import SparkSession

from headrace.errors import SchemaError
from headrace.relation.types import SqlType
from headrace.sql.distinct import DistinctCounts
from headrace.sql.jvm import Catalyst, Jvm
from headrace.sql.rings import SqlRings
from headrace.sql.windows import WindowKeys, mentions_window

Columns = Sequence[tuple[str, SqlType, bool]]

TABLE_MARK = "headrace.table"  # metadata of every column of a registered table; survives renaming and self-joins

_JSON_NAMES = {"tinyint": "byte", "smallint": "short", "int": "integer", "bigint": "long"}
_RULES = "org.apache.spark.sql.catalyst.optimizer."
_EXCLUDED = "spark.sql.optimizer.excludedRules"
_NEVER = (
    "DecimalAggregates",  # would hide SUM and AVG of small decimals behind longs and doubles
    "PropagateEmptyRelation",  # these four would fold WHERE false or LIMIT 0, and the table with it
    "ConvertToLocalRelation",
    "PruneFilters",
    "EliminateLimits",
    "InferFiltersFromConstraints",  # would add IS NOT NULL to conditions that imply it
    "LimitPushDown",  # would spread parts of a LIMIT over the plan
)
_MERGING = (
    "org.apache.spark.sql.execution.planmerging.MergeSubplans"  # would make one subquery, of a struct, of several
)
# Would move a subquery of the SELECT list between a LIMIT and the order that the LIMIT is about.
_PUSHED = ("PushProjectionThroughLimitAndOffset", "PushProjectionThroughLimit")
_REORDER = "ReorderJoin"  # sources keep the order, and so the names, that the query gives them
_OPTIMIZER = {
    _EXCLUDED: ",".join([_MERGING, *(_RULES + rule for rule in (*_NEVER, _REORDER))]),
    "spark.sql.optimizer.inSetConversionThreshold": "2147483647",  # an InSet hides its values from the plan's tree
}


@dataclass(frozen=True)
class KnownView:
    """A view that queries may read.

    Parameters
    ----------
    reads : the views that its own query reads.
    fingerprint : tells its query from others.
    hands_on : whether it can tell its readers what changes in the rows that it keeps, which are all of its answer.
    """

    sql: str
    reads: tuple[str, ...] = ()
    fingerprint: str = ""
    hands_on: bool = False


class SqlSession:
    """An isolated session that knows the registered tables by name and type, and no rows.

    Parameters
    ----------
    spark : the user's session; only its context is shared.
    settings : Spark SQL settings that decide what a query means (time zone, ANSI mode, case sensitivity).
    """

    def __init__(self, spark: SparkSession, settings: Mapping[str, str] | None = None) -> None:
        self.spark = spark.newSession()
        self.catalyst = Catalyst(self.spark)
        self.rings = SqlRings(self.spark)
        self.settings = dict(settings or {})
        self.views: dict[str, KnownView] = {}  # the views that other queries may read
        self.unreadable: dict[str, tuple[str, str]] = {}  # per view that none may read: why, and what to do instead
        self._tables: dict[str, Columns] = {}
        self._inlined: SqlSession | None = None
        for name, value in {**self.settings, **_OPTIMIZER}.items():
            self.spark.conf.set(name, value)

    @property
    def case_sensitive(self) -> bool:
        return self.spark.conf.get("spark.sql.caseSensitive") == "true"

    def register(self, name: str, columns: Columns) -> None:
        """Register a table, or replace the columns of a registered one."""
        if not columns:
            raise SchemaError(f"table {name!r} has no columns", way_out="give at least one column")
        self._tables[name] = columns
        self._leaf(name, columns)

    def register_view(self, name: str, view: KnownView, columns: Columns) -> None:
        """Register a view, so that queries may read it."""
        self.views[name] = view
        self._leaf(name, columns)

    def register_unreadable(self, name: str, why: str, way_out: str) -> None:
        """Note a view that no query may read, and why."""
        self.unreadable[name] = (why, way_out)

    def _leaf(self, name: str, columns: Columns) -> None:
        self._inlined = None
        fields = [
            {
                "name": column,
                "type": _JSON_NAMES.get(type.kind, str(type)),
                "nullable": nullable,
                "metadata": {TABLE_MARK: name},
            }
            for column, type, nullable in columns
        ]
        schema = self._jvm.org.apache.spark.sql.types.DataType.fromJson(
            json.dumps({"type": "struct", "fields": fields})
        )
        # An RDD, because the optimizer knows that a local relation is empty and plans the query away.
        nothing = self.spark.sparkContext._jsc.emptyRDD()
        self._session.createDataFrame(nothing, schema).createOrReplaceTempView(quote(name))

    def unregister(self, name: str) -> None:
        """Forget a table or a view; nothing happens when it is not known."""
        self._inlined = None
        for known in (self._tables, self.views, self.unreadable):
            known.pop(name, None)
        self.spark.catalog.dropTempView(name)

    @property
    def inlined(self) -> SqlSession:
        """A session like this one, in which a view that is read stands for its query."""
        if self._inlined is None:
            made = SqlSession(self.spark, self.settings)
            for name, columns in self._tables.items():
                made.register(name, columns)
            for name, sql in self.queries(self.views):
                made.rings.make_known(sql)
                made.spark.sql(sql).createOrReplaceTempView(quote(name))
            self._inlined = made
        return self._inlined

    def queries(self, views: Iterable[str]) -> tuple[tuple[str, str], ...]:
        """Some views and all that these read, with their queries; each after those that it reads."""
        found: dict[str, str] = {}

        def visit(name: str) -> None:
            if name not in found:
                for inner in self.views[name].reads:
                    visit(inner)
                found[name] = self.views[name].sql

        for name in views:
            visit(name)
        return tuple(found.items())

    def query(self, sql: str) -> Query:
        """Parse a query: it is analysed but never run, so a command would do nothing."""
        self.rings.make_known(sql)
        with self.catalyst.active():
            parsed = self._session.sessionState().sqlParser().parsePlan(sql)
            skip = self._jvm.org.apache.spark.sql.execution.CommandExecutionMode.SKIP()
            execution = self._session.sessionState().executePlan(parsed, skip)
            execution.assertAnalyzed()
            return Query(self, sql, execution)

    def prepared(self, sql: str, analysed: Jvm) -> Jvm:
        """The analysed plan of a query, rewritten so that the optimizer leaves DISTINCT and windows maintainable."""
        hidden = DistinctCounts(self.catalyst).hide(analysed)
        return WindowKeys(self.catalyst).split(hidden) if mentions_window(sql) else hidden

    @contextmanager
    def reordering(self) -> Iterator[None]:
        """Let the optimizer reorder joins, to avoid joining what no condition connects."""
        before = str(self.spark.conf.get(_EXCLUDED))
        self.spark.conf.set(_EXCLUDED, ",".join([_MERGING, *(_RULES + rule for rule in (*_NEVER, *_PUSHED))]))
        try:
            yield
        finally:
            self.spark.conf.set(_EXCLUDED, before)

    def is_command(self, plan: Jvm) -> bool:
        command = "org.apache.spark.sql.catalyst.plans.logical.Command"
        return bool(self._jvm.py4j.reflection.TypeUtil.isInstanceOf(command, plan))

    @property
    def _session(self) -> Jvm:
        return self.spark._jsparkSession

    @property
    def _jvm(self) -> Jvm:
        return self.catalyst.jvm


@dataclass(frozen=True)
class Query:
    """The analysed and the optimized plan of a query, under the names of Spark's own QueryExecution."""

    session: SqlSession
    sql: str
    execution: Jvm

    def analyzed(self) -> Jvm:
        return self.execution.analyzed()

    def optimizedPlan(self) -> Jvm:
        analysed = self.analyzed()
        prepared = self.session.prepared(self.sql, analysed)
        return self.execution.optimizedPlan() if prepared is analysed else self.session.catalyst.optimized(prepared)

    def reorderedPlan(self) -> Jvm:
        """The optimized plan for a tree of operators, which joins as the plan does: the optimizer may reorder joins."""
        with self.session.reordering():
            return self.session.catalyst.optimized(self.session.prepared(self.sql, self.analyzed()))


def quote(name: str) -> str:
    """A name as a quoted SQL identifier.

    >>> quote("my`table")
    '`my``table`'
    """
    return "`" + name.replace("`", "``") + "`"
