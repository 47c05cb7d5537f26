"""From a definition to a maintained view: a strategy is chosen, and the choice is written down.

The choice depends on the sizes of the tables at that moment, so it becomes part of the definition: an engine that opens
the location again finds the very plan that made its state.
"""

from __future__ import annotations

from dataclasses import replace

from headrace.engine.definition import (
    AUTO,
    Definition,
    ModelRequest,
    MomentsRequest,
    PlannedView,
    SqlRequest,
)
from headrace.engine.stacking import check_same
from headrace.engine.strategies import STRATEGIES, Kept
from headrace.engine.strategies.query import Query
from headrace.errors import HeadraceError, SchemaError, VariableOrderError
from headrace.explain.words import counted
from headrace.rings import registry
from headrace.sql.session import SqlSession
from headrace.thrifty.choose import Considered, choose, consider
from headrace.thrifty.statistics import Statistics
from headrace.thrifty.strategy import FACTORIZED, ONE_TABLE, OPERATORS, RECOMPUTE

_READING = (SqlRequest, MomentsRequest, ModelRequest)  # the requests that are made in SQL


class Planner:
    """Plans views for one engine."""

    def __init__(self, session: SqlSession, seed: int, buckets: int) -> None:
        self.session = session
        self.seed = seed
        self.buckets = buckets

    def plan(self, name: str, definition: Definition, statistics: Statistics) -> PlannedView:
        """Plan a view by what is known of its tables; choices that the definition already holds stay as they are."""
        registry.check_registered(name, definition.rings)
        query = self._query(name, definition, statistics)
        strategy = self._strategy(query)
        if strategy is None:
            return _with_names(self._cheapest(query), query)
        planned = strategy.plan(query)
        if isinstance(planned, VariableOrderError):
            what = planned.what[:1].lower() + planned.what[1:]
            raise VariableOrderError(f"view {name!r}: {what}", way_out=planned.way_out) from planned
        if isinstance(planned, HeadraceError):
            raise planned
        return _with_names(planned, query)

    def considered(self, name: str, definition: Definition, statistics: Statistics) -> Considered[Query, PlannedView]:
        """Plan a view by every strategy that can keep it, and estimate what their steps would cost."""
        return consider(STRATEGIES, self._query(name, definition, statistics), statistics)

    def _query(self, name: str, definition: Definition, statistics: Statistics) -> Query:
        return Query(name, definition, statistics, self.session, self.seed, self.buckets)

    def _strategy(self, query: Query) -> Kept | None:
        """The strategy that was chosen before or is asked for, or the only possible one; else None."""
        wishes = query.definition.request.wishes
        known = {strategy.name: strategy for strategy in STRATEGIES if query.definition.kind in strategy.kinds}
        if query.definition.choice is not None:
            return known[query.definition.strategy]
        wanted = wishes.strategy
        if wanted == AUTO:
            if wishes.given():  # a variable order or a partition, which only a factorized view has
                return known[FACTORIZED]
            if query.is_sql and query.views and not query.rings:
                return known[OPERATORS]  # which has what the views keep as a part of its tree
            offered = [strategy for strategy in known.values() if strategy.offers(query)]
            return offered[0] if len(offered) == 1 else None
        if wanted not in known or wanted == ONE_TABLE:
            names = ", ".join(repr(name) for name in known if name not in (ONE_TABLE, RECOMPUTE))
            raise SchemaError(f"strategy={wanted!r} is not known", way_out=f"use one of {names}")
        return known[wanted]

    def _cheapest(self, query: Query) -> PlannedView:
        """Plan a view by the strategy whose steps are estimated cheapest."""
        best, why = choose(consider(STRATEGIES, query, query.statistics), query, query.statistics)
        return replace(best.plan, definition=best.plan.definition.with_choice(best.strategy.name, why=why))


def _with_names(planned: PlannedView, query: Query) -> PlannedView:
    """The view with what it takes from elsewhere by name written down: rings of the user, and other views."""
    return _with_views(_with_rings(planned, query), query)


def _with_rings(planned: PlannedView, query: Query) -> PlannedView:
    """The view with the rings that it sums in written down; refuses other rings than those that made its state."""
    if not query.rings:
        return planned
    found = {name: ring.looks for name, ring in query.rings.items()}
    for name, looks in query.definition.rings.items():
        if found.get(name, looks) != looks:
            raise registry.other_ring(name, looks, found[name])
    definition = planned.definition
    return replace(planned, definition=definition.with_choice(definition.strategy, rings=found))


def _with_views(planned: PlannedView, query: Query) -> PlannedView:
    """The view with the views that it reads written down; refuses other queries than those that made its state."""
    if not isinstance(query.definition.request, _READING) or not query.views:
        return planned
    found = {name: query.session.views[name].fingerprint for name in query.views}
    if query.definition.choice is not None:
        check_same(query.name, query.definition.views, found)
    definition = planned.definition
    why = definition.why
    if query.definition.choice is None and definition.strategy == OPERATORS and not definition.request.wishes.given():
        why = f"it reads {counted(len(found), 'view')}, and what these keep stands for a part of its tree of operators"
    return replace(planned, definition=definition.with_choice(definition.strategy, views=found, why=why))
