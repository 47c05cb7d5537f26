"""View trees over rings: SQL aggregates and moments are sums of products, and each relation is summed before a join.

The recursive and the first-order plan of the same queries exist for comparison, and are used only when asked for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.engine.definition import (
    Definition,
    FeatureMoments,
    ModelRequest,
    MomentsRequest,
    PlannedView,
    SqlAnswer,
    ViewTreeChoice,
)
from headrace.engine.explain import Known
from headrace.engine.features import check_apart, choose_features, unknown
from headrace.engine.strategies.kept import Kept
from headrace.errors import SchemaError, UnsupportedSQLError
from headrace.explain.report import Report
from headrace.factorized import report
from headrace.factorized.bucket import part_name
from headrace.factorized.join_view import JoinView
from headrace.factorized.order_text import to_json
from headrace.factorized.planner import Options, Planned, moments_view, stop_proposal, sums_view
from headrace.operators.layout import ViewLayout
from headrace.plan.join import JoinPlan
from headrace.thrifty.cost import Cost
from headrace.thrifty.statistics import Statistics
from headrace.thrifty.strategy import FACTORIZED, FOREIGN_KEY, OPERATORS
from headrace.thrifty.view_tree_cost import view_tree_cost

if TYPE_CHECKING:
    from headrace.engine.strategies.query import Query


@dataclass(frozen=True)
class Factorized(Kept[JoinView, Any]):
    """One of the ways to plan a tree of views."""

    name: str = FACTORIZED

    kinds: ClassVar[tuple[str, ...]] = ("view", "covariance", "model")

    def offers(self, query: Query) -> bool:
        return self.name == FACTORIZED and super().offers(query) and not query.is_of_one_table

    def planned(self, query: Query) -> PlannedView[JoinView, Any]:
        return self._sums(query) if query.is_sql else self.moments(query)

    def _sums(self, query: Query) -> PlannedView[JoinView, SqlAnswer]:
        analysed = query.summed
        if query.is_of_one_table:
            raise _has_no_join(query)
        query.check_sums(analysed.plan)
        assert isinstance(analysed.plan.over, JoinPlan)
        if analysed.plan.root_required:
            raise UnsupportedSQLError(
                f"view {query.name!r}: {analysed.plan.root_required} cannot be kept by sums of products: it means a "
                "HAVING only where joins repeat no row",
                way_out=f"leave the strategy out, or use {FOREIGN_KEY!r} or {OPERATORS!r}",
            )
        layout = ViewLayout(analysed.plan, query.seed)
        view, planned = sums_view(layout, self._options(query, analysed.plan.over), query.buckets)
        answer = SqlAnswer(analysed, layout)
        return PlannedView(_with_choice(query.definition, planned), view, analysed.plan.tables, answer, planned)

    def moments(self, query: Query) -> PlannedView[JoinView, FeatureMoments]:
        """Plan moments of features, for a covariance or a model."""
        name, request = query.name, query.definition.request
        assert isinstance(request, MomentsRequest | ModelRequest)
        _, groups = query.body
        analysed = query.features
        join = analysed.plan.over
        assert isinstance(join, JoinPlan)
        features, groups = choose_features(name, analysed, request.features, groups)
        label = request.label
        if label is not None and label not in features:
            raise unknown(name, "label", label, features)
        if label is not None and len(features) == 1:
            raise SchemaError(
                f"model {name!r} has a label and no features", way_out="SELECT at least one more numeric column"
            )
        answer = FeatureMoments(analysed, features, groups)
        variable = answer.variables
        check_apart(name, variable, features, groups)
        view, planned = moments_view(
            join,
            [variable[group] for group in groups],
            [variable[feature] for feature in features],
            self._options(query, join),
            query.buckets,
            query.seed,
            query.definition.shifts,
        )
        return PlannedView(_with_choice(query.definition, planned), view, join.tables, answer, planned)

    def estimate(self, plan: PlannedView[JoinView, Any], statistics: Statistics) -> Cost:
        return view_tree_cost(plan.kernel.plan, plan.kernel.join, statistics)

    def explain(self, plan: PlannedView[JoinView, Any], known: Known) -> Report:
        kernel, chosen, subject = plan.kernel, plan.definition.view_tree, known.subject
        assert plan.factorization is not None
        assert chosen is not None
        views = plan.factorization.plan
        # The reasons stay those from when the plan was made; sizes have changed since.
        stages = tuple(replace(s, why=why) for s, why in zip(views.stages, chosen.stages_why, strict=True))
        made = replace(plan.factorization, order_why=chosen.order_why, plan=replace(views, stages=stages))
        groups = {i: known.reader.live(subject.name, part_name(i, 0)) for i in range(len(views.views))}
        rows = {source.name: known.reader.rows(source.table) for source in kernel.join.sources}
        proposal = stop_proposal(views, groups, rows) if isinstance(plan.answer, FeatureMoments) else ""
        return report.report(made, kernel.algebra, subject, proposal=proposal)

    def _options(self, query: Query, join: JoinPlan) -> Options:
        wishes, chosen, statistics = query.definition.request.wishes, query.definition.view_tree, query.statistics
        distinct = {}
        for source in join.sources:
            key = statistics.tables[source.table].key
            for variable, expression in source.variables:
                if len(key) == 1 and expression.op == "column" and expression.value == key[0]:
                    distinct[variable] = statistics.rows.get(source.table, 0)
        return Options(
            strategy=self.name,
            order=(chosen.order if chosen else None) or wishes.order,
            partition=wishes.partition,
            stages=chosen.stages if chosen else None,
            rows=statistics.sizes({source.name: source.table for source in join.sources}),
            distinct={variable: count for variable, count in distinct.items() if count},
            static=frozenset(s.name for s in join.sources if statistics.tables[s.table].static),
        )


def _with_choice(definition: Definition, planned: Planned) -> Definition:
    before = definition.view_tree  # the reasons stay those from when the choice was made
    plan = ViewTreeChoice(
        order=None if planned.order is None else to_json(planned.order),
        order_why=before.order_why if before else planned.order_why,
        stages={planned.plan.views[stage.root].name: stage.partition for stage in planned.plan.stages},
        stages_why=before.stages_why if before else tuple(stage.why for stage in planned.plan.stages),
    )
    return definition.with_choice(planned.plan.strategy, plan=plan)


def _has_no_join(query: Query) -> SchemaError:
    said = ", ".join(f"{what}={value!r}" for what, value in query.definition.request.wishes.given().items())
    return SchemaError(
        f"view {query.name!r} reads one table, so {said} has no meaning",
        way_out="leave it out: aggregates of one table are maintained as they are",
    )
