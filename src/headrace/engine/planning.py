"""From a definition to a maintained view: SQL is analysed, a strategy chosen, and the choice written down.

What was chosen depends on the sizes of the tables at that moment, so it becomes part of the definition: an engine that
opens the location again finds the very plan that its state was made by.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.engine.features import choose_features, unknown
from headrace.errors import SchemaError, UnsupportedSQLError
from headrace.factorized.order_text import to_json
from headrace.factorized.planner import STRATEGIES, Options, Planned, moments_view, sums_view
from headrace.operators.kernel import ViewKernel
from headrace.operators.layout import ViewLayout
from headrace.operators.view import AggregateView
from headrace.plan.join import JoinPlan
from headrace.relation.schema import TableSchema
from headrace.sql.catalyst import AnalysedView, analyse, analyse_join_rows
from headrace.sql.grouping import split_group_by
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
    analysed: AnalysedView
    kernel: ViewKernel
    layout: ViewLayout | None = None  # of a SQL view
    planned: Planned | None = None  # of a view over a join
    features: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


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
        if definition.kind == "view":
            return self._sql_view(name, definition, tables, rows)
        return self._moments_view(name, definition, tables, rows)

    def _sql_view(
        self, name: str, definition: Definition, tables: Mapping[str, TableSchema], rows: Mapping[str, int]
    ) -> PlannedView:
        analysed = analyse(self.sql, name, definition.sql)
        for aggregate in analysed.plan.aggregates:
            if aggregate.function in ("sum", "avg") and not aggregate.type.is_numeric:
                raise UnsupportedSQLError(f"view {name!r}: {aggregate.sql} is not numeric", way_out="sum numbers only")
        layout = ViewLayout(analysed.plan, self.seed)
        if analysed.plan.join is None:
            self._check_single(name, definition)
            return PlannedView(definition, analysed, AggregateView(layout), layout)
        options = self._options(definition, analysed.plan.join, tables, rows)
        view, planned = sums_view(layout, options, self.buckets)
        return PlannedView(_with_choice(definition, planned), analysed, view, layout, planned)

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
        variable = {output.name: key for output, key in zip(analysed.plan.outputs, join.keys, strict=True)}
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
            raise SchemaError(
                f"strategy={strategy!r} is not known", way_out=f"use one of {', '.join(map(repr, STRATEGIES))}"
            )
        distinct = {}
        for source in join.sources:
            key = tables[source.table].key
            for variable, expression in source.variables:
                if len(key) == 1 and expression.op == "column" and expression.value == key[0]:
                    distinct[variable] = rows.get(source.table, 0)
        return Options(
            strategy=strategy,
            order=chosen.get("order") or asked.get("order"),
            partition=chosen.get("partition") or asked.get("partition"),
            rows={s.name: rows[s.table] for s in join.sources if rows.get(s.table)},
            distinct={variable: count for variable, count in distinct.items() if count},
            static=frozenset(s.name for s in join.sources if tables[s.table].static),
        )


def _with_choice(definition: Definition, planned: Planned) -> Definition:
    chosen = {
        **definition.chosen,
        "strategy": planned.plan.strategy,
        "order": None if planned.order is None else to_json(planned.order),
        "order_why": definition.chosen.get("order_why") or planned.order_why,
        "partition": planned.plan.partition,
        "partition_why": definition.chosen.get("partition_why") or planned.plan.partition_why,
    }
    return replace(definition, chosen=chosen)
