"""Trees of operators against nested loops: every kind of join, NULLs, duplicates, any batching, nothing left over."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.operators.driven import Driven, Row

from headrace.operators.kernel import ViewChange
from headrace.operators.tree_view import TreeView
from headrace.plan.expression import Expression, column
from headrace.plan.tree import FLAG, Aggregation, Feed, Field, Join, JoinKind, Port, Top, Tree
from headrace.plan.view import Aggregate, Fed, Shape, ViewPlan
from headrace.relation.types import SqlType

INT = SqlType("int")
BOOLEAN = SqlType("boolean")
COLUMNS = ("k", "v")  # of both tables: a key and a value, both may be NULL


def port(letter: str, feed: Feed) -> Port:
    return Port(tuple(Field(f"{letter}{i}", INT, True) for i in range(len(feed.outputs))), (feed,))


def table(name: str) -> Feed:
    return Feed(None, None, tuple(column(c, INT) for c in COLUMNS), name, name)


def rows_of(number: int, fields: tuple[Field, ...]) -> Aggregation:
    """The answer: rows as an operator gives them."""
    columns = tuple(column(f.name, f.type, f.nullable) for f in fields)
    keys = tuple(column(f"k{i}", f.type, f.nullable) for i, f in enumerate(fields))
    kept = tuple(Field(f"k{i}", f.type, f.nullable) for i, f in enumerate(fields))
    plan = ViewPlan(Fed(), Shape.ROWS, keys, (), (), None, ())
    return Aggregation(Port(kept, (Feed(number, None, columns),)), plan)


def joined(
    kind: JoinKind,
    *,
    residual: bool = False,
    safe: bool = False,
    keys: int = 1,
    sizes: dict[str, int] | None = None,
    right_keys_only: bool = False,
) -> TreeView:
    condition = None
    if residual:
        condition = Expression("LessThan", BOOLEAN, "l1 < r1", (column("l1", INT), column("r1", INT)))
    outputs: tuple[str, ...] = ("l0", "l1", "r0", "r1") if kind.pairs else ("l0", "l1")
    if kind is JoinKind.FLAG:
        outputs = (*outputs, FLAG)
    null_aware = kind is JoinKind.NULL_AWARE
    right = table("r")
    if null_aware or right_keys_only:
        right = replace(right, outputs=right.outputs[:1])
    node = Join(
        kind, port("l", table("l")), port("r", right), keys, (safe or null_aware,) * keys, condition, outputs, ""
    )
    return TreeView(Tree((node, rows_of(0, node.fields))), 7, 3, sizes or {})


def expected(
    kind: JoinKind, left: list[Row], right: list[Row], *, residual: bool, safe: bool, keys: int
) -> Counter[Row]:
    """What SQL says, by nested loops."""

    def match(a: Row, b: Row) -> bool:
        same = not keys or (a[0] == b[0] and (safe or a[0] is not None))
        return same and (not residual or (a[1] is not None and b[1] is not None and a[1] < b[1]))  # type: ignore[operator]

    out: Counter[Row] = Counter()
    if kind.pairs:
        out.update((*a, *b) for a, b in product(left, right) if match(a, b))
    for a in left:
        partner = any(match(a, b) for b in right)
        if kind is JoinKind.SEMI and partner:
            out[a] += 1
        if kind is JoinKind.ANTI and not partner:
            out[a] += 1
        if kind is JoinKind.FLAG:
            out[*a, partner] += 1
        if kind in (JoinKind.LEFT, JoinKind.FULL) and not partner:
            out[*a, None, None] += 1
        if kind is JoinKind.NULL_AWARE:
            keep = not right or (a[0] is not None and all(b[0] is not None and b[0] != a[0] for b in right))
            out[a] += keep
    if kind is JoinKind.FULL:
        for b in right:
            if not any(match(a, b) for a in left):
                out[None, None, *b] += 1
    return +out


values = st.one_of(st.none(), st.integers(0, 3))
rows = st.tuples(values, values)
batches = st.lists(st.tuples(st.lists(rows, max_size=5), st.lists(rows, max_size=5), st.floats(0, 1)), max_size=5)
KINDS = [kind for kind in JoinKind if kind is not JoinKind.SINGLE]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("small", ["", "r", "l"])
@settings(max_examples=25, deadline=None, derandomize=True)
@given(batches, st.booleans(), st.booleans(), st.integers(0, 1), st.randoms(use_true_random=False))
def test_a_join_is_what_nested_loops_say_after_every_step(  # type: ignore[no-untyped-def]
    kind, small, steps, residual, safe, keys, random
) -> None:
    if kind is JoinKind.NULL_AWARE:
        residual, safe, keys = False, True, 1
    sizes = {"l": 100, "r": 100} | ({small: 1} if small else {})
    driven = Driven(joined(kind, residual=residual, safe=safe, keys=keys, sizes=sizes))
    there: dict[str, list[Row]] = {"l": [], "r": []}
    for left, right, leaving in steps:
        changes: dict[str, list[tuple[Row, int]]] = {}
        for name, came in (("l", left), ("r", right)):
            gone = [row for row in there[name] if random.random() < leaving]
            for row in gone:
                there[name].remove(row)
            there[name] += came
            changes[name] = [(row, -1) for row in gone] + [(row, 1) for row in came]
        if kind is JoinKind.NULL_AWARE:
            changes["r"] = [(row[:1], diff) for row, diff in changes["r"]]
        driven.step(changes)
        assert driven.answer() == expected(kind, there["l"], there["r"], residual=residual, safe=safe, keys=keys)
    # All at once gives the same; and when everything leaves, nothing is left.
    at_once = Driven(driven.view)
    width = 1 if kind is JoinKind.NULL_AWARE else 2
    at_once.step({"l": [(row, 1) for row in there["l"]], "r": [(row[:width], 1) for row in there["r"]]})
    assert at_once.answer() == driven.answer()
    driven.step({"l": [(row, -1) for row in there["l"]], "r": [(row[:width], -1) for row in there["r"]]})
    assert driven.answer() == Counter()
    assert driven.entries() == 0


def counted(shape: Shape, *, above: bool = True) -> TreeView:
    """COUNT(*) and SUM(v) by k (or in all), and the rows of that."""
    keys = (column("k0", INT),) if shape is Shape.GROUPS else ()
    big = SqlType("bigint")
    aggregates = (Aggregate("count", None, big, "count(*)"), Aggregate("sum", 0, big, "sum(v)"))
    outputs = tuple(column(c, INT) for c in (COLUMNS if keys else COLUMNS[1:]))
    fields = tuple(Field(name, INT, True) for name in (("k0", "v0") if keys else ("v0",)))
    group = Aggregation(
        Port(fields, (Feed(None, None, outputs, "l", "l"),)),
        ViewPlan(Fed(), shape, keys, (column("v0", INT),), aggregates, None, ()),
    )
    return TreeView(Tree((group, rows_of(0, group.fields)) if above else (group,)), 7, 3, {})


def test_a_changed_group_is_one_row_that_goes_and_one_that_comes() -> None:
    driven = Driven(counted(Shape.GROUPS))
    driven.step({"l": [((1, 10), 1), ((1, 20), 1), ((2, 5), 1), ((None, 1), 1)]})
    assert driven.answer() == Counter({(1, 2, 30): 1, (2, 1, 5): 1, (None, 1, 1): 1})
    assert driven.traffic["0"].given == ViewChange(inserted=3)
    # Three rows of one group change: one row goes, one comes. The other group is touched, but its values are the same.
    driven.step({"l": [((1, 1), 1), ((1, 2), 1), ((1, 20), -1), ((2, 5), -1), ((2, 5), 1)]})
    assert driven.traffic["0"].given == ViewChange(updated=1)
    assert driven.answer() == Counter({(1, 3, 13): 1, (2, 1, 5): 1, (None, 1, 1): 1})


def test_a_total_has_a_row_before_any_row_has_come() -> None:
    driven = Driven(counted(Shape.TOTAL))
    assert driven.answer() == Counter({(0, None): 1})
    driven.step({"l": [((4,), 1)]})
    assert driven.answer() == Counter({(1, 4): 1})
    driven.step({"l": [((4,), -1)]})
    assert driven.answer() == Counter({(0, None): 1})


def first(count: int, offset: int = 0) -> TreeView:
    """The rows with the largest v."""
    fields = tuple(Field(f"c{i}", INT, True) for i in range(2))
    top = Top(Port(fields, (table("l"),)), ((1, True, False),), count, offset)
    return TreeView(Tree((top, rows_of(0, fields))), 7, 3, {})


@settings(max_examples=60, deadline=None, derandomize=True)
@given(batches, st.integers(0, 4), st.integers(0, 2), st.randoms(use_true_random=False))
def test_the_first_rows_are_refilled_when_one_of_them_leaves(steps, count, offset, random) -> None:  # type: ignore[no-untyped-def]
    driven = Driven(first(count, offset))
    there: list[Row] = []
    for came, more, leaving in steps:
        gone = [row for row in there if random.random() < leaving]
        for row in gone:
            there.remove(row)
        there += came + more
        driven.step({"l": [(row, -1) for row in gone] + [(row, 1) for row in came + more]})
        # v descending, NULLs last; then k ascending, NULLs first.
        order = sorted(there, key=lambda r: (r[1] is None, -(r[1] or 0), r[0] is not None, r[0] or 0))  # type: ignore[operator]
        assert driven.answer() == Counter(order[offset : offset + count])


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=6), st.integers(0, 4), st.integers(0, 2))
def test_rows_without_columns_are_counted_too(steps: list[tuple[int, int]], count: int, offset: int) -> None:
    feed = Feed(None, None, (), "l", "l")
    top = Top(Port((), (feed,)), (), count, offset)
    aggregates = (Aggregate("count", None, SqlType("bigint"), "count(*)"),)
    total = Aggregation(Port((), (Feed(0, None, ()),)), ViewPlan(Fed(), Shape.TOTAL, (), (), aggregates, None, ()))
    driven, there = Driven(TreeView(Tree((top, total, rows_of(1, total.fields))), 7, 3, {})), 0
    for came, gone in steps:
        gone = min(gone, there)
        there += came - gone
        driven.step({"l": [((), came), ((), -gone)]})
        assert driven.answer() == Counter({(min(count, max(0, there - offset)),): 1})


def test_a_single_join_refuses_a_second_partner() -> None:
    from headrace.errors import StepFailedError

    driven = Driven(joined(JoinKind.SINGLE))
    driven.step({"l": [((1, 1), 1), ((2, 2), 1)], "r": [((1, 5), 1)]})
    assert driven.answer() == Counter({(1, 1, 1, 5): 1, (2, 2, None, None): 1})
    with pytest.raises(StepFailedError, match="more than one row"):
        driven.step({"r": [((1, 6), 1)]})
    driven.step({"r": [((1, 6), 1), ((1, 5), -1), ((9, 1), 1), ((9, 2), 1)]})  # two of a key that nobody asks for
    assert driven.answer() == Counter({(1, 1, 1, 6): 1, (2, 2, None, None): 1})


def test_beside_a_static_table_nothing_is_kept() -> None:
    view = replace(joined(JoinKind.INNER), static=frozenset(["r"]))
    driven = Driven(view)
    driven.step({"l": [((1, 1), 1)], "r": [((1, 5), 1), ((2, 6), 1)]})
    driven.step({"l": [((2, 1), 1)]})
    assert driven.answer() == Counter({(1, 1, 1, 5): 1, (2, 1, 2, 6): 1})
    assert "0.left" not in view.arrangements
    assert view.keeping.why_kept(0, 0) is None
    assert view.keeping.why_kept(0, 1) is not None


@pytest.mark.parametrize("kind", [JoinKind.SEMI, JoinKind.ANTI])
@pytest.mark.parametrize("small", ["", "r"])
@settings(max_examples=40, deadline=None, derandomize=True)
@given(batches, st.booleans(), st.booleans(), st.booleans(), st.randoms(use_true_random=False))
def test_beside_a_side_that_only_grows_rows_without_a_partner_are_kept_and_no_others(  # type: ignore[no-untyped-def]
    kind, small, steps, residual, safe, keys_only, random
) -> None:
    keys_only = keys_only and not residual
    sizes = {"l": 100, "r": 100} | ({small: 1} if small else {})
    all_kept = joined(kind, residual=residual, safe=safe, sizes=sizes, right_keys_only=keys_only)
    driven = Driven(replace(all_kept, growing=frozenset(["r"])))
    assert driven.view.layouts[0].settles
    there: dict[str, list[Row]] = {"l": [], "r": []}
    for left, right, leaving in steps:
        gone = [row for row in there["l"] if random.random() < leaving]
        for row in gone:
            there["l"].remove(row)
        there["l"] += left
        there["r"] += right
        came = [(row[:1] if keys_only else row, 1) for row in right]
        driven.step({"l": [(row, -1) for row in gone] + [(row, 1) for row in left], "r": came})
        assert driven.answer() == expected(kind, there["l"], there["r"], residual=residual, safe=safe, keys=1)
        alone = expected(JoinKind.ANTI, there["l"], there["r"], residual=residual, safe=safe, keys=1)
        waiting = {row for row in alone if safe or row[0] is not None}  # without a key, a row passes by
        assert driven.kept("0.left") == len(waiting)
        if keys_only:
            assert driven.kept("0.right") == len({row[0] for row in there["r"] if safe or row[0] is not None})


def test_what_only_grows() -> None:
    """A side only grows if it is made of rows that are never deleted, by operators that take nothing back."""
    semi = joined(JoinKind.SEMI)
    assert not semi.keeping.settles(0)
    grown = replace(semi, growing=frozenset(["r"]))
    assert grown.keeping.settles(0)
    assert "settled" in grown.keeping.why_kept(0, 0)
    assert not replace(semi, growing=frozenset(["l"])).keeping.settles(0)
    assert not replace(joined(JoinKind.LEFT), growing=frozenset(["r"])).keeping.settles(0)

    def over(node: Join | Aggregation) -> TreeView:
        feed = Feed(0, None, tuple(column(f.name, f.type, f.nullable) for f in node.fields[:2]))
        above = Join(JoinKind.SEMI, port("l", table("l")), port("r", feed), 1, (False,), None, ("l0", "l1"), "")
        return TreeView(Tree((node, above, rows_of(1, above.fields))), 7, 3, {}, growing=frozenset(["l", "r"]))

    for kind, grows in {JoinKind.INNER: True, JoinKind.SEMI: True, JoinKind.ANTI: False, JoinKind.LEFT: False}.items():
        assert over(joined(kind).tree.nodes[0]).keeping.settles(1) is grows, kind
    assert not over(counted(Shape.GROUPS).tree.nodes[0]).keeping.settles(1)
    distinct = counted(Shape.GROUPS).tree.nodes[0]
    assert over(replace(distinct, plan=replace(distinct.plan, aggregates=(), arguments=()))).keeping.settles(1)


def test_a_key_that_is_compared_twice_still_decides_one_bucket() -> None:
    """`SELECT x, x FROM (SELECT DISTINCT ...) INTERSECT ...`: both sides must find the same bucket (a random query)."""
    keys = (column("k0", INT),)
    distinct = Aggregation(
        Port((Field("k0", INT, True),), (Feed(None, None, (column("k", INT),), "l", "l"),)),
        ViewPlan(Fed(), Shape.GROUPS, keys, (), (), None, ()),
    )
    twice = Feed(0, None, (column("k0", INT), column("k0", INT)))
    other = Feed(None, None, (column("k", INT), column("v", INT)), "r", "r")
    node = Join(JoinKind.SEMI, port("l", twice), port("r", other), 2, (True, True), None, ("l0", "l1"), "")
    driven = Driven(TreeView(Tree((distinct, node, rows_of(1, node.fields))), 7, 3, {}))
    some = [*range(20), None]
    driven.step({"l": [((i,), 1) for i in some], "r": [((i, i), 1) for i in some]})
    assert driven.answer() == {(i, i): 1 for i in some}
