"""Fingerprints: equal for state that can be taken over, and different for any other."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.thrifty.test_share import join, less, orders, shops

from headrace.operators.tree_view import TreeView
from headrace.plan.tree import Feed, Join, JoinKind, Tree
from headrace.thrifty.share.fingerprint import fingerprints

SIZES = {"o": 10, "s": 8}


def view(left: Feed, right: Feed, **other: object) -> TreeView:
    return TreeView(Tree((join(left, right, ("l1",), **other),)), 1, 4, SIZES, answers=False)  # type: ignore[arg-type]


ORDERS, SHOPS = orders("shop", "price"), shops("id", "size")
PRINTS = fingerprints(view(ORDERS, SHOPS))


def test_a_side_is_the_same_whatever_is_joined_with_it() -> None:
    other = fingerprints(view(orders("shop", "price", source="o2"), shops("id", where=less("id", 3))))
    assert other["0.left"] == PRINTS["0.left"]
    assert other["0.right"] != PRINTS["0.right"]
    assert fingerprints(view(ORDERS, SHOPS, kind=JoinKind.LEFT)) == PRINTS


def test_keys_that_must_not_be_null_are_no_difference() -> None:
    assert fingerprints(view(replace(ORDERS, required=(0,)), SHOPS)) == PRINTS
    assert fingerprints(view(replace(ORDERS, required=(1,)), SHOPS))["0.left"] != PRINTS["0.left"]


@pytest.mark.parametrize(
    "other",
    [
        view(orders("shop", "day"), SHOPS),
        view(orders("shop", "price", "day"), SHOPS),
        view(orders("shop", "price", where=less("day", 3)), SHOPS),
        view(ORDERS, SHOPS, keys=2),
        view(ORDERS, SHOPS, safe=(True,)),
        replace(view(ORDERS, SHOPS), seed=2),
        replace(view(ORDERS, SHOPS), buckets=3),
        replace(view(ORDERS, SHOPS), sizes={"o": 10, "s": 1000}),  # the small side is in every bucket
    ],
    ids=["column", "columns", "rows", "keys", "null keys", "hash", "buckets", "place"],
)
def test_other_entries_or_other_buckets_are_another_state(other: TreeView) -> None:
    assert fingerprints(other)["0.left"] != PRINTS["0.left"]


def test_what_is_below_counts_down_to_the_tables() -> None:
    def deep(where: int | None, outputs: tuple[str, ...] = ("l1", "r1")) -> dict[str, str]:
        below = join(orders("shop", "price", where=None if where is None else less("day", where)), SHOPS, outputs)
        above: Join = join(Feed(0, None, orders("l1").outputs), shops("id"), ("l0",))
        return fingerprints(TreeView(Tree((below, above)), 1, 4, SIZES, answers=False))

    assert deep(None)["1.left"] == deep(None)["1.left"] != deep(3)["1.left"]
    assert deep(None)["1.right"] == deep(3)["1.right"]
