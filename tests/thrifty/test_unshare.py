"""Unsharing: splits that clustering finds are the best there are, and a new plan is taken only if it is less work."""

from __future__ import annotations

import random

import numpy as np
import pytest
from tests.seeds import seeds
from tests.thrifty.test_shared_paces import aggregates, join, part, two_joins

from headrace.thrifty.share.dag import Costs, Part, SharedPlan, alone
from headrace.thrifty.share.divide import Readers, piece
from headrace.thrifty.share.paces import Search, chosen
from headrace.thrifty.share.split import LocalProblem, local_constraints
from headrace.thrifty.share.unshare import Division, divided, divisions, inherited, lowered, unshared
from headrace.thrifty.simulate import simulated

SAMPLE = 400


def readers_of(one: Part, wants: dict[str, float], rng: np.random.Generator, *, nested: bool = False) -> Readers:
    """Views that each want some rows of the first table of a subplan, and all rows of the others."""
    places = rng.random(SAMPLE)
    marks = {view: (places if nested else rng.random(SAMPLE)) < share for view, share in wants.items()}
    return Readers(one.plan, {view: (len(one.plan.kinds) - 1,) for view in wants}, {(0, 0): marks})


def shared_plan(
    rng: random.Random, views: int, most: int = 20
) -> tuple[SharedPlan, dict[str, Readers], dict[str, float]]:
    rows = 10.0 ** rng.uniform(4, 5.5)
    subplan = part(rng.choice([join(rows, rows / 10, rows), two_joins(rows, rows, rows * rng.uniform(0.1, 2))]))
    wants = {f"v{i}": rng.choice([1.0, 0.5, 0.1, 0.02]) for i in range(views)}
    found = readers_of(subplan, wants, np.random.default_rng(rng.randrange(1_000)))
    given = simulated(subplan.plan, (1,) * len(subplan.plan.paths), subplan.units, 1).given[-1][0]
    own, wanted, whole = {}, {}, {}
    for view, share in wants.items():
        own[view] = part(aggregates(given * share, max(1.0, given * share * rng.uniform(0.001, 0.5))), "~1")
        whole[view] = alone(own[view], {"~1": subplan}, {"~1": share})[1]
        wanted[view] = rng.choice([1.0, 0.5, 0.2, 0.1]) * whole[view]
    return SharedPlan({"~1": subplan}, own, wanted, most=most), {"~1": found}, whole


@pytest.mark.check
@seeds("splits of a subplan", 12, check=4)
def test_clustering_comes_near_to_all_splits(seed: int) -> None:
    """Within 15% of the best of all set partitions, with all constraints met that a reader could meet by itself."""
    rng = random.Random(seed)
    plan, readers, whole = shared_plan(rng, views=5)
    one, subplan = readers["~1"], plan.subplans["~1"]
    every = range(len(subplan.plan.kinds))
    local = local_constraints(subplan, one, every, plan.wanted, whole)
    problem = LocalProblem(subplan, one, every, local, plan.most)
    found, best = problem.clustered(), problem.exhaustive()
    assert sorted(view for own in found for view in own.views) == sorted(one.views)
    assert all(own.is_met for own in (*found, *best))
    assert problem.total(found) <= 1.15 * problem.total(best)
    for own in found:
        assert own.wanted >= min(local[view] for view in own.views)
        assert problem.part(own.views).pace == own.pace, "the pace is the lowest that meets the constraint"


def test_all_readers_together_are_the_subplan_that_is_there() -> None:
    for subplan in (part(join(10_000, 500, 8_000)), part(two_joins(10_000, 10_000, 3_000))):
        one = readers_of(subplan, {"a": 0.3, "b": 0.5}, np.random.default_rng(1))
        same = piece(subplan, one, one.needed).part
        for pace in (1, 7):
            before = simulated(subplan.plan, (pace,) * len(subplan.plan.paths), subplan.units, 20)
            after = simulated(same.plan, (pace,) * len(same.plan.paths), same.units, 20)
            assert after.total == pytest.approx(before.total)
            assert after.final == pytest.approx(before.final)


def test_a_part_takes_the_rows_that_its_readers_want() -> None:
    subplan = part(join(10_000, 500, 8_000))
    one = readers_of(subplan, {"narrow": 0.1, "wide": 1.0}, np.random.default_rng(1), nested=True)
    narrow = piece(subplan, one, {"narrow": one.needed["narrow"]}).part
    share = one.marks[0, 0]["narrow"].mean()
    assert narrow.plan.arriving[0, 0, 0] == pytest.approx(10_000 * share)
    assert narrow.plan.arriving[0, 1, 0] == pytest.approx(500)
    given = simulated(narrow.plan, (1, 1), narrow.units, 1).given[-1][0]
    assert given == pytest.approx(8_000 * share)
    wide = piece(subplan, one, {"wide": one.needed["wide"]}).part
    assert wide.plan.arriving[0, 0, 0] == pytest.approx(10_000)


@seeds("search downwards", 8)
def test_a_search_downwards_adds_no_work_and_misses_no_goal(seed: int) -> None:
    plan, readers, whole = shared_plan(random.Random(seed), views=4)
    now = chosen(plan)
    for division in divisions(plan, "~1", readers["~1"], whole):
        after = divided(plan, division, readers["~1"])
        start = inherited(after, division, now)
        search, costs = Search(after), Costs(after)
        assert all(start[parent] <= start[child] for child, parent in after.pairs)
        found = lowered(after, start)
        assert found.total <= costs.total(start) * (1 + 1e-9)
        for view, most in search.wanted.items():
            assert found.finals[view] <= max(most, costs.final(view, start)) * (1 + 1e-9)


def test_goals_that_differ_take_a_subplan_apart() -> None:
    """One view wants a few rows at once; the other wants all rows, and is in no hurry, but goes along while shared."""
    subplan = part(join(400_000, 400_000, 400_000, kappa=0.0))
    subplan.units.table[:, :, 0] *= 20
    one = readers_of(subplan, {"eager": 0.01, "lazy": 1.0}, np.random.default_rng(2), nested=True)
    own = {"eager": part(aggregates(4_000, 10), "~1"), "lazy": part(aggregates(400_000, 100), "~1")}
    whole = {view: alone(own[view], {"~1": subplan}, {"~1": s})[1] for view, s in (("eager", 0.01), ("lazy", 1.0))}
    plan = SharedPlan({"~1": subplan}, own, {"eager": 0.9 * whole["eager"], "lazy": whole["lazy"]}, most=50)
    now = chosen(plan)
    (found,) = unshared(plan, now, {"~1": one}, whole)
    assert not found.plan.subplans
    assert not found.division.groups
    assert found.paces.total < 0.9 * found.before == pytest.approx(0.9 * now.total)
    assert found.paces.finals["eager"] < now.finals["eager"]
    assert set(found.paces.views["lazy"].values()) == {1}
    assert set(found.paces.views["lazy"]) == {"~1 0.left", "~1 0.right", "1"}, "the joins are its own now"


def test_goals_that_agree_leave_a_subplan_together() -> None:
    subplan = part(join(50_000, 5_000, 50_000))
    wants = dict.fromkeys(("a", "b", "c"), 1.0)
    own = {view: part(aggregates(50_000, 100), "~1") for view in wants}
    whole = {view: alone(own[view], {"~1": subplan}, {})[1] for view in wants}
    for share in (1.0, 0.3):
        plan = SharedPlan({"~1": subplan}, own, {view: share * whole[view] for view in wants}, most=20)
        found = unshared(plan, chosen(plan), {"~1": readers_of(subplan, wants, np.random.default_rng(3))}, whole)
        assert found == []


def test_a_reader_that_is_alone_is_the_view_that_it_would_be_without_sharing() -> None:
    """A part with one reader is merged into it, and the rows of tables wait before its own joins."""
    subplan, own = part(join(10_000, 500, 8_000)), part(aggregates(8_000, 50), "~1")
    one = readers_of(subplan, {"a": 1.0, "b": 1.0}, np.random.default_rng(1))
    plan = SharedPlan({"~1": subplan}, {"a": own, "b": own}, {"a": 1.0, "b": 1e9}, most=10)
    after = divided(plan, Division("~1", (), one.needed), one)
    assert not after.subplans
    merged = after.views["a"]
    assert merged.reads == {}
    assert merged.plan.children == ((0, 2), (1, 2))
    work = simulated(merged.plan, (1, 1, 1), merged.units, 1)
    apart = [simulated(p.plan, (1,) * len(p.plan.paths), p.units, 1) for p in (subplan, own)]
    assert work.total_rows == pytest.approx(sum(each.total_rows for each in apart))
    assert work.total < sum(each.total for each in apart), "it is one flush instead of two"


def test_the_last_join_alone_may_be_split() -> None:
    """Candidates grow from the last join downwards; with the last join alone, the first one goes on to be shared."""
    subplan = part(two_joins(100_000, 100_000, 200_000))
    one = readers_of(subplan, {"a": 1.0, "b": 0.1}, np.random.default_rng(1), nested=True)
    own = {"a": part(aggregates(200_000, 100), "~1"), "b": part(aggregates(20_000, 100), "~1")}
    plan = SharedPlan({"~1": subplan}, own, {"a": 1e9, "b": 5e3}, most=20)
    found = list(divisions(plan, "~1", one, {"a": 1e5, "b": 1e4}))
    partial = next(division for division in found if division.groups == (("a", "b"),))
    assert partial.own == {"a": {1}, "b": {1}}
    after = divided(plan, partial, one)
    assert len(after.subplans["~1"].plan.kinds) == 1
    for view in ("a", "b"):
        assert set(after.views[view].reads.values()) == {"~1"}
        assert after.views[view].ends == {(0, 0): 0}
        assert len(after.views[view].plan.kinds) == 2
    costs = Costs(after)
    batch = (1,) * len(after.places)
    rows = simulated(after.views["a"].plan, batch[1:][: len(after.views["a"].plan.paths)], after.views["a"].units, 1)
    assert rows.rows[0] == pytest.approx(110_000), "its own join takes all pairs of the shared one, and its table"
    assert costs.total(batch) > 0


def test_a_view_that_misses_its_goal_by_sharing_leaves_and_the_others_go_on() -> None:
    """At a trigger, a view that wants few rows waits for the rows of all; alone it meets its goal."""
    plan, readers, whole = shared_plan(random.Random(22), views=5, most=100)
    now = chosen(plan)
    assert now.finals["v0"] > 1.1 * plan.wanted["v0"]
    (found,) = unshared(plan, now, readers, whole)
    assert found.reached == ("v0",)
    assert found.division.groups == (("v1", "v2", "v3", "v4"),), "the others have no reason to leave"
    assert set(found.division.own) == {"v0"}
    assert found.paces.finals["v0"] <= plan.wanted["v0"]
    assert found.paces.total > now.total, "goals come before work"


def test_goals_that_are_out_of_reach_are_no_reason_to_do_much_more_work() -> None:
    """Four views miss their goals, with sharing and without; alone, they come a little nearer for twice the work."""
    plan, readers, whole = shared_plan(random.Random(3), views=5, most=100)
    now, one = chosen(plan), readers["~1"]
    late = [view for view, most in plan.wanted.items() if now.finals[view] > 1.1 * most]
    division = Division("~1", (), one.needed)
    alone = lowered(divided(plan, division, one), inherited(divided(plan, division, one), division, now))
    assert len(late) == 4
    assert all(1.5 * plan.wanted[view] < alone.finals[view] < now.finals[view] for view in late)
    assert alone.total > 2 * now.total
    assert unshared(plan, now, readers, whole) == []
