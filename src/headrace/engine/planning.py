"""From a definition to a maintained view: SQL is analysed, a strategy chosen, and the choice written down.

What was chosen depends on the sizes of the tables at that moment, so it becomes part of the definition: an engine that
opens the location again finds the very plan that its state was made by.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.engine.features import check_apart, choose_features, unknown
from headrace.engine.recompute import F_SQL, RECOMPUTED, Recomputed, RecomputedMoments, RecomputedQuery
from headrace.errors import HeadraceError, SchemaError, UnsupportedSQLError, VariableOrderError
from headrace.factorized.fsql import source_rows
from headrace.factorized.order_text import to_json
from headrace.factorized.planner import STRATEGIES, Options, Planned, moments_view, sums_view
from headrace.factorized.view import JoinView
from headrace.foreign.planner import FOREIGN, foreign_view
from headrace.operators.kernel import ViewKernel
from headrace.operators.layout import ViewLayout
from headrace.operators.view import AggregateView
from headrace.plan.join import JoinPlan, Source
from headrace.plan.view import Shape, ViewPlan
from headrace.relation.schema import TableSchema
from headrace.sql.catalyst import AnalysedView, analyse, analyse_join_rows, analyse_joined_rows
from headrace.sql.grouping import split_group_by
from headrace.sql.reads import check_readable, read_query, without_semicolon
from headrace.sql.session import SqlSession


@dataclass(frozen=True)
class Definition:
    """What a user asked for, and what was chosen for it; the commit log keeps both."""

    kind: str  # view | covariance | model
    sql: str
    asked: Mapping[str, Any] = field(default_factory=dict)
    chosen: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "sql": self.sql, "asked": dict(self.asked), "chosen": dict(self.chosen)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Definition:
        return cls(data.get("kind", "view"), data["sql"], data.get("asked", {}), data.get("chosen", {}))

    def same_request(self, other: Definition) -> bool:
        """Whether a user asks for the same thing again."""
        return (self.kind, self.sql, dict(self.asked)) == (other.kind, other.sql, dict(other.asked))


@dataclass(frozen=True)
class PlannedView:
    """A view that can be maintained: its definition with all choices made, its analysis and its kernel."""

    definition: Definition
    analysed: AnalysedView | None  # None where Spark runs a query as it stands
    kernel: ViewKernel
    layout: ViewLayout | None = None  # of a SQL view
    planned: Planned | None = None  # of a view over a join
    features: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables that the view reads."""
        if isinstance(self.kernel, Recomputed):
            return self.kernel.tables
        assert self.analysed is not None
        return self.analysed.plan.tables


class Planner:
    """Plans views for one engine."""

    def __init__(self, sql: SqlSession, seed: int, buckets: int) -> None:
        self.sql = sql
        self.seed = seed
        self.buckets = buckets

    def plan(
        self, name: str, definition: Definition, tables: Mapping[str, TableSchema], rows: Mapping[str, int]
    ) -> PlannedView:
        """Plan a view over tables with so many rows; choices that the definition has already are kept."""
        try:
            return self._plan(name, definition, tables, rows)
        except VariableOrderError as error:
            what = error.what[:1].lower() + error.what[1:]
            raise VariableOrderError(f"view {name!r}: {what}", way_out=error.way_out) from error

    def _plan(
        self, name: str, definition: Definition, tables: Mapping[str, TableSchema], rows: Mapping[str, int]
    ) -> PlannedView:
        if definition.asked.get("strategy") in RECOMPUTED:
            return self._recomputed_view(name, definition, tables, rows)
        if definition.kind == "view":
            return self._sql_view(name, definition, tables, rows)
        return self._moments_view(name, definition, tables, rows)

    def _sql_view(
        self, name: str, definition: Definition, tables: Mapping[str, TableSchema], rows: Mapping[str, int]
    ) -> PlannedView:
        if self._is_foreign(definition):
            return self._foreign_view(name, definition, tables, rows)
        try:
            analysed = analyse(self.sql, name, definition.sql)
        except UnsupportedSQLError as refusal:
            return self._foreign_instead(name, definition, tables, rows, refusal)
        check_sums(name, analysed.plan)
        layout = ViewLayout(analysed.plan, self.seed)
        if analysed.plan.join is None:
            self._check_single(name, definition)
            return PlannedView(definition, analysed, AggregateView(layout), layout)
        if analysed.plan.root_required:
            return self._membership_view(name, definition, tables, rows)
        if why := self._why_foreign(definition, analysed.plan, tables):
            try:
                return self._foreign_view(name, replace(definition, chosen={"why": why}), tables, rows)
            except UnsupportedSQLError:  # it does not fit, after all; sums of products do
                pass
        options = self._options(definition, analysed.plan.join, tables, rows)
        view, planned = sums_view(layout, options, self.buckets)
        return PlannedView(_with_choice(definition, planned), analysed, view, layout, planned)

    def _is_foreign(self, definition: Definition) -> bool:
        return FOREIGN in (definition.chosen.get("strategy"), definition.asked.get("strategy"))

    def _why_foreign(self, definition: Definition, plan: ViewPlan, tables: Mapping[str, TableSchema]) -> str:
        """Why live tuples would win over sums of products; empty if they would not, or were not to be chosen.

        Summing before a join pays where many rows become one sum. Rows as they are, and groups as fine as the rows of a
        table, leave nothing to sum, and then a tuple is cheaper to keep than the sums of its products.
        """
        undecided = definition.asked.get("strategy", "auto") == "auto" and not definition.chosen
        given = [what for what in ("order", "partition") if definition.asked.get(what) is not None]
        assert plan.join is not None
        without_key = [source.name for source in plan.join.sources if not tables[source.table].key]
        if not undecided or given or len(without_key) > 1:
            return ""
        if plan.shape is Shape.ROWS:
            return "it follows foreign keys, and the joined rows themselves are wanted"
        for source in plan.join.sources:
            key = tables[source.table].key
            grouped = {str(e.value) for name, e in source.variables if e.op == "column" and name in plan.join.keys}
            if key and grouped.issuperset(key):
                return f"it follows foreign keys, and its groups are as fine as the rows of {source.name}"
        return ""

    def _foreign_view(
        self, name: str, definition: Definition, tables: Mapping[str, TableSchema], rows: Mapping[str, int]
    ) -> PlannedView:
        for what in ("order", "partition"):
            if definition.asked.get(what) is not None:
                raise SchemaError(
                    f"view {name!r}: strategy={FOREIGN!r} has no {what}: tables are joined along their foreign keys",
                    way_out=f"leave {what} out, or use 'factorized'",
                )
        analysed = analyse_joined_rows(self.sql, name, definition.sql)
        check_sums(name, analysed.plan)
        layout = ViewLayout(analysed.plan, self.seed)
        assert analysed.plan.rows is not None
        sizes = definition.chosen.get("sizes") or _sizes(analysed.plan.rows.sources, tables, rows)
        kernel = foreign_view(name, layout, tables, sizes, self.buckets)
        root, required = kernel.chain.graph.root, analysed.catalyst.flat.root_required
        if required is not None and analysed.plan.rows.sources[required].name != root:
            raise UnsupportedSQLError(
                f"view {name!r}: {analysed.plan.root_required} cannot be maintained: it is a condition on the groups "
                f"only if a row of {analysed.plan.rows.sources[required].name} is joined once, but the root is {root}",
                way_out="make the subquery a view of its own, and combine the answers; or use strategy='recompute'",
            )
        why = definition.chosen.get("why") or "it was asked for"
        chosen = {**definition.chosen, "strategy": FOREIGN, "sizes": sizes, "why": why}
        return PlannedView(replace(definition, chosen=chosen), analysed, kernel, layout)

    def _membership_view(
        self, name: str, definition: Definition, tables: Mapping[str, TableSchema], rows: Mapping[str, int]
    ) -> PlannedView:
        """A view with `x IN (SELECT ... GROUP BY ...)`: it means a HAVING only where joins repeat no row."""
        asked = definition.asked.get("strategy", "auto")
        if asked != "auto":
            raise SchemaError(
                f"view {name!r}: IN (SELECT ... GROUP BY ...) is kept along foreign keys, not by strategy={asked!r}",
                way_out=f"leave the strategy out, or use {FOREIGN!r}",
            )
        why = "it follows foreign keys, and its IN (SELECT ... GROUP BY ...) is a condition on its groups then"
        return self._foreign_view(name, replace(definition, chosen={"why": why}), tables, rows)

    def _foreign_instead(
        self,
        name: str,
        definition: Definition,
        tables: Mapping[str, TableSchema],
        rows: Mapping[str, int],
        refusal: UnsupportedSQLError,
    ) -> PlannedView:
        """What sums of products cannot do, live tuples may: if the join follows foreign keys."""
        if definition.asked.get("strategy", "auto") != "auto":
            raise refusal
        why = f"it follows foreign keys, and sums of products cannot keep it: {refusal.what.partition(': ')[2]}"
        try:
            return self._foreign_view(name, replace(definition, chosen={"why": why}), tables, rows)
        except HeadraceError:
            raise refusal from None

    def _check_single(self, name: str, definition: Definition) -> None:
        asked = {key: value for key, value in definition.asked.items() if value not in (None, "auto")}
        if asked:
            raise SchemaError(
                f"view {name!r} reads one table, so {', '.join(f'{k}={v!r}' for k, v in asked.items())} has no meaning",
                way_out="leave it out: aggregates of one table are maintained as they are",
            )

    def _moments_view(
        self, name: str, definition: Definition, tables: Mapping[str, TableSchema], rows: Mapping[str, int]
    ) -> PlannedView:
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
        options = self._options(definition, join, tables, rows)
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

    def _recomputed_view(
        self, name: str, definition: Definition, tables: Mapping[str, TableSchema], rows: Mapping[str, int]
    ) -> PlannedView:
        strategy = str(definition.asked["strategy"])
        self._check_recomputed(name, definition, strategy)
        if definition.kind == "view":
            reads = read_query(self.sql, name, definition.sql)
            kernel: Recomputed = RecomputedQuery(definition.sql, reads.tables, reads.schema)
            view = PlannedView(replace(definition, chosen={"strategy": strategy}), None, kernel)
        else:
            view = self._recomputed_moments(name, definition, tables, rows, strategy)
        for table in view.tables:
            if not tables[table].kept:
                raise SchemaError(
                    f"view {name!r} cannot be recomputed: the rows of table {table!r} are not kept",
                    way_out=f"register {table!r} with keep_rows=True, or leave strategy={strategy!r} out",
                )
        return view

    def _check_recomputed(self, name: str, definition: Definition, strategy: str) -> None:
        if strategy == F_SQL and definition.kind == "view":
            raise SchemaError(
                f"view {name!r}: strategy={F_SQL!r} writes moments as SQL, and this view is SQL already",
                way_out="use strategy='recompute' to have Spark run it, or engine.covariance(...) for moments",
            )
        for what in ("partition",) if strategy == F_SQL else ("order", "partition"):
            if definition.asked.get(what) is not None:
                raise SchemaError(
                    f"view {name!r}: strategy={strategy!r} has no {what}, because Spark plans the query",
                    way_out=f"leave {what} out, or use 'factorized'",
                )

    def _recomputed_moments(
        self,
        name: str,
        definition: Definition,
        tables: Mapping[str, TableSchema],
        rows: Mapping[str, int],
        strategy: str,
    ) -> PlannedView:
        as_maintained = {"strategy": "factorized"}
        view = self._moments_view(
            name,
            replace(
                definition, asked={**definition.asked, **as_maintained}, chosen={**definition.chosen, **as_maintained}
            ),
            tables,
            rows,
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
        tables: Mapping[str, TableSchema],
        rows: Mapping[str, int],
    ) -> Options:
        asked, chosen = definition.asked, definition.chosen
        strategy = chosen.get("strategy") or asked.get("strategy", "auto")
        strategy = "factorized" if strategy == "auto" else strategy
        if strategy not in STRATEGIES:
            known = ", ".join(map(repr, (*STRATEGIES, FOREIGN, *RECOMPUTED)))
            raise SchemaError(f"strategy={strategy!r} is not known", way_out=f"use one of {known}")
        distinct = {}
        for source in join.sources:
            key = tables[source.table].key
            for variable, expression in source.variables:
                if len(key) == 1 and expression.op == "column" and expression.value == key[0]:
                    distinct[variable] = rows.get(source.table, 0)
        return Options(
            strategy=strategy,
            order=chosen.get("order") or asked.get("order"),
            partition=asked.get("partition"),
            stages=chosen.get("stages"),
            rows=_sizes(join.sources, tables, rows),
            distinct={variable: count for variable, count in distinct.items() if count},
            static=frozenset(s.name for s in join.sources if tables[s.table].static),
        )


def check_sums(name: str, plan: ViewPlan) -> None:
    """Refuse sums of what is no number (an interval)."""
    for aggregate in plan.aggregates:
        if aggregate.function in ("sum", "avg") and not aggregate.type.is_numeric:
            raise UnsupportedSQLError(f"view {name!r}: {aggregate.sql} is not numeric", way_out="sum numbers only")


def _sizes(sources: Iterable[Source], tables: Mapping[str, TableSchema], rows: Mapping[str, int]) -> dict[str, int]:
    """Rows of each source: those it has, or those that it is expected to have, whichever are more."""
    found = {s.name: max(rows.get(s.table, 0), tables[s.table].expected_rows or 0) for s in sources}
    return {name: size for name, size in found.items() if size}


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
