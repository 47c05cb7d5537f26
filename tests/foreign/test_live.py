"""Live tuples over random foreign-key graphs: what steps emit, what is kept, and what nested loops say."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.foreign.random_foreign import ForeignSchema, InMemory, Rows, grouped_view, random_schema, rows_view

from headrace.plan.tree import Join

SEEDS = st.integers(0, 2**32 - 1)


def _sizes(random: np.random.Generator, tables: int) -> dict[str, int]:
    """Nothing known, or sizes that make some children small enough to be in every bucket."""
    if random.random() < 0.4:
        return {}
    return {f"t{i}": int(10 ** random.integers(1, 7)) for i in range(tables)}


@settings(max_examples=120, deadline=None)
@given(seed=SEEDS, tables=st.integers(2, 6), buckets=st.integers(1, 3))
def test_the_sum_of_all_deltas_is_the_full_answer(seed: int, tables: int, buckets: int) -> None:
    random = np.random.default_rng(seed)
    schema = random_schema(random, tables)
    rows = Rows(schema, random)
    view = InMemory(rows_view(schema, _sizes(random, tables), buckets))
    emitted: Counter[tuple[int | str, ...]] = Counter()
    for _ in range(6):
        view.step(rows.changes(8))
        emitted.update(view.changes())
        expected = rows.joined()
        assert view.answer() == expected
        assert {row: times for row, times in emitted.items() if times} == dict(expected)


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, tables=st.integers(2, 5))
def test_one_batch_is_the_same_rows_one_by_one(seed: int, tables: int) -> None:
    random = np.random.default_rng(seed)
    schema = random_schema(random, tables)
    rows = Rows(schema, random)
    sizes = _sizes(random, tables)
    whole, single = (InMemory(rows_view(schema, sizes, buckets)) for buckets in (2, 3))
    for _ in range(3):
        changes = rows.changes(5)
        whole.step(changes)
        # Within a table the order of an update is kept; tables may come in any order.
        for name in random.permutation(list(changes)):
            for change in changes[str(name)]:
                single.step({str(name): [change]})
        assert whole.answer() == single.answer() == rows.joined()


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, tables=st.integers(2, 5), buckets=st.integers(1, 3))
def test_aggregates_over_live_tuples(seed: int, tables: int, buckets: int) -> None:
    random = np.random.default_rng(seed)
    schema = random_schema(random, tables)
    rows = Rows(schema, random)
    by, argument = (str(name) for name in random.choice(schema.variables, 2, replace=False))
    view = InMemory(
        grouped_view(schema, by, argument, ("min", "max", "count_distinct"), _sizes(random, tables), buckets)
    )
    at, of = schema.variables.index(by), schema.variables.index(argument)
    for _ in range(5):
        view.step(rows.changes(8))
        joined = list(rows.joined().elements())
        expected = Counter()
        for group in {row[at] for row in joined}:
            values = [row[of] for row in joined if row[at] == group]
            expected[group, len(values), min(values), max(values), len(set(values))] = 1  # type: ignore[type-var]
        assert view.answer() == expected


@settings(max_examples=30, deadline=None)
@given(seed=SEEDS, tables=st.integers(2, 5))
def test_nothing_is_left_of_what_was_deleted(seed: int, tables: int) -> None:
    random = np.random.default_rng(seed)
    schema = random_schema(random, tables)
    rows = Rows(schema, random)
    view = InMemory(rows_view(schema, _sizes(random, tables), 2))
    for _ in range(4):
        view.step(rows.changes(8))
    view.step({name: [(row, -1) for row in found] for name, found in rows.now.items() if found})
    for part in view.view.arrangements:
        run = view.stored(part)
        assert run is None or run.rows == 0, part


def test_a_diamond_is_alive_only_where_its_paths_agree() -> None:
    view = InMemory(rows_view(_diamond(), {}, 2))
    joins = zip(view.made.joins, view.made.tree.nodes, strict=False)
    [(final, node)] = [(r, n) for r, n in joins if isinstance(n, Join) and n.residual is not None]
    assert final.parent == "t0"
    assert view.made.graph.asserted["t0"] == ("k3",)
    assert node.residual is not None
    assert node.residual.op == "EqualTo"
    view.step({"t0": [((1, 1, 1, "v"), 1)], "t1": [((1, 7, "a"), 1)], "t2": [((1, 8, "b"), 1)]})
    view.step({"t3": [((7, "x"), 1), ((8, "y"), 1)]})
    assert not view.answer()  # all children are there, and disagree
    view.step({"t2": [((1, 8, "b"), -1), ((1, 7, "c"), 1)]})
    assert view.answer() == {(1, 1, 1, "v", 7, "a", "c", "x"): 1}
    view.step({"t3": [((7, "x"), -1), ((7, "z"), 1)]})
    assert view.changes() == {(1, 1, 1, "v", 7, "a", "c", "x"): -1, (1, 1, 1, "v", 7, "a", "c", "z"): 1}
    view.step({"t3": [((7, "z"), -1)]})
    assert not view.answer()


def _diamond() -> ForeignSchema:
    return ForeignSchema(
        {
            "t0": ("k0", "k1", "k2", "v0"),
            "t1": ("k1", "k3", "v1"),
            "t2": ("k2", "k3", "v2"),
            "t3": ("k3", "v3"),
        },
        {"t0": ("k0",), "t1": ("k1",), "t2": ("k2",), "t3": ("k3",)},
    )


@pytest.mark.parametrize("rows", [1_000, 16_000])
def test_a_step_costs_what_changes_state_whatever_the_size_of_the_tables(rows: int) -> None:
    schema = ForeignSchema({"t0": ("k0", "k1", "v0"), "t1": ("k1", "v1")}, {"t0": ("k0",), "t1": ("k1",)})
    view = InMemory(rows_view(schema, {}, 1))
    view.step({"t0": [((i, i // 4, "v"), 1) for i in range(rows)], "t1": [((i, "a"), 1) for i in range(rows // 4)]})
    view.step({"t1": [((5, "a"), -1), ((5, "b"), 1)], "t0": [((rows, 6, "v"), 1)]})
    # One child of four rows changes, and one row comes: nine joined rows appear or disappear, and five entries are new.
    assert sum(abs(times) for times in view.changes().values()) == 9
    new = {part: runs[-1].rows for (part, _), runs in view.state.items() if part != "groups"}
    assert new == {"0.left": 1, "0.right": 2}


def test_exchanges_carry_only_rows_that_come_to_life_or_die() -> None:
    schema = ForeignSchema(
        {"t0": ("k0", "k1", "v0"), "t1": ("k1", "k2", "v1"), "t2": ("k2", "v2")},
        {"t0": ("k0",), "t1": ("k1",), "t2": ("k2",)},
    )
    view = InMemory(rows_view(schema, {}, 3))
    view.step({"t0": [((i, i % 50, "v"), 1) for i in range(200)]})
    view.step({"t1": [((i, i % 5, "v"), 1) for i in range(50)]})
    assert view.sent == []  # all of them wait
    view.step({"t2": [((3, "v"), 1)]})
    assert sum(rows for _, _, rows in view.sent) == 10  # rows of t1 that refer to it
    assert sum(view.changes().values()) == 40


def test_few_groups_are_summed_where_their_rows_are() -> None:
    schema = ForeignSchema({"t0": ("k0", "k1", "v0"), "t1": ("k1", "v1")}, {"t0": ("k0",), "t1": ("k1",)})
    view = InMemory(grouped_view(schema, "v1", "k0", ("count_distinct",), {}, 4))
    rows = [((i, i % 60, "v"), 1) for i in range(3_000)]
    view.step({"t0": rows, "t1": [((i, f"v{i % 2}"), 1) for i in range(60)]})
    sums = [(bucket, rows) for bucket, part, rows in view.sent if part == "groups"]
    # Every bucket has worked on its share of the rows, and has sent no more than two sums.
    assert {bucket for bucket, _ in sums} == {0, 1, 2, 3}
    assert sum(rows for _, rows in sums) <= 8
    assert view.answer() == {("v0", 1_500, 1_500): 1, ("v1", 1_500, 1_500): 1}
