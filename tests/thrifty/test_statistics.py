from __future__ import annotations

from headrace.plan.assumptions import CHANGED_SHARE, LOOKED_UP_SHARE, UNKNOWN_GROWTH, UNKNOWN_ROWS
from headrace.relation.schema import Column, TableSchema
from headrace.relation.types import SqlType
from headrace.thrifty.statistics import Statistics, watched

COLUMNS = (Column("id", SqlType("bigint"), False), Column("shop", SqlType("bigint")))


def statistics(**rates: float) -> Statistics:
    tables = {
        "shop": TableSchema.of("shop", COLUMNS, "id", None, static=True),
        "sale": TableSchema.of("sale", COLUMNS, "id", {"shop": "shop"}),
        "hint": TableSchema.of("hint", COLUMNS, None, None, expected_rows=500),
        "none": TableSchema.of("none", COLUMNS, None, None),
    }
    return Statistics(tables, {"shop": 40, "sale": 1_000, "hint": 20}, rates)


def test_sizes_are_those_that_are_there_or_those_that_are_expected() -> None:
    known = statistics()
    assert known.sizes({"a": "sale", "b": "hint", "c": "none"}) == {"a": 1_000, "b": 500}
    assert known.knows(["none", "shop"])
    assert not known.knows(["none"])
    assert known.values == {("sale", "shop"): 40}
    assert known.keys["sale"] == ("id",)


def test_a_rate_that_was_seen_takes_the_place_of_an_assumed_share() -> None:
    assert statistics().share("sale") == CHANGED_SHARE
    assert statistics().share("sale", looked_up=True) == LOOKED_UP_SHARE
    seen = statistics(sale=50.0, shop=9.0)
    assert seen.share("sale") == seen.share("sale", looked_up=True) == 0.05
    assert seen.share("shop") == 0  # it is static
    of = seen.of_sources({"a": "sale", "b": "shop", "c": "none"}, {"a": True, "b": True, "c": False})
    assert of.changed == {"a": 50.0, "b": 0.0, "c": CHANGED_SHARE * UNKNOWN_ROWS * UNKNOWN_GROWTH}
    assert of.rows == {"a": 1_000, "b": 40, "c": UNKNOWN_ROWS * UNKNOWN_GROWTH}


def test_rates_follow_the_steps_and_not_the_loads() -> None:
    rates: dict[str, float] = {}
    for changed in (1_000, 10, 10, 20):  # the first loads the table
        rates |= watched(rates, {"sale": changed}, {"sale": 1_000})
    assert rates == {"sale": 12.0}
    assert watched(rates, {"none": 0}, {"none": 0}) == {"none": 0.0}
