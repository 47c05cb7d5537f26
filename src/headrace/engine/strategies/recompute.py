"""Recomputation: Spark runs the query in every step that changes a table it reads.

It is chosen only where following the changes is estimated to cost far more. F/SQL, which writes moments as one SQL
query with its aggregates pushed past the joins, is there to be compared, and must be asked for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from headrace.engine.definition import PlannedView
from headrace.engine.recompute import RecomputedMoments, RecomputedQuery
from headrace.engine.strategies.factorized import Factorized
from headrace.engine.strategies.kept import Kept
from headrace.engine.strategies.query import Query
from headrace.engine.watermarks import FINAL
from headrace.errors import SchemaError
from headrace.factorized.fsql import source_rows
from headrace.factorized.join_view import JoinView
from headrace.sql.reads import check_readable, without_semicolon
from headrace.thrifty.cost import Cost, recompute_cost
from headrace.thrifty.statistics import Statistics
from headrace.thrifty.strategy import F_SQL, FACTORIZED, RECOMPUTE


@dataclass(frozen=True)
class Recompute(Kept):
    """The query as it stands, or moments over its rows."""

    name: str = RECOMPUTE

    kinds: ClassVar[tuple[str, ...]] = ("view", "covariance", "model")
    margin: ClassVar[float] = 4.0  # estimates tell thousands from millions, and not much more
    is_incremental: ClassVar[bool] = False
    spelled: ClassVar[str] = "refresh='full'"  # what users write to have it
    kept: ClassVar[tuple[str, ...]] = ("shifts",)  # of what a maintained view would choose
    unplanned: ClassVar[tuple[str, ...]] = ("order", "partition")  # what Spark does not let others plan

    def offers(self, query: Query) -> bool:
        asked = query.definition.asked
        return query.is_sql and asked.get("refresh") != "incremental" and not asked.get(FINAL)

    def planned(self, query: Query) -> PlannedView:
        for what in self.unplanned:
            if query.definition.asked.get(what) is not None:
                raise SchemaError(
                    f"view {query.name!r}: {self.spelled} has no {what}, because Spark plans the query",
                    way_out=f"leave {what} out, or use {FACTORIZED!r}",
                )
        view = self._query(query) if query.is_sql else self._moments(query)
        for table in view.tables:
            if not query.statistics.tables[table].kept:
                raise SchemaError(
                    f"view {query.name!r} cannot be recomputed: the rows of table {table!r} are not kept",
                    way_out=f"register {table!r} with keep_rows=True, or leave {self.spelled} out",
                )
        return view

    def _query(self, query: Query) -> PlannedView:
        kernel = RecomputedQuery(query.definition.sql, query.reads.tables, query.reads.schema)
        chosen = {what: why for what, why in query.definition.chosen.items() if what == "why"}
        return PlannedView(replace(query.definition, chosen={"strategy": self.name, **chosen}), None, kernel)

    def _moments(self, query: Query) -> PlannedView:
        view = Factorized().moments(query)
        assert isinstance(view.kernel, JoinView)
        assert view.analysed is not None
        join = view.kernel.join
        variable = {output.name: key for output, key in zip(view.analysed.plan.outputs, join.keys, strict=True)}
        kernel = RecomputedMoments(
            view.kernel,
            self.name,
            without_semicolon(query.body[0]),
            view.features,
            view.groups,
            tuple(variable[feature] for feature in view.features),
            tuple(variable[group] for group in view.groups),
        )
        chosen = {what: value for what, value in view.definition.chosen.items() if what in self.kept}
        made = replace(query.definition, chosen={**chosen, "strategy": self.name})
        return replace(view, definition=made, kernel=kernel, planned=None)

    def estimate(self, plan: PlannedView, statistics: Statistics) -> Cost:
        return recompute_cost(plan.tables, statistics)


@dataclass(frozen=True)
class FSql(Recompute):
    """Moments as one SQL query, written along a variable order."""

    name: str = F_SQL

    spelled: ClassVar[str] = f"strategy={F_SQL!r}"
    kept: ClassVar[tuple[str, ...]] = ("shifts", "order", "order_why")
    unplanned: ClassVar[tuple[str, ...]] = ("partition",)

    def offers(self, query: Query) -> bool:
        return False

    def _query(self, query: Query) -> PlannedView:
        raise SchemaError(
            f"view {query.name!r}: strategy={F_SQL!r} writes moments as SQL, and this view is SQL already",
            way_out="use refresh='full' to have Spark run it, or engine.covariance(...) for moments",
        )

    def _moments(self, query: Query) -> PlannedView:
        view = super()._moments(query)
        assert isinstance(view.kernel, RecomputedMoments)
        for source in view.kernel.view.join.sources:
            check_readable(query.session, query.name, source_rows(source, source.variable_names))
        return view
