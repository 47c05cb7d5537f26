"""What each action costs, computed by hand: every kind of work has a decimal place of its own.

A cost of 1_053_033 is one entry of maintenance, five pairs, three probes, three entries written, and three rows sorted.
(Where a place would need more than one digit, tests use other numbers of rows.)
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.plan.tree import JoinKind
from headrace.thrifty.keep.actions import Action, Input, Leaf, Op, Request, RowCosts, State
from headrace.thrifty.keep.selection import anew, best_cost, cost_of_one, select

COSTS = RowCosts(scan=0.1, sort=1, write=10, read=100, probe=1e3, pair=1e4, group=1e5, maintain=1e6, next_value=1e7)
DELTA, FULL, BOTH, NOTHING = Request.DELTA, Request.FULL, Request.BOTH, Request.NOTHING

LEFT, RIGHT = State(("v", 0), 30, 3, 0), State(("v", 1), 40, 4, 1)
NONE, ONLY_LEFT, ONLY_RIGHT, ALL = (), (LEFT,), (RIGHT,), (LEFT, RIGHT)


def join(kind: JoinKind, changed: tuple[int, int]) -> Op:
    """A join of three rows on the left and four on the right, which gives seven, and five at the next change."""
    inputs = tuple(Input((), rows, delta) for rows, delta in zip((3, 4), changed, strict=True))
    return Op(kind, inputs, (LEFT, RIGHT), rows=7, delta=5)


BOTH_CHANGE = join(JoinKind.INNER, (2, 1))
LEFT_CHANGES = join(JoinKind.INNER, (2, 0))
RIGHT_CHANGES = join(JoinKind.INNER, (0, 1))


@pytest.mark.parametrize(
    ("op", "kept", "request_", "own", "asked"),
    [
        # Both sides change, and the changes of each look into the other side.
        (BOTH_CHANGE, ALL, DELTA, 3_053_000, (DELTA, DELTA)),
        (BOTH_CHANGE, ONLY_RIGHT, DELTA, 1_053_033, (BOTH, DELTA)),  # Action 6: the left side is written anew
        (BOTH_CHANGE, ONLY_LEFT, DELTA, 2_053_044, (DELTA, BOTH)),  # its mirror image
        (BOTH_CHANGE, NONE, DELTA, 53_077, (BOTH, BOTH)),
        # Only the left side changes: the right one is looked into, the left one only grows.
        (LEFT_CHANGES, ALL, DELTA, 2_052_000, (DELTA, NOTHING)),
        (LEFT_CHANGES, ONLY_RIGHT, DELTA, 52_000, (DELTA, NOTHING)),
        (LEFT_CHANGES, ONLY_LEFT, DELTA, 2_052_044, (DELTA, FULL)),
        (LEFT_CHANGES, NONE, DELTA, 52_044, (DELTA, FULL)),
        # The mirror image.
        (RIGHT_CHANGES, ALL, DELTA, 1_051_000, (NOTHING, DELTA)),
        (RIGHT_CHANGES, ONLY_LEFT, DELTA, 51_000, (NOTHING, DELTA)),
        (RIGHT_CHANGES, ONLY_RIGHT, DELTA, 1_051_033, (FULL, DELTA)),
        (RIGHT_CHANGES, NONE, DELTA, 51_033, (FULL, DELTA)),
        # The full result: what is kept is read, what is not is brought into order, and nothing is written.
        (BOTH_CHANGE, ALL, FULL, 70_700, (NOTHING, NOTHING)),
        (BOTH_CHANGE, ONLY_RIGHT, FULL, 70_403, (FULL, NOTHING)),  # Action 6
        (BOTH_CHANGE, ONLY_LEFT, FULL, 70_304, (NOTHING, FULL)),
        (BOTH_CHANGE, NONE, FULL, 70_007, (FULL, FULL)),
        # Both: what came for the delta serves the full result too.
        (LEFT_CHANGES, ALL, BOTH, 2_122_700, (DELTA, NOTHING)),
        (LEFT_CHANGES, ONLY_RIGHT, BOTH, 122_403, (BOTH, NOTHING)),
        (LEFT_CHANGES, ONLY_LEFT, BOTH, 2_122_344, (DELTA, FULL)),
        (LEFT_CHANGES, NONE, BOTH, 122_047, (BOTH, FULL)),
        # A change of the right side makes an outer join count the partners that rows of the left side had.
        (join(JoinKind.LEFT, (0, 1)), ONLY_LEFT, DELTA, 51_044, (NOTHING, BOTH)),
        (join(JoinKind.LEFT, (2, 0)), ONLY_RIGHT, DELTA, 52_000, (DELTA, NOTHING)),
        (join(JoinKind.SEMI, (2, 0)), NONE, DELTA, 52_044, (DELTA, FULL)),
        (join(JoinKind.FULL, (2, 0)), ONLY_RIGHT, DELTA, 52_033, (BOTH, NOTHING)),
        # Nothing comes, so there is no delta.
        (join(JoinKind.INNER, (0, 0)), NONE, DELTA, 0, (NOTHING, NOTHING)),
    ],
)
def test_joins(op: Op, kept: tuple[State, ...], request_: Request, own: float, asked: tuple[Request, ...]) -> None:
    work = Action(op, kept).work(request_, COSTS)
    assert (work.own, work.asked) == (own, asked)


GROUPS = State(("v", 2), 50, 3)


def aggregate(delta: float, deleted: float = 0.0) -> Op:
    """An aggregate of eight rows in three groups, two of which change; deletions make it look for the next MIN."""
    return Op(None, (Input((), 8, delta),), (GROUPS,), rows=3, delta=2, deleted=deleted)


@pytest.mark.parametrize(
    ("op", "kept", "request_", "own", "asked"),
    [
        (aggregate(4), NONE, DELTA, 1_220_000, BOTH),  # Action 4: eight rows and four changes are added to groups
        (aggregate(4), (GROUPS,), DELTA, 4_420_000, DELTA),  # Action 5
        (aggregate(4), NONE, FULL, 800_000, FULL),
        (aggregate(4), (GROUPS,), FULL, 300, NOTHING),
        (aggregate(4), NONE, BOTH, 1_220_000, BOTH),
        (aggregate(4), (GROUPS,), BOTH, 4_420_300, DELTA),
        # Three of four changed rows are deleted.
        (aggregate(4, 3), NONE, DELTA, 31_220_000, BOTH),
        (aggregate(4, 3), (GROUPS,), DELTA, 34_420_000, DELTA),
        (aggregate(4, 3), NONE, FULL, 800_000, FULL),
        (aggregate(0), NONE, DELTA, 0, NOTHING),
    ],
)
def test_aggregates(op: Op, kept: tuple[State, ...], request_: Request, own: float, asked: Request) -> None:
    work = Action(op, kept).work(request_, COSTS)
    assert (work.own, work.asked) == (own, (asked,))


def test_what_does_not_stand_for_all_rows_is_read_from_below() -> None:
    """Rows without a key pass through a join: what it keeps is not all that came (Action 1 in place of Action 2)."""
    partial = replace(LEFT, stands=False)
    op = replace(BOTH_CHANGE, states=(partial, RIGHT))
    work = Action(op, (partial, RIGHT)).work(FULL, COSTS)
    assert (work.own, work.asked) == (70_403, (FULL, NOTHING))
    assert Action(op, (partial, RIGHT)).work(DELTA, COSTS).asked == (DELTA, DELTA)


def plan(deleted: float = 0.0) -> Op:
    """Groups over a join of orders and shops: two orders come, and the answer computes MIN."""
    orders, shops = Leaf(delta=0.002, full=0.3), Leaf(delta=0.0, full=0.4)
    joined = replace(LEFT_CHANGES, inputs=(Input((orders,), 3, 2), Input((shops,), 4, 0)))
    return Op(None, (Input((joined,), 7, 5),), (), rows=2, delta=2, deleted=deleted)


def test_costs_add_up_over_a_plan() -> None:
    # The root: five changed rows into groups (500_000), two groups given (20_000). The join: as above. The leaves.
    assert cost_of_one(plan(), frozenset({RIGHT.key}), DELTA, COSTS) == pytest.approx(520_000 + 52_000 + 0.002)
    assert cost_of_one(plan(), frozenset(), DELTA, COSTS) == pytest.approx(520_000 + 52_044 + 0.002 + 0.4)
    assert cost_of_one(plan(), frozenset({LEFT.key}), DELTA, COSTS) == pytest.approx(520_000 + 2_052_044 + 0.402)
    # Anew: seven rows into groups, the join of all rows, both leaves, and two groups compared with the answer.
    assert anew(plan(), COSTS) == pytest.approx(700_000 + 70_007 + 0.7 + 200_000)


def test_the_program_finds_the_costs_of_the_hand() -> None:
    for budget, kept, cost in [(0, set(), 572_044.402), (39, set(), 572_044.402), (40, {RIGHT.key}, 572_000.002)]:
        found = select([plan()], budget, COSTS)
        assert (found.kept, found.cost) == (kept, pytest.approx(cost))


def test_deletions_make_a_recomputation_worth_it() -> None:
    able = replace(plan(), recomputable=True)
    assert best_cost(able, frozenset(), COSTS) == pytest.approx(572_044.402)
    # Each deleted row looks for the next value, and an answer that is computed anew looks for none.
    deleting = replace(able, deleted=2.0)
    assert cost_of_one(deleting, frozenset(), DELTA, COSTS) == pytest.approx(20_572_044.402)
    assert best_cost(deleting, frozenset(), COSTS) == pytest.approx(970_007.7)
    assert select([deleting], 0, COSTS).cost == pytest.approx(970_007.7)
    assert best_cost(deleting, frozenset({RIGHT.key}), COSTS) == pytest.approx(20_572_000.002)
