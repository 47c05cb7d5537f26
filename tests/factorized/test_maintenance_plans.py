"""Plans of every strategy over random joins: maintained = recomputed, one batch = any split, nothing left behind.

No Spark is needed, so hundreds of joins are tried. Values are small integers, which doubles add and multiply exactly:
every comparison here is for equality.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pytest
from tests.factorized.harness import InMemory, natural_join
from tests.factorized.shapes import (
    CHORD,
    CLIQUE,
    EXAMPLE,
    PROJECTED,
    TRIANGLE,
    Schemas,
    hypergraph,
    random_schemas,
)

from headrace.factorized.join_view import JoinView
from headrace.factorized.order import VariableOrder
from headrace.factorized.order_text import to_json
from headrace.factorized.planner import STRATEGIES, Options, moments_view, plan_join
from headrace.plan.hypergraph import Hypergraph
from headrace.relation.arrangement import alive
from headrace.rings.covariance import unpack
from headrace.testing.joins import random_order

Row = tuple[int, ...]
Bag = dict[str, Counter[Row]]
Moments = dict[Row, tuple[int, list[int], list[list[int]]]]


@dataclass
class Case:
    """A random join, what is asked of it, and a stream of valid changes."""

    rng: random.Random
    schemas: Schemas
    values: int = 4
    features: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    static: frozenset[str] = frozenset()
    steps: list[Bag] = field(default_factory=list)

    @classmethod
    def draw(cls, seed: int, schemas: Schemas | None = None) -> Case:
        rng = random.Random(seed)
        case = cls(rng, schemas or random_schemas(rng), rng.randint(2, 5))
        variables = list(hypergraph(case.schemas).variables)
        rng.shuffle(variables)
        cut = rng.randint(0, min(2, len(variables) - 1))
        case.groups = tuple(variables[:cut])
        case.features = tuple(variables[cut : cut + rng.randint(1, 5)])
        case.steps = case._stream()
        return case

    def _stream(self) -> list[Bag]:
        steps: list[Bag] = []
        now: Bag = {name: Counter() for name in self.schemas}
        for _ in range(self.rng.randint(2, 5)):
            step: Bag = {}
            for name, variables in self.schemas.items():
                if self.rng.random() < 0.8:
                    change: Counter[Row] = Counter()
                    for _ in range(self.rng.randint(1, 8)):
                        change[tuple(self.rng.randrange(self.values) for _ in variables)] += self.rng.choice([1, 1, 2])
                    there = sorted(now[name].elements())
                    for row in self.rng.sample(there, self.rng.randint(0, min(5, len(there)))):
                        change[row] -= 1
                    now[name].update(change)
                    step[name] = change
            steps.append(step)
        return steps

    @cached_property
    def query(self) -> Hypergraph:
        """The query that a plan sees: without variables that nobody asks for."""
        whole = hypergraph(self.schemas)
        wanted = {*whole.join_variables, *self.features, *self.groups}
        return hypergraph({n: tuple(v for v in vs if v in wanted) for n, vs in self.schemas.items()}, self.groups)

    def view(self, buckets: int, **options: object) -> JoinView:
        chosen = Options(static=self.static, **options)  # type: ignore[arg-type]
        return moments_view(natural_join(self.schemas), self.groups, self.features, chosen, buckets, 7, {})[0]

    def every_plan(self) -> list[JoinView]:
        """Each strategy, and factorized also with random orders, marks and variables to partition by."""
        partitions = [None, *(v for v in self.query.variables if v not in self.query.local_variables)]

        def some() -> dict[str, object]:
            return {"partition": self.rng.choice(partitions)}

        plans = [self.view(self.rng.choice([1, 3, 4]), strategy=strategy, **some()) for strategy in STRATEGIES]
        for stop in (0.0, 0.4):
            if self.query.variables:
                order = random_order(self.rng, self.query, stop)
                plans.append(self.view(self.rng.choice([1, 3, 4]), order=to_json(order), **some()))
        return plans


def play(view: JoinView, steps: list[Bag], schemas: Schemas) -> InMemory:
    memory = InMemory(view)
    for step in steps:
        apply(memory, step, schemas)
    return memory


def apply(memory: InMemory, step: Bag, schemas: Schemas) -> None:
    changes = {}
    for name, change in step.items():
        tuples = list(change)
        columns = {v: np.array([row[i] for row in tuples], np.int64) for i, v in enumerate(schemas[name])}
        changes[name] = columns, np.array([change[row] for row in tuples], np.int64)
    memory.step(changes)


def state(steps: list[Bag], schemas: Schemas) -> Bag:
    now: Bag = {name: Counter() for name in schemas}
    for step in steps:
        for name, change in step.items():
            now[name].update(change)
    return now


def recomputed(data: Bag, case: Case) -> Moments:
    """All combinations of rows that agree: no plan, no order, no incremental anything."""
    joined: list[tuple[dict[str, int], int]] = [({}, 1)]
    for name, variables in case.schemas.items():
        bound = [(dict(zip(variables, row, strict=True)), times) for row, times in data[name].items() if times]
        joined = [
            (known | new, count * times)
            for known, count in joined
            for new, times in bound
            if all(known.get(v, value) == value for v, value in new.items())
        ]
    out: Moments = {}
    for row, times in joined:
        key = tuple(row[g] for g in case.groups)
        x = [row[f] for f in case.features]
        count, sums, products = out.setdefault(key, (0, [0] * len(x), [[0] * len(x) for _ in x]))
        for i, a in enumerate(x):
            sums[i] += times * a
            for j, b in enumerate(x):
                products[i][j] += times * a * b
        out[key] = (count + times, sums, products)
    return out


def maintained(memory: InMemory, case: Case) -> Moments:
    view = memory.view
    run = memory.contents("moments")
    if run is None:
        return {}
    stored = view.algebra.features(view.plan.root)  # type: ignore[attr-defined]
    at = [stored.index(feature) for feature in case.features]
    decoded = view.answer.keys.decode(run.words) if case.groups else []  # type: ignore[attr-defined]
    keys = list(zip(*(column.to_pylist() for column in decoded), strict=True)) if decoded else [()] * run.rows
    assert len(set(keys)) == len(keys)
    out: Moments = {}
    for key, row in zip(keys, run.payload[0], strict=True):
        count, sums, products = unpack(row, len(at))
        assert count != 0  # what vanished is gone, rounding and all
        out[key] = (count, sums[at].tolist(), products[np.ix_(at, at)].tolist())  # type: ignore[assignment]
    return out


def described(view: JoinView) -> str:
    """What to reproduce a failure with."""
    views = "\n".join(f"  {v.name} orders={v.orders} replicated={v.replicated} kept={v.kept}" for v in view.plan.views)
    return f"{view.plan.strategy}, {view.buckets} buckets by {view.plan.partition}:\n{views}"


@pytest.mark.parametrize("seed", range(80))
def test_every_plan_of_a_random_join(seed: int) -> None:
    case = Case.draw(seed)
    for view in case.every_plan():
        memory = InMemory(view)
        for n, step in enumerate(case.steps, start=1):
            apply(memory, step, case.schemas)
            expected = recomputed(state(case.steps[:n], case.schemas), case)
            assert maintained(memory, case) == expected, described(view)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(
    "schemas",
    [EXAMPLE, TRIANGLE, CHORD, CLIQUE, PROJECTED],
    ids=["example", "triangle", "chord", "clique", "projected"],
)
def test_every_plan_of_a_known_join(schemas: Schemas, seed: int) -> None:
    case = Case.draw(1000 + seed, schemas)
    expected = recomputed(state(case.steps, schemas), case)
    for view in case.every_plan():
        assert maintained(play(view, case.steps, schemas), case) == expected, described(view)


@pytest.mark.parametrize("seed", range(20))
def test_one_batch_equals_any_split(seed: int) -> None:
    case = Case.draw(2000 + seed)
    whole = {name: change for name, change in state(case.steps, case.schemas).items() if +change}
    one_by_one = []
    for step in case.steps:  # what a step inserts comes before what it deletes, or the rows would not be there
        rows = [(name, row, n) for name, change in step.items() for row, n in change.items()]
        case.rng.shuffle(rows)
        rows.sort(key=lambda change: change[2] < 0)
        one_by_one += [{name: Counter({row: n})} for name, row, n in rows]
    expected = recomputed(state(case.steps, case.schemas), case)
    for view in case.every_plan():
        for steps in ([whole], one_by_one):
            assert maintained(play(view, steps, case.schemas), case) == expected, described(view)


@pytest.mark.parametrize("seed", range(20))
def test_what_is_left_when_everything_is_deleted(seed: int) -> None:
    case = Case.draw(3000 + seed)
    there = state(case.steps, case.schemas)
    deletions = [{name: Counter({row: -n for row, n in rows.items() if n})} for name, rows in there.items()]
    case.rng.shuffle(deletions)
    for view in case.every_plan():
        memory = play(view, [*case.steps, *deletions], case.schemas)
        assert maintained(memory, case) == {}, described(view)
        for part in view.arrangements:
            run = memory.contents(part)
            assert run is None or not alive(run.payload).any(), f"{part} of {described(view)}"


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_rounding_does_not_outlive_the_rows_that_caused_it(strategy: str) -> None:
    """Values that no double adds exactly: what a key left behind must not be there when it returns."""
    rng = np.random.default_rng(5)
    view, _ = moments_view(
        natural_join({"R": ("A", "B"), "S": ("A", "C")}, doubles="BC"),
        (),
        ("B", "C"),
        Options(strategy=strategy),
        3,
        7,
        {},
    )
    memory = InMemory(view)
    a = rng.integers(0, 4, 40)
    b, c = rng.normal(size=40) * 10.0 ** rng.integers(-8, 9, 40), rng.normal(size=40) * 1e5
    ones = np.ones(40, np.int64)
    memory.step({"R": ({"A": a, "B": b}, ones), "S": ({"A": a, "C": c}, ones)})
    for rows in np.split(rng.permutation(40), [7, 13, 30]):
        memory.step({"R": ({"A": a[rows], "B": b[rows]}, -ones[rows])})
    for rows in np.split(rng.permutation(40), [3, 29]):
        memory.step({"S": ({"A": a[rows], "C": c[rows]}, -ones[rows])})
    for part in view.arrangements:
        run = memory.contents(part)
        assert run is None or run.rows == 0, f"{part}: {run}"
    memory.step({"R": ({"A": np.array([1]), "B": np.array([2.0])}, np.array([1]))})
    memory.step({"S": ({"A": np.array([1]), "C": np.array([3.0])}, np.array([1]))})
    run = memory.contents("moments")
    assert run is not None
    count, sums, products = unpack(run.payload[0][0], 2)
    assert (count, sorted(sums), sorted(products.ravel())) == (1, [2, 3], [4, 6, 6, 9])


@pytest.mark.parametrize("seed", range(20))
def test_static_relations_are_loaded_first_and_save_state(seed: int) -> None:
    case = Case.draw(4000 + seed)
    names = list(case.schemas)
    case.static = frozenset(case.rng.sample(names, case.rng.randint(1, len(names))))
    there = state(case.steps, case.schemas)
    loaded = {name: there[name] for name in case.static}
    moving = [{n: c for n, c in step.items() if n not in case.static} for step in case.steps]
    expected = recomputed(there, case)
    for view in case.every_plan():
        # Loaded together with changing rows, or before them.
        for steps in ([loaded, *moving], [loaded | moving[0], *moving[1:]] if moving else [loaded]):
            memory = play(view, steps, case.schemas)
            assert maintained(memory, case) == expected, described(view)
        kept = sum(v.kept for v in view.plan.views)
        every = Case(case.rng, case.schemas, features=case.features, groups=case.groups)
        free_to_change = every.view(3, strategy=view.plan.strategy)
        if view.plan.strategy != "factorized" or len(view.plan.views) == len(free_to_change.plan.views):
            assert kept <= sum(v.kept for v in free_to_change.plan.views)
        if case.static == set(names):
            assert kept == 1  # the answer


@pytest.mark.parametrize("seed", range(60))
def test_a_plan_is_found_again_from_the_order_that_is_written_down(seed: int) -> None:
    """State is stored by the numbers of a plan's views, so an engine that is opened again must number them alike."""
    rng = random.Random(seed)
    schemas = random_schemas(rng)
    variables = hypergraph(schemas).variables
    query = hypergraph(schemas, tuple(rng.sample(variables, rng.randint(0, min(3, len(variables))))))
    some = [v for v in variables if v not in query.free and rng.random() < 0.5]
    given = [None, *(to_json(random_order(rng, query, stop)) for stop in (0.0, 0.4))]
    for order in given:
        for features in ((), some):
            first = plan_join(query, features, Options(order=order), 3)
            assert first.order is not None
            again = plan_join(query, features, Options(order=to_json(first.order)), 3)
            assert again.order == first.order
            assert again.plan.views == first.plan.views
            # Without features nothing but joins and groups is keyed by: what is aggregated is so at the leaf.
            if not features:
                keyed = {v for view in first.plan.views for v in view.keys}
                assert not keyed & set(query.local_variables)


def test_values_far_from_zero_keep_their_digits_with_shifts() -> None:
    rng = np.random.default_rng(1)
    shifts = {"B": 1e6, "C": -3e7}
    view, _ = moments_view(
        natural_join({"R": ("A", "B"), "S": ("A", "C")}, doubles="BC"), (), ("B", "C"), Options(), 3, 7, shifts
    )
    memory = InMemory(view)
    a, ones = rng.integers(0, 3, 30), np.ones(30, np.int64)
    b, c = 1e6 + rng.integers(-3, 4, 30) / 4, -3e7 + rng.integers(-3, 4, 30) / 4
    memory.step({"R": ({"A": a, "B": b}, ones), "S": ({"A": a, "C": c}, ones)})
    pairs = [(b[i] - 1e6, c[j] + 3e7) for i in range(30) for j in range(30) if a[i] == a[j]]
    design = np.array(pairs)
    run = memory.contents("moments")
    assert run is not None
    names = view.algebra.features(view.plan.root)  # type: ignore[attr-defined]
    at = [names.index("B"), names.index("C")]
    count, sums, products = unpack(run.payload[0][0], 2)
    assert count == len(pairs)
    assert sums[at].tolist() == design.sum(axis=0).tolist()
    assert products[np.ix_(at, at)].tolist() == (design.T @ design).tolist()


def test_a_long_stream_in_small_steps() -> None:
    """State is added run by run; what a lookup sums over many runs is what one run would say."""
    case = Case.draw(77, {"R": ("A", "B"), "S": ("A", "C", "E"), "T": ("C", "D")})
    case.features, case.groups = ("A", "B", "C", "D", "E"), ()
    rng = random.Random(3)
    now: Bag = {name: Counter() for name in case.schemas}
    steps = []
    for _ in range(120):
        name = rng.choice(list(case.schemas))
        there = sorted(now[name].elements())
        row = tuple(rng.randrange(6) for _ in case.schemas[name])
        change = Counter({rng.choice(there): -1}) if there and rng.random() < 0.4 else Counter({row: 1})
        now[name].update(change)
        steps.append({name: change})
    expected = recomputed(now, case)
    assert expected[()][0] > 0
    for strategy in STRATEGIES:
        assert maintained(play(case.view(3, strategy=strategy), steps, case.schemas), case) == expected


def test_orders_that_are_tried_are_many() -> None:
    """The random orders above are worth their name: all five of this join's join variables come to the top."""
    query = hypergraph({"R": ("A", "B"), "S": ("B", "C"), "T": ("C", "D"), "U": ("D", "E")})
    orders: list[VariableOrder] = [random_order(random.Random(seed), query) for seed in range(100)]
    assert {order.roots[0].variable for order in orders} == set("ABCDE")
    assert len(set(orders)) > math.comb(5, 2)
