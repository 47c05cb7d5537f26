from __future__ import annotations

from dataclasses import replace

from headrace.relation.schema import Column, TableSchema
from headrace.relation.types import SqlType
from headrace.thrifty.cost import UNITS, Cost, one_table_cost, recompute_cost
from headrace.thrifty.statistics import Statistics

SALE = TableSchema.of("sale", (Column("id", SqlType("bigint"), False),), "id", None)
KNOWN = Statistics({"sale": SALE}, {"sale": 2_000_000}, {"sale": 100.0})


def test_a_cost_is_rows_times_what_a_row_takes() -> None:
    cost = Cost({"a": 30.0, "b": 70.0}, 2.0, 0.5)
    assert (cost.rows, cost.most()) == (100, "b")
    assert cost.seconds == 0.5 + 2e-4
    assert Cost({}, 1.0).most() == ""


def test_units_scale_costs() -> None:
    assert one_table_cost("sale", KNOWN).touched == {"sale": 200.0}
    slow = replace(KNOWN, units=replace(UNITS, group=10.0, job=3.0, scan=1.0))
    assert one_table_cost("sale", slow).seconds == 10 * one_table_cost("sale", KNOWN).seconds
    assert recompute_cost(["sale"], slow).seconds == 3.0 + 2.0
