"""From a definition to a maintained view: SQL is analysed, a strategy chosen, and the choice written down.

What was chosen depends on the sizes of the tables at that moment, so it becomes part of the definition: an engine that
opens the location again finds the very plan that its state was made by.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headrace.engine.choice import FACTORIZED, NOTHING_KNOWN, ONE_TABLE, RECOMPUTE, Choice, is_open, why_cheapest
from headrace.engine.definition import Definition, PlannedView
from headrace.engine.features import check_apart, choose_features, unknown
from headrace.engine.foreign_views import ForeignPlanner, check_sums
from headrace.engine.operator_views import OPERATORS, OperatorsPlanner
from headrace.engine.recompute import F_SQL, RECOMPUTED, Recomputed, RecomputedMoments, RecomputedQuery, spelled
from headrace.engine.watermarks import FINAL
from headrace.engine.window_joins import WINDOW_JOIN, plan_window_join
from headrace.errors import SchemaError, UnsupportedSQLError, VariableOrderError
from headrace.factorized.fsql import source_rows
from headrace.factorized.join_view import JoinView
from headrace.factorized.order_text import to_json
from headrace.factorized.planner import STRATEGIES, Options, Planned, moments_view, sums_view
from headrace.foreign.planner import FOREIGN
from headrace.operators.layout import ViewLayout
from headrace.operators.view import AggregateView
from headrace.plan.join import JoinPlan
from headrace.sql.catalyst import AnalysedView, analyse, analyse_join_rows
from headrace.sql.grouping import split_group_by
from headrace.sql.reads import check_readable, read_query, without_semicolon
from headrace.sql.session import SqlSession
from headrace.thrifty.statistics import Statistics


class Planner:
    """Plans views for one engine."""

    def __init__(self, sql: SqlSession, seed: int, buckets: int) -> None:
        self.sql = sql
        self.seed = seed
        self.buckets = buckets
        self.foreign = ForeignPlanner(sql, seed, buckets)
        self.operators = OperatorsPlanner(sql, seed, buckets)

    def plan(self, name: str, definition: Definition, statistics: Statistics) -> PlannedView:
        """Plan a view by what is known of its tables; choices that the definition has already are kept."""
        try:
            return self._plan(name, definition, statistics)
        except VariableOrderError as error:
            what = error.what[:1].lower() + error.what[1:]
            raise VariableOrderError(f"view {name!r}: {what}", way_out=error.way_out) from error

    def _plan(self, name: str, definition: Definition, statistics: Statistics) -> PlannedView:
        if definition.kind == WINDOW_JOIN:
            return plan_window_join(name, definition, statistics.tables, self.seed)
        if (definition.chosen.get("strategy") or definition.asked.get("strategy")) in RECOMPUTED:
            return self._recomputed_view(name, definition, statistics)
        if definition.kind == "view":
            return self._sql_view(name, definition, statistics)
        return self._moments_view(name, definition, statistics)

    def _sql_view(self, name: str, definition: Definition, statistics: Statistics) -> PlannedView:
        if definition.is_kept_by(OPERATORS):
            return self.operators.plan(name, definition, statistics)
        if definition.is_kept_by(FOREIGN):
            return self.foreign.plan(name, definition, statistics)
        if is_open(definition):
            return self._cheapest(name, definition, statistics)
        return self._summed_or_single(name, definition, statistics)

    def _summed_or_single(self, name: str, definition: Definition, statistics: Statistics) -> PlannedView:
        analysed = analyse(self.sql, name, definition.sql)
        if analysed.plan.join is None:
            self._check_single(name, definition)
            return self._aggregate_view(name, definition, analysed)
        return self._sums_view(name, definition, analysed, statistics)

    def considered(self, name: str, definition: Definition, statistics: Statistics) -> Choice:
        """Plan a view by every strategy that can keep it, and estimate what their steps would cost."""
        choice = Choice(statistics)
        analysed: AnalysedView | None = None
        try:
            analysed = analyse(self.sql, name, definition.sql)
        except UnsupportedSQLError as refusal:
            choice.refused[FACTORIZED] = refusal
        if analysed is not None and analysed.plan.join is None:
            choice.consider(ONE_TABLE, lambda: self._aggregate_view(name, definition, analysed))
        else:
            if analysed is not None:
                choice.consider(FACTORIZED, lambda: self._sums_view(name, definition, analysed, statistics))
            choice.consider(FOREIGN, lambda: self.foreign.plan(name, definition, statistics))
            choice.consider(OPERATORS, lambda: self.operators.plan(name, definition, statistics))
        if choice.planned:
            choice.recompute(next(iter(choice.planned.values())).tables)
        return choice

    def _cheapest(self, name: str, definition: Definition, statistics: Statistics) -> PlannedView:
        """Plan a view by the strategy whose steps are estimated cheapest."""
        if any(definition.asked.get(what) is not None for what in ("order", "partition")):  # of a factorized view
            return self._summed_or_single(name, definition, statistics)
        choice = self.considered(name, definition, statistics)
        if ONE_TABLE in choice.planned:
            self._check_single(name, definition)
            return choice.planned[ONE_TABLE]
        if not choice.planned:
            raise choice.refused[OPERATORS]
        read = next(iter(choice.planned.values())).tables
        of_keys = self.foreign.why(choice.planned.get(FACTORIZED), choice.refused.get(FACTORIZED), statistics.tables)
        if not choice.knows_sizes(read):  # then the shape of the query has to decide
            order = (FOREIGN, FACTORIZED, OPERATORS) if of_keys else (FACTORIZED, FOREIGN, OPERATORS)
            best = next(strategy for strategy in order if strategy in choice.planned)
            why = NOTHING_KNOWN
        else:
            best = choice.cheapest()
            why = why_cheapest(choice, best)
            if self._is_full_cheaper(choice, best, definition, read):
                view = self._recomputed_view(name, replace(definition, chosen={"strategy": RECOMPUTE}), statistics)
                chosen = {**view.definition.chosen, "why": why_cheapest(choice, RECOMPUTE)}
                return replace(view, definition=replace(definition, chosen=chosen))
        if best == FOREIGN and of_keys:
            why = of_keys
        elif len(choice.planned) == 1:
            why = why_cheapest(choice, best)
        return choice.made(best, why)

    def _is_full_cheaper(self, choice: Choice, best: str, definition: Definition, read: Sequence[str]) -> bool:
        """Whether Spark would be faster to run the query again than a view is to follow the changes."""
        asked = definition.asked
        if (
            asked.get("refresh") == "incremental"
            or asked.get(FINAL)
            or not all(choice.statistics.tables[table].kept for table in read)
        ):
            return False
        return choice.is_full_cheaper(best)

    def _aggregate_view(self, name: str, definition: Definition, analysed: AnalysedView) -> PlannedView:
        check_sums(name, analysed.plan)
        layout = ViewLayout(analysed.plan, self.seed)
        return PlannedView(definition, analysed, AggregateView(layout), layout)

    def _sums_view(
        self,
        name: str,
        definition: Definition,
        analysed: AnalysedView,
        statistics: Statistics,
    ) -> PlannedView:
        check_sums(name, analysed.plan)
        assert analysed.plan.join is not None
        if analysed.plan.root_required:
            raise UnsupportedSQLError(
                f"view {name!r}: {analysed.plan.root_required} cannot be kept by sums of products: it means a HAVING "
                "only where joins repeat no row",
                way_out=f"leave the strategy out, or use {FOREIGN!r} or {OPERATORS!r}",
            )
        layout = ViewLayout(analysed.plan, self.seed)
        options = self._options(definition, analysed.plan.join, statistics)
        view, planned = sums_view(layout, options, self.buckets)
        return PlannedView(_with_choice(definition, planned), analysed, view, layout, planned)

    def _check_single(self, name: str, definition: Definition) -> None:
        asked = {what: definition.asked.get(what) for what in ("strategy", "order", "partition")}
        asked = {what: value for what, value in asked.items() if value not in (None, "auto")}
        if asked:
            raise SchemaError(
                f"view {name!r} reads one table, so {', '.join(f'{k}={v!r}' for k, v in asked.items())} has no meaning",
                way_out="leave it out: aggregates of one table are maintained as they are",
            )

    def _moments_view(self, name: str, definition: Definition, statistics: Statistics) -> PlannedView:
        body, groups = split_group_by(definition.sql)
        analysed = analyse_join_rows(self.sql, name, body)
        join = analysed.plan.join
        assert join is not None
        features, groups = choose_features(name, analysed, definition.asked.get("features"), groups)
        label = definition.asked.get("model", {}).get("label")
        if label is not None and label not in features:
            raise unknown(name, "label", label, features)
        if label is not None and len(features) == 1:
            raise SchemaError(
                f"model {name!r} has a label and no features", way_out="SELECT at least one more numeric column"
            )
        variable = {output.name: key for output, key in zip(analysed.plan.outputs, join.keys, strict=True)}
        check_apart(name, variable, features, groups)
        options = self._options(definition, join, statistics)
        view, planned = moments_view(
            join,
            [variable[group] for group in groups],
            [variable[feature] for feature in features],
            options,
            self.buckets,
            self.seed,
            definition.chosen.get("shifts", {}),
        )
        made = _with_choice(definition, planned)
        return PlannedView(made, analysed, view, None, planned, features, groups)

    def _recomputed_view(self, name: str, definition: Definition, statistics: Statistics) -> PlannedView:
        strategy = str(definition.chosen.get("strategy") or definition.asked["strategy"])
        self._check_recomputed(name, definition, strategy)
        if definition.kind == "view":
            reads = read_query(self.sql, name, definition.sql)
            kernel: Recomputed = RecomputedQuery(definition.sql, reads.tables, reads.schema)
            view = PlannedView(replace(definition, chosen={"strategy": strategy}), None, kernel)
        else:
            view = self._recomputed_moments(name, definition, statistics, strategy)
        for table in view.tables:
            if not statistics.tables[table].kept:
                raise SchemaError(
                    f"view {name!r} cannot be recomputed: the rows of table {table!r} are not kept",
                    way_out=f"register {table!r} with keep_rows=True, or leave {spelled(strategy)} out",
                )
        return view

    def _check_recomputed(self, name: str, definition: Definition, strategy: str) -> None:
        if strategy == F_SQL and definition.kind == "view":
            raise SchemaError(
                f"view {name!r}: strategy={F_SQL!r} writes moments as SQL, and this view is SQL already",
                way_out="use refresh='full' to have Spark run it, or engine.covariance(...) for moments",
            )
        for what in ("partition",) if strategy == F_SQL else ("order", "partition"):
            if definition.asked.get(what) is not None:
                raise SchemaError(
                    f"view {name!r}: {spelled(strategy)} has no {what}, because Spark plans the query",
                    way_out=f"leave {what} out, or use 'factorized'",
                )

    def _recomputed_moments(
        self,
        name: str,
        definition: Definition,
        statistics: Statistics,
        strategy: str,
    ) -> PlannedView:
        as_maintained = {"strategy": "factorized"}
        view = self._moments_view(
            name,
            replace(
                definition, asked={**definition.asked, **as_maintained}, chosen={**definition.chosen, **as_maintained}
            ),
            statistics,
        )
        assert isinstance(view.kernel, JoinView)
        assert view.analysed is not None
        join = view.kernel.join
        variable = {output.name: key for output, key in zip(view.analysed.plan.outputs, join.keys, strict=True)}
        kernel = RecomputedMoments(
            view.kernel,
            strategy,
            without_semicolon(split_group_by(definition.sql)[0]),
            view.features,
            view.groups,
            tuple(variable[feature] for feature in view.features),
            tuple(variable[group] for group in view.groups),
        )
        kept = ("shifts", "order", "order_why") if strategy == F_SQL else ("shifts",)
        chosen = {what: value for what, value in view.definition.chosen.items() if what in kept}
        if strategy == F_SQL:
            for source in join.sources:
                check_readable(self.sql, name, source_rows(source, source.variable_names))
        made = replace(definition, chosen={**chosen, "strategy": strategy})
        return replace(view, definition=made, kernel=kernel, planned=None)

    def _options(
        self,
        definition: Definition,
        join: JoinPlan,
        statistics: Statistics,
    ) -> Options:
        asked, chosen = definition.asked, definition.chosen
        strategy = chosen.get("strategy") or asked.get("strategy", "auto")
        strategy = "factorized" if strategy == "auto" else strategy
        if strategy not in STRATEGIES:
            along_keys = (FOREIGN, OPERATORS) if definition.kind == "view" else ()
            known = ", ".join(map(repr, (*STRATEGIES, *along_keys, F_SQL)))
            raise SchemaError(f"strategy={strategy!r} is not known", way_out=f"use one of {known}")
        distinct = {}
        for source in join.sources:
            key = statistics.tables[source.table].key
            for variable, expression in source.variables:
                if len(key) == 1 and expression.op == "column" and expression.value == key[0]:
                    distinct[variable] = statistics.rows.get(source.table, 0)
        return Options(
            strategy=strategy,
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
