from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from headrace.errors import HeadraceError, UnsupportedSQLError
from headrace.explain.report import Report
from headrace.factorized import planner
from headrace.relation.schema import Column, TableSchema
from headrace.relation.types import SqlType
from headrace.thrifty import strategy
from headrace.thrifty.choose import NOTHING_KNOWN, choose, consider
from headrace.thrifty.cost import Cost
from headrace.thrifty.statistics import Statistics
from headrace.thrifty.strategy import Strategy

SALE = TableSchema.of("sale", (Column("id", SqlType("bigint"), False),), "id", None)
KNOWN = Statistics({"sale": SALE}, {"sale": 1_000})
EMPTY = Statistics({"sale": SALE})


@dataclass(frozen=True)
class Plan:
    by: str
    tables: tuple[str, ...] = ("sale",)


@dataclass
class Fake:
    """A strategy whose answers are given; it remembers what it was asked to plan."""

    name: str
    seconds: float = 1.0
    refuses: str = ""
    words: str = ""
    is_offered: bool = True
    is_incremental: bool = True
    margin: float = 1.0
    planned: list[str] = field(default_factory=list)

    def offers(self, query: str) -> bool:
        return self.is_offered

    def plan(self, query: str) -> Plan | HeadraceError:
        self.planned.append(query)
        return UnsupportedSQLError(f"view 'v': {self.refuses}", way_out="-") if self.refuses else Plan(self.name)

    def suits(self, query: str, refused: Mapping[str, HeadraceError]) -> str:
        return self.words

    def estimate(self, plan: Plan, statistics: Statistics) -> Cost:
        assert plan.by == self.name
        return Cost({"sale": 1.0}, 0.0, self.seconds)

    def explain(self, plan: Plan, known: object) -> Report:
        raise AssertionError("nobody asked for it")


def chosen(strategies: list[Fake], statistics: Statistics = KNOWN) -> tuple[str, str]:
    given: list[Strategy[str, Plan]] = [*strategies]
    best, why = choose(consider(given, "q", statistics), "q", statistics)
    assert best.plan.by == best.strategy.name
    return best.strategy.name, why


def test_the_cheapest_is_chosen_and_says_against_what() -> None:
    name, why = chosen([Fake("a", 3.0), Fake("b", 0.001), Fake("c", 2.0)])
    assert name == "b"
    assert why == "its steps are estimated cheapest: 1 ms, against 2 s by c"


def test_the_only_one_says_that_others_cannot() -> None:
    assert chosen([Fake("a", refuses="no"), Fake("b")]) == ("b", "no other strategy keeps it (a cannot)")
    assert chosen([Fake("b")]) == ("b", "no other strategy keeps it")
    with pytest.raises(UnsupportedSQLError, match="not at all"):
        chosen([Fake("a", refuses="no"), Fake("b", refuses="not at all")])


def test_without_sizes_the_shape_decides_and_else_the_order() -> None:
    a, b, c = Fake("a", 9.0), Fake("b", 5.0, words="it is like that"), Fake("c", 1.0)
    assert chosen([a, b, c], EMPTY) == ("b", "it is like that")
    assert chosen([a, c], EMPTY) == ("a", NOTHING_KNOWN)
    assert chosen([a, b, c]) == ("c", "its steps are estimated cheapest: 1 s, against 5 s by b")


def test_what_scans_all_rows_must_win_by_its_margin_and_never_stands_alone() -> None:
    full = Fake("full", 1.0, is_incremental=False, margin=4.0)
    assert chosen([Fake("a", 3.9), full])[0] == "a"
    assert chosen([Fake("a", 4.1), full])[0] == "full"
    assert chosen([Fake("a", 4.1), full], EMPTY)[0] == "a"
    full.planned.clear()
    with pytest.raises(UnsupportedSQLError, match="no"):
        chosen([Fake("a", refuses="no"), full])
    assert not full.planned


def test_what_is_not_offered_is_not_tried() -> None:
    hidden = Fake("hidden", 0.0, is_offered=False)
    assert chosen([hidden, Fake("a")])[0] == "a"
    assert not hidden.planned


def test_all_are_listed_the_cheapest_first() -> None:
    given: list[Strategy[str, Plan]] = [Fake("a", 2.0), Fake("b", refuses="no way"), Fake("c", 1.0)]
    listed = consider(given, "q", KNOWN).to_json()
    assert [one["strategy"] for one in listed] == ["c", "a", "b"]
    assert listed[0] == {"strategy": "c", "seconds": 1.0, "rows": 1.0, "most": "sale"}
    assert listed[-1]["refused"] == "no way"


def test_strategies_of_view_trees_have_the_names_of_the_planner() -> None:
    assert (strategy.FACTORIZED, strategy.RECURSIVE, strategy.FIRST_ORDER) == planner.STRATEGIES
