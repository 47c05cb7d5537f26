"""Which joins can be shared, what one subplan for them looks like, and when it is worth it."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.seeds import seeds

from headrace.operators.tree_view import TreeView
from headrace.plan import native
from headrace.plan.expression import Expression, column
from headrace.plan.tree import Aggregation, Feed, Field, Join, JoinKind, Port, Tree
from headrace.plan.view import Aggregate, Fed, ViewPlan
from headrace.plan.view import Shape as Rows
from headrace.relation.types import SqlType
from headrace.thrifty.share.benefit import ALL_MANNERS, EXACT_MANNERS, Cluster, Sample, Work, clusters, work_of
from headrace.thrifty.share.blocks import Block, blocks_of, is_total
from headrace.thrifty.share.masks import BITS, any_of, both, has, is_mask, mask_of
from headrace.thrifty.share.merge import merged
from headrace.thrifty.share.orders import Manner, in_common_order
from headrace.thrifty.share.plan import Shared, planned

INT, TEXT, TRUTH = SqlType("bigint"), SqlType("string"), SqlType("boolean")


def less(name: str, bound: int) -> Expression:
    args = (column(name, INT), Expression("literal", INT, str(bound), value=bound, nullable=False))
    return Expression("LessThan", TRUTH, f"({name} < {bound})", args)


def columns(*names: str) -> tuple[Expression, ...]:
    return tuple(column(name, TEXT if name == "name" else INT) for name in names)


def port(letter: str, feed: Feed) -> Port:
    fields = (Field(f"{letter}{i}", output.type, output.nullable) for i, output in enumerate(feed.outputs))
    return Port(tuple(fields), (feed,))


def join(left: Feed, right: Feed, outputs: tuple[str, ...], keys: int = 1, **other: object) -> Join:
    safe = (False,) * keys
    made = Join(JoinKind.INNER, port("l", left), port("r", right), keys, safe, None, outputs, "")
    return replace(made, **other)  # type: ignore[arg-type]


def orders(*names: str, where: Expression | None = None, source: str = "o") -> Feed:
    return Feed(None, where, columns(*names), "orders", source)


def shops(*names: str, where: Expression | None = None) -> Feed:
    return Feed(None, where, columns(*names), "shops", "s")


def block(*nodes: Join) -> Block:
    return blocks_of(Tree(nodes))[len(nodes) - 1]


# -- what is the same ----------------------------------------------------------------------------------------------


def test_sides_and_the_order_of_keys_do_not_count() -> None:
    one = block(join(orders("shop", "day", "price"), shops("id", "since", "name"), ("l2", "r2"), keys=2))
    other = block(join(shops("since", "id"), orders("day", "shop"), ("l1",), keys=2))
    assert one.skeleton == other.skeleton
    assert one.given.keys() == {"l2", "r2"}
    # The sides are in one order, so that a path means the same table in both.
    assert [one.sources[path] for path in ("0", "1")] == [other.sources[path] for path in ("0", "1")] == ["o", "s"]


def test_other_keys_or_tables_are_other_joins() -> None:
    one = block(join(orders("shop", "price"), shops("id"), ("l1",)))
    by_day = block(join(orders("day", "price"), shops("id"), ("l1",)))
    itself = block(join(orders("shop", "price"), orders("id", source="o2"), ("l1",)))
    assert len({repr(found.skeleton.shape) for found in (one, by_day, itself)}) == 3


def test_joins_over_joins() -> None:
    lower = join(orders("shop", "id"), shops("id", "name"), ("l1", "r1"))
    upper = join(Feed(None, None, columns("order", "what"), "items", "i"), Feed(0, None, columns("l1", "r1")), ("l1",))
    found = blocks_of(Tree((lower, upper)))
    assert [found[number].operators for number in (0, 1)] == [1, 2]
    assert sorted(found[1].sources.values()) == ["i", "o", "s"]


@pytest.mark.parametrize(
    "node",
    [
        join(orders("shop"), shops("id"), ("l0",), kind=JoinKind.LEFT),
        join(orders("shop"), shops("id"), ("l0",), keys=0, safe=()),
        join(orders("shop", "day"), shops("id", "since"), ("l0",), residual=less("l1", 3)),
        join(replace(orders("shop"), times=column("n", INT)), shops("id"), ("l0",)),
        join(
            replace(orders("shop"), outputs=(Expression("Add", INT, "", columns("shop", "day")),)), shops("id"), ("l0",)
        ),
    ],
    ids=["outer", "cross", "residual", "repeated", "may overflow"],
)
def test_what_is_not_shared(node: Join) -> None:
    assert not blocks_of(Tree((node,)))


def test_sums_of_decimals_never_overflow_if_their_type_has_room() -> None:
    narrow, wide = SqlType("decimal", 12, 2), SqlType("decimal", 38, 2)
    args = (column("a", narrow), column("b", narrow))
    assert is_total(Expression("Add", SqlType("decimal", 13, 2), "", args))
    assert not is_total(Expression("Add", wide, "", (column("a", SqlType("decimal", 37, 2)), column("b", narrow))))


# -- groups ---------------------------------------------------------------------------------------------------------


def groups(feed: Feed, keys: int, *functions: str) -> Aggregation:
    """Groups by the first columns of a feed; each function is over the column after them, COUNT over none."""
    letters = ["k"] * keys + ["v"] * (len(feed.outputs) - keys)
    numbers = [*range(keys), *range(len(feed.outputs) - keys)]
    fields = tuple(
        Field(f"{letter}{i}", output.type, output.nullable)
        for letter, i, output in zip(letters, numbers, feed.outputs, strict=True)
    )
    aggregates = tuple(Aggregate(f, None if f == "count" else 0, INT, f) for f in functions)
    taken = columns(*(field.name for field in fields))
    plan = ViewPlan(Fed(), Rows.GROUPS, taken[:keys], taken[keys:], aggregates, None, ())
    return Aggregation(Port(fields, (feed,)), plan)


def over_groups(node: Aggregation, *outputs: str, where: Expression | None = None) -> Block:
    """A join of groups with shops; the answer above it plays no part."""
    top = join(Feed(0, where, columns("k0", *outputs)), shops("id", "name"), ("l0", "r1"))
    return blocks_of(Tree((node, top)))[1]


def test_groups_with_other_aggregates_are_the_same_groups() -> None:
    one = over_groups(groups(orders("shop", "price"), 1, "sum"), "a0")
    other = over_groups(groups(orders("shop", "price"), 1, "count", "max"), "a0", "a1")
    by_day = over_groups(groups(orders("day", "price"), 1, "sum"), "a0")
    assert repr(one.skeleton.shape) == repr(other.skeleton.shape) != repr(by_day.skeleton.shape)
    found = merged([one, other], {"orders": {"price"}, "shops": ()})
    grouped, joined = found.tree.nodes
    assert isinstance(grouped, Aggregation)
    assert [one.function for one in grouped.plan.aggregates] == ["sum", "count", "max"]
    assert len(grouped.port.feeds) == 1
    assert isinstance(joined, Join)
    assert [feed.condition for feed in found.feeds] == [None, None]


def test_where_a_table_occurs_twice_all_aggregates_have_to_be_the_same() -> None:
    """Their names do not tell of which of the two tables they are."""
    pair = join(orders("id", "price"), orders("shop", "price", source="o2"), ("l0", "l1", "r1"))

    def block(of: str, *functions: str) -> Block:
        node = groups(Feed(0, None, columns("l0", of)), 1, *functions)
        top = join(Feed(1, None, columns("k0")), shops("id"), ("l0",))
        return blocks_of(Tree((pair, node, top)))[2]

    assert repr(block("l1", "sum").skeleton.shape) == repr(block("l1", "sum").skeleton.shape)
    assert repr(block("l1", "sum").skeleton.shape) != repr(block("r1", "sum").skeleton.shape)
    assert repr(block("l1", "sum").skeleton.shape) != repr(block("l1", "sum", "count").skeleton.shape)


def test_views_that_want_other_rows_have_groups_of_their_own() -> None:
    """The mask of a cluster of views is a key of its groups; a view reads those of its cluster."""
    wanted = [None, less("day", 3), less("day", 3), less("day", 5)]
    blocks = [over_groups(groups(orders("shop", "price", where=where), 1, "sum"), "a0") for where in wanted]
    found = merged(blocks, {"orders": {"price"}, "shops": ()})
    grouped = found.tree.nodes[0]
    assert isinstance(grouped, Aggregation)
    assert [feed.condition for feed in grouped.port.feeds] == [None, less("day", 3), less("day", 5)]
    assert [feed.outputs[0].value for feed in grouped.port.feeds] == [0b0001, 0b0110, 0b1000]
    assert len({feed.source for feed in grouped.port.feeds}) == 3
    assert [str(feed.condition) for feed in found.feeds] == [f"(NOT ((l1 & {1 << i}) = 0))" for i in range(4)]
    apart = merged(blocks, {"orders": {"price"}, "shops": ()}, exact=True)
    assert len(apart.tree.nodes) == 6  # groups and a join per cluster


def test_conditions_on_groups_mark_rows_of_the_same_groups() -> None:
    node = groups(orders("shop", "price"), 1, "sum")
    blocks = [over_groups(node, "a0", where=where) for where in (None, less("a0", 7))]
    found = merged(blocks, {"orders": {"price"}, "shops": ()})
    grouped, joined = found.tree.nodes
    assert len(grouped.ports[0].feeds) == 1
    assert len(joined.ports[0].feeds[0].outputs) == len(joined.ports[1].feeds[0].outputs)  # key and mask, key and name
    assert [feed.condition is None for feed in found.feeds] == [False, False]
    # Groups alone are shared exactly, whichever of them each view goes on with.
    (one,), (other,) = in_common_order(blocks, Manner(exact=True, own_orders=True))
    assert (one.number, other.number) == (0, 0)


@pytest.mark.parametrize(
    "node",
    [
        replace(groups(orders("shop", "price"), 1, "sum"), single=True),
        groups(orders("price"), 0, "sum"),
        groups(replace(orders("shop", "price"), times=column("n", INT)), 1, "sum"),
    ],
    ids=["one row of a subquery", "total", "repeated"],
)
def test_groups_that_are_not_shared(node: Aggregation) -> None:
    top = join(Feed(0, None, columns("k0")), shops("id"), ("l0",))
    assert not blocks_of(Tree((node, top)))


def test_the_answer_of_a_view_is_not_shared() -> None:
    assert not blocks_of(Tree((groups(orders("shop", "price"), 1, "sum"),)))


# -- masks ----------------------------------------------------------------------------------------------------------


@seeds("masks", 2)
def test_masks_have_a_bit_per_query(seed: int) -> None:
    rng = random.Random(seed)
    queries = 2 * BITS + 7  # so that three words are needed
    conditions = [rng.choice([None, less("x", rng.randint(0, 50))]) for _ in range(queries)]
    others = [rng.choice([None, less("y", rng.randint(0, 50))]) for _ in range(queries)]
    x, y = ([rng.choice([None, *range(50)]) for _ in range(200)] for _ in range(2))
    rows = {"x": pa.array(x, pa.int64()), "y": pa.array(y, pa.int64())}

    def value(expression: Expression) -> list[object]:
        assert is_total(expression)
        return native.evaluate(expression, rows, 200).to_pylist()

    def passes(condition: Expression | None, number: int | None) -> bool:
        return condition is None or (number is not None and number < int(condition.args[1].value))  # type: ignore[call-overload]

    mask, other = mask_of(dict(enumerate(conditions))), mask_of(dict(enumerate(others)))
    assert len(mask) == 3
    assert all(map(is_mask, mask))
    joined = both(mask, other)
    wanted = [
        [passes(c, a) and passes(d, b) for c, d in zip(conditions, others, strict=True)]
        for a, b in zip(x, y, strict=True)
    ]
    for query in range(queries):
        assert value(has(joined, query)) == [row[query] for row in wanted]
    assert value(any_of(joined)) == [any(row) for row in wanted]


# -- one subplan ------------------------------------------------------------------------------------------------------


def test_equal_conditions_need_no_mask() -> None:
    where = less("day", 3)
    one = block(join(orders("shop", "price", where=where), shops("id", "name"), ("l1", "r1")))
    other = block(join(orders("shop", "day", where=where), shops("id"), ("l0", "l1")))
    found = merged([one, other], {"orders": {"price"}, "shops": ()})
    (node,) = found.tree.nodes
    assert node.residual is None
    assert [feed.condition for feed in found.feeds] == [None, None]
    assert node.ports[0].feeds[0].condition == where
    assert len(node.ports[0].fields) == 3  # shop, price and day
    # A member reads its own fields, in the order of its own operator.
    assert [[str(output) for output in feed.outputs] for feed in found.feeds] == [["l1", "r1"], ["l0", "l2"]]


def test_a_column_that_one_condition_frees_of_null_may_still_be_null() -> None:
    never_null = column("day", INT, nullable=False)  # as Catalyst says where the condition leaves NULLs out
    strict = replace(orders("shop", "day", where=less("day", 3)), outputs=(column("shop", INT), never_null))
    one, other = block(join(strict, shops("id"), ("l1",))), block(join(orders("shop"), shops("id"), ("l0",)))
    found = merged([one, other], {"orders": {"day", "shop"}, "shops": ()})
    fields = found.tree.nodes[0].ports[0].fields
    assert [field.nullable for field in fields] == [True, True, False]  # shop, day, and the mask
    assert found.tree.nodes[0].ports[1].fields[0].nullable is False


def test_a_subplan_is_used_again_and_nothing_is_filled() -> None:
    def view(*names: str, bound: int | None = None) -> TreeView:
        where = None if bound is None else less("day", bound)
        node = join(orders("shop", *names, where=where), shops("id"), tuple(f"l{i}" for i in range(1, len(names) + 1)))
        return TreeView(Tree((node,)), 1, 4, {"o": 10, "s": 2}, answers=False)

    optional = {"orders": (), "shops": ()}

    known = ("orders", "shops")

    def share(blocks: Sequence[Block], manner: Manner) -> float:
        return 1.0

    first = planned({"a": view("price"), "b": view("day", "price")}, optional, share, {}, known)
    assert list(first) == ["~1"]
    more = planned({"a": view("price"), "b": view("day", "price"), "c": view("day")}, optional, share, first, known)
    assert more["~1"].kernel == first["~1"].kernel  # it has the column already
    assert more["~1"].views == ("a", "b", "c")
    wider = planned({"a": view("price"), "b": view("day", "price"), "d": view("units")}, optional, share, more, known)
    assert list(wider) == ["~2"]
    fewer = planned({"b": view("day", "price"), "d": view("units")}, optional, share, wider, known)
    assert fewer["~2"].kernel == wider["~2"].kernel
    last = planned({"b": view("day", "price")}, optional, share, fewer, known)
    assert (last["~2"].kernel, last["~2"].views) == (wider["~2"].kernel, ("b",))
    assert planned({"e": view("day", "price")}, optional, share, last, known) == {}


# -- is it worth it -------------------------------------------------------------------------------------------------


def split(blocks: Sequence[Block], work: Work, before: Any = (), manners: Any = ALL_MANNERS) -> list[list[int]]:
    now = [Cluster(tuple(part), ALL_MANNERS[-1]) for part in before]
    return [list(cluster.blocks) for cluster in clusters(blocks, work, now, manners)]


def partitions(of: Sequence[int]) -> Iterator[list[list[int]]]:
    if not of:
        yield []
        return
    head, *rest = of
    for found in partitions(rest):
        yield [[head], *found]
        for i in range(len(found)):
            yield [*found[:i], [head, *found[i]], *found[i + 1 :]]


@seeds("clusters", 20)
def test_clusters_beside_all_ways_to_share(seed: int) -> None:
    rng = random.Random(seed)
    rows = pa.table({"day": np.arange(1000), "price": np.arange(1000), "shop": np.arange(1000)})
    samples = {
        "orders": Sample(rows, rng.choice([10.0, 1e3, 1e5])),
        "shops": Sample(pa.table({"id": [1, 2], "name": ["a", "b"]}), 1.0),
    }
    bounds = [rng.choice([None, rng.randint(1, 1000)]) for _ in range(5)]
    eager = [rng.choice([1.0, 1.0, 0.1, 0.001]) for _ in bounds] if rng.random() < 0.5 else [1.0] * 5
    blocks = [
        replace(_with_bound(rng, bound), eagerness=eagerness) for bound, eagerness in zip(bounds, eager, strict=True)
    ]
    work = work_of(samples)

    def total(split: Sequence[Sequence[int]]) -> float:
        return sum(min(work([blocks[i] for i in part], manner) for manner in ALL_MANNERS) for part in split)

    found = split(blocks, work)
    assert sorted(i for part in found for i in part) == list(range(5))
    kinds = list(zip(bounds, eager, strict=True))
    equal = [{i for i in range(5) if kinds[i] == kind} for kind in dict.fromkeys(kinds)]
    able = [split for split in partitions(range(5)) if all(any(one <= {*part} for part in split) for one in equal)]
    assert total(found) <= 1.1 * min(map(total, able))


def _with_bound(rng: random.Random, bound: int | None) -> Block:
    where = None if bound is None else less("day", bound)
    columns = ("l1", "r1") if rng.random() < 0.3 else ("l1",)
    return block(join(orders("shop", *rng.sample(["day", "price"], 1), where=where), shops("id", "name"), columns))


def test_a_lazy_view_shares_with_an_eager_one_if_steps_are_large() -> None:
    """In small steps, handing rows to the lazy view costs more than joining them once, at its trigger."""
    rows = pa.table({name: np.arange(1000) for name in ("day", "price", "shop")})
    eager = block(join(orders("shop", "price"), shops("id"), ("l1",)))
    lazy = replace(eager, eagerness=0.001)
    for changed, found in ((20.0, [[0], [1]]), (1e5, [[0, 1]])):
        work = work_of({"orders": Sample(rows, changed), "shops": Sample(pa.table({"id": [1]}), 1.0)})
        assert split([eager, lazy], work) == found
        assert split([eager, eager], work) == split([lazy, lazy], work) == [[0, 1]]


def test_nothing_is_known_of_empty_tables() -> None:
    one = block(join(orders("shop", "price", where=less("day", 3)), shops("id"), ("l1",)))
    same = block(join(orders("shop", "day", where=less("day", 3)), shops("id"), ("l1",)))
    other = block(join(orders("shop", "price", where=less("day", 4)), shops("id"), ("l1",)))
    assert split([one, other, same], work_of({}), manners=EXACT_MANNERS) == [[0, 2], [1]]


def test_what_is_shared_stays_so_unless_another_split_is_clearly_better() -> None:
    every = block(join(orders("shop", "price"), shops("id"), ("l1",)))
    most = block(join(orders("shop", "price", where=less("day", 900)), shops("id"), ("l1",)))
    for changed, alone, kept in ((2000.0, [[0], [1]], [[0, 1]]), (1e5, [[0, 1]], [[0, 1]])):
        rows = pa.table({name: np.arange(1000) for name in ("day", "price", "shop")})
        work = work_of({"orders": Sample(rows, changed), "shops": Sample(pa.table({"id": [1]}), 1.0)})
        assert split([every, most], work) == alone
        assert split([every, most], work, [[0, 1]]) == kept
    few = block(join(orders("shop", "day", "price", "name", where=less("day", 3)), shops("id"), ("l1", "l2", "l3")))
    rows = rows.append_column("name", pa.array(["n"] * 1000))
    work = work_of({"orders": Sample(rows, 1e5), "shops": Sample(pa.table({"id": [1]}), 1.0)})
    assert split([every, few], work, [[0, 1]]) == [[0], [1]]


def test_new_views_share_though_another_one_was_there_before_that_shares_nothing() -> None:
    rows = pa.table({name: np.arange(1000) for name in ("day", "price", "shop")})
    work = work_of({"orders": Sample(rows, 1e5), "shops": Sample(pa.table({"id": [1], "since": [1]}), 1.0)})
    blocks = [
        block(join(orders("shop", "price"), shops("id"), ("l1",))),
        block(join(orders("shop", "price", where=less("day", 900)), shops("id"), ("l1",))),
        block(join(orders("shop", "day", where=less("day", 2)), shops("id"), ("l1",))),
    ]
    found = clusters(blocks, work, (), ALL_MANNERS, fresh=[0, 1])
    assert [0, 1] in [list(cluster.blocks) for cluster in found] or len(found) == 1
    assert clusters(blocks, work, (), ALL_MANNERS, fresh=[]) == clusters(blocks, work, (), EXACT_MANNERS, fresh=[])


def test_keys_that_must_not_be_null_are_no_difference() -> None:
    one = block(join(replace(orders("shop", "price"), required=(0,)), shops("id"), ("l1",)))
    assert one.skeleton == block(join(orders("shop", "day"), shops("id"), ("l1",))).skeleton
    assert not blocks_of(Tree((join(replace(orders("shop", "price"), required=(1,)), shops("id"), ("l1",)),)))


def test_a_selective_view_does_not_share_with_one_that_takes_all() -> None:
    """The shared subplan would carry its wide columns for rows that only the other one wants."""
    rows = pa.table({"day": np.arange(1000), "price": np.arange(1000), "shop": np.arange(1000), "name": ["n"] * 1000})
    samples = {"orders": Sample(rows, 1e4), "shops": Sample(pa.table({"id": [1]}), 1.0)}
    every = block(join(orders("shop", "price"), shops("id"), ("l1",)))
    few = block(join(orders("shop", "day", "price", "name", where=less("day", 30)), shops("id"), ("l1", "l2", "l3")))
    half = block(join(orders("shop", "price", where=less("day", 900)), shops("id"), ("l1",)))
    assert split([every, few, half], work_of(samples)) == [[0, 2], [1]]


def test_an_operator_that_two_blocks_of_a_view_have_is_read_once() -> None:
    """As in Q5 of TPC-H: nations are joined with regions for suppliers and for customers, by one operator."""
    lower = join(orders("shop", "id"), shops("id", "name"), ("l1", "r1"))
    items = [Feed(None, None, columns("order", "what"), "items", f"i{i}") for i in range(2)]
    uppers = [join(one, Feed(0, None, columns("l1", "r1")), ("l1", "r1")) for one in items]
    top = join(Feed(1, None, columns("l1", "r1")), Feed(2, None, columns("l1", "r1")), ("l1",), kind=JoinKind.LEFT)

    def view() -> TreeView:
        return TreeView(Tree((lower, *uppers, top)), 1, 4, {"o": 10, "s": 2, "i0": 5, "i1": 5}, answers=False)

    optional, known = {"orders": (), "shops": (), "items": ()}, ("orders", "shops", "items")

    def share(blocks: Sequence[Block], manner: Manner) -> float:
        return 1.0 + manner.own_orders

    shared: dict[str, Shared] = {}
    for views in ({"a": view()}, {"a": view(), "b": view()}, {"a": view(), "b": view()}, {"a": view()}):
        shared = planned(views, optional, share, shared, known)
        for one in shared.values():
            assert len({(member.view, member.number) for member in one.members}) == len(one.members)
    assert [one.views for one in shared.values()] == [("a",)]
