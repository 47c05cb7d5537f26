"""A query as strategies see it: its definition, the statistics of its tables, and its SQL, analysed once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.engine.definition import Definition, ModelRequest, MomentsRequest, SqlRequest
from headrace.errors import HeadraceError, SchemaError, UnsupportedSQLError
from headrace.plan.view import TableRows, ViewPlan
from headrace.rings.named import NamedRing
from headrace.sql.analyse_tree import AnalysedTree, tree_of
from headrace.sql.catalyst import AnalysedRows, AnalysedView, features, joined_rows, summed
from headrace.sql.derived import with_derived
from headrace.sql.grouping import split_group_by
from headrace.sql.query import SqlQuery, once
from headrace.sql.reads import Reads, read_query, views_read
from headrace.sql.session import SqlSession
from headrace.thrifty.statistics import Statistics


@dataclass(frozen=True)
class Query:
    """One view to be planned. Each form of its SQL is computed at first use; a refusal is remembered too."""

    name: str
    definition: Definition
    statistics: Statistics
    session: SqlSession
    seed: int
    buckets: int

    @property
    def is_sql(self) -> bool:
        """Whether the view is the answer of its SQL, rather than moments or a model over its rows."""
        return isinstance(self.definition.request, SqlRequest)

    @once
    def sql(self) -> SqlQuery:
        """The SQL; for moments without its GROUP BY, because with it the text is not valid SQL."""
        return SqlQuery(self.session, self.name, self.definition.sql if self.is_sql else self.body[0])

    @once
    def views(self) -> tuple[str, ...]:
        """The views that the query reads, without those that these read."""
        try:
            return views_read(self.sql)
        except HeadraceError:  # which is raised again by whoever plans it
            return ()

    @once
    def inlined(self) -> SqlQuery:
        """The SQL as one query over tables: the views that it reads stand for their queries."""
        return SqlQuery(self.session.inlined, self.name, self.sql.sql) if self.views else self.sql

    @once
    def body(self) -> tuple[str, tuple[str, ...]]:
        """The query of the rows whose moments are wanted, and the columns to group them by."""
        request = self.definition.request
        assert isinstance(request, MomentsRequest | ModelRequest)  # other requests are not for rows
        sql, groups = split_group_by(request.sql)
        return with_derived(sql, request.derived), groups

    @once
    def summed(self) -> AnalysedView:
        """The query as sums of products over its join, or over its one table."""
        return summed(self.inlined)

    @once
    def joined_rows(self) -> AnalysedRows:
        """The query over joined rows."""
        return joined_rows(self.inlined)

    @once
    def features(self) -> AnalysedView:
        """The rows of the query as a join, one variable per column."""
        return features(self.inlined)

    @once
    def tree(self) -> AnalysedTree:
        """The query as a tree of operators."""
        return tree_of(self.sql)

    @once
    def reads(self) -> Reads:
        """The tables and columns that the query reads, if Spark is to run it unchanged."""
        return read_query(self.inlined)

    @once
    def is_of_one_table(self) -> bool:
        """Whether the query is an aggregate, or a filter and a projection, of one table."""
        try:
            return self.is_sql and not self.views and isinstance(self.summed.plan.over, TableRows)
        except HeadraceError:
            return False

    @once
    def rings(self) -> Mapping[str, NamedRing]:
        """The rings of the user that the query sums in; only views over rings keep such a query."""
        try:
            return self.sql.rings if self.is_sql else {}
        except HeadraceError:  # which is raised again by whoever plans it
            return {}

    def refuse_factorizing(self, strategy: str, why: str) -> None:
        """Refuse options of factorized views where another strategy was asked for."""
        for what in self.definition.request.wishes.given():
            if what != "strategy":
                raise SchemaError(
                    f"view {self.name!r}: strategy={strategy!r} has no {what}: {why}",
                    way_out=f"leave {what} out, or use 'factorized'",
                )

    def check_sums(self, plan: ViewPlan) -> None:
        """Refuse sums of values that are not numbers (intervals)."""
        for aggregate in plan.aggregates:
            if aggregate.function in ("sum", "avg") and not aggregate.type.is_numeric:
                raise UnsupportedSQLError(
                    f"view {self.name!r}: {aggregate.sql} is not numeric", way_out="sum numbers only"
                )
