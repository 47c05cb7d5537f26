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
    ResultAnswer,
    SqlAnswer,
    ViewTreeChoice,
)
from headrace.engine.explain import Known
from headrace.engine.features import Chosen, check_apart, choose_features, unknown
from headrace.engine.strategies.kept import Kept
from headrace.errors import SchemaError, UnsupportedSQLError
from headrace.explain.report import Report
from headrace.factorized import report
from headrace.factorized.bucket import part_name
from headrace.factorized.join_view import JoinView
from headrace.factorized.order_text import to_json
from headrace.factorized.planner import Options, Planned, moments_view, stop_proposal, sums_view
from headrace.factorized.result_report import with_result
from headrace.factorized.results import TOTAL, result_view
from headrace.learn.learner import CATEGORIES
from headrace.operators.layout import ViewLayout
from headrace.plan.dependencies import Dependency, dependencies_of
from headrace.plan.join import JoinPlan, Source
from headrace.plan.view import Shape
from headrace.relation.schema import TableSchema
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
        if query.definition.request.wishes.representation == FACTORIZED:
            return self._result(query)
        return self._sums(query) if query.is_sql else self.moments(query)

    def _result(self, query: Query) -> PlannedView[JoinView, ResultAnswer]:
        """Plan the rows of a query as a hierarchy of views."""
        if self.name != FACTORIZED:
            raise SchemaError(
                f"view {query.name!r}: strategy={self.name!r} keeps no factorized result",
                way_out="leave the strategy out, or the representation",
            )
        analysed = query.summed
        if query.is_of_one_table:
            raise _has_no_join(query)
        if analysed.plan.aggregates or analysed.plan.having is not None or analysed.plan.shape is Shape.TOTAL:
            raise UnsupportedSQLError(
                f"view {query.name!r} has aggregates or HAVING, and only the rows of a join are factorized",
                way_out="leave representation out: aggregates are kept by sums before joins as they are",
            )
        if analysed.plan.root_required:
            raise _needs_single_rows(query, analysed.plan.root_required)
        assert isinstance(analysed.plan.over, JoinPlan)
        if not analysed.plan.over.keys:
            raise UnsupportedSQLError(
                f"view {query.name!r} shows no column of the join", way_out="SELECT at least one column"
            )
        layout = ViewLayout(analysed.plan, query.seed)
        view, planned = result_view(layout, self._options(query, analysed.plan.over), query.buckets)
        answer = ResultAnswer(analysed, layout, view)
        return PlannedView(_with_choice(query.definition, planned), view, analysed.plan.tables, answer, planned)

    def _sums(self, query: Query) -> PlannedView[JoinView, SqlAnswer]:
        analysed = query.summed
        if query.is_of_one_table:
            raise _has_no_join(query)
        query.check_sums(analysed.plan)
        assert isinstance(analysed.plan.over, JoinPlan)
        if analysed.plan.root_required:
            raise _needs_single_rows(query, analysed.plan.root_required)
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
        chosen = choose_features(
            name, analysed, request.features, groups, request.categorical, texts=request.texts, takes=request.takes
        )
        _check_label(name, request.label, chosen, request.takes)
        answer = FeatureMoments(analysed, chosen.continuous, chosen.groups, chosen.categorical)
        variable = answer.variables
        check_apart(name, variable, chosen.features, chosen.groups)
        view, planned = moments_view(
            join,
            [variable[group] for group in chosen.groups],
            [variable[feature] for feature in chosen.continuous],
            self._options(query, join),
            query.buckets,
            query.seed,
            query.definition.shifts,
            [variable[feature] for feature in chosen.categorical],
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
        said = report.report(made, kernel.algebra, subject, proposal=proposal)
        if not isinstance(plan.answer, ResultAnswer):
            return said
        total = sum(int(run.payload[0].sum()) for run in known.reader.runs(subject.name, TOTAL))
        asked = plan.answer.layout.plan
        return with_result(said, made, groups, total, len(asked.outputs), distinct=asked.shape is Shape.GROUPS)

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
            indicators=chosen.indicators if chosen else True,
            dependencies=self._dependencies(query, join),
        )

    def _dependencies(self, query: Query, join: JoinPlan) -> tuple[Dependency, ...]:
        """What is known of the variables of a join. Sums use it only if a table declares more than its key."""
        tables = query.statistics.tables
        is_result = query.definition.request.wishes.representation == FACTORIZED
        if not is_result and not any(tables[source.table].fds for source in join.sources):
            return ()
        return tuple(d for s in join.sources for d in dependencies_of(s, _of_table(tables[s.table], s)))


def _of_table(schema: TableSchema, source: Source) -> list[Dependency]:
    """The dependencies between columns of a table, in the rows that take part: those of its key, and those declared.

    NULL on the left determines nothing, so a column there must be one that cannot be NULL, or that is joined on.
    """
    required = {str(e.value) for name, e in source.variables if e.op == "column" and name in source.required}
    there = required.union(column.name for column in schema.columns if not column.nullable)
    keyed = [Dependency(schema.key, tuple(schema.names))] if schema.key else []
    return keyed + [Dependency(of, determined) for of, determined in schema.fds if there.issuperset(of)]


def _with_choice(definition: Definition, planned: Planned) -> Definition:
    before = definition.view_tree  # the reasons stay those from when the choice was made
    plan = ViewTreeChoice(
        order=None if planned.order is None else to_json(planned.order),
        order_why=before.order_why if before else planned.order_why,
        stages={planned.plan.views[stage.root].name: stage.partition for stage in planned.plan.stages},
        stages_why=before.stages_why if before else tuple(stage.why for stage in planned.plan.stages),
        indicators=before.indicators if before else True,
    )
    return definition.with_choice(planned.plan.strategy, plan=plan)


def _check_label(view: str, label: str | None, chosen: Chosen, takes: str) -> None:
    if label is None:
        return
    if label not in chosen.features:
        raise unknown(view, "label", label, chosen.features)
    if label in chosen.categorical and takes != CATEGORIES:
        raise SchemaError(
            f"model {view!r}: the label {label!r} is categorical, and a regression predicts numbers",
            way_out="choose a numeric label, or SELECT a number for it, as in CASE WHEN ... THEN 1 ELSE 0 END",
        )
    if len(chosen.features) == 1:
        raise SchemaError(
            f"model {view!r} has a label and no features", way_out="SELECT at least one more numeric or text column"
        )


def _needs_single_rows(query: Query, membership: str) -> UnsupportedSQLError:
    return UnsupportedSQLError(
        f"view {query.name!r}: {membership} cannot be kept by sums of products: it means a HAVING only where joins "
        "repeat no row",
        way_out=f"leave the strategy out, or use {FOREIGN_KEY!r} or {OPERATORS!r}",
    )


def _has_no_join(query: Query) -> SchemaError:
    said = ", ".join(f"{what}={value!r}" for what, value in query.definition.request.wishes.given().items())
    return SchemaError(
        f"view {query.name!r} reads one table, so {said} has no meaning",
        way_out="leave it out: aggregates of one table are maintained as they are",
    )
