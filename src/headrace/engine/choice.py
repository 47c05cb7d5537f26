"""Which strategy a view gets when its user leaves the choice to Headrace: the one whose steps are estimated cheapest.

Every strategy that can keep the view is planned and asked what a step would cost; those that cannot say why. The winner
is written down with its reason. EXPLAIN ANALYZE (`engine.analysis`) compares them again, for tables as they are then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.engine.definition import Definition, PlannedView
from headrace.engine.known_sizes import known_rows
from headrace.errors import HeadraceError
from headrace.factorized.join_view import JoinView
from headrace.factorized.work import view_tree_work
from headrace.foreign.planner import FOREIGN
from headrace.foreign.view import ForeignView
from headrace.foreign.work import chain_work
from headrace.operators.tree_view import TreeView
from headrace.operators.view import AggregateView
from headrace.operators.work import looked_up, tree_work
from headrace.plan.join import Source
from headrace.plan.work import Statistics, Work, time_text
from headrace.relation.schema import TableSchema

ONE_TABLE, FACTORIZED, RECOMPUTE = "one table", "factorized", "recompute"
NOTHING_KNOWN = "its tables are empty, so the shape of the query decides, and not their sizes"
_GROUP_MICROSECONDS = 1.0  # a row of one table is added to its group
MARGIN = 4  # estimates tell thousands from millions, and not much more
_SCAN_MICROSECONDS = 0.25  # Spark reads and aggregates a row
_JOB_SECONDS = 0.2  # and starts a query


@dataclass
class Choice:
    """The strategies of one view: what each is estimated to cost, or why it cannot keep the view."""

    tables: Mapping[str, TableSchema]
    rows: Mapping[str, int]
    rates: Mapping[str, float]
    planned: dict[str, PlannedView] = field(default_factory=dict)
    works: dict[str, Work] = field(default_factory=dict)
    refused: dict[str, HeadraceError] = field(default_factory=dict)

    def consider(self, strategy: str, plan: Callable[[], PlannedView]) -> None:
        """Plan a view by a strategy and estimate its steps, or note why it cannot keep the view."""
        try:
            self.planned[strategy] = plan()
        except HeadraceError as error:
            self.refused[strategy] = error
        else:
            self.works[strategy] = self._work(strategy, self.planned[strategy])

    def cheapest(self) -> str:
        """The strategy with the cheapest steps among those that can keep the view."""
        return min(self.planned, key=lambda strategy: self.works[strategy].seconds)

    def knows_sizes(self, tables: Iterable[str]) -> bool:
        """Whether the rows of some table are known, or expected."""
        return any(self._size(table) for table in tables)

    def is_full_cheaper(self, than: str) -> bool:
        """Whether running the query again is so much cheaper that even poor estimates leave no doubt."""
        return MARGIN * self.works[RECOMPUTE].seconds < self.works[than].seconds

    def recompute(self, tables: Iterable[str]) -> None:
        """Estimate what Spark would take to run the query at every step."""
        touched = {table: float(self._size(table)) for table in tables}
        self.works[RECOMPUTE] = Work(RECOMPUTE, touched, _SCAN_MICROSECONDS, _JOB_SECONDS)

    def made(self, strategy: str, why: str) -> PlannedView:
        """The chosen view, with the reason written down."""
        view = self.planned[strategy]
        return replace(view, definition=replace(view.definition, chosen={**view.definition.chosen, "why": why}))

    def to_json(self) -> list[dict[str, Any]]:
        """All strategies, the cheapest first, then those that cannot keep the view."""
        found: list[dict[str, Any]] = []
        for work in sorted(self.works.values(), key=lambda work: work.seconds):
            found.append({"strategy": work.strategy, "seconds": work.seconds, "rows": work.rows, "most": work.most()})
        return found + [
            {"strategy": strategy, "refused": error.what.partition(": ")[2] or error.what}
            for strategy, error in self.refused.items()
        ]

    def _work(self, strategy: str, view: PlannedView) -> Work:
        kernel = view.kernel
        keys = {name: table.key for name, table in self.tables.items()}
        if isinstance(kernel, TreeView):
            sources = {f.source: f.table for _, _, _, f in kernel.tree.feeds() if f.producer is None}
            found = looked_up(kernel.tree, keys)
            return tree_work(strategy, kernel.tree, self._statistics(sources, found), keys, self._values())
        if isinstance(kernel, AggregateView):
            statistics = self._statistics({"": kernel.layout.plan.table}, {"": False})
            return Work(strategy, {kernel.layout.plan.table: 2 * statistics.changed[""]}, _GROUP_MICROSECONDS)
        if isinstance(kernel, ForeignView):
            joined = kernel.rows.sources
            return chain_work(strategy, kernel.chain, self._of_sources(joined))
        assert isinstance(kernel, JoinView)
        assert view.planned is not None
        return view_tree_work(strategy, view.planned.plan, kernel.join, self._of_sources(kernel.join.sources))

    def _of_sources(self, sources: tuple[Source, ...]) -> Statistics:
        shared = {
            name for s in sources for name in s.variable_names if sum(name in o.variable_names for o in sources) > 1
        }
        found = {}
        for source in sources:
            joined = {str(e.value) for name, e in source.variables if name in shared and e.op == "column"}
            key = self.tables[source.table].key
            found[source.name] = bool(key) and joined.issuperset(key)
        return self._statistics({source.name: source.table for source in sources}, found)

    def _statistics(self, sources: Mapping[str, str], found: Mapping[str, bool]) -> Statistics:
        return Statistics.of(
            {source: self._size(table) for source, table in sources.items()},
            found,
            {source: self.tables[table].static for source, table in sources.items()},
            {source: self.rates[table] for source, table in sources.items() if table in self.rates},
        )

    def _values(self) -> dict[tuple[str, str], int]:
        """How many values the columns have that refer to tables of known sizes."""
        return {
            (name, column): self._size(target)
            for name, table in self.tables.items()
            for column, target in table.references
            if isinstance(column, str) and target in self.tables and self._size(target)
        }

    def _size(self, table: str) -> int:
        return known_rows(self.tables[table], self.rows)


def why_cheapest(choice: Choice, strategy: str) -> str:
    """Say why a strategy won, in a clause."""
    if len(choice.planned) == 1 and strategy in choice.planned:
        others = [name for name in (FACTORIZED, FOREIGN) if name in choice.refused]
        return f"no other strategy keeps it ({', '.join(others)} cannot)" if others else "no other strategy keeps it"
    rest = sorted((w for s, w in choice.works.items() if s != strategy), key=lambda work: work.seconds)
    against = rest[0]
    return (
        f"its steps are estimated cheapest: {time_text(choice.works[strategy].seconds)}, "
        f"against {time_text(against.seconds)} by {against.strategy}"
    )


def is_open(definition: Definition) -> bool:
    """Whether a choice is still to be made."""
    return definition.asked.get("strategy", "auto") == "auto" and not definition.chosen
