"""Common join orders: which joins blocks have in common, and one subplan for blocks in different orders."""

from __future__ import annotations

import pytest
from tests.thrifty.test_share import block, columns, join, less, orders, shops

from headrace.plan.expression import Expression
from headrace.plan.tree import Feed, Join
from headrace.thrifty.share.blocks import Block
from headrace.thrifty.share.family import family_of
from headrace.thrifty.share.merge import merged
from headrace.thrifty.share.orders import Manner, beginnings, in_common_order

ANY, OWN = Manner(exact=False, own_orders=False), Manner(exact=False, own_orders=True)
EXACT = Manner(exact=True, own_orders=False)
OPTIONAL: dict[str, tuple[str, ...]] = {"orders": (), "shops": (), "items": ()}


def items(where: Expression | None = None) -> Feed:
    return Feed(None, where, columns("order", "units"), "items", "i")


def shops_first(where: Expression | None = None) -> Block:
    """Orders with their shops, then with items."""
    lower = join(orders("shop", "id", "day", where=where), shops("id", "name"), ("l1", "l2", "r1"))
    return block(lower, join(Feed(0, None, columns("l1", "l2", "r1")), items(), ("l1", "l2", "r1")))


def items_first() -> Block:
    """Items with their orders, then with shops: the same rows."""
    lower = join(items(), orders("id", "shop"), ("l1", "r1"))
    return block(lower, join(Feed(0, None, columns("r1", "l1")), shops("id", "name"), ("l1", "r1")))


def only_items() -> Block:
    return block(join(items(), orders("id", "price"), ("l1", "r1")))


def shared(blocks: list[Block], manner: Manner) -> list[Block]:
    return [one for own in in_common_order(blocks, manner) for one in own]


def tree(blocks: list[Block], manner: Manner) -> tuple[Join, ...]:
    nodes = merged(shared(blocks, manner), OPTIONAL, exact=manner.exact).tree.nodes
    assert all(isinstance(node, Join) for node in nodes)
    return nodes  # type: ignore[return-value]


def test_two_orders_of_the_same_tables_become_one() -> None:
    one, other = in_common_order([shops_first(), items_first()], ANY)
    assert [found.operators for found in (*one, *other)] == [2, 2]
    assert one[0].skeleton == other[0].skeleton
    assert len(tree([shops_first(), items_first()], ANY)) == 2


def test_a_view_reads_a_join_in_the_middle_of_the_order_of_others() -> None:
    """Two of three blocks join items with orders first; the third gives up its own order for that."""
    blocks = [shops_first(), items_first(), only_items()]
    joins = family_of(shared(blocks, ANY), exact=False)
    assert [sorted(one.users) for one in joins] == [[0, 1, 2], [0, 1]]
    assert [one.ends for one in joins] == [[2], [0, 1]]


def test_a_block_keeps_its_order_if_others_have_its_own_join() -> None:
    alone = block(join(orders("shop", "price"), shops("id"), ("l1",)))
    whole, part = in_common_order([shops_first(), alone], ANY)
    assert [(one.number, one.operators) for one in (*whole, *part)] == [(0, 1), (0, 1)]  # the lower join of the first


def test_orders_stay_if_they_must() -> None:
    assert shared([shops_first(), items_first()], OWN) == []
    assert shared([shops_first(), only_items()], OWN) == []
    assert len(shared([shops_first(), only_items()], ANY)) == 2


def test_joins_over_other_rows_are_other_joins_if_they_must() -> None:
    some = shops_first(where=less("day", 3))
    assert shared([some, shops_first(where=less("day", 4))], EXACT) == []
    assert len(shared([some, shops_first(where=less("day", 3))], EXACT)) == 2
    # Items and shops are the same rows for both, but no join has these alone.
    masked = tree([some, shops_first(where=less("day", 4))], ANY)
    assert len(masked) == 2
    assert masked[0].ports[0].feeds[0].condition is not None


def test_a_table_that_a_block_has_twice_is_joined_twice() -> None:
    def both(*, then: str) -> Block:
        lower = join(orders("shop", "id", "day"), shops("id"), ("l1", "l2"))
        again = Feed(None, None, columns("id", then), "shops", "s2")
        return block(lower, join(Feed(0, None, columns("l2", "l1")), again, ("l1", "r1")))

    joins = family_of(shared([both(then="since"), both(then="name")], ANY), exact=False)
    assert [sorted(one.users) for one in joins] == [[0, 1], [0, 1]]


def test_rows_that_only_an_ended_block_wants_go_no_further() -> None:
    early, late = less("day", 3), less("day", 9)

    def two(where: Expression) -> Block:
        return block(join(orders("shop", "price", "day", where=where), shops("id"), ("l1", "l2")))

    nodes = tree([two(late), shops_first(where=early)], ANY)
    assert len(nodes) == 1  # only the lower join is shared: the rest stays with the view
    nodes = tree([two(late), shops_first(where=early), shops_first(where=late)], ANY)
    (feed,) = nodes[1].ports[0].feeds
    assert feed.producer == 0
    assert feed.condition is not None  # the bits of the first block are left out
    assert "6" in feed.condition.sql


@pytest.mark.parametrize("other", [only_items(), shops_first(), items_first()])
def test_blocks_with_a_pair_of_tables_in_common(other: Block) -> None:
    assert beginnings(items_first()) & beginnings(other)
    assert not beginnings(items_first()) & beginnings(block(join(orders("day"), shops("since"), ("l0",))))
