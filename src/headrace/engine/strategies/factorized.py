"""View trees over rings: sums of products, of SQL aggregates or of moments, made before anything is joined.

The recursive and the first-order plan of the same views are there to be compared, and must be asked for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from headrace.engine.definition import Definition, PlannedView
from headrace.engine.features import check_apart, choose_features, unknown
from headrace.engine.strategies.kept import Kept
from headrace.engine.strategies.query import Query
from headrace.errors import SchemaError, UnsupportedSQLError
from headrace.factorized.join_view import JoinView
from headrace.factorized.order_text import to_json
from headrace.factorized.planner import Options, Planned, moments_view, sums_view
from headrace.operators.layout import ViewLayout
from headrace.plan.join import JoinPlan
from headrace.thrifty.cost import Cost
from headrace.thrifty.statistics import Statistics
from headrace.thrifty.strategy import FACTORIZED, FOREIGN_KEY, OPERATORS
from headrace.thrifty.view_tree_cost import view_tree_cost


@dataclass(frozen=True)
class Factorized(Kept):
    """One of the ways to plan a tree of views."""

    name: str = FACTORIZED

    kinds: ClassVar[tuple[str, ...]] = ("view", "covariance", "model")

    def offers(self, query: Query) -> bool:
        return self.name == FACTORIZED and super().offers(query) and not query.is_of_one_table

    def planned(self, query: Query) -> PlannedView:
        return self._sums(query) if query.is_sql else self.moments(query)

    def _sums(self, query: Query) -> PlannedView:
        analysed = query.summed
        if query.is_of_one_table:
            raise _has_no_join(query)
        query.check_sums(analysed.plan)
        assert analysed.plan.join is not None
        if analysed.plan.root_required:
            raise UnsupportedSQLError(
                f"view {query.name!r}: {analysed.plan.root_required} cannot be kept by sums of products: it means a "
                "HAVING only where joins repeat no row",
                way_out=f"leave the strategy out, or use {FOREIGN_KEY!r} or {OPERATORS!r}",
            )
        layout = ViewLayout(analysed.plan, query.seed)
        view, planned = sums_view(layout, self._options(query, analysed.plan.join), query.buckets)
        return PlannedView(_with_choice(query.definition, planned), analysed, view, layout, planned)

    def moments(self, query: Query) -> PlannedView:
        """Plan moments of features, for a covariance or a model."""
        name, asked = query.name, query.definition.asked
        _, groups = query.body
        analysed = query.features
        join = analysed.plan.join
        assert join is not None
        features, groups = choose_features(name, analysed, asked.get("features"), groups)
        label = asked.get("model", {}).get("label")
        if label is not None and label not in features:
            raise unknown(name, "label", label, features)
        if label is not None and len(features) == 1:
            raise SchemaError(
                f"model {name!r} has a label and no features", way_out="SELECT at least one more numeric column"
            )
        variable = {output.name: key for output, key in zip(analysed.plan.outputs, join.keys, strict=True)}
        check_apart(name, variable, features, groups)
        view, planned = moments_view(
            join,
            [variable[group] for group in groups],
            [variable[feature] for feature in features],
            self._options(query, join),
            query.buckets,
            query.seed,
            query.definition.chosen.get("shifts", {}),
        )
        made = _with_choice(query.definition, planned)
        return PlannedView(made, analysed, view, None, planned, features, groups)

    def estimate(self, plan: PlannedView, statistics: Statistics) -> Cost:
        assert isinstance(plan.kernel, JoinView)
        return view_tree_cost(plan.kernel.plan, plan.kernel.join, statistics)

    def _options(self, query: Query, join: JoinPlan) -> Options:
        asked, chosen, statistics = query.definition.asked, query.definition.chosen, query.statistics
        distinct = {}
        for source in join.sources:
            key = statistics.tables[source.table].key
            for variable, expression in source.variables:
                if len(key) == 1 and expression.op == "column" and expression.value == key[0]:
                    distinct[variable] = statistics.rows.get(source.table, 0)
        return Options(
            strategy=self.name,
            order=chosen.get("order") or asked.get("order"),
            partition=asked.get("partition"),
            stages=chosen.get("stages"),
            rows=statistics.sizes({source.name: source.table for source in join.sources}),
            distinct={variable: count for variable, count in distinct.items() if count},
            static=frozenset(s.name for s in join.sources if statistics.tables[s.table].static),
        )


def _with_choice(definition: Definition, planned: Planned) -> Definition:
    chosen = {
        **definition.chosen,
        "strategy": planned.plan.strategy,
        "order": None if planned.order is None else to_json(planned.order),
        "order_why": definition.chosen.get("order_why") or planned.order_why,
        "stages": {planned.plan.views[stage.root].name: stage.partition for stage in planned.plan.stages},
        "stages_why": definition.chosen.get("stages_why") or [stage.why for stage in planned.plan.stages],
    }
    return replace(definition, chosen=chosen)


def _has_no_join(query: Query) -> SchemaError:
    asked = {what: query.definition.asked.get(what) for what in ("strategy", "order", "partition")}
    said = ", ".join(f"{what}={value!r}" for what, value in asked.items() if value not in (None, "auto"))
    return SchemaError(
        f"view {query.name!r} reads one table, so {said} has no meaning",
        way_out="leave it out: aggregates of one table are maintained as they are",
    )
