"""A view as a plan of operators: how the next change, with its deletions, reaches each of them."""

from __future__ import annotations

import pytest
from tests.operators.explained import BIGINT, Trees

from headrace.operators.tree_view import TreeView
from headrace.plan.view import Aggregate
from headrace.relation.schema import Column, TableSchema
from headrace.thrifty.keep.actions import Op
from headrace.thrifty.keep.change import Change
from headrace.thrifty.keep.selection import best_cost
from headrace.thrifty.keep.view_plan import Measured, ViewPlan
from headrace.thrifty.statistics import Statistics

LOWEST = (Aggregate("min", 0, BIGINT, "min(price)"),)
COLUMN = (Column("shop", BIGINT, False),)
STATISTICS = Statistics({name: TableSchema(name, COLUMN) for name in ("orders", "shops")}, {"orders": 100, "shops": 10})


def lowest(expected: dict[str, Change]) -> Op:
    """The lowest price per shop, as the rows of an answer over it: an aggregate that may be dropped."""
    trees = Trees()
    joined = trees.join(trees.table("orders", "shop", "price"), trees.table("shops", "shop"), outputs=("l0", "l1"))
    groups = trees.group(trees.given(joined, "l0", "l1"), keys=1, aggregates=LOWEST)
    kernel = TreeView(trees.answer(trees.given(groups, "k0", "a0")), 7, 3, {})
    sizes = {"orders": 100, "shops": 10}
    measured = {"0.left": Measured(sizes["orders"], 1_000), "0.right": Measured(sizes["shops"], 100)}
    return ViewPlan("v", kernel, measured, expected, STATISTICS).plan()


def below(op: Op) -> Op:
    (feed,) = op.inputs[0].feeds
    assert isinstance(feed, Op)
    return feed


def test_deletions_reach_the_aggregate() -> None:
    groups = below(lowest({"orders": Change(6.0, 2.0)}))
    assert below(groups).delta == groups.inputs[0].delta == 8.0, "an order has one shop"
    assert groups.deleted == pytest.approx(2.0), "a quarter of what changes"


def test_a_change_of_the_small_side_meets_many_rows() -> None:
    joined = below(below(lowest({"shops": Change(1.0, 1.0)})))
    assert [one.delta for one in joined.inputs] == [0.0, 2.0]
    assert joined.delta == pytest.approx(20.0), "a shop has ten orders"


def test_rows_of_other_tables_do_not_count_as_deletions() -> None:
    groups = below(lowest({"orders": Change(6.0, 2.0), "elsewhere": Change(0.0, 1_000.0)}))
    assert groups.deleted == pytest.approx(2.0)


def test_deletions_cost_more_than_insertions() -> None:
    kept = frozenset(("v", number) for number in range(3))
    some, gone = (best_cost(lowest({"orders": one}), kept) for one in (Change(8.0), Change(0.0, 8.0)))
    assert gone - some == pytest.approx(8 * 1.0), "eight rows look for the next value, at a microsecond each"
