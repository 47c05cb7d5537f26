"""Recomputation: Spark runs the query in every step that changes a table it reads.

It is chosen only where incremental maintenance is estimated to cost far more. F/SQL, which writes moments as one SQL
query with its aggregates pushed past the joins, exists for comparison, and is used only when asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.engine import recompute_report
from headrace.engine.definition import ASKED_FOR, FeatureMoments, PlannedView, SparkAnswer, SqlRequest
from headrace.engine.explain import Known
from headrace.engine.recompute import Recomputed, RecomputedMoments, RecomputedQuery
from headrace.engine.strategies.factorized import Factorized
from headrace.engine.strategies.kept import Kept
from headrace.errors import SchemaError
from headrace.explain.report import Report
from headrace.factorized.fsql import source_rows
from headrace.thrifty.cost import Cost, recompute_cost
from headrace.thrifty.statistics import Statistics
from headrace.thrifty.strategy import F_SQL, FACTORIZED, RECOMPUTE

if TYPE_CHECKING:
    from headrace.engine.strategies.query import Query


@dataclass(frozen=True)
class Recompute(Kept[Recomputed, Any]):
    """Spark runs the query unchanged, or computes moments over its rows."""

    name: str = RECOMPUTE

    kinds: ClassVar[tuple[str, ...]] = ("view", "covariance", "model")
    margin: ClassVar[float] = 4.0  # estimates are rough: they tell thousands from millions
    is_incremental: ClassVar[bool] = False
    spelled: ClassVar[str] = "refresh='full'"  # what users write to have it
    has_order: ClassVar[bool] = False  # whether the query is written along a variable order
    unplanned: ClassVar[tuple[str, ...]] = ("order", "partition")  # options that Spark's own planning rules out

    def offers(self, query: Query) -> bool:
        request = query.definition.request
        possible = isinstance(request, SqlRequest) and not request.wishes.never_full and not request.final
        # What a view refuses must not depend on costs, and Spark would not refuse what a semiring cannot take away.
        return possible and not query.rings

    def planned(self, query: Query) -> PlannedView[Recomputed, Any]:
        for what in self.unplanned:
            if what in query.definition.request.wishes.given():
                raise SchemaError(
                    f"view {query.name!r}: {self.spelled} has no {what}, because Spark plans the query",
                    way_out=f"leave {what} out, or use {FACTORIZED!r}",
                )
        view: PlannedView[Any, Any] = self._query(query) if query.is_sql else self._moments(query)
        for table in view.tables:
            if not query.statistics.tables[table].kept:
                raise SchemaError(
                    f"view {query.name!r} cannot be recomputed: the rows of table {table!r} are not kept",
                    way_out=f"register {table!r} with keep_rows=True, or leave {self.spelled} out",
                )
        return view

    def _query(self, query: Query) -> PlannedView[RecomputedQuery, SparkAnswer]:
        kernel = RecomputedQuery(
            query.definition.sql, query.reads.tables, query.reads.schema, query.session.queries(query.views)
        )
        why = query.definition.why or ASKED_FOR
        return PlannedView(query.definition.with_choice(self.name, why=why), kernel, kernel.tables, SparkAnswer(kernel))

    def _moments(self, query: Query) -> PlannedView[RecomputedMoments, FeatureMoments]:
        from headrace.sql.reads import without_semicolon

        view = Factorized().moments(query)
        if view.answer.categorical:
            raise SchemaError(
                f"view {query.name!r}: {self.spelled} computes sums of numbers only, and these features are "
                f"categorical: {', '.join(view.answer.categorical)}",
                way_out=f"name the numeric features, or leave {self.spelled} out",
            )
        answer, variable = view.answer, view.answer.variables
        kernel = RecomputedMoments(
            view.kernel,
            self.name,
            without_semicolon(query.body[0]),
            answer.features,
            answer.groups,
            tuple(variable[feature] for feature in answer.features),
            tuple(variable[group] for group in answer.groups),
            query.session.queries(query.views),
        )
        plan = view.definition.view_tree if self.has_order else None
        made = query.definition.with_choice(self.name, plan=plan, why=query.definition.why or ASKED_FOR)
        return PlannedView(made, kernel, view.tables, answer)

    def estimate(self, plan: PlannedView[Recomputed, Any], statistics: Statistics) -> Cost:
        return recompute_cost(plan.tables, statistics)

    def explain(self, plan: PlannedView[Recomputed, Any], known: Known) -> Report:
        return recompute_report.report(plan.kernel, known.subject, plan.definition.view_tree)


@dataclass(frozen=True)
class FSql(Recompute):
    """Spark computes moments by one SQL query, written along a variable order."""

    name: str = F_SQL

    spelled: ClassVar[str] = f"strategy={F_SQL!r}"
    has_order: ClassVar[bool] = True
    unplanned: ClassVar[tuple[str, ...]] = ("partition",)

    def offers(self, query: Query) -> bool:
        return False

    def _query(self, query: Query) -> PlannedView[RecomputedQuery, SparkAnswer]:
        raise SchemaError(
            f"view {query.name!r}: strategy={F_SQL!r} writes moments as SQL, and this view is SQL already",
            way_out="use refresh='full' to have Spark run it, or engine.covariance(...) for moments",
        )

    def _moments(self, query: Query) -> PlannedView[RecomputedMoments, FeatureMoments]:
        from headrace.sql.reads import check_readable

        view = super()._moments(query)
        for source in view.kernel.view.join.sources:
            check_readable(query.session, query.name, source_rows(source, source.variable_names))
        return view
