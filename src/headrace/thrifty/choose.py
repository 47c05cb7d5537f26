"""Which strategy a view gets when its user leaves the choice to Headrace: the one whose steps are estimated cheapest.

Every strategy that offers itself gives a plan and the estimated cost of a step, or the reason why it has no plan. The
chosen strategy is written down with the reason. EXPLAIN ANALYZE considers all of them again, with current tables.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Generic

from headrace.errors import HeadraceError
from headrace.thrifty.cost import Cost, time_text
from headrace.thrifty.statistics import Statistics
from headrace.thrifty.strategy import P, Q, Strategy

NOTHING_KNOWN = "its tables are empty, so the shape of the query decides, and not their sizes"


@dataclass(frozen=True)
class Option(Generic[Q, P]):
    """A strategy, its plan for a query, and the estimated cost of a step by that plan."""

    strategy: Strategy[Q, P]
    plan: P
    cost: Cost


@dataclass(frozen=True)
class Considered(Generic[Q, P]):
    """The options for one query, in the order of the strategies, and the reasons of strategies without a plan."""

    options: tuple[Option[Q, P], ...]
    refused: dict[str, HeadraceError]

    @property
    def incremental(self) -> tuple[Option[Q, P], ...]:
        """The options whose steps cost in proportion to the change, not to the data."""
        return tuple(option for option in self.options if option.strategy.is_incremental)

    def to_json(self) -> list[dict[str, Any]]:
        """All strategies, the cheapest first, then those that cannot keep the view."""
        found: list[dict[str, Any]] = [
            {
                "strategy": option.strategy.name,
                "seconds": option.cost.seconds,
                "rows": option.cost.rows,
                "most": option.cost.most(),
            }
            for option in sorted(self.options, key=lambda option: option.cost.seconds)
        ]
        return found + [
            {"strategy": strategy, "refused": error.what.partition(": ")[2] or error.what}
            for strategy, error in self.refused.items()
        ]


def consider(strategies: Iterable[Strategy[Q, P]], query: Q, statistics: Statistics) -> Considered[Q, P]:
    """Ask all strategies that offer themselves for a plan and its cost."""
    options: list[Option[Q, P]] = []
    refused: dict[str, HeadraceError] = {}
    for strategy in strategies:
        if strategy.offers(query) and (options or strategy.is_incremental):
            plan = strategy.plan(query)
            if isinstance(plan, HeadraceError):
                refused[strategy.name] = plan
            else:
                options.append(Option(strategy, plan, strategy.estimate(plan, statistics)))
    return Considered(tuple(options), refused)


def choose(considered: Considered[Q, P], query: Q, statistics: Statistics) -> tuple[Option[Q, P], str]:
    """The option with the cheapest steps, and the reason for the choice, in a clause.

    Raises
    ------
    HeadraceError : no incremental strategy can keep the query; this is the reason of the last one that was asked.
    """
    incremental = considered.incremental
    if not incremental:
        raise list(considered.refused.values())[-1]
    suits = {option.strategy.name: option.strategy.suits(query, considered.refused) for option in incremental}
    if statistics.knows(incremental[0].plan.tables):
        best = min(considered.options, key=lambda option: option.strategy.margin * option.cost.seconds)
        why = _why_cheapest(considered, best)
    else:
        best = min(incremental, key=lambda option: not suits[option.strategy.name])  # the first, if none suits it
        why = NOTHING_KNOWN
    if suits.get(best.strategy.name):
        why = suits[best.strategy.name]
    elif incremental == (best,):
        others = ", ".join(considered.refused)
        why = f"no other strategy keeps it ({others} cannot)" if others else "no other strategy keeps it"
    return best, why


def _why_cheapest(considered: Considered[Q, P], best: Option[Q, P]) -> str:
    rest = [option for option in considered.options if option is not best]
    if not rest:
        return "no other strategy keeps it"
    against = min(rest, key=lambda option: option.cost.seconds)
    mine, theirs = time_text(best.cost.seconds), f"{time_text(against.cost.seconds)} by {against.strategy.name}"
    if best.cost.seconds <= against.cost.seconds:
        return f"its steps are estimated cheapest: {mine}, against {theirs}"
    return f"its steps are estimated at {mine}, little more than {theirs}, and more surely"
